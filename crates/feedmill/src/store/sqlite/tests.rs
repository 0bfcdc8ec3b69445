//! What pages cost, in steps: the same however many records there are.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::config::Config;
use crate::config::collection::Match;
use crate::effort;
use crate::store::batch::{Batch, Commit, Item, Op, Put, Verdict};
use crate::store::filter::{Field, Filter, Operand, Test};
use crate::store::ladder::Steps;
use crate::store::page::{CountMin, FeedQuery, Lens, ListQuery, Position, Sort};
use crate::store::{self, Outbox, Plan, ReferrerQuery, SharedStore};

const POST: &str = "com.example.post";
const LIKE: &str = "com.example.like";
const FOLLOW: &str = "com.example.follow";
const READER: &str = "did:plc:reader";
const AUTHORS: i64 = 20;
const BEGUN_US: i64 = 1_790_000_000_000_000;
const LIMIT: usize = 20;

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.like]
collection = "com.example.like"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[collections.post.queryable]
lang = {}
score = { type = "range", as = "number" }
[collections.post.relations.like]
collection = "like"
[collections.post.relations.follower]
collection = "follow"
field = "subject"
match = "did"
[feeds.timeline]
follow = "follow"
targets = ["post"]
[store]
url = "sqlite::memory:"
"#;

fn did(author: i64) -> String {
    format!("did:plc:author{author}")
}

fn uri(number: i64) -> String {
    format!("at://{}/{POST}/p{number:06}", did(number % AUTHORS))
}

/// A store of so many posts, each with two likes, and a reader who follows half of their authors.
struct World {
    store: SharedStore,
    posts: i64,
}

impl World {
    fn new(posts: i64) -> Self {
        let store = store::open(&Config::parse(CONFIG).unwrap()).unwrap();
        let world = Self { store, posts };
        let follows = (0..AUTHORS).step_by(2).map(|author| {
            let body = format!("{{\"subject\":\"{}\"}}", did(author));
            world.item(READER, FOLLOW, format!("f{author}"), body, author)
        });
        world.commit(follows.collect());
        let mut items = Vec::new();
        for number in 0..posts {
            let lang = if number % 10 == 7 { "rare" } else { "usual" };
            let body = format!("{{\"lang\":\"{lang}\",\"score\":{}}}", number % 997);
            let author = did(number % AUTHORS);
            items.push(world.item(&author, POST, format!("p{number:06}"), body, number));
            for fan in [1, 2] {
                let body = format!("{{\"subject\":{{\"uri\":\"{}\"}}}}", uri(number));
                let fan = did((number + fan) % AUTHORS);
                items.push(world.item(&fan, LIKE, format!("l{number:06}"), body, number));
            }
            if number % 200 == 199 {
                world.commit(std::mem::take(&mut items));
            }
        }
        world
    }

    fn item(&self, did: &str, nsid: &str, rkey: String, body: String, number: i64) -> Item {
        let value = record::json::from_json(&body).unwrap();
        let derived = self.store.plan().derive(nsid, did, &value);
        let linked = value.at("subject.uri").is_some();
        let links = linked.then(|| ("subject.uri".to_owned(), uri(number)));
        Item::Commit(Commit {
            did: did.into(),
            rev: 1_000 + number.unsigned_abs(),
            chain: None,
            filtered: 0,
            ops: vec![Op {
                collection: nsid.into(),
                rkey,
                verdict: Verdict::Put(Put {
                    cid: None,
                    seen_us: None,
                    body: body.clone(),
                    time_us: Some(BEGUN_US + number * 1_000_000),
                    links: links.into_iter().collect(),
                    derived,
                }),
            }],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        })
    }

    fn commit(&self, items: Vec<Item>) {
        let batch = Batch {
            source: "test".into(),
            cursor: None,
            now_us: BEGUN_US,
            items,
        };
        self.store.commit(batch).unwrap();
    }

    fn list(&self, did: Option<String>, before: Option<Position>, lens: Lens) -> u64 {
        let query = ListQuery {
            lane: self.store.plan().listing(POST).unwrap(),
            did,
            before,
            limit: LIMIT,
            lens,
            scan_max: 2_000,
        };
        let (steps, page) = effort::of(|| self.store.list(&query).unwrap());
        assert_eq!(page.rows.len(), LIMIT);
        steps
    }

    /// The place in the middle of all posts.
    fn middle(&self) -> Position {
        let number = self.posts / 2;
        Position {
            time_us: BEGUN_US + number * 1_000_000,
            uri: uri(number),
        }
    }

    fn sorted_by(&self, steps: impl Fn(&Steps) -> bool) -> Lens {
        Lens {
            sort: Some(Sort {
                ladder: self.store.plan().ladder(POST, steps).unwrap(),
                descending: true,
                from: None,
            }),
            ..Lens::default()
        }
    }

