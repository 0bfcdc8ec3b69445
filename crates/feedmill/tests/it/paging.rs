//! Paging under every sort, filter and search, with ties, while records
//! arrive, move and go: held against a model that sorts everything anew.
//!
//! A traversal strictly descends; a record that belonged throughout and did
//! not move appears exactly once; one that never belonged never appears. And
//! when nothing happens meanwhile, the pages are the model's, one after another.
//!
//! `seeds.rs` says how many worlds there are.

use std::collections::{BTreeMap, BTreeSet};

use feedmill::check::{Checker, Claim};
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::river::{River, Role, Start};
use feedmill::store::{AccountStatus, Batch, Commit, Item, Op, Verdict};
use serde_json::{Value, json};
use sim::rng::Rng;

use super::question::{AUTHORS, Ask, KINDS, Key, Post, READER, Truth, did};
use super::seeds::seeds;

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.like]
collection = "com.example.like"
validate = false
[collections.fan]
collection = "com.example.fan"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
searchable = ["text"]
[collections.post.queryable]
lang = {}
pinned = { as = "boolean" }
score = { type = "range", as = "number" }
createdAt = { type = "range", as = "time" }
[collections.post.relations.like]
collection = "like"
group_by = "kind"
groups = { up = "thumb", down = "sad" }
[collections.post.relations.fan]
collection = "fan"
field = "subject"
match = "did"
group_by = "kind"
groups = { up = "thumb" }
[collections.post.relations.voice]
collection = "fan"
field = "subject"
match = "did"
count_distinct = "did"
[feeds.timeline]
follow = "follow"
targets = ["post"]
[timelines]
memory_mib = 0
[serve]
bind = "127.0.0.1:0"
"#;

/// Questions asked in one world.
const QUESTIONS: u64 = 40;
/// Steps of one world: a question is about ten, its pages and what happens between them.
const STEPS: u64 = 10 * QUESTIONS;

/// A running server, and what it should say.
struct Run {
    river: River,
    checker: Checker,
    client: reqwest::Client,
    truth: Truth,
    rev: u64,
    names: u64,
}

impl Run {
    async fn start(url: &str) -> Self {
        feedmill::identity::provide_tls();
        let text = format!("{CONFIG}\n[store]\nurl = \"{url}\"\n");
        let config = Config::parse(&text).unwrap();
        let start = Start {
            role: Role::Serve,
            clock: Clock::Wall,
            lexicons: &[],
        };
        let river = River::start(&config, start).await.unwrap();
        let checker = Checker::new(&config, std::sync::Arc::clone(&river.plan), &[]).unwrap();
        Self {
            river,
            checker,
            client: reqwest::Client::new(),
            truth: Truth::default(),
            rev: 0,
            names: 0,
        }
    }

    fn commit(&mut self, item: impl FnOnce(u64) -> Item) {
        self.rev += 1;
        let batch = Batch {
            source: "test".into(),
            cursor: None,
            now_us: 1_800_000_000_000_000,
            items: vec![item(self.rev)],
        };
        self.river.store.commit(batch).unwrap();
    }

    fn write(&mut self, did: &str, collection: &str, rkey: &str, body: Option<&Value>) {
        let rev = self.rev + 1;
        let claim = Claim {
            did,
            collection,
            rkey,
            rev,
        };
        let verdict = match body {
            Some(body) => self.checker.json(claim, None, &body.to_string()),
            None => Verdict::Delete,
        };
        let op = Op {
            collection: collection.into(),
            rkey: rkey.into(),
            verdict,
        };
        self.commit(|rev| {
            Item::Commit(Commit {
                did: did.into(),
                rev,
                chain: None,
                filtered: 0,
                ops: vec![op],
                frame: Default::default(),
                seq: 0,
                was_held: false,
                live: true,
            })
        });
    }

