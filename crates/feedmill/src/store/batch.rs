//! What goes into the store: checked work, and the cursor it brings.

use bytes::Bytes;
use record::cid::Cid;
use serde::{Deserialize, Serialize};

use super::account::AccountStatus;
use super::merged::Part;
use super::page::Rung;
use super::plan::Derived;
use crate::clock::Micros;

/// How the names of sources that are lists of accounts begin.
pub const BACKFILL: &str = "backfill:";
/// The source of records written over the direct API.
pub const DIRECT: &str = "direct";

/// One transaction of work from one source.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Whose cursor and counters move.
    pub source: String,
    /// The cursor after this batch; `None` leaves it where it is.
    pub cursor: Option<i64>,
    /// The moment of first sight for everything new in it.
    pub now_us: Micros,
    /// The work, in the order of the stream.
    pub items: Vec<Item>,
}

impl Batch {
    /// Work that no stream brought: it moves no cursor, and units it settles are
    /// counted where they came from.
    pub fn of_no_source(now_us: Micros, item: Item) -> Self {
        Self {
            source: String::new(),
            cursor: None,
            now_us,
            items: vec![item],
        }
    }
}

/// A record that waits in the store, by its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// In a queue.
    Pending(i64),
    /// For another record.
    Parked(i64),
}

/// One thing that the stream said.
#[derive(Debug, Clone)]
pub enum Item {
    /// Operations of one repository.
    Commit(Commit),
    /// A repository as a whole, fetched to repair or to backfill.
    Snapshot(Snapshot),
    /// Single records fetched from their host, with the revision that the repository had before;
    /// the account's chain is left as it is.
    Fetched { did: String, rev: u64, ops: Vec<Op> },
    /// A repository's root without its records; differs from ours: resync.
    Sync {
        did: String,
        rev: u64,
        data: Option<Cid>,
    },
    /// Hosting status changed.
    Account {
        did: String,
        status: AccountStatus,
        time_us: Micros,
    },
    /// What its host says of an account when asked, until the stream says something new; not counted as received.
    Standing { did: String, status: AccountStatus },
    /// Handle or keys changed.
    Identity {
        did: String,
        handle: Option<String>,
        time_us: Micros,
    },
    /// Something that could not be opened or understood.
    Unopened(DeadLetter),
    /// Units that were not of interest.
    Filtered(u64),
    /// Parked records whose time has come, at most this many; not counted as received.
    Settle(usize),
    /// Records that wait in queues, as many as one turn takes; not counted as received.
    Turn,
    /// These, and no others that wait; not counted as received.
    Work(Vec<Waiting>),
    /// One that ended the process again and again: it becomes a dead letter.
    Accused(Waiting),
    /// A dead letter and what today's checks say of its record; not counted as received.
    Replay { letter: i64, verdict: Box<Verdict> },
    /// A dead letter that is not kept any longer; its unit stays counted as dead.
    Discard { letter: i64 },
    /// Dead letters from before this moment, the oldest first and at most so many, are not kept any
    /// longer; not counted as received.
    Expire { before_us: Micros, max: usize },
    /// Accounts found in a list: those never heard of are to be fetched.
    Listed(Vec<String>),
    /// A reader of a feed whose follows are not all here: to be fetched, unless as many wait already.
    FirstRead {
        did: String,
        feed: String,
        waiting_max: usize,
    },
    /// A reader who listens before anything of it is here: what it follows later finds it by its number.
    Reader { did: String },
    /// A reader's repository cannot be fetched; it is left alone for a while.
    GaveUp { did: String },
    /// An account is about to be fetched. If the process dies before this ends, a start knows whose fetch it died in.
    FetchBegun { did: String },
    /// Attempts are over; a snapshot says the same of its account.
    FetchEnded { dids: Vec<String> },
    /// Something may be missing anywhere: every known account is to be fetched again, and every list read again.
    AllDue,
    /// How the ingesting process is, for other processes on the same store; not counted as received.
    Heartbeat(String),
    /// Our clock is wrong by so much: itself minus the events' times; not counted as received.
    WrongClock(Micros),
}

impl Item {
    /// The same at its own number in its stream, which its dead letters carry.
    pub fn numbered(mut self, seq: i64) -> Self {
        match &mut self {
            Self::Commit(commit) => commit.seq = seq,
            Self::Unopened(letter) => letter.cursor = seq,
            _ => {}
        }
        self
    }

    /// Its own number in its stream, where its dead letters need one; 0 otherwise.
    pub(super) fn seq(&self) -> i64 {
        match self {
            Self::Commit(commit) => commit.seq,
            Self::Unopened(letter) => letter.cursor,
            _ => 0,
        }
    }
}

/// Operations of one repository, made at once.
#[derive(Debug, Clone)]
pub struct Commit {
    pub did: String,
    pub rev: u64,
    /// Its own number in its stream; 0 for what no stream brought.
    pub seq: i64,
    /// What its source says came before; `None` where it does not say (Jetstream, direct writes).
    pub chain: Option<Chain>,
    /// Operations not of interest; they still advance the chain.
    pub filtered: u64,
    pub ops: Vec<Op>,
    /// The frame as it came, to be held if the chain is broken.
    pub frame: Bytes,
    /// This frame was held before: it is counted as held already.
    pub was_held: bool,
    /// Happened just now, as opposed to being fetched from the past.
    pub live: bool,
}

