//! The oracle: served feeds held against the simulator's naive model.
//!
//! In:    a simulated network, and the address of a Feedmill that has read it.
//! Out:   how many feeds of each kind differ from what brute force gives.
//! Never: a look into the engine: it asks over HTTP, as a reader would. Nor is
//!        the model told what a page shows.
//!
//! One thing about a record only the system under test knows: when it first
//! saw it, which is the time of a record whose own is missing, malformed or
//! later than that. The world writes such records on purpose, so they are not
//! left out. Their times are asked for record by record (`getRecord`), before
//! any page is read: no page, timeline or index of a feed is asked. The model
//! is told such a time as a first sight and applies the rule of times itself,
//! and a first sight before the process began to look or after now is none.
//!
//! The demo and the tests share all this, so a newcomer's first command and the
//! long runs check the same thing.

// Feeds of every kind.
pub mod feeds;
// A served process as its readers see it.
pub mod reading;

use std::collections::{BTreeMap, HashMap};

use sim::compose::{LANGUAGES, WORDS};
use sim::feed::Entry;
use sim::model::{Direction, Listed, Question};
use sim::network::Network;
use sim::rng::Rng;

use crate::clock::{Clock, Micros};
use feeds::Kind;
use reading::{Asked, Reading, Served};

/// Page sizes, by turns.
const LIMITS: [usize; 4] = [1, 7, 50, 200];

/// The text of a configuration that reads `network`.
pub fn config(network: &Network, bind: &str, store: &str) -> String {
    format!(
        r#"namespace = "com.example"
{feeds}[[source]]
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
        feeds = feeds::text(),
        relay = network.relay_ws_url(),
        plc = network.plc_url,
        web = network.web_url,
    )
}

/// Compares served feeds with the model.
#[derive(Debug)]
pub struct Oracle<'a> {
    network: &'a Network,
    reading: Reading,
    kinds: Vec<Kind>,
    since_us: Micros,
    hasty: bool,
    asks: bool,
}

/// What was compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub readers: usize,
    /// Feeds of each kind, one for each reader and list.
    pub feeds: BTreeMap<&'static str, usize>,
    /// Entries of each kind.
    pub shown: BTreeMap<&'static str, usize>,
    pub pages: usize,
    pub entries: usize,
    pub mismatches: usize,
    /// The first difference, in words.
    pub first: Option<String>,
}

impl Outcome {
    fn compare(&mut self, what: &str, served: &Served, expected: &[Entry]) {
        self.pages += served.pages;
        self.entries += served.entries.len();
        let difference = match &served.wrong {
            Some(wrong) => format!("{what}: {wrong}"),
            None if served.entries == expected => return,
            None => difference(what, &served.entries, expected),
        };
        self.mismatches += 1;
        self.first.get_or_insert(difference);
    }
}

/// A question, about half of whose parts are asked.
fn draw(rng: &mut Rng, whole: &[Entry]) -> Question<'static> {
    let letters = |word: &&&str| word.chars().all(char::is_alphabetic);
    let words: Vec<&str> = WORDS.iter().filter(letters).copied().collect();
    let count = rng.below(3);
    let middle = whole.get(whole.len() / 2).map(|entry| entry.time_us);
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

/// A record by itself, and as an entry.
fn listed(entry: &Entry) -> Listed {
    Listed {
        time_us: entry.time_us,
        uri: entry.members.first().cloned().unwrap_or_default(),
    }
}

fn entry(listed: Listed) -> Entry {
    Entry {
        time_us: listed.time_us,
        members: vec![listed.uri],
        union: Vec::new(),
    }
}

impl<'a> Oracle<'a> {
    /// An oracle for the Feedmill at `address`, which saw nothing before `since_us`.
    pub fn new(network: &'a Network, address: String, since_us: Micros) -> Self {
        crate::identity::provide_tls();
        Self {
            network,
            reading: Reading {
                address,
                client: reqwest::Client::new(),
            },
            kinds: feeds::every(),
            since_us,
            hasty: false,
            asks: true,
        }
    }

    /// The same, asked by a client of the caller's making.
    pub fn asking_by(mut self, client: reqwest::Client) -> Self {
        self.reading.client = client;
        self
    }

    /// The same, but done at the first difference: for whoever asks again until there is none.
    pub fn hasty(self) -> Self {
        Self {
            hasty: true,
            ..self
        }
    }

