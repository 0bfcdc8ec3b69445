//! Records against lexicons: the vectors.

use record::json::from_json;
use record::lexicon::Catalog;
use serde_json::{Value as Json, json};

use crate::validate::validate;
use crate::{published, vectors};

/// The base record of our vectors with the changes of one case.
fn changed(base: &Json, case: &Json) -> Json {
    let mut record = base.as_object().unwrap().clone();
    if let Some(keep) = case["keep"].as_array() {
        record.retain(|key, _| keep.contains(&json!(key)));
    }
    for key in case["remove"].as_array().into_iter().flatten() {
        record.remove(key.as_str().unwrap()).unwrap();
    }
    for (key, value) in case["change"].as_object().into_iter().flatten() {
        record.insert(key.clone(), value.clone()).unwrap();
    }
    record.into()
}

#[test]
fn records_that_keep_every_rule_pass() {
    let vectors = vectors::json("records");
    let (catalog, base) = (vectors::catalog(), &vectors["base"]);
    let nsid = vectors["collection"].as_str().unwrap();
    assert_eq!(validate(&catalog, nsid, base), Ok(()));
    assert_eq!(catalog.validate_key(nsid, "3lbqy5qk2ss2k"), Ok(()));
    for case in vectors["valid"].as_array().unwrap() {
        let verdict = validate(&catalog, nsid, &changed(base, case));
        assert_eq!(verdict, Ok(()), "{}", case["name"]);
    }
}

#[test]
fn records_that_break_one_rule_are_refused_at_its_path() {
    let vectors = vectors::json("records");
    let (catalog, base) = (vectors::catalog(), &vectors["base"]);
    let nsid = vectors["collection"].as_str().unwrap();
    for case in vectors["invalid"].as_array().unwrap() {
        let verdict = validate(&catalog, nsid, &changed(base, case));
        let path = verdict.map_err(|fault| fault.path.join("."));
        assert_eq!(
            path,
            Err(case["path"].as_str().unwrap().to_owned()),
            "{}",
            case["name"]
        );
    }
}

#[test]
fn published_records_get_the_verdict_they_must() {
    let texts = published::texts_below("interop/lexicon/catalog");
    let catalog = Catalog::parse(texts.iter().map(|(_, text)| text.as_str())).unwrap();
    for case in published::cases("interop/lexicon/record-data-valid.json") {
        let nsid = case["data"]["$type"].as_str().unwrap();
        let verdict = validate(&catalog, nsid, &case["data"]);
        assert_eq!(verdict, Ok(()), "{}", case["name"]);
        let rkey = case["rkey"].as_str().unwrap();
        assert_eq!(catalog.validate_key(nsid, rkey), Ok(()));
    }
    for case in published::cases("interop/lexicon/record-data-invalid.json") {
        // Three cases also lack a required field, which would hide the fault
        // they are about.
        let mut data = case["data"].clone();
        if data.get("unknown").is_some() {
            data["integer"] = json!(1);
        }
        let text = data.to_string();
        let nsid = data["$type"].as_str().unwrap();
        let verdict = from_json(&text).map(|record| catalog.validate(nsid, &record));
        assert!(!matches!(verdict, Ok(Ok(()))), "{}", case["name"]);
    }
}
