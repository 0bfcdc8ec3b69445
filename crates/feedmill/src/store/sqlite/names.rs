//! Strings that become integers: keys and collections.
//!
//! A hash finds the row and the text confirms it, so two strings with one
//! hash are two keys.

use record::tid::Tid;
use rusqlite::{Connection, Error, OptionalExtension, params};
use xxhash_rust::xxh3::xxh3_64;

/// The integer that stands for a long string in an index.
///
/// A URI whose record key is a TID is numbered by its time first: what is new,
/// and what new records name, then lies close together in every index by
/// hash, and a batch touches a few pages instead of one for each entry. Eight
/// seconds share a time, and thirty-two bits of hash tell their URIs apart.
/// Everything else is below zero, in no order.
pub(super) fn hash(text: &str) -> i64 {
    let hash = xxh3_64(text.as_bytes());
    let number = match time_of(text) {
        Some(time_us) => (time_us >> TIME_SHIFT) << 32 | hash >> 32,
        None => hash | 1 << 63,
    };
    number.cast_signed()
}

/// Microseconds that share a time are 2 to this power; a TID has 54 bits of them.
const TIME_SHIFT: u32 = 23;

/// The time in the record key of a URI, where it is a TID.
fn time_of(text: &str) -> Option<u64> {
    let (_, rkey) = text.strip_prefix("at://")?.rsplit_once('/')?;
    Tid::parse(rkey).ok().map(Tid::micros)
}

/// The id of a key that is known.
pub(super) fn find_key(connection: &Connection, text: &str) -> Result<Option<i64>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM key WHERE hash = ?1 AND text = ?2")?;
    statement
        .query_row(params![hash(text), text], |row| row.get(0))
        .optional()
}

/// The string behind the id of a key.
pub(super) fn text_of(connection: &Connection, key: i64) -> Result<String, Error> {
    connection
        .prepare_cached("SELECT text FROM key WHERE id = ?1")?
        .query_row([key], |row| row.get(0))
}

/// The id of a collection that is known.
pub(super) fn find_collection(connection: &Connection, nsid: &str) -> Result<Option<i64>, Error> {
    let mut statement = connection.prepare_cached("SELECT id FROM collection WHERE nsid = ?1")?;
    statement.query_row([nsid], |row| row.get(0)).optional()
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn what_is_new_is_numbered_after_what_is_old_whoever_wrote_it() {
        let old = "at://did:plc:zzzz/app.bsky.feed.post/3jzfcijpj2z2a";
        let new = "at://did:plc:aaaa/app.bsky.feed.like/3lzfcijpj2z2a";
        assert!(0 < hash(old) && hash(old) < hash(new));
    }

    #[test]
    fn uris_of_one_moment_are_told_apart() {
        let one = "at://did:plc:aaaa/app.bsky.feed.post/3jzfcijpj2z2a";
        let other = "at://did:plc:bbbb/app.bsky.feed.post/3jzfcijpj2z2a";
        assert_ne!(hash(one), hash(other));
        assert_eq!(hash(one) >> 32, hash(other) >> 32);
    }

    #[test]
    fn what_has_no_time_is_below_zero() {
        for text in [
            "did:plc:aaaa",
            "at://did:plc:aaaa/app.bsky.actor.profile/self",
            "",
        ] {
            assert!(hash(text) < 0, "{text}");
        }
    }
}
