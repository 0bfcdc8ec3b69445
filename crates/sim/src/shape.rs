//! The shape of a public network: who is followed, who follows, who writes, who reads.
//!
//! In:    a number of accounts and a generator.
//! Out:   per account: a follower count and three independent weights; and
//!        the achieved [`Marginals`], so that nobody has to believe us.
//! Never: a graph. [`Shape::edges`] draws one from the counts when asked.
//!
//! Follower counts are lognormal up to the 99th percentile and a Pareto (Zipf)
//! tail above it, fitted to the published marginals: median 1, p95 95,
//! p99.5 1 000, p99.9 2 300, mean 30–60, maximum above 0.9 M at 40 M accounts.
//! A world of `n` accounts cannot give anyone more than `n - 1` followers, so
//! small worlds lose the end of the tail and some of the mean.

use std::collections::HashSet;
use std::fmt;

use crate::rng::{Rng, Wheel};

/// Width of the lognormal body: e^(1.645 × 2.79) = 98 at p95.
const BODY_SIGMA: f64 = 2.79;
/// Share of accounts in the tail, and the normal quantile where it starts.
const TAIL_SHARE: f64 = 0.01;
const TAIL_START_Z: f64 = 2.326_347_9;
/// Exponent of the tail's survival function.
const TAIL_ALPHA: f64 = 1.77;
/// Exponent of the density of following counts, and their bounds.
const FOLLOWING_EXPONENT: f64 = 2.28;
const FOLLOWING_MIN: f64 = 7.0;
const FOLLOWING_MAX: f64 = 770_000.0;
/// Share of accounts that never read.
const SILENT_SHARE: f64 = 0.75;
/// Followers for which a table is kept from one account to the next.
const ROOM_KEPT: usize = 4096;

/// One account's place in the network.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// How many accounts follow this one.
    pub followers: u32,
    /// How eagerly it follows others: a power law of exponent 2.28.
    pub following: f64,
    /// How often it writes, relative to others.
    pub writes: f64,
    /// How often it reads, relative to others; 0 for most.
    pub reads: f64,
}

/// The places of all accounts, by account number.
#[derive(Debug, Clone)]
pub struct Shape {
    pub places: Vec<Place>,
}

/// What was achieved, to print beside what was wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marginals {
    pub accounts: usize,
    pub median: u32,
    pub p95: u32,
    pub p995: u32,
    pub p999: u32,
    pub max: u32,
    pub mean: f64,
    /// Exponent of the following weights, by maximum likelihood.
    pub following_exponent: f64,
    /// Share of accounts that never read.
    pub silent: f64,
}

impl Shape {
    /// Draws the places of `accounts` accounts.
    pub fn draw(rng: &Rng, accounts: usize) -> Self {
        let mut followers = rng.split("followers");
        let mut following = rng.split("following");
        let mut writes = rng.split("writes");
        let mut reads = rng.split("reads");
        let cap = accounts.saturating_sub(1) as f64;
        let places = (0..accounts)
            .map(|_| Place {
                followers: follower_count(&mut followers).min(cap) as u32,
                following: following_weight(&mut following).min(cap.max(1.0)),
                writes: skewed(&mut writes),
                reads: match reads.chance(SILENT_SHARE) {
                    true => 0.0,
                    false => skewed(&mut reads),
                },
            })
            .collect();
        Self { places }
    }

    /// Draws who follows whom: pairs of account numbers (follower, followed),
    /// each pair once and nobody himself, grouped by the followed.
    ///
    /// Follower counts are met exactly unless `accounts` is so small that
    /// distinct followers run out.
    pub fn edges(&self, rng: &Rng) -> Vec<(u32, u32)> {
        let mut rng = rng.split("edges");
        let wheel = Wheel::new(self.places.iter().map(|place| place.following));
        let mut edges = Vec::new();
        let mut chosen = HashSet::new();
        for (followed, place) in self.places.iter().enumerate() {
            // Clearing a table costs what its largest use has cost: after a star it is let go.
            if chosen.capacity() > ROOM_KEPT {
                chosen = HashSet::new();
            }
            chosen.clear();
            // Heavy followers are drawn again and again; the bound keeps a
            // star in a tiny world from spinning for ever.
            let attempts_max = u64::from(place.followers) * 20;
            let mut attempts = 0;
            while chosen.len() < place.followers as usize && attempts < attempts_max {
                attempts += 1;
                let Some(follower) = wheel.spin(&mut rng) else {
                    break;
                };
                if follower != followed && chosen.insert(follower) {
                    edges.push((follower as u32, followed as u32));
                }
            }
        }
        edges
    }

