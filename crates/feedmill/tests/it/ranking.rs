//! A store whose records are sorted by how many children name their author,
//! and a model of it that sorts everything anew at every question.

use std::collections::{BTreeMap, BTreeSet};

use feedmill::config::collection::Match;
use feedmill::store::batch::Item;
use feedmill::store::page::{CountMin, Rung, Sort};
use feedmill::store::plan::LaneId;
use feedmill::store::{AccountStatus, FeedQuery, Lens, ListQuery, Page, Position};
use serde_json::json;
use sim::rng::Rng;

use crate::desk::Desk;

const POST: &str = "com.example.post";
pub(crate) const READER: &str = "did:web:reader.test";
const FEEDS: [&str; 4] = ["timeline", "open", "about", "brief"];
const BRIEF: usize = 7;

pub(crate) const COLLECTIONS: &str = r#"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.fan]
collection = "com.example.fan"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[feeds.timeline]
targets = ["post"]
[feeds.open]
targets = [{ collection = "post", where = "record.open" }]
[feeds.about]
targets = [{ collection = "post", keys = ["author", "about"] }]
[feeds.brief]
targets = ["post"]
max_items = 7
beyond = "end"
"#;

pub(crate) const RELATION: &str = r#"
[collections.post.relations.fan]
collection = "fan"
field = "subject"
match = "did"
"#;

/// The same children, where they name records.
pub(crate) const ANSWER: &str = r#"
[collections.post.relations.answer]
collection = "fan"
field = "subject"
"#;

pub(crate) fn author(number: usize) -> String {
    format!("did:web:a{number:02}.test")
}

#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) author: usize,
    pub(crate) about: usize,
    pub(crate) open: bool,
    pub(crate) second: i64,
}

impl Post {
    pub(crate) fn draw(rng: &mut Rng, authors: usize) -> Self {
        Self {
            author: rng.index(authors),
            about: rng.index(authors),
            open: rng.chance(0.6),
            second: rng.below(12) as i64,
        }
    }

    fn body(&self) -> String {
        let time = format!("2026-01-01T00:00:{:02}.000Z", self.second);
        json!({"about": author(self.about), "open": self.open, "createdAt": time}).to_string()
    }
}

/// Where a record stands, least first: value, then time and URI.
type Key = (i64, i64, String);

/// A store, and what is true of it.
pub(crate) struct World {
    pub(crate) desk: Desk,
    authors: usize,
    /// By record key.
    posts: BTreeMap<String, Post>,
    /// By record key: who names whom.
    pub(crate) fans: BTreeMap<String, (usize, usize)>,
    hidden: BTreeSet<usize>,
    followed: BTreeSet<usize>,
    names: usize,
}

impl World {
    pub(crate) fn new(desk: Desk, authors: usize) -> Self {
        Self {
            desk,
            authors,
            posts: BTreeMap::new(),
            fans: BTreeMap::new(),
            hidden: BTreeSet::new(),
            followed: BTreeSet::new(),
            names: 0,
        }
    }

    /// The same on a desk that is opened when this one is closed.
    pub(crate) fn reopened(self, open: impl FnOnce() -> Desk) -> Self {
        drop(self.desk);
        let desk = open();
        Self { desk, ..self }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        // Not in the order of arrival.
        format!("r{:04}", self.names * 7919 % 10_000)
    }

    pub(crate) fn post(&mut self, post: Post) {
        let rkey = self.name();
        let body = post.body();
        self.desk.put(&author(post.author), "post", &rkey, &body);
        self.posts.insert(rkey, post);
    }

    pub(crate) fn fan(&mut self, from: usize, to: usize) {
        let rkey = self.name();
        let body = json!({"subject": author(to)}).to_string();
        self.desk.put(&author(from), "fan", &rkey, &body);
        self.fans.insert(rkey, (from, to));
    }

    pub(crate) fn unfan(&mut self, rng: &mut Rng) {
        let rkeys: Vec<String> = self.fans.keys().cloned().collect();
        if let Some(rkey) = rng.pick(&rkeys) {
            let (from, _) = self.fans.remove(rkey).unwrap();
            self.desk.delete(&author(from), "fan", rkey);
        }
    }

    /// His child names another from now on.
    fn turn(&mut self, rng: &mut Rng) {
        let rkeys: Vec<String> = self.fans.keys().cloned().collect();
        let to = rng.index(self.authors);
        if let Some(rkey) = rng.pick(&rkeys) {
            let from = self.fans[rkey].0;
            let body = json!({"subject": author(to)}).to_string();
            self.desk.put(&author(from), "fan", rkey, &body);
            self.fans.insert(rkey.clone(), (from, to));
        }
    }

    pub(crate) fn follow(&mut self, subject: usize) {
        let body = json!({"subject": author(subject)}).to_string();
        self.desk
            .put(READER, "follow", &format!("f{subject}"), &body);
        self.followed.insert(subject);
    }

    pub(crate) fn says(&mut self, account: usize, status: AccountStatus) {
        let time_us = self.desk.next_rev() as i64;
        self.desk.apply(Item::Account {
            did: author(account),
            status,
            time_us,
        });
        match status.visible() {
            true => self.hidden.remove(&account),
            false => self.hidden.insert(account),
        };
        if status == AccountStatus::Deleted {
            self.posts.retain(|_, post| post.author != account);
            self.fans.retain(|_, (from, _)| *from != account);
        }
    }

