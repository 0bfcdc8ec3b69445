//! Named crash points.
//!
//! A test runs the binary with `FEEDMILL_CRASH=name` (or `name:3` for the
//! third passage) and the process is gone at that very place, as if the power
//! had failed. Without the variable a point costs one load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Plan {
    name: String,
    passages_left: AtomicU64,
}

/// Every name that can be given; tests go through all of them.
pub const POINTS: &[&str] = &[
    "commit.before-cursor",
    "commit.before",
    "commit.after",
    "resync.before-commit",
];

/// Ends the process here if the environment asks for it.
pub fn point(name: &str) {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let wish = std::env::var("FEEDMILL_CRASH").ok()?;
        let (name, passages) = match wish.split_once(':') {
            Some((name, passages)) => (name.to_owned(), passages.parse().unwrap_or(1)),
            None => (wish, 1),
        };
        Some(Plan {
            name,
            passages_left: AtomicU64::new(passages),
        })
    });
    if let Some(plan) = plan
        && plan.name == name
        && plan.passages_left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}
