//! The siege: every attack at once on the real server in little memory, beside an honest reader and an honest writer.
//!
//! `FEEDMILL_SIEGE_S` says how long; `./check slow` sets two minutes.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use feedmill::oracle::Oracle;
use serde_json::Value;
use sim::compose::{FOLLOW, ODD, POST};
use sim::feed::Feed;
use sim::network::{Network, NetworkOptions};
use sim::utter::Utterance;

use crate::attackers::{self, FEED, Field};
use crate::bed;
use crate::budgets::{followed, large_post, metric, peak_bytes, rkey};
use crate::life::{Home, Life, adds_up};

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
/// Posts of before, of one author.
const ORDINARY: usize = 2_000;

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

/// Seconds of the processor that a process used.
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    let ticks = rest.split_whitespace().skip(11).take(2);
    ticks.map(|it| it.parse::<f64>().unwrap()).sum::<f64>() / 100.0
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

/// Posts that every expensive question has to look at.
fn ordinary(from: usize) -> Vec<Utterance> {
    let one = |number: usize| {
        let time = format!(
            "2026-01-01T{:02}:{:02}:{:02}.000Z",
            number / 3600,
            number / 60 % 60,
            number % 60
        );
        let mut writer = record::cbor::Writer::with_capacity(400);
        writer.map(4);
        writer.text("text").text(&format!(
            "{:07} the words of a post, and more of the same",
            number * 7919 % 1_000_003
        ));
        writer.text("$type").text(POST);
        writer.text("langs").list(1).text("en");
        writer.text("createdAt").text(&time);
        Utterance {
            collection: POST.into(),
            rkey: rkey(700_000 + number),
            block: writer.into_bytes().into(),
            created_us: record::datetime::parse_us(&time),
            sound: true,
        }
    };
    (from..from + 50).map(one).collect()
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
    client.build().unwrap()
}

/// The honest: a monitor, a writer, and readers of whom each compares every feed of every account.
struct Honest<'a> {
    network: &'a Network,
    home: &'a Home,
    since_us: i64,
    author: usize,
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
        let settled = self
            .home
            .settled(self.network.last_seq(), &mut [life])
            .await;
        adds_up(&settled.expect("it lives")["accounting"]);
        let begun = Instant::now();
        for attempt in 0.. {
            let client = honest_client(number, attempt);
            let oracle = Oracle::new(self.network, self.home.address.clone(), self.since_us)
                .asking_by(client)
                .hasty();
            let outcome = oracle.every_feed(&|_, _| {}).await;
            let outcome = outcome.unwrap_or_else(|error| panic!("an honest request: {error:?}"));
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
}

/// Asks whether the server lives, all the time; every answer must be yes.
fn monitor(address: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let client = reqwest::Client::new();
        loop {
            for path in ["/health", "/ready"] {
                let answer = client.get(format!("http://{address}{path}")).send().await;
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
}

/// The account that the fewest follow: its posts are in lists, and on few pages of the honest.
fn least_followed(network: &Network) -> usize {
    network.world(|world| {
        let feed = Feed::of(FOLLOW, Vec::new());
        let accounts = world.accounts();
        let all = accounts
            .iter()
            .map(|account| feed.followed(world.model(), &account.did));
        let all: Vec<_> = all.collect();
        let followers = |number: &usize| {
            let did = accounts[*number].did.to_string();
            all.iter().filter(|follows| follows.contains(&did)).count()
        };
        let visible = (0..accounts.len()).filter(|number| !accounts[*number].standing.hides());
        visible.min_by_key(followers).unwrap()
    })
}

async fn camp() -> Camp {
    let network = bed::network(91, NetworkOptions::default()).await;
    network.emit(600);
    let (author, reader) = followed(&network);
    let unread = least_followed(&network);
    for from in (0..ORDINARY).step_by(50) {
        network.utter(unread, ordinary(from));
    }
    let hostile = attackers::hostile().await;
    let plc = attackers::directory(&network.plc_url, hostile.clone()).await;
    let web = attackers::web(&network.web_url).await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let merged = "[feeds.merged]\nfollow = \"follow\"\ntargets = [{ collection = \"note\", merge = \"about\" }]\n[[source]]\n";
    let published = format!("[feeds.timeline]\npublish_as = \"{FEED}\"\n");
    let serve = format!(
        "public_url = \"https://feeds.example\"\nproxy_header = \"x-forwarded-for\"\nrate_max = {RATE_MAX}\nrate_s = {RATE_S}\nbind = "
    );
    let changes = [
        (network.plc_url.as_str(), plc.as_str()),
        (network.web_url.as_str(), web.as_str()),
        ("[[source]]\n", merged),
        ("[feeds.timeline]\n", &published),
        ("bind = ", &serve),
    ];
    Camp {
        home: Home::with_store(&network, folder, &store, &changes),
        hostile: hostile.into_keys().collect(),
        network,
        store,
        author,
        reader,
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
    ] {
        let line = format!("feedmill_http_limited_total{{by=\"{by}\"}}");
        limited.push((by, metric(address, &line).await));
    }
    limited
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attack_at_once_costs_the_honest_nothing() {
    feedmill::serve::descriptors::raise();
    let seconds = std::env::var("FEEDMILL_SIEGE_S").ok();
    let seconds: u64 = seconds.map_or(5, |text| text.parse().unwrap());
    let camp = camp().await;
    let home = &camp.home;
    let group = Group::make();
    let mut life = start(home, group.as_ref());
    let honest = Honest {
        network: &camp.network,
        home,
        since_us: feedmill::clock::Clock::Wall.now_us(),
        author: camp.author,
    };
    honest.round(0, &mut life).await;

    let field = Field::new(&home.address, &camp.reader);
    let (begun, cpu) = (Instant::now(), cpu_s(life.process()));
    let attacks = attackers::begin(&field, &camp.hostile);
    let (monitor, stall) = (monitor(home.address.clone()), stall(camp.store.clone()));
    let (mut rounds, mut pages) = (1, 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        pages += honest.round(rounds, &mut life).await;
        rounds += 1;
        assert!(!monitor.is_finished(), "the monitor was not answered");
    }
    let (took, cpu) = (begun.elapsed(), cpu_s(life.process()) - cpu);
    let charged = metric(&home.address, "feedmill_http_charged_total").await;
    let limited = limited(&home.address).await;
    drop(attacks);
    stall.abort();
    monitor.abort();
    let peak = peak_bytes(life.process());
    println!(
        "siege of {took:?}: {rounds} honest rounds, {pages} exact pages, peak {} MiB, {cpu:.1} s of processor, {charged} charged, limited {limited:?}, attackers {:?}",
        peak >> 20,
        field.answers()
    );
    assert!(peak < MEMORY_BYTES, "{peak} bytes");
    // Nobody was served more than its rate allows, a window begun before and one after included.
    let windows = took.as_secs() / RATE_S + 2;
    let served = field.served_most();
    assert!(
        served <= RATE_MAX * windows as usize,
        "{served} in {windows} windows"
    );
    // Nothing is lost, and all of it is right when they have left.
    honest.round(rounds, &mut life).await;
    let status: Value = home.status().await.expect("an answer");
    adds_up(&status["accounting"]);
    assert!(life.end().success());
    camp.network.stop().await;
}
