//! Records against lexicons: every kind of fault by example.

use record::json::from_json;
use record::lexicon::Catalog;
use record::validate::Fault;
use serde_json::{Value as Json, json};

use crate::vectors;

const NSID: &str = "com.example.thing";

pub(crate) fn validate(catalog: &Catalog, nsid: &str, record: &Json) -> Result<(), Fault> {
    let text = record.to_string();
    catalog.validate(nsid, &from_json(&text).unwrap())
}

/// A catalog whose records have one field of this type, and some definitions.
fn catalog(field: &Json) -> Catalog {
    let text = json!({"lexicon": 1, "id": NSID, "defs": {
        "main": {"type": "record", "key": "literal:demo", "record": {
            "type": "object", "required": ["field"], "nullable": ["maybe"],
            "properties": {"field": field, "maybe": {"type": "string"}}}},
        "part": {"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "ref", "ref": "#part"}}}},
        "other": {"type": "object", "properties": {}},
        "flag": {"type": "token"},
    }});
    Catalog::parse([text.to_string().as_str()]).unwrap()
}

#[track_caller]
fn check_good(field: Json, value: Json) {
    let record = json!({"$type": NSID, "field": value});
    assert_eq!(validate(&catalog(&field), NSID, &record), Ok(()), "{field}");
}

/// `path` is below `field`, joined by dots.
#[track_caller]
fn check_bad(field: Json, value: Json, path: &str, expected: &str, received: &str) {
    let record = json!({"$type": NSID, "field": value});
    let fault = validate(&catalog(&field), NSID, &record).unwrap_err();
    let found = fault.path.join(".");
    let path = match path {
        "" => "field".to_owned(),
        path => format!("field.{path}"),
    };
    assert_eq!(
        (
            found.as_str(),
            fault.expected.as_str(),
            fault.received.as_str()
        ),
        (path.as_str(), expected, received),
        "{field}"
    );
    assert_eq!(
        fault.message,
        format!("{path}: expected {expected}, received {received}")
    );
}

#[test]
fn the_type_of_a_record_must_be_its_collection() {
    let catalog = catalog(&json!({"type": "integer"}));
    let check = |record: Json, path: &[&str], received: &str| {
        let fault = validate(&catalog, NSID, &record).unwrap_err();
        assert_eq!(fault.path, path);
        assert_eq!(fault.expected, format!("\"{NSID}\""));
        assert_eq!(fault.received, received);
    };
    check(json!({"field": 1}), &["$type"], "nothing");
    check(
        json!({"$type": "com.example.other", "field": 1}),
        &["$type"],
        "\"com.example.other\"",
    );
    let fault = validate(&catalog, "com.example.none", &json!({})).unwrap_err();
    assert_eq!(fault.received, "com.example.none");
    assert!(catalog.validate(NSID, &record::value::Value::Null).is_err());
    let fault = catalog.validate_key(NSID, "self").unwrap_err();
    assert_eq!(fault.expected, "record key of type literal:demo");
}

#[test]
fn fields_are_required_nullable_or_unknown() {
    let catalog = catalog(&json!({"type": "integer"}));
    let fault = validate(&catalog, NSID, &json!({"$type": NSID})).unwrap_err();
    assert_eq!(fault.path, ["field"]);
    assert_eq!(fault.message, "field: expected a value, received nothing");
    let good = json!({"$type": NSID, "field": 1, "maybe": null, "a": [1], "zzzzzzzzzz": {"b": 1}});
    assert_eq!(validate(&catalog, NSID, &good), Ok(()));
    check_bad(
        json!({"type": "integer"}),
        json!(null),
        "",
        "integer",
        "null",
    );
}

#[test]
fn integers_keep_their_bounds() {
    check_good(json!({"type": "integer"}), json!(i64::MIN));
    check_bad(
        json!({"type": "integer"}),
        json!("1"),
        "",
        "integer",
        "string",
    );
    check_bad(
        json!({"type": "integer", "minimum": 2}),
        json!(1),
        "",
        "integer of at least 2",
        "1",
    );
    check_bad(
        json!({"type": "integer", "maximum": 2}),
        json!(3),
        "",
        "integer of at most 2",
        "3",
    );
    check_bad(
        json!({"type": "integer", "minimum": 2, "maximum": 4}),
        json!(5),
        "",
        "integer from 2 to 4",
        "5",
    );
    check_bad(
        json!({"type": "integer", "enum": [1, 2]}),
        json!(3),
        "",
        "one of 1, 2",
        "3",
    );
    check_bad(
        json!({"type": "integer", "const": 1}),
        json!(3),
        "",
        "1",
        "3",
    );
    check_good(json!({"type": "integer", "default": 1}), json!(3));
}

#[test]
fn booleans_keep_their_constant() {
    check_good(json!({"type": "boolean", "default": true}), json!(false));
    check_bad(
        json!({"type": "boolean"}),
        json!(1),
        "",
        "boolean",
        "integer",
    );
    check_bad(
        json!({"type": "boolean", "const": true}),
        json!(false),
        "",
        "true",
        "false",
    );
}

#[test]
fn text_is_measured_in_bytes_and_in_graphemes() {
    let length = json!({"type": "string", "minLength": 2, "maxLength": 4});
    check_good(length.clone(), json!("ää"));
    check_bad(
        length.clone(),
        json!("äää"),
        "",
        "string of 2 to 4 bytes",
        "6 bytes",
    );
    check_bad(length, json!("a"), "", "string of 2 to 4 bytes", "1 bytes");
    let family = "👩‍👩‍👦‍👦"; // one grapheme, 7 characters, 25 bytes
    let most = json!({"type": "string", "maxGraphemes": 2});
    check_good(most.clone(), json!(family.repeat(2)));
    check_good(most.clone(), json!("\r\n\r\n"));
    check_good(most.clone(), json!("äö"));
    check_bad(
        most.clone(),
        json!("äöü"),
        "",
        "string of at most 2 graphemes",
        "3 graphemes",
    );
    check_good(most.clone(), json!("e\u{301}e\u{301}"));
    check_bad(
        most.clone(),
        json!(family.repeat(3)),
        "",
        "string of at most 2 graphemes",
        "3 graphemes",
    );
    check_bad(
        most,
        json!("abc"),
        "",
        "string of at most 2 graphemes",
        "3 graphemes",
    );
    let least = json!({"type": "string", "minGraphemes": 2});
    check_good(least.clone(), json!("ab"));
    check_good(least.clone(), json!(family.repeat(2)));
    check_bad(
        least.clone(),
        json!(family),
        "",
        "string of at least 2 graphemes",
        "1 graphemes",
    );
    check_bad(
        least,
        json!("\r\n"),
        "",
        "string of at least 2 graphemes",
        "1 graphemes",
    );
}

#[test]
fn text_is_one_of_the_values_allowed() {
    let listed = json!({"type": "string", "enum": ["a", "b"]});
    check_good(listed.clone(), json!("b"));
    check_bad(listed, json!("c"), "", "one of a, b", "\"c\"");
    check_bad(
        json!({"type": "string", "const": "a"}),
        json!("b"),
        "",
        "a",
        "\"b\"",
    );
    check_good(json!({"type": "string", "knownValues": ["a"]}), json!("b"));
    let flag = json!({"type": "ref", "ref": "#flag"});
    check_good(flag.clone(), json!("com.example.thing#flag"));
    check_bad(
        flag,
        json!("flag"),
        "",
        "\"com.example.thing#flag\"",
        "\"flag\"",
    );
}

#[test]
fn every_format_is_checked() {
    for (format, good) in [
        ("at-identifier", "alice.test"),
        ("at-uri", "at://alice.test"),
        (
            "cid",
            "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity",
        ),
        ("datetime", "2024-06-01T12:34:56Z"),
        ("did", "did:web:alice.test"),
        ("handle", "alice.test"),
        ("language", "pt-BR"),
        ("nsid", "com.example.thing"),
        ("record-key", "self"),
        ("tid", "3jzfcijpj2z2a"),
        ("uri", "https://alice.test"),
    ] {
        let schema = json!({"type": "string", "format": format});
        check_good(schema.clone(), json!(good));
        let expected = format!("string of format {format}");
        check_bad(schema, json!("/ /"), "", &expected, "\"/ /\"");
    }
}

#[test]
fn a_long_quoted_value_is_truncated() {
    let schema = json!({"type": "string", "format": "did"});
    let fault = validate(
        &catalog(&schema),
        NSID,
        &json!({"$type": NSID, "field": "ä".repeat(10_000)}),
    )
    .unwrap_err();
    assert!(fault.received.chars().count() < 100, "{}", fault.received);
}

#[test]
fn bytes_and_links_are_of_their_kind() {
    let bytes = json!({"type": "bytes", "minLength": 1, "maxLength": 2});
    check_good(bytes.clone(), json!({"$bytes": "AQ"}));
    check_bad(
        bytes.clone(),
        json!({"$bytes": ""}),
        "",
        "bytes of 1 to 2 bytes",
        "0 bytes",
    );
    check_bad(bytes, json!("AQ"), "", "bytes", "string");
    let cid = "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity";
    check_good(json!({"type": "cid-link"}), json!({"$link": cid}));
    check_bad(
        json!({"type": "cid-link"}),
        json!(cid),
        "",
        "cid-link",
        "string",
    );
    check_bad(json!({"type": "null"}), json!(0), "", "null", "integer");
}

#[test]
fn blobs_have_an_accepted_type_and_size() {
    let cid = "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity";
    let blob = |mime_type: &str, size: i64| json!({"$type": "blob", "ref": {"$link": cid}, "mimeType": mime_type, "size": size});
    let schema = json!({"type": "blob", "accept": ["image/*", "text/plain"], "maxSize": 10});
    check_good(json!({"type": "blob"}), blob("a/b", 1));
    check_good(schema.clone(), blob("image/png", 10));
    check_good(schema.clone(), blob("text/plain", 10));
    check_good(json!({"type": "blob", "accept": ["*/*"]}), blob("a/b", 1));
    let one_of = "one of image/*, text/plain";
    check_bad(
        schema.clone(),
        blob("text/html", 1),
        "mimeType",
        one_of,
        "text/html",
    );
    check_bad(
        schema.clone(),
        blob("imagepng", 1),
        "mimeType",
        one_of,
        "imagepng",
    );
    check_bad(
        schema.clone(),
        blob("image/png", 11),
        "size",
        "integer of at most 10",
        "11",
    );
    check_bad(schema.clone(), json!("x"), "", "blob", "string");
    check_bad(schema.clone(), json!({}), "mimeType", "string", "null");
    let whole = "blob with $type, ref, mimeType and size";
    check_bad(
        schema.clone(),
        json!({"mimeType": "image/png"}),
        "",
        whole,
        "object",
    );
    let partial = json!({"type": "blob", "accept": ["image/p*"]});
    check_bad(
        partial,
        blob("image/png", 1),
        "mimeType",
        "one of image/p*",
        "image/png",
    );
    let three = json!({"cid": cid, "mimeType": "image/png", "size": 1});
    check_bad(schema.clone(), three, "", whole, "object");
    // The first form of blobs, from before 2023.
    check_good(schema.clone(), json!({"cid": cid, "mimeType": "image/png"}));
    check_bad(
        schema,
        json!({"cid": cid, "mimeType": "a/b"}),
        "mimeType",
        one_of,
        "a/b",
    );
}

#[test]
fn values_that_json_cannot_write_are_refused_at_any_depth() {
    use record::value::Value;
    let text = |text: &'static str| Value::Text(text.into());
    let blob = |extra: Value<'static>| {
        crate::json::map(vec![
            ("$type".to_owned(), text("blob")),
            ("ref".to_owned(), Value::Link(record::cid::Cid::of_raw(b""))),
            ("mimeType".to_owned(), text("a/b")),
            ("size".to_owned(), Value::Int(1)),
            ("extra".to_owned(), extra),
        ])
    };
    let link = crate::json::map(vec![("$link".to_owned(), Value::Int(1))]);
    let catalog = catalog(&json!({"type": "blob"}));
    let verdict = |field: Value<'static>| {
        let name = ("$type".to_owned(), text(NSID));
        catalog.validate(
            NSID,
            &crate::json::map(vec![name, ("field".to_owned(), field)]),
        )
    };
    assert_eq!(verdict(blob(Value::Null)), Ok(()));
    let fault = verdict(blob(link)).unwrap_err();
    assert_eq!(fault.path, ["field", "extra"]);
    assert_eq!(
        fault.received,
        "$link must be the only key and contain a CID"
    );
}

