//! Changes as bytes: how a row of the outbox holds them.
//!
//! In:    changes, in order.
//! Out:   bytes, and the same changes again.
//! Never: a panic on damaged bytes, or changes that were not written so.
//!
//! Every change is written once and read by everybody who draws, so it costs
//! neither names of fields nor digits: a byte tells its kind, numbers are seven
//! bits a byte with their sign in the lowest, and a list or a text tells its length first.

use crate::store::change::{Change, Grouped, Published};

/// What a change is, and whether what it says of itself (`live`, `moved`, `visible`) holds. Nothing is zero.
const PUT: u8 = 1;
const PUT_LIVE: u8 = 2;
const DELETE: u8 = 3;
const FOLLOW: u8 = 4;
const UNFOLLOW: u8 = 5;
const REGROUP: u8 = 6;
const REGROUP_LIVE: u8 = 7;
const HIDDEN: u8 = 8;
const VISIBLE: u8 = 9;
const MOVED: u8 = 10;
const MOVED_LIVE: u8 = 11;
const REGROUP_ON: u8 = 12;
const REGROUP_ON_LIVE: u8 = 13;

/// Appends a change.
pub(super) fn write(to: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Put {
            record,
            uri,
            live,
            moved,
            lanes,
        } => {
            to.push(match (moved, live) {
                (false, false) => PUT,
                (false, true) => PUT_LIVE,
                (true, false) => MOVED,
                (true, true) => MOVED_LIVE,
            });
            place(to, *record, uri, lanes);
        }
        Change::Delete { record, uri, lanes } => {
            to.push(DELETE);
            place(to, *record, uri, lanes);
        }
        Change::Follow {
            source,
            reader,
            key,
        } => {
            to.push(FOLLOW);
            numbers(to, [*source, *reader, *key]);
        }
        Change::Unfollow {
            source,
            reader,
            key,
        } => {
            to.push(UNFOLLOW);
            numbers(to, [*source, *reader, *key]);
        }
        Change::Regroup {
            lane,
            was,
            now,
            live,
            continues,
        } => {
            to.push(match (continues, live) {
                (false, false) => REGROUP,
                (false, true) => REGROUP_LIVE,
                (true, false) => REGROUP_ON,
                (true, true) => REGROUP_ON_LIVE,
            });
            number(to, *lane);
            list(to, was, group);
            list(to, now, group);
        }
        Change::Account { key, did, visible } => {
            to.push(if *visible { VISIBLE } else { HIDDEN });
            number(to, *key);
            text(to, did);
        }
    }
}

fn place(to: &mut Vec<u8>, record: i64, uri: &str, lanes: &[Published]) {
    number(to, record);
    text(to, uri);
    list(to, lanes, |to, it| {
        numbers(to, [it.lane, it.time_us, it.author]);
        list(to, &it.keys, |to, key| number(to, *key));
    });
}

fn group(to: &mut Vec<u8>, it: &Grouped) {
    number(to, it.record);
    text(to, &it.uri);
    numbers(to, [it.time_us, it.author]);
    list(to, &it.keys, |to, key| number(to, *key));
}

fn number(to: &mut Vec<u8>, number: i64) {
    let mut left = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while left >= 0x80 {
        to.push(left as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
}

fn numbers<const N: usize>(to: &mut Vec<u8>, all: [i64; N]) {
    all.into_iter().for_each(|one| number(to, one));
}

fn text(to: &mut Vec<u8>, text: &str) {
    number(to, text.len() as i64);
    to.extend_from_slice(text.as_bytes());
}

fn list<T>(to: &mut Vec<u8>, all: &[T], mut each: impl FnMut(&mut Vec<u8>, &T)) {
    number(to, all.len() as i64);
    all.iter().for_each(|one| each(to, one));
}

/// All changes in some bytes; `None` if they are damaged.
pub(super) fn read(mut bytes: &[u8]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        changes.push(read_change(&mut bytes)?);
    }
    Some(changes)
}

fn read_change(from: &mut &[u8]) -> Option<Change> {
    let (kind, rest) = from.split_first()?;
    *from = rest;
    Some(match *kind {
        PUT | PUT_LIVE | MOVED | MOVED_LIVE => Change::Put {
            record: read_number(from)?,
            uri: read_text(from)?,
            live: matches!(*kind, PUT_LIVE | MOVED_LIVE),
            moved: matches!(*kind, MOVED | MOVED_LIVE),
            lanes: read_list(from, read_published)?,
        },
        DELETE => Change::Delete {
            record: read_number(from)?,
            uri: read_text(from)?,
            lanes: read_list(from, read_published)?,
        },
        FOLLOW => Change::Follow {
            source: read_number(from)?,
            reader: read_number(from)?,
            key: read_number(from)?,
        },
        UNFOLLOW => Change::Unfollow {
            source: read_number(from)?,
            reader: read_number(from)?,
            key: read_number(from)?,
        },
        REGROUP | REGROUP_LIVE | REGROUP_ON | REGROUP_ON_LIVE => Change::Regroup {
            lane: read_number(from)?,
            was: read_list(from, read_group)?,
            now: read_list(from, read_group)?,
            live: matches!(*kind, REGROUP_LIVE | REGROUP_ON_LIVE),
            continues: matches!(*kind, REGROUP_ON | REGROUP_ON_LIVE),
        },
        HIDDEN | VISIBLE => Change::Account {
            key: read_number(from)?,
            did: read_text(from)?,
            visible: *kind == VISIBLE,
        },
        _ => return None,
    })
}

fn read_published(from: &mut &[u8]) -> Option<Published> {
    Some(Published {
        lane: read_number(from)?,
        time_us: read_number(from)?,
        author: read_number(from)?,
        keys: read_list(from, read_number)?,
    })
}

fn read_group(from: &mut &[u8]) -> Option<Grouped> {
    Some(Grouped {
        record: read_number(from)?,
        uri: read_text(from)?,
        time_us: read_number(from)?,
        author: read_number(from)?,
        keys: read_list(from, read_number)?,
    })
}

fn read_number(from: &mut &[u8]) -> Option<i64> {
    let mut found = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        found |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some((found >> 1).cast_signed() ^ -((found & 1).cast_signed()));
        }
    }
    None
}

