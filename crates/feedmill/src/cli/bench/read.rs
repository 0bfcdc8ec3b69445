//! `bench read`: pages of fifty over HTTP, hydrated and as a skeleton, beside
//! static responses of the same bytes from the same stack.
//!
//! The server is the real one in a process of its own, on a store in a file.
//! Readers are drawn by a Zipf law, records are at least ten times what the
//! record cache holds, and no answer is a 304.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use record::key::SigningKey;
use serde_json::{Value, json};
use sim::rng::{Rng, Wheel};

use super::crowd::Graph;
use super::folder::Folder;
use super::load::{Measured, Served};
use super::meter::middle;
use super::{Ending, Report};
use crate::check::{Checker, Claim};
use crate::clock::Clock;
use crate::config::Config;
use crate::serve::line::{self, Answers};
use crate::store::{self, Batch, Commit, Item, Op};

const ACCOUNTS: f64 = 5_000.0;
const POSTS: f64 = 300_000.0;
const REQUESTS: f64 = 10_000.0;
/// Requests whose tokens were never seen.
const FRESH: usize = 3_000;
/// Short and many: a shared machine disturbs for moments, both sides alike.
const ROUNDS: usize = 32;
/// Records of one transaction while the store is filled.
const BATCH: usize = 5_000;
/// A tenth of what is stored, or less: a post is shown with about 800 bytes.
const CACHED_BYTES: usize = 80;
const FOLLOW: &str = "app.bsky.graph.follow";
const POST: &str = "app.bsky.feed.post";
const US: &str = "did:web:bench.test";
const FEED: &str = "at://did:plc:bench/app.bsky.feed.generator/timeline";
const SKELETON: &str = "app.bsky.feed.getFeedSkeleton";

fn config(store: &Path, directory: &str, cache_mib: usize) -> String {
    format!(
        r#"namespace = "com.example"
[collections.follow]
collection = "{FOLLOW}"
validate = false
[collections.post]
collection = "{POST}"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
publish_as = "{FEED}"
[store]
url = "sqlite://{}"
[intake]
plc_url = "http://{directory}"
host_rate_max = 1000000
[identity]
provoked_rate_max = 1000000
[serve]
bind = "127.0.0.1:0"
service_did = "{US}"
account_rate_max = 1000000000
cache_mib = {cache_mib}
"#,
        store.display()
    )
}

fn did(account: usize) -> String {
    format!("did:plc:bench{account:019}")
}

/// Everything the clients need.
struct World {
    readers: Vec<String>,
    tokens: Vec<String>,
    wheel: Wheel,
    key: SigningKey,
}

impl World {
    fn pick<'a>(&self, rng: &mut Rng, list: &'a [String]) -> &'a str {
        let index = self.wheel.spin(rng).unwrap_or(0);
        list.get(index).map_or("", String::as_str)
    }

    fn hydrated(&self, rng: &mut Rng) -> String {
        let reader = self.pick(rng, &self.readers);
        format!("/xrpc/com.example.getFeed?feed=timeline&actor={reader}&limit=50")
    }

    fn skeleton(&self, rng: &mut Rng) -> String {
        ask_skeleton(self.pick(rng, &self.tokens))
    }

    /// With a token that was never seen and can be used once.
    fn fresh(&self, rng: &mut Rng) -> String {
        let jti = rng.bits().to_string();
        ask_skeleton(&token(&self.key, self.pick(rng, &self.readers), Some(jti)))
    }
}

fn ask_skeleton(token: &str) -> String {
    format!("/xrpc/{SKELETON}?feed={FEED}&limit=50\nauthorization: Bearer {token}\r\n")
}

