//! The first read of a reader whose follows are not all here yet.
//!
//! In:    a request for a feed.
//! Out:   the reader's repository asked for, once; a word in the answer while
//!        what it follows is not here (`"backfill"`).
//! Never: an empty page without a reason; a wait longer than `first_read_ms`;
//!        more readers waiting than `first_reads_max`, whoever asks for them; a
//!        row, a request or a place in memory because somebody who shows no
//!        token asks from elsewhere, beyond `anonymous_reads_max` a minute.
//!
//! An anonymous request for an account that is not here is first held against
//! the account's DID document, within that budget: for an invented DID nothing
//! is written at all.
//!
//! The resync fetches the repository as it fetches any other: bounded, tried
//! again, applied in one transaction. So one fetch serves every feed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use super::params::Params;
use super::{Answer, Server, reading};
use crate::clock::Micros;
use crate::config::Config;
use crate::digest::Digest;
use crate::host::Cause;
use crate::local::LocalId;
use crate::metrics as names;
use crate::store::account::FirstRead;
use crate::store::batch::{Batch, Item};

/// Readers remembered as known, of all feeds.
const KNOWN_MAX: usize = 100_000;
const MINUTE_US: Micros = 60_000_000;
/// How often it is looked whether a repository came, where another process fetches it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What first reads need.
#[derive(Debug)]
pub(super) struct FirstReads {
    budget: Duration,
    waiting_max: usize,
    /// Requests that wait for a repository.
    waiting: Semaphore,
    anonymous: Mutex<Minute>,
    anonymous_max: u32,
    /// For each feed the digests of the DIDs of readers whose follows are here, and the turn of each one's standing:
    /// who was deleted meanwhile has none here any more.
    known: BTreeMap<String, Cache<Digest, u32>>,
}

impl FirstReads {
    /// `None` where nothing is followed over a network that could be asked.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let over_network = |short: &str| config.collections.get(short).is_some_and(|it| !it.direct);
        let mut follows = config.feeds.values().flat_map(|feed| feed.follows());
        // Who reads another's log has what that one has, and nobody else to ask.
        let network = config.sources.iter().any(|source| source.log.is_none());
        let asked = network && config.serve.first_reads_max > 0;
        let any = asked && follows.any(|follow| over_network(&follow.collection));
        let known_max = KNOWN_MAX / config.feeds.len().max(1);
        let known = |feed: &String| (feed.clone(), Cache::new(known_max));
        any.then(|| Self {
            budget: Duration::from_millis(config.serve.first_read_ms),
            waiting_max: config.serve.first_reads_max,
            waiting: Semaphore::new((config.serve.requests_max / 4).max(1)),
            anonymous: Mutex::default(),
            anonymous_max: config.serve.anonymous_reads_max,
            known: config.feeds.keys().map(known).collect(),
        })
    }
}

/// Anonymous first reads of one minute.
#[derive(Debug, Default)]
struct Minute {
    begun_us: Micros,
    used: u32,
}

impl Minute {
    /// Takes one, if there is one left.
    fn take(&mut self, max: u32, now_us: Micros) -> bool {
        // A clock that was set back must not end all budgets.
        if !(0..MINUTE_US).contains(&now_us.saturating_sub(self.begun_us)) {
            *self = Self {
                begun_us: now_us,
                used: 0,
            };
        }
        let free = self.used < max;
        self.used += u32::from(free);
        free
    }
}

impl FirstReads {
    /// Whether a reader's repository may be fetched because of an anonymous request.
    async fn admit(&self, server: &Server, did: &str) -> Result<(), Word> {
        let count = |result: &'static str| counter!(names::ANONYMOUS, "result" => result);
        let now_us = server.clock.now_us();
        if !self.anonymous.lock().take(self.anonymous_max, now_us) {
            count("refused").increment(1);
            return Err(Word::Later);
        }
        let Some(resolver) = &server.resolver else {
            count("refused").increment(1);
            return Err(Word::Later);
        };
        match resolver.host_for(did, Cause::Reader).await {
            Ok(_) => {
                count("admitted").increment(1);
                Ok(())
            }
            Err(error) if error.is_lasting() => {
                count("invented").increment(1);
                Err(Word::Failed)
            }
            Err(_) => {
                count("unanswered").increment(1);
                Err(Word::Later)
            }
        }
    }
}

/// What the answer says of a reader whose follows are not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// They are being fetched.
    Running,
    /// As many are waited for as may be; ask again.
    Later,
    /// Their host did not give them; it is asked again later.
    Failed,
}

impl Word {
    /// Puts the word into an answer.
    pub(super) fn mark(self, answer: Answer) -> Answer {
        let word = match self {
            Self::Running => "running",
            Self::Later => "later",
            Self::Failed => "failed",
        };
        let rest = answer.body.strip_prefix('{').unwrap_or_default();
        let comma = if rest.starts_with('}') { "" } else { "," };
        Answer::json(format!("{{\"backfill\":\"{word}\"{comma}{rest}"))
    }
}