    /// Something happens.
    pub(crate) fn act(&mut self, rng: &mut Rng) {
        let (one, other) = (rng.index(self.authors), rng.index(self.authors));
        match rng.below(100) {
            0..25 => self.post(Post::draw(rng, self.authors)),
            25..70 => self.fan(one, other),
            70..82 => self.unfan(rng),
            82..88 => self.turn(rng),
            88..90 => self.says(one, AccountStatus::Deleted),
            90..95 => self.says(one, AccountStatus::Takendown),
            _ => self.says(one, AccountStatus::Active),
        }
    }

    fn value(&self, account: usize) -> i64 {
        let fans = self.fans.values();
        let fans = fans.filter(|(from, to)| *to == account && !self.hidden.contains(from));
        fans.count() as i64
    }

    /// Everything that passes, sorted anew.
    fn expected(&self, descending: bool, passes: impl Fn(&Post) -> bool) -> Vec<Key> {
        let posts = self.posts.iter();
        let mut keys: Vec<Key> = posts
            .filter(|(_, post)| !self.hidden.contains(&post.author) && passes(post))
            .map(|(rkey, post)| {
                let time_us = 1_767_225_600_000_000 + post.second * 1_000_000;
                let uri = self.desk.uri(&author(post.author), "post", rkey);
                (self.value(post.author), time_us, uri)
            })
            .collect();
        sort(&mut keys, descending);
        keys
    }

    fn expected_feed(&self, feed: &str, descending: bool) -> Vec<Key> {
        let follows = |post: &Post| self.followed.contains(&post.author);
        let mut keys = match feed {
            "open" => self.expected(descending, |post| follows(post) && post.open),
            "about" => self.expected(descending, |post| {
                follows(post) || self.followed.contains(&post.about)
            }),
            _ => self.expected(descending, follows),
        };
        if feed == "brief" {
            keys.sort_by(|a, b| (b.1, &b.2).cmp(&(a.1, &a.2)));
            keys.truncate(BRIEF);
            sort(&mut keys, descending);
        }
        keys
    }

    fn lane(&self) -> LaneId {
        let relations = &self.desk.store.plan().relations[POST];
        relations.first().unwrap().lane
    }

    pub(crate) fn lens(&self, descending: bool, from: Option<Rung>) -> Lens {
        let plan = self.desk.store.plan();
        Lens {
            sort: Some(Sort {
                ladder: plan.count_ladder(POST, self.lane(), Match::Did).unwrap(),
                descending,
                from,
            }),
            ..Lens::default()
        }
    }

    pub(crate) fn list(
        &self,
        did: Option<String>,
        lens: Lens,
        before: Option<Position>,
        way: Way,
    ) -> Page {
        let query = ListQuery {
            lane: self.desk.store.plan().listing(POST).unwrap(),
            did,
            before,
            limit: way.limit,
            lens,
            scan_max: way.scan_max,
        };
        self.desk.store.list(&query).unwrap()
    }

    fn feed(&self, name: &str, lens: Lens, before: Option<Position>, way: Way) -> Page {
        let plan = self.desk.store.plan().feed(name).unwrap();
        let lanes = plan.targets.iter();
        let query = FeedQuery {
            reader: READER.into(),
            lanes: lanes
                .map(|it| (it.lane, plan.end.then_some(it.max_items as usize)))
                .collect(),
            follows: plan.follows.clone(),
            hides: Vec::new(),
            include_self: false,
            before,
            limit: way.limit,
            lens,
            scan_max: way.scan_max,
        };
        self.desk.store.feed(&query).unwrap()
    }

    /// Pages to the end, which must be the model's, one after another.
    #[track_caller]
    fn check(&self, way: Way, expected: &[Key], page: impl Fn(Lens, Option<Position>) -> Page) {
        let (mut found, mut from, mut before) = (Vec::new(), None, None);
        // No page may stand still.
        for _ in 0..=(self.posts.len() + self.authors) * (self.authors + 2) {
            let page = page(self.lens(way.descending, from), before);
            assert!(page.rows.len() <= way.limit);
            found.extend(page.rows.into_iter().map(|row| (row.time_us, row.uri)));
            (from, before) = (page.next_rung, page.next);
            if before.is_none() {
                let keys = expected.iter();
                let keys: Vec<(i64, String)> = keys.map(|it| (it.1, it.2.clone())).collect();
                assert_eq!(found, keys, "{way:?}");
                return;
            }
        }
        panic!("{way:?}: the pages have no end, after {found:?}");
    }

    /// Every list and every feed, up and down.
    #[track_caller]
    pub(crate) fn check_all(&self, limit: usize, scan_max: usize) {
        for descending in [false, true] {
            let way = Way {
                descending,
                limit,
                scan_max,
            };
            let all = self.expected(descending, |_| true);
            self.check(way, &all, |lens, before| self.list(None, lens, before, way));
            let own = self.expected(descending, |post| post.author == 1);
            self.check(way, &own, |lens, before| {
                self.list(Some(author(1)), lens, before, way)
            });
            let named = self.expected(descending, |post| self.value(post.author) >= 2);
            self.check(way, &named, |mut lens, before| {
                let (lane, by, min) = (self.lane(), Match::Did, 2);
                lens.counts = vec![CountMin { lane, by, min }];
                self.list(None, lens, before, way)
            });
            for feed in FEEDS {
                let all = self.expected_feed(feed, descending);
                self.check(way, &all, |lens, before| self.feed(feed, lens, before, way));
            }
        }
    }
}

/// How a list is paged through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) descending: bool,
    pub(crate) limit: usize,
    pub(crate) scan_max: usize,
}

fn sort(keys: &mut [Key], descending: bool) {
    keys.sort_by(|a, b| {
        let values = match descending {
            true => b.0.cmp(&a.0),
            false => a.0.cmp(&b.0),
        };
        values.then_with(|| (b.1, &b.2).cmp(&(a.1, &a.2)))
    });
}
