//! The intake: frames in, transactions out.
//!
//! In:    frames of one source, in order.
//! Out:   committed batches, each with the cursor of its last frame.
//! Never: a cursor ahead of its work; a frame that stops the ones behind it.
//!
//! [`Intake::step`] is the stage itself, plain and synchronous: a batch of
//! frames and the time in, one transaction out. [`run`] is the thread around it.

// What was said already about a stream.
mod caution;
// The next frame, or the end of the time for it.
mod gather;
// Which frame ended the process.
mod suspicion;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use caution::Cautions;
use suspicion::Suspicion;

use crate::clock::{Clock, Micros};
use crate::condition::Condition;
use crate::decode::{Opened, Opener};
use crate::expression::of_frame;
use crate::metrics as names;
use crate::source::tap::Acks;
use crate::source::{Arrival, Rewind};
use crate::status::{SourceState, Status};
use crate::store::attempt::{self, ALONE_MAX, Attempt};
use crate::store::batch::{Batch, DeadLetter, Item};
use crate::store::{Committed, SharedStore, StoreError};

/// Pause before a store that could not answer is asked again, doubling up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// One source's intake.
#[derive(Debug)]
pub struct Intake {
    source: String,
    opener: Opener,
    store: SharedStore,
    /// Tells the source to read again from a cursor.
    rewind: Arc<Rewind>,
    status: Arc<Status>,
    state: Arc<SourceState>,
    places: HashMap<Arc<str>, Place>,
    cautions: Cautions,
    /// The same frames come again, because the store could not take them.
    again: bool,
    /// Records that may wait in queues.
    spill_max: i64,
    /// Bytes of them.
    spill_bytes_max: i64,
    /// Some may wait: it is looked before more is taken.
    crowded: bool,
    /// Told of each message that is durable, where its source asks for that.
    acks: Option<Arc<Acks>>,
    /// Says which frames are worked on, should the process end meanwhile.
    attempt: Option<Arc<Attempt>>,
    suspicion: Suspicion,
}

/// Where one host is read.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The highest number seen.
    seen: Option<i64>,
    /// The cursor as it is stored: behind it nothing waits.
    durable: Option<i64>,
}

impl Place {
    fn see(&mut self, seq: i64) {
        self.seen = Some(self.seen.map_or(seq, |known| known.max(seq)));
    }

    /// The cursor to store: what was seen, but nothing beyond `floor`, and never backwards.
    fn settle(&mut self, floor: Option<i64>) -> Option<i64> {
        let reached = match (self.seen, floor) {
            (Some(seen), Some(floor)) => Some(seen.min(floor)),
            (seen, _) => seen,
        };
        self.durable = self.durable.max(reached);
        self.durable
    }
}

impl Intake {
    pub fn new(
        source: String,
        opener: Opener,
        store: SharedStore,
        rewind: Arc<Rewind>,
        status: Arc<Status>,
    ) -> Self {
        Self {
            spill_max: i64::MAX,
            spill_bytes_max: i64::MAX,
            crowded: true,
            acks: None,
            attempt: None,
            suspicion: Suspicion::default(),
            state: status.source(&source),
            source,
            opener,
            store,
            rewind,
            status,
            places: HashMap::new(),
            cautions: Cautions::default(),
            again: false,
        }
    }

    /// Takes no frames while more than this many records, or bytes of them, wait in queues.
    pub fn spill_max(self, records: usize, bytes: u64) -> Self {
        Self {
            spill_max: i64::try_from(records).unwrap_or(i64::MAX),
            spill_bytes_max: i64::try_from(bytes).unwrap_or(i64::MAX),
            ..self
        }
    }

    /// Marks batches while they are worked on, and suspects those that the process before this
    /// one ended with; unless it ended with a record that waited.
    pub fn marking(self, attempt: Attempt) -> Self {
        let found = attempt.found().filter(|_| !self.store.waiting_suspected());
        if let Some(mark) = found {
            warn!(
                source = self.source,
                frames = mark.frames,
                "the process ended while these frames were worked on; fewer are taken at a time until they are stored"
            );
        }
        Self {
            suspicion: Suspicion::of(found),
            attempt: Some(Arc::new(attempt)),
            ..self
        }
    }

    /// Names the batch that is worked on from now on.
    fn name_attempt(&self, row: &Arc<str>, frames: &[Arrival]) {
        let (Some(attempt), Some(first)) = (&self.attempt, frames.first()) else {
            return;
        };
        if !self.places.contains_key(row) {
            self.store.mark(row, Arc::clone(attempt));
        }
        let first = attempt::hash(&first.frame);
        let mark = self.suspicion.mark(frames.len(), first);
        attempt.name((!self.again).then_some(mark));
        attempt.suspect(self.suspicion.is_active());
        attempt.begin();
    }

