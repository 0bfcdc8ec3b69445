//! The notary: signatures, before frames are opened.
//!
//! In:    frames of a firehose, in order.
//! Out:   the same frames, each with a doubt if its commit is not its account's own.
//! Never: one account's frames out of order; a frame that waits for somebody
//!        else's key; more than `waiting_max` frames waiting; a host that a
//!        stranger named that takes the room of others, or their turn to ask.
//!
//! Whose key is known passes at once. Who is unknown waits while his DID
//! document is fetched, with all that he sends meanwhile, and everybody else
//! goes on. So frames overtake each other between accounts, and the cursor
//! must not: each frame that leaves says how far the cursor may go. A key that
//! does not fit is fetched again once, for it may have been replaced. Where the
//! world is at fault it is asked five times more; then the frame is a dead
//! letter of stage `retryable`, and the resync goes on asking. So is each frame
//! for which there is no room, because too many wait for its account's host.

// What may wait for hosts of strangers.
mod strangers;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use decide::retry::retry_pause_us;
use metrics::counter;
use record::event::{Kind, peek};
use record::key::PublicKey;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::check::chain;
use crate::clock::Micros;
use crate::decode::Decoder;
use crate::identity::{IdentityError, Resolver};
use crate::metrics as names;
use crate::source::{Arrival, Doubt};
use strangers::Strangers;

/// Documents asked for at once: of the operator's directory, and of strangers' hosts.
const AT_ONCE_MAX: usize = 64;
/// Accounts that strangers' hosts are asked for, now or after a pause.
const STRANGERS_ASKED_MAX: usize = 1000;

/// A key younger than this is not fetched again because a signature does not fit it.
const REFRESH_AFTER: Duration = Duration::from_secs(1);

/// A place in the stream: the host, its number there, and the order of arrival.
type Place = (Arc<str>, i64, u64);

/// What came of asking for a key.
type Asked = (String, Result<PublicKey, IdentityError>);

/// Checks signatures.
#[derive(Debug)]
pub struct Notary {
    decoder: Decoder,
    resolver: Arc<Resolver>,
    out: mpsc::Sender<Arrival>,
    waiting_max: usize,
    /// Frames by the account whose key they wait for.
    waiting: HashMap<String, VecDeque<(Place, Arrival)>>,
    /// The places of all that wait.
    places: BTreeSet<Place>,
    asked: JoinSet<Asked>,
    /// Whom they are about, and how many of them name their hosts themselves.
    asking: HashSet<String>,
    strangers_asked: usize,
    strangers: Strangers,
    at_once: Arc<Semaphore>,
    strangers_at_once: Arc<Semaphore>,
    arrived: u64,
    /// How long a pause lasts.
    lasts: fn(Micros) -> Duration,
}

/// Nobody takes the frames any more.
struct Deaf;

impl Notary {
    /// A notary that hands its frames to `out`.
    pub fn new(
        decoder: Decoder,
        resolver: Arc<Resolver>,
        out: mpsc::Sender<Arrival>,
        waiting_max: usize,
    ) -> Self {
        Self {
            decoder,
            resolver,
            out,
            waiting_max,
            waiting: HashMap::new(),
            places: BTreeSet::new(),
            asked: JoinSet::new(),
            asking: HashSet::new(),
            strangers_asked: 0,
            strangers: Strangers::within(waiting_max, usize::MAX),
            at_once: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            strangers_at_once: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            arrived: 0,
            lasts: |pause_us| Duration::from_micros(pause_us.unsigned_abs()),
        }
    }

    /// Where no more than so many bytes are read before they are passed on.
    pub fn within(self, bytes_max: usize) -> Self {
        Self {
            strangers: Strangers::within(self.waiting_max, bytes_max),
            ..self
        }
    }

    /// With other pauses between attempts.
    pub fn pausing(self, lasts: fn(Micros) -> Duration) -> Self {
        Self { lasts, ..self }
    }

    /// Passes frames on until they end. What still waits then is read again
    /// after the next start: no cursor went past it.
    pub async fn run(mut self, mut frames: mpsc::Receiver<Arrival>) {
        loop {
            let passed = tokio::select! {
                Some(asked) = self.asked.join_next(), if !self.asked.is_empty() => match asked {
                    Ok((did, result)) => self.answered(did, result).await,
                    // Only a panic ends there; the frames stay unread, and so does the cursor.
                    Err(_) => Err(Deaf),
                },
                arrival = frames.recv(), if self.places.len() < self.waiting_max => match arrival {
                    Some(arrival) => self.admit(arrival).await,
                    None => Err(Deaf),
                },
            };
            if passed.is_err() {
                return;
            }
        }
    }

