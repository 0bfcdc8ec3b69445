//! Hosts that mean harm: endless answers, answers of one byte a second, pauses of no length, documents without
//! end. Each costs its own accounts a pause, and everybody else nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use feedmill::river::River;
use feedmill::store::batch::{Batch, Item};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use record::key::SigningKey;
use serde_json::{Value, json};
use sim::network::{Network, NetworkOptions};

use crate::bed::{self, until};

/// How a host answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Manner {
    /// Its repository is refused, and its status is a string without end.
    EndlessStatus,
    /// Its repository is `a` for ever.
    EndlessRepo,
    /// Its repository is this many bytes of nothing.
    Garbage(usize),
    /// One byte a second.
    Trickle,
    /// Its repository is this.
    Repo(&'static [u8]),
    /// Everything is refused, with a word of this many letters.
    Refusing(usize),
    /// 429, and when to come again.
    Later(&'static str, &'static str),
}

#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Requests by path.
    asked: Mutex<BTreeMap<String, usize>>,
    /// Bytes that were taken from us.
    sent: AtomicUsize,
}

impl Count {
    pub(crate) fn of(&self, path: &str) -> usize {
        self.asked.lock().get(path).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> usize {
        self.asked.lock().values().sum()
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    fn count(&self, path: &str) {
        *self.asked.lock().entry(path.to_owned()).or_default() += 1;
    }
}

/// A body without end, counted as it is taken.
pub(crate) fn endless(count: &Arc<Count>, first: &'static str, pause: Duration) -> Body {
    let chunk = match pause.is_zero() {
        true => Bytes::from(vec![b'a'; 16 << 10]),
        false => Bytes::from_static(b"a"),
    };
    let count = Arc::clone(count);
    let begin = futures_util::stream::once(async move { Bytes::from_static(first.as_bytes()) });
    let rest = futures_util::stream::repeat(chunk).then(move |chunk| {
        let count = Arc::clone(&count);
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            count.sent.fetch_add(chunk.len(), Ordering::SeqCst);
            chunk
        }
    });
    Body::from_stream(begin.chain(rest).map(Ok::<_, std::convert::Infallible>))
}

pub(crate) async fn listen(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// A host of accounts; where, and what it was asked.
pub(crate) async fn host(manner: Manner) -> (String, Arc<Count>) {
    let count = Arc::new(Count::default());
    let answer = move |State(count): State<Arc<Count>>, Path(method): Path<String>| async move {
        let name = method.rsplit('.').next().unwrap_or_default().to_owned();
        count.count(&name);
        reply(manner, &name, &count)
    };
    let router = Router::new().route("/xrpc/{method}", get(answer));
    let url = listen(router.with_state(Arc::clone(&count))).await;
    (url, count)
}

fn reply(manner: Manner, method: &str, count: &Arc<Count>) -> Response {
    let (instantly, second) = (Duration::ZERO, Duration::from_secs(1));
    match (manner, method) {
        (Manner::EndlessStatus, "getRepo") => StatusCode::BAD_REQUEST.into_response(),
        (Manner::EndlessStatus, _) => {
            endless(count, "{\"active\":true,\"status\":\"", instantly).into_response()
        }
        (Manner::EndlessRepo, _) => endless(count, "", instantly).into_response(),
        (Manner::Garbage(bytes), _) => {
            count.sent.fetch_add(bytes, Ordering::SeqCst);
            vec![0x0a; bytes].into_response()
        }
        (Manner::Repo(bytes), _) => bytes.into_response(),
        (Manner::Refusing(letters), _) => {
            let word = json!({"error": "x".repeat(letters)});
            (StatusCode::BAD_REQUEST, word.to_string()).into_response()
        }
        (Manner::Trickle, _) => endless(count, "", second).into_response(),
        (Manner::Later(name, value), _) => {
            let left = ("ratelimit-remaining", "0");
            (StatusCode::TOO_MANY_REQUESTS, [(name, value), left]).into_response()
        }
    }
}

/// A plc directory of these accounts and their hosts; an account without one has a document without end.
async fn directory(accounts: &[(String, Option<String>)]) -> (String, Arc<Count>) {
    let count = Arc::new(Count::default());
    let accounts: BTreeMap<String, Option<String>> = accounts.iter().cloned().collect();
    let answer = move |State(count): State<Arc<Count>>, Path(did): Path<String>| {
        let host = accounts.get(&did).cloned();
        async move {
            count.count(&did);
            match host {
                None => StatusCode::NOT_FOUND.into_response(),
                Some(None) => endless(&count, "{\"id\":\"", Duration::ZERO).into_response(),
                Some(Some(host)) => {
                    let pds = json!({"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": host});
                    let key = SigningKey::k256([7; 32]).unwrap().public().to_multikey();
                    let method =
                        json!({"id": "#atproto", "type": "Multikey", "publicKeyMultibase": key});
                    // As long as a document may be, nearly.
                    let names = [format!("at://{}", "x".repeat(60_000))];
                    json!({"id": did, "alsoKnownAs": names, "service": [pds], "verificationMethod": [method]})
                        .to_string()
                        .into_response()
                }
            }
        }
    };
    let router = Router::new().route("/{did}", get(answer));
    let url = listen(router.with_state(Arc::clone(&count))).await;
    (url, count)
}

pub(crate) fn did(name: &str) -> String {
    format!("did:plc:{name:a<24}")
}

/// A network that no longer streams anything, and a directory of its accounts and of hostile ones.
pub(crate) struct Scene {
    network: Network,
    pub(crate) river: River,
    pub(crate) honest: Vec<String>,
    pub(crate) directory: Arc<Count>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) plc: String,
    changes: Vec<(String, String)>,
}

impl Scene {
    pub(crate) async fn begin(
        accounts: &[(String, Option<String>)],
        changes: &[(&str, &str)],
    ) -> Self {
        Self::begin_with(accounts, changes, None).await
    }

