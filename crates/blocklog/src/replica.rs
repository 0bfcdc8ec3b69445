//! A replica's settings and what it learns from its authority.
//!
//! In:    how each feed is to be replicated; pages and acknowledgements.
//! Out:   plain data for the store and the sync machine.
//! Never: replication nobody asked for: without a setting there is none.
//!
//! A setting always means "from here to the end", never a piece of history. Each
//! target is a lane with its own cursor, because a feed added later starts
//! elsewhere; lanes that have come to the same place travel together.

use crate::block::Held;
use crate::cursor::Epoch;
use crate::page::Selection;
use std::collections::BTreeMap;

/// What a setting is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// One feed.
    Feed(String),
    /// Every feed of the space without a setting of its own.
    Space,
}

impl Target {
    /// The feed, if it is one.
    #[must_use]
    pub fn feed(&self) -> Option<&str> {
        match self {
            Self::Feed(feed) => Some(feed),
            Self::Space => None,
        }
    }
}

/// How a target is replicated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Neither pulled nor pushed.
    None,
    /// From this position on; 0 is the full history.
    From(u64),
    /// What comes after the first contact.
    Tail,
    /// What got its position at or after this time, in Unix milliseconds.
    Since(u64),
}

/// One target on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// What it replicates.
    pub target: Target,
    /// As it was set.
    pub mode: Mode,
    /// Everything up to here was pulled.
    pub after: u64,
    /// The authority's own cursor for that; `None` before the first page.
    pub cursor: Option<String>,
    /// False while only the authority can say where the lane starts.
    pub resolved: bool,
    /// Where its first page began, and the authority's cursor for that: behind it lies what was
    /// asked for. `None` if that is everything, or nobody knows.
    pub start: Option<(u64, String)>,
    /// It was sent back to its start, and no page has shown yet that the authority still has it.
    pub sent_back: bool,
}

impl Lane {
    /// A lane that has pulled nothing.
    #[must_use]
    pub fn new(target: Target, mode: Mode) -> Self {
        let after = match mode {
            Mode::From(position) => position.saturating_sub(1),
            Mode::None | Mode::Tail | Mode::Since(_) => 0,
        };
        let resolved = matches!(mode, Mode::From(_) | Mode::None);
        Self {
            target,
            mode,
            after,
            cursor: None,
            resolved,
            start: None,
            sent_back: false,
        }
    }

    /// The same lane after a page of it was pulled.
    fn advance(&mut self, pulled: &Pulled<'_>) {
        if self.cursor.is_none() {
            let start = pulled.start.filter(|_| pulled.after > 0);
            self.start = start.map(|cursor| (pulled.after, cursor.to_owned()));
        }
        self.after = pulled.covered;
        self.cursor = Some(pulled.cursor.to_owned());
        self.resolved = true;
        self.sent_back = false;
    }

    /// The same lane after its authority was replaced or rolled back. It goes back to where it
    /// started: if the authority still has the history up to there, everything that was asked for lies
    /// behind. If it does not it says so, and then positions mean nothing any more and the lane walks
    /// everything. Pulling more than was asked for is safe, pulling less would lose: also where
    /// nothing was pulled yet, pushed blocks may have got positions.
    pub fn start_over(&mut self) {
        match &self.start {
            Some((after, cursor)) if !self.sent_back => {
                self.after = *after;
                self.cursor = Some(cursor.clone());
                self.resolved = true;
                self.sent_back = true;
            }
            _ => {
                self.start = None;
                self.sent_back = false;
                self.cursor = None;
                self.reach_back(1);
            }
        }
    }

    /// The same lane where a block is held at `position` already: a lane answers
    /// for every position that is held, or nobody would ever question it.
    fn reach_back(&mut self, position: u64) {
        let asked = match self.mode {
            Mode::Tail => u64::MAX,
            Mode::Since(_) => 0,
            Mode::None | Mode::From(_) => self.after,
        };
        self.after = asked.min(position.saturating_sub(1));
        self.resolved = true;
    }
}

