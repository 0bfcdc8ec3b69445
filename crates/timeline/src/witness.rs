//! The witness of a page: what the page read, and whether all of it is still so.
//!
//! In:    questions of one page about shared state, while the writer changes that state.
//! Out:   answers; and in the end whether they all hold at one instant.
//! Never: an answer without its validator.
//!
//! The code that makes pages has no other way to shared state: the fields here are private, and
//! each method registers what tells that its answer changed before it gives the answer. The list
//! is closed; a new kind of state needs a row here and in ARCHITECTURE.md.
//!
//! | a page reads | what tells that it changed | order: the writer | order: the page |
//! |---|---|---|---|
//! | outboxes, and the records in them | journal, [`Change::Key`] | entry, release fence, change | answer, acquire fence, journal |
//! | what the reader follows and hides, loaded or active | journal, [`Change::Reader`] | the same | the same |
//! | hidden accounts | journal, [`Change::All`] | the same | the same |
//! | state and slot of an active reader | address of the state | replace, release fence, rings | rings, acquire fence, address |
//! | how an active reader's pages are made (`Stage`, `unfollowed`) | version of its ring headers, or journal, [`Change::Reader`] | rings, release store | acquire load, rings, version |
//! | keys that are merged into rings | address of the set | replace, release fence, rings | rings, acquire fence, address |
//! | a ring: header, cells, written floor | version of the header | odd version, release fence, change, even version | look, acquire fence, version |
//! | the window of an index, but for its ends | version of the sequence | the same | the same |
//! | the old end of the window, records that left it | floor | floor, release fence, removal | removal, acquire fence, floor |
//! | rows, URIs and keys of records by number | count of numbers given again | count, release fence, new row | row, acquire fence, count |
//! | position of the outbox | journal, and a version that is odd while changes are made (`engine.rs`) | odd version, changes, position, journal closed, even version | journal, position, page, journal |
//! | whether an index is loaded | nothing: it changes once, after its floor is written | floor, release store | acquire load, floor |
//! | which engine answers | nothing: an engine that was replaced does not change any more | | |
//!
//! `models.rs` has a `loom` model of the journal, the ring header, the sequence, the floor and the
//! count of numbers given again. The rows that rest on an address have none, nor do `Stage`,
//! the position, loading, and which engine answers; threads meet those in `tests/meanwhile.rs`.
//!
//! Versions have 32 bits. Nothing changes a ring two billion times beside one page without an entry
//! in the journal: what is pushed waits in a queue with a limit, and a sweep changes it twice.

use crate::accounts::Accounts;
use crate::audience::KeySet;
use crate::feed::Feed;
use crate::journal::Change;
use crate::lane::Lane;
use crate::outboxes::Outboxes;
use crate::page::{Keys, Target};
use crate::readers::Reader;
use crate::records::Records;
use crate::rings::Look;
use crate::sequence::Sequence;
use sdd::Guard;
use std::sync::Arc;

/// Something that must not have moved when the page is made, besides what the journal tells.
#[derive(Debug, Clone, Copy)]
enum Validator<'a> {
    Reader {
        slot: u32,
        state: &'a Reader,
    },
    Merged(Option<&'a KeySet>),
    Ring {
        lane: &'a Lane,
        slot: u32,
        version: u32,
    },
    Window {
        lane: &'a Lane,
        version: u32,
    },
    Floor {
        lane: &'a Lane,
        was_us: i64,
    },
    Rows {
        records: &'a Records,
        began: u64,
    },
}

/// Which journal entries change the page.
#[derive(Debug, Clone, Copy)]
struct Concern<'a> {
    reader: Option<u32>,
    follows: Keys<'a>,
    own: Option<u32>,
}

/// An active reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Active<'a> {
    pub(crate) slot: u32,
    pub(crate) state: &'a Reader,
}

/// One target of the page, as far as everything a page may read of it is validated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index<'a> {
    pub(crate) at: usize,
    pub(crate) records: &'a Records,
    lane: &'a Lane,
}

/// All that one page reads, with what tells whether it moved.
#[derive(Debug)]
pub(crate) struct Witness<'a> {
    feed: &'a Feed,
    accounts: &'a Accounts,
    guard: &'a Guard,
    /// Where the journal was when the page began.
    since: u64,
    concern: Concern<'a>,
    indexes: Vec<Index<'a>>,
    validators: Vec<Validator<'a>>,
    /// The earliest time that was looked at.
    lowest_us: i64,
}

impl<'a> Witness<'a> {
    /// A page begins. What is entered in the journal from now on is asked about in the end.
    pub(crate) fn new(feed: &'a Feed, accounts: &'a Accounts, guard: &'a Guard) -> Self {
        Self {
            since: feed.journal.stands(),
            feed,
            accounts,
            guard,
            concern: Concern {
                reader: None,
                follows: Keys::List(&[]),
                own: None,
            },
            indexes: Vec::new(),
            validators: Vec::with_capacity(8),
            lowest_us: i64::MAX,
        }
    }

