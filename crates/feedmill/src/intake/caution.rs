//! Cautions: what is wrong with a stream is said once, with its cause.
//!
//! In:    a kind of trouble, an example of it, and the time.
//! Out:   one log line for each kind; after `PAUSE_US` another, with how many came meanwhile.
//! Never: a line for every bad event, by which a hostile account fills the disk.

use std::collections::HashMap;

use tracing::warn;

use crate::clock::Micros;
use crate::store::batch::{DeadLetter, Item, Verdict};

/// Before the same kind is told again.
const PAUSE_US: Micros = 3_600_000_000;
/// Kinds remembered; further ones are told as one. A stranger chooses the names of events.
const KINDS_MAX: usize = 64;

/// What was said already about one source.
#[derive(Debug, Default)]
pub(super) struct Cautions(HashMap<String, Said>);

#[derive(Debug, Default)]
struct Said {
    at_us: Micros,
    /// Came since and was not told.
    untold: u64,
}

impl Cautions {
    /// Says `cause` unless one of its kind was said lately; returns whether it was said.
    pub(super) fn say(&mut self, now_us: Micros, source: &str, kind: &str, cause: &str) -> bool {
        let known = self.0.contains_key(kind) || self.0.len() < KINDS_MAX;
        let kind = if known { kind } else { "others" };
        let said = self.0.entry(kind.to_owned()).or_default();
        if said.at_us != 0 && now_us - said.at_us < PAUSE_US {
            said.untold += 1;
            return false;
        }
        warn!(
            source,
            kind,
            cause,
            untold = said.untold,
            "something in the stream could not be used; more of its kind is counted, not logged"
        );
        *said = Said {
            at_us: now_us,
            untold: 0,
        };
        true
    }

    /// Says what is wrong in a committed batch.
    pub(super) fn say_all(&mut self, now_us: Micros, source: &str, items: &[Item]) {
        for item in items {
            match item {
                Item::Unopened(letter) => self.letter(now_us, source, letter),
                Item::Commit(commit) => {
                    for op in &commit.ops {
                        if let Verdict::Refused(letter) = &op.verdict {
                            self.letter(now_us, source, letter);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn letter(&mut self, now_us: Micros, source: &str, letter: &DeadLetter) {
        let mut cause = letter.message.clone();
        for (word, text) in [
            ("expected", &letter.expected),
            ("received", &letter.received),
        ] {
            if !text.is_empty() && !cause.contains(text.as_str()) {
                cause.push_str(&format!(", {word} {text}"));
            }
        }
        if !letter.did.is_empty() {
            let (did, collection, rkey) = (&letter.did, &letter.collection, &letter.rkey);
            cause.push_str(&format!(" (at://{did}/{collection}/{rkey})"));
        }
        self.say(now_us, source, &letter.stage, &cause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_said_once_and_again_after_the_pause() {
        let mut cautions = Cautions::default();
        let said = |cautions: &mut Cautions, now_us, kind| cautions.say(now_us, "s", kind, "why");
        assert!(said(&mut cautions, 1, "frame"));
        assert!(!said(&mut cautions, 2, "frame"));
        assert!(said(&mut cautions, 2, "size"));
        assert!(!said(&mut cautions, PAUSE_US, "frame"));
        assert!(said(&mut cautions, PAUSE_US + 1, "frame"));
    }

    #[test]
    fn a_stranger_who_invents_kinds_is_told_once_for_all_of_them() {
        let mut cautions = Cautions::default();
        let lines = (0..10_000)
            .filter(|n| cautions.say(1, "s", &format!("kind {n}"), "why"))
            .count();
        assert_eq!(lines, KINDS_MAX + 1);
        assert_eq!(cautions.0.len(), KINDS_MAX + 1);
    }
}