    /// The same, with another server for did:web documents and handles.
    pub(crate) async fn begin_with(
        accounts: &[(String, Option<String>)],
        changes: &[(&str, &str)],
        web: Option<&str>,
    ) -> Self {
        let options = NetworkOptions {
            cursor_notices: false,
            ..NetworkOptions::default()
        };
        let network = bed::network(77, options).await;
        network.emit(200);
        network.settle();
        network.trim_backlog(0);
        let honest: Vec<String> = network.world(|world| {
            let accounts = world.accounts().iter();
            let active = accounts.filter(|account| !account.standing.hides());
            active.map(|account| account.did.to_string()).collect()
        });
        let mut accounts = accounts.to_vec();
        let at_home = |did: &String| (did.clone(), Some(network.pds_url.clone()));
        accounts.extend(honest.iter().map(at_home));
        let (plc, directory) = directory(&accounts).await;
        let folder = tempfile::tempdir().unwrap();
        let owned = |(old, new): &(&str, &str)| ((*old).to_owned(), (*new).to_owned());
        let mut changes: Vec<(String, String)> = changes.iter().map(owned).collect();
        changes.extend(web.map(|web| (network.web_url.clone(), web.to_owned())));
        let river = start(&network, &folder, &plc, &changes).await;
        Self {
            network,
            river,
            honest,
            directory,
            folder,
            plc,
            changes,
        }
    }

    /// These accounts are to be repaired.
    pub(crate) fn mark(&self, dids: &[&str]) {
        let dids = dids.iter().map(|did| (*did).to_owned()).collect();
        let mut batch = Batch::of_no_source(1, Item::Listed(dids));
        batch.source = "list".into();
        self.river.store.commit(batch).unwrap();
        self.river.status.marked.send_modify(|count| *count += 1);
    }

    pub(crate) fn is_whole(&self, did: &str) -> bool {
        let account = self.river.store.account(did).unwrap();
        account.is_some_and(|account| account.rev > 0 && !account.broken)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let address = self.river.address.unwrap();
        let answer = reqwest::get(format!("http://{address}{path}")).await;
        let answer = answer.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or_default())
    }

    async fn restart(self) -> Self {
        self.river.stop().await;
        let river = start(&self.network, &self.folder, &self.plc, &self.changes).await;
        Self { river, ..self }
    }

    pub(crate) async fn end(self) {
        self.river.stop().await;
        self.network.stop().await;
    }
}

async fn start(
    network: &Network,
    folder: &tempfile::TempDir,
    plc: &str,
    changes: &[(String, String)],
) -> River {
    let store = format!("sqlite://{}", folder.path().join("s.db").display());
    let ours = format!("plc_url = \"{plc}\"");
    let theirs = format!("plc_url = \"{}\"", network.plc_url);
    let mut all = vec![(theirs.as_str(), ours.as_str())];
    all.extend(
        changes
            .iter()
            .map(|(old, new)| (old.as_str(), new.as_str())),
    );
    bed::start(&bed::config(network, &store, &all)).await
}

