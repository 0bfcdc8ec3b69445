//! `feedmill lexicons pull` and `check --network`: lexicons by DNS, an account
//! and its host.

use std::process::Command;

use axum::extract::Query;
use axum::response::IntoResponse as _;
use axum::routing::get;
use serde_json::{Value, json};

use crate::names::{self, Held};

fn lexicon(about: &str) -> Value {
    json!({
        "lexicon": 1,
        "id": "com.example.thing.note",
        "defs": {"main": {"type": "record", "description": about, "key": "tid", "record": {
            "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}},
        }}},
    })
}

/// A directory and a host in one, on which the authority's account lives.
fn authority() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let document = json!({
        "id": "did:plc:authority",
        "service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": url}],
    });
    let record = async |Query(asked): Query<Vec<(String, String)>>| {
        let asked = |name: &str| {
            asked
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        };
        let there = asked("repo").as_deref() == Some("did:plc:authority")
            && asked("collection").as_deref() == Some("com.atproto.lexicon.schema")
            && asked("rkey").as_deref() == Some("com.example.thing.note");
        if !there {
            let body = json!({"error": "RecordNotFound", "message": "no"}).to_string();
            return (axum::http::StatusCode::BAD_REQUEST, body).into_response();
        }
        let mut value = lexicon("a note");
        value["$type"] = json!("com.atproto.lexicon.schema");
        json!({"uri": "at://x", "cid": "x", "value": value})
            .to_string()
            .into_response()
    };
    let router = axum::Router::new()
        .route(
            "/did:plc:authority",
            get(async move || document.to_string()),
        )
        .route("/xrpc/com.atproto.repo.getRecord", get(record));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    url
}

#[test]
fn lexicons_are_pulled_by_name_and_drift_from_the_network_is_found() {
    let dns = names::serve(&[(
        "_lexicon.thing.example.com",
        Held::Text("did=did:plc:authority"),
    )]);
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "namespace = \"com.example\"\nlexicons = [\"pulled\"]\n[collections.note]\ncollection = \"com.example.thing.note\"\n\
         [intake]\nplc_url = \"{}\"\n[identity]\ndns_server = \"{dns}\"\n",
        authority()
    );
    std::fs::write(folder.path().join("c.toml"), config).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let pull = |nsid: &str| {
        run(&[
            "lexicons", "pull", nsid, "--config", "c.toml", "--out", "pulled",
        ])
    };
    let (good, said) = pull("com.example.thing.note");
    assert!(good, "{said}");
    let file = folder.path().join("pulled/com/example/thing/note.json");
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written, lexicon("a note"));
    for (nsid, expected) in [
        ("com.example.thing.other", "holds no such schema"),
        ("com.example.elsewhere.note", "names no account"),
        ("nonsense", "not an NSID"),
    ] {
        let (good, said) = pull(nsid);
        assert!(!good && said.contains(expected), "{nsid}: {said}");
    }
    // What was pulled is what records are checked against, and what is published.
    assert!(run(&["check-config", "c.toml"]).0);
    assert!(run(&["lexicons", "generate", "c.toml", "--out", "ours"]).0);
    let check = || run(&["lexicons", "check", "c.toml", "--out", "ours", "--network"]);
    let (good, said) = check();
    assert!(good, "{said}");
    std::fs::write(&file, lexicon("another").to_string()).unwrap();
    let (good, said) = check();
    assert!(
        !good && said.contains("com.example.thing.note differs from what is published"),
        "{said}"
    );
}