    /// Opens one frame, unless it is known to end the process.
    fn open(&mut self, arrival: &Arrival) -> Opened {
        if self.suspicion.accuses(&arrival.frame) {
            return self.opener.accused(&arrival.frame, ALONE_MAX);
        }
        let opened = of_frame(|| self.opener.open(&arrival.frame, arrival.line_us));
        doubted(opened, arrival)
    }

    /// Tells the source of each message that is durable.
    pub fn acknowledging(self, acks: Arc<Acks>) -> Self {
        Self {
            acks: Some(acks),
            ..self
        }
    }

    /// Works on queues until no more waits in them than may. Meanwhile no
    /// frame is taken, and behind the full channel the socket is not read.
    pub fn make_room(&mut self, now_us: Micros) -> Result<(), StoreError> {
        while self.crowded {
            let waiting = self.store.waiting()?;
            let fits = waiting.pending <= self.spill_max;
            if fits && waiting.pending_bytes <= self.spill_bytes_max {
                self.crowded = waiting.pending > 0;
                break;
            }
            self.store.turn(now_us)?;
        }
        Ok(())
    }

    fn place(&self, row: &Arc<str>) -> Result<Place, StoreError> {
        if let Some(place) = self.places.get(row) {
            return Ok(*place);
        }
        let durable = self.store.cursor(row)?;
        Ok(Place {
            seen: durable,
            durable,
        })
    }

    /// Opens `frames`, all of one host, and commits what they say in one transaction.
    pub fn step(&mut self, now_us: Micros, frames: &[Arrival]) -> Result<Committed, StoreError> {
        let mut items = Vec::with_capacity(frames.len());
        let Some(row) = frames.first().map(|first| Arc::clone(&first.row)) else {
            return Ok(Committed::default());
        };
        let mut place = self.place(&row)?;
        self.name_attempt(&row, frames);
        let mut event_us = None;
        let mut done = Vec::new();
        let mut strange = Vec::new();
        for arrival in frames {
            match self.open(arrival) {
                Opened::Items { seq, items: told } => {
                    place.see(seq);
                    done.push((arrival.line_us, seq));
                    items.extend(told.into_iter().map(|item| item.numbered(seq)));
                }
                Opened::Item { seq, item, time_us } => {
                    place.see(seq);
                    event_us = time_us.or(event_us);
                    items.push(item.numbered(seq));
                }
                Opened::Unopened(letter) => items.push(Item::Unopened(letter)),
                Opened::Unknown { kind } => {
                    let cause = format!("event kind {kind:?} is new to this version");
                    strange.push((kind, cause));
                    items.push(Item::Filtered(1));
                }
                Opened::Info { name, message } => {
                    self.word(&name, &message);
                    if name == "OutdatedCursor" {
                        items.push(Item::AllDue);
                    }
                }
                Opened::Ended { error, message } => {
                    if error == "FutureCursor" {
                        place = self.start_over(&row);
                    }
                    let cause = format!("the host ended the stream: {message}");
                    strange.push((error, cause));
                }
            }
        }
        if let Some(attempt) = &self.attempt {
            attempt.end();
        }
        if !self.again {
            self.caution(now_us, &items, &strange);
        }
        let processed = processed(&items);
        let batch = Batch {
            source: row.to_string(),
            cursor: place.settle(frames.last().and_then(|last| last.floor)),
            now_us,
            items,
        };
        let committed = self.store.commit(batch);
        self.again = committed.is_err();
        let committed = committed?;
        count(processed);
        if let Some(acks) = &self.acks {
            acks.done(done);
        }
        self.crowded |= committed.accounting.pending > 0;
        self.places.insert(row, place);
        self.suspicion.passed(frames.len());
        self.note(now_us, frames.len(), &committed, event_us);
        Ok(committed)
    }

    /// Our cursor is from another life of this host: reads all it has.
    fn start_over(&self, row: &str) -> Place {
        self.rewind.ask(row, 0);
        Place {
            seen: Some(0),
            durable: Some(0),
        }
    }

    fn word(&self, name: &str, message: &str) {
        if name == "OutdatedCursor" {
            warn!(
                source = self.source,
                message,
                "the host no longer has what lies behind our cursor; every known account is fetched again"
            );
        } else {
            info!(source = self.source, name, message, "a word from the host");
        }
    }

    /// Says once what is wrong with the stream; the rest is counted.
    fn caution(&mut self, now_us: Micros, items: &[Item], strange: &[(String, String)]) {
        self.cautions.say_all(now_us, &self.source, items);
        for (kind, cause) in strange {
            self.cautions.say(now_us, &self.source, kind, cause);
        }
    }

