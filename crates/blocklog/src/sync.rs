//! Replication: how a replica and its authority come to hold the same.
//!
//! In:    one thing that happened: time passed, a reply came, a hint, a write.
//! Out:   at most one request to send.
//! Never: a second request while one is under way; a block given up because the
//!        authority does not have it.
//!
//! Blocks are pushed without positions and pulled with them. A pulled page
//! answers for a whole range of positions, so applying it means making that range
//! equal: what we hold there and the page lacks loses its position and is pushed
//! again. That one rule repairs lost acknowledgements and lost blocks alike.
//!
//! The authority may have been replaced (another epoch) or rolled back (the head
//! at our cursor differs, or its highest position is below one we hold). Then
//! every lane walks from the start under that same rule, pushing nothing
//! meanwhile, and afterwards pushes whatever the authority turned out to lack, or
//! to have evicted: which of the two it was, only the authority can say.
//!
//! Where another block has the key of one of ours, or of the one it follows, ours
//! is written again behind the authority's newest block of the feed (`conflict.rs`).

mod replies;

use crate::block::BlockKey;
use crate::chain::Sealed;
use crate::limits::Limits;
use crate::message::{
    AppendRequest, Expected, From, ListRequest, QueryRequest, Reply, Request, RequestId, Wanted,
};
use crate::page::{PageMax, Selection};
use crate::replica::{Lane, Mode, Target, Upstream, pushed};
use crate::store::{ReplicaStore, StoreError};
use std::collections::BTreeSet;

/// How eagerly a replica works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncSettings {
    /// Blocks asked for in one pull.
    pub pull_blocks_max: u64,
    /// What one push may carry.
    pub push_max: PageMax,
    /// Pull at least this often, should hints be lost.
    pub poll_ms_max: u64,
    /// A request without a reply for so long has failed.
    pub reply_ms_max: u64,
    /// The pause after the first failure; it doubles.
    pub pause_ms_min: u64,
    /// The longest pause.
    pub pause_ms_max: u64,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            pull_blocks_max: 500,
            push_max: PageMax {
                blocks: 500,
                bytes: 2 << 20,
            },
            poll_ms_max: 30_000,
            reply_ms_max: 30_000,
            pause_ms_min: 250,
            pause_ms_max: 30_000,
        }
    }
}

/// What has happened.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Time has passed.
    Tick,
    /// Something was written here, or a setting changed.
    Changed,
    /// The authority says that it has advanced.
    Hint,
    /// A reply arrived.
    Reply(&'a Reply),
    /// The connection broke; replies under way are lost.
    Lost,
}

/// What replication has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncReport {
    /// Blocks pulled that were new here.
    pub pulled: u64,
    /// Blocks pushed and acknowledged.
    pub pushed: u64,
    /// Blocks whose position was taken back.
    pub unplaced: u64,
    /// Blocks whose key the authority holds with other bytes, and that are kept aside.
    pub conflicts: u64,
    /// Blocks of ours that were written again under a new sequence.
    pub reissued: u64,
    /// Blocks the authority refused for good.
    pub set_aside: u64,
    /// Times the authority was found replaced or rolled back.
    pub healed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that the authority refused as a whole.
    pub refusals: u64,
    /// The code of the refusal that holds up pushing, or else pulling, now.
    pub refused: Option<&'static str>,
}

/// The authority refuses every push: pushing pauses, and pulling goes on.
#[derive(Debug, Clone, Copy)]
struct PushPause {
    code: &'static str,
    failures: u32,
    until_ms: u64,
}

#[derive(Debug, Clone)]
enum Doing {
    Push(Vec<BlockKey>),
    Pull(Pull),
    /// Asks for the newest block of a feed, behind which ours are written again.
    Newest(String),
}

#[derive(Debug, Clone)]
struct Pull {
    /// The lanes that are asked for, as they stand.
    lanes: Vec<Lane>,
    apart: Vec<String>,
    /// `None` while only the authority knows where the lane starts.
    after: Option<u64>,
    /// The highest position held when the question was asked.
    held_max: u64,
}

#[derive(Debug, Clone)]
struct Waiting {
    id: RequestId,
    until_ms: u64,
    doing: Doing,
}

