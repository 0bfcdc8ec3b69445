//! Links: found by the lexicon, or along a path.

use record::json::from_json;
use record::lexicon::Catalog;
use record::links;
use serde_json::{Value as Json, json};

use crate::fixtures;

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

fn bluesky() -> Option<Catalog> {
    let texts = fixtures::texts_below("lexicons/atproto")?;
    Some(Catalog::parse(texts.iter().map(|(_, text)| text.as_str())).unwrap())
}

#[test]
fn a_post_links_to_parents_quotes_and_people() {
    let Some(catalog) = bluesky() else { return };
    let cid = "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq";
    let post = json!({
        "$type": "app.bsky.feed.post",
        "text": "at://did:plc:not/a.b.c/link",
        "createdAt": "2024-06-01T12:34:56Z",
        "reply": {
            "root": {"uri": "at://did:plc:root/app.bsky.feed.post/1", "cid": cid},
            "parent": {"uri": "at://did:plc:parent/app.bsky.feed.post/2", "cid": cid},
        },
        "embed": {
            "$type": "app.bsky.embed.recordWithMedia",
            "record": {"record": {"uri": "at://did:plc:quote/app.bsky.feed.post/3", "cid": cid}},
            "media": {"$type": "app.bsky.embed.images", "images": []},
        },
        "facets": [
            {"index": {"byteStart": 0, "byteEnd": 1}, "features": [
                {"$type": "app.bsky.richtext.facet#mention", "did": "did:plc:one"},
                {"$type": "app.bsky.richtext.facet#link", "uri": "https://example.com"},
            ]},
            {"index": {"byteStart": 0, "byteEnd": 1}, "features": [
                {"$type": "app.bsky.richtext.facet#mention", "did": "did:plc:two"},
            ]},
        ],
        "via": "did:plc:undescribed",
    });
    assert_eq!(
        found(&catalog, "app.bsky.feed.post", &post),
        pairs(&[
            (
                "embed.record.record.uri",
                "at://did:plc:quote/app.bsky.feed.post/3"
            ),
            ("facets.features.did", "did:plc:one"),
            ("facets.features.did", "did:plc:two"),
            (
                "reply.parent.uri",
                "at://did:plc:parent/app.bsky.feed.post/2"
            ),
            ("reply.root.uri", "at://did:plc:root/app.bsky.feed.post/1"),
        ])
    );
    let follow = json!({"$type": "app.bsky.graph.follow", "subject": "did:plc:one",
                        "createdAt": "2024-06-01T12:34:56Z"});
    assert_eq!(
        found(&catalog, "app.bsky.graph.follow", &follow),
        pairs(&[("subject", "did:plc:one")])
    );
}

#[test]
fn what_does_not_fit_the_lexicon_is_passed_over() {
    let Some(catalog) = bluesky() else { return };
    for record in [
        json!({"subject": "not a did"}),
        json!({"subject": ["did:plc:one"]}),
        json!({"subject": {"did": "did:plc:one"}}),
        json!({}),
    ] {
        assert_eq!(found(&catalog, "app.bsky.graph.follow", &record), []);
    }
    assert_eq!(
        found(&catalog, "com.example.none", &json!({"a": "did:plc:one"})),
        []
    );
}

#[test]
fn links_of_three_networks_have_paths() {
    let Some(texts) = fixtures::texts_below("lexicons") else {
        return;
    };
    let catalog = Catalog::parse(texts.iter().map(|(_, text)| text.as_str())).unwrap();
    let link = json!({
        "collection": {"uri": "at://did:plc:a/network.cosmik.collection/1", "cid": "bafyreiaaaa"},
        "card": {"uri": "at://did:plc:a/network.cosmik.card/2", "cid": "bafyreiaaaa"},
    });
    let paths: Vec<String> = found(&catalog, "network.cosmik.collectionLink", &link)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(paths, ["card.uri", "collection.uri"]);
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
