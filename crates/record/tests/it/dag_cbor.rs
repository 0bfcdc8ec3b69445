//! Our DAG-CBOR beside that of the crate `serde_ipld_dagcbor`.
//!
//! Both write the same bytes for a value, and whatever bytes we accept the
//! crate accepts as the same value. It accepts more than we do; [`STRICTER`]
//! names every reason, and a reason counts only where the value shows it.

use std::collections::BTreeMap;

use ipld_core::ipld::Ipld;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use record::cbor::{CborError, DEPTH_MAX, decode, encode};
use record::cid::Cid;
use record::value::Value;

use crate::values;

/// A reason to refuse what the crate accepts.
struct Reason {
    error: CborError,
    /// Whether bytes and the value that the crate reads in them show the reason.
    shows: fn(&[u8], &Ipld) -> bool,
    example: &'static [u8],
}

/// Lists, one level deeper than we read.
const NESTED: [u8; DEPTH_MAX + 2] = {
    let mut bytes = [0x81; DEPTH_MAX + 2];
    bytes[DEPTH_MAX + 1] = 0x01;
    bytes
};

/// A link whose byte string goes on after the CID.
const LONG_LINK: [u8; 42] = {
    let mut bytes = [0; 42];
    let (head, _) = bytes.split_at_mut(9);
    head.copy_from_slice(&[0xd8, 0x2a, 0x58, 38, 0, 1, 0x71, 0x12, 0x20]);
    bytes
};

const STRICTER: &[Reason] = &[
    Reason {
        // The data model of AT Protocol has no floats.
        error: CborError::Malformed("a float or an unknown simple value"),
        shows: |_, value| holds(value, |value| matches!(value, Ipld::Float(_))),
        example: b"\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00",
    },
    Reason {
        // Its integers have 64 bits with the sign.
        error: CborError::Malformed("an integer outside 64 bits"),
        shows: |_, value| {
            holds(
                value,
                |value| matches!(value, Ipld::Integer(int) if i64::try_from(*int).is_err()),
            )
        },
        example: b"\x1b\x80\x00\x00\x00\x00\x00\x00\x00",
    },
    Reason {
        // Its links have SHA-256 and one of two codecs; this one hashes nothing.
        error: CborError::Malformed("a link whose CID is not of this network"),
        shows: |_, value| {
            holds(
                value,
                |value| matches!(value, Ipld::Link(cid) if Cid::from_bytes(&cid.to_bytes()).is_err()),
            )
        },
        example: b"\xd8\x2a\x46\x00\x01\x71\x00\x01\x61",
    },
    Reason {
        // The crate ignores what follows a CID in its byte string, and so reads
        // one value in several byte forms.
        error: CborError::Malformed("a link whose CID is not of this network"),
        shows: |bytes, value| serde_ipld_dagcbor::to_vec(value).unwrap() != bytes,
        example: &LONG_LINK,
    },
    Reason {
        // A limit of our own.
        error: CborError::TooDeep,
        shows: |_, value| depth(value) > DEPTH_MAX,
        example: &NESTED,
    },
];

/// Whether a value or one inside it passes `test`.
fn holds(value: &Ipld, test: impl Fn(&Ipld) -> bool) -> bool {
    value.iter().any(test)
}

/// The value as the crate has it.
fn ipld(value: &Value<'_>) -> Ipld {
    match value {
        Value::Null => Ipld::Null,
        Value::Bool(bool) => Ipld::Bool(*bool),
        Value::Int(int) => Ipld::Integer(i128::from(*int)),
        Value::Text(text) => Ipld::String(text.to_string()),
        Value::Bytes(bytes) => Ipld::Bytes(bytes.to_vec()),
        Value::Link(cid) => Ipld::Link(ipld_core::cid::Cid::try_from(&cid.as_bytes()[..]).unwrap()),
        Value::List(items) => Ipld::List(items.iter().map(ipld).collect()),
        Value::Map(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.to_string(), ipld(value)));
            Ipld::Map(fields.collect::<BTreeMap<_, _>>())
        }
    }
}

