//! Business rules, conditions of feeds, and the whole Layers configuration.

use feedmill::config::Config;
use feedmill::store::FeedQuery;

use super::desk::{ALICE, BOB, Desk, fixtures};

const NOTE: &str = "[collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n";

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = Config::parse(&format!("namespace = \"com.example\"\n{NOTE}{text}")).unwrap_err();
    assert!(
        error.to_string().contains(expected),
        "{error} lacks {expected:?}"
    );
}

#[test]
fn a_wrong_expression_is_named_with_its_key_and_line() {
    let rule =
        "[[collections.note.rule]]\nname = \"a\"\nexpect = \"record.a ==\"\nmessage = \"m\"\n";
    refused(
        rule,
        "line 7: collections.note.rule.0.expect: not a CEL expression",
    );
    let rule = "[[collections.note.rule]]\nname = \"a\"\nexpect = \"recrod.a\"\nmessage = \"m\"\n";
    refused(
        rule,
        "\"recrod\" is not a name here; expressions see record, did, rkey",
    );
    let feed = "[feeds.f]\nfollow = \"note\"\ntargets = [{ collection = \"note\", where = \"rkey == '1'\" }]\n";
    refused(feed, "feeds.f.targets.0.where");
    let lookup = "requires = [{ path = \"a\", in = \"nota\", field = \"b\" }]\n";
    refused(lookup, "line 5: collections.note.requires.0: \"nota\"");
}

