//! Answers of strangers that do harm where they are used: a repository that swells, a webhook without end, words
//! that would tell a caller about our network.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post;
use feedmill::reach::fetch::Fetcher;
use feedmill::tend::{self, Alert};
use record::cbor;
use record::cid::Cid;
use record::commit::Commit;
use record::key::SigningKey;
use record::mst::Tree;
use record::tid::Tid;
use record::value::Value as Data;
use serde_json::{Value, json};
use sim::compose::POST;

use crate::bed::until;
use crate::strangers::{Count, Manner, Scene, did, endless, host, listen};

/// A repository in which one block of so many bytes has so many names.
fn swelling(did: &str, block_bytes: usize, names: usize) -> &'static [u8] {
    let text = |text: &str| Data::Text(text.to_owned().into());
    let record = Data::Map(
        [
            ("text", text("hello")),
            ("$type", text(POST)),
            ("filler", text(&"a".repeat(block_bytes))),
            ("createdAt", text("2026-01-01T00:00:00.000Z")),
        ]
        .map(|(name, value)| (name.into(), value))
        .into(),
    );
    let record = cbor::encode(&record);
    let cid = Cid::of_cbor(&record);
    let mut tree = Tree::new();
    for number in 0..names {
        tree.insert(&format!("{POST}/name{number}"), cid).unwrap();
    }
    let key = SigningKey::k256([7; 32]).unwrap();
    let rev = Tid::parse("3lzzzzzzzzz22").unwrap();
    let commit = Commit::sign(did, rev, tree.root(), &key).to_block();
    let root = Cid::of_cbor(&commit);
    let mut blocks = vec![(root, commit), (cid, record)];
    blocks.extend(tree.blocks());
    let blocks = blocks.iter().map(|(cid, bytes)| (*cid, bytes.as_slice()));
    record::car::write(&[root], blocks).leak()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_archive_that_swells_beyond_the_memory_for_repositories_is_not_applied() {
    let (swollen, large) = (did("swollen"), did("large"));
    // In memory one is 60 MB and the other 6 MB; both archives are less than 1 MB.
    let (swollen_url, asked) = host(Manner::Repo(swelling(&swollen, 60_000, 1000))).await;
    let (large_url, _) = host(Manner::Repo(swelling(&large, 60_000, 100))).await;
    let accounts = [
        (swollen.clone(), Some(swollen_url)),
        (large.clone(), Some(large_url)),
    ];
    let limits = "[intake]\nrepo_bytes_max = 1000000\nrepo_memory_bytes_max = 16000000\n";
    let scene = Scene::begin(&accounts, &[("[intake]\n", limits)]).await;
    scene.mark(&[&swollen]);
    until(|| asked.of("getRepo") >= 2).await;
    assert!(!scene.is_whole(&swollen));
    // What needs more than its share, and not more than all, is applied alone.
    scene.mark(&[&large, &scene.honest[0]]);
    until(|| scene.is_whole(&large) && scene.is_whole(&scene.honest[0])).await;
    assert!(!scene.is_whole(&swollen));
    scene.end().await;
}

#[tokio::test]
async fn a_webhook_that_takes_an_alert_and_answers_without_end_gets_it_once() {
    let (count, asked) = (Arc::new(Count::default()), Arc::new(AtomicUsize::new(0)));
    let (sent, posted) = (Arc::clone(&count), Arc::clone(&asked));
    let answer = move || {
        posted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(endless(&sent, "thanks", std::time::Duration::ZERO))
    };
    let url = listen(Router::new().route("/", post(answer))).await;
    let alert = Alert {
        alert: "dead_letters".into(),
        stage: None,
        collection: None,
        count: 3,
        threshold: 2,
        time: String::new(),
    };
    let fetcher = Fetcher::of_operator(&[&url]).unwrap();
    let at_once = |_| std::future::ready(());
    assert!(tend::post(&fetcher, &url, &alert, at_once).await);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_learn_neither_our_addresses_nor_where_names_lead() {
    let (refusing_url, _) = host(Manner::Refusing(100_000)).await;
    let (refusing, closed) = (did("refusing"), did("closed"));
    let accounts = [
        (refusing.clone(), Some(refusing_url)),
        (closed.clone(), Some("http://127.0.0.1:1".to_owned())),
    ];
    let open = ("bind = ", "notify = \"open\"\nbind = ");
    let scene = Scene::begin_with(&accounts, &[open], Some("http://127.0.0.1:1")).await;
    let address = scene.river.address.unwrap();
    let web = "did:web:somebody.example.com";
    let dids = [&refusing, &closed, web];
    let uris = dids.map(|did| format!("at://{did}/{POST}/1"));
    let url = format!("http://{address}/xrpc/com.example.notifyOfUpdate");
    let asked = reqwest::Client::new()
        .post(url)
        .json(&json!({"uris": uris}));
    let answer = asked.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 3, "{answer}");
    for error in errors {
        let error = error.as_str().unwrap();
        assert!(error.len() < 300, "{} letters", error.len());
        for inner in ["127.0.0.1", "os error", "private", ":1/"] {
            assert!(!error.contains(inner), "{error}");
        }
    }
    scene.end().await;
}
