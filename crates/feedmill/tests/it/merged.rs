//! Merged feeds held against a naive model, from the store and from memory.
//!
//! The model keeps every live record in a list and groups it anew for each
//! question; it shares no line with the engine.

use std::collections::{BTreeMap, BTreeSet};

use feedmill::config::Config;
use feedmill::fanout::{Drawer, Fanout, Wish};
use feedmill::store::batch::Item;
use feedmill::store::{
    AccountStatus, Activity, ActivityFilter, ActivityQuery, FeedQuery, Lens, Position,
};
use sim::rng::Rng;

use crate::desk::Desk;
use crate::seeds::seeds;

const SECOND: i64 = 1_000_000;
/// Steps in one world.
const STEPS: i64 = 250;
pub(crate) const BASE: i64 = 1_780_000_000;
pub(crate) const WINDOW: i64 = 120;
pub(crate) const AUTHORS: [&str; 3] = ["did:web:a.test", "did:web:b.test", "did:web:c.test"];
pub(crate) const READERS: [&str; 3] = ["did:web:x.test", "did:web:y.test", "did:web:a.test"];

pub(crate) fn text(window: &str, url: &str) -> String {
    format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.card]\ncollection = \"com.example.card\"\nvalidate = false\n\
         [collections.link]\ncollection = \"com.example.link\"\nvalidate = false\n\
         [feeds.following]\n\
         targets = [{{ collection = \"card\", merge = \"uri\", where = \"!has(record.note)\" }},\n\
         {{ collection = \"link\", merge = \"card.uri\", keys = [\"author\", \"collection.uri\"], union = [\"collection.uri\"] }}]\n\
         window = \"{window}\"\n\
         [feeds.loose]\ntargets = [{{ collection = \"link\", merge = \"card.uri\", keys = [\"collection.uri\"] }}]\nwindow = \"10m\"\n\
         [[feeds.following.rule]]\nwhen = \"record.source == 'margin'\"\nkeys = [\"author\"]\n\
         [store]\nurl = \"{url}\"\nreaders = 2\n"
    )
}

/// A live record as its writer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) author: String,
    pub(crate) uri: String,
    pub(crate) second: i64,
    pub(crate) about: String,
    pub(crate) keys: Vec<String>,
    pub(crate) adds: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) live: BTreeMap<String, Fact>,
    pub(crate) follows: BTreeMap<(String, String), (String, String)>,
    hidden: BTreeSet<String>,
    /// Of one thing, the oldest so many are merged and each of the others is shown by itself.
    cap: Option<usize>,
}

/// One activity: time, members, union.
pub(crate) type Shown = (i64, Vec<String>, Vec<String>);

impl Model {
    pub(crate) fn feed(&self, reader: &str, window: i64) -> Vec<Shown> {
        let follows: BTreeSet<&String> = self
            .follows
            .iter()
            .filter(|((who, _), _)| who == reader)
            .map(|(_, (_, key))| key)
            .collect();
        let mut things: BTreeMap<(&String, &String), Vec<&Fact>> = BTreeMap::new();
        for fact in self.live.values() {
            things
                .entry((&fact.author, &fact.about))
                .or_default()
                .push(fact);
        }
        let mut shown: Vec<Shown> = Vec::new();
        for ((author, _), mut facts) in things {
            facts.sort_by(|one, other| (one.second, &one.uri).cmp(&(other.second, &other.uri)));
            let mut left = self.cap.unwrap_or(1000);
            while !facts.is_empty() {
                let first = facts[0].second;
                let near = facts
                    .iter()
                    .take_while(|fact| fact.second - first <= window)
                    .count();
                let inside = near.min(left).max(1);
                left = left.saturating_sub(inside);
                let group: Vec<&Fact> = facts.drain(..inside).collect();
                let reached = group
                    .iter()
                    .any(|fact| fact.keys.iter().any(|key| follows.contains(key)));
                if !reached || self.hidden.contains(author) || self.hidden.contains(reader) {
                    continue;
                }
                let mut union: Vec<String> = Vec::new();
                for add in group.iter().filter_map(|fact| fact.adds.clone()) {
                    if !union.contains(&add) {
                        union.push(add);
                    }
                }
                let members: Vec<String> = group.iter().map(|fact| fact.uri.clone()).collect();
                shown.push(((BASE + first) * SECOND, members, union));
            }
        }
        shown.sort_by(|one, other| (other.0, &other.1[0]).cmp(&(one.0, &one.1[0])));
        shown
    }
}