    pub(crate) fn guard(&self) -> &'a Guard {
        self.guard
    }

    /// Keys of a reader beyond which the window is walked.
    pub(crate) fn scan_above(&self) -> usize {
        self.feed.scan_above
    }

    /// The state of an active reader; `None` if it is not active.
    pub(crate) fn active(&mut self, reader: u32) -> Option<Active<'a>> {
        self.concern.reader = Some(reader);
        let slot = self.feed.readers.slot_of(reader)?;
        let state = self.feed.readers.get(slot, self.guard)?;
        if state.key != reader {
            return None;
        }
        self.validators.push(Validator::Reader { slot, state });
        self.concern.follows = Keys::Set(state.follows.members());
        Some(Active { slot, state })
    }

    /// Notes that an active reader read now.
    pub(crate) fn note_read(&self, active: Active<'_>, now_us: i64) {
        self.feed.readers.note_read(active.slot, now_us);
    }

    /// Whether follows that were loaded as of a position are what the reader follows now; and the
    /// reader's own key, if the feed shows it.
    pub(crate) fn loaded(
        &mut self,
        reader: u32,
        follows: Keys<'a>,
        as_of: u64,
    ) -> Option<Option<u32>> {
        let own = self.feed.include_self.then_some(reader);
        self.concern = Concern {
            reader: Some(reader),
            follows,
            own,
        };
        self.feed.changes.holds(reader, as_of).then_some(own)
    }

    /// Accounts that are hidden from everybody; each change concerns every page.
    pub(crate) fn accounts(&self) -> &'a Accounts {
        self.accounts
    }

    /// The indexes of a target, with the rows of their records; `None` if there is no such target
    /// or one is not loaded. Before any list is looked at.
    pub(crate) fn indexes(&mut self, target: Target) -> Option<Vec<Index<'a>>> {
        let index = |(at, lane): (usize, &'a Arc<Lane>)| Index {
            at,
            records: &lane.records,
            lane,
        };
        let lanes = self.feed.lanes.iter().enumerate();
        let indexes: Vec<Index<'a>> = match target {
            Target::One(at) => vec![index((at, self.feed.lanes.get(at)?))],
            Target::Mixed => lanes.map(index).collect(),
        };
        if indexes.iter().any(|index| index.lane.is_loading()) {
            return None;
        }
        for index in &indexes {
            self.validators.push(Validator::Rows {
                records: index.records,
                began: index.records.reuse.begin(),
            });
        }
        self.indexes.clone_from(&indexes);
        Some(indexes)
    }

    /// The rows of one of the page's indexes.
    pub(crate) fn rows(&self, at: usize) -> Option<&'a Records> {
        let index = self.indexes.iter().find(|index| index.at == at);
        index.map(|index| index.records)
    }

    /// The window of an index is complete for times after this one.
    pub(crate) fn floor_us(&mut self, index: Index<'a>) -> i64 {
        let was_us = index.lane.floor_us();
        let lane = index.lane;
        self.validators.push(Validator::Floor { lane, was_us });
        was_us
    }

    /// The page looked at records down to this time.
    pub(crate) fn looked_down_to(&mut self, time_us: i64) {
        self.lowest_us = self.lowest_us.min(time_us);
    }

    /// The keys of a reader whose outboxes its rings do not replace. Before the rings: a fan-out
    /// that ended is in them.
    pub(crate) fn merged_keys(&mut self, reader: &Reader) -> Vec<u32> {
        let merged = self.feed.merged.keys(self.guard);
        self.validators.push(Validator::Merged(merged));
        let Some(merged) = merged.filter(|merged| !merged.is_empty()) else {
            return Vec::new();
        };
        let follows = reader.follows.members();
        if merged.len() < follows.len() {
            let keys = merged.iter().copied();
            keys.filter(|&key| follows.contains(key)).collect()
        } else {
            follows.iter().filter(|key| merged.contains(key)).collect()
        }
    }

    /// One look at the ring of a slot: what is pushed later is not in it.
    pub(crate) fn ring(&mut self, index: Index<'a>, slot: u32) -> Look<'a> {
        let lane = index.lane;
        let look = lane.rings.look(slot, self.guard);
        if let Look::Open(ring) = &look {
            let version = ring.line.version;
            self.validators.push(Validator::Ring {
                lane,
                slot,
                version,
            });
        }
        look
    }

    /// All records of an index in order.
    pub(crate) fn window(&mut self, index: Index<'a>) -> &'a Sequence {
        let lane = index.lane;
        let version = lane.window.version();
        self.validators.push(Validator::Window { lane, version });
        &lane.window
    }

    /// The outboxes of an index, for keys that the reader follows: the journal tells of those.
    pub(crate) fn outboxes(&self, index: Index<'a>) -> &'a Outboxes {
        &index.lane.outboxes
    }

    /// Whether everything the page read is so at one instant.
    pub(crate) fn holds(&self) -> bool {
        self.is_quiet() && self.is_unmoved()
    }

    /// Whether the journal tells of nothing that concerns the page.
    pub(crate) fn is_quiet(&self) -> bool {
        let concerns = |change| self.is_concerned(change);
        self.feed.journal.is_quiet(self.since, concerns)
    }

    fn is_concerned(&self, change: Change) -> bool {
        let concern = &self.concern;
        match change {
            Change::Key(key) => concern.follows.contains(key) || concern.own == Some(key),
            Change::Reader(reader) => concern.reader == Some(reader),
            Change::All => true,
        }
    }

    /// Whether nothing moved that the journal does not tell of.
    pub(crate) fn is_unmoved(&self) -> bool {
        self.validators.iter().all(|validator| match *validator {
            Validator::Reader { slot, state } => {
                self.feed.readers.is_still(slot, state, self.guard)
            }
            Validator::Merged(merged) => self.feed.merged.is_still(merged, self.guard),
            Validator::Ring {
                lane,
                slot,
                version,
            } => lane.rings.is_still(slot, version),
            Validator::Window { lane, version } => lane.window.is_still(version),
            Validator::Floor { lane, was_us } => {
                let floor_us = lane.floor.at_end_us();
                floor_us <= was_us || self.lowest_us > floor_us
            }
            Validator::Rows { records, began } => records.reuse.is_still(began),
        })
    }
}
