//! Lexicon documents: which are accepted, which are refused, and why.

use record::lexicon::{Catalog, Document, KeyType, LexiconError};
use serde_json::json;

use crate::{published, vectors};

/// A document with one definition.
fn document(name: &str, def: serde_json::Value) -> String {
    json!({"lexicon": 1, "id": "com.example.thing", "defs": {name: def}}).to_string()
}

/// A record document with one field.
fn with_field(field: serde_json::Value) -> String {
    document(
        "main",
        json!({"type": "record", "key": "any",
               "record": {"type": "object", "properties": {"field": field}}}),
    )
}

#[track_caller]
fn check_refused(text: &str, path: &str, reason: &str) {
    match Document::parse(text) {
        Err(LexiconError::Invalid {
            path: found,
            reason: given,
            ..
        }) => assert_eq!((found.as_str(), given), (path, reason), "{text}"),
        other => panic!("{text}: {other:?}"),
    }
}

#[track_caller]
fn check_field_refused(schema: serde_json::Value, path: &str, reason: &str) {
    let path = format!("defs.main.record.properties.field.{path}");
    check_refused(&with_field(schema), &path, reason);
}

#[test]
fn valid_documents_are_accepted() {
    for text in [
        json!({"lexicon": 1, "id": "com.example.empty", "defs": {}}),
        json!({"lexicon": 1, "id": "com.example.a1", "revision": 7, "note": [],
               "defs": {"some-thing_2": {"type": "object", "colour": "green"}}}),
    ] {
        let document = Document::parse(&text.to_string());
        assert!(document.is_ok(), "{text}: {document:?}");
    }
    for case in published::cases("interop/lexicon/lexicon-valid.json") {
        let document = Document::parse(&case["lexicon"].to_string());
        assert!(document.is_ok(), "{}: {document:?}", case["name"]);
        assert!(Catalog::new(document).is_ok());
    }
}

#[test]
fn the_lexicons_of_a_garden_load_together() {
    let catalog = vectors::catalog();
    assert_eq!(catalog.missing(), [] as [&str; 0]);
    let collections = [
        "com.example.garden.note",
        "com.example.garden.plant",
        "com.example.garden.settings",
    ];
    assert_eq!(catalog.collections(), collections);
    let keys = collections.map(|name| catalog.key_type(name).unwrap().to_string());
    assert_eq!(keys, ["any", "tid", "literal:self"]);
    assert!(!catalog.describes("com.example.garden.findPlants"));
}

#[test]
fn a_document_without_its_frame_is_refused() {
    let main = json!({"main": {"type": "token"}});
    for (document, path, reason) in [
        (json!({}), "lexicon", "must be 1"),
        (
            json!({"lexicon": 2, "id": "com.example.thing", "defs": main}),
            "lexicon",
            "must be 1",
        ),
        (
            json!({"lexicon": "1", "id": "com.example.thing", "defs": main}),
            "lexicon",
            "must be 1",
        ),
        (json!({"lexicon": 1, "defs": main}), "id", "must be an NSID"),
        (
            json!({"lexicon": 1, "id": "com.example", "defs": main}),
            "id",
            "must be an NSID",
        ),
        (
            json!({"lexicon": 1, "id": 7, "defs": main}),
            "id",
            "must be a string",
        ),
        (
            json!({"lexicon": 1, "id": "com.example.thing"}),
            "defs",
            "must be an object",
        ),
        (
            json!({"lexicon": 1, "id": "com.example.thing", "defs": [main]}),
            "defs",
            "must be an object",
        ),
    ] {
        check_refused(&document.to_string(), path, reason);
    }
}

