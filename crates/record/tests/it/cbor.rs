//! CBOR against vectors, a list of forbidden forms, and random values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use proptest::prelude::*;
use record::cbor::{CborError, DEPTH_MAX, Reader, decode, decode_first, encode};
use record::cid::Cid;
use record::value::Value;

use crate::{published, values, vectors};

fn json_of(bytes: &[u8]) -> Result<serde_json::Value, CborError> {
    let mut out = String::new();
    record::json::to_json(&decode(bytes)?, &mut out);
    Ok(serde_json::from_str(&out).unwrap())
}

/// The tree's JSON by the slow, obvious way.
fn slow_json(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(bool) => (*bool).into(),
        Value::Int(int) => (*int).into(),
        Value::Text(text) => text.to_string().into(),
        Value::Bytes(bytes) => serde_json::json!({ "$bytes": STANDARD_NO_PAD.encode(bytes) }),
        Value::Link(cid) => serde_json::json!({ "$link": cid.to_string() }),
        Value::List(items) => items.iter().map(slow_json).collect(),
        Value::Map(fields) => fields
            .iter()
            .map(|(key, value)| (key.to_string(), slow_json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

#[track_caller]
fn check_bytes(bytes: &[u8], cid: &serde_json::Value, json: &serde_json::Value) {
    let value = decode(bytes).unwrap();
    assert_eq!(encode(&value), bytes);
    assert_eq!(Cid::of_cbor(bytes).to_string(), *cid);
    assert_eq!(json_of(bytes).unwrap(), *json);
}

#[test]
fn vectors_have_their_bytes_their_cid_and_their_json() {
    for case in vectors::cases("data-model") {
        check_bytes(&vectors::unhex(&case["cbor"]), &case["cid"], &case["json"]);
    }
    for case in published::cases("interop/data-model/data-model-fixtures.json") {
        let base64 = case["cbor_base64"].as_str().unwrap();
        let bytes = STANDARD_NO_PAD.decode(base64).unwrap();
        check_bytes(&bytes, &case["cid"], &case["json"]);
    }
}

#[track_caller]
fn refused(bytes: &[u8], why: CborError) {
    assert_eq!(decode(bytes), Err(why), "decode {bytes:02x?}");
}

#[test]
fn every_second_encoding_of_a_value_is_refused() {
    use CborError::{Malformed, Truncated};
    let padded = Malformed("a length or integer is padded");
    let simple = Malformed("a float or an unknown simple value");
    let order = Malformed("keys unsorted or repeated");
    let endless = Malformed("indefinite length");
    let cases: &[(&[u8], CborError)] = &[
        (b"", Truncated),
        (b"\x18", Truncated),
        (b"\x62a", Truncated),
        (b"\x82\x01", Truncated),
        (b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", Truncated),
        (b"\xbb\x7f\xff\xff\xff\xff\xff\xff\xff", Truncated),
        (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", Truncated),
        (b"\x18\x17", padded),
        (b"\x19\x00\xff", padded),
        (b"\x1a\x00\x00\xff\xff", padded),
        (b"\x1b\x00\x00\x00\x00\xff\xff\xff\xff", padded),
        (b"\x78\x01a", padded),
        (b"\x98\x01\x01", padded),
        (b"\xb8\x00", padded),
        (b"\xd8\x05\x00", padded),
        (b"\xd9\x00\x2a\x41\x00", padded),
        (b"\x5f\x41a\xff", endless),
        (b"\x7f\x61a\xff", endless),
        (b"\x9f\x01\xff", endless),
        (b"\xbf\xff", endless),
        (b"\x1c", Malformed("reserved head")),
        (b"\xf9\x3c\x00", simple),
        (b"\xfa\x3f\x80\x00\x00", simple),
        (b"\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00", simple),
        (b"\xf7", simple),
        (b"\xf8\x20", simple),
        (b"\xff", simple),
        (b"\xe0", simple),
        (b"\xc0\x61a", Malformed("a tag other than 42")),
        (b"\xd8\x2a\x61a", Malformed("tag 42 without bytes")),
        (b"\xd8\x2a\x40", Malformed("a link without its zero byte")),
        (
            b"\xd8\x2a\x41\x01",
            Malformed("a link without its zero byte"),
        ),
        (
            b"\xd8\x2a\x41\x00",
            Malformed("a link whose CID is not of this network"),
        ),
        (b"\xa1\x01\x02", Malformed("a key that is not text")),
        (b"\xa2\x61b\x01\x61a\x01", order),
        (b"\xa2\x62aa\x01\x61b\x01", order),
        (b"\xa2\x61a\x01\x61a\x01", order),
        (b"\x62\xc3\x28", Malformed("text that is not utf-8")),
        (b"\x63\xed\xa0\x80", Malformed("text that is not utf-8")),
        (b"\xa1\x62\xc3\x28\x01", Malformed("text that is not utf-8")),
        (
            b"\x1b\x80\x00\x00\x00\x00\x00\x00\x00",
            Malformed("an integer outside 64 bits"),
        ),
        (
            b"\x3b\x80\x00\x00\x00\x00\x00\x00\x00",
            Malformed("an integer outside 64 bits"),
        ),
        (b"\x01\x01", Malformed("bytes after the value")),
    ];
    for (bytes, why) in cases {
        refused(bytes, *why);
    }
}

#[test]
fn the_least_and_greatest_integers_are_read() {
    let greatest = b"\x1b\x7f\xff\xff\xff\xff\xff\xff\xff";
    let least = b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(decode(greatest), Ok(Value::Int(i64::MAX)));
    assert_eq!(decode(least), Ok(Value::Int(i64::MIN)));
    assert_eq!(json_of(least).unwrap(), i64::MIN);
    assert_eq!(json_of(greatest).unwrap(), i64::MAX);
}

#[test]
fn nesting_is_read_up_to_its_limit_and_no_deeper() {
    let nested = |levels: usize| [vec![0x81; levels], vec![0x01]].concat();
    assert!(decode(&nested(DEPTH_MAX)).is_ok());
    assert!(json_of(&nested(DEPTH_MAX)).is_ok());
    refused(&nested(DEPTH_MAX + 1), CborError::TooDeep);
    refused(&nested(1_000_000), CborError::TooDeep);
    let skip = |levels| Reader::new(&nested(levels)).skip();
    assert_eq!(skip(DEPTH_MAX), Ok(()));
    assert_eq!(skip(1_000_000), Err(CborError::TooDeep));
}

#[test]
fn a_map_with_unsorted_keys_is_written_sorted() {
    let field = |key: &'static str| (key.into(), Value::Int(1));
    let unsorted = Value::Map(vec![field("bb"), field("c"), field("a")]);
    assert_eq!(encode(&unsorted), b"\xa3\x61a\x01\x61c\x01\x62bb\x01");
}

#[test]
fn reading_the_first_value_returns_the_rest() {
    let (value, rest) = decode_first(b"\x01\x61a").unwrap();
    assert_eq!((value, rest), (Value::Int(1), &b"\x61a"[..]));
}

#[test]
fn control_characters_and_quotes_become_escapes() {
    let text: String = (0u8..0x80).map(char::from).collect();
    let bytes = encode(&Value::Text(text.as_str().into()));
    assert_eq!(json_of(&bytes).unwrap(), text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_value_survives_its_bytes_and_its_json(value in values::value()) {
        let bytes = encode(&value);
        prop_assert_eq!(&decode(&bytes).unwrap(), &value);
        prop_assert_eq!(json_of(&bytes).unwrap(), slow_json(&value));
        let mut reader = Reader::new(&bytes);
        reader.skip().unwrap();
        prop_assert!(reader.rest().is_empty());
    }

    #[test]
    fn every_value_read_encodes_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let read = decode(&bytes);
        prop_assert_eq!(json_of(&bytes).is_ok(), read.is_ok());
        if let Ok(value) = read {
            prop_assert_eq!(encode(&value), bytes);
        }
    }

    #[test]
    fn a_changed_byte_gives_a_fault_or_another_value(
        value in values::value(), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let mut bytes = encode(&value);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let read = decode(&bytes);
        prop_assert_eq!(json_of(&bytes).is_ok(), read.is_ok());
        if let Ok(other) = read {
            prop_assert_eq!(&encode(&other), &bytes);
            prop_assert_ne!(other, value);
        }
    }

    #[test]
    fn a_cut_value_is_truncated(value in values::value(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&value);
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert_eq!(decode(cut), Err(CborError::Truncated));
        prop_assert_eq!(Reader::new(cut).skip(), Err(CborError::Truncated));
    }
}