#[test]
fn lists_are_counted_and_their_items_checked() {
    let schema = json!({"type": "array", "maxLength": 2, "items": {"type": "integer"}});
    check_good(schema.clone(), json!([1, 2]));
    check_bad(
        schema.clone(),
        json!([1, 2, 3]),
        "",
        "array of at most 2 items",
        "3 items",
    );
    check_bad(schema.clone(), json!([1, "2"]), "1", "integer", "string");
    check_bad(schema, json!({}), "", "array", "object");
}

#[test]
fn a_definition_may_contain_itself() {
    let schema = json!({"type": "ref", "ref": "#part"});
    check_good(
        schema.clone(),
        json!({"n": 1, "parts": [{"n": 2, "parts": []}]}),
    );
    check_bad(
        schema.clone(),
        json!({"n": 1, "parts": [{"n": 2}, {"n": 3, "parts": [{}]}]}),
        "parts.1.parts.0.n",
        "a value",
        "nothing",
    );
    check_bad(schema, json!([]), "", "object", "array");
}

#[test]
fn union_members_are_distinguished_by_type() {
    let open = json!({"type": "union", "refs": ["#part", "#other", "com.example.absent"]});
    let closed = json!({"type": "union", "refs": ["#part", "com.example.absent"], "closed": true});
    for schema in [&open, &closed] {
        check_good(
            schema.clone(),
            json!({"$type": "com.example.thing#part", "n": 1}),
        );
        check_good(
            schema.clone(),
            json!({"$type": "com.example.absent", "n": "x"}),
        );
        check_good(schema.clone(), json!({"$type": "com.example.absent#main"}));
        check_bad(
            schema.clone(),
            json!({"$type": "com.example.thing#part", "n": "x"}),
            "n",
            "integer",
            "string",
        );
        check_bad(
            schema.clone(),
            json!({"n": 1}),
            "$type",
            "string",
            "nothing",
        );
        check_bad(
            schema.clone(),
            json!("x"),
            "",
            "object with $type",
            "string",
        );
    }
    let blob = json!({"$type": "blob", "mimeType": "a/b", "size": 1, "ref": {
        "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"}});
    check_bad(open.clone(), blob, "", "object with $type", "blob");
    let stranger = json!({"$type": "com.example.stranger", "n": "x"});
    check_good(open, stranger.clone());
    check_bad(
        closed,
        stranger,
        "$type",
        "one of com.example.absent, com.example.thing#part",
        "com.example.stranger",
    );
}