fn read_text(from: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(read_number(from)?).ok()?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

/// As many as the list says; what says more than there are bytes ends with them.
fn read_list<T>(from: &mut &[u8], each: fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let length = read_number(from)?;
    (0..length).map(|_| each(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn published() -> impl Strategy<Value = Published> {
        let keys = proptest::collection::vec(any::<i64>(), 0..4);
        (any::<i64>(), any::<i64>(), any::<i64>(), keys).prop_map(
            |(lane, time_us, author, keys)| Published {
                lane,
                time_us,
                author,
                keys,
            },
        )
    }

    fn grouped() -> impl Strategy<Value = Grouped> {
        (published(), ".{0,40}").prop_map(|(it, uri)| Grouped {
            record: it.lane,
            uri,
            time_us: it.time_us,
            author: it.author,
            keys: it.keys,
        })
    }

    fn change() -> impl Strategy<Value = Change> {
        let lanes = || proptest::collection::vec(published(), 0..3);
        let groups = || proptest::collection::vec(grouped(), 0..3);
        let three = || any::<(i64, i64, i64)>();
        prop_oneof![
            (
                any::<i64>(),
                ".{0,40}",
                any::<bool>(),
                any::<bool>(),
                lanes()
            )
                .prop_map(|(record, uri, live, moved, lanes)| Change::Put {
                    record,
                    uri,
                    live,
                    moved,
                    lanes
                }),
            (any::<i64>(), ".{0,40}", lanes()).prop_map(|(record, uri, lanes)| Change::Delete {
                record,
                uri,
                lanes
            }),
            three().prop_map(|(source, reader, key)| Change::Follow {
                source,
                reader,
                key
            }),
            three().prop_map(|(source, reader, key)| Change::Unfollow {
                source,
                reader,
                key
            }),
            (any::<i64>(), groups(), groups(), any::<(bool, bool)>()).prop_map(
                |(lane, was, now, (live, continues))| Change::Regroup {
                    lane,
                    was,
                    now,
                    live,
                    continues,
                }
            ),
            (any::<i64>(), ".{0,40}", any::<bool>())
                .prop_map(|(key, did, visible)| Change::Account { key, did, visible }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(changes in proptest::collection::vec(change(), 0..20)) {
            let mut bytes = Vec::new();
            changes.iter().for_each(|change| write(&mut bytes, change));
            prop_assert_eq!(read(&bytes), Some(changes));
        }

        #[test]
        fn damaged_bytes_are_nothing_or_changes_but_never_a_panic(
            changes in proptest::collection::vec(change(), 1..4), at in any::<usize>(), with in any::<u8>()
        ) {
            let mut bytes = Vec::new();
            changes.iter().for_each(|change| write(&mut bytes, change));
            let at = at % bytes.len();
            bytes[at] = with;
            drop(read(&bytes));
            drop(read(&bytes[..at]));
        }
    }

    #[test]
    fn a_list_that_says_too_much_takes_no_memory() {
        let mut bytes = vec![PUT];
        numbers(&mut bytes, [1, 0, i64::MAX]);
        assert_eq!(read(&bytes), None);
    }
}
