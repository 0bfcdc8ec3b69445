//! JSON of the data model, by the vectors and at the edges.

use std::borrow::Cow;

use proptest::prelude::*;
use record::cid::Cid;
use record::json::{DEPTH_MAX, JsonError, from_json, to_json};
use record::value::{Value, key_order};
use serde_json::Value as Json;

use crate::fixtures;

fn written(value: &Value<'_>) -> String {
    let mut out = String::new();
    to_json(value, &mut out);
    out
}

#[track_caller]
fn check_refused(text: &str, reason: &str) {
    match from_json(text) {
        Err(JsonError::Model(error)) => {
            let message = error.to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn valid_vectors_are_read() {
    let Some(cases) = fixtures::cases("interop/data-model/data-model-valid.json") else {
        return;
    };
    for case in cases {
        let text = case["json"].to_string();
        assert!(from_json(&text).is_ok(), "{}", case["note"]);
    }
}

#[test]
fn invalid_vectors_are_refused() {
    let Some(cases) = fixtures::cases("interop/data-model/data-model-invalid.json") else {
        return;
    };
    for case in cases {
        let text = case["json"].to_string();
        assert!(
            matches!(from_json(&text), Err(JsonError::Model(_))),
            "{}",
            case["note"]
        );
    }
}

#[test]
fn json_becomes_the_cbor_and_cid_of_the_vectors_and_comes_back() {
    let Some(cases) = fixtures::cases("interop/data-model/data-model-fixtures.json") else {
        return;
    };
    for case in cases {
        let text = case["json"].to_string();
        let value = from_json(&text).unwrap();
        let cbor = record::cbor::encode(&value);
        assert_eq!(Cid::of_cbor(&cbor).to_string(), case["cid"]);
        assert_eq!(record::cbor::decode(&cbor).unwrap(), value);
        let back: Json = serde_json::from_str(&written(&value)).unwrap();
        assert_eq!(back, case["json"]);
    }
}

#[test]
fn both_readers_stop_at_the_same_depth() {
    assert_eq!(DEPTH_MAX, record::cbor::DEPTH_MAX);
    let link = r#"{"$link":"bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"}"#;
    let nested = |levels: usize, leaf: &str| {
        format!(
            "{{\"a\":{}{leaf}{}}}",
            "[".repeat(levels - 1),
            "]".repeat(levels - 1)
        )
    };
    for leaf in ["1", link] {
        let text = nested(DEPTH_MAX, leaf);
        let value = from_json(&text).unwrap();
        let cbor = record::cbor::encode(&value);
        assert_eq!(record::cbor::decode(&cbor).unwrap(), value);
        assert_eq!(written(&value), text);
        check_refused(&nested(DEPTH_MAX + 1, leaf), "nested deeper");
    }
    check_refused(&nested(DEPTH_MAX, "{}"), "nested deeper");
    // Far deeper is refused too, not overflowed.
    assert!(from_json(&"[".repeat(1_000_000)).is_err());
    assert!(from_json(&"{\"a\":".repeat(1_000_000)).is_err());
}

#[test]
fn numbers_are_integers_of_64_bits() {
    for (text, int) in [
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("123.0", 123),
        ("-0.0", 0),
        ("1e3", 1000),
        ("281474976710656.0", 281_474_976_710_656),
    ] {
        let text = format!("{{\"n\":{text}}}");
        assert_eq!(from_json(&text).unwrap().get("n"), Some(&Value::Int(int)));
    }
    check_refused(r#"{"n":9223372036854775808}"#, "beyond 64 bits");
    check_refused(r#"{"n":18446744073709551616}"#, "no floats");
    check_refused(r#"{"n":281474976710657.0}"#, "no floats");
    check_refused(r#"{"n":0.5}"#, "no floats");
    check_refused(r#"{"n":1e300}"#, "no floats");
}

#[test]
fn keys_are_unique_and_in_canonical_order() {
    let value = from_json(r#"{"bb":1,"a":2,"ba":3,"\u0063":4}"#).unwrap();
    assert_eq!(written(&value), r#"{"a":2,"c":4,"ba":3,"bb":1}"#);
    check_refused(r#"{"a":1,"a":1}"#, "twice");
    check_refused(r#"{"a":1,"\u0061":1}"#, "twice");
}

#[test]
fn text_is_escaped_where_json_asks_for_it_and_nowhere_else() {
    let text = r#"{"a":"\"\\\n\r\t\u0000\u001f/ä😀"}"#;
    let value = from_json(text).unwrap();
    assert_eq!(
        value.get("a").and_then(Value::text),
        Some("\"\\\n\r\t\0\u{1f}/ä😀")
    );
    assert_eq!(written(&value), text);
}

#[test]
fn text_is_borrowed_unless_it_is_escaped() {
    let value = from_json(r#"{"plain":"ä","escaped":"\u00e4"}"#).unwrap();
    assert!(matches!(
        value.get("plain"),
        Some(Value::Text(Cow::Borrowed("ä")))
    ));
    assert!(matches!(value.get("escaped"), Some(Value::Text(Cow::Owned(text))) if text == "ä"));
}

#[test]
fn bytes_are_read_with_or_without_padding_and_written_without() {
    for text in ["AQ==", "AQ", "AQ="] {
        let text = format!(r#"{{"b":{{"$bytes":"{text}"}}}}"#);
        if let Ok(value) = from_json(&text) {
            assert_eq!(value.get("b"), Some(&Value::Bytes(Cow::Borrowed(&[1]))));
            assert_eq!(written(&value), r#"{"b":{"$bytes":"AQ"}}"#);
        } else {
            assert!(text.contains("AQ=\""), "{text}");
        }
    }
    check_refused(r#"{"b":{"$bytes":"*"}}"#, "$bytes");
    check_refused(r#"{"b":{"$bytes":1}}"#, "$bytes");
}

#[test]
fn what_is_not_json_is_told_apart_from_what_is_not_the_model() {
    for text in [
        "",
        "{",
        "{} x",
        "{\"a\":}",
        "nul",
        "{\"a\":\"\u{1}\"}",
        r#"{"a":"\ud800"}"#,
    ] {
        assert!(
            matches!(from_json(text), Err(JsonError::Syntax(_))),
            "{text:?}"
        );
    }
    check_refused("[]", "must be an object");
}

/// Any value a reader can give.
pub(crate) fn any_value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<String>().prop_map(|text| Value::Text(Cow::Owned(text))),
        any::<Vec<u8>>().prop_map(|bytes| Value::Bytes(Cow::Owned(bytes))),
        any::<Vec<u8>>().prop_map(|bytes| Value::Link(Cid::of_raw(&bytes))),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::vec(("[a-z$]{0,5}|\\PC{0,4}", inner), 0..6).prop_map(map),
        ]
    })
}

/// A map with its keys in order and each once.
pub(crate) fn map(entries: Vec<(String, Value<'static>)>) -> Value<'static> {
    let mut entries: Vec<(Cow<'static, str>, Value<'static>)> = entries
        .into_iter()
        .map(|(key, value)| (Cow::Owned(key), value))
        .collect();
    entries.sort_by(|(a, _), (b, _)| key_order(a, b));
    entries.dedup_by(|(a, _), (b, _)| a == b);
    Value::Map(entries)
}

proptest! {
    #[test]
    fn what_passes_the_model_is_written_and_read_back_the_same(value in any_value()) {
        let value = map(vec![("v".to_owned(), value)]);
        let text = written(&value);
        if record::validate::check_model(&value).is_ok() {
            prop_assert_eq!(from_json(&text).unwrap(), value);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]{}\",:$a-z0-9.e\\\\ -]{0,60}") {
        if let Ok(value) = from_json(&text) {
            prop_assert!(record::validate::check_model(&value).is_ok());
            let again = written(&value);
            prop_assert_eq!(from_json(&again).unwrap(), value);
        }
    }
}