    /// Something happens.
    fn act(&mut self, rng: &mut Rng) {
        let author = rng.below(AUTHORS as u64) as usize;
        match rng.below(100) {
            0..40 => self.post(rng, author),
            40..50 => self.edit(rng),
            50..60 => self.remove(rng),
            60..72 => self.like(rng, author),
            72..84 => self.fan(rng, author),
            84..87 => self.unlike(rng),
            87..90 => self.unfan(rng),
            90..95 => self.follow(author),
            _ => self.hide(author),
        }
    }

    fn post(&mut self, rng: &mut Rng, author: usize) {
        self.names += 1;
        let rkey = format!("p{:03}", (self.names * 7919) % 1000);
        let post = Post::draw(rng, author);
        let did = did(author);
        self.write(&did, "com.example.post", &rkey, Some(&post.body()));
        self.truth
            .posts
            .insert(format!("at://{did}/com.example.post/{rkey}"), post);
    }

    fn pick<T>(rng: &mut Rng, from: &BTreeMap<String, T>) -> Option<String> {
        from.keys()
            .nth(rng.below(from.len() as u64) as usize)
            .cloned()
    }

    fn edit(&mut self, rng: &mut Rng) {
        let Some(uri) = Self::pick(rng, &self.truth.posts) else {
            return;
        };
        let author = self.truth.posts[&uri].author;
        let post = Post::draw(rng, author);
        let rkey = uri.rsplit('/').next().unwrap().to_owned();
        self.write(&did(author), "com.example.post", &rkey, Some(&post.body()));
        self.truth.posts.insert(uri, post);
    }

    fn remove(&mut self, rng: &mut Rng) {
        let Some(uri) = Self::pick(rng, &self.truth.posts) else {
            return;
        };
        let author = self.truth.posts.remove(&uri).unwrap().author;
        let rkey = uri.rsplit('/').next().unwrap().to_owned();
        self.write(&did(author), "com.example.post", &rkey, None);
    }

    fn like(&mut self, rng: &mut Rng, author: usize) {
        // Sometimes of a post that is not there yet, or not any more.
        let Some(uri) = Self::pick(rng, &self.truth.posts) else {
            return;
        };
        let kind = KINDS[rng.below(3) as usize];
        self.names += 1;
        let (rkey, did) = (format!("l{}", self.names), did(author));
        let body = json!({"subject": {"uri": uri}, "kind": kind});
        self.write(&did, "com.example.like", &rkey, Some(&body));
        self.truth.likes.insert(
            format!("at://{did}/com.example.like/{rkey}"),
            (author, uri, kind),
        );
    }

    fn unlike(&mut self, rng: &mut Rng) {
        let Some(uri) = Self::pick(rng, &self.truth.likes) else {
            return;
        };
        let (author, _, _) = self.truth.likes.remove(&uri).unwrap();
        let rkey = uri.rsplit('/').next().unwrap().to_owned();
        self.write(&did(author), "com.example.like", &rkey, None);
    }

    /// One more names an author, perhaps himself.
    fn fan(&mut self, rng: &mut Rng, author: usize) {
        let subject = rng.below(AUTHORS as u64) as usize;
        let kind = KINDS[rng.below(3) as usize];
        self.names += 1;
        let (rkey, own) = (format!("n{}", self.names), did(author));
        let body = json!({"subject": did(subject), "kind": kind});
        self.write(&own, "com.example.fan", &rkey, Some(&body));
        let uri = format!("at://{own}/com.example.fan/{rkey}");
        self.truth.fans.insert(uri, (author, subject, kind));
    }

    fn unfan(&mut self, rng: &mut Rng) {
        let Some(uri) = Self::pick(rng, &self.truth.fans) else {
            return;
        };
        let (author, _, _) = self.truth.fans.remove(&uri).unwrap();
        let rkey = uri.rsplit('/').next().unwrap().to_owned();
        self.write(&did(author), "com.example.fan", &rkey, None);
    }