    /// By how many follow the author: half of them one, the others nobody.
    fn by_followers(&self, descending: bool) -> Lens {
        let (plan, lane) = (self.store.plan(), self.children_of("follower"));
        Lens {
            sort: Some(Sort {
                ladder: plan.count_ladder(POST, lane, Match::Did).unwrap(),
                descending,
                from: None,
            }),
            ..Lens::default()
        }
    }

    fn children_of(&self, name: &str) -> store::plan::LaneId {
        let mut relations = self.store.plan().relations[POST].iter();
        relations.find(|it| it.name == name).unwrap().lane
    }

    fn likes(&self) -> store::plan::LaneId {
        self.children_of("like")
    }

    fn feed(&self, before: Option<Position>) -> u64 {
        let feed = self.store.plan().feed("timeline").unwrap();
        let query = FeedQuery {
            lens: Lens::default(),
            reader: READER.into(),
            lanes: feed.targets.iter().map(|it| (it.lane, None)).collect(),
            follows: feed.follows.clone(),
            hides: Vec::new(),
            include_self: false,
            before,
            limit: LIMIT,
            scan_max: 2_000,
        };
        let (steps, page) = effort::of(|| self.store.feed(&query).unwrap());
        assert_eq!(page.rows.len(), LIMIT);
        steps
    }

    /// Every kind of page, by name, with what it costs.
    fn costs(&self) -> Vec<(&'static str, u64)> {
        let lens = Lens::default;
        let rare = || Lens {
            filters: vec![Filter::Field(Field {
                path: "lang".into(),
                test: Test::Equal,
                operand: Operand::parse("rare", None).unwrap(),
            })],
            ..Lens::default()
        };
        let liked = Lens {
            counts: vec![CountMin {
                lane: self.likes(),
                by: Match::Uri,
                min: 2,
            }],
            ..Lens::default()
        };
        let by_score =
            self.sorted_by(|steps| matches!(steps, Steps::Field { path, .. } if path == "score"));
        let by_likes = self.sorted_by(|steps| matches!(steps, Steps::Count { .. }));
        let one = uri(self.posts / 3);
        let referrers = ReferrerQuery {
            uri: one.clone(),
            path: None,
            before: None,
            limit: LIMIT,
        };
        let store = &self.store;
        let parents = [one.clone()];
        let children = effort::of(|| store.children(self.likes(), &parents, 5).unwrap());
        assert_eq!(children.1.first().map(|children| children.count), Some(2));
        let referring = effort::of(|| store.referrers(&referrers).unwrap());
        assert_eq!(referring.1.len(), 2);
        let (record, found) = effort::of(|| store.record(&one).unwrap());
        assert!(found.is_some());
        vec![
            ("the newest", self.list(None, None, lens())),
            (
                "a page far down",
                self.list(None, Some(self.middle()), lens()),
            ),
            ("one author's", self.list(Some(did(3)), None, lens())),
            ("one value's", self.list(None, None, rare())),
            ("those with children", self.list(None, None, liked)),
            ("by a field", self.list(None, None, by_score)),
            ("by children", self.list(None, None, by_likes)),
            (
                "by followers of the author",
                self.list(None, None, self.by_followers(true)),
            ),
            (
                "by followers, from nobody",
                self.list(None, None, self.by_followers(false)),
            ),
            (
                "one author's by followers",
                self.list(Some(did(4)), None, self.by_followers(true)),
            ),
            ("a feed", self.feed(None)),
            ("a feed far down", self.feed(Some(self.middle()))),
            ("children", children.0),
            ("referrers", referring.0),
            ("one record", record),
        ]
    }
}

/// Each index is there because one of these would walk the table without it.
#[test]
fn no_page_costs_more_as_the_store_grows() {
    let (small, large) = (World::new(1_400).costs(), World::new(5_600).costs());
    for ((what, small), (_, large)) in small.into_iter().zip(large) {
        effort::is_flat(what, small, large);
    }
}

/// Pages of the store may be slow, and hold every connection of theirs. The timelines are drawn all
/// the same.
#[test]
fn who_draws_waits_for_no_reader() {
    let config = Config::parse(CONFIG).unwrap();
    let store = super::SqliteStore::open(&config.store, Plan::new(&config)).unwrap();
    let store = &store;
    let readers = config.store.readers.get();
    let (reading, released) = (Barrier::new(readers + 1), Barrier::new(readers + 1));
    let (drawn, told) = channel();
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                store.read(|_| {
                    reading.wait();
                    released.wait();
                    Ok(())
                })
            });
        }
        reading.wait();
        scope.spawn(move || drawn.send(store.draw(0, 10).is_ok()));
        // Long enough for a machine that is asleep; it would wait for ever.
        let told = told.recv_timeout(Duration::from_secs(60));
        released.wait();
        assert_eq!(told, Ok(true));
    });
}
