//! The manifest at `/.well-known/contrail`: what it says is so, and it keeps the
//! rules by which Contrail's client accepts one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::app::App;
use crate::methods::{CONFIG, records, world};

#[test]
fn the_manifest_names_the_digest_of_the_lexicons_it_leads_to() {
    let app = world();
    let (_, manifest) = app.get("/.well-known/contrail");
    assert_eq!(manifest["format"], "contrail.service");
    assert_eq!(manifest["version"], 2);
    assert_eq!(manifest["endpoint"], "https://feeds.example");
    assert_eq!(manifest["serviceAuth"], Value::Null);
    assert!(
        manifest["methods"]
            .as_array()
            .unwrap()
            .contains(&json!("com.example.getFeed"))
    );
    let digest = manifest["lexicons"]["digest"].as_str().unwrap();
    let url = manifest["lexicons"]["url"].as_str().unwrap();
    let path = url.strip_prefix("https://feeds.example").unwrap();
    let text = app.wait(async {
        let answer = reqwest::get(format!("{}{path}", app.address()))
            .await
            .unwrap();
        assert_eq!(answer.headers()["etag"], format!("\"{digest}\""));
        answer.text().await.unwrap()
    });
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(text.as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, format!("sha256:{hash}"));
    assert_eq!(app.get("/lexicons/sha256:0").0, 404);
    let plain = App::start("namespace = \"com.example\"\n");
    assert_eq!(plain.get("/.well-known/contrail").0, 404);
    assert_eq!(plain.get("/.well-known/did.json").0, 404);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(text).collect()
}

fn is_nsid(name: &str) -> bool {
    record::ids::Nsid::parse(name).is_ok()
}

/// The rules by which Contrail's `connect` accepts or refuses a manifest, in its order.
fn acceptable(app: &App) {
    let (_, manifest) = app.get("/.well-known/contrail");
    assert_eq!(manifest["format"], "contrail.service");
    assert_eq!(manifest["version"], 2);
    assert!(manifest.get("contract").is_none());
    assert!(is_nsid(&format!("{}.x", text(&manifest["namespace"]))));
    let open = texts(&manifest["methods"]);
    assert!(open.iter().all(|name| is_nsid(name)), "{open:?}");
    collections(&manifest, &open);
    let endpoint = text(&manifest["endpoint"]);
    let host = endpoint.strip_prefix("https://").unwrap();
    assert!(!host.contains(['/', '?', '#', '@']), "{endpoint}");
    for key in ["lexicons", "status"] {
        let url = text(&manifest[key]["url"]);
        assert!(url.starts_with(&format!("{endpoint}/")), "{url}");
    }
    let digest = text(&manifest["lexicons"]["digest"]);
    let hex = digest.strip_prefix("sha256:").unwrap();
    assert!(hex.len() == 64 && hex.bytes().all(|b| b"0123456789abcdef".contains(&b)));
    let (_, bundle) = app.get(&format!("/lexicons/{digest}"));
    for nsid in &open {
        assert_eq!(kind(&bundle, nsid), "query", "{nsid}");
    }
    if !manifest["serviceAuth"].is_null() {
        service_auth(&manifest["serviceAuth"], &bundle, &open);
    }
}

fn collections(manifest: &Value, open: &[String]) {
    for collection in manifest["collections"].as_array().unwrap() {
        assert!(!text(&collection["alias"]).is_empty());
        for key in ["queryable", "searchable", "relations", "references"] {
            texts(&collection[key]);
        }
        let methods = texts(&collection["methods"]);
        assert!(methods.iter().all(|name| is_nsid(name)), "{methods:?}");
        let unique: BTreeSet<&String> = methods.iter().collect();
        assert_eq!(unique.len(), methods.len(), "{methods:?}");
        let is_open = |method: &String| open.contains(method);
        assert!(methods.iter().all(is_open), "{methods:?}");
    }
}

/// What the lexicon of a method says it is.
fn kind(bundle: &Value, nsid: &str) -> String {
    let lexicons = bundle["lexicons"].as_array().unwrap();
    let lexicon = lexicons.iter().find(|lexicon| lexicon["id"] == nsid);
    text(&lexicon.unwrap()["defs"]["main"]["type"])
}

fn service_auth(auth: &Value, bundle: &Value, open: &[String]) {
    assert_eq!(auth["type"], "atproto-service-auth");
    let methods = auth["methods"].as_array().unwrap().iter();
    let methods = methods.map(|method| (text(&method["id"]), text(&method["type"])));
    let methods: Vec<(String, String)> = methods.collect();
    assert!(methods.is_sorted() && !methods.is_empty());
    for (nsid, named) in &methods {
        assert_eq!(kind(bundle, nsid), *named, "{nsid}");
        assert!(!open.contains(nsid), "{nsid} is anonymous and protected");
    }
    let audience = text(&auth["audience"]);
    let did = audience.split('#').next().unwrap();
    assert_eq!(text(&auth["serviceDid"]), did);
    let lxm: String = methods.iter().map(|(id, _)| format!("&lxm={id}")).collect();
    let scope = format!("rpc?aud={}{lxm}", audience.replace('#', "%23"));
    assert_eq!(text(&auth["scope"]), scope);
}

#[test]
fn the_manifest_keeps_the_rules_by_which_clients_accept_it() {
    acceptable(&world());
    let private = "notify = \"open\"\nprivate = [\"getFeed\", \"subscribeFeed\", \"notifyOfUpdate\", \"post.listRecords\"]\n";
    let text = CONFIG.replace("notify = \"open\"\n", private);
    acceptable(&App::start_on(&text, &records()));
}