    fn note(&self, now_us: Micros, frames: usize, committed: &Committed, event_us: Option<Micros>) {
        self.state.commit(now_us, frames, event_us);
        let received = committed.arrived.received.max(0).cast_unsigned();
        self.status.count_rate(now_us, received);
    }
}

/// What was opened, unless it carries a commit that is not believed.
fn doubted(opened: Opened, arrival: &Arrival) -> Opened {
    let Some(doubt) = &arrival.doubt else {
        return opened;
    };
    let (seq, did, rev, time_us) = match opened {
        Opened::Item {
            seq,
            item: Item::Commit(commit),
            time_us,
        } => (seq, commit.did, commit.rev, time_us),
        Opened::Item {
            seq,
            item: Item::Sync { did, rev, .. },
            time_us,
        } => (seq, did, rev, time_us),
        other => return other,
    };
    let letter = DeadLetter {
        did,
        rev,
        stage: doubt.stage.into(),
        message: doubt.message.clone(),
        raw: crate::check::bytes_for_inspection(&arrival.frame),
        ..DeadLetter::default()
    };
    Opened::Item {
        seq,
        item: Item::Unopened(letter),
        time_us,
    }
}

/// Operations by collection.
fn processed(items: &[Item]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for item in items {
        let Item::Commit(commit) = item else { continue };
        for op in &commit.ops {
            match counts.get_mut(&op.collection) {
                Some(count) => *count += 1,
                None => drop(counts.insert(op.collection.clone(), 1)),
            }
        }
    }
    counts
}

fn count(processed: BTreeMap<String, u64>) {
    for (collection, count) in processed {
        counter!(names::PROCESSED, "collection" => collection).increment(count);
    }
}

/// How frames are gathered into batches.
#[derive(Debug, Clone, Copy)]
pub struct Gathering {
    pub batch_max: usize,
    pub batch_bytes_max: usize,
    pub flush: Duration,
}

/// The thread: gathers frames of one host and steps the stage until the frames end.
pub fn run(
    mut intake: Intake,
    mut frames: mpsc::Receiver<Arrival>,
    gathering: Gathering,
    clock: &Clock,
) {
    let mut next = None;
    while let Some(first) = next.take().or_else(|| frames.blocking_recv()) {
        let mut bytes = first.frame.len();
        let mut batch = vec![first];
        let deadline = Instant::now() + gathering.flush;
        let batch_max = intake.suspicion.batch_max(gathering.batch_max);
        while batch.len() < batch_max && next.is_none() {
            // The time is over, or the source has ended.
            let Some(frame) = gather::next_before(&mut frames, deadline) else {
                break;
            };
            bytes += frame.frame.len();
            let other_host = batch.first().is_some_and(|first| first.row != frame.row);
            match other_host || bytes > gathering.batch_bytes_max {
                true => next = Some(frame),
                false => batch.push(frame),
            }
        }
        if !commit_until_done(&mut intake, &batch, &frames, clock) {
            return;
        }
    }
}

/// Steps until the batch is durable. A store that cannot answer pauses the
/// intake and costs no attempt; a damaged one ends it, and so does the wish to stop.
fn commit_until_done(
    intake: &mut Intake,
    batch: &[Arrival],
    frames: &mpsc::Receiver<Arrival>,
    clock: &Clock,
) -> bool {
    let mut pause = PAUSE;
    let mut stopped: Option<Instant> = None;
    loop {
        let begun = Instant::now();
        let room = intake.make_room(clock.now_us());
        match room.and_then(|()| intake.step(clock.now_us(), batch)) {
            Ok(committed) => {
                histogram!(names::COMMIT_SECONDS).record(begun.elapsed().as_secs_f64());
                if !committed.broken.is_empty() {
                    let marked = committed.broken.len() as u64;
                    intake.status.marked.send_modify(|count| *count += marked);
                }
                if let Some(stopped) = stopped {
                    let seconds = stopped.elapsed().as_secs();
                    info!(seconds, "the store can be written again; intake goes on");
                }
                return true;
            }
            Err(cause) if cause.passes() => {
                // Said once: whoever repairs it needs no line for every attempt.
                if stopped.is_none() {
                    error!(
                        %cause,
                        "the store cannot be written; intake stops, nothing is lost, and it goes on by itself"
                    );
                }
                stopped.get_or_insert(begun);
                if frames.is_closed() {
                    warn!(
                        "asked to stop while the store cannot be written; what was not stored is read again at the next start"
                    );
                    return false;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(cause) => {
                let status = &intake.status;
                status.raise(Condition::StoreDamaged, "intake", cause.to_string());
                error!(
                    %cause,
                    "the store is damaged; intake stops here so that nothing is lost"
                );
                return false;
            }
        }
    }
}
