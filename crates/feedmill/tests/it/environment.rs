//! The environment: names that people already use override the file and are
//! shown by `--help`.

use std::process::Command;

use serde_json::json;

use crate::app::App;

const NAMES: [&str; 8] = [
    "PORT",
    "INTAKE_BIND",
    "DATABASE_URL",
    "REDIS_URL",
    "JETSTREAM_URL",
    "RELAY_URL",
    "PLC_URL",
    "PUBLIC_URL",
];

#[test]
fn the_names_are_shown_by_help() {
    for verb in ["run", "serve", "ingest"] {
        let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .args([verb, "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        for name in NAMES {
            assert!(
                help.contains(&format!("[env: {name}=")),
                "{verb} --help lacks {name}"
            );
        }
        for name in [
            "FEEDMILL_APP_TOKEN",
            "FEEDMILL_ADMIN_TOKEN",
            "FEEDMILL_NOTIFY_TOKEN",
        ] {
            assert!(help.contains(name), "{verb} --help lacks {name}");
        }
    }
}

#[test]
fn they_override_the_file() {
    let file = "namespace = \"com.example\"\n[serve]\npublic_url = \"https://file.example\"\n\
        [[source]]\nfirehose = \"ws://127.0.0.1:1\"\n";
    let app = App::start_in(
        file,
        &[],
        &[
            ("PUBLIC_URL", "https://environment.example"),
            ("RELAY_URL", "ws://127.0.0.1:9,ws://127.0.0.1:10"),
            ("JETSTREAM_URL", "ws://127.0.0.1:11/subscribe"),
            ("PLC_URL", "http://127.0.0.1:12"),
        ],
    );
    let (_, document) = app.get("/.well-known/did.json");
    assert_eq!(document["id"], "did:web:environment.example");
    let (_, status) = app.get("/status");
    let streams: Vec<_> = status["ingestion"]["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| stream["name"].clone())
        .collect();
    assert_eq!(
        streams,
        [
            json!("ws://127.0.0.1:9"),
            json!("ws://127.0.0.1:11/subscribe")
        ]
    );
}

#[test]
fn what_they_say_must_make_sense() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    std::fs::write(
        &file,
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n",
    )
    .unwrap();
    for (name, value, expected) in [
        ("REDIS_URL", "redis://127.0.0.1", "--features redis"),
        ("DATABASE_URL", "postgres://a", "postgres"),
        ("PLC_URL", "nonsense", "not an http or https address"),
        ("RELAY_URL", "http://relay", "not a WebSocket address"),
        ("JETSTREAM_URL", "nonsense", "not a WebSocket address"),
        (
            "PUBLIC_URL",
            "feeds.example",
            "not an http or https address",
        ),
        ("PORT", "70000", "70000"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .arg("run")
            .arg(&file)
            .env(name, value)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{name}={value} was taken");
        assert!(said.contains(expected), "{name}: {said}");
    }
}
