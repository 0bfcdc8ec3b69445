//! The oracle: served feeds held against the simulator's naive model.
//!
//! In:    a simulated network, and the address of a Feedmill that has read it.
//! Out:   how many feeds differ from what brute force gives.
//! Never: a look into the engine: it asks over HTTP, as a reader would.
//!
//! The demo and the tests share it, so a newcomer's first command and the
//! long runs check the same thing.

use std::collections::HashMap;

use serde_json::Value;
use sim::compose::{FOLLOW, LANGUAGES, ODD, POST, WORDS};
use sim::model::{Direction, Entry, Question, Rules};
use sim::network::Network;
use sim::rng::Rng;

use crate::clock::Micros;

/// Page sizes, by turns.
const LIMITS: [usize; 4] = [1, 7, 50, 200];
/// Pages after which a small page size is given up for the largest.
const PAGES_MAX: usize = 40;

/// The text of a configuration that reads `network`.
pub fn config(network: &Network, bind: &str, store: &str) -> String {
    format!(
        r#"namespace = "com.example"
[collections.follow]
collection = "{FOLLOW}"
[collections.post]
collection = "{POST}"
searchable = ["text"]
[collections.post.queryable]
text = {{}}
langs = {{}}
createdAt = {{ type = "range", as = "time" }}
[collections.note]
collection = "{ODD}"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
max_items = 500
[feeds.garden]
follow = "follow"
targets = ["post", "note"]
mixed = true
include_self = true
[[source]]
name = "sim"
firehose = "{relay}"
[store]
url = "{store}"
[serve]
bind = "{bind}"
[intake]
bind = "127.0.0.1:0"
plc_url = "{plc}"
did_web_url = "{web}"
"#,
        relay = network.relay_ws_url(),
        plc = network.plc_url,
        web = network.web_url,
    )
}

/// Compares served feeds with the model.
#[derive(Debug)]
pub struct Oracle<'a> {
    network: &'a Network,
    address: String,
    client: reqwest::Client,
    since_us: Micros,
    hasty: bool,
}

/// What was compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub readers: usize,
    pub pages: usize,
    pub entries: usize,
    pub mismatches: usize,
    /// The first difference, in words.
    pub first: Option<String>,
}

impl Outcome {
    fn compare(&mut self, what: &str, served: &Entries, expected: &Entries) {
        if served != expected {
            self.mismatches += 1;
            let first = || difference(what, served, expected);
            self.first.get_or_insert_with(first);
        }
    }
}

/// A question, about half of whose parts are asked.
fn draw(rng: &mut Rng, whole: &Entries) -> Question<'static> {
    let letters = |word: &&&str| word.chars().all(char::is_alphabetic);
    let words: Vec<&str> = WORDS.iter().filter(letters).copied().collect();
    let count = rng.below(3);
    let middle = whole.get(whole.len() / 2).map(|(time_us, _)| *time_us);
    Question {
        words: (0..count)
            .filter_map(|_| rng.pick(&words).copied())
            .collect(),
        lang: rng.pick(&LANGUAGES).copied().filter(|_| rng.chance(0.4)),
        since_us: middle.filter(|_| rng.chance(0.3)),
        by_text: match rng.below(4) {
            0 => Some(Direction::Up),
            1 => Some(Direction::Down),
            _ => None,
        },
    }
}

/// The same as parameters.
fn query(question: &Question<'_>) -> String {
    let mut query = String::new();
    if !question.words.is_empty() {
        query.push_str(&format!("&search={}", question.words.join("%20")));
    }
    if let Some(lang) = question.lang {
        query.push_str(&format!("&langs={lang}"));
    }
    if let Some(since) = question.since_us {
        let time = record::datetime::format_us(since);
        query.push_str(&format!("&createdAtMin={time}"));
    }
    match question.by_text {
        None => {}
        Some(Direction::Up) => query.push_str("&sort=text&order=asc"),
        Some(Direction::Down) => query.push_str("&sort=text&order=desc"),
    }
    query
}

type Entries = Vec<(i64, String)>;

impl<'a> Oracle<'a> {
    /// An oracle for the Feedmill at `address`, which saw nothing before `since_us`.
    pub fn new(network: &'a Network, address: String, since_us: Micros) -> Self {
        crate::identity::provide_tls();
        Self {
            network,
            address,
            client: reqwest::Client::new(),
            since_us,
            hasty: false,
        }
    }

    /// The same, asked by a client of the caller's making.
    pub fn asking_by(self, client: reqwest::Client) -> Self {
        Self { client, ..self }
    }

    /// The same, but done at the first difference: for whoever asks again until there is none.
    pub fn hasty(self) -> Self {
        Self {
            hasty: true,
            ..self
        }
    }