fn token(key: &SigningKey, reader: &str, jti: Option<String>) -> String {
    let now_s = Clock::Wall.now_us() / 1_000_000;
    let mut claims =
        json!({"iss": reader, "aud": US, "exp": now_s + 3000, "iat": now_s, "lxm": SKELETON});
    if let (Some(jti), Some(claims)) = (jti, claims.as_object_mut()) {
        claims.insert("jti".into(), jti.into());
    }
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!(
        "{}.{}",
        part(&json!({"typ": "JWT", "alg": "ES256K"})),
        part(&claims)
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let folder = Folder::new("read")?;
    let key = SigningKey::k256([7; 32])?;
    let runtime = super::super::runtime()?;
    let directory = runtime.block_on(directory(&key))?;
    let posts = (POSTS * scale).max(5_000.0) as usize;
    let cache_mib = ((posts * CACHED_BYTES) >> 20).max(1);
    let text = config(&folder.join("store.db"), &directory, cache_mib);
    let file = folder.join("feedmill.toml");
    std::fs::write(&file, &text)?;
    let graph = Graph::draw((ACCOUNTS * scale).max(200.0) as usize);
    let stored = fill(&Config::parse(&text)?, &graph, posts)?;
    let served = Served::start(&["serve", &file.display().to_string()])?;
    let readers = full_readers(&served, &graph)?;
    let world = World {
        tokens: readers.iter().map(|did| token(&key, did, None)).collect(),
        wheel: Wheel::new((1..=readers.len()).map(|rank| 1.0 / rank as f64)),
        readers,
        key,
    };
    let count = (REQUESTS * scale).max(2_000.0) as usize;
    served.measure(count, &|rng| world.hydrated(rng))?;
    let mut found = rounds(&folder, &served, &world, count)?;
    found.workload = format!(
        "{stored} posts of {} accounts in a store on disk, cache of {cache_mib} MiB ({} x smaller than the stored records are when shown); {} readers with full pages, drawn by Zipf; {count} requests a round, best of {ROUNDS}",
        graph.follows.len(),
        stored * 800 / (cache_mib << 20).max(1),
        world.readers.len()
    );
    found.notes.push(graph.marginals.clone());
    Ok(found)
}

fn rounds(folder: &Path, served: &Served, world: &World, count: usize) -> Result<Report, Ending> {
    let body = |name: &str, request: &str| -> Result<PathBuf, Ending> {
        let path = folder.join(name);
        std::fs::write(&path, served.once(request)?)?;
        Ok(path)
    };
    let mut rng = Rng::new(1);
    let pages = body("page.json", &world.hydrated(&mut rng))?;
    let skeletons = body("skeleton.json", &world.skeleton(&mut rng))?;
    let baseline = Served::start(&[
        "bench",
        "static",
        "--body",
        &pages.display().to_string(),
        "--body",
        &skeletons.display().to_string(),
    ])?;
    let before = cache(served)?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rounds.push(Round {
            hydrated: served.measure(count, &|rng| world.hydrated(rng))?,
            page: baseline.measure(count, &|_| "/0".into())?,
            skeleton: served.measure(count, &|rng| world.skeleton(rng))?,
            list: baseline.measure(count, &|_| "/1".into())?,
        });
    }
    let after = cache(served)?;
    let fresh = served.measure(FRESH.min(count), &|rng| world.fresh(rng))?;
    let (hits, misses) = (after.0 - before.0, after.1 - before.1);
    report(&rounds, fresh, hits / (hits + misses).max(1.0))
}

/// Ours and static responses, one after the other.
#[derive(Debug, Clone, Copy)]
struct Round {
    hydrated: Measured,
    page: Measured,
    skeleton: Measured,
    list: Measured,
}

/// The cheapest of all rounds.
fn best(rounds: &[Round], of: impl Fn(&Round) -> Measured) -> Option<Measured> {
    rounds
        .iter()
        .map(of)
        .min_by(|one, other| one.cpu_s.total_cmp(&other.cpu_s))
}