fn shown(activity: &Activity) -> Shown {
    (
        activity.first.time_us,
        activity.members.clone(),
        activity.union.clone(),
    )
}

fn query(desk: &Desk, feed: &str, reader: &str, limit: usize) -> ActivityQuery {
    let feed = desk.store.plan().feed(feed).unwrap();
    ActivityQuery {
        feed: FeedQuery {
            reader: reader.into(),
            lanes: vec![(feed.merged.as_ref().unwrap().lane, None)],
            follows: feed.follows.clone(),
            hides: Vec::new(),
            include_self: false,
            before: None,
            limit,
            lens: Lens::default(),
            scan_max: 100_000,
        },
        filter: ActivityFilter::default(),
        skip: 0,
        count: false,
    }
}

fn from_store(desk: &Desk, reader: &str, limit: usize) -> Vec<Shown> {
    let mut query = query(desk, "following", reader, limit);
    let mut all = Vec::new();
    loop {
        let page = desk.store.activities(&query).unwrap();
        assert!(page.activities.len() <= limit);
        all.extend(page.activities.iter().map(shown));
        match page.next {
            Some(next) => query.feed.before = Some(next),
            None => return all,
        }
    }
}

/// The same from memory; every page must be answered there, because nothing lies below its floor.
fn from_memory(desk: &Desk, fanout: &Fanout, reader: &str, limit: usize) -> Vec<Shown> {
    let lane = desk.store.plan().feed("following").unwrap().targets[0].lane;
    let (mut all, mut before): (Vec<Shown>, Option<Position>) = (Vec::new(), None);
    loop {
        let wish = Wish {
            feed: "following",
            target: Some(0),
            reader,
            before: before.as_ref(),
            limit,
            now_us: desk.now_us(),
            is_incomplete: false,
        };
        let page = fanout
            .groups(&wish)
            .unwrap()
            .expect("memory holds all of it");
        let found = desk.store.activities_at(lane, &page.firsts).unwrap();
        let found = found.expect("nothing moves between");
        all.extend(found.activities.iter().map(shown));
        match page.next {
            Some(next) => before = Some(next),
            None => return all,
        }
    }
}

struct Bed {
    desk: Desk,
    fanout: std::sync::Arc<Fanout>,
    drawer: Drawer,
    model: Model,
    rng: Rng,
    compared: usize,
    /// Every operation that was ever sent, to be sent again.
    sent: Vec<(u64, String, String, String, Option<String>)>,
}

impl Bed {
    fn new(seed: u64, config: Config) -> Self {
        let desk = Desk::of(config);
        let (fanout, drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
            .unwrap()
            .unwrap();
        Self {
            desk,
            fanout,
            drawer,
            model: Model::default(),
            rng: Rng::new(seed),
            compared: 0,
            sent: Vec::new(),
        }
    }

    fn draw(&mut self) {
        while self.drawer.step(self.desk.now_us()).unwrap() {}
    }

    fn send(&mut self, did: &str, short: &str, rkey: &str, body: Option<String>) {
        let rev = self.desk.next_rev();
        self.sent
            .push((rev, did.into(), short.into(), rkey.into(), body));
        self.deliver(self.sent.len() - 1);
    }

    fn deliver(&self, at: usize) {
        let (rev, did, short, rkey, body) = &self.sent[at];
        match body {
            Some(body) => drop(self.desk.put_at(*rev, did, short, rkey, body)),
            None => drop(self.desk.delete_at(*rev, did, short, rkey)),
        }
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.below(of.len() as u64) as usize]
    }

    fn time(&mut self) -> (i64, String) {
        let second = 10 * self.rng.below(90) as i64;
        let moment = BASE + second;
        let days = moment / 86_400;
        // 2026-05-28 is the day that BASE lies in.
        let date = 28 + days - BASE / 86_400;
        let rest = moment % 86_400;
        (
            second,
            format!(
                "2026-05-{date:02}T{:02}:{:02}:{:02}Z",
                rest / 3600,
                rest / 60 % 60,
                rest % 60
            ),
        )
    }