    /// Compares every account's feeds, paged to their ends.
    pub async fn every_feed(
        &self,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Outcome, reqwest::Error> {
        let readers: Vec<String> = self.network.world(|world| {
            world
                .accounts()
                .iter()
                .map(|account| account.did.to_string())
                .collect()
        });
        let mut outcome = Outcome {
            readers: readers.len(),
            ..Outcome::default()
        };
        for (number, reader) in readers.iter().enumerate() {
            progress(number, readers.len());
            if self.hasty && outcome.mismatches > 0 {
                break;
            }
            for (feed, targets, include_self) in [
                ("timeline", &[POST][..], false),
                ("garden", &[POST, ODD][..], true),
            ] {
                let limit = LIMITS.get(number % LIMITS.len()).copied().unwrap_or(50);
                let (served, pages) = self.whole(feed, reader, limit).await?;
                let expected = self.expected(reader, targets, include_self, &served);
                outcome.pages += pages;
                outcome.entries += served.len();
                outcome.compare(&format!("{feed} of {reader}"), &served, &expected);
                if feed == "timeline" {
                    self.question(number, reader, &expected, &mut outcome)
                        .await?;
                }
            }
        }
        Ok(outcome)
    }

    /// Asks one question, drawn at random, of a feed whose whole is known.
    async fn question(
        &self,
        number: usize,
        reader: &str,
        whole: &Entries,
        outcome: &mut Outcome,
    ) -> Result<(), reqwest::Error> {
        let mut rng = Rng::new(self.since_us.cast_unsigned().wrapping_add(number as u64));
        let question = draw(&mut rng, whole);
        let limit = rng.pick(&LIMITS).copied().unwrap_or(50);
        let query = query(&question);
        let (served, pages) = self.asked("timeline", reader, limit, &query).await?;
        let (served, expected) = self.network.world(|world| {
            let model = world.model();
            // Of what was written past the composer nobody told what it says.
            let told = |entry: &(i64, String)| {
                model
                    .record(&entry.1)
                    .is_none_or(|fact| fact.said.is_some())
            };
            let entries: Vec<Entry> = whole
                .iter()
                .map(|(time_us, uri)| Entry {
                    time_us: *time_us,
                    uri: uri.clone(),
                })
                .collect();
            let asked = model.ask(&entries, &question);
            let asked: Entries = asked
                .into_iter()
                .map(|entry| (entry.time_us, entry.uri))
                .collect();
            (served.into_iter().filter(told).collect::<Entries>(), asked)
        });
        outcome.pages += pages;
        outcome.entries += served.len();
        outcome.compare(
            &format!("timeline of {reader} asked {query}"),
            &served,
            &expected,
        );
        Ok(())
    }

    /// What brute force gives. A record whose own time cannot be used stands
    /// at its first sight, which only the system under test knows; but that
    /// cannot lie before it began to look.
    fn expected(
        &self,
        reader: &str,
        targets: &[&str],
        include_self: bool,
        served: &Entries,
    ) -> Entries {
        let seen: HashMap<&str, i64> = served
            .iter()
            .map(|(time, uri)| (uri.as_str(), *time))
            .collect();
        let rules = Rules {
            follow: FOLLOW,
            targets,
            include_self,
            lexicons: true,
        };
        self.network.world(|world| {
            let model = world.model();
            let first_seen = |uri: &str| match seen.get(uri) {
                Some(time) if *time >= self.since_us => *time,
                _ => i64::MAX,
            };
            let entries = model.feed(reader, &rules, &first_seen);
            entries
                .into_iter()
                .map(|entry| (entry.time_us, entry.uri))
                .collect()
        })
    }

    /// A feed paged to its end: (time, uri) of each record, and the pages it took.
    pub async fn whole(
        &self,
        feed: &str,
        reader: &str,
        limit: usize,
    ) -> Result<(Entries, usize), reqwest::Error> {
        self.asked(feed, reader, limit, "").await
    }

    /// The same of a feed that is asked for less, or in another order.
    async fn asked(
        &self,
        feed: &str,
        reader: &str,
        limit: usize,
        query: &str,
    ) -> Result<(Entries, usize), reqwest::Error> {
        let actor = reader.replace('%', "%25");
        let base = format!(
            "http://{}/xrpc/com.example.getFeed?feed={feed}&actor={actor}{query}",
            self.address
        );
        let (mut served, mut pages, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let limit = if pages > PAGES_MAX { 200 } else { limit };
            let request = self.client.get(format!("{base}&limit={limit}{cursor}"));
            let page: Value = request.send().await?.error_for_status()?.json().await?;
            pages += 1;
            for record in page
                .get("records")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let time = record
                    .get("time_us")
                    .and_then(Value::as_i64)
                    .unwrap_or_default();
                let uri = record
                    .get("uri")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                served.push((time, uri.to_owned()));
            }
            match page.get("cursor").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok((served, pages)),
            }
        }
    }
}

fn difference(what: &str, served: &Entries, expected: &Entries) -> String {
    let missing: Vec<_> = expected
        .iter()
        .filter(|entry| !served.contains(entry))
        .collect();
    let extra: Vec<_> = served
        .iter()
        .filter(|entry| !expected.contains(entry))
        .collect();
    format!(
        "{what}: {} served, {} expected; missing {} such as {:?}, extra {} such as {:?}",
        served.len(),
        expected.len(),
        missing.len(),
        missing.first(),
        extra.len(),
        extra.first()
    )
}
