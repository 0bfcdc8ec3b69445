//! The first read of a reader whose follows are not all here: they are
//! fetched from its own host, once, and the answer says so meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::fanout::{Drawer, Fanout};
use feedmill::oracle;
use feedmill::river::{River, Role, Start};
use feedmill::store::AccountStatus;
use feedmill::store::account::FirstRead;
use feedmill::store::batch::{Batch, Chain, Commit, Item, Op, Snapshot};
use serde_json::{Value, json};
use sim::compose::FOLLOW;
use sim::network::{Network, NetworkOptions};

use crate::bed::{self, PATIENCE};
use crate::desk::{ALICE, BOB, Desk};

/// A network whose relay no longer has anything and does not say so: every known account would be
/// fetched for that. A reader in it who follows somebody, and how many.
async fn silent() -> (Network, String, usize) {
    let options = NetworkOptions {
        cursor_notices: false,
        ..NetworkOptions::default()
    };
    let network = bed::network(31, options).await;
    network.emit(300);
    network.settle();
    network.trim_backlog(0);
    let (reader, follows) = network.world(|world| {
        let active = world
            .accounts()
            .iter()
            .filter(|account| !account.standing.hides());
        let sound = |did: &str| {
            let records = world.model().records();
            let follows = records
                .filter(|(_, fact)| fact.collection == FOLLOW && fact.did == did && fact.sound);
            follows.count()
        };
        let counted = active.map(|account| (account.did.to_string(), sound(&account.did)));
        counted.max_by_key(|(_, follows)| *follows).unwrap()
    });
    assert!(follows > 0, "somebody follows somebody");
    (network, reader, follows)
}

/// A river on such a network.
async fn quiet(changes: &[(&str, &str)]) -> (Network, River, String, usize) {
    let (network, reader, follows) = silent().await;
    let config = bed::config(&network, "sqlite::memory:", changes);
    let river = bed::start(&config).await;
    (network, river, reader, follows)
}

async fn ask(river: &River, path: &str) -> Value {
    let url = format!("http://{}/xrpc/com.example.{path}", river.address.unwrap());
    let response = reqwest::get(url).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response.json().await.unwrap()
}