/// Set how `target` is replicated; `None` forgets its setting.
///
/// A feed that goes back under the space's setting needs what the space's lane
/// has already passed by, so that lane starts over. `held_from` is the lowest
/// position held of a target; in the midst of a healing that is 1, because a lane
/// then walks everything, as the others do.
pub fn set_lane(
    lanes: &mut BTreeMap<Target, Lane>,
    target: &Target,
    mode: Option<Mode>,
    held_from: impl Fn(&Target) -> Option<u64>,
) {
    let fresh = |target: &Target, mode| {
        let mut lane = Lane::new(target.clone(), mode);
        if let Some(position) = held_from(target) {
            lane.reach_back(position);
        }
        lane
    };
    match mode {
        Some(mode) => {
            lanes.insert(target.clone(), fresh(target, mode));
        }
        None => {
            lanes.remove(target);
            if let Some(space) = lanes.get_mut(&Target::Space) {
                *space = fresh(&Target::Space, space.mode);
            }
        }
    }
}

/// Move the lanes of a page on, and return those that moved. One that was set anew
/// since it was asked for stays: the page is not its.
pub fn advance(lanes: &mut BTreeMap<Target, Lane>, pulled: &Pulled<'_>) -> Vec<Lane> {
    let apart = lanes.keys().filter_map(Target::feed);
    let as_asked = apart.eq(pulled.apart);
    let mut moved = Vec::new();
    for asked in pulled.lanes {
        let fits = asked.target != Target::Space || as_asked;
        if let Some(lane) = lanes.get_mut(&asked.target)
            && fits
            && lane == asked
        {
            lane.advance(pulled);
            moved.push(lane.clone());
        }
    }
    moved
}

/// Whether the blocks of `feed` are replicated at all.
#[must_use]
pub fn is_replicated(lanes: &BTreeMap<Target, Lane>, feed: &str) -> bool {
    let own = lanes.get(&Target::Feed(feed.to_owned()));
    let lane = own.or_else(|| lanes.get(&Target::Space));
    lane.is_some_and(|lane| lane.mode != Mode::None)
}

/// Whether a replica may write to `feed`: what is not replicated would never be sent. One that has
/// no setting yet may be given any.
#[must_use]
pub fn may_write(lanes: &BTreeMap<Target, Lane>, feed: &str) -> bool {
    lanes.is_empty() || is_replicated(lanes, feed)
}

/// The feeds whose blocks are pushed: only these, if there are some; and all but those.
#[must_use]
pub fn pushed(lanes: &[Lane]) -> (Option<Vec<String>>, Vec<String>) {
    let feeds_where = |wanted: fn(&Lane) -> bool| -> Vec<String> {
        let chosen = lanes.iter().filter(|lane| wanted(lane));
        let feeds = chosen.filter_map(|lane| lane.target.feed().map(str::to_owned));
        feeds.collect()
    };
    let is_whole = |lane: &Lane| lane.target == Target::Space && lane.mode != Mode::None;
    let only = match lanes.iter().any(is_whole) {
        true => None,
        false => Some(feeds_where(|lane| lane.mode != Mode::None)),
    };
    (only, feeds_where(|lane| lane.mode == Mode::None))
}

/// Up to where nothing of a selection can still appear: as far as the slowest lane that bears on it
/// has pulled. `None` if no lane does.
#[must_use]
pub fn pulled_through(lanes: &BTreeMap<Target, Lane>, selection: &Selection) -> Option<u64> {
    let bears = |lane: &&Lane| match (&lane.target, selection) {
        _ if lane.mode == Mode::None => false,
        (Target::Feed(feed), Selection::Feeds(feeds)) => feeds.contains(feed),
        (Target::Space, Selection::Feeds(feeds)) => {
            let own = |feed: &String| lanes.contains_key(&Target::Feed(feed.clone()));
            !feeds.iter().all(own)
        }
        (Target::Feed(_) | Target::Space, _) => true,
    };
    let bearing = lanes.values().filter(bears);
    bearing.map(|lane| lane.after).min()
}

/// What a replica knows of its authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Upstream {
    /// Its epoch; `None` before the first contact.
    pub epoch: Option<Epoch>,
    /// A walk is under way that finds out what the authority still has.
    pub healing: bool,
}

