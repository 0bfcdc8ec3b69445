//! A subscriber that does what it is told always ends with the page.
//!
//! Records, follows, mutes and accounts come, move and go at random. Listeners
//! apply entries and removals, read the feed again on `changed`, are cut off
//! anywhere and come back with any cursor they had and what they knew then.
//! `FEEDMILL_SEED=n` replays one run.

use std::collections::BTreeMap;

use feedmill::store::AccountStatus;
use feedmill::store::batch::Item;
use serde_json::{Value, json};
use sim::rng::Rng;

use crate::mill::Mill;
use crate::subscribe::{EVE, Socket, cursor, follow, listen, next};

const AUTHORS: [&str; 4] = ["did:web:a.test", "did:web:b.test", "did:web:c.test", EVE];
/// Always followed, never hidden: what is told of it ends a round.
const MARK: &str = "did:web:mark.test";
const SETS: [&str; 3] = ["set:a", "set:b", "set:c"];
const FEEDS: [&str; 4] = ["plain", "mixed", "merged", "short"];
const ROUNDS: usize = 12;
const STEPS: usize = 12;

fn config(memory_mib: u32) -> String {
    format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.mute]\ncollection = \"com.example.mute\"\nvalidate = false\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.link]\ncollection = \"com.example.link\"\nvalidate = false\n\
         [feeds.plain]\ntargets = [\"post\"]\nhide = [\"mute\"]\n\
         [feeds.short]\ntargets = [\"post\"]\nhide = [\"mute\"]\nmax_items = 4\nbeyond = \"end\"\n\
         [feeds.mixed]\ntargets = [\"post\", {{ collection = \"link\", keys = [\"author\", \"set\"] }}]\n\
         mixed = true\ninclude_self = true\n\
         [feeds.merged]\ntargets = [{{ collection = \"link\", merge = \"about\", keys = [\"author\", \"set\"], union = [\"set\"] }}]\n\
         hide = [\"mute\"]\n\
         [timelines]\nmemory_mib = {memory_mib}\n\
         [serve]\nlistener_events_max = 10000\n\
         [store]\nurl = \"sqlite::memory:\"\n"
    )
}

/// Entries by what names them, each with what tells one version of it from another.
type Known = BTreeMap<String, Value>;

/// One who listens.
struct Listener {
    feed: &'static str,
    socket: Socket,
    known: Known,
    /// Every cursor it had, with what it knew then.
    had: Vec<(String, Known)>,
}

fn of_record(record: &Value) -> (String, Value) {
    let uri = record["uri"].as_str().unwrap().to_owned();
    (uri, record["time_us"].clone())
}

fn of_activity(activity: &Value) -> (String, Value) {
    let id = activity["id"].as_str().unwrap().to_owned();
    (id, activity["records"].clone())
}

/// The whole feed, page by page.
async fn page(mill: &Mill, feed: &str) -> Known {
    let (method, list, next) = match feed {
        "merged" => ("getFollowingFeed", "activities", "nextCursor"),
        _ => ("getFeed", "records", "cursor"),
    };
    let mut known = Known::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/xrpc/com.example.{method}?feed={feed}&actor={EVE}&limit=50{cursor}");
        let (status, answer) = mill.get(&path).await;
        assert_eq!(status, 200, "{answer}");
        let entries = answer[list].as_array().unwrap().iter();
        known.extend(entries.map(match feed {
            "merged" => of_activity,
            _ => of_record,
        }));
        match answer[next].as_str() {
            Some(more) => cursor = format!("&cursor={more}"),
            None => return known,
        }
    }
}

impl Listener {
    async fn open(mill: &Mill, feed: &'static str) -> Self {
        let mut listener = Self {
            feed,
            socket: listen(mill, feed, None).await,
            known: Known::new(),
            had: Vec::new(),
        };
        assert_eq!(listener.hear(mill).await["type"], "start");
        listener
    }

    /// Takes one message and does what it says.
    async fn hear(&mut self, mill: &Mill) -> Value {
        let message = next(&mut self.socket).await;
        match message["type"].as_str().unwrap() {
            "entry" => {
                let (name, version) = match message.get("activity") {
                    Some(activity) => of_activity(activity),
                    None => of_record(&message["record"]),
                };
                self.known.insert(name, version);
            }
            "removal" => {
                let name = message.get("uri").unwrap_or(&message["id"]);
                self.known.remove(name.as_str().unwrap());
            }
            "start" | "changed" => self.known = page(mill, self.feed).await,
            other => panic!("{other} was not expected: {message}"),
        }
        self.had.push((cursor(&message), self.known.clone()));
        message
    }

