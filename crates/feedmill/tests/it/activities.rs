//! Activities through the whole river: several writers at once, retries,
//! replays and deletions, restarts; then every reader's feed, asked over HTTP,
//! equals the simulator's model.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use feedmill::local::LocalId;
use reqwest::Method;
use serde_json::{Value, json};
use sim::feed::Entry;
use sim::model::Model;
use sim::rng::Rng;

use crate::app::App;
use crate::merged::{AUTHORS, BASE, READERS, WINDOW, expected, fact, following, some_target, text};
use crate::mill::Mill;
use crate::seeds::seeds;

const WRITERS: u64 = 4;
const ACTS: usize = 60;
const LIVES: u64 = 2;

/// One operation, and what is so once nothing later was written at its place.
#[derive(Debug, Clone)]
struct Act {
    rev: u64,
    did: String,
    short: &'static str,
    rkey: String,
    body: Option<Value>,
}

impl Act {
    fn deliver(&self, mill: &Mill) {
        let Self {
            rev,
            did,
            short,
            rkey,
            body,
        } = self;
        mill.deliver(*rev, did, short, rkey, body.as_ref());
    }
}

/// Writes records that no other writer touches, into groups that all share.
struct Writer<'a> {
    number: u64,
    rng: Rng,
    revs: &'a AtomicU64,
    sent: Vec<Act>,
    model: Model,
}

impl Writer<'_> {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.below(of.len() as u64) as usize]
    }

    /// A second of the window's neighbourhood, and the same as a record tells it.
    fn time(&mut self) -> (i64, String) {
        let second = 10 * self.rng.below(60) as i64;
        (
            second,
            record::datetime::format_us((BASE + second) * 1_000_000),
        )
    }

    fn put(&mut self, did: &str, short: &'static str, rkey: String, body: Option<Value>) {
        let rev = self.revs.fetch_add(1, Ordering::SeqCst);
        let did = did.to_owned();
        self.sent.push(Act {
            rev,
            did,
            short,
            rkey,
            body,
        });
    }

    fn card(&mut self) {
        let author = self.one(&AUTHORS);
        // A card belongs to one writer; its links to everybody.
        let rkey = format!("c{}", self.number % 2);
        if self.number >= 2 {
            return self.link();
        }
        let (second, time) = self.time();
        self.model.put(fact(author, "card", &rkey, second, &[]));
        self.put(author, "card", rkey, Some(json!({"createdAt": time})));
    }

    fn link(&mut self) {
        let author = self.one(&AUTHORS);
        let about = format!("at://{author}/com.example.card/c{}", self.rng.below(2));
        let set = format!("at://did:web:z.test/com.example.set/{}", self.rng.below(4));
        let rkey = format!("l{}-{}", self.number, self.rng.below(6));
        let (second, time) = self.time();
        let body = json!({"createdAt": time, "card": {"uri": about}, "collection": {"uri": set}});
        let says = [("card.uri", &*about), ("collection.uri", &set)];
        self.model.put(fact(author, "link", &rkey, second, &says));
        self.put(author, "link", rkey, Some(body));
    }

    fn delete(&mut self) {
        let Some(gone) = some_target(&self.model, &mut self.rng) else {
            return;
        };
        let short = match gone.collection.ends_with("card") {
            true => "card",
            false => "link",
        };
        self.model.remove(&gone.uri());
        self.put(&gone.did, short, gone.rkey, None);
    }

    fn follow(&mut self) {
        let reader = self.one(&READERS);
        let rkey = format!("f{}-{}", self.number, self.rng.below(2));
        let key = match self.rng.below(2) {
            0 => self.one(&AUTHORS).to_owned(),
            _ => format!("at://did:web:z.test/com.example.set/{}", self.rng.below(4)),
        };
        if self.rng.chance(0.3) {
            let gone = format!("at://{reader}/com.example.follow/{rkey}");
            self.model.remove(&gone);
            self.put(reader, "follow", rkey, None);
        } else {
            let says = [("subject", &*key)];
            self.model.put(fact(reader, "follow", &rkey, 0, &says));
            self.put(reader, "follow", rkey, Some(json!({"subject": key})));
        }
    }

    fn act(&mut self, mill: &Mill) {
        let before = self.sent.len();
        match self.rng.below(10) {
            0..2 => self.card(),
            2..6 => self.link(),
            6..8 => self.delete(),
            _ => self.follow(),
        }
        if let Some(act) = self.sent.get(before) {
            act.deliver(mill);
            if self.rng.chance(0.2) {
                act.deliver(mill); // the answer was lost, so it is tried again
            }
        }
        if self.rng.chance(0.2)
            && let Some(old) = self.rng.pick(&self.sent)
        {
            old.deliver(mill); // a stream is read again from an earlier place
        }
    }
}

async fn page(mill: &Mill, reader: &str, limit: usize, cursor: &str) -> Value {
    let path = format!(
        "/xrpc/com.example.getFollowingFeed?feed=following&actor={reader}&limit={limit}{cursor}"
    );
    let (status, page) = mill.get(&path).await;
    assert_eq!(status, 200, "{page}");
    page
}