    fn card(author: &str, number: u64) -> String {
        format!("at://{author}/com.example.card/c{number}")
    }

    fn put_card(&mut self) {
        let author = self.one(&AUTHORS).to_owned();
        let rkey = format!("c{}", self.rng.below(2));
        let (second, time) = self.time();
        let note = self.rng.chance(0.2);
        let extra = if note { ",\"note\":1" } else { "" };
        self.send(
            &author,
            "card",
            &rkey,
            Some(format!("{{\"createdAt\":\"{time}\"{extra}}}")),
        );
        let uri = format!("at://{author}/com.example.card/{rkey}");
        self.model.live.remove(&uri);
        if !note {
            let fact = Fact {
                keys: vec![author.clone()],
                author,
                uri: uri.clone(),
                second,
                about: uri.clone(),
                adds: None,
            };
            self.model.live.insert(uri, fact);
        }
    }

    fn put_link(&mut self) {
        let author = self.one(&AUTHORS).to_owned();
        let owner = if self.rng.chance(0.8) {
            author.clone()
        } else {
            self.one(&AUTHORS).to_owned()
        };
        let about = Self::card(&owner, self.rng.below(2));
        let collection = format!("at://did:web:z.test/com.example.set/{}", self.rng.below(4));
        let rkey = format!("l{}", self.rng.below(12));
        let (second, time) = self.time();
        let margin = self.rng.chance(0.2);
        let extra = if margin { ",\"source\":\"margin\"" } else { "" };
        let body = format!(
            "{{\"createdAt\":\"{time}\",\"card\":{{\"uri\":\"{about}\"}},\"collection\":{{\"uri\":\"{collection}\"}}{extra}}}"
        );
        self.send(&author, "link", &rkey, Some(body));
        let uri = format!("at://{author}/com.example.link/{rkey}");
        let mut keys = vec![author.clone()];
        if !margin {
            keys.push(collection.clone());
        }
        self.model.live.insert(
            uri.clone(),
            Fact {
                author,
                uri,
                second,
                about,
                keys,
                adds: Some(collection),
            },
        );
    }

    fn delete(&mut self) {
        let uris: Vec<String> = self.model.live.keys().cloned().collect();
        if uris.is_empty() {
            return;
        }
        let uri = &uris[self.rng.below(uris.len() as u64) as usize];
        let mut parts = uri.strip_prefix("at://").unwrap().split('/');
        let (did, nsid, rkey) = (
            parts.next().unwrap(),
            parts.next().unwrap(),
            parts.next().unwrap(),
        );
        let short = nsid.rsplit('.').next().unwrap();
        self.send(did, short, rkey, None);
        self.model.live.remove(uri);
    }

    fn follow(&mut self) {
        let reader = self.one(&READERS).to_owned();
        let rkey = format!("f{}", self.rng.below(4));
        if self.rng.chance(0.3) {
            self.send(&reader, "follow", &rkey, None);
            self.model.follows.remove(&(reader, rkey));
            return;
        }
        let key = if self.rng.chance(0.5) {
            self.one(&AUTHORS).to_owned()
        } else {
            format!("at://did:web:z.test/com.example.set/{}", self.rng.below(4))
        };
        self.send(
            &reader,
            "follow",
            &rkey,
            Some(format!("{{\"subject\":\"{key}\"}}")),
        );
        self.model
            .follows
            .insert((reader, rkey), (String::new(), key));
    }

    fn stand(&mut self, turn: i64) {
        let did = self.one(&AUTHORS).to_owned();
        let hide = !self.model.hidden.contains(&did) && self.rng.chance(0.3);
        let status = if hide {
            AccountStatus::Takendown
        } else {
            AccountStatus::Active
        };
        self.desk.apply(Item::Account {
            did: did.clone(),
            status,
            time_us: turn + 1,
        });
        if hide {
            self.model.hidden.insert(did);
        } else {
            self.model.hidden.remove(&did);
        }
    }