    /// Takes a message, cuts the line and comes back as it was at some moment before.
    async fn cut(&mut self, mill: &Mill, rng: &mut Rng) {
        let (cursor, known) = rng.pick(&self.had).unwrap().clone();
        self.hear(mill).await;
        self.socket = listen(mill, self.feed, Some(&cursor)).await;
        self.known = known;
    }

    /// Hears everything up to the mark's going.
    async fn catch_up(&mut self, mill: &Mill, mark: &str) {
        let name = self.name_of(mark);
        loop {
            let message = self.hear(mill).await;
            let gone = message.get("uri").or(message.get("id"));
            if gone.and_then(Value::as_str).is_some_and(&name) {
                break;
            }
        }
        if self.feed == "short" {
            assert_eq!(self.hear(mill).await["type"], "changed");
        }
    }

    /// Whether a removal is that of the mark: a merged feed names a place, which ends in its URI.
    fn name_of(&self, mark: &str) -> impl Fn(&str) -> bool + use<> {
        use base64::Engine as _;
        let (merged, mark) = (self.feed == "merged", mark.to_owned());
        move |name| match merged {
            true => {
                let place = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(name);
                String::from_utf8(place.unwrap()).unwrap().contains(&mark)
            }
            false => name == mark,
        }
    }
}

/// Something happens.
fn step(mill: &Mill, rng: &mut Rng, now: &mut i64) {
    let author = AUTHORS[rng.index(AUTHORS.len())];
    let set = SETS[rng.index(SETS.len())];
    let rkey = rng.below(6).to_string();
    let second = rng.below(3600);
    let time = format!("2026-03-05T10:{:02}:{:02}Z", second / 60, second % 60);
    match rng.below(20) {
        0..=5 => drop(mill.put(author, "post", &rkey, &json!({"createdAt": time}))),
        6..=11 => {
            let about = ["x", "y"][rng.index(2)];
            let body = json!({"about": about, "set": set, "createdAt": time});
            mill.put(author, "link", &rkey, &body);
        }
        12 => drop(mill.delete(author, "post", &rkey)),
        13 => drop(mill.delete(author, "link", &rkey)),
        14 => follow(mill, &rkey, if rng.chance(0.5) { author } else { set }),
        15 => drop(mill.delete(EVE, "follow", &rkey)),
        16 => drop(mill.put(EVE, "mute", &rkey, &json!({"subject": author}))),
        17 => drop(mill.delete(EVE, "mute", &rkey)),
        kind => {
            *now += 1;
            let status = match kind {
                18 => AccountStatus::Takendown,
                _ => AccountStatus::Active,
            };
            stand(mill, author, status, *now);
        }
    }
}

fn stand(mill: &Mill, did: &str, status: AccountStatus, time_us: i64) {
    mill.apply(Item::Account {
        did: did.into(),
        status,
        time_us,
    });
}

async fn run(seed: u64) {
    println!("live oracle: FEEDMILL_SEED={seed}");
    let mut rng = Rng::new(seed);
    let mill = Mill::start(&config(if seed.is_multiple_of(2) { 64 } else { 0 })).await;
    follow(&mill, "mark", MARK);
    follow(&mill, "first", AUTHORS[0]);
    let mut listeners = Vec::new();
    for feed in FEEDS {
        listeners.push(Listener::open(&mill, feed).await);
    }
    let mut now = 1;
    for round in 0..ROUNDS {
        for _ in 0..STEPS {
            step(&mill, &mut rng, &mut now);
        }
        // The reader sees nothing while it is hidden, not even the mark.
        now += 1;
        stand(&mill, EVE, AccountStatus::Active, now);
        let mark = format!("mark{round}");
        let body = json!({"about": mark, "set": "set:mark"});
        for collection in ["post", "link"] {
            mill.put(MARK, collection, &mark, &body);
            mill.delete(MARK, collection, &mark);
        }
        for listener in &mut listeners {
            // What ends the round in the feed.
            let collection = match listener.feed {
                "merged" | "mixed" => "link",
                _ => "post",
            };
            let mark = format!("at://{MARK}/com.example.{collection}/{mark}");
            if rng.chance(0.5) {
                listener.cut(&mill, &mut rng).await;
            }
            listener.catch_up(&mill, &mark).await;
            let expected = page(&mill, listener.feed).await;
            assert_eq!(
                listener.known, expected,
                "seed {seed}, round {round}, feed {}",
                listener.feed
            );
        }
    }
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_does_what_it_is_told_ends_with_the_page() {
    let given = std::env::var("FEEDMILL_SEED").ok();
    match given.and_then(|seed| seed.parse().ok()) {
        Some(seed) => run(seed).await,
        None => {
            for seed in 0..6 {
                run(seed).await;
            }
        }
    }
}