    fn follow(&mut self, author: usize) {
        let subject = json!({"subject": did(author)});
        let follows = self.truth.followed.insert(author);
        if !follows {
            self.truth.followed.remove(&author);
        }
        let body = follows.then_some(&subject);
        self.write(READER, "com.example.follow", &format!("f{author}"), body);
    }

    fn hide(&mut self, author: usize) {
        let status = match self.truth.hidden.remove(&author) {
            true => AccountStatus::Active,
            false => {
                self.truth.hidden.insert(author);
                AccountStatus::Takendown
            }
        };
        let item = |rev: u64| Item::Account {
            did: did(author),
            status,
            time_us: rev as i64,
        };
        self.commit(item);
    }

    async fn page(&self, query: &str) -> Value {
        let address = self.river.address.unwrap();
        let url = format!("http://{address}/xrpc/com.example.{query}");
        let answer = self.client.get(&url).send().await.unwrap();
        let status = answer.status();
        let page: Value = answer.json().await.unwrap();
        assert_eq!(status, 200, "{query}: {page}");
        page
    }

    /// Pages to the end, with things happening in between; every promise is held.
    async fn traverse(&mut self, rng: &mut Rng, ask: &Ask, busy: bool) {
        let query = ask.query();
        let now = ask.answer(&self.truth);
        let mut always: BTreeMap<String, Key> = now
            .iter()
            .map(|key| (key.uri.clone(), key.clone()))
            .collect();
        let mut ever: BTreeSet<String> = always.keys().cloned().collect();
        let (mut served, mut cursor) = (Vec::<Key>::new(), String::new());
        loop {
            let page = self
                .page(&format!("{query}&limit={}{cursor}", ask.limit))
                .await;
            for record in page["records"].as_array().unwrap() {
                let key = Key {
                    value: ask.by.served(record),
                    time_us: record["time_us"].as_i64().unwrap(),
                    uri: record["uri"].as_str().unwrap().to_owned(),
                };
                if let Some(last) = served.last() {
                    assert!(
                        ask.compare(last, &key).is_lt(),
                        "{query}: {key:?} after {last:?}"
                    );
                }
                served.push(key);
            }
            let Some(next) = page["cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
            if busy {
                for _ in 0..rng.below(4) {
                    self.act(rng);
                    let now = ask.answer(&self.truth);
                    always.retain(|_, key| now.contains(key));
                    ever.extend(now.into_iter().map(|key| key.uri));
                }
            }
        }
        if !busy {
            assert_eq!(served, now, "{query}");
        }
        for key in always.values() {
            let times = served.iter().filter(|one| *one == key).count();
            assert_eq!(times, 1, "{query}: {key:?}\n{served:#?}");
        }
        for key in &served {
            assert!(ever.contains(&key.uri), "{query}: {key:?} never belonged");
        }
    }
}

async fn one_run(seed: u64, url: &str) {
    let mut rng = Rng::new(seed);
    let mut run = Run::start(url).await;
    for author in 0..AUTHORS {
        run.post(&mut rng, author);
    }
    run.follow(0);
    run.follow(1);
    for _ in 0..120 {
        run.act(&mut rng);
    }
    for turn in 0..QUESTIONS {
        let ask = Ask::draw(&mut rng);
        run.traverse(&mut rng, &ask, turn % 2 == 0).await;
        for _ in 0..rng.below(6) {
            run.act(&mut rng);
        }
    }
    run.river.stop().await;
}

#[test]
fn every_order_filter_and_search_pages_exactly_while_records_arrive() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for seed in seeds("paging", STEPS, 30 * STEPS) {
        let folder = tempfile::tempdir().unwrap();
        let url = match seed % 2 {
            0 => format!("sqlite://{}", folder.path().join("store.db").display()),
            _ => "sqlite::memory:".to_owned(),
        };
        runtime.block_on(one_run(seed, &url));
    }
}
