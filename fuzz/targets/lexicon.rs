//! Lexicons from anywhere: refused or compiled, and then fit to judge records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::json::from_json;
use record::lexicon::{Catalog, Document};

const RECORDS: [&str; 3] = [
    r#"{"$type":"app.bsky.feed.post","text":"x","createdAt":"2026-01-02T03:04:05Z","langs":["en"]}"#,
    r#"{"$type":"app.bsky.graph.follow","subject":"did:plc:abc","createdAt":"2026-01-02T03:04:05Z"}"#,
    r#"{"a":[{"b":[null,true,1]}],"$type":"x.y.z#w"}"#,
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(document) = Document::parse(text) else {
        return;
    };
    let Ok(catalog) = Catalog::new([document]) else {
        return;
    };
    for record in RECORDS {
        let record = from_json(record).expect("a record");
        for nsid in catalog.collections() {
            drop(catalog.validate(nsid, &record));
            catalog.links(nsid, &record, &mut |_, _| {});
            drop(catalog.validate_key(nsid, "self"));
            drop(catalog.validate_output(nsid, &record));
            drop(catalog.validate_input(nsid, &record));
        }
    }
});