    /// The achieved marginals.
    pub fn marginals(&self) -> Marginals {
        let mut counts: Vec<u32> = self.places.iter().map(|place| place.followers).collect();
        counts.sort_unstable();
        let quantile = |share: f64| {
            let at = (share * counts.len() as f64) as usize;
            *counts
                .get(at.min(counts.len().saturating_sub(1)))
                .unwrap_or(&0)
        };
        let accounts = counts.len();
        let divisor = accounts.max(1) as f64;
        let logs: f64 = self
            .places
            .iter()
            .map(|place| (place.following / FOLLOWING_MIN).max(1.0).ln())
            .sum();
        Marginals {
            accounts,
            median: quantile(0.5),
            p95: quantile(0.95),
            p995: quantile(0.995),
            p999: quantile(0.999),
            max: quantile(1.0),
            mean: counts.iter().map(|&count| f64::from(count)).sum::<f64>() / divisor,
            following_exponent: 1.0 + divisor / logs.max(f64::MIN_POSITIVE),
            silent: self
                .places
                .iter()
                .filter(|place| place.reads == 0.0)
                .count() as f64
                / divisor,
        }
    }
}

impl fmt::Display for Marginals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accounts; followers median {} (1), p95 {} (95), p99.5 {} (1000), p99.9 {} (2300), \
             mean {:.1} (30-60), max {} (at least 900000); following exponent {:.2} (2.28); never reading {:.0} % (65-85)",
            self.accounts,
            self.median,
            self.p95,
            self.p995,
            self.p999,
            self.mean,
            self.max,
            self.following_exponent,
            self.silent * 100.0,
        )
    }
}

/// A follower count before the cap of a small world.
fn follower_count(rng: &mut Rng) -> f64 {
    if rng.chance(TAIL_SHARE) {
        let start = (BODY_SIGMA * TAIL_START_Z).exp();
        return (start * (1.0 - rng.unit()).powf(-1.0 / TAIL_ALPHA)).floor();
    }
    // The body is cut where the tail takes over, so that both meet.
    let mut z = rng.normal();
    while z > TAIL_START_Z {
        z = rng.normal();
    }
    let count = (BODY_SIGMA * z).exp();
    if count < 0.3 { 0.0 } else { count.ceil() }
}

/// A draw from the power law of following counts.
fn following_weight(rng: &mut Rng) -> f64 {
    let draw = FOLLOWING_MIN * (1.0 - rng.unit()).powf(-1.0 / (FOLLOWING_EXPONENT - 1.0));
    draw.min(FOLLOWING_MAX)
}

/// A weight of high but finite skew: a few accounts do most of it.
fn skewed(rng: &mut Rng) -> f64 {
    (1.6 * rng.normal()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, wanted: f64, tolerance: f64) {
        let off = (found - wanted).abs() / wanted;
        assert!(off <= tolerance, "found {found}, wanted {wanted}");
    }

    #[test]
    fn large_world_has_the_published_marginals() {
        let shape = Shape::draw(&Rng::new(11), 400_000);
        let found = shape.marginals();
        assert_eq!(found.median, 1, "{found}");
        near(f64::from(found.p95), 95.0, 0.10);
        near(f64::from(found.p995), 1000.0, 0.15);
        near(f64::from(found.p999), 2300.0, 0.15);
        assert!((29.0..60.0).contains(&found.mean), "{found}");
        assert!(found.max > 10_000, "{found}");
        near(found.following_exponent, 2.28, 0.02);
        assert!((0.65..0.85).contains(&found.silent), "{found}");
    }

    #[test]
    fn reading_and_writing_are_not_correlated() {
        let shape = Shape::draw(&Rng::new(12), 50_000);
        let of = |place: &&Place| place.reads > 0.0;
        let readers: Vec<&Place> = shape.places.iter().filter(of).collect();
        let mean = |values: &dyn Fn(&Place) -> f64| {
            readers.iter().map(|place| values(place)).sum::<f64>() / readers.len() as f64
        };
        let (reads, writes) = (mean(&|p| p.reads.ln()), mean(&|p| p.writes.ln()));
        let covariance = mean(&|p| (p.reads.ln() - reads) * (p.writes.ln() - writes));
        assert!(covariance.abs() < 0.1, "covariance {covariance}");
    }

    #[test]
    fn edges_meet_the_follower_counts_and_name_nobody_twice() {
        let rng = Rng::new(13);
        let shape = Shape::draw(&rng, 3000);
        let edges = shape.edges(&rng);
        let mut counts = vec![0u32; 3000];
        let mut pairs = HashSet::new();
        for &(follower, followed) in &edges {
            assert_ne!(follower, followed);
            assert!(pairs.insert((follower, followed)));
            counts[followed as usize] += 1;
        }
        let met = shape
            .places
            .iter()
            .zip(&counts)
            .filter(|(place, count)| place.followers == **count)
            .count();
        assert!(met > 2980, "{met} of 3000 met");
    }
}