    fn act(&mut self, turn: i64) {
        match self.rng.below(100) {
            0..25 => self.put_card(),
            25..60 => self.put_link(),
            60..75 => self.delete(),
            75..88 => self.follow(),
            88..92 => self.stand(turn),
            _ if self.sent.is_empty() => {}
            _ => {
                // Again is the same, and older is not newer.
                let at = self.rng.below(self.sent.len() as u64) as usize;
                self.deliver(at);
            }
        }
    }

    fn compare(&mut self, note: &str) {
        let limit = [1, 3, 50][self.rng.below(3) as usize];
        let drawn = self.rng.chance(0.7);
        if drawn {
            self.draw();
        }
        for reader in READERS {
            let expected = self.model.feed(reader, WINDOW);
            self.compared += expected.len();
            assert_eq!(
                from_store(&self.desk, reader, limit),
                expected,
                "{note}: store, {reader} by {limit}"
            );
            if drawn {
                let found = from_memory(&self.desk, &self.fanout, reader, limit);
                assert_eq!(found, expected, "{note}: memory, {reader} by {limit}");
            }
        }
    }
}

#[test]
fn activities_equal_the_naive_model_after_every_step_in_store_and_memory() {
    let (mut worlds, mut compared) = (0, 0);
    for seed in seeds("merged", STEPS as u64, 12 * STEPS as u64) {
        // Some worlds merge so few that most things have more.
        let cap = [None, Some(4), Some(1)][(seed % 3) as usize];
        let mut config = text("2m", "sqlite::memory:");
        if let Some(cap) = cap {
            let capped = format!("window = \"2m\"\nthing_max = {cap}\n");
            config = config.replacen("window = \"2m\"\n", &capped, 1);
        }
        let mut bed = Bed::new(seed, Config::parse(&config).unwrap());
        bed.model.cap = cap;
        for turn in 0..STEPS {
            bed.act(turn);
            bed.compare(&format!("FEEDMILL_SEED={seed}, step {turn}"));
        }
        worlds += 1;
        compared += bed.compared;
    }
    assert!(
        compared > 1000 * worlds,
        "next to nothing: {compared} in {worlds} worlds"
    );
}

#[test]
fn records_beyond_thing_max_are_shown_alone_and_counted() {
    let capped = "window = \"2m\"\nthing_max = 5\n";
    let config = text("2m", "sqlite::memory:").replacen("window = \"2m\"\n", capped, 1);
    let desk = Desk::of(Config::parse(&config).unwrap());
    let follow = format!("{{\"subject\":\"{}\"}}", AUTHORS[0]);
    desk.put(READERS[0], "follow", "1", &follow);
    for second in (0..8).rev() {
        let body = format!(
            "{{\"createdAt\":\"2026-05-28T10:00:0{second}Z\",\"card\":{{\"uri\":\"at://x/y/z\"}}}}"
        );
        desk.put(AUTHORS[0], "link", &format!("l{second}"), &body);
    }
    let members: Vec<usize> = from_store(&desk, READERS[0], 50)
        .iter()
        .map(|(_, members, _)| members.len())
        .collect();
    assert_eq!(members, [1, 1, 1, 5], "the oldest five are one activity");
    assert_eq!(desk.store.counts().unwrap().unmerged, 3);
    desk.delete(AUTHORS[0], "link", "l0");
    assert_eq!(desk.store.counts().unwrap().unmerged, 2);
    assert_eq!(from_store(&desk, READERS[0], 50).len(), 3);
}

#[test]
fn a_filter_of_a_collection_that_there_is_not_is_refused_with_those_there_are() {
    let filter = "[feeds.following.activity.filter]\nkind = { path = \"kind\", of = \"cart\" }\n";
    let config = format!("{}{filter}", text("2m", "sqlite::memory:"));
    let said = Config::parse(&config).unwrap_err().to_string();
    let expected = "feeds.following.activity.filter.kind.of: \"cart\" is not a collection's short name (card, follow, link)";
    assert!(said.contains(expected), "{said}");
    assert!(Config::parse(&config.replace("cart", "card")).is_ok());
}