/// The replication of one space with its authority.
#[derive(Debug)]
pub struct Sync {
    space: String,
    settings: SyncSettings,
    limits: Limits,
    /// Makes request ids unlike those of another run.
    run: String,
    requests: u64,
    waiting: Option<Waiting>,
    /// Lanes that have caught up in this round.
    done: BTreeSet<Target>,
    /// Lanes, as they stood, that were set to begin where the authority has not come yet, and
    /// where it was.
    ahead: (Vec<Lane>, u64),
    round_open: bool,
    /// The lowest point a lane had caught up with in this round.
    covered_min: u64,
    push_wanted: bool,
    /// Blocks may be set aside that another sequence would cure.
    reissue_wanted: bool,
    pushed_last: bool,
    /// Since when nothing was pushed because every push is refused.
    push_pause: Option<PushPause>,
    /// Why the last pull was refused.
    pull_refused: Option<&'static str>,
    /// Blocks of the next push: fewer where the authority takes no more at once.
    push_blocks: usize,
    /// Failures since something was of use: blocks came or went, or a round ended.
    failures: u32,
    resume_ms: u64,
    poll_ms: u64,
    report: SyncReport,
}

impl Sync {
    /// Replication of `space`. `run` must differ from one start to the next.
    #[must_use]
    pub fn new(space: &str, run: &str, settings: SyncSettings, limits: Limits) -> Self {
        Self {
            space: space.to_owned(),
            limits,
            run: run.to_owned(),
            requests: 0,
            waiting: None,
            done: BTreeSet::new(),
            ahead: (Vec::new(), 0),
            round_open: true,
            covered_min: u64::MAX,
            push_wanted: true,
            reissue_wanted: true,
            pushed_last: false,
            push_pause: None,
            pull_refused: None,
            push_blocks: settings.push_max.blocks,
            failures: 0,
            resume_ms: 0,
            poll_ms: 0,
            report: SyncReport::default(),
            settings,
        }
    }

    /// What has been done so far.
    #[must_use]
    pub fn report(&self) -> SyncReport {
        let refused = self.push_pause.map(|pause| pause.code);
        SyncReport {
            refused: refused.or(self.pull_refused),
            ..self.report
        }
    }

