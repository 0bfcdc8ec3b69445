//! What goes in: checked work, and the cursor it brings.
//!
//! What a stream said ([`Event`]) is counted as received. What somebody
//! ordered ([`Order`]) is not: it settles units that were counted before, or
//! brings what nobody streamed.

pub use record::cid::Cid;
use serde::{Deserialize, Serialize};

use crate::account::Status;
use crate::derived::Derived;
use crate::ids::{DeadId, KeyId, Micros, ParkedId, Rev};

/// One transaction of work.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Whose counters and cursor move; empty for orders alone.
    pub source: String,
    /// The cursor after this batch; `None` leaves it where it is.
    pub cursor: Option<i64>,
    /// The moment of first sight for everything new in it.
    pub now_us: Micros,
    /// What the stream said, in its order, each with its own sequence number.
    pub events: Vec<(i64, Event)>,
    pub orders: Vec<Order>,
}

/// One thing that a stream said.
#[derive(Debug, Clone)]
pub enum Event {
    /// Operations of one repository.
    Commit(Commit),
    /// A repository's root without its records.
    Sync {
        did: String,
        rev: Rev,
        data: Option<Cid>,
    },
    /// The hosting status changed.
    Account {
        did: String,
        status: Status,
        time_us: Micros,
    },
    /// Handle or keys changed.
    Identity {
        did: String,
        handle: Option<String>,
        time_us: Micros,
    },
    /// A frame that cannot be decoded or believed.
    Undecodable {
        did: Option<String>,
        fault: Fault,
        raw: String,
    },
    /// Units that are not of interest.
    Filtered(u64),
}

/// One thing that somebody ordered.
#[derive(Debug, Clone)]
pub enum Order {
    /// Apply records that were fetched one by one, at the revision that the repository had before.
    Fetched { did: String, rev: Rev, ops: Vec<Op> },
    /// A part of a repository that was fetched whole.
    Repository(Slice),
    /// All parts of a repository are here.
    RepositoryDone {
        did: String,
        rev: Rev,
        data: Option<Cid>,
    },
    /// Frames that were held, the oldest first, once the repository is here.
    Release { did: String, frames: Vec<Released> },
    /// A dead letter, and what today's checks say of its record.
    Replay { id: DeadId, verdict: Verdict },
    /// Dead letters that are not kept any longer; their units stay counted as dead.
    Discard(Vec<DeadId>),
    /// The oldest dead letters, if they are from before this moment.
    Expire { before_us: Micros },
    /// The oldest dead letters, as long as there are more bytes of them than may be.
    Shrink,
    /// A reader of a feed whose follows are not all here: to be fetched, unless so many wait already.
    FirstRead {
        did: String,
        /// The layout under which its history must have come.
        needed: i64,
        waiting_max: usize,
    },
    /// A reader who listens before anything of it is here: what it follows later finds it by its number.
    Reader(String),
    /// A reader's repository cannot be fetched; it is left alone for a while.
    GaveUp(String),
    /// An account is about to be fetched.
    FetchBegun(String),
    /// Attempts are over.
    FetchEnded(Vec<String>),
    /// Something may be missing anywhere: every known account is to be fetched again.
    AllDue,
    /// How the ingesting process is.
    Heartbeat(String),
    /// Our clock is wrong by so much: itself minus the events' times.
    WrongClock(Micros),
    /// What an account's host answered when it was asked for the status.
    HostStatus { did: String, status: Status },
    /// Try these parked records again: their pause is over.
    Retry(Vec<ParkedId>),
    /// Make dead letters of these parked records, unless they can be applied: too many wait.
    GiveUp(Vec<ParkedId>),
    /// Accounts found in a list; the unknown ones are to be fetched.
    Listed(Vec<String>),
    /// Do the next slice of an account's job, if it is still as far as this column of it says.
    Job { account: KeyId, at: Option<String> },
    /// Work on what waits in queues, as much as one batch does.
    Queues,
    /// Work on what waits in a queue that the configuration no longer has.
    Drain(String),
}