#[test]
fn a_changed_window_forms_every_group_anew_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/store.db", folder.path().display());
    let mut bed = Bed::new(77, Config::parse(&text("2m", &url)).unwrap());
    for turn in 0..200 {
        bed.act(turn);
    }
    let Bed {
        desk,
        fanout,
        drawer,
        model,
        ..
    } = bed;
    drop((fanout, drawer, desk));
    for (window, seconds) in [("5m", 300), ("30s", 30), ("2m", 120)] {
        let desk = Desk::of(Config::parse(&text(window, &url)).unwrap());
        for reader in READERS {
            assert_eq!(
                from_store(&desk, reader, 50),
                model.feed(reader, seconds),
                "{window}"
            );
        }
    }
}

#[test]
fn a_former_id_is_still_a_place_after_its_record_is_gone() {
    let desk = Desk::of(Config::parse(&text("2m", "sqlite::memory:")).unwrap());
    let at = |minute: u32| format!("{{\"createdAt\":\"2026-05-28T10:{minute:02}:00Z\"}}");
    desk.put(
        READERS[0],
        "follow",
        "1",
        &format!("{{\"subject\":\"{}\"}}", AUTHORS[0]),
    );
    for (rkey, minute) in [("c0", 0), ("c1", 10), ("c2", 20)] {
        desk.put(AUTHORS[0], "card", rkey, &at(minute));
    }
    let mut query = query(&desk, "following", READERS[0], 2);
    let page = desk.store.activities(&query).unwrap();
    query.feed.before = page.next;
    desk.delete(AUTHORS[0], "card", "c1");
    let rest = desk.store.activities(&query).unwrap();
    let uris: Vec<&str> = rest
        .activities
        .iter()
        .map(|it| it.first.rkey.as_str())
        .collect();
    assert_eq!((uris.as_slice(), rest.next), (["c0"].as_slice(), None));
}

#[test]
fn counting_filtering_and_skipping_agree_with_paging() {
    let desk = Desk::of(Config::parse(&text("2m", "sqlite::memory:")).unwrap());
    desk.put(
        READERS[0],
        "follow",
        "1",
        &format!("{{\"subject\":\"{}\"}}", AUTHORS[0]),
    );
    for number in 0..9 {
        let kind = ["article", "video"][number % 2];
        let body = format!(
            "{{\"createdAt\":\"2026-05-28T10:{:02}:00Z\",\"kind\":\"{kind}\"}}",
            number * 5
        );
        desk.put(AUTHORS[0], "card", &format!("c{number}"), &body);
    }
    let mut query = query(&desk, "following", READERS[0], 2);
    query.count = true;
    let kind = feedmill::store::merged::Through {
        of: None,
        path: "kind".into(),
        absent: None,
    };
    query.filter.through = vec![(kind, "article".into())];
    let mut found = Vec::new();
    for page in 0..4 {
        query.skip = page * 2;
        let page = desk.store.activities(&query).unwrap();
        assert_eq!(page.total, Some(5));
        found.extend(page.activities.iter().map(|it| it.first.rkey.clone()));
    }
    assert_eq!(found, ["c8", "c6", "c4", "c2", "c0"]);
}

#[test]
fn a_deleted_account_leaves_no_group_behind() {
    let desk = Desk::of(Config::parse(&text("2m", "sqlite::memory:")).unwrap());
    desk.put(
        READERS[0],
        "follow",
        "1",
        &format!("{{\"subject\":\"{}\"}}", AUTHORS[0]),
    );
    for rkey in ["c0", "c1"] {
        desk.put(
            AUTHORS[0],
            "card",
            rkey,
            "{\"createdAt\":\"2026-05-28T10:00:00Z\"}",
        );
    }
    assert_eq!(from_store(&desk, READERS[0], 5).len(), 2);
    let did = AUTHORS[0].to_owned();
    desk.apply(Item::Account {
        did: did.clone(),
        status: AccountStatus::Deleted,
        time_us: 9,
    });
    assert_eq!(from_store(&desk, READERS[0], 5), []);
    desk.apply(Item::Account {
        did,
        status: AccountStatus::Active,
        time_us: 10,
    });
    assert_eq!(from_store(&desk, READERS[0], 5), []);
}
