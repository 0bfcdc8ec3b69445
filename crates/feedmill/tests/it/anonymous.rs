//! Callers who show nothing: bad tokens, handles that nobody answers for, readers that do not exist. They write
//! nothing, hold nothing, and make us ask others no more than a small budget allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedmill::identity::Resolver;
use futures_util::StreamExt as _;
use record::key::SigningKey;
use serde_json::Value;

use crate::bearer::token;
use crate::strangers::{Scene, did, listen};

/// DIDs that nobody registered, or that a directory is told of.
fn invented(prefix: &str, count: usize) -> Vec<String> {
    let letters = |mut number: usize| -> String {
        let mut text = String::new();
        for _ in 0..4 {
            text.push(char::from(b'a' + (number % 26) as u8));
            number /= 26;
        }
        text
    };
    let name = |number| did(&format!("{prefix}{}", letters(number)));
    (0..count).map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_tokens_ask_for_a_document_at_most_twice_a_minute_and_fill_no_memory() {
    const METHOD: &str = "app.bsky.feed.getFeedSkeleton";
    const FEED: &str = "at://did:plc:operator/app.bsky.feed.generator/timeline";
    let issuers = invented("iss", 40);
    let known = issuers.iter();
    let known = known.map(|did| (did.clone(), Some("https://pds.example".to_owned())));
    let known: Vec<(String, Option<String>)> = known.collect();
    let feed = format!("[feeds.timeline]\npublish_as = \"{FEED}\"\n");
    let scene = Scene::begin(
        &known,
        &[
            ("[feeds.timeline]\n", &feed),
            ("bind = ", "public_url = \"https://feeds.example\"\nbind = "),
        ],
    )
    .await;
    let address = scene.river.address.unwrap();
    let url = format!("http://{address}/xrpc/{METHOD}?feed={FEED}");
    let client = reqwest::Client::new();
    let wrong = SigningKey::k256([9; 32]).unwrap();
    let requests = (0..10).flat_map(|_| &issuers).map(|issuer| {
        let token = token(&wrong, METHOD, |claims| {
            claims["iss"] = issuer.clone().into()
        });
        client.get(&url).bearer_auth(token).send()
    });
    let mut refused = 0;
    let mut answers = futures_util::stream::iter(requests).buffer_unordered(8);
    while let Some(answer) = answers.next().await {
        let status = answer.unwrap().status().as_u16();
        assert!(matches!(status, 401 | 503), "{status}");
        refused += usize::from(status == 401);
    }
    assert!(refused > 0, "nobody's signature was looked at");
    for issuer in &issuers {
        let asked = scene.directory.of(issuer);
        assert!(asked <= 2, "{issuer}: {asked}");
    }
    // An honest token of one of them is good all the same.
    let right = SigningKey::k256([7; 32]).unwrap();
    let issuer = issuers[0].clone();
    crate::bed::until_async(async || {
        let token = token(&right, METHOD, |claims| {
            claims["iss"] = issuer.clone().into()
        });
        let answer = client.get(&url).bearer_auth(token).send().await.unwrap();
        answer.status() == 200
    })
    .await;
    // Each document is 60 kB, and what is kept of it is not.
    let mut config = crate::reach::config_of(&scene.plc);
    config.intake.host_rate_max = 100_000;
    let resolver = Resolver::new(&config).unwrap();
    for issuer in &issuers {
        resolver.key(issuer).await.unwrap();
    }
    let bytes = resolver.cached_bytes();
    assert!(bytes < 1000 * issuers.len() as u64, "{bytes}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_hosts_that_never_answer_keep_no_token_of_the_directory_waiting() {
    const METHOD: &str = "app.bsky.feed.getFeedSkeleton";
    const FEED: &str = "at://did:plc:operator/app.bsky.feed.generator/timeline";
    const SLOW: usize = 40;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let silent = listen(axum::Router::new().fallback(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>()
    }))
    .await;
    let issuer = did("honest");
    let known = [(issuer.clone(), Some("https://pds.example".to_owned()))];
    let feed = format!("[feeds.timeline]\npublish_as = \"{FEED}\"\n");
    let changes = [
        ("[feeds.timeline]\n", feed.as_str()),
        ("bind = ", "public_url = \"https://feeds.example\"\nbind = "),
    ];
    let scene = Scene::begin_with(&known, &changes, Some(&silent)).await;
    let address = scene.river.address.unwrap();
    let url = format!("http://{address}/xrpc/{METHOD}?feed={FEED}");
    let key = SigningKey::k256([7; 32]).unwrap();
    let client = reqwest::Client::new();
    let ask = |issuer: String| {
        let token = token(&key, METHOD, |claims| claims["iss"] = issuer.clone().into());
        client.get(&url).bearer_auth(token).send()
    };
    let answered = Arc::new(AtomicUsize::new(0));
    let mut slow = tokio::task::JoinSet::new();
    for number in 0..SLOW {
        let (request, answered) = (
            ask(format!("did:web:slow{number}.example.com")),
            Arc::clone(&answered),
        );
        slow.spawn(async move {
            let status = request.await.unwrap().status().as_u16();
            answered.fetch_add(1, Ordering::SeqCst);
            status
        });
    }
    crate::bed::until(|| asked.load(Ordering::SeqCst) >= 16).await;
    assert_eq!(ask(issuer).await.unwrap().status(), 200);
    let waiting = SLOW - answered.load(Ordering::SeqCst);
    assert!(
        waiting > 16,
        "more wait than are asked for at once: {waiting}"
    );
    slow.shutdown().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_that_nobody_answers_for_keep_no_honest_reader_waiting() {
    const SLOW: usize = 260;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    // It takes every request, and answers none.
    let silent = listen(axum::Router::new().fallback(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>()
    }))
    .await;
    let identity = "[identity]\nhandles_max = 8\n[serve]\n";
    let changes = [
        ("[serve]\n", identity),
        ("bind = ", "requests_max = 200\nbind = "),
    ];
    let scene = Scene::begin_with(&[], &changes, Some(&silent)).await;
    let address = scene.river.address.unwrap();
    let feed = |actor: &str| {
        format!("http://{address}/xrpc/com.example.getFeed?feed=timeline&actor={actor}")
    };
    let reader = scene
        .honest
        .iter()
        .find(|did| did.starts_with("did:plc:"))
        .unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let mut slow = tokio::task::JoinSet::new();
    let client = reqwest::Client::new();
    for number in 0..SLOW {
        let request = client.get(feed(&format!("slow{number}.example.com")));
        let answered = Arc::clone(&answered);
        slow.spawn(async move {
            let status = request.send().await.unwrap().status().as_u16();
            answered.fetch_add(1, Ordering::SeqCst);
            status
        });
    }
    // Those that were not let in are told so at once; the others wait for their servers.
    crate::bed::until(|| asked.load(Ordering::SeqCst) >= 8).await;
    let mut honest = 0;
    while answered.load(Ordering::SeqCst) < SLOW {
        for url in [feed(reader), format!("http://{address}/health")] {
            let status = client.get(&url).send().await.unwrap().status();
            assert_eq!(status, 200, "{url}");
            honest += 1;
        }
    }
    assert!(honest > 2);
    let statuses = slow.join_all().await;
    let of = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!(of(503) + of(400), SLOW, "{statuses:?}");
    assert!(of(503) >= SLOW - 3 * 8 - 16, "{statuses:?}");
    scene.end().await;
}

/// Rows that a reader may leave.
fn rows(scene: &Scene) -> Vec<i64> {
    let file = rusqlite::Connection::open(scene.folder.path().join("s.db")).unwrap();
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        file.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    ["key", "account", "first_read", "fetching"]
        .map(count)
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_reads_of_invented_dids_write_nothing_and_ask_little() {
    const BUDGET: usize = 30;
    let settings =
        "rate_max = 0\nproxy_header = \"x-forwarded-for\"\nfirst_read_ms = 20000\nbind = ";
    let scene = Scene::begin(&[], &[("bind = ", settings)]).await;
    let address = scene.river.address.unwrap();
    let client = reqwest::Client::new();
    let ask = |method: &str, did: &str| {
        let did = did.replace('%', "%25");
        let url = format!("http://{address}/xrpc/com.example.{method}?feed=timeline&actor={did}");
        client.get(url)
    };
    let from_elsewhere =
        |method: &str, did: &str| ask(method, did).header("x-forwarded-for", "9.9.9.9");
    let word = async |request: reqwest::RequestBuilder| {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let page: Value = answer.json().await.unwrap();
        page.get("backfill")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    // Who is here is read by anybody, and who exists is fetched within the budget.
    let (here, exists) = (scene.honest[0].clone(), scene.honest[1].clone());
    scene.mark(&[&here]);
    crate::bed::until(|| scene.is_whole(&here)).await;
    assert_eq!(word(from_elsewhere("getFeed", &here)).await, None);
    assert_eq!(word(from_elsewhere("getFeed", &exists)).await, None);
    crate::bed::until(|| scene.river.store.fetches_begun().unwrap().is_empty()).await;
    let (before, asked) = (rows(&scene), scene.directory.all());
    let readers = invented("nobody", 3000);
    let words = readers
        .iter()
        .map(|did| word(from_elsewhere("getFeed", did)));
    let words: Vec<Option<String>> = futures_util::stream::iter(words)
        .buffer_unordered(16)
        .collect()
        .await;
    let of = |wanted: &str| {
        words
            .iter()
            .filter(|word| word.as_deref() == Some(wanted))
            .count()
    };
    assert_eq!(of("failed") + of("later"), 3000);
    assert!(of("failed") < 2 * BUDGET);
    // Who listens as one of them hears nothing, and leaves nothing.
    let listening =
        from_elsewhere("subscribeFeed", &readers[0]).header("accept", "text/event-stream");
    assert_eq!(listening.send().await.unwrap().status(), 200);
    assert_eq!(rows(&scene), before);
    let asked = scene.directory.all() - asked;
    // A minute may have ended meanwhile.
    assert!(asked < 2 * BUDGET, "{asked}");
    // From this machine the same is asked for, and given up.
    assert_eq!(
        word(ask("getFeed", &readers[1])).await.as_deref(),
        Some("failed")
    );
    let after = rows(&scene);
    assert_eq!(after[..2], before[..2], "no key and no account");
    scene.end().await;
}
