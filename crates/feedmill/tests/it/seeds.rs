//! Which worlds a random test plays: those of fresh seeds, each printed.
//!
//! `FEEDMILL_STEPS=n` makes that many steps of each test instead of the few of
//! an ordinary run; `FEEDMILL_SEED=n` plays one world, that one.

use std::time::{SystemTime, UNIX_EPOCH};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

/// The seeds of as many worlds of `each` steps as make `usual` of them, unless the environment says otherwise.
pub(crate) fn seeds(test: &'static str, each: u64, usual: u64) -> impl Iterator<Item = u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = number("FEEDMILL_SEED");
    let steps = number("FEEDMILL_STEPS").unwrap_or(usual);
    let worlds = first.map_or(steps.div_ceil(each), |_| 1);
    let first = first.unwrap_or(now.as_micros() as u64 % 1_000_000_000);
    (first..first + worlds).inspect(move |seed| println!("{test}: FEEDMILL_SEED={seed}"))
}
