//! Records against their lexicons: the verdict is the same from CBOR and from
//! JSON, and references are found in whatever is accepted.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use record::lexicon::Catalog;
use record::value::Value;
use record::{cbor, json};

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    Catalog::parse([
        include_str!("../../crates/sim/lexicons/follow.json"),
        include_str!("../../crates/sim/lexicons/like.json"),
        include_str!("../../crates/sim/lexicons/post.json"),
        include_str!("../../crates/sim/lexicons/profile.json"),
        include_str!("../../crates/sim/lexicons/reference.json"),
        include_str!("../../crates/sim/lexicons/repost.json"),
    ])
    .expect("the lexicons are good")
});

fn judge(value: &Value<'_>) -> Vec<Result<(), String>> {
    let mut verdicts = Vec::new();
    for nsid in CATALOG.collections() {
        let verdict = CATALOG.validate(nsid, value);
        if verdict.is_ok() {
            CATALOG.links(nsid, value, &mut |path, target| {
                assert!(!path.is_empty() && !target.is_empty());
            });
        }
        verdicts.push(verdict.map_err(|fault| fault.to_string()));
    }
    verdicts
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = cbor::decode(bytes) {
        let verdicts = judge(&value);
        let mut text = String::new();
        json::to_json(&value, &mut text);
        if verdicts.iter().any(Result::is_ok) {
            let again = json::from_json(&text).expect("what is valid can be told as JSON");
            assert_eq!(judge(&again), verdicts);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(value) = json::from_json(text)
    {
        let verdicts = judge(&value);
        let block = cbor::encode(&value);
        let again = cbor::decode(&block).expect("what we write we read");
        assert_eq!(judge(&again), verdicts);
    }
});