#[test]
fn a_record_that_breaks_a_rule_is_a_dead_letter_that_says_all() {
    let desk = Desk::new(&format!(
        "{NOTE}[[collections.note.rule]]\nname = \"order\"\nwhen = \"has(record.start)\"\n\
         expect = \"record.start < record.end\"\nmessage = \"a span must begin before it ends\"\npath = \"start\"\n"
    ));
    assert_eq!(
        desk.put(ALICE, "note", "1", r#"{"start":1,"end":2}"#)
            .accounting
            .applied,
        1
    );
    assert_eq!(
        desk.put(ALICE, "note", "2", r#"{"other":1}"#)
            .accounting
            .applied,
        1
    );
    assert_eq!(
        desk.put(ALICE, "note", "3", r#"{"start":5,"end":2}"#)
            .accounting
            .dead,
        1
    );
    let letter = desk.letter();
    assert_eq!(
        (letter.stage.as_str(), letter.rule.as_str()),
        ("rule", "order")
    );
    assert_eq!(letter.message, "a span must begin before it ends");
    assert_eq!(letter.path, ["start"]);
    assert_eq!(
        (letter.expected.as_str(), letter.received.as_str()),
        ("start < end", "5")
    );
    assert_eq!((letter.rkey.as_str(), letter.cursor), ("3", 7));
    assert!(letter.raw.contains("\"end\":2") && !letter.cid.is_empty());
    assert!(!desk.has(ALICE, "note", "3"));
}

#[test]
fn a_rule_over_a_list_names_the_element_that_breaks_it() {
    let desk = Desk::new(&format!(
        "{NOTE}[[collections.note.rule]]\nname = \"spans\"\n\
         expect = \"record.lines.all(l, l.spans.all(s, s.from < s.to))\"\nmessage = \"a span must begin before it ends\"\npath = \"lines\"\n"
    ));
    let body = r#"{"lines":[{"spans":[]},{"spans":[{"from":1,"to":2},{"from":9,"to":4}]}]}"#;
    assert_eq!(desk.put(ALICE, "note", "1", body).accounting.dead, 1);
    let letter = desk.letter();
    assert_eq!(letter.path, ["lines", "1", "spans", "1"]);
    assert_eq!(letter.received, r#"{"to":4,"from":9}"#);
    assert_eq!(
        letter.expected,
        "lines[1].spans[1].from < lines[1].spans[1].to"
    );
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_broken_and_says_so() {
    let desk = Desk::new(&format!(
        "{NOTE}[[collections.note.rule]]\nname = \"order\"\nexpect = \"record.start < record.end\"\nmessage = \"no order\"\n"
    ));
    desk.put(ALICE, "note", "1", r#"{"start":1}"#);
    let message = desk.letter().message;
    assert!(
        message.starts_with("no order (the rule could not be evaluated: "),
        "{message}"
    );
}

fn in_feed(desk: &Desk, reader: &str) -> Vec<String> {
    let feed = desk.store.plan().feed("f").unwrap().clone();
    let query = FeedQuery {
        reader: reader.into(),
        lanes: vec![(feed.targets[0].lane, None)],
        follows: feed.follows,
        hides: Vec::new(),
        lens: Default::default(),
        include_self: false,
        before: None,
        limit: 50,
        scan_max: 1000,
    };
    let mut keys: Vec<String> = desk
        .store
        .feed(&query)
        .unwrap()
        .rows
        .into_iter()
        .map(|row| row.rkey)
        .collect();
    keys.sort();
    keys
}

#[test]
fn a_condition_decides_what_is_in_the_feed_and_not_what_is_listed() {
    let desk = Desk::new(&format!(
        "{NOTE}[collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [feeds.f]\ntargets = [{{ collection = \"note\", where = \"!has(record.reply)\" }}]\n"
    ));
    desk.put(BOB, "follow", "1", &format!("{{\"subject\":\"{ALICE}\"}}"));
    desk.put(ALICE, "note", "1", r#"{"text":"a"}"#);
    desk.put(ALICE, "note", "2", r#"{"text":"b","reply":"x"}"#);
    assert_eq!(in_feed(&desk, BOB), ["1"]);
    assert!(desk.has(ALICE, "note", "2"));
    let listing = desk.store.plan().listing("com.example.note").unwrap();
    let list = feedmill::store::ListQuery {
        lane: listing,
        did: None,
        before: None,
        limit: 10,
        lens: Default::default(),
        scan_max: 1000,
    };
    assert_eq!(desk.store.list(&list).unwrap().rows.len(), 2);
    // An edit that changes the condition moves the record in and out.
    desk.put(ALICE, "note", "2", r#"{"text":"b"}"#);
    desk.put(ALICE, "note", "1", r#"{"text":"a","reply":"x"}"#);
    assert_eq!(in_feed(&desk, BOB), ["2"]);
}

#[test]
fn the_first_matching_rule_replaces_the_keys_and_a_change_of_it_rebuilds_the_lane() {
    let folder = tempfile::tempdir().unwrap();
    let text = |keys: &str| {
        format!(
            "namespace = \"com.example\"\n{NOTE}[collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
             [feeds.f]\ntargets = [{{ collection = \"note\", keys = [\"author\", \"topic\"] }}]\n\
             [[feeds.f.rule]]\nwhen = \"record.source == 'margin'\"\nkeys = {keys}\n\
             [store]\nurl = \"sqlite://{}/s.db\"\n",
            folder.path().display()
        )
    };
    let desk = Desk::of(Config::parse(&text("[\"author\"]")).unwrap());
    desk.put(BOB, "follow", "1", r#"{"subject":"topic:x"}"#);
    desk.put(ALICE, "note", "1", r#"{"topic":"topic:x"}"#);
    desk.put(
        ALICE,
        "note",
        "2",
        r#"{"topic":"topic:x","source":"margin"}"#,
    );
    assert_eq!(in_feed(&desk, BOB), ["1"]);
    drop(desk);
    let desk = Desk::of(Config::parse(&text("[\"topic\"]")).unwrap());
    assert_eq!(in_feed(&desk, BOB), ["1", "2"]);
}

/// The published configuration on the published lexicons, in memory.
fn layers() -> Option<Desk> {
    let lexicons = fixtures("lexicons/layers/lexicons")?;
    let text = include_str!("../../../../examples/layers.toml");
    let mut config = Config::parse(text).unwrap();
    assert_eq!(config.collections.len(), 26);
    config.lexicons = vec![lexicons];
    for collection in config.collections.values_mut() {
        collection.validate = true;
    }
    config.store.url = "sqlite::memory:".into();
    Some(Desk::of(config))
}

const TIME: &str = "\"createdAt\":\"2026-06-01T00:00:00Z\"";
const E: &str = "3mabcdefghi22";

fn segmentation(desk: &Desk, spans: &[(i64, i64)]) -> String {
    let tokens: Vec<String> = spans
        .iter()
        .enumerate()
        .map(|(index, (start, end))| {
            format!("{{\"tokenIndex\":{index},\"textSpan\":{{\"byteStart\":{start},\"byteEnd\":{end}}}}}")
        })
        .collect();
    format!(
        "{{\"$type\":\"pub.layers.segmentation.segmentation\",\"expression\":\"{}\",\"tokenizations\":[{{\"uuid\":{{\"value\":\"t1\"}},\"kind\":\"word\",\"tokens\":[{}]}}],{TIME}}}",
        desk.uri(ALICE, "expression", E),
        tokens.join(",")
    )
}

fn expression(desk: &Desk) {
    let body = format!(
        "{{\"$type\":\"pub.layers.expression.expression\",\"id\":\"e\",\"kind\":\"sentence\",\"text\":\"Grüße an alle\",{TIME}}}"
    );
    let committed = desk.put(ALICE, "expression", E, &body);
    assert_eq!(committed.accounting.applied, 1, "{:?}", desk.letters());
}

#[track_caller]
fn breaks(desk: &Desk, short: &str, body: &str, rule: &str) {
    desk.put(BOB, short, "3mabcdefghj22", body);
    let letter = desk.letter();
    assert_eq!(
        (letter.stage.as_str(), letter.rule.as_str()),
        ("rule", rule),
        "{letter:?}"
    );
}

#[test]
fn layers_accepts_a_segmentation_within_its_text() {
    let Some(desk) = layers() else { return };
    expression(&desk);
    let body = segmentation(&desk, &[(0, 7), (8, 10), (11, 15)]);
    assert_eq!(
        desk.put(BOB, "segmentation", "3mabcdefghj22", &body)
            .accounting
            .applied,
        1,
        "{:?}",
        desk.letters()
    );
}

#[test]
fn layers_refuses_token_spans_that_end_before_they_begin() {
    let Some(desk) = layers() else { return };
    expression(&desk);
    breaks(
        &desk,
        "segmentation",
        &segmentation(&desk, &[(7, 3)]),
        "token-spans",
    );
}

#[test]
fn layers_refuses_token_offsets_that_do_not_increase() {
    let Some(desk) = layers() else { return };
    expression(&desk);
    breaks(
        &desk,
        "segmentation",
        &segmentation(&desk, &[(8, 10), (0, 7)]),
        "token-order",
    );
}

#[test]
fn layers_refuses_tokens_behind_the_text_counted_in_bytes() {
    let Some(desk) = layers() else { return };
    expression(&desk);
    // The text has 13 characters and 15 bytes.
    breaks(
        &desk,
        "segmentation",
        &segmentation(&desk, &[(0, 16)]),
        "tokens-inside-text",
    );
}

#[test]
fn layers_refuses_annotation_spans_that_end_before_they_begin() {
    let Some(desk) = layers() else { return };
    expression(&desk);
    let body = format!(
        "{{\"$type\":\"pub.layers.annotation.annotationLayer\",\"expression\":\"{}\",\"kind\":\"token-tag\",\"annotations\":[{{\"uuid\":{{\"value\":\"a\"}},\"anchor\":{{\"textSpan\":{{\"byteStart\":5,\"byteEnd\":5}}}}}}],{TIME}}}",
        desk.uri(ALICE, "expression", E)
    );
    breaks(&desk, "annotationLayer", &body, "annotation-spans");
}

#[test]
fn layers_refuses_edge_types_that_are_no_slugs_and_edges_without_ends() {
    for (edge, source, rule) in [
        (
            "Part Of",
            r#"{"localId":{"value":"a"}}"#,
            "edge-type-is-a-slug",
        ),
        ("part-of", "{}", "edge-has-ends"),
    ] {
        let Some(desk) = layers() else { return };
        let body = format!(
            "{{\"$type\":\"pub.layers.graph.graphEdge\",\"source\":{source},\"target\":{{\"localId\":{{\"value\":\"b\"}}}},\"edgeType\":\"{edge}\",{TIME}}}"
        );
        breaks(&desk, "graphEdge", &body, rule);
    }
}

#[test]
fn layers_parks_type_definitions_until_their_ontology_comes_and_annotations_until_their_tokenization()
 {
    let Some(desk) = layers() else { return };
    let key = "3mabcdefghk22";
    let body = format!(
        "{{\"$type\":\"pub.layers.ontology.typeDef\",\"ontologyRef\":\"{}\",\"name\":\"n\",\"typeKind\":\"entity-type\",{TIME}}}",
        desk.uri(ALICE, "ontology", key)
    );
    assert_eq!(
        desk.put(BOB, "typeDef", key, &body).accounting.parked,
        1,
        "{:?}",
        desk.letters()
    );
    let ontology = format!("{{\"$type\":\"pub.layers.ontology.ontology\",\"name\":\"o\",{TIME}}}");
    desk.put(ALICE, "ontology", key, &ontology);
    assert!(desk.has(BOB, "typeDef", key));

    expression(&desk);
    let body = format!(
        "{{\"$type\":\"pub.layers.annotation.annotationLayer\",\"expression\":\"{}\",\"kind\":\"token-tag\",\"tokenizationId\":{{\"value\":\"t1\"}},\"annotations\":[],{TIME}}}",
        desk.uri(ALICE, "expression", E)
    );
    assert_eq!(
        desk.put(BOB, "annotationLayer", key, &body)
            .accounting
            .parked,
        1,
        "{:?}",
        desk.letters()
    );
    desk.put(ALICE, "segmentation", key, &segmentation(&desk, &[(0, 7)]));
    assert!(
        desk.has(BOB, "annotationLayer", key),
        "{:?}",
        desk.letters()
    );
    assert_eq!(desk.accounting().parked, 0);
}
