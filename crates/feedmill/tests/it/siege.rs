//! The siege: every attack at once on the real server in little memory, beside an honest reader and an honest writer.
//!
//! `FEEDMILL_SIEGE_S` says how long; `./check slow` sets two minutes.
//!
//! Nothing may be lost, every honest page is exact and no honest request is refused, memory stays under its limit, and
//! what attackers cost the processor is bounded by what they are charged (`processor`).

// What attackers may cost.
mod processor;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use feedmill::check::{Checker, Claim};
use feedmill::config::Config;
use feedmill::oracle::Oracle;
use feedmill::store::batch::{Batch, Commit, Item, Op};
use serde_json::{Value, json};
use sim::compose::ODD;
use sim::network::{Network, NetworkOptions};
use sim::utter::Utterance;

use crate::attackers::{self, BIG, FEED, Field, HOSTILE, Relay, WAITING};
use crate::bed;
use crate::budgets::{followed, large_post, metric, peak_bytes, rkey};
use crate::life::{Home, Life, PATIENCE, adds_up};
use processor::{Bill, Costs};

/// What the server may have.
const MEMORY_BYTES: u64 = 1 << 30;
/// Requests of one address within `RATE_S` seconds.
const RATE_MAX: usize = 2_000;
const RATE_S: u64 = 10;
/// Bytes of a large record, and how many are written.
const LARGE: usize = 150_000;
const LARGE_COUNT: usize = 30;
/// Records of one thing, and how many are written at once.
const THING: usize = 1_500;
const THING_PART: usize = 50;
/// Seconds from which on a siege is a long one, with a store to match.
const LONG_S: u64 = 60;
/// Records of before that every expensive question has to look at.
const RECORDS: usize = 2_000;
const RECORDS_LONG: usize = 100_000;
/// Who wrote them.
const SEEDER: &str = "did:plc:seeder";
/// What an honest reader waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 10 });

/// A group of processes whose memory is limited; gone when dropped.
struct Group {
    folder: PathBuf,
}

impl Group {
    /// `None`, and a loud word, where none can be made. What the server used at most is asserted in any case.
    fn make() -> Option<Self> {
        let name = format!("feedmill-siege-{}", std::process::id());
        for (root, limit) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = PathBuf::from(root).join(&name);
            if !PathBuf::from(root).join("cgroup.procs").exists()
                || std::fs::create_dir(&folder).is_err()
            {
                continue;
            }
            let group = Self { folder };
            let limited = std::fs::write(group.folder.join(limit), MEMORY_BYTES.to_string());
            if limited.is_ok() {
                return Some(group);
            }
        }
        println!(
            "\n*** NO GROUP OF PROCESSES CAN BE LIMITED HERE (root can): THE PEAK OF ITS MEMORY IS ONLY LOOKED AT ***\n"
        );
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process was waited for; the kernel may take a moment to forget it.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Starts the server with few descriptors and, where that is possible, little memory.
fn start(home: &Home, group: Option<&Group>) -> Life {
    let join = group.map_or(String::new(), |group| {
        format!("echo $$ > {}/cgroup.procs; ", group.folder.display())
    });
    let mut shell = Command::new("sh");
    let script = format!("{join}ulimit -Sn 1024; exec \"$0\" run \"$1\"");
    shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_feedmill")])
        .arg(&home.file);
    Life::of(shell)
}

/// Notes of one thing, the newest first.
fn of_one_thing(from: usize) -> Vec<Utterance> {
    let one = |number: usize| {
        let second = THING - number;
        let time = format!("2026-01-02T03:{:02}:{:02}.000Z", second / 60, second % 60);
        let mut writer = record::cbor::Writer::with_capacity(200);
        writer.map(3);
        writer.text("$type").text(ODD);
        writer
            .text("about")
            .text("at://did:plc:thing/com.example.thing/one");
        writer.text("createdAt").text(&time);
        Utterance {
            collection: ODD.into(),
            rkey: rkey(500_000 + number),
            block: writer.into_bytes().into(),
            created_us: record::datetime::parse_us(&time),
            sound: true,
        }
    };
    (from..from + THING_PART).map(one).collect()
}

/// One who holds the lock of the store for a while, now and then.
fn stall(store: PathBuf) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let other = rusqlite::Connection::open(&store).unwrap();
            // It may have to wait itself, and then it comes again.
            if other.execute_batch("BEGIN IMMEDIATE").is_ok() {
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
        }
    })
}