fn report(rounds: &[Round], fresh: Measured, hit_rate: f64) -> Result<Report, Ending> {
    let (Some(hydrated), Some(skeleton), Some(page), Some(list)) = (
        best(rounds, |round| round.hydrated),
        best(rounds, |round| round.skeleton),
        best(rounds, |round| round.page),
        best(rounds, |round| round.list),
    ) else {
        return Err("nothing was measured".into());
    };
    let mut report = Report::default();
    let ratio = page.cpu_s / hydrated.cpu_s;
    report.figure("hydrated_per_cpu_s", 1.0 / hydrated.cpu_s);
    report.figure("skeleton_per_cpu_s", 1.0 / skeleton.cpu_s);
    report.figure("skeleton_new_token_per_cpu_s", 1.0 / fresh.cpu_s);
    report.figure("static_page_per_cpu_s", 1.0 / page.cpu_s);
    report.figure("static_skeleton_per_cpu_s", 1.0 / list.cpu_s);
    report.figure("hydrated_bytes", hydrated.bytes as f64);
    report.figure("static_page_bytes", page.bytes as f64);
    report.figure("skeleton_bytes", skeleton.bytes as f64);
    report.figure("record_cache_hit_rate", hit_rate);
    report.ratio("vs_static", ratio);
    report.ratio("skeleton_vs_static", list.cpu_s / skeleton.cpu_s);
    report.ratio(
        "vs_static_middle",
        middle(
            rounds
                .iter()
                .map(|round| round.page.cpu_s / round.hydrated.cpu_s),
        ),
    );
    report.ratio(
        "skeleton_vs_static_middle",
        middle(
            rounds
                .iter()
                .map(|round| round.list.cpu_s / round.skeleton.cpu_s),
        ),
    );
    report.at_least(
        "hydrated pages per CPU-second of the server",
        1.0 / hydrated.cpu_s,
        15_000.0,
    );
    report.at_least(
        "skeletons per CPU-second of the server",
        1.0 / skeleton.cpu_s,
        40_000.0,
    );
    report.at_least("of a static response of the same bytes", ratio, 0.5);
    report.notes.push(
        "the skeleton's tokens come again within five minutes, so their signatures were checked before; skeleton_new_token is with one checked each time".into(),
    );
    report.notes.push(
        "the static response comes over the same connections and, as ours, by no router; it has no limits, CORS, tags, counters or compression"
            .into(),
    );
    report.notes.push(
        "each figure is of its best round; the middle ratios are of all rounds, each beside its own static one".into(),
    );
    Ok(report)
}