async fn until(river: &River, path: &str, so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let answer = ask(river, path).await;
        if so(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{path}: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn followed(river: &River, reader: &str) -> usize {
    let lane = river.plan.listing(FOLLOW).unwrap();
    let query = feedmill::store::ListQuery {
        lane,
        did: Some(reader.to_owned()),
        before: None,
        limit: 1000,
        lens: feedmill::store::Lens::default(),
        scan_max: 1000,
    };
    river.store.list(&query).unwrap().rows.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_waits_for_the_readers_follows_and_a_second_reads_nothing_again() {
    let (network, river, reader, follows) =
        quiet(&[("bind = ", "first_read_ms = 20000\nbind = ")]).await;
    assert_eq!(followed(&river, &reader), 0);
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    let page = ask(&river, &path).await;
    assert_eq!(page.get("backfill"), None, "{page}");
    assert_eq!(followed(&river, &reader), follows);
    let fetched = || river.status.resynced.load(Ordering::Relaxed);
    // It is counted a moment after it is there to be read.
    let begun = Instant::now();
    while fetched() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the fetch was not counted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ask(&river, &path).await;
    ask(&river, &path.replace("timeline", "garden")).await;
    assert_eq!(fetched(), 1, "one fetch serves every feed");
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_its_budget_the_page_says_that_the_follows_are_on_their_way() {
    let (network, river, reader, follows) =
        quiet(&[("bind = ", "first_read_ms = 0\nbind = ")]).await;
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    let page = ask(&river, &path).await;
    assert_eq!(
        (&page["backfill"], &page["records"]),
        (&json!("running"), &json!([]))
    );
    let page = until(&river, &path, |page| page.get("backfill").is_none()).await;
    assert!(page["records"].is_array(), "{page}");
    assert_eq!(followed(&river, &reader), follows);
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_exist_is_given_up_as_often_as_it_is_asked_for() {
    let (network, reader, _) = silent().await;
    let changes = [("bind = ", "first_read_ms = 0\nfirst_reads_max = 1\nbind = ")];
    let config = bed::config(&network, "sqlite::memory:", &changes);
    let clock = Clock::at(Clock::Wall.now_us());
    let start = Start {
        role: Role::All,
        clock: clock.clone(),
        lexicons: sim::lexicons::ALL,
    };
    let river = River::start(&config, start).await.unwrap();
    let marked = || {
        let mut marked = river.store.broken_accounts(10).unwrap();
        marked.extend(river.store.waiting_readers(10).unwrap());
        marked
    };
    let nobody = "getFeed?feed=timeline&actor=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
    for _ in 0..2 {
        // After ten minutes nothing but another failure says so.
        let page = until(&river, nobody, |page| page["backfill"] == "failed").await;
        assert_eq!(page["records"], json!([]));
        assert!(marked().is_empty(), "it is left alone");
        clock.set(clock.now_us() + 600_000_000);
    }
    // There is room again.
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    until(&river, &path, |page| page.get("backfill").is_none()).await;
    // A gap makes every account doubtful; one that does not exist is given up again.
    let gap = Batch::of_no_source(clock.now_us(), Item::AllDue);
    river.store.commit(gap).unwrap();
    bed::until(|| marked().is_empty()).await;
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_fetched_before_its_follows_were_kept_is_fetched_again_once() {
    let (network, reader, follows) = silent().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}/s.db", folder.path().display());
    let wait = ("bind = ", "first_read_ms = 20000\nbind = ");
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    // At first nobody keeps follows: what notes name is followed.
    let follow = format!("[collections.follow]\ncollection = \"{FOLLOW}\"\n");
    let text = oracle::config(&network, "127.0.0.1:0", &store);
    let text = text.replace(&follow, "").replacen(wait.0, wait.1, 1);
    let named = "collection = \"follow\", subject";
    let text = text
        .replace("follow = \"follow\"", "follow = \"note\"")
        .replace(named, "collection = \"note\", subject");
    let before = Config::parse(&text).unwrap();
    let river = bed::start(&before).await;
    let page = ask(&river, &path).await;
    assert_eq!(page.get("backfill"), None, "{page}");
    let fetched = |river: &River| river.status.resynced.load(Ordering::Relaxed);
    bed::until(|| fetched(&river) == 1).await;
    river.stop().await;
    // Now they are, and this reader's came before that.
    let river = bed::start(&bed::config(&network, &store, &[wait])).await;
    assert_eq!(followed(&river, &reader), 0);
    let page = ask(&river, &path).await;
    assert_eq!(page.get("backfill"), None, "{page}");
    assert_eq!(followed(&river, &reader), follows);
    bed::until(|| fetched(&river) == 1).await;
    ask(&river, &path.replace("timeline", "garden")).await;
    assert_eq!(fetched(&river), 1, "one fetch serves every feed");
    river.stop().await;
    network.stop().await;
}

const FEEDS: &str = r#"
[collections.post]
collection = "com.example.post"
validate = false
[collections.follow]
collection = "com.example.follow"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
[[source]]
name = "test"
firehose = "wss://relay.example"
[serve]
first_read_ms = 0
first_reads_max = 1
"#;

/// A feed that reads one collection more of its readers.
const CALM: &str = r#"
[collections.mute]
collection = "com.example.mute"
validate = false
[feeds.calm]
follow = "follow"
hide = ["mute"]
targets = ["post"]
"#;

fn snapshot(desk: &Desk, did: &str, ops: Vec<Op>) {
    desk.apply(Item::Snapshot(Snapshot {
        did: did.into(),
        rev: 5,
        data: None,
        ops,
        held: 0,
    }));
}

fn asked(desk: &Desk, did: &str, feed: &str) -> FirstRead {
    desk.apply(Item::FirstRead {
        did: did.into(),
        feed: feed.into(),
        waiting_max: 1,
    });
    stands(desk, did, feed)
}

fn stands(desk: &Desk, did: &str, feed: &str) -> FirstRead {
    desk.store.first_read(did, feed, desk.now_us()).unwrap()
}

fn gave_up(desk: &Desk, did: &str) {
    desk.apply(Item::GaveUp { did: did.into() });
}

#[test]
fn a_history_holds_only_the_collections_that_were_kept_when_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let open = |more: &str| {
        let store = format!("[store]\nurl = \"sqlite://{}\"\n", file.display());
        let text = format!("namespace = \"com.example\"\n{FEEDS}{more}{store}");
        Desk::of(Config::parse(&text).unwrap())
    };
    let desk = open("");
    snapshot(&desk, ALICE, Vec::new());
    assert_eq!(stands(&desk, ALICE, "timeline"), FirstRead::Known);
    drop(desk);
    for round in 0..2 {
        let desk = open(CALM);
        assert_eq!(stands(&desk, ALICE, "timeline"), FirstRead::Known);
        assert_eq!(stands(&desk, ALICE, "calm"), FirstRead::Unknown, "{round}");
        assert_eq!(asked(&desk, ALICE, "calm"), FirstRead::Waiting);
        assert_eq!(desk.store.waiting_readers(9).unwrap(), [ALICE]);
        // Its repository has not changed since it was fetched first.
        let mute = Op {
            collection: "com.example.mute".into(),
            rkey: "m".into(),
            verdict: desk.check(ALICE, "mute", "m", 5, "{\"subject\":\"did:plc:x\"}"),
        };
        snapshot(&desk, ALICE, vec![mute]);
        assert_eq!(stands(&desk, ALICE, "calm"), FirstRead::Known);
        assert!(desk.has(ALICE, "mute", "m"));
        drop(desk);
        assert_eq!(stands(&open(CALM), ALICE, "calm"), FirstRead::Known);
        // While it is not kept nobody hears what becomes of it.
        drop(open(""));
    }
}

#[test]
fn a_chain_counts_as_a_history_if_it_was_followed_from_its_first_commit() {
    let desk = Desk::new(FEEDS);
    let tree = record::cid::Cid::of_raw(b"tree");
    let commit = |did: &str, since: Option<u64>| {
        desk.apply(Item::Commit(Commit {
            did: did.into(),
            rev: 9,
            chain: Some(Chain {
                since,
                prev_data: None,
                data: Some(tree),
            }),
            filtered: 0,
            ops: vec![Op {
                collection: "com.example.post".into(),
                rkey: "p".into(),
                verdict: desk.check(did, "post", "p", 9, "{}"),
            }],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        }));
    };
    commit(ALICE, None);
    assert_eq!(stands(&desk, ALICE, "timeline"), FirstRead::Known);
    commit(BOB, Some(8));
    assert_eq!(asked(&desk, BOB, "timeline"), FirstRead::Waiting);
    // What the stream brought stays marked, and its reader makes room all the same.
    gave_up(&desk, BOB);
    assert_eq!(stands(&desk, BOB, "timeline"), FirstRead::Failed);
    assert_eq!(desk.store.broken_accounts(9).unwrap(), [BOB]);
    desk.pass(600);
    assert_eq!(asked(&desk, BOB, "timeline"), FirstRead::Waiting);
    gave_up(&desk, BOB);
    // Whoever was asked for before its first commit came has it whole by that.
    let carol = "did:web:carol.test";
    assert_eq!(asked(&desk, carol, "timeline"), FirstRead::Waiting);
    commit(carol, None);
    assert_eq!(stands(&desk, carol, "timeline"), FirstRead::Known);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_as_many_wait_as_may_the_page_says_later_until_one_is_given_up_or_hidden() {
    let desk = Desk::new(FEEDS);
    let address = crate::desk::listen(desk.server(None)).await;
    let word = async |did: &str| {
        let url = format!("{address}/xrpc/com.example.getFeed?feed=timeline&actor={did}");
        let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        answer["backfill"].as_str().map(str::to_owned)
    };
    let check = async |did: &str, expected: &str| {
        assert_eq!(word(did).await.as_deref(), Some(expected), "{did}");
    };
    let carol = "did:web:carol.test";
    check(ALICE, "running").await;
    check(BOB, "later").await;
    check(ALICE, "running").await;
    gave_up(&desk, ALICE);
    check(ALICE, "failed").await;
    check(BOB, "running").await;
    check(carol, "later").await;
    // A hidden account's repository will not come.
    desk.apply(Item::Standing {
        did: BOB.into(),
        status: AccountStatus::Deactivated,
    });
    assert_eq!(word(BOB).await, None);
    check(carol, "running").await;
}

/// It has a number, for a stream brought a record of it; and a place in memory only with its follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_first_read_failed_does_not_become_active() {
    let mut served = Served::new(true).await;
    served.desk.put(BOB, "post", "p", "{}");
    let number = served.desk.store.key(BOB).unwrap().unwrap();
    let is_active = |served: &mut Served| {
        let now_us = served.desk.now_us();
        let drawer = served.drawer.as_mut().unwrap();
        while drawer.step(now_us).unwrap() {}
        let fanout = served.fanout.as_ref().unwrap();
        fanout.standing("timeline", number).is_some()
    };
    served.check(Some("running")).await;
    assert!(!is_active(&mut served));
    gave_up(&served.desk, BOB);
    served.check(Some("failed")).await;
    assert!(!is_active(&mut served));
    served.comes();
    served.check(None).await;
    assert!(is_active(&mut served));
}

const HIDDEN: [AccountStatus; 4] = [
    AccountStatus::Takendown,
    AccountStatus::Suspended,
    AccountStatus::Deactivated,
    AccountStatus::Deleted,
];

/// Two feeds served to Bob, by a server that remembers what it can.
struct Served {
    desk: Desk,
    drawer: Option<Drawer>,
    fanout: Option<Arc<Fanout>>,
    address: String,
    /// `#account` events so far.
    events: i64,
}

impl Served {
    async fn new(in_memory: bool) -> Self {
        let desk = Desk::new(&format!("{FEEDS}{CALM}"));
        let open = || Fanout::open(&desk.config.timelines, 1, &desk.store).unwrap();
        let (fanout, drawer) = in_memory.then(open).flatten().unzip();
        let address = crate::desk::listen(desk.server(fanout.clone())).await;
        Self {
            desk,
            fanout,
            drawer,
            address,
            events: 0,
        }
    }

    /// The network says how Bob's account stands, and pages show it.
    fn says(&mut self, status: AccountStatus) {
        self.events += 1;
        self.desk.apply(Item::Account {
            did: BOB.into(),
            status,
            time_us: self.events,
        });
        let now_us = self.desk.now_us();
        while self
            .drawer
            .as_mut()
            .is_some_and(|it| it.step(now_us).unwrap())
        {}
    }

    /// Bob reads both feeds.
    #[track_caller]
    fn check(&self, expected: Option<&str>) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            for feed in ["timeline", "calm"] {
                let of = format!("com.example.getFeed?feed={feed}&actor={BOB}");
                let url = format!("{}/xrpc/{of}", self.address);
                let page: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
                let word = page.get("backfill").and_then(Value::as_str);
                assert_eq!(word, expected, "{place}: {page}");
            }
        }
    }

    /// His repository comes, at a revision that never changes.
    fn comes(&self) {
        let body = format!("{{\"subject\":\"{ALICE}\"}}");
        let follow = Op {
            collection: "com.example.follow".into(),
            rkey: "f".into(),
            verdict: self.desk.check(BOB, "follow", "f", 5, &body),
        };
        snapshot(&self.desk, BOB, vec![follow]);
        assert!(self.desk.has(BOB, "follow", "f"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_while_it_is_hidden_is_fetched_when_it_is_seen_again() {
    for (status, in_memory) in HIDDEN.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        println!("{status:?}, timelines in memory: {in_memory}");
        let mut served = Served::new(in_memory).await;
        served.says(status);
        served.check(None).await;
        assert!(served.desk.store.waiting_readers(9).unwrap().is_empty());
        served.says(AccountStatus::Active);
        served.check(Some("running")).await;
        assert_eq!(served.desk.store.waiting_readers(9).unwrap(), [BOB]);
        gave_up(&served.desk, BOB);
        served.check(Some("failed")).await;
        // What failed before it was hidden is tried again after it.
        served.says(status);
        served.check(None).await;
        served.says(AccountStatus::Active);
        served.check(Some("running")).await;
        served.comes();
        served.check(None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_is_fetched_again_if_it_was_deleted_and_only_then() {
    for (status, in_memory) in HIDDEN.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        println!("{status:?}, timelines in memory: {in_memory}");
        let mut served = Served::new(in_memory).await;
        served.comes();
        served.check(None).await;
        served.says(status);
        served.check(None).await;
        served.says(AccountStatus::Active);
        let deleted = status == AccountStatus::Deleted;
        served.check(deleted.then_some("running")).await;
        assert_eq!(served.desk.has(BOB, "follow", "f"), !deleted);
        served.comes();
        served.check(None).await;
        // Deleted while it was hidden anyway, and seen again by way of another state.
        served.says(AccountStatus::Suspended);
        served.check(None).await;
        served.says(AccountStatus::Deleted);
        served.says(AccountStatus::Deactivated);
        served.check(None).await;
        served.says(AccountStatus::Throttled);
        served.check(Some("running")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_asked_again_for_a_reader_who_was_hidden_and_for_one_who_was_deleted() {
    let (network, river, reader, follows) =
        quiet(&[("bind = ", "first_read_ms = 20000\nbind = ")]).await;
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    let says = |time_us, status| {
        let did = reader.clone();
        let item = Item::Account {
            did,
            status,
            time_us,
        };
        river.store.commit(Batch::of_no_source(time_us, item))
    };
    for (time_us, status) in [(1, AccountStatus::Deactivated), (3, AccountStatus::Deleted)] {
        says(time_us, status).unwrap();
        let page = until(&river, &path, |page| page["records"] == json!([])).await;
        assert_eq!(page.get("backfill"), None, "{page}");
        assert_eq!(followed(&river, &reader), 0, "{status:?}");
        says(time_us + 1, AccountStatus::Active).unwrap();
        // The page is of memory, which hears of it a moment later.
        until(&river, &path, |_| followed(&river, &reader) == follows).await;
    }
    river.stop().await;
    network.stop().await;
}