    async fn admit(&mut self, arrival: Arrival) -> Result<(), Deaf> {
        self.arrived += 1;
        let seen = peek(&arrival.frame).ok();
        let whose = seen.and_then(|seen| Some((seen.kind, seen.did?.to_owned(), seen.seq?)));
        let Some((kind, did, seq)) = whose else {
            return self.pass(arrival, None).await;
        };
        let place = (Arc::clone(&arrival.row), seq, self.arrived);
        let bytes = arrival.frame.len();
        let has_room = self.strangers.has_room(&did, bytes);
        if let Some(queue) = self.waiting.get_mut(&did) {
            if !has_room {
                return self.give_up(&did, arrival).await;
            }
            self.strangers.add(&did, bytes);
            self.places.insert(place.clone());
            queue.push_back((place, arrival));
            return Ok(());
        }
        match kind {
            Kind::Commit | Kind::Sync => {}
            Kind::Identity => {
                self.resolver.forget(&did);
                return self.pass(arrival, None).await;
            }
            _ => return self.pass(arrival, None).await,
        }
        if let Some((key, age)) = self.resolver.known_key(&did) {
            if self.decoder.is_signed_by(&arrival.frame, &key) {
                return self.pass(arrival, None).await;
            }
            if age < REFRESH_AFTER {
                return self.pass(arrival, Some(unsigned())).await;
            }
            self.resolver.forget(&did);
        }
        let is_strange = strangers::host(&did).is_some();
        let may_ask = !is_strange || self.strangers_asked < STRANGERS_ASKED_MAX;
        if !(has_room && (may_ask || self.asking.contains(&did))) {
            return self.give_up(&did, arrival).await;
        }
        self.strangers.add(&did, bytes);
        self.places.insert(place.clone());
        self.waiting
            .insert(did.clone(), VecDeque::from([(place, arrival)]));
        self.ask(did);
        Ok(())
    }

    /// There is no room for another frame of an account: what waits of it goes on, and then this one, all in doubt.
    /// Its repository says later what is true.
    async fn give_up(&mut self, did: &str, last: Arrival) -> Result<(), Deaf> {
        let queue = self.waiting.remove(did).unwrap_or_default();
        for (place, arrival) in queue {
            self.leave(did, &place, &arrival);
            self.pass_doubted(arrival).await?;
        }
        self.pass_doubted(last).await
    }

    async fn pass_doubted(&mut self, arrival: Arrival) -> Result<(), Deaf> {
        let kind = peek(&arrival.frame).map(|seen| seen.kind);
        let doubt = matches!(kind, Ok(Kind::Commit | Kind::Sync)).then(crowded);
        self.pass(arrival, doubt).await
    }

    /// A frame of an account waits no longer.
    fn leave(&mut self, did: &str, place: &Place, arrival: &Arrival) {
        self.places.remove(place);
        self.strangers.take(did, arrival.frame.len());
    }

    fn ask(&mut self, did: String) {
        if !self.asking.insert(did.clone()) {
            return;
        }
        let is_strange = strangers::host(&did).is_some();
        self.strangers_asked += usize::from(is_strange);
        let at_once = match is_strange {
            true => &self.strangers_at_once,
            false => &self.at_once,
        };
        let (resolver, at_once) = (Arc::clone(&self.resolver), Arc::clone(at_once));
        let lasts = self.lasts;
        self.asked.spawn(async move {
            let mut attempt = 0;
            loop {
                let permit = at_once.acquire().await;
                let key = resolver.key(&did).await;
                drop(permit);
                let error = match key {
                    Err(error) if !error.is_lasting() => error,
                    key => return (did, key),
                };
                match retry_pause_us(attempt) {
                    Some(pause_us) => tokio::time::sleep(lasts(pause_us)).await,
                    None => return (did, Err(error)),
                }
                attempt += 1;
            }
        });
    }

    /// A key is known, or is not to be had: what waited for it goes on.
    async fn answered(
        &mut self,
        did: String,
        key: Result<PublicKey, IdentityError>,
    ) -> Result<(), Deaf> {
        self.asking.remove(&did);
        self.strangers_asked -= usize::from(strangers::host(&did).is_some());
        let mut queue = self.waiting.remove(&did).unwrap_or_default();
        while let Some((place, arrival)) = queue.pop_front() {
            let kind = peek(&arrival.frame).map(|seen| seen.kind);
            let doubt = match (kind, &key) {
                (Ok(Kind::Commit | Kind::Sync), Ok(key)) => {
                    let signed = self.decoder.is_signed_by(&arrival.frame, key);
                    (!signed).then(unsigned)
                }
                (Ok(Kind::Commit | Kind::Sync), Err(error)) => Some(keyless(error)),
                _ => None,
            };
            self.leave(&did, &place, &arrival);
            self.pass(arrival, doubt).await?;
            if kind == Ok(Kind::Identity) && !queue.is_empty() {
                // From here on another key may hold.
                self.resolver.forget(&did);
                self.waiting.insert(did.clone(), queue);
                self.ask(did);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands a frame on, with how far the cursor may go.
    async fn pass(&mut self, arrival: Arrival, doubt: Option<Doubt>) -> Result<(), Deaf> {
        let result = if doubt.is_some() { "doubted" } else { "passed" };
        counter!(names::SIGNATURES, "result" => result).increment(1);
        let from = (Arc::clone(&arrival.row), i64::MIN, 0);
        let lowest = self.places.range(from..).next();
        let floor = lowest
            .filter(|(row, _, _)| *row == arrival.row)
            .map(|(_, seq, _)| seq - 1);
        let arrival = Arrival {
            floor,
            doubt,
            ..arrival
        };
        self.out.send(arrival).await.map_err(|_| Deaf)
    }
}

fn unsigned() -> Doubt {
    Doubt {
        stage: "verify",
        message: "the commit is not signed with its account's key".into(),
    }
}

fn crowded() -> Doubt {
    Doubt {
        stage: "retryable",
        message: "too many frames wait for the host that has the account's key".into(),
    }
}

fn keyless(error: &IdentityError) -> Doubt {
    let stage = match error.is_lasting() {
        false => "retryable",
        true => "verify",
    };
    Doubt {
        stage,
        message: format!("the account's key is not to be had: {}", chain(error)),
    }
}