/// A reader with an address of its own, as each of many readers has.
fn honest_client(round: usize, attempt: usize) -> reqwest::Client {
    let mut headers = reqwest::header::HeaderMap::new();
    let (number, attempt) = (round % 250 + 1, attempt % 250);
    let address = format!("198.{}.{attempt}.{number}", 18 + round / 250);
    headers.insert("x-forwarded-for", address.parse().unwrap());
    let client = reqwest::Client::builder().default_headers(headers);
    client.timeout(ANSWER_MAX).build().unwrap()
}

/// The honest: a monitor, a writer, and readers of whom each compares every feed of every account.
struct Honest<'a> {
    network: &'a Network,
    home: &'a Home,
    since_us: i64,
    author: usize,
    /// Comparisons of every page.
    attempts: AtomicUsize,
}

impl Honest<'_> {
    /// Writes a round, waits until it is durable, and compares every page.
    async fn round(&self, number: usize, life: &mut Life) -> usize {
        self.network.emit(60);
        if number < LARGE_COUNT {
            self.network
                .utter(self.author, vec![large_post(number, LARGE)]);
        }
        if number * THING_PART < THING {
            self.network
                .utter(self.author, of_one_thing(number * THING_PART));
        }
        self.network.settle();
        adds_up(&self.durable(life).await["accounting"]);
        let begun = Instant::now();
        for attempt in 0.. {
            let client = honest_client(number, attempt);
            let oracle = Oracle::new(self.network, self.home.address.clone(), self.since_us)
                .asking_by(client)
                .hasty();
            self.attempts.fetch_add(1, Ordering::Relaxed);
            let outcome = oracle.every_feed(&|_, _| {}).await;
            let Ok(outcome) = outcome else {
                let limited = limited(&self.home.address).await;
                panic!("an honest request: {outcome:?}; limited: {limited:?}");
            };
            // Pages from memory are a moment behind the cursor, and then they are what they were before.
            if outcome.mismatches == 0 {
                assert!(outcome.entries > 0, "nothing was compared");
                return outcome.pages;
            }
            assert!(begun.elapsed() < bed::PATIENCE, "{:?}", outcome.first);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        unreachable!("it compares until it is right")
    }

    /// Waits until all that was said is durable. Hostile accounts are in repair all the time.
    async fn durable(&self, life: &mut Life) -> Value {
        let (begun, last) = (Instant::now(), self.network.last_seq());
        loop {
            assert!(!life.is_over(), "it has ended: {:#?}", life.said("ERROR"));
            let status = self.home.status().await.unwrap_or_default();
            if status["ingestion"]["cursors"]["sim"].as_u64() >= Some(last) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "not durable in time: {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Asks whether the server lives, all the time; every answer must be yes.
fn monitor(address: String, asked: Arc<AtomicUsize>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let client = reqwest::Client::builder().timeout(ANSWER_MAX);
        let client = client.build().unwrap();
        loop {
            for path in ["/health", "/ready"] {
                let answer = client.get(format!("http://{address}{path}")).send().await;
                asked.fetch_add(1, Ordering::Relaxed);
                let status = answer.expect("an answer").status().as_u16();
                let wanted: &[u16] = match path {
                    "/health" => &[200],
                    _ => &[200, 503], // it may be behind, and says so
                };
                assert!(wanted.contains(&status), "{path}: {status}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// A server to be attacked, and the network that it reads.
struct Camp {
    network: Network,
    home: Home,
    store: PathBuf,
    hostile: Vec<String>,
    author: usize,
    reader: String,
    relay: Relay,
}

impl Camp {
    fn honest(&self) -> Honest<'_> {
        Honest {
            network: &self.network,
            home: &self.home,
            since_us: feedmill::clock::Clock::Wall.now_us(),
            author: self.author,
            attempts: AtomicUsize::new(0),
        }
    }
}

/// What the configuration of the simulated network lacks: where attackers write, and what they are refused by.
fn more(relay: &Relay, folder: &Path) -> String {
    let log = folder.join("log.db");
    format!(
        r#"[collections.hostile]
collection = "{HOSTILE}"
validate = false
[[collections.hostile.rule]]
name = "short"
expect = "!has(record.text) || size(record.text) < 30000"
message = "a text has fewer than 30 000 letters"
path = "text"
[[collections.hostile.rule]]
name = "distinct"
when = "has(record.words)"
expect = "record.words.all(a, size(record.words.filter(b, a == b)) == 1)"
message = "each word comes once"
path = "words"
[collections.waiting]
collection = "{WAITING}"
validate = false
requires = ["parent"]
[collections.big]
collection = "{BIG}"
validate = false
searchable = ["text"]
[collections.big.queryable]
text = {{}}
langs = {{}}
createdAt = {{ type = "range", as = "time" }}
[[source]]
name = "hostile"
firehose = "{}"
[log]
file = {log:?}
read = "anyone"
append = "anyone"
create = "anyone"
bytes_max = 67108864
[settle]
parked_max = 2000
dead_bytes_max = 20000000
[timelines]
memory_mib = 128
[store]
cache_mib = 16
"#,
        relay.url
    )
}

/// The configuration is that of a machine with 1 GiB (docs/operations.md, "Memory").
const SMALL_INTAKE: &str = "[intake]\npending_bytes_max = 16000000\nrepo_bytes_max = 67108864\nrepo_memory_bytes_max = 134217728\n";

/// Puts records into the store of a process that has not begun.
fn seed(file: &Path, count: usize) {
    let config = Config::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    let store = feedmill::store::open(&config).unwrap();
    let checker = Checker::new(&config, Arc::clone(store.plan()), &[]).unwrap();
    let op = |number: usize| {
        let rkey = rkey(number);
        let second = number * 7_919 % 86_400;
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        let time = format!("2026-01-01T{hour:02}:{minute:02}:{:02}.000Z", second % 60);
        let text = format!(
            "{:07} the words of a record, and more of the same",
            number * 7_919 % 1_000_003
        );
        let claim = Claim {
            did: SEEDER,
            collection: BIG,
            rkey: &rkey,
            rev: number as u64 + 1,
        };
        let body = json!({"text": text, "langs": ["en"], "createdAt": time});
        Op {
            collection: BIG.to_owned(),
            verdict: checker.json(claim, None, &body.to_string()),
            rkey,
        }
    };
    for from in (0..count).step_by(1_000) {
        let commit = Commit {
            did: SEEDER.to_owned(),
            rev: from as u64 + 1_000,
            chain: None,
            filtered: 0,
            ops: (from..from + 1_000).map(op).collect(),
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        };
        let batch = Batch {
            source: "seed".into(),
            cursor: Some(from as i64),
            now_us: feedmill::clock::Clock::Wall.now_us(),
            items: vec![Item::Commit(commit)],
        };
        let applied = store.commit(batch).unwrap().accounting.applied;
        assert_eq!(applied, 1_000);
    }
}

async fn camp(records: usize) -> Camp {
    let network = bed::network(91, NetworkOptions::default()).await;
    network.emit(600);
    let (author, reader) = followed(&network);
    let hostile = attackers::hostile().await;
    let plc = attackers::directory(&network.plc_url, hostile.clone()).await;
    let web = attackers::web(&network.web_url).await;
    let hostile: Vec<String> = hostile.into_keys().collect();
    let relay = Relay::start(hostile.clone()).await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let more = more(&relay, folder.path());
    let merged = "[feeds.merged]\nfollow = \"follow\"\ntargets = [{ collection = \"note\", merge = \"about\" }]\n[[source]]\n";
    let published = format!("[feeds.timeline]\npublish_as = \"{FEED}\"\n");
    let serve = format!(
        "cache_mib = 16\nunsent_bytes_max = 32000000\nuploads_bytes_max = 64000000\nlisteners_bytes_max = 16000000\n\
         public_url = \"https://feeds.example\"\nproxy_header = \"x-forwarded-for\"\nnotify = \"open\"\n\
         rate_max = {RATE_MAX}\nrate_s = {RATE_S}\nbind = "
    );
    let changes = [
        (network.plc_url.as_str(), plc.as_str()),
        (network.web_url.as_str(), web.as_str()),
        ("[[source]]\n", merged),
        ("[feeds.timeline]\n", &published),
        ("bind = ", &serve),
        ("[store]\n", &more),
        ("[intake]\n", SMALL_INTAKE),
    ];
    let home = Home::with_store(&network, folder, &store, &changes);
    seed(&home.file, records);
    Camp {
        home,
        hostile,
        network,
        store,
        author,
        reader,
        relay,
    }
}

/// How often each limit was met.
async fn limited(address: &str) -> Vec<(&'static str, f64)> {
    let mut limited = Vec::new();
    for by in [
        "address",
        "reads",
        "requests",
        "address-requests",
        "connections",
        "idle-connections",
        "handles",
        "stall",
        "listeners",
        "address-listeners",
        "unknown-listeners",
    ] {
        let line = format!("feedmill_http_limited_total{{by=\"{by}\"}}");
        limited.push((by, metric(address, &line).await));
    }
    limited
}

/// What the hostile stream left behind: an attack that does not arrive proves nothing.
async fn arrived(home: &Home) -> Vec<(&'static str, f64)> {
    let status = home.status().await.expect("an answer");
    let accounting = |name: &str| status["accounting"][name].as_f64().unwrap_or(0.0);
    let resyncs = async |result: &str| {
        let line = format!("feedmill_resyncs_total{{result=\"{result}\"}}");
        metric(&home.address, &line).await
    };
    vec![
        ("dead", accounting("dead")),
        ("parked", accounting("parked")),
        ("held", accounting("held")),
        ("repairs", resyncs("failed").await + resyncs("later").await),
    ]
}

/// How long the siege is.
fn seconds() -> u64 {
    let seconds = std::env::var("FEEDMILL_SIEGE_S").ok();
    seconds.map_or(5, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attack_at_once_costs_the_honest_nothing() {
    feedmill::serve::descriptors::raise();
    let seconds = seconds();
    let is_long = seconds >= LONG_S;
    let camp = camp(if is_long { RECORDS_LONG } else { RECORDS }).await;
    let home = &camp.home;
    let group = Group::make();
    let mut life = start(home, group.as_ref());
    let honest = camp.honest();
    honest.round(0, &mut life).await;
    let field = Field::new(&home.address, &camp.reader);
    let asked = Arc::new(AtomicUsize::new(0));
    let monitor = monitor(home.address.clone(), Arc::clone(&asked));
    let stall = stall(camp.store.clone());
    let mut rounds = 1;
    let costs = Costs::measure(&field, &camp.relay, life.process(), async || {
        let before = honest.attempts.load(Ordering::Relaxed);
        rounds += 1;
        honest.round(rounds, &mut life).await;
        honest.attempts.load(Ordering::Relaxed) - before
    })
    .await;

    let bill = Bill::begin(&field, &camp.relay, life.process()).await;
    let (begun, attempts) = (Instant::now(), honest.attempts.load(Ordering::Relaxed));
    let monitored = asked.load(Ordering::Relaxed);
    let attacks = attackers::begin(&field, &camp.hostile);
    let mut pages = 0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        rounds += 1;
        pages += honest.round(rounds, &mut life).await;
        assert!(!monitor.is_finished(), "the monitor was not answered");
    }
    let attempts = honest.attempts.load(Ordering::Relaxed) - attempts;
    let monitored = asked.load(Ordering::Relaxed) - monitored;
    let bill = bill.end(&costs, attempts, monitored).await;
    let (limited, arrived) = (limited(&home.address).await, arrived(home).await);
    drop(attacks);
    stall.abort();
    monitor.abort();
    let peak = peak_bytes(life.process());
    println!(
        "siege of {:?}: {rounds} honest rounds, {pages} exact pages, peak {} MiB, arrived {arrived:?}, limited {limited:?}, attackers {:?}\n{bill:#?}\n{costs:#?}",
        begun.elapsed(),
        peak >> 20,
        field.answers()
    );
    assert!(peak < MEMORY_BYTES, "{peak} bytes");
    let all_arrived = arrived.iter().all(|(_, count)| *count > 0.0);
    assert!(all_arrived || !is_long, "{arrived:?}");
    // Nobody was served more than its rate allows, a window begun before and one after included.
    let windows = begun.elapsed().as_secs() / RATE_S + 2;
    let (addresses, served) = field.served();
    assert!(
        served <= RATE_MAX * windows as usize,
        "{served} in {windows} windows"
    );
    bill.check(addresses as u64 * windows * RATE_MAX as u64, is_long);
    // Nothing is lost, and all of it is right when they have left.
    honest.round(rounds, &mut life).await;
    let status: Value = home.status().await.expect("an answer");
    adds_up(&status["accounting"]);
    assert!(life.end().success());
    camp.network.stop().await;
}