fn depth(value: &Ipld) -> usize {
    match value {
        Ipld::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Ipld::Map(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Whether we may refuse `bytes`, in which the crate reads `value`, with `error`.
fn is_stricter(error: CborError, bytes: &[u8], value: &Ipld) -> bool {
    let mut reasons = STRICTER.iter().filter(|reason| reason.error == error);
    reasons.any(|reason| (reason.shows)(bytes, value))
}

/// Compares both readers on the same bytes.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = serde_ipld_dagcbor::from_slice::<Ipld>(bytes);
    match (decode(bytes), theirs) {
        (Ok(ours), Ok(theirs)) => prop_assert_eq!(ipld(&ours), theirs),
        (Ok(ours), Err(error)) => {
            prop_assert!(false, "only we accept {bytes:02x?} as {ours:?}: {error}");
        }
        (Err(error), Ok(theirs)) => prop_assert!(
            is_stricter(error, bytes, &theirs),
            "only they accept {bytes:02x?} as {theirs:?}: {error}"
        ),
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

#[test]
fn every_reason_to_be_stricter_has_an_example() {
    for Reason {
        error,
        shows,
        example,
    } in STRICTER
    {
        assert_eq!(decode(example), Err(*error));
        let theirs: Ipld = serde_ipld_dagcbor::from_slice(example).unwrap();
        assert!(shows(example, &theirs), "{error}: {example:02x?}");
    }
}

#[test]
fn every_pair_of_bytes_gets_the_same_verdict() {
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            for zeros in [0, 1, 2, 3, 7, 8] {
                compare(&[vec![first, second], vec![0; zeros]].concat()).unwrap();
            }
        }
    }
}

#[test]
fn every_number_in_every_width_gets_the_same_verdict() {
    let edges = [0u64, 23, 24, 127, 128, 255, 256, 300, 65_535, 65_536];
    let beyond = [1 << 32, (1 << 32) - 1, (1 << 63) - 1, 1 << 63, u64::MAX];
    for number in edges.into_iter().chain(beyond) {
        for (low, width) in [(24, 1), (25, 2), (26, 4), (27, 8)] {
            let digits = &number.to_be_bytes()[8 - width..];
            for major in 0u8..7 {
                let head = [&[major << 5 | low], digits].concat();
                compare(&head).unwrap();
                // What it counts: bytes, letters, nulls, or keys with a value.
                let count = if number <= 1 << 16 {
                    number as usize
                } else {
                    0
                };
                let body = match major {
                    2 | 3 => vec![b'a'; count],
                    4 => vec![0xf6; count],
                    5 => (0..count).flat_map(|key| keyed(key as u32)).collect(),
                    _ => continue,
                };
                compare(&[head, body].concat()).unwrap();
            }
        }
    }
}

/// A key of four letters that is greater for a greater number, and a null.
fn keyed(number: u32) -> [u8; 6] {
    let letter = |shift: u32| b'a' + ((number >> shift) & 15) as u8;
    [0x64, letter(12), letter(8), letter(4), letter(0), 0xf6]
}

#[test]
fn every_tag_gets_the_same_verdict() {
    let link = encode(&Value::Link(Cid::of_raw(b"garden")));
    for tag in 0..=u8::MAX {
        let mut bytes = link.clone();
        bytes[1] = tag;
        compare(&bytes).unwrap();
        compare(&[&[0xd9, 0, tag], &link[2..]].concat()).unwrap();
        compare(&[&[0xc0 | tag & 31], &link[2..]].concat()).unwrap();
    }
}

#[test]
fn keys_in_every_order_get_the_same_verdict() {
    let keys = ["", "a", "b", "aa", "ab", "b\u{7f}", "é", "aaa"];
    for first in keys {
        for second in keys {
            for third in keys {
                let mut bytes = vec![0xa3];
                for key in [first, second, third] {
                    bytes.extend(encode(&Value::Text(key.into())));
                    bytes.push(0xf6);
                }
                compare(&bytes).unwrap();
            }
        }
    }
}

/// One change to bytes.
#[derive(Debug, Clone)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    /// Exchanges two bytes, such as two short keys.
    Exchange(Index, Index),
    /// Repeats up to sixteen bytes, such as a field.
    Repeat(Index, usize),
}

/// Heads that decide most about what follows.
fn head() -> impl Strategy<Value = u8> {
    prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![
            0x00, 0x17, 0x18, 0x19, 0x1b, 0x1f, 0x20, 0x3b, 0x40, 0x58, 0x5f, 0x60, 0x61, 0x78,
            0x7f, 0x80, 0x81, 0x98, 0x9f, 0xa0, 0xa1, 0xb8, 0xbf, 0xc0, 0xd8, 0xda, 0xf4, 0xf6,
            0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xff,
        ])
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at(), head()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at(), head()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        at().prop_map(Change::Remove),
        at().prop_map(Change::Cut),
        (at(), at()).prop_map(|(a, b)| Change::Exchange(a, b)),
        (at(), 1usize..16).prop_map(|(at, count)| Change::Repeat(at, count)),
    ]
}

fn apply(change: &Change, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    if length == 0 {
        return;
    }
    match *change {
        Change::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
        Change::Set(at, byte) => bytes[at.index(length)] = byte,
        Change::Insert(at, byte) => bytes.insert(at.index(length + 1), byte),
        Change::Remove(at) => drop(bytes.remove(at.index(length))),
        Change::Cut(at) => bytes.truncate(at.index(length)),
        Change::Exchange(a, b) => bytes.swap(a.index(length), b.index(length)),
        Change::Repeat(at, count) => {
            let at = at.index(length);
            let repeated = bytes[at..length.min(at + count)].to_vec();
            bytes.splice(at..at, repeated);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn both_write_the_same_bytes_and_read_the_same_value(value in values::value()) {
        let (bytes, other) = (encode(&value), ipld(&value));
        prop_assert_eq!(&serde_ipld_dagcbor::to_vec(&other).unwrap(), &bytes);
        prop_assert_eq!(serde_ipld_dagcbor::from_slice::<Ipld>(&bytes).unwrap(), other);
        prop_assert_eq!(decode(&bytes).unwrap(), value);
    }

    #[test]
    fn changed_bytes_get_the_same_verdict(
        value in values::value(),
        changes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..20),
    ) {
        let bytes = encode(&value);
        for changes in changes {
            let mut changed = bytes.clone();
            for change in &changes {
                apply(change, &mut changed);
            }
            compare(&changed)?;
        }
    }

    #[test]
    fn random_heads_get_the_same_verdict(
        bytes in prop::collection::vec(prop::collection::vec(head(), 0..12), 20),
    ) {
        for bytes in &bytes {
            compare(bytes)?;
        }
    }
}