/// The server's own count of records found in memory, and not.
fn cache(served: &Served) -> Result<(f64, f64), Ending> {
    let text = String::from_utf8(served.once("/metrics")?)?;
    let count = |result: &str| {
        let name = format!("{}{{result=\"{result}\"}} ", crate::metrics::RECORD_CACHE);
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|number| number.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    Ok((count("hit"), count("miss")))
}

/// Readers with more than a page to read, the first of them to be drawn most.
fn full_readers(served: &Served, graph: &Graph) -> Result<Vec<String>, Ending> {
    let mut readers = Vec::new();
    for (account, follows) in graph.follows.iter().enumerate() {
        if follows.is_empty() {
            continue;
        }
        let reader = did(account);
        let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={reader}&limit=50");
        let page: Value = serde_json::from_slice(&served.once(&path)?)?;
        if page.get("cursor").is_some() {
            readers.push(reader);
        }
    }
    // Who reads much and who follows many are different people.
    let mut rng = Rng::new(99);
    for index in (1..readers.len()).rev() {
        readers.swap(index, rng.below(index as u64 + 1) as usize);
    }
    Ok(readers)
}

/// Puts follows and posts into the store as a source would; returns how many posts.
fn fill(config: &Config, graph: &Graph, posts: usize) -> Result<usize, Ending> {
    let store = store::open(config)?;
    let checker = Checker::new(config, Arc::clone(store.plan()), &[])?;
    let mut rng = Rng::new(7);
    let start_us = 1_760_000_000_000_000i64;
    let mut writers = Vec::with_capacity(posts);
    writers.extend((0..posts).filter_map(|_| graph.writers.spin(&mut rng)));
    let follows = graph
        .follows
        .iter()
        .enumerate()
        .flat_map(|(account, follows)| {
            let subjects = follows.iter().enumerate();
            subjects.map(move |(number, subject)| {
                (
                    account,
                    FOLLOW,
                    format!("f{number}"),
                    json!({"subject": did(*subject as usize)}),
                )
            })
        });
    let written = writers.iter().enumerate().map(|(number, writer)| {
        let time_us = start_us + number as i64 * 200_000;
        (
            *writer,
            POST,
            format!("3k{number:011}"),
            post(number, time_us),
        )
    });
    let mut rev = 0;
    let mut items = Vec::with_capacity(BATCH);
    let mut all = follows.chain(written).peekable();
    while let Some((account, collection, rkey, body)) = all.next() {
        rev += 1;
        items.push(item(&checker, &did(account), collection, rkey, rev, &body));
        if items.len() == BATCH || all.peek().is_none() {
            let batch = Batch {
                source: "bench".into(),
                cursor: Some(rev.cast_signed()),
                now_us: Clock::Wall.now_us(),
                items: std::mem::take(&mut items),
            };
            store.commit(batch)?;
        }
    }
    Ok(writers.len())
}

fn item(
    checker: &Checker,
    did: &str,
    collection: &str,
    rkey: String,
    rev: u64,
    body: &Value,
) -> Item {
    let claim = Claim {
        did,
        collection,
        rkey: &rkey,
        rev,
    };
    let bytes = record::cid::Cid::of_cbor(body.to_string().as_bytes());
    let verdict = checker.json(claim, Some(bytes), &body.to_string());
    Item::Commit(Commit {
        did: did.to_owned(),
        rev,
        chain: None,
        filtered: 0,
        ops: vec![Op {
            collection: collection.to_owned(),
            rkey,
            verdict,
        }],
        frame: Default::default(),
        seq: 0,
        was_held: false,
        live: true,
    })
}

/// A post of the usual size, some of them answers.
fn post(number: usize, time_us: i64) -> Value {
    let words = [
        "the mill",
        "turns",
        "slowly",
        "by the river",
        "and",
        "grinds",
        "what comes",
    ];
    let text: Vec<&str> = (0..14)
        .filter_map(|n| words.get((number * 7 + n * 3) % words.len()).copied())
        .collect();
    let mut post = json!({
        "$type": POST,
        "text": format!("{} {number}", text.join(" ")),
        "langs": ["en"],
        "createdAt": record::datetime::format_us(time_us),
    });
    if number.is_multiple_of(3) {
        let strong = json!({"uri": format!("at://{}/{POST}/3k{:011}", did(number % 100), number / 2), "cid": "bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"});
        if let Some(post) = post.as_object_mut() {
            post.insert("reply".into(), json!({"root": strong, "parent": strong}));
        }
    }
    post
}

/// A directory in which every account signs with one key.
async fn directory(key: &SigningKey) -> Result<String, Ending> {
    let multikey = key.public().to_multikey();
    let answer = move |axum::extract::Path(did): axum::extract::Path<String>| {
        let method = json!({"id": "#atproto", "type": "Multikey", "publicKeyMultibase": multikey});
        let text = json!({"id": did, "verificationMethod": [method]}).to_string();
        async move { ([(header::CONTENT_TYPE, "application/json")], text) }
    };
    let router = Router::new().route("/{did}", get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// The baseline: the bytes of files by their numbers, and nothing else.
struct Files(Vec<Bytes>);

impl Answers for Files {
    async fn answer(&self, request: Request) -> Response {
        let number = request.uri().path().trim_start_matches('/').parse();
        match number.ok().and_then(|number: usize| self.0.get(number)) {
            Some(bytes) => {
                ([(header::CONTENT_TYPE, "application/json")], bytes.clone()).into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

pub(super) fn serve_static(bodies: &[PathBuf]) -> Result<(), Ending> {
    let read = |path: &PathBuf| std::fs::read(path).map(Bytes::from);
    let files = Files(bodies.iter().map(read).collect::<Result<_, _>>()?);
    super::super::runtime()?.block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        super::say(&format!("serving on http://{}/", listener.local_addr()?));
        let settings = crate::config::Serve::default();
        let (_running, stop) = tokio::sync::watch::channel(false);
        line::run(listener, files, &settings, stop).await;
        Ok(())
    })
}
