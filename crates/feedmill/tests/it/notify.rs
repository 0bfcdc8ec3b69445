//! `notifyOfUpdate`: records fetched from their own hosts the moment somebody
//! says that they changed, without harm to what the stream will tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::config::serve::Notify;
use feedmill::river::{River, Role, Start};
use feedmill::store::{self, Batch, Commit, Item, Op, Verdict, batch::Chain};
use serde_json::{Value, json};
use sim::compose::POST;
use sim::network::{Network, NetworkOptions};

use crate::bed;
use crate::strangers::{Scene, did, listen};

async fn serve(config: &Config) -> River {
    let start = Start {
        role: Role::Serve,
        clock: Clock::Wall,
        lexicons: sim::lexicons::ALL,
    };
    River::start(config, start).await.expect("a river")
}

fn config(network: &Network, store: &str) -> Config {
    let mut config = bed::config(network, store, &[]);
    config.serve.notify = Notify::Open;
    config
}

async fn notify(river: &River, body: Value) -> (u16, Value) {
    let address = river.address.unwrap();
    let url = format!("http://{address}/xrpc/com.example.notifyOfUpdate");
    let answer = reqwest::Client::new()
        .post(url)
        .json(&body)
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Posts that hosts give out, by account.
fn posts(network: &Network) -> Vec<String> {
    network.world(|world| {
        let active = world
            .accounts()
            .iter()
            .filter(|account| account.standing == sim::model::Standing::Active);
        let all = active.flat_map(|account| {
            let records = account.repo.collection(POST);
            records.map(|(path, _)| format!("at://{}/{path}", account.did))
        });
        all.collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_written_record_is_shown_at_once_and_a_deleted_one_goes() {
    let network = bed::network(21, NetworkOptions::default()).await;
    network.emit(300);
    let uris = posts(&network);
    let uri = uris.first().unwrap().clone();
    let gone = format!("{uri}x");
    let river = serve(&config(&network, "sqlite::memory:")).await;
    assert!(river.store.record(&uri).unwrap().is_none());
    let foreign = uri.replace(POST, "com.example.unknown");
    let body = json!({"uris": [uri, gone, foreign, "nonsense", "at://did:plc:nobody/app.bsky.feed.post/1"]});
    let body: Value =
        serde_json::from_str(&body.to_string().replace("app.bsky.feed.post", POST)).unwrap();
    let (status, answer) = notify(&river, body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        (&answer["indexed"], &answer["deleted"]),
        (&json!(1), &json!(1)),
        "{answer}"
    );
    let errors: Vec<&str> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(errors.len(), 3, "{answer}");
    assert!(
        errors
            .iter()
            .any(|error| error.contains("could not resolve PDS")),
        "{answer}"
    );
    assert!(
        errors.contains(&"collection not tracked: com.example.unknown"),
        "{answer}"
    );
    assert!(errors.contains(&"invalid AT URI: nonsense"), "{answer}");
    let row = river.store.record(&uri).unwrap().expect("it is here");
    assert!(row.cid.is_some());
    // Said again, it is the same.
    let (_, answer) = notify(&river, json!({ "uri": uri })).await;
    assert_eq!(answer, json!({"indexed": 1, "deleted": 0}));
    let accounting = river.store.accounting(Some("notify")).unwrap();
    assert_eq!(
        (accounting.applied, accounting.repeated),
        (2, 1),
        "{accounting:?}"
    );

    for body in [
        json!({}),
        json!({"uris": []}),
        json!({"uris": vec!["at://a"; 26]}),
        json!([]),
    ] {
        let distinct = match &body["uris"] {
            Value::Array(uris) if uris.len() > 25 => {
                json!({"uris": (0..26).map(|n| format!("at://{n}")).collect::<Vec<_>>()})
            }
            _ => body,
        };
        let (status, answer) = notify(&river, distinct).await;
        assert_eq!((status, &answer["error"]), (400, &json!("InvalidRequest")));
    }
    river.stop().await;
    network.stop().await;
}

/// Everything is notified first, then the whole stream is read: the feeds must equal the model.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_notified_does_not_disturb_what_the_stream_tells() {
    let since_us = Clock::Wall.now_us();
    let network = bed::network(22, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let config = config(&network, &store);
    let river = serve(&config).await;
    network.emit(400);
    let mut indexed = 0;
    for some in posts(&network).chunks(25) {
        let (status, answer) = notify(&river, json!({ "uris": some })).await;
        assert_eq!(status, 200, "{answer}");
        indexed += answer["indexed"].as_i64().unwrap();
    }
    assert!(indexed > 20, "only {indexed}");
    river.stop().await;
    network.emit(200);
    network.settle();
    let river = bed::start(&config).await;
    let seq = network.last_seq() as i64;
    bed::until(|| river.settled("sim", seq).unwrap()).await;
    bed::equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}

/// A notification must not move an account's chain: a commit that was lost before it would not be missed.
#[test]
fn a_gap_in_the_stream_is_noticed_after_a_notification() {
    let config = Config::parse(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"app.bsky.feed.post\"\nvalidate = false\n[store]\nurl = \"sqlite::memory:\"\n",
    )
    .unwrap();
    let store = store::open(&config).unwrap();
    let op = |rkey: &str| Op {
        collection: "app.bsky.feed.post".into(),
        rkey: rkey.into(),
        verdict: Verdict::Delete,
    };
    let commit = |rev: u64, since: Option<u64>| {
        Item::Commit(Commit {
            did: "did:plc:a".into(),
            rev,
            chain: Some(Chain {
                since,
                prev_data: None,
                data: None,
            }),
            filtered: 0,
            ops: vec![op(&rev.to_string())],
            frame: vec![1].into(),
            seq: 0,
            was_held: false,
            live: true,
        })
    };
    let apply = |item| {
        let batch = Batch {
            source: "s".into(),
            cursor: None,
            now_us: 1,
            items: vec![item],
        };
        store.commit(batch).unwrap()
    };
    apply(commit(10, None));
    apply(Item::Fetched {
        did: "did:plc:a".into(),
        rev: 30,
        ops: vec![op("x")],
    });
    assert_eq!(store.account("did:plc:a").unwrap().unwrap().rev, 10);
    // The commit of revision 20 was lost on the way.
    assert_eq!(apply(commit(30, Some(20))).broken, ["did:plc:a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_shows_the_token_may_notify_where_one_is_asked_for() {
    let config = "namespace = \"com.example\"\n[serve]\nnotify = \"token\"\n";
    let app = tokio::task::spawn_blocking(move || {
        crate::app::App::start_in(config, &[], &[("FEEDMILL_NOTIFY_TOKEN", "hush")])
    })
    .await
    .unwrap();
    let url = format!("{}/xrpc/com.example.notifyOfUpdate", app.address());
    let ask = async |token: Option<&str>| {
        let mut request = reqwest::Client::new().post(&url).json(&json!({"uri": "x"}));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(ask(None).await, 401);
    assert_eq!(ask(Some("hus")).await, 401);
    assert_eq!(ask(Some("hush")).await, 200);
    let get = reqwest::get(&url).await.unwrap();
    assert_eq!(get.status(), 400, "a procedure is not asked with GET");
    tokio::task::spawn_blocking(move || drop(app))
        .await
        .unwrap();
}

/// A host that counts who waits for its answer, which none of them gets.
async fn silent(waiting: Arc<AtomicUsize>, most: Arc<AtomicUsize>) -> String {
    struct Waits(Arc<AtomicUsize>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let answer = move || {
        let now = waiting.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        let waits = Waits(Arc::clone(&waiting));
        async move {
            std::future::pending::<()>().await;
            drop(waits);
        }
    };
    listen(Router::new().route("/xrpc/{method}", get(answer))).await
}

/// A host whose records are larger than any may be.
async fn large() -> String {
    let rev = || async { r#"{"cid": "x", "rev": "3k2yihcrp6f2c"}"# };
    let record = || async { format!(r#"{{"value": {{"text": "{}"}}}}"#, "x".repeat(3_000_000)) };
    let router = Router::new().route("/xrpc/com.atproto.sync.getLatestCommit", get(rev));
    listen(router.route("/xrpc/com.atproto.repo.getRecord", get(record))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn notified_records_are_fetched_few_at_once_and_none_that_is_too_large() {
    const HOSTS: usize = 12;
    let (waiting, most) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let mut accounts = vec![(did("large"), Some(large().await))];
    for number in 0..HOSTS {
        let host = silent(Arc::clone(&waiting), Arc::clone(&most)).await;
        let letter = char::from(b'b' + number as u8);
        accounts.push((did(&letter.to_string()), Some(host)));
    }
    let open = ("bind = ", "notify = \"open\"\nbind = ");
    let hosts = ("[intake]\n", "[intake]\nhost_max = 8\n");
    let scene = Scene::begin(&accounts, &[open, hosts]).await;
    let ask = async |(did, _): &(String, Option<String>)| {
        let uris: Vec<String> = (0..5).map(|n| format!("at://{did}/{POST}/{n}")).collect();
        notify(&scene.river, json!({ "uris": uris })).await
    };
    let (status, answer) = ask(&accounts[0]).await;
    assert_eq!(status, 200);
    let errors = answer["errors"].as_array().unwrap();
    let is_large = |error: &&Value| error.as_str().unwrap().ends_with("answer is too large");
    assert_eq!(errors.iter().filter(is_large).count(), 5, "{answer}");
    let asked = futures_util::future::join_all(accounts[1..].iter().map(ask)).await;
    assert!(asked.iter().all(|(status, _)| *status == 200), "{asked:?}");
    let most = most.load(Ordering::SeqCst);
    // 32, and some that a host still waits for although they are given up; 60 were asked for.
    assert!((20..=40).contains(&most), "{most} fetches at once");
    scene.end().await;
}