/// One page from the authority, checked.
#[derive(Debug, Clone)]
pub struct Pulled<'a> {
    /// The lanes it was asked for, as they stood then.
    pub lanes: &'a [Lane],
    /// Feeds with settings of their own, which the space's lane leaves alone.
    pub apart: &'a [String],
    /// The authority read from behind this position.
    pub after: u64,
    /// Its cursor for that, where it gave one.
    pub start: Option<&'a str>,
    /// And answers for every block up to this one.
    pub covered: u64,
    /// Its cursor for `covered`.
    pub cursor: &'a str,
    /// Its epoch.
    pub epoch: Epoch,
    /// The blocks, with positions.
    pub blocks: &'a [Held],
    /// Feeds the authority has evicted from, and up to where.
    pub evicted: &'a [(String, u64)],
    /// What it evicted up to this position it would not know again.
    pub forgotten: u64,
}

impl Pulled<'_> {
    /// Whether a block of `feed` that we hold at `position`, in the range of the page, would be on
    /// the page, or be known again when pushed, if the authority had it there.
    ///
    /// That a block was evicted there says little: it may have been another, if the
    /// authority was rolled back since it acknowledged ours.
    #[must_use]
    pub fn answers_for(&self, feed: &str, position: u64) -> bool {
        let asked = self.lanes.iter().any(|lane| match &lane.target {
            Target::Space => !self.apart.iter().any(|apart| apart == feed),
            Target::Feed(one) => one == feed,
        });
        let mut evicted = self.evicted.iter();
        let doubtful = self.forgotten >= position
            && evicted.any(|(one, through)| one == feed && *through >= position);
        asked && !doubtful
    }
}

/// What a page changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adopted {
    /// Blocks that are new here.
    pub added: u64,
    /// Blocks that were here and got their position.
    pub placed: u64,
    /// Blocks that moved from one position to another.
    pub moved: u64,
    /// Blocks that lost their position: the authority does not have them there.
    pub unplaced: u64,
    /// Blocks whose key the authority holds with other bytes, and that are kept aside.
    pub conflicts: u64,
    /// Blocks that were written again because they, or one they follow, lost their key.
    pub reissued: u64,
}

/// What an acknowledgement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acknowledged {
    /// Blocks that got their position.
    pub placed: u64,
    /// Blocks that lost it to one of them.
    pub unplaced: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_back_under_the_space_makes_the_space_start_over() {
        let feed = Target::Feed("f".into());
        let mut lanes = BTreeMap::new();
        set_lane(&mut lanes, &Target::Space, Some(Mode::From(0)), |_| None);
        set_lane(&mut lanes, &feed, Some(Mode::None), |_| None);
        lanes.get_mut(&Target::Space).unwrap().after = 900;
        set_lane(&mut lanes, &feed, None, |_| None);
        assert_eq!(lanes.len(), 1);
        assert_eq!(lanes[&Target::Space].after, 0);
    }

    #[test]
    fn a_lane_answers_for_what_is_held_already() {
        let feed = Target::Feed("f".into());
        let set = |mode, held| {
            let mut lanes = BTreeMap::new();
            set_lane(&mut lanes, &feed, Some(mode), |_| held);
            (lanes[&feed].after, lanes[&feed].resolved)
        };
        assert_eq!(set(Mode::Tail, None), (0, false));
        assert_eq!(set(Mode::Tail, Some(7)), (6, true));
        assert_eq!(set(Mode::From(9), Some(7)), (6, true));
        assert_eq!(set(Mode::From(3), Some(7)), (2, true));
        assert_eq!(
            set(Mode::Since(5), Some(7)),
            (0, true),
            "only the log knows where that is"
        );
    }

    #[test]
    fn a_lane_includes_the_position_it_is_set_to() {
        assert_eq!(Lane::new(Target::Space, Mode::From(42)).after, 41);
        assert_eq!(Lane::new(Target::Space, Mode::From(0)).after, 0);
        assert!(!Lane::new(Target::Space, Mode::Tail).resolved);
    }
}