    /// Whether there is nothing left to do until something happens.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_waiting = self.waiting.is_some() || self.round_open;
        !is_waiting && !self.push_wanted && !self.reissue_wanted
    }

    /// The time at which a [`Input::Tick`] is due.
    #[must_use]
    pub fn wake_ms(&self) -> u64 {
        match &self.waiting {
            Some(waiting) => waiting.until_ms,
            None if self.is_idle() => self.poll_ms,
            None => match self.push_pause {
                Some(pause) if !self.round_open => {
                    pause.until_ms.max(self.resume_ms).min(self.poll_ms)
                }
                _ => self.resume_ms,
            },
        }
    }

    /// Take in what happened; return what to send.
    ///
    /// # Errors
    /// If the store fails; the step may be repeated.
    pub fn step(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        input: Input<'_>,
    ) -> Result<Option<(RequestId, Request)>, StoreError> {
        match input {
            Input::Tick => {
                if self
                    .waiting
                    .as_ref()
                    .is_some_and(|waiting| waiting.until_ms <= now_ms)
                {
                    self.fail(now_ms);
                }
                if self.poll_ms <= now_ms {
                    self.open_round(now_ms);
                }
            }
            Input::Changed => {
                self.push_wanted = true;
                self.open_round(now_ms);
            }
            Input::Hint => self.open_round(now_ms),
            Input::Lost => {
                // A pause that is under way already counted this failure.
                if self.resume_ms <= now_ms {
                    self.fail(now_ms);
                }
                self.waiting = None;
                self.push_wanted = true;
                self.open_round(now_ms);
            }
            Input::Reply(reply) => self.take_reply(store, now_ms, reply)?,
        }
        if self.waiting.is_some() || now_ms < self.resume_ms {
            return Ok(None);
        }
        self.next_request(store, now_ms)
    }

    fn open_round(&mut self, now_ms: u64) {
        self.round_open = true;
        self.done.clear();
        self.covered_min = u64::MAX;
        self.poll_ms = now_ms + self.settings.poll_ms_max;
    }

    fn fail(&mut self, now_ms: u64) {
        self.waiting = None;
        self.push_wanted = true;
        self.report.failed += 1;
        self.resume_ms = now_ms + self.pause_ms(self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    /// How long to wait after so many failures in a row, and one more.
    fn pause_ms(&self, failures: u32) -> u64 {
        let doubled = self
            .settings
            .pause_ms_min
            .saturating_mul(1 << failures.min(20));
        doubled.min(self.settings.pause_ms_max)
    }

    /// Every push is refused: wait with the next, and pull meanwhile.
    fn pause_pushes(&mut self, now_ms: u64, code: &'static str) {
        let failures = self.push_pause.map_or(0, |pause| pause.failures);
        self.push_wanted = true;
        self.report.refusals += 1;
        self.push_pause = Some(PushPause {
            code,
            failures: failures.saturating_add(1),
            until_ms: now_ms + self.pause_ms(failures),
        });
    }

    fn next_request(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
    ) -> Result<Option<(RequestId, Request)>, StoreError> {
        let upstream = store.upstream(&self.space)?;
        let lanes = store.lanes(&self.space)?;
        if lanes.iter().all(|lane| lane.mode == Mode::None) {
            (self.round_open, self.push_wanted) = (false, false);
            self.reissue_wanted = false;
            return Ok(None);
        }
        let is_paused = self.push_pause.is_some_and(|pause| now_ms < pause.until_ms);
        let may_push = may_push(upstream, &lanes) && !is_paused;
        if self.reissue_wanted && may_push {
            if let Some(feed) = store.lost_feed(&self.space)? {
                let request = Request::List(ListRequest {
                    feed: Some(feed.clone()),
                    ..ListRequest::default()
                });
                return Ok(Some(self.send(now_ms, request, Doing::Newest(feed))));
            }
            self.reissue_wanted = false;
        }
        let push_turn = !(self.pushed_last && self.round_open);
        if self.push_wanted && may_push && push_turn {
            if let Some(request) = self.push(store, now_ms, &lanes)? {
                return Ok(Some(request));
            }
            self.push_wanted = false;
        }
        self.pushed_last = false;
        if !self.round_open {
            return Ok(None);
        }
        match self.pull(store, now_ms, &lanes)? {
            Some(request) => Ok(Some(request)),
            None => {
                self.close_round(store, upstream)?;
                if (self.push_wanted || self.reissue_wanted) && may_push {
                    return self.next_request(store, now_ms);
                }
                Ok(None)
            }
        }
    }

    /// Every lane has caught up.
    fn close_round(
        &mut self,
        store: &dyn ReplicaStore,
        upstream: Upstream,
    ) -> Result<(), StoreError> {
        self.round_open = false;
        self.failures = 0;
        if upstream.healing && self.covered_min != u64::MAX {
            self.report.unplaced += store.end_healing(&self.space, self.covered_min)?;
            self.push_wanted = true;
            self.round_open = true;
            self.done.clear();
        }
        Ok(())
    }

    fn send(&mut self, now_ms: u64, request: Request, doing: Doing) -> (RequestId, Request) {
        self.requests += 1;
        let id = RequestId::text(format!("{}-{}", self.run, self.requests));
        self.waiting = Some(Waiting {
            id: id.clone(),
            until_ms: now_ms + self.settings.reply_ms_max,
            doing,
        });
        (id, request)
    }

    fn push(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        lanes: &[Lane],
    ) -> Result<Option<(RequestId, Request)>, StoreError> {
        let (only, apart) = pushed(lanes);
        let max = PageMax {
            blocks: self.push_blocks,
            ..self.settings.push_max
        };
        let mut waiting = store.pending(&self.space, only.as_deref(), &apart, max)?;
        let Some(first) = waiting.first() else {
            return Ok(None);
        };
        // One append names one namespace, so a push ends where it changes.
        let namespace = first.namespace.clone();
        let same = waiting
            .iter()
            .take_while(|held| held.namespace == namespace)
            .count();
        waiting.truncate(same);
        let keys = waiting.iter().map(|held| held.block.key()).collect();
        let blocks = waiting.into_iter().map(|held| Sealed {
            block: held.block,
            hash: held.hash,
        });
        // Positions count only in the history that was pulled.
        let furthest = lanes.iter().filter(|lane| lane.cursor.is_some());
        let furthest = furthest.max_by_key(|lane| lane.after);
        let request = Request::Append(AppendRequest {
            namespace,
            cursor: furthest.and_then(|lane| lane.cursor.clone()),
            blocks: blocks.collect(),
        });
        self.pushed_last = true;
        Ok(Some(self.send(now_ms, request, Doing::Push(keys))))
    }

    /// Pull the lane that is furthest behind, and with it those in its place.
    fn pull(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        lanes: &[Lane],
    ) -> Result<Option<(RequestId, Request)>, StoreError> {
        let open = lanes
            .iter()
            .filter(|lane| lane.mode != Mode::None && !self.done.contains(&lane.target));
        let Some(first) = open.clone().min_by_key(|lane| (lane.resolved, lane.after)) else {
            return Ok(None);
        };
        let (asked, apart, selection) = if first.target == Target::Space {
            let apart = lanes
                .iter()
                .filter_map(|lane| lane.target.feed().map(str::to_owned))
                .collect();
            (vec![first.clone()], apart, Selection::Space)
        } else {
            let together =
                open.filter(|lane| lane.target != Target::Space && travels_with(lane, first));
            let mut bytes_left = self.limits.feed_ids_bytes_max;
            let fits = |lane: &&Lane| {
                let left = bytes_left.checked_sub(lane.target.feed().map_or(0, str::len));
                bytes_left = left.unwrap_or_default();
                left.is_some()
            };
            let together = together.take(self.limits.feed_ids_max).take_while(fits);
            let together: Vec<Lane> = together.cloned().collect();
            let feeds = together
                .iter()
                .filter_map(|lane| lane.target.feed().map(str::to_owned));
            let selection = Selection::Feeds(feeds.collect());
            (together, Vec::new(), selection)
        };
        let is_ahead = self.ahead.0.contains(first);
        let from = match (&first.cursor, first.mode) {
            (Some(cursor), _) => From::Cursor(cursor.clone()),
            // Not at its end: that may have passed the start meanwhile.
            (None, _) if is_ahead => From::Position(self.ahead.1),
            (None, Mode::Tail) if !first.resolved => From::Tail,
            (None, Mode::Since(time_ms)) if !first.resolved => From::Since(time_ms),
            (None, _) => From::Position(first.after),
        };
        let held_max = store
            .space(&self.space)?
            .map_or(0, |state| state.position_max);
        let doing = Doing::Pull(Pull {
            lanes: asked,
            apart,
            after: (first.resolved && !is_ahead).then_some(first.after),
            held_max,
        });
        let request = Request::Query(QueryRequest {
            wanted: Wanted::Here(selection),
            from,
            limit: Some(self.settings.pull_blocks_max),
            skip_gone: true,
            unpositioned: false,
            expected: Expected::default(),
        });
        Ok(Some(self.send(now_ms, request, doing)))
    }
}

/// Whether every lane has pulled something of a history that is not in doubt. A position that is
/// taken before may lie below where the lane starts, where no page would ever question it; once
/// there is a cursor, whoever replaces or rolls back the authority is noticed by it.
fn may_push(upstream: Upstream, lanes: &[Lane]) -> bool {
    let has_pulled = |lane: &Lane| lane.mode == Mode::None || lane.cursor.is_some();
    upstream.epoch.is_some() && !upstream.healing && lanes.iter().all(has_pulled)
}

/// Whether two lanes may share a request: the same cursor, or the same start.
fn travels_with(lane: &Lane, other: &Lane) -> bool {
    let both_fresh = lane.cursor.is_none() && other.cursor.is_none();
    let same_start = lane.resolved == other.resolved
        && lane.after == other.after
        && (lane.resolved || lane.mode == other.mode);
    lane.cursor == other.cursor && (!both_fresh || same_start)
}
