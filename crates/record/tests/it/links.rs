//! Links: found by the lexicon, or along a path.

use record::json::from_json;
use record::lexicon::Catalog;
use record::links;
use serde_json::{Value as Json, json};

use crate::{published, vectors};

fn found(catalog: &Catalog, nsid: &str, record: &Json) -> Vec<(String, String)> {
    let text = record.to_string();
    let mut found = Vec::new();
    catalog.links(nsid, &from_json(&text).unwrap(), &mut |path, target| {
        found.push((path.to_owned(), target.to_owned()));
    });
    found.sort();
    found
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(path, target)| ((*path).to_owned(), (*target).to_owned()))
        .collect()
}

const CID: &str = "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm";

#[test]
fn links_are_found_wherever_the_lexicon_has_them() {
    let note = json!({
        "$type": "com.example.garden.note",
        "text": "at://did:plc:text/a.b.c/is-no-link",
        "about": "at://did:plc:plant/com.example.garden.plant/1",
        "author": "did:plc:author",
        "reply": {
            "root": {"uri": "at://did:plc:root/com.example.garden.note/2", "cid": CID},
            "parent": {"uri": "at://did:plc:parent/com.example.garden.note/3", "cid": CID},
        },
        "marks": [
            {"parts": [
                {"$type": "com.example.garden.note#person", "did": "did:plc:one"},
                {"$type": "com.example.garden.note#page", "uri": "https://example.com"},
            ]},
            {"parts": [{"$type": "com.example.garden.note#person", "did": "did:plc:two"}]},
        ],
        "attached": {
            "$type": "com.example.garden.note#quote",
            "record": {"uri": "at://did:plc:quote/com.example.garden.note/4", "cid": CID},
        },
        "via": "did:plc:undescribed",
    });
    let expected = pairs(&[
        ("about", "at://did:plc:plant/com.example.garden.plant/1"),
        (
            "attached.record.uri",
            "at://did:plc:quote/com.example.garden.note/4",
        ),
        ("author", "did:plc:author"),
        ("marks.parts.did", "did:plc:one"),
        ("marks.parts.did", "did:plc:two"),
        (
            "reply.parent.uri",
            "at://did:plc:parent/com.example.garden.note/3",
        ),
        (
            "reply.root.uri",
            "at://did:plc:root/com.example.garden.note/2",
        ),
    ]);
    let catalog = vectors::catalog();
    assert_eq!(found(&catalog, "com.example.garden.note", &note), expected);
}

#[test]
fn fields_that_break_the_lexicon_give_no_links() {
    let catalog = vectors::catalog();
    for record in [
        json!({"author": "not a did"}),
        json!({"author": ["did:plc:one"]}),
        json!({"author": {"did": "did:plc:one"}}),
        json!({"about": "https://example.com"}),
        json!({"reply": {"root": "at://did:plc:root"}}),
        json!({"marks": {"parts": [{"did": "did:plc:one"}]}}),
        json!({"attached": {"record": {"uri": "at://did:plc:quote"}}}),
        json!({}),
    ] {
        assert_eq!(found(&catalog, "com.example.garden.note", &record), []);
    }
    let nowhere = json!({"a": "did:plc:one"});
    assert_eq!(found(&catalog, "com.example.none", &nowhere), []);
}

#[test]
fn links_of_published_lexicons_have_paths() {
    let texts = published::texts_below("lexicons");
    if texts.is_empty() {
        return;
    }
    let catalog = Catalog::parse(texts.iter().map(|(_, text)| text.as_str())).unwrap();
    let paths = |nsid: &str, record: &Json| -> Vec<String> {
        let found = found(&catalog, nsid, record);
        found.into_iter().map(|(path, _)| path).collect()
    };
    let link = json!({
        "collection": {"uri": "at://did:plc:a/network.cosmik.collection/1", "cid": CID},
        "card": {"uri": "at://did:plc:a/network.cosmik.card/2", "cid": CID},
    });
    let found = paths("network.cosmik.collectionLink", &link);
    assert_eq!(found, ["card.uri", "collection.uri"]);
    let follow = json!({"subject": "did:plc:one"});
    assert_eq!(paths("app.bsky.graph.follow", &follow), ["subject"]);
    let post = json!({
        "reply": {"parent": {"uri": "at://did:plc:parent/app.bsky.feed.post/2", "cid": CID}},
        "embed": {
            "$type": "app.bsky.embed.recordWithMedia",
            "record": {"record": {"uri": "at://did:plc:quote/app.bsky.feed.post/3", "cid": CID}},
        },
        "facets": [{"features": [
            {"$type": "app.bsky.richtext.facet#mention", "did": "did:plc:one"},
        ]}],
    });
    let found = paths("app.bsky.feed.post", &post);
    let expected = [
        "embed.record.record.uri",
        "facets.features.did",
        "reply.parent.uri",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_path_leads_through_lists_to_every_text() {
    let record = json!({"a": [{"b": "x"}, {"b": ["y", 1, {"c": "z"}]}, "w"], "d": "v"}).to_string();
    let record = from_json(&record).unwrap();
    let check = |path: &str, expected: &[&str]| {
        let mut found = Vec::new();
        links::along(&record, path, &mut |given, target| {
            assert_eq!(given, path);
            found.push(target.to_owned());
        });
        assert_eq!(found, expected, "{path}");
    };
    check("a.b", &["x", "y"]);
    check("a.b.c", &["z"]);
    check("a", &["w"]);
    check("d", &["v"]);
    check("d.e", &[]);
    check("", &[]);
    check("none", &[]);
}