#[test]
fn a_definition_has_a_type_that_may_be_defined() {
    for (def, path, reason) in [
        (json!({}), "type", "is missing"),
        (json!({"type": 7}), "type", "must be a string"),
        (json!({"type": "plant"}), "type", "is not a type of field"),
        (
            json!({"type": "unknown"}),
            "type",
            "cannot be a definition, only a field",
        ),
        (
            json!({"type": "ref", "ref": "com.example.thing"}),
            "type",
            "cannot be a definition, only a field",
        ),
        (
            json!({"type": "union", "refs": []}),
            "type",
            "cannot be a definition, only a field",
        ),
        (
            json!({"type": "record", "record": {"type": "object"}}),
            "key",
            "must be tid, nsid, any or literal:…",
        ),
        (
            json!({"type": "record", "key": "tid"}),
            "record",
            "is missing",
        ),
        (
            json!({"type": "record", "key": "tid", "record": {}}),
            "record.type",
            "is missing",
        ),
        (
            json!({"type": "record", "key": "tid", "record": {"type": "string"}}),
            "record.type",
            "must be object",
        ),
    ] {
        let path = format!("defs.main.{path}");
        check_refused(&document("main", def), &path, reason);
    }
    for def in [
        json!({"type": "record", "key": "tid", "record": {"type": "object"}}),
        json!({"type": "procedure"}),
        json!({"type": "subscription"}),
        json!({"type": "permission-set", "permissions": []}),
    ] {
        let text = document("part", def);
        check_refused(&text, "defs.part.type", "must be the main definition");
    }
}

#[test]
fn invalid_documents_that_were_published_are_refused() {
    for case in published::cases("interop/lexicon/lexicon-invalid.json") {
        let document = Document::parse(&case["lexicon"].to_string());
        let refused = matches!(document, Err(LexiconError::Invalid { .. }));
        assert!(refused, "{}: {document:?}", case["name"]);
    }
}

