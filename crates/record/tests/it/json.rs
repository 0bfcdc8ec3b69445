//! JSON of the data model, by the vectors and at the edges.

use std::borrow::Cow;

use proptest::prelude::*;
use record::cid::Cid;
use record::json::{DEPTH_MAX, JsonError, from_json, to_json};
use record::value::{Value, key_order};
use serde_json::Value as Json;

use crate::{published, vectors};

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

/// Objects of the data model. The name says what is allowed.
const VALID: &[(&str, &str)] = &[
    ("an empty object", "{}"),
    (
        "every kind of value",
        r#"{"a":null,"b":true,"c":-7,"d":"","e":[],"f":{}}"#,
    ),
    (
        "a float that is an integer",
        r#"{"heightMm":4200.0,"depthMm":-2e2}"#,
    ),
    (
        "nulls and lists in lists",
        r#"{"rows":[[],[null,[1,"2"]]]}"#,
    ),
    (
        "a type without a lexicon",
        r#"{"plant":{"$type":"org.example.magic"}}"#,
    ),
    ("a type that is no name", r#"{"plant":{"$type":"a b"}}"#),
    (
        "an unknown key with a dollar sign",
        r#"{"$note":1,"plant":{"$":2}}"#,
    ),
    ("keys in any order", r#"{"b":1,"a":2,"":3}"#),
    ("bytes", r#"{"seed":{"$bytes":"Z2FyZGVu"}}"#),
    (
        "a link",
        r#"{"plant":{"$link":"bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"}}"#,
    ),
    (
        "a blob with a field more",
        r#"{"photo":{"$type":"blob","ref":{"$link":"bafkreid4mzacxiri6kk2zunhgv3m3vtbyi7doptxvi73pvwbiycnchqxzi"},"mimeType":"","size":-1,"alt":""}}"#,
    ),
];

/// JSON outside the data model. The name is the rule that is broken.
const INVALID: &[(&str, &str)] = &[
    ("the top is an object", "[{}]"),
    ("the top is an object", "\"garden\""),
    ("the top is an object", "null"),
    (
        "the top is an object",
        r#"{"$link":"bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"}"#,
    ),
    ("no floats", r#"{"heightMm":4200.5}"#),
    ("no floats", r#"{"rows":[1,[2,-0.1]]}"#),
    ("64 bits", r#"{"heightMm":9223372036854775808}"#),
    ("64 bits", r#"{"heightMm":-9223372036854775809}"#),
    ("no key twice", r#"{"plant":{"name":"a","name":"a"}}"#),
    ("$type is text", r#"{"plant":{"$type":7}}"#),
    ("$type is text", r#"{"$type":null}"#),
    ("$type is text", r#"{"$type":["com.example.plant"]}"#),
    ("$type is not empty", r#"{"$type":""}"#),
    ("a blob has its parts", r#"{"photo":{"$type":"blob"}}"#),
    (
        "a blob has a ref",
        r#"{"photo":{"$type":"blob","mimeType":"image/webp","size":1}}"#,
    ),
    (
        "the ref of a blob is a link",
        r#"{"photo":{"$type":"blob","ref":"bafkreid4mzacxiri6kk2zunhgv3m3vtbyi7doptxvi73pvwbiycnchqxzi","mimeType":"image/webp","size":1}}"#,
    ),
    (
        "the size of a blob is an integer",
        r#"{"photo":{"$type":"blob","ref":{"$link":"bafkreid4mzacxiri6kk2zunhgv3m3vtbyi7doptxvi73pvwbiycnchqxzi"},"mimeType":"image/webp","size":"1"}}"#,
    ),
    (
        "the MIME type of a blob is text",
        r#"{"photo":{"$type":"blob","ref":{"$link":"bafkreid4mzacxiri6kk2zunhgv3m3vtbyi7doptxvi73pvwbiycnchqxzi"},"mimeType":null,"size":1}}"#,
    ),
    ("a link is text", r#"{"plant":{"$link":7}}"#),
    ("a link is a CID", r#"{"plant":{"$link":"quince"}}"#),
    ("a link is a CID", r#"{"plant":{"$link":""}}"#),
    (
        "a link is a CID of this network",
        r#"{"plant":{"$link":"zdpuAyvkgEDQm9TenwGkd5eNaosSxjgEYd8QatfPetgB1CdEZ"}}"#,
    ),
    (
        "a link is the only key",
        r#"{"plant":{"$link":"bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm","name":"Quince"}}"#,
    ),
    ("bytes are text", r#"{"seed":{"$bytes":[103,97]}}"#),
    ("bytes are base64", r#"{"seed":{"$bytes":"Z2Fy ZGVu"}}"#),
    ("bytes are base64", r#"{"seed":{"$bytes":"Z"}}"#),
    (
        "bytes are the only key",
        r#"{"seed":{"$bytes":"Z2FyZGVu","of":"quince"}}"#,
    ),
    (
        "bytes or a link",
        r#"{"seed":{"$bytes":"Z2FyZGVu","$link":"bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"}}"#,
    ),
];

#[test]
fn valid_vectors_are_read() {
    for (name, text) in VALID {
        let read = from_json(text);
        assert!(read.is_ok(), "{name}: {text}: {read:?}");
    }
    for case in published::cases("interop/data-model/data-model-valid.json") {
        let text = case["json"].to_string();
        assert!(from_json(&text).is_ok(), "{}", case["note"]);
    }
}

#[test]
fn invalid_vectors_are_refused() {
    for (rule, text) in INVALID {
        let read = from_json(text);
        let outside = matches!(read, Err(JsonError::Model(_)));
        assert!(outside, "{rule}: {text}: {read:?}");
    }
    for case in published::cases("interop/data-model/data-model-invalid.json") {
        let text = case["json"].to_string();
        let outside = matches!(from_json(&text), Err(JsonError::Model(_)));
        assert!(outside, "{}", case["note"]);
    }
}

#[test]
fn json_becomes_the_cbor_and_cid_of_the_vectors_and_comes_back() {
    let published = published::cases("interop/data-model/data-model-fixtures.json");
    for case in vectors::cases("data-model").iter().chain(&published) {
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
fn invalid_json_and_json_outside_the_data_model_are_different_errors() {
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
    fn a_value_of_the_data_model_survives_its_json(value in any_value()) {
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