fn shown(activity: &Value) -> Entry {
    let texts = |list: &Value, name: Option<&str>| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        let text = |item: &Value| {
            name.map_or(item, |name| &item[name])
                .as_str()
                .map(str::to_owned)
        };
        items.map(|item| text(item).unwrap()).collect()
    };
    Entry {
        time_us: activity["time_us"].as_i64().unwrap(),
        members: texts(&activity["records"], None),
        union: texts(&activity["union"], Some("uri")),
    }
}

async fn whole(mill: &Mill, reader: &str, limit: usize) -> Vec<Entry> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = page(mill, reader, limit, &cursor).await;
        all.extend(page["activities"].as_array().unwrap().iter().map(shown));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// Every reader's feed at several page sizes, once memory has drawn what was written.
async fn compare(mill: &Mill, model: &Model, note: &str) {
    for (reader, limit) in READERS
        .iter()
        .flat_map(|reader| [1, 3, 50].map(|size| (reader, size)))
    {
        let expected = expected(&following(WINDOW, 1000), model, reader);
        let begun = std::time::Instant::now();
        loop {
            let served = whole(mill, reader, limit).await;
            if served == expected {
                break;
            }
            if begun.elapsed().as_secs() > 60 {
                assert_eq!(served, expected, "{note}: {reader} by {limit}");
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// All write at once, while somebody reads; what they wrote in the end.
async fn write(mill: &Mill, writers: &mut [Writer<'_>], acts: usize) {
    let done = AtomicBool::new(false);
    let reading = async {
        while !done.load(Ordering::Relaxed) {
            for reader in READERS {
                let page = page(mill, reader, 50, "").await;
                let activities = page["activities"].as_array().unwrap();
                let times: Vec<i64> = activities.iter().map(|it| shown(it).time_us).collect();
                assert!(times.is_sorted_by(|one, other| one >= other), "{page}");
            }
            tokio::task::yield_now().await;
        }
    };
    let writing = async {
        tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                for writer in writers.iter_mut() {
                    scope.spawn(move || (0..acts).for_each(|_| writer.act(mill)));
                }
            });
        });
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(reading, writing);
}

/// How many entries were compared.
async fn one_world(seed: u64) -> usize {
    let mut compared = 0;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/store.db", folder.path().display());
    let config = format!(
        "{}[timelines]\npull_above = 2\nscan_above = 3\nsync_threshold = 1\n",
        text("2m", &url)
    );
    let revs = AtomicU64::new(1);
    let mut writers: Vec<Writer<'_>> = (0..WRITERS)
        .map(|number| Writer {
            number,
            rng: Rng::new(seed * WRITERS + number),
            revs: &revs,
            sent: Vec::new(),
            model: Model::default(),
        })
        .collect();
    for life in 0..LIVES {
        let note = format!("FEEDMILL_SEED={seed}, life {life}");
        let mill = Mill::start(&config).await;
        write(&mill, &mut writers, ACTS).await;
        let mut model = Model::default();
        for writer in &writers {
            let facts = writer.model.records();
            facts.for_each(|(_, fact)| model.put(fact.clone()));
        }
        let feed = following(WINDOW, 1000);
        let feeds = READERS.iter().map(|it| expected(&feed, &model, it));
        compared += feeds.map(|feed| feed.len()).sum::<usize>();
        compare(&mill, &model, &note).await;
        // All of it once more, in another order: nothing changes.
        for act in writers.iter().rev().flat_map(|writer| &writer.sent) {
            act.deliver(&mill);
        }
        compare(&mill, &model, &format!("{note}, replayed")).await;
        mill.river.stop().await;
    }
    compared
}

#[tokio::test(flavor = "multi_thread")]
async fn what_several_writers_did_at_once_equals_the_model_through_retries_replays_and_restarts() {
    let steps = LIVES * WRITERS * ACTS as u64;
    let (mut worlds, mut compared) = (0, 0);
    for seed in seeds("activities", steps, 10 * steps) {
        worlds += 1;
        compared += one_world(seed).await;
    }
    assert!(
        compared > 10 * worlds,
        "next to nothing: {compared} in {worlds} worlds"
    );
}

#[test]
fn an_activity_of_direct_records_names_the_person_who_wrote_them() {
    let app = App::start(
        "namespace = \"app.photos\"\n\
         [collections.follow]\ncollection = \"app.photos.follow\"\nvalidate = false\ndirect = true\n\
         [collections.post]\ncollection = \"app.photos.post\"\nvalidate = false\ndirect = true\n\
         [feeds.home]\ntargets = [\"post\"]\n\
         [feeds.albums]\ninclude_self = true\ntargets = [{ collection = \"post\", merge = \"album\" }]\n\
         [direct]\nfeed = \"home\"\nopen = true\n[store]\nurl = \"sqlite://store.db\"\n",
    );
    for id in [7, 8] {
        let body = json!({"user_id": 501, "album": "sea", "createdAt": "2026-05-28T10:00:00Z"});
        app.act(Method::PUT, &format!("/records/post/{id}"), body);
    }
    let person = LocalId::Number(501).did();
    let path = format!("/xrpc/app.photos.getFollowingFeed?actor={person}");
    let (status, page) = app.get(&path);
    assert_eq!(status, 200, "{page}");
    let activities = page["activities"].as_array().unwrap();
    assert_eq!(activities.len(), 1, "{page}");
    assert_eq!(activities[0]["user"], json!({"id": person, "handle": null}));
}