#[test]
fn published_lexicons_of_three_networks_load_together() {
    let documents: Vec<Document> = published::texts_below("lexicons")
        .iter()
        .map(|(path, text)| {
            Document::parse(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect();
    if documents.is_empty() {
        return;
    }
    let catalog = Catalog::new(documents).unwrap();
    assert_eq!(catalog.missing(), [] as [&str; 0]);
    assert_eq!(catalog.collections().len(), 51);
    for nsid in [
        "app.bsky.feed.post",
        "network.cosmik.card",
        "pub.layers.expression.expression",
    ] {
        assert!(catalog.describes(nsid), "{nsid}");
    }
    assert_eq!(catalog.key_type("app.bsky.feed.post"), Some(&KeyType::Tid));
}

#[test]
fn a_reference_to_a_missing_lexicon_is_listed_and_accepts_any_value() {
    let text = with_field(json!({"type": "ref", "ref": "com.example.absent#part"}));
    let catalog = Catalog::parse([text.as_str()]).unwrap();
    assert_eq!(catalog.missing(), ["com.example.absent#part"]);
    for field in ["1", "{\"a\":[]}", "\"text\""] {
        let record = format!("{{\"$type\":\"com.example.thing\",\"field\":{field}}}");
        let record = record::json::from_json(&record).unwrap();
        assert_eq!(catalog.validate("com.example.thing", &record), Ok(()));
    }
}

#[test]
fn a_reference_to_a_method_is_refused() {
    let query = json!({"lexicon": 1, "id": "com.example.getThing",
                       "defs": {"main": {"type": "query"}}})
    .to_string();
    let text = with_field(json!({"type": "ref", "ref": "com.example.getThing"}));
    let refused = Catalog::parse([text.as_str(), query.as_str()]);
    assert!(
        matches!(refused, Err(LexiconError::NotAField { .. })),
        "{refused:?}"
    );
}

#[test]
fn one_name_for_two_documents_is_a_conflict_unless_they_agree() {
    let text = with_field(json!({"type": "integer"}));
    let described = with_field(json!({"type": "integer", "description": "a number"}));
    let different = with_field(json!({"type": "integer", "maximum": 5}));
    assert!(Catalog::parse([text.as_str(), described.as_str()]).is_ok());
    let refused = Catalog::parse([text.as_str(), different.as_str()]);
    assert!(matches!(refused, Err(LexiconError::Conflict(id)) if id == "com.example.thing"));
}

#[test]
fn a_mistake_in_a_scalar_is_reported_with_its_path() {
    for (schema, path, reason) in [
        (json!({"type": "strin"}), "type", "is not a type of field"),
        (json!({}), "type", "is missing"),
        (
            json!({"type": "string", "format": "date"}),
            "format",
            "is not a known format",
        ),
        (
            json!({"type": "string", "maxLength": "5"}),
            "maxLength",
            "must be an integer",
        ),
        (
            json!({"type": "string", "maxLength": -1}),
            "maxLength",
            "must not be negative",
        ),
        (
            json!({"type": "string", "enum": []}),
            "enum",
            "must not be empty",
        ),
        (
            json!({"type": "string", "knownValues": [1]}),
            "knownValues",
            "must be a list of strings",
        ),
        (
            json!({"type": "integer", "minimum": 2, "maximum": 1}),
            "minimum",
            "is above maximum",
        ),
        (
            json!({"type": "integer", "enum": ["a"]}),
            "enum",
            "must be a list of integers",
        ),
        (
            json!({"type": "boolean", "const": 1}),
            "const",
            "must be true or false",
        ),
    ] {
        check_field_refused(schema, path, reason);
    }
}

#[test]
fn a_mistake_in_a_type_with_parts_is_reported_with_its_path() {
    for (schema, path, reason) in [
        (json!({"type": "array"}), "items", "is missing"),
        (
            json!({"type": "array", "items": {"type": "x"}}),
            "items.type",
            "is not a type of field",
        ),
        (
            json!({"type": "ref", "ref": "a b"}),
            "ref",
            "must be a reference",
        ),
        (
            json!({"type": "union", "refs": "#a"}),
            "refs",
            "must be a list of references",
        ),
        (
            json!({"type": "union", "refs": [], "closed": true}),
            "refs",
            "must not be empty in a closed union",
        ),
        (
            json!({"type": "blob", "accept": ["png"]}),
            "accept",
            "must be a list of MIME types",
        ),
        (json!({"type": "record"}), "type", "is not a type of field"),
        (json!({"type": "params"}), "type", "is not a type of field"),
        (
            json!({"type": "object", "properties": {"$ref": {"type": "null"}}}),
            "properties.$ref",
            "is a reserved name",
        ),
    ] {
        check_field_refused(schema, path, reason);
    }
}

#[test]
fn definitions_of_methods_are_checked() {
    for (def, path, reason) in [
        (
            json!({"type": "query", "input": {}}),
            "input",
            "belongs to a procedure",
        ),
        (
            json!({"type": "query", "output": {}}),
            "output.encoding",
            "is missing",
        ),
        (
            json!({"type": "query", "output": {"encoding": "*/*", "schema": {"type": "string"}}}),
            "output.schema",
            "must be object, ref or union",
        ),
        (
            json!({"type": "query", "parameters": {"type": "object"}}),
            "parameters.type",
            "must be params",
        ),
        (
            json!({"type": "query", "parameters": {"type": "params",
                "properties": {"a": {"type": "object"}}}}),
            "parameters.properties.a",
            "must be a scalar or a list of scalars",
        ),
        (
            json!({"type": "procedure", "errors": [{}]}),
            "errors",
            "must be a list of named errors",
        ),
        (
            json!({"type": "subscription", "message": {"schema": {"type": "object"}}}),
            "message.schema",
            "must be a union",
        ),
        (
            json!({"type": "permission-set"}),
            "permissions",
            "must be a list",
        ),
        (
            json!({"type": "permission-set", "permissions": [{"type": "permission"}]}),
            "permissions",
            "must contain permissions with a resource",
        ),
        (
            json!({"type": "record", "key": "rkey", "record": {"type": "object"}}),
            "key",
            "must be tid, nsid, any or literal:…",
        ),
    ] {
        check_refused(&document("main", def), &format!("defs.main.{path}"), reason);
    }
    check_refused(
        &document("part", json!({"type": "query"})),
        "defs.part.type",
        "must be the main definition",
    );
    check_refused(
        &document("a part", json!({"type": "token"})),
        "defs.a part",
        "is not a name",
    );
}

#[test]
fn keys_follow_the_type_of_their_collection() {
    for (key, rkey, expected) in [
        ("tid", "3jzfcijpj2z2a", true),
        ("tid", "self", false),
        ("nsid", "com.example.thing", true),
        ("nsid", "self", false),
        ("literal:self", "self", true),
        ("literal:self", "other", false),
        ("any", "other", true),
        ("any", "..", false),
    ] {
        let key_type = KeyType::parse(key).unwrap();
        assert_eq!(key_type.accepts(rkey), expected, "{key} {rkey}");
        assert_eq!(key_type.to_string(), key);
    }
    assert_eq!(KeyType::parse("literal:"), None);
}