#[test]
fn unknown_is_any_object_but_nothing_else() {
    let schema = json!({"type": "unknown"});
    check_good(schema.clone(), json!({"$type": "x", "a": [null, {"b": 1}]}));
    check_bad(schema.clone(), json!(false), "", "object", "boolean");
    check_bad(
        schema.clone(),
        json!({"$bytes": "AQ"}),
        "",
        "object",
        "bytes",
    );
    let blob = json!({"$type": "blob", "mimeType": "a/b", "size": 1, "ref": {
        "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"}});
    check_bad(schema, blob, "", "object", "blob");
}

#[test]
fn bodies_and_definitions_can_be_checked_too() {
    let catalog = vectors::catalog();
    let value = |text: &'static str| from_json(text).unwrap();
    let query = "com.example.garden.findPlants";
    let found = r#"{"plants":[{"plant":"at://did:plc:abc/com.example.garden.plant/3k"}]}"#;
    assert_eq!(catalog.validate_output(query, &value(found)), Ok(()));
    let broken = catalog.validate_output(query, &value(r#"{"plants":[{}]}"#));
    assert_eq!(broken.unwrap_err().path, ["plants", "0", "plant"]);
    assert!(catalog.validate_input(query, &value("{}")).is_err());

    let procedure = "com.example.garden.water";
    let water = r#"{"plant":"at://did:plc:abc/com.example.garden.plant/3k","litres":5}"#;
    assert_eq!(catalog.validate_input(procedure, &value(water)), Ok(()));
    let broken = catalog.validate_input(procedure, &value(r#"{"plant":1}"#));
    assert_eq!(broken.unwrap_err().path, ["plant"]);
    let done = value(r#"{"litres":5}"#);
    assert_eq!(catalog.validate_output(procedure, &done), Ok(()));

    let reference = value(r#"{"uri":"at://did:plc:abc","cid":"bafyreiaaaa"}"#);
    let name = "com.example.garden.defs#reference";
    assert_eq!(catalog.validate_def(name, &reference), Ok(()));
    let absent = "com.example.garden.defs#absent";
    assert!(catalog.validate_def(absent, &reference).is_err());
}
