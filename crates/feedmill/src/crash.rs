//! Named crash points.
//!
//! A test runs the binary with `FEEDMILL_CRASH=name` (or `name:3` for the
//! third passage) and the process is gone at that very place, as if the power
//! had failed. With `FEEDMILL_STALL` the thread stays at that place for ever, as
//! if the disk did not answer. Without the variables a point costs two loads.

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

/// The same inside the group commit of the log.
pub const LOG_POINTS: &[&str] = &["log.group.job", "log.group.before", "log.group.committed"];

/// Ends the process if these bytes of a frame hold the text in `FEEDMILL_POISON`; for tests.
pub fn poison(bytes: &[u8]) {
    static TEXT: OnceLock<Option<String>> = OnceLock::new();
    poison_by("FEEDMILL_POISON", &TEXT, bytes);
}

/// The same for a record that waited in the store, and `FEEDMILL_POISON_WAITING`.
pub fn poison_waiting(bytes: &[u8]) {
    static TEXT: OnceLock<Option<String>> = OnceLock::new();
    poison_by("FEEDMILL_POISON_WAITING", &TEXT, bytes);
}

fn poison_by(variable: &str, text: &OnceLock<Option<String>>, bytes: &[u8]) {
    let text = text.get_or_init(|| {
        let text = std::env::var(variable).ok()?;
        (!text.is_empty()).then_some(text)
    });
    if let Some(text) = text
        && bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    {
        std::process::abort();
    }
}

impl Plan {
    fn asked_by(variable: &str) -> Option<Self> {
        let wish = std::env::var(variable).ok()?;
        let (name, passages) = match wish.split_once(':') {
            Some((name, passages)) => (name.to_owned(), passages.parse().unwrap_or(1)),
            None => (wish, 1),
        };
        Some(Self {
            name,
            passages_left: AtomicU64::new(passages),
        })
    }

    /// Whether this passage is the one that was asked for.
    fn is_due(&self, name: &str) -> bool {
        self.name == name && self.passages_left.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

/// Ends the process or stalls the thread here if the environment asks for it.
pub fn point(name: &str) {
    static CRASH: OnceLock<Option<Plan>> = OnceLock::new();
    static STALL: OnceLock<Option<Plan>> = OnceLock::new();
    let is_due = |plan: &Option<Plan>| plan.as_ref().is_some_and(|plan| plan.is_due(name));
    if is_due(CRASH.get_or_init(|| Plan::asked_by("FEEDMILL_CRASH"))) {
        std::process::abort();
    }
    if is_due(STALL.get_or_init(|| Plan::asked_by("FEEDMILL_STALL"))) {
        loop {
            std::thread::park();
        }
    }
}
