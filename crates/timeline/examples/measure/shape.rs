//! The shape of a network: who follows whom, drawn from public marginals.
//!
//! In:    a seed, a number of readers, a number of accounts.
//! Out:   for each reader the accounts it follows; the marginals reached.
//! Never: a home-made shape without its numbers printed beside the public ones.
//!
//! Followers of an account: a lognormal body and a Zipf tail. Accounts followed
//! by a reader: a power law of exponent 2.28.

/// A small generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }

    /// Between 0 and 1, never 0.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A number of a normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Who follows whom.
#[derive(Debug)]
pub(crate) struct Shape {
    /// For each reader, the accounts it follows, without repeats.
    pub(crate) follows: Vec<Vec<u32>>,
    /// For each account, how many follow it.
    pub(crate) followers: Vec<u32>,
}

fn followers_of(random: &mut Random, rank: u32, readers: u32) -> u32 {
    let most = f64::from(readers);
    let tail = 0.95 * most / f64::from(rank + 1).powf(0.95);
    let count = if rank < 200 {
        tail
    } else {
        // Capped where the body's own tail would overtake the public one.
        (2.77 * random.normal()).exp().min(0.0026 * most)
    };
    count.round().clamp(0.0, most) as u32
}

impl Shape {
    pub(crate) fn new(seed: u64, readers: u32, accounts: u32) -> Self {
        let mut random = Random(seed);
        let mut follows: Vec<Vec<u32>> = vec![Vec::new(); readers as usize];
        let mut followers = vec![0; accounts as usize];
        for rank in 0..accounts {
            let count = followers_of(&mut random, rank, readers);
            // Odd and prime steps scatter rank and reader over the ids.
            let account = (u64::from(rank) * 2_654_435_761 % u64::from(accounts)) as u32;
            if count > readers / 20 {
                // Most of everybody: each reader decides for itself.
                for list in &mut follows {
                    if random.below(readers) < count {
                        list.push(account);
                    }
                }
                continue;
            }
            for _ in 0..count {
                let place = (random.unit().powf(4.55) * f64::from(readers)) as u64;
                let reader = place * 2_654_435_761 % u64::from(readers);
                if let Some(list) = follows.get_mut(reader as usize) {
                    list.push(account);
                }
            }
        }
        for list in &mut follows {
            list.sort_unstable();
            list.dedup();
            for &account in list.iter() {
                if let Some(count) = followers.get_mut(account as usize) {
                    *count += 1;
                }
            }
        }
        Self { follows, followers }
    }

    pub(crate) fn print(&self) {
        let mut counts = self.followers.clone();
        counts.sort_unstable();
        let at = |share: f64| {
            let place = (share * counts.len() as f64) as usize;
            counts
                .get(place.min(counts.len() - 1))
                .copied()
                .unwrap_or(0)
        };
        let edges: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        println!(
            "followers: median {} (1), p95 {} (95), p99.5 {} (1000), p99.9 {} (2300), max {} (>= 900000), mean {:.1} (30-60)",
            at(0.5),
            at(0.95),
            at(0.995),
            at(0.999),
            at(1.0),
            edges as f64 / counts.len() as f64,
        );
        let mut following: Vec<usize> = self.follows.iter().map(Vec::len).collect();
        following.sort_unstable();
        println!(
            "following: median {:?}, mean {:.1}, max {:?} (<= 770000); edges {edges}",
            following.get(following.len() / 2),
            edges as f64 / following.len() as f64,
            following.last(),
        );
    }
}
