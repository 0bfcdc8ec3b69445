//! Hostile records: whatever comes in, a verdict comes out.

use std::borrow::Cow;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use record::ids::AtUri;
use record::json::{DEPTH_MAX, from_json, to_json};
use record::lexicon::{Catalog, Document, Format};
use record::links;
use record::value::Value;

use crate::fixtures;
use crate::json::{any_value, map};

/// All lexicons; `None` if fixtures are switched off.
fn catalog() -> Option<&'static Catalog> {
    static CATALOG: OnceLock<Option<Catalog>> = OnceLock::new();
    CATALOG
        .get_or_init(|| {
            let mut texts = fixtures::texts_below("lexicons")?;
            texts.extend(fixtures::texts_below("interop/lexicon/catalog")?);
            Some(Catalog::parse(texts.iter().map(|(_, text)| text.as_str())).unwrap())
        })
        .as_ref()
}

const POST: &str = r#"{"$type":"app.bsky.feed.post","text":"hello @alice","langs":["en"],
    "createdAt":"2024-06-01T12:34:56.789Z","tags":["a"],
    "labels":{"$type":"com.atproto.label.defs#selfLabels","values":[{"val":"x"}]},
    "reply":{"root":{"uri":"at://did:plc:abc/app.bsky.feed.post/1","cid":"bafyreiaaaa"},
             "parent":{"uri":"at://did:plc:abc/app.bsky.feed.post/2","cid":"bafyreiaaaa"}},
    "facets":[{"index":{"byteStart":6,"byteEnd":12},
               "features":[{"$type":"app.bsky.richtext.facet#mention","did":"did:plc:abc"}]}],
    "embed":{"$type":"app.bsky.embed.images","images":[{"alt":"","image":{"$type":"blob",
        "ref":{"$link":"bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"},
        "mimeType":"image/png","size":10},"aspectRatio":{"width":1,"height":2}}]}}"#;

/// Walks to the `target`th value and puts `new` in its place.
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

/// A record that passes must be one we can keep, give out and look through.
fn settle(catalog: &Catalog, nsid: &str, record: &Value<'_>) -> Result<(), TestCaseError> {
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
fn the_post_to_be_mutated_is_good() {
    if let Some(catalog) = catalog() {
        let post = from_json(POST).unwrap();
        assert_eq!(catalog.validate("app.bsky.feed.post", &post), Ok(()));
    }
}

#[test]
fn a_value_deeper_than_any_reader_gives_is_refused_not_overflowed() {
    let Some(catalog) = catalog() else { return };
    let mut deep = Value::Null;
    for level in 0..500 {
        deep = if level % 2 == 0 {
            Value::List(vec![deep])
        } else {
            map(vec![("a".to_owned(), deep)])
        };
    }
    let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
    for field in ["unknown", "undescribed"] {
        let record = map(vec![
            ("$type".to_owned(), text("example.lexicon.record")),
            ("integer".to_owned(), Value::Int(1)),
            (
                field.to_owned(),
                map(vec![("deep".to_owned(), deep.clone())]),
            ),
        ]);
        let fault = catalog
            .validate("example.lexicon.record", &record)
            .unwrap_err();
        assert_eq!(fault.expected, "at most 64 levels of nesting");
        catalog.links("example.lexicon.record", &record, &mut |_, _| {});
        links::along(&record, &format!("{field}.deep"), &mut |_, _| {});
    }
}

#[test]
fn a_list_of_lists_that_holds_itself_ends() {
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
    fn a_mutated_post_gets_a_verdict(
        mut at in 0usize..40,
        new in any_value(),
    ) {
        let Some(catalog) = catalog() else { return Ok(()) };
        let mut post = from_json(POST).unwrap().into_owned();
        replace(&mut post, &mut at, &new);
        settle(catalog, "app.bsky.feed.post", &post)?;
    }

    #[test]
    fn any_record_gets_a_verdict_from_any_lexicon(
        which in any::<prop::sample::Index>(),
        fields in prop::collection::vec((prop_oneof![
            "[a-z]{1,3}",
            Just("text".to_owned()), Just("subject".to_owned()), Just("createdAt".to_owned()),
            Just("unknown".to_owned()), Just("union".to_owned()), Just("blob".to_owned()),
            Just("$link".to_owned()), Just("$bytes".to_owned()), Just("integer".to_owned()),
        ], any_value()), 0..8),
    ) {
        let Some(catalog) = catalog() else { return Ok(()) };
        let names = catalog.collections();
        let nsid = *which.get(&names);
        let mut fields = fields;
        fields.insert(0, ("$type".to_owned(), Value::Text(Cow::Owned(nsid.to_owned()))));
        settle(catalog, nsid, &map(fields))?;
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
