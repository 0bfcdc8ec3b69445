//! A cursor: where a reader stands, and in whose history.
//!
//! In:    the epoch of a space, a position, the head there, perhaps a pending key.
//! Out:   one opaque string, and back.
//! Never: a string that reads as a cursor by luck: all of it must be right.
//!
//! A bare position says nothing about which server gave it. The opaque form
//! carries the epoch, so a replaced server is noticed, and the head at that
//! position, so a rolled-back one is.

use crate::block::{Hash, Head};
use crate::order::PendingKey;
use crate::page::PendingStart;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;

/// The first byte of every cursor; a new layout takes another.
const VERSION: u8 = 1;

/// The first byte of a cursor whose walk began at the oldest block kept and has not come to its end.
const CATCHING_UP: u8 = 2;

/// Added to the first byte of a cursor that a replica made.
const OF_REPLICA: u8 = 2;

/// The longest cursor we look at.
const CURSOR_BYTES_MAX: usize = 4096;

/// The identity of one space in one store: random, made when the space is, and
/// made anew when the store is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub [u8; 16]);

impl Epoch {
    /// An epoch from its text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// The epoch that follows this one when positions change under a reader.
    #[must_use]
    pub fn next(&self) -> Self {
        Self(Head(self.0).then(&Hash::of(b"next epoch")).0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Where a reader stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Whose history it is.
    pub epoch: Epoch,
    /// Everything up to here was read.
    pub position: u64,
    /// The head at that position; the default means that nobody knows.
    pub head: Head,
    /// How far a walk has come behind that position. A walk that came to its end
    /// starts there anew, because what stands behind is provisional and new
    /// blocks may sort before old ones.
    pub pending: PendingStart,
    /// Whether the walk began at the oldest block kept and has not come to its end. What was let
    /// go before it came there it has not missed: it could have begun later.
    pub catching_up: bool,
    /// In the cursor of a replica the epoch of its authority: who has read there may read on here.
    pub upstream: Option<Epoch>,
}

/// A string that is not one of our cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one this log made")]
pub struct BadCursor;

impl Cursor {
    /// The opaque form.
    #[must_use]
    pub fn encode(&self) -> String {
        let version = match self.catching_up {
            true => CATCHING_UP,
            false => VERSION,
        };
        let mut bytes = match self.upstream {
            Some(_) => vec![version + OF_REPLICA],
            None => vec![version],
        };
        bytes.extend_from_slice(&self.epoch.0);
        bytes.extend_from_slice(&self.position.to_be_bytes());
        bytes.extend_from_slice(&self.head.0);
        if let Some(upstream) = &self.upstream {
            bytes.extend_from_slice(&upstream.0);
        }
        match &self.pending {
            PendingStart::Excluded => {}
            PendingStart::All => bytes.push(1),
            PendingStart::Ahead(position) => {
                bytes.push(2);
                bytes.extend_from_slice(&position.to_be_bytes());
            }
            PendingStart::After(key) => {
                bytes.push(3);
                bytes.extend_from_slice(&key.sequence.to_be_bytes());
                let actor_length =
                    u32::try_from(key.actor.len()).expect("ids are bounded by id_bytes_max");
                bytes.extend_from_slice(&actor_length.to_be_bytes());
                bytes.extend_from_slice(key.actor.as_bytes());
                bytes.extend_from_slice(key.feed.as_bytes());
            }
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The cursor behind an opaque string.
    ///
    /// # Errors
    /// If it is anything but the output of [`Cursor::encode`].
    pub fn decode(text: &str) -> Result<Self, BadCursor> {
        if text.len() > CURSOR_BYTES_MAX {
            return Err(BadCursor);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadCursor)?;
        let mut rest = bytes.as_slice();
        let [version] = take::<1>(&mut rest)?;
        let of_replica = version > CATCHING_UP;
        let version = if of_replica {
            version - OF_REPLICA
        } else {
            version
        };
        let catching_up = match version {
            VERSION => false,
            CATCHING_UP => true,
            _ => return Err(BadCursor),
        };
        let epoch = Epoch(take(&mut rest)?);
        let position = u64::from_be_bytes(take(&mut rest)?);
        let head = Head(take(&mut rest)?);
        let upstream = match of_replica {
            true => Some(Epoch(take(&mut rest)?)),
            false => None,
        };
        let pending = pending(rest)?;
        Ok(Self {
            epoch,
            position,
            head,
            pending,
            catching_up,
            upstream,
        })
    }
}

fn pending(mut rest: &[u8]) -> Result<PendingStart, BadCursor> {
    if rest.is_empty() {
        return Ok(PendingStart::Excluded);
    }
    let start = match take::<1>(&mut rest)? {
        [1] => PendingStart::All,
        [2] => PendingStart::Ahead(u64::from_be_bytes(take(&mut rest)?)),
        [3] => return Ok(PendingStart::After(pending_key(rest)?)),
        _ => return Err(BadCursor),
    };
    if rest.is_empty() {
        Ok(start)
    } else {
        Err(BadCursor)
    }
}

fn pending_key(mut rest: &[u8]) -> Result<PendingKey, BadCursor> {
    let sequence = u64::from_be_bytes(take(&mut rest)?);
    let actor_length = u32::from_be_bytes(take(&mut rest)?);
    let actor_length = usize::try_from(actor_length).map_err(|_| BadCursor)?;
    let (actor, feed) = rest.split_at_checked(actor_length).ok_or(BadCursor)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| BadCursor);
    Ok(PendingKey {
        sequence,
        actor: text(actor)?,
        feed: text(feed)?,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BadCursor> {
    let (taken, left) = rest.split_first_chunk::<N>().ok_or(BadCursor)?;
    *rest = left;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cursor() -> Cursor {
        Cursor {
            epoch: Epoch([3; 16]),
            position: 42,
            head: Head([9; 16]),
            pending: PendingStart::After(PendingKey {
                sequence: 5,
                actor: "ada".into(),
                feed: "01H1".into(),
            }),
            catching_up: false,
            upstream: None,
        }
    }

    #[test]
    fn a_cursor_reads_back() {
        let full = cursor();
        assert_eq!(Cursor::decode(&full.encode()), Ok(full.clone()));
        for pending in [
            PendingStart::Excluded,
            PendingStart::All,
            PendingStart::Ahead(7),
        ] {
            for (catching_up, upstream) in [
                (false, None),
                (true, None),
                (false, Some(Epoch([5; 16]))),
                (true, Some(Epoch([5; 16]))),
            ] {
                let other = Cursor {
                    pending: pending.clone(),
                    catching_up,
                    upstream,
                    ..cursor()
                };
                assert_eq!(Cursor::decode(&other.encode()), Ok(other));
            }
        }
    }

    #[test]
    fn a_cut_or_foreign_string_is_refused() {
        let text = Cursor {
            pending: PendingStart::Excluded,
            ..cursor()
        }
        .encode();
        for length in 0..text.len() {
            assert_eq!(Cursor::decode(&text[..length]), Err(BadCursor), "{length}");
        }
        for text in ["", "TOK|", "TOK|2|9", "1e2", "-1", &"A".repeat(5000)] {
            assert_eq!(Cursor::decode(text), Err(BadCursor), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same_string(text in "[A-Za-z0-9_-]{0,120}") {
            if let Ok(cursor) = Cursor::decode(&text) {
                prop_assert_eq!(cursor.encode(), text);
            }
        }
    }
}
