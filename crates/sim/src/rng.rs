//! Randomness that can be repeated.
//!
//! In:    a seed, printed by whoever drew it.
//! Out:   the same numbers for the same seed, on every run.
//! Never: a number from the clock, the process or the operating system.
//!
//! A generator is split by a label rather than shared, so that one more draw
//! in the traffic does not move every number in the follow graph. The
//! algorithms are the public-domain SplitMix64 (seeding) and xoshiro256++.

/// A seeded generator. Cheap to clone; a clone repeats its original.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of SplitMix64: also a good hash of a small integer.
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Rng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        let first = mix(seed);
        let second = mix(first);
        let third = mix(second);
        Self {
            state: [first, second, third, mix(third)],
        }
    }

    /// An independent generator for the part of the world called `label`.
    ///
    /// Splitting leaves `self` as it was: the order of splits is of no matter.
    pub fn split(&self, label: &str) -> Self {
        let [a, b, c, d] = self.state;
        let own = a ^ b.rotate_left(16) ^ c.rotate_left(32) ^ d.rotate_left(48);
        let seed = label
            .bytes()
            .fold(own, |hash, byte| mix(hash ^ u64::from(byte)));
        Self::new(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let c = c ^ a;
        let d = d ^ b;
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An integer in `[0, limit)`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// An index into something of `len` items; 0 when it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in a share `probability` of the calls.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// One of `items`; `None` when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// A draw from the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Thirty-two random bytes, such as a private key.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0u8; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes());
        }
        bytes
    }
}

/// Draws indices in proportion to fixed weights, in logarithmic time.
#[derive(Debug, Clone)]
pub struct Wheel {
    sums: Vec<f64>,
}

impl Wheel {
    /// A wheel whose sector `i` is as wide as the `i`-th weight.
    pub fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        let sums = weights
            .into_iter()
            .scan(0.0, |sum, weight| {
                *sum += weight.max(0.0);
                Some(*sum)
            })
            .collect();
        Self { sums }
    }

    /// Where the wheel stops; `None` if all weights are zero.
    pub fn spin(&self, rng: &mut Rng) -> Option<usize> {
        let total = *self.sums.last()?;
        if total <= 0.0 {
            return None;
        }
        let at = rng.unit() * total;
        let index = self.sums.partition_point(|&sum| sum <= at);
        Some(index.min(self.sums.len() - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..100).map(|_| rng.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn generator_follows_the_published_algorithm() {
        // xoshiro256++ started from the state 1, 2, 3, 4, as in its reference.
        let mut rng = Rng {
            state: [1, 2, 3, 4],
        };
        let drawn: Vec<u64> = (0..4).map(|_| rng.bits()).collect();
        assert_eq!(
            drawn,
            [41943041, 58720359, 3588806011781223, 3591011842654386]
        );
    }

    #[test]
    fn splits_are_independent_of_their_order_and_of_each_other() {
        let root = Rng::new(1);
        let (mut graph, mut traffic) = (root.split("graph"), root.split("traffic"));
        let (mut traffic_again, mut graph_again) = (root.split("traffic"), root.split("graph"));
        assert_eq!(graph.bits(), graph_again.bits());
        assert_eq!(traffic.bits(), traffic_again.bits());
        assert_ne!(graph.bits(), traffic.bits());
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = Rng::new(3);
        let mut seen = [false; 6];
        for _ in 0..1000 {
            seen[rng.below(6) as usize] = true;
        }
        assert_eq!(seen, [true; 6]);
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn wheel_stops_in_proportion_to_the_weights() {
        let wheel = Wheel::new([1.0, 0.0, 3.0]);
        let mut rng = Rng::new(5);
        let mut hits = [0; 3];
        for _ in 0..4000 {
            hits[wheel.spin(&mut rng).unwrap()] += 1;
        }
        assert_eq!(hits[1], 0);
        assert!((900..1100).contains(&hits[0]), "{hits:?}");
        assert_eq!(Wheel::new([]).spin(&mut rng), None);
        assert_eq!(Wheel::new([0.0]).spin(&mut rng), None);
    }
}