/// More than an answer may have, and what sockets hold on the way.
const TAKEN_MAX: usize = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn endless_answers_are_cut_off_and_their_accounts_wait() {
    let (status_url, status) = host(Manner::EndlessStatus).await;
    let (repo_url, repo) = host(Manner::EndlessRepo).await;
    let (asked, listed) = (did("asked"), did("listed"));
    let (documented, large) = (did("documented"), did("large"));
    let accounts = [
        (asked.clone(), Some(status_url.clone())),
        (listed.clone(), Some(status_url)),
        (documented.clone(), None),
        (large.clone(), Some(repo_url)),
    ];
    let limits = (
        "[intake]\n",
        "[intake]\nrepo_bytes_max = 1000000\nresync_max = 1\n",
    );
    let wait = ("bind = ", "first_read_ms = 60000\nbind = ");
    let scene = Scene::begin(&accounts, &[limits, wait]).await;
    for did in [&asked, &documented, &large] {
        let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={did}");
        let (status, page) = scene.get(&path).await;
        assert_eq!(
            (status, &page["backfill"]),
            (200, &json!("failed")),
            "{page}"
        );
        assert_eq!(scene.river.store.key(did).unwrap(), None, "no row of it");
    }
    // With one slot, whoever is repaired last tells that the others had their turns and rest.
    let honest = scene.honest[0].clone();
    scene.mark(&[&listed, &large, &documented, &honest]);
    until(|| scene.is_whole(&honest)).await;
    until(|| scene.river.store.fetches_begun().unwrap().is_empty()).await;
    assert_eq!((status.of("getRepoStatus"), status.of("getRepo")), (2, 2));
    assert_eq!(repo.of("getRepo"), 2);
    assert_eq!(scene.directory.of(&documented), 2);
    let taken = status.sent() + repo.sent() + scene.directory.sent();
    assert!(taken < TAKEN_MAX, "{taken} bytes were taken");
    // They are still marked, and a start survives that.
    let scene = scene.restart().await;
    let another = scene.honest[1].clone();
    scene.mark(&[&another]);
    until(|| scene.is_whole(&another)).await;
    let taken = status.sent() + repo.sent() + scene.directory.sent();
    assert!(taken < 2 * TAKEN_MAX, "{taken} bytes were taken");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_in_whose_fetch_the_process_died_waits_while_others_are_fetched() {
    let (url, count) = host(Manner::Garbage(1000)).await;
    let (often, once) = (did("often"), did("once"));
    let accounts = [
        (often.clone(), Some(url.clone())),
        (once.clone(), Some(url)),
    ];
    let scene = Scene::begin(&accounts, &[("[intake]\n", "[intake]\nresync_max = 1\n")]).await;
    let honest = scene.honest[0].clone();
    let now_us = feedmill::clock::Clock::Wall.now_us();
    scene.river.store.commit(marks(now_us, &often, 9)).unwrap();
    scene.river.store.commit(marks(now_us, &once, 1)).unwrap();
    // As a process that is killed leaves its file: a mark, and no word about its end.
    let scene = scene.restart().await;
    scene.mark(&[&often, &once, &honest]);
    until(|| scene.is_whole(&honest)).await;
    // The one that began once is tried again soon, the one that began nine times waits for a day.
    until(|| scene.directory.of(&once) > 0 && count.of("getRepo") > 0).await;
    assert_eq!(scene.directory.of(&often), 0);
    scene.end().await;
}

fn marks(now_us: i64, did: &str, attempts: usize) -> Batch {
    let begun = Item::FetchBegun { did: did.into() };
    let mut batch = Batch::of_no_source(now_us, begun.clone());
    batch.items = vec![begun; attempts];
    batch
}

/// The honest host names two seconds; while it is asked three times, nobody may be asked much more often.
#[tokio::test(flavor = "multi_thread")]
async fn pauses_of_no_length_in_the_past_and_without_end_are_pauses() {
    let most: &str = "18446744073709551615";
    let mut hosts = Vec::new();
    for (name, value) in [
        ("retry-after", "2"),
        ("retry-after", "0"),
        ("ratelimit-reset", "1000000001"),
        ("retry-after", most),
        ("ratelimit-reset", most),
    ] {
        hosts.push(host(Manner::Later(name, value)).await);
    }
    let named = |(index, (url, _)): (usize, &(String, Arc<Count>))| {
        (did(&format!("host{}", index + 2)), Some(url.clone()))
    };
    let accounts: Vec<(String, Option<String>)> = hosts.iter().enumerate().map(named).collect();
    let scene = Scene::begin(&accounts, &[]).await;
    let dids: Vec<&str> = accounts.iter().map(|(did, _)| did.as_str()).collect();
    scene.mark(&dids);
    let asked = |index: usize| hosts[index].1.all();
    until(|| asked(0) >= 3 && asked(1) >= 1 && asked(2) >= 1).await;
    assert!(
        asked(1) <= 12 && asked(2) <= 12,
        "{} {}",
        asked(1),
        asked(2)
    );
    assert_eq!((asked(3), asked(4)), (1, 1));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_hosts_that_send_a_byte_a_second_stop_neither_repair_nor_readers() {
    let mut accounts = Vec::new();
    let mut counts = Vec::new();
    for number in 2..7 {
        let (url, count) = host(Manner::Trickle).await;
        accounts.push((did(&format!("slow{number}")), Some(url)));
        counts.push(count);
    }
    let limits = "[intake]\nspeed_s = 1\nresync_max = 2\nreader_fetch_max = 2\n";
    let wait = ("bind = ", "first_read_ms = 60000\nbind = ");
    let scene = Scene::begin(&accounts, &[("[intake]\n", limits), wait]).await;
    let slow: Vec<&str> = accounts.iter().map(|(did, _)| did.as_str()).collect();
    scene.mark(&slow);
    // A reader waits for no repair.
    until(|| counts.iter().any(|count| count.of("getRepo") > 0)).await;
    let (reader, repaired) = (&scene.honest[0], &scene.honest[1]);
    let actor = reader.replace('%', "%25");
    let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={actor}");
    let (status, page) = scene.get(&path).await;
    assert_eq!((status, page.get("backfill")), (200, None), "{page}");
    // Repair goes on when the slow ones were cut off.
    scene.mark(&[repaired]);
    until(|| scene.is_whole(repaired)).await;
    scene.end().await;
}

/// None of the slow hosts is cut off here, so a slot that one of them has is never free again.
#[tokio::test(flavor = "multi_thread")]
async fn neither_repairs_nor_readers_that_hold_all_their_slots_keep_the_others_waiting() {
    let (url, count) = host(Manner::Trickle).await;
    let names = ["slowb", "slowc"].map(did);
    let accounts = names.clone().map(|did| (did, Some(url.clone())));
    let limits = "[intake]\nspeed_s = 600\nhost_max = 2\nresync_max = 1\nreader_fetch_max = 1\n";
    let scene = Scene::begin(&accounts, &[("[intake]\n", limits)]).await;
    let page = |did: &str| {
        let did = did.replace('%', "%25");
        format!("/xrpc/com.example.getFeed?feed=timeline&actor={did}")
    };
    // One holds the slot of repairs, and a reader is fetched all the same.
    scene.mark(&[&names[0]]);
    until(|| count.of("getRepo") == 1).await;
    let reader = page(&scene.honest[0]);
    crate::bed::until_async(async || scene.get(&reader).await.1.get("backfill").is_none()).await;
    scene.end().await;

    let (url, count) = host(Manner::Trickle).await;
    let accounts = names.clone().map(|did| (did, Some(url.clone())));
    let scene = Scene::begin(&accounts, &[("[intake]\n", limits)]).await;
    // One holds the slot of readers, and an account is repaired all the same.
    let (_, slow) = scene.get(&page(&names[0])).await;
    assert_eq!(slow["backfill"], "running", "{slow}");
    until(|| count.of("getRepo") == 1).await;
    scene.mark(&[&scene.honest[1]]);
    until(|| scene.is_whole(&scene.honest[1])).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_large_repositories_at_once_are_opened_within_the_budget() {
    const LARGE: usize = 3_000_000;
    let mut accounts = Vec::new();
    let mut counts = Vec::new();
    for letter in ["b", "c", "d", "e", "f", "g", "h", "i"] {
        let (url, count) = host(Manner::Garbage(LARGE)).await;
        accounts.push((did(letter), Some(url)));
        counts.push(count);
    }
    let limits = "[intake]\nrepo_bytes_max = 4000000\nrepo_memory_bytes_max = 7000000\n";
    let scene = Scene::begin(&accounts, &[("[intake]\n", limits)]).await;
    let dids: Vec<&str> = accounts.iter().map(|(did, _)| did.as_str()).collect();
    scene.mark(&dids);
    until(|| counts.iter().all(|count| count.sent() >= LARGE)).await;
    let honest = scene.honest[0].clone();
    scene.mark(&[&honest]);
    until(|| scene.is_whole(&honest)).await;
    let most = scene.river.fetcher.memory().most_bytes();
    assert!((LARGE as u64..=7_000_000).contains(&most), "{most}");
    let left = std::fs::read_dir(scene.folder.path()).unwrap();
    let names = left.map(|file| file.unwrap().file_name().into_string().unwrap());
    let strange: Vec<String> = names.filter(|name| !name.starts_with("s.")).collect();
    assert!(strange.is_empty(), "{strange:?}");
    scene.end().await;
}
