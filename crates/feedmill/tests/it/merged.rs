//! Merged feeds held against the simulator's model after every step, from the
//! store and from memory.

use feedmill::config::Config;
use feedmill::fanout::{Drawer, Fanout, Wish};
use feedmill::store::batch::Item;
use feedmill::store::{
    AccountStatus, Activity, ActivityFilter, ActivityQuery, FeedQuery, Lens, Position,
};
use sim::feed::{Entry, Feed, Key, Merge, Merging, Rule, Target};
use sim::model::{Fact, Fields, Model, Standing};
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

/// The feed `following` of that text, as the model has it.
pub(crate) fn following(window_s: i64, thing_max: usize) -> Feed {
    let card = Target {
        holds: |card| card.text("note").is_none(),
        merge: Some(Merge::OwnUri),
        ..Target::of("com.example.card")
    };
    let link = Target {
        keys: vec![Key::Author, Key::Field("collection.uri")],
        merge: Some(Merge::Field("card.uri")),
        union: vec!["collection.uri"],
        ..Target::of("com.example.link")
    };
    Feed {
        merging: Some(Merging {
            window_us: window_s * SECOND,
            thing_max,
        }),
        rules: vec![Rule {
            when: |record| record.text("source") == Some("margin"),
            keys: vec![Key::Author],
        }],
        ..Feed::of("com.example.follow", vec![card, link])
    }
}

/// A live record as its writer knows it.
pub(crate) fn fact(
    did: &str,
    short: &str,
    rkey: &str,
    second: i64,
    says: &[(&'static str, &str)],
) -> Fact {
    let says = says.iter();
    Fact {
        did: did.to_owned(),
        collection: format!("com.example.{short}"),
        rkey: rkey.to_owned(),
        cid: String::new(),
        created_us: Some((BASE + second) * SECOND),
        sound: true,
        fields: Some(
            says.map(|(path, text)| (*path, vec![(*text).to_owned()]))
                .collect::<Fields>(),
        ),
    }
}

/// A reader's whole feed by the model; every record has a time of its own.
pub(crate) fn expected(feed: &Feed, model: &Model, reader: &str) -> Vec<Entry> {
    feed.all(model, reader, &|_| i64::MAX)
}

/// A live card or link, drawn at random.
pub(crate) fn some_target(model: &Model, rng: &mut Rng) -> Option<Fact> {
    let facts = model.records().map(|(_, fact)| fact);
    let facts = facts.filter(|fact| fact.collection != "com.example.follow");
    rng.pick(&facts.collect::<Vec<_>>())
        .map(|fact| (*fact).clone())
}

fn shown(activity: &Activity) -> Entry {
    Entry {
        time_us: activity.first.time_us,
        members: activity.members.clone(),
        union: activity.union.clone(),
    }
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

fn from_store(desk: &Desk, reader: &str, limit: usize) -> Vec<Entry> {
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
fn from_memory(desk: &Desk, fanout: &Fanout, reader: &str, limit: usize) -> Vec<Entry> {
    let lane = desk.store.plan().feed("following").unwrap().targets[0].lane;
    let (mut all, mut before): (Vec<Entry>, Option<Position>) = (Vec::new(), None);
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
    feed: Feed,
    model: Model,
    rng: Rng,
    compared: usize,
    /// Every operation that was ever sent, to be sent again.
    sent: Vec<(u64, String, String, String, Option<String>)>,
}

impl Bed {
    fn new(seed: u64, config: Config, feed: Feed) -> Self {
        let desk = Desk::of(config);
        let (fanout, drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
            .unwrap()
            .unwrap();
        Self {
            desk,
            fanout,
            drawer,
            feed,
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
        let says: &[(&'static str, &str)] = if note { &[("note", "1")] } else { &[] };
        self.model.put(fact(&author, "card", &rkey, second, says));
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
        let mut says = vec![("card.uri", &*about), ("collection.uri", &collection)];
        if margin {
            says.push(("source", "margin"));
        }
        self.model.put(fact(&author, "link", &rkey, second, &says));
    }

    fn delete(&mut self) {
        let Some(gone) = some_target(&self.model, &mut self.rng) else {
            return;
        };
        let short = gone.collection.rsplit('.').next().unwrap();
        self.send(&gone.did, short, &gone.rkey, None);
        self.model.remove(&gone.uri());
    }

    fn follow(&mut self) {
        let reader = self.one(&READERS).to_owned();
        let rkey = format!("f{}", self.rng.below(4));
        if self.rng.chance(0.3) {
            self.send(&reader, "follow", &rkey, None);
            let gone = format!("at://{reader}/com.example.follow/{rkey}");
            self.model.remove(&gone);
            return;
        }
        let key = if self.rng.chance(0.5) {
            self.one(&AUTHORS).to_owned()
        } else {
            format!("at://did:web:z.test/com.example.set/{}", self.rng.below(4))
        };
        let body = format!("{{\"subject\":\"{key}\"}}");
        self.send(&reader, "follow", &rkey, Some(body));
        let says = [("subject", &*key)];
        self.model.put(fact(&reader, "follow", &rkey, 0, &says));
    }

    fn stand(&mut self, turn: i64) {
        let did = self.one(&AUTHORS).to_owned();
        let hide = !self.model.standing(&did).hides() && self.rng.chance(0.3);
        let (status, standing) = match hide {
            true => (AccountStatus::Takendown, Standing::Takendown),
            false => (AccountStatus::Active, Standing::Active),
        };
        self.model.stand(&did, standing);
        self.desk.apply(Item::Account {
            did,
            status,
            time_us: turn + 1,
        });
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
            let expected = expected(&self.feed, &self.model, reader);
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
        let feed = following(WINDOW, cap.unwrap_or(1000));
        let mut bed = Bed::new(seed, Config::parse(&config).unwrap(), feed);
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
        .map(|entry| entry.members.len())
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
    let config = Config::parse(&text("2m", &url)).unwrap();
    let mut bed = Bed::new(77, config, following(WINDOW, 1000));
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
                expected(&following(seconds, 1000), &model, reader),
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