    /// The same for one feed of another configuration, which is asked no questions.
    pub fn only(self, name: &str) -> Self {
        let mut kinds = self.kinds;
        kinds.retain(|kind| kind.name == name);
        Self {
            kinds,
            asks: false,
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
        let sights = self.first_sights().await?;
        for (number, reader) in readers.iter().enumerate() {
            progress(number, readers.len());
            for (turn, kind) in self.kinds.iter().enumerate() {
                if self.hasty && outcome.mismatches > 0 {
                    return Ok(outcome);
                }
                let limit = LIMITS.get((number + turn) % LIMITS.len());
                let limit = limit.copied().unwrap_or(50);
                self.compare(kind, (reader, limit), &sights, &mut outcome)
                    .await?;
            }
            if self.asks {
                self.question(number, reader, &sights, &mut outcome).await?;
            }
        }
        Ok(outcome)
    }

    /// Compares all lists of one feed.
    async fn compare(
        &self,
        kind: &Kind,
        (reader, limit): (&str, usize),
        sights: &Sights,
        outcome: &mut Outcome,
    ) -> Result<(), reqwest::Error> {
        let every = (0..kind.feed.targets.len()).collect::<Vec<usize>>();
        let lists: Vec<(String, Vec<usize>)> = match kind.lists {
            [] => vec![(String::new(), every)],
            lists => {
                let named = |short: &&str| format!("&collection={short}");
                let parameters = lists.iter().map(named);
                let places = every.into_iter().map(|place| vec![place]);
                parameters.zip(places).collect()
            }
        };
        for (query, places) in lists {
            let asked = Asked {
                feed: kind.name,
                reader,
                is_merged: kind.feed.merging.is_some(),
                query: &query,
                limit,
            };
            let mut served = self.reading.whole(&asked).await?;
            let expected = self.expected(kind, reader, &places, sights);
            self.forget_untold(kind, &mut served);
            *outcome.feeds.entry(kind.kind).or_default() += 1;
            *outcome.shown.entry(kind.kind).or_default() += served.entries.len();
            let what = format!("{}{query} of {reader} by {limit}", kind.name);
            outcome.compare(&what, &served, &expected);
        }
        Ok(())
    }

    /// Leaves out records of which nobody told what they say, where a feed
    /// depends on it: those written past the composer.
    fn forget_untold(&self, kind: &Kind, served: &mut Served) {
        if kind.feed.rules.is_empty() && kind.kind != "where" {
            return;
        }
        self.network.world(|world| {
            let told = |entry: &Entry| {
                let uri = entry.members.first().map_or("", String::as_str);
                let fact = world.model().record(uri);
                fact.is_none_or(|fact| fact.fields.is_some())
            };
            served.entries.retain(told);
        });
    }

    /// Asks one question, drawn at random, of a timeline.
    async fn question(
        &self,
        number: usize,
        reader: &str,
        sights: &Sights,
        outcome: &mut Outcome,
    ) -> Result<(), reqwest::Error> {
        let Some(kind) = self.kinds.iter().find(|kind| kind.name == "timeline") else {
            return Ok(());
        };
        let whole = self.expected(kind, reader, &[0], sights);
        let mut rng = Rng::new(self.since_us.cast_unsigned().wrapping_add(number as u64));
        let question = draw(&mut rng, &whole);
        let query = query(&question);
        let asked = Asked {
            feed: kind.name,
            reader,
            is_merged: false,
            query: &query,
            limit: rng.pick(&LIMITS).copied().unwrap_or(50),
        };
        let mut served = self.reading.whole(&asked).await?;
        let expected: Vec<Entry> = self.network.world(|world| {
            let model = world.model();
            // Of what was written past the composer nobody told what it says.
            served.entries.retain(|entry| {
                let fact = model.record(&listed(entry).uri);
                fact.is_none_or(|fact| fact.fields.is_some())
            });
            let whole: Vec<Listed> = whole.iter().map(listed).collect();
            let asked = model.ask(&whole, &question);
            asked.into_iter().map(entry).collect()
        });
        outcome.compare(
            &format!("timeline of {reader} asked {query}"),
            &served,
            &expected,
        );
        Ok(())
    }

    /// What brute force gives.
    fn expected(&self, kind: &Kind, reader: &str, places: &[usize], sights: &Sights) -> Vec<Entry> {
        let first_seen = |uri: &str| sights.get(uri).copied().unwrap_or(i64::MAX);
        self.network.world(|world| {
            let (feed, model) = (&kind.feed, world.model());
            feed.whole(model, reader, places, &first_seen)
        })
    }

    /// When records were first seen whose own time may not count.
    async fn first_sights(&self) -> Result<Sights, reqwest::Error> {
        let shown = |nsid: &str| {
            let kinds = self.kinds.iter();
            let mut targets = kinds.flat_map(|kind| &kind.feed.targets);
            targets.any(|target| target.collection == nsid)
        };
        let shown: Vec<_> = feeds::SHORT
            .iter()
            .filter(|(_, nsid)| shown(nsid))
            .collect();
        let doubtful: Vec<(&str, String)> = self.network.world(|world| {
            let mut doubtful = Vec::new();
            for (uri, fact) in world.model().records() {
                let short = shown.iter().find(|(_, nsid)| *nsid == fact.collection);
                let counts = fact.created_us.is_some_and(|us| us < self.since_us);
                if let (Some((short, _)), false) = (short, counts) {
                    doubtful.push((*short, uri.to_owned()));
                }
            }
            doubtful
        });
        let mut sights = Sights::new();
        for (short, uri) in doubtful {
            let Some(time_us) = self.reading.time_us(short, &uri).await? else {
                continue;
            };
            if (self.since_us..=Clock::Wall.now_us()).contains(&time_us) {
                sights.insert(uri, time_us);
            }
        }
        Ok(sights)
    }

    /// A feed that is not merged, paged to its end, and the pages it took.
    pub async fn whole(
        &self,
        feed: &str,
        reader: &str,
        limit: usize,
    ) -> Result<(Vec<Entry>, usize), reqwest::Error> {
        let asked = Asked {
            feed,
            reader,
            is_merged: false,
            query: "",
            limit,
        };
        let served = self.reading.whole(&asked).await?;
        Ok((served.entries, served.pages))
    }
}

/// First sights by URI.
type Sights = HashMap<String, Micros>;

fn difference(what: &str, served: &[Entry], expected: &[Entry]) -> String {
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