/// The link to the commit before.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    pub since: Option<u64>,
    pub prev_data: Option<Cid>,
    pub data: Option<Cid>,
}

/// All records of interest of a repository at one revision.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub did: String,
    pub rev: u64,
    pub data: Option<Cid>,
    pub ops: Vec<Op>,
    /// How many held frames follow in the same batch; if more were held
    /// meanwhile the batch is refused and must be made again.
    pub held: usize,
}

/// One operation on one record.
#[derive(Debug, Clone)]
pub struct Op {
    pub collection: String,
    pub rkey: String,
    pub verdict: Verdict,
}

/// Bytes of a text in memory beside its letters.
const TEXT_BYTES: usize = 40;

impl Op {
    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let verdict = match &self.verdict {
            Verdict::Put(put) => put.bytes(),
            Verdict::Delete => 0,
            Verdict::Refused(letter) => letter.bytes(),
        };
        // A list that grows is half empty.
        let own = 2 * size_of::<Self>() + 2 * TEXT_BYTES;
        own + self.collection.len() + self.rkey.len() + verdict
    }
}

/// What the checks said of an operation.
#[derive(Debug, Clone)]
pub enum Verdict {
    Put(Put),
    Delete,
    /// The record is at fault. What stood there before is gone all the same.
    Refused(DeadLetter),
}

/// A record that passed its checks.
#[derive(Debug, Clone)]
pub struct Put {
    pub cid: Option<Cid>,
    /// The record as JSON text.
    pub body: String,
    /// Its own time, where it has a well-formed one.
    pub time_us: Option<Micros>,
    /// When it was first seen by whoever handed it on; `None`: now.
    pub seen_us: Option<Micros>,
    /// References: (path, target).
    pub links: Vec<(String, String)>,
    /// Keys and follows.
    pub derived: Derived,
}

impl Put {
    fn bytes(&self) -> usize {
        let link = |(path, target): &(String, String)| path.len() + target.len() + 2 * TEXT_BYTES;
        let links: usize = self.links.iter().map(link).sum();
        self.body.capacity() + links + derived_bytes(&self.derived)
    }
}

/// About how many bytes of memory what follows from a record takes.
fn derived_bytes(derived: &Derived) -> usize {
    let text = |text: &String| text.len() + TEXT_BYTES;
    let texts = |all: &[String]| all.iter().map(text).sum::<usize>();
    let lanes = derived
        .lanes
        .iter()
        .map(|(_, keys)| texts(keys) + TEXT_BYTES);
    let follows = derived.follows.iter().map(|(_, key)| text(key));
    let parts = derived.parts.iter().map(|part| {
        let own = [Some(&part.nsid), Some(&part.author), part.merge.as_ref()];
        let own: usize = own.into_iter().flatten().map(text).sum();
        size_of::<Part>() + own + texts(&part.keys) + texts(&part.union)
    });
    let rungs = derived.rungs.iter().map(|(_, rung)| match rung {
        Rung::Text(value) => text(value),
        Rung::Number(_) | Rung::Missing => TEXT_BYTES,
    });
    let person = derived.person.iter().map(text);
    lanes
        .chain(follows)
        .chain(parts)
        .chain(rungs)
        .chain(person)
        .sum()
}

/// Something refused for good, kept for inspection and replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeadLetter {
    pub id: i64,
    pub did: String,
    pub collection: String,
    pub rkey: String,
    pub rev: u64,
    /// The record's CID, where it is known.
    pub cid: String,
    /// Where it stopped: `frame`, `crash`, `decode`, `verify`, `size`, `lexicon`, `rule`, `dependency`.
    pub stage: String,
    pub message: String,
    /// The rule that was broken, for stage `rule`.
    pub rule: String,
    /// JSON path of the field at fault.
    pub path: Vec<String>,
    pub expected: String,
    pub received: String,
    /// The record as JSON, or the frame's bytes as base64.
    pub raw: String,
    /// The event's own number in its stream; 0 where no event brought it, or its number cannot be read.
    pub cursor: i64,
    /// When it was refused first.
    pub time_us: Micros,
    /// How often the same bytes arrived.
    pub arrivals: i64,
    /// When it was last replayed, and refused again.
    pub replayed_us: Option<Micros>,
}

impl DeadLetter {
    fn bytes(&self) -> usize {
        let path = self.path.iter().map(|part| part.len() + TEXT_BYTES);
        let texts = [
            &self.did,
            &self.collection,
            &self.rkey,
            &self.cid,
            &self.message,
            &self.rule,
            &self.expected,
            &self.received,
            &self.raw,
        ];
        let texts = texts.map(|text| text.capacity());
        path.sum::<usize>() + texts.iter().sum::<usize>()
    }
}
