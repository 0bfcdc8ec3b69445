//! Hostile records: every input gets a verdict.

use std::borrow::Cow;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use record::ids::AtUri;
use record::json::{DEPTH_MAX, from_json, to_json};
use record::lexicon::{Catalog, Document, Format};
use record::links;
use record::value::Value;

use crate::json::{any_value, map};
use crate::{published, vectors};

/// All lexicons there are: our own, and the published ones where they are found.
fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| {
        let mut texts = vectors::lexicons();
        texts.extend(published::texts_below("lexicons"));
        texts.extend(published::texts_below("interop/lexicon/catalog"));
        Catalog::parse(texts.iter().map(|(_, text)| text.as_str())).unwrap()
    })
}

const PLANT: &str = "com.example.garden.plant";

/// A record that uses every part of the lexicon language.
fn plant() -> Value<'static> {
    let text = vectors::json("records")["base"].to_string();
    from_json(&text).unwrap().into_owned()
}

/// Replaces the value number `target` by `new`.
fn replace(value: &mut Value<'static>, target: &mut usize, new: &Value<'static>) -> bool {
    if *target == 0 {
        *value = new.clone();
        return true;
    }
    *target -= 1;
    match value {
        Value::List(items) => items.iter_mut().any(|item| replace(item, target, new)),
        Value::Map(fields) => fields
            .iter_mut()
            .any(|(_, field)| replace(field, target, new)),
        _ => false,
    }
}

/// A valid record can be written, read and searched for links.
fn check_verdict(catalog: &Catalog, nsid: &str, record: &Value<'_>) -> Result<(), TestCaseError> {
    let verdict = catalog.validate(nsid, record);
    catalog.links(nsid, record, &mut |path, target| {
        assert!(!path.is_empty());
        assert!(AtUri::is_valid(target) || Format::Did.accepts(target));
    });
    links::along(record, "reply.root.uri", &mut |_, _| {});
    match verdict {
        Ok(()) => {
            let mut text = String::new();
            to_json(record, &mut text);
            prop_assert_eq!(&from_json(&text).unwrap(), record);
        }
        Err(fault) => {
            prop_assert!(!fault.expected.is_empty() && !fault.received.is_empty());
            prop_assert!(fault.path.len() <= DEPTH_MAX + 1);
        }
    }
    Ok(())
}

#[test]
fn a_value_deeper_than_any_reader_gives_is_refused_not_overflowed() {
    let mut deep = Value::Null;
    for level in 0..500 {
        deep = if level % 2 == 0 {
            Value::List(vec![deep])
        } else {
            map(vec![("a".to_owned(), deep)])
        };
    }
    for field in ["notes", "undescribed"] {
        let mut record = plant();
        let Value::Map(fields) = &mut record else {
            panic!("a record is an object");
        };
        let at = fields.iter().position(|(key, _)| key == field).unwrap();
        fields[at].1 = map(vec![("deep".to_owned(), deep.clone())]);
        let fault = catalog().validate(PLANT, &record).unwrap_err();
        assert_eq!(fault.expected, "at most 64 levels of nesting");
        catalog().links(PLANT, &record, &mut |_, _| {});
        links::along(&record, &format!("{field}.deep"), &mut |_, _| {});
    }
}

#[test]
fn a_recursive_list_type_ends() {
    let text = r##"{"lexicon":1,"id":"com.example.tree","defs":{
        "main":{"type":"record","key":"any","record":{"type":"object",
            "properties":{"tree":{"type":"ref","ref":"#tree"}}}},
        "tree":{"type":"array","items":{"type":"ref","ref":"#tree"}}}}"##;
    let catalog = Catalog::parse([text]).unwrap();
    let nested = |levels: usize| {
        let mut tree = Value::List(Vec::new());
        for _ in 1..levels {
            tree = Value::List(vec![tree]);
        }
        let name = Value::Text(Cow::Borrowed("com.example.tree"));
        map(vec![("$type".to_owned(), name), ("tree".to_owned(), tree)])
    };
    let verdict = |levels| catalog.validate("com.example.tree", &nested(levels));
    assert_eq!(verdict(DEPTH_MAX - 1), Ok(()));
    let fault = verdict(DEPTH_MAX).unwrap_err();
    assert_eq!(fault.path.len(), DEPTH_MAX);
    catalog.links("com.example.tree", &nested(5), &mut |_, _| {});
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_mutated_record_gets_a_verdict(mut at in 0usize..80, new in any_value()) {
        let mut plant = plant();
        replace(&mut plant, &mut at, &new);
        check_verdict(catalog(), PLANT, &plant)?;
    }

    #[test]
    fn any_record_gets_a_verdict_from_any_lexicon(
        which in any::<prop::sample::Index>(),
        fields in prop::collection::vec((prop_oneof![
            "[a-z]{1,3}",
            Just("text".to_owned()), Just("subject".to_owned()), Just("createdAt".to_owned()),
            Just("notes".to_owned()), Just("care".to_owned()), Just("photo".to_owned()),
            Just("$link".to_owned()), Just("$bytes".to_owned()), Just("heightMm".to_owned()),
        ], any_value()), 0..8),
    ) {
        let names = catalog().collections();
        let nsid = *which.get(&names);
        let mut fields = fields;
        fields.insert(0, ("$type".to_owned(), Value::Text(Cow::Owned(nsid.to_owned()))));
        check_verdict(catalog(), nsid, &map(fields))?;
    }

    #[test]
    fn no_document_makes_the_parser_panic(mut at in 0usize..60, new in any_value()) {
        let text = r##"{"lexicon":1,"id":"com.example.tree","defs":{
            "main":{"type":"record","key":"any","record":{"type":"object","required":["tree"],
                "properties":{"tree":{"type":"union","refs":["#tree"],"closed":true},
                    "text":{"type":"string","format":"did","maxLength":5,"enum":["a"]}}}},
            "tree":{"type":"array","minLength":1,"items":{"type":"ref","ref":"#tree"}},
            "blob":{"type":"blob","accept":["a/*"],"maxSize":5}}}"##;
        let mut value = from_json(text).unwrap().into_owned();
        replace(&mut value, &mut at, &new);
        if let Ok(document) = Document::from_value(&value) {
            let _verdict = Catalog::new([document]);
        }
    }

    #[test]
    fn no_text_makes_a_format_panic(text in "\\PC{0,80}", at in 0usize..38, byte in 0u8..128) {
        let mut mutated = "at://did:plc:abc/app.bsky.feed.post/3k".to_owned();
        mutated.replace_range(at..=at, &char::from(byte).to_string());
        for text in [text.as_str(), mutated.as_str(), "2024-06-01T12:34:5\u{660}Z"] {
            for format in Format::ALL {
                format.accepts(text);
            }
        }
    }
}