/// A part of a repository that was fetched whole: records of one collection, in the order of
/// their keys. What is stored between its two ends and is not in it was deleted.
#[derive(Debug, Clone)]
pub struct Slice {
    pub did: String,
    /// The revision of the repository.
    pub rev: Rev,
    pub collection: String,
    /// Its records have larger keys; `None`: it begins with the first one.
    pub after: Option<String>,
    /// The largest key that it covers; `None`: it covers the rest of the collection.
    pub through: Option<String>,
    /// At most [`SLICE_MAX`](crate::account::SLICE_MAX), by key.
    pub ops: Vec<Op>,
}

/// How far a slice was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// All of it.
    End,
    /// Up to this key: more is stored there than one batch looks at. The rest is to be given again.
    Key(String),
    /// Nothing: the account is deleted, or what was deleted with it is still here.
    Refused,
}

/// A frame that was held.
#[derive(Debug, Clone)]
pub struct Released {
    pub rev: Rev,
    /// What is in it; or why that cannot be said any more, and its bytes.
    pub commit: Result<Commit, (Fault, String)>,
}

/// Operations of one repository, made at once.
#[derive(Debug, Clone)]
pub struct Commit {
    pub did: String,
    pub rev: Rev,
    /// What its source says came before; `None` where it does not say (Jetstream, direct writes).
    pub chain: Option<Chain>,
    /// Operations that are not of interest; they still advance the chain.
    pub filtered: u64,
    pub ops: Vec<Op>,
    /// The frame as it came, to be held if the chain is broken.
    pub frame: Vec<u8>,
    /// Happened just now, as opposed to being fetched from the past.
    pub live: bool,
}

/// The link to the commit before.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    pub since: Option<Rev>,
    pub prev_data: Option<Cid>,
    pub data: Option<Cid>,
}

/// One operation on one record.
#[derive(Debug, Clone)]
pub struct Op {
    pub collection: String,
    pub rkey: String,
    pub verdict: Verdict,
}

/// What the checks said of an operation.
#[derive(Debug, Clone)]
pub enum Verdict {
    Put(Box<Put>),
    Delete,
    /// The record is at fault. Its author replaced the one before all the same.
    Refused {
        fault: Fault,
        raw: String,
    },
}

/// A record that passed its checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The bytes of its CID.
    pub cid: Option<Vec<u8>>,
    /// The record as JSON text.
    pub body: String,
    /// Its own time, where it has a well-formed one.
    pub time_us: Option<Micros>,
    /// When it was first seen by whoever handed it on; `None`: now.
    pub seen_us: Option<Micros>,
    /// References: (path, target).
    pub links: Vec<(String, String)>,
    pub derived: Derived,
    /// What must be here before it is applied.
    pub needs: Vec<Need>,
    /// The keys ([`Need::key`]) of what its arrival satisfies.
    pub satisfies: Vec<String>,
    /// URIs of records that the rules of its collection look at; `None`: there is no such rule.
    pub linked: Option<Vec<String>>,
}

/// Something a record waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The field that names it.
    pub path: String,
    pub target: Target,
}

/// What can be waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The live record of this account, collection and key.
    Record {
        did: String,
        collection: String,
        rkey: String,
    },
    /// A live record of a collection that names this value at that path.
    Naming {
        collection: String,
        path: String,
        value: String,
    },
}

impl Need {
    /// The text under which a record waits for it.
    pub fn key(&self) -> String {
        match &self.target {
            Target::Record {
                did,
                collection,
                rkey,
            } => format!("at://{did}/{collection}/{rkey}"),
            Target::Naming {
                collection,
                path,
                value,
            } => format!("{collection} {path}={value}"),
        }
    }
}

/// Where a record was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    Frame,
    Decode,
    Verify,
    Size,
    Lexicon,
    Rule,
    Dependency,
    Crash,
}

impl Stage {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::Decode => "decode",
            Self::Verify => "verify",
            Self::Size => "size",
            Self::Lexicon => "lexicon",
            Self::Rule => "rule",
            Self::Dependency => "dependency",
            Self::Crash => "crash",
        }
    }
}

/// Why a record was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub stage: Stage,
    pub message: String,
    /// The rule that was broken, for stage `rule`.
    pub rule: Option<String>,
    /// JSON path of the field at fault.
    pub path: Vec<String>,
    pub expected: String,
    pub received: String,
}