/// Sees to it that the reader's follows are here, or says that they are not.
pub(super) async fn before(server: &Arc<Server>, params: &Params) -> Option<Word> {
    let first = server.first_reads.as_ref()?;
    // Whoever goes on from a cursor has been told already.
    let going_on = ["cursor", "beforeActivityId"]
        .iter()
        .any(|name| params.get(name).is_some());
    let actor = params.get("actor").filter(|_| !going_on)?;
    let feeds = &mut server.plan.feeds.iter();
    let feed = match params.get("feed") {
        Some(name) => server.plan.feed(name)?,
        None => feeds.find(|feed| feed.merged.is_some())?,
    };
    let anonymous = |did: &str| params.is_anonymous_as(did);
    of(server, first, (&feed.name, actor), &anonymous).await
}

/// The same for a reader of a feed who is known by its token.
pub(super) async fn of_reader(server: &Arc<Server>, feed: &str, did: &str) -> Option<Word> {
    let first = server.first_reads.as_ref()?;
    of(server, first, (feed, did), &|_| false).await
}

async fn of(
    server: &Arc<Server>,
    first: &FirstReads,
    (feed, actor): (&str, &str),
    anonymous: &(dyn Fn(&str) -> bool + Sync),
) -> Option<Word> {
    if is_known(server, first.known.get(feed)?, actor) {
        return None;
    }
    let until = Instant::now() + first.budget;
    let mut settled = server.status.settled.subscribe();
    let mut slot = None;
    loop {
        let (name, whose) = (feed.to_owned(), actor.to_owned());
        let looking = move |server: &Server| Ok(look(server, &name, &whose));
        let looked = reading::blocking(Arc::clone(server), looking).await;
        // What cannot be looked up now is answered as it is; the next read asks again.
        let (did, mut state) = looked.ok()??;
        if state == FirstRead::Unknown {
            if anonymous(&did)
                && let Err(word) = first.admit(server, &did).await
            {
                return Some(word);
            }
            let (this, name) = (Arc::clone(server), feed.to_owned());
            let asked = tokio::task::spawn_blocking(move || ask(&this, &name, &did)).await;
            state = asked.ok()??;
        }
        match state {
            // The page of a hidden account is empty because it is hidden.
            FirstRead::Known | FirstRead::Hidden => return None,
            FirstRead::Failed => return Some(Word::Failed),
            FirstRead::Unknown => return Some(Word::Later),
            FirstRead::Waiting if Instant::now() >= until => return Some(Word::Running),
            FirstRead::Waiting => {}
        }
        // Requests that wait hold slots of the server, so most of these stay free for others.
        if slot.is_none() {
            slot = first.waiting.try_acquire().ok();
        }
        if slot.is_none() {
            return Some(Word::Running);
        }
        let rest = LOOK_EVERY.min(until.saturating_duration_since(Instant::now()));
        // What was settled may be another's: whoever wakes looks again.
        drop(tokio::time::timeout(rest, settled.changed()).await);
    }
}

/// Whether a reader's follows are here, as far as that is known without the store.
fn is_known(server: &Server, known: &Cache<Digest, u32>, did: &str) -> bool {
    // An app's reader has no repository that could be fetched.
    if LocalId::of_did(did).is_some() {
        return true;
    }
    let turn = server.fanout.as_ref().map(|it| it.standing_turn(did));
    turn.is_some() && known.get(&Digest::of(did)) == turn
}

/// Who reads, and whether its follows are here.
fn look(server: &Server, feed: &str, actor: &str) -> Option<(String, FirstRead)> {
    let first = server.first_reads.as_ref()?;
    let known = first.known.get(feed)?;
    let did = server.actor(actor).ok()?;
    if is_known(server, known, &did) {
        return Some((did, FirstRead::Known));
    }
    // Without timelines nobody hears of deletions here; then the store, which has the page too, is asked each time.
    let turn = server.fanout.as_ref().map(|it| it.standing_turn(&did));
    let now_us = server.clock.now_us();
    let state = server.store.first_read(&did, feed, now_us).ok()?;
    if let (FirstRead::Known, Some(turn)) = (state, turn) {
        known.insert(Digest::of(&did), turn);
    }
    Some((did, state))
}

/// Asks for a reader's repository; it stays unknown if too many wait.
fn ask(server: &Server, feed: &str, did: &str) -> Option<FirstRead> {
    let first = server.first_reads.as_ref()?;
    let now_us = server.clock.now_us();
    let item = Item::FirstRead {
        did: did.to_owned(),
        feed: feed.to_owned(),
        waiting_max: first.waiting_max,
    };
    let batch = Batch::of_no_source(now_us, item);
    server.store.commit(batch).ok()?;
    server.status.marked.send_modify(|count| *count += 1);
    server.store.first_read(did, feed, now_us).ok()
}
