//! What the other side of the watershed sees: changes, in commit order.

use crate::clock::Micros;

/// One change, as branches draw it. Replaying one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A record is there, new or in a new version.
    Put {
        record: i64,
        uri: String,
        /// Happened just now; false for backfill, which never enters the live stream.
        live: bool,
        /// It stood elsewhere until now, or under other keys: who saw it go is told where it is.
        moved: bool,
        lanes: Vec<Published>,
    },
    /// A record is gone.
    Delete {
        record: i64,
        uri: String,
        /// Where it stood.
        lanes: Vec<Published>,
    },
    /// A reader follows a key (or hides it, by the source's kind). One for each follow record.
    Follow { source: i64, reader: i64, key: i64 },
    /// A follow record is gone.
    Unfollow { source: i64, reader: i64, key: i64 },
    /// Groups of a merged lane changed.
    Regroup {
        lane: i64,
        /// Groups that ended or have other members now, as they were.
        was: Vec<Grouped>,
        /// Groups that are new, or have other members than before.
        now: Vec<Grouped>,
        /// Happened just now; false for backfill.
        live: bool,
        /// The next change is of the same groups, and nobody may see one without the other.
        continues: bool,
    },
    /// An account's records became visible or hidden.
    Account {
        key: i64,
        did: String,
        visible: bool,
    },
}

/// A target record's place in a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub lane: i64,
    pub time_us: Micros,
    pub author: i64,
    pub keys: Vec<i64>,
}

/// A group's place in a merged lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouped {
    /// Its first record.
    pub record: i64,
    pub uri: String,
    pub time_us: Micros,
    pub author: i64,
    /// The keys of all its members.
    pub keys: Vec<i64>,
}

/// Changes drawn from the outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Each with its position. Positions grow, and not always by one: see `store/sqlite/outbox.rs`.
    pub changes: Vec<(i64, Change)>,
    /// The position to draw from next.
    pub position: i64,
    /// Changes after the asked position are no longer kept: rebuild from records.
    pub gone: bool,
}

/// Where a slice of [`Outbox::load`](super::Outbox::load) begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPlace {
    /// Hidden accounts with numbers above this one.
    Hidden(i64),
    /// Records of a lane below a time and a tail, of which `visited` came before.
    Lane {
        at: usize,
        below: (Micros, String),
        visited: usize,
    },
}

impl LoadPlace {
    /// The first slice.
    pub const START: Self = Self::Hidden(i64::MIN);

    /// The first slice of a lane.
    pub fn lane(at: usize) -> Self {
        let below = (Micros::MAX, String::new());
        Self::Lane {
            at,
            below,
            visited: 0,
        }
    }
}

/// One thing that timelines in memory start from.
#[derive(Debug, Clone, Copy)]
pub enum Loaded<'a> {
    /// An account whose records are hidden.
    Hidden { key: i64 },
    /// A record of a lane; newest first.
    Record {
        lane: i64,
        record: i64,
        time_us: Micros,
        uri: &'a str,
        author: i64,
        keys: &'a [i64],
    },
    /// The end of a lane: everything later than `floor_us` was visited; `None`: everything.
    LaneEnd { lane: i64, floor_us: Option<Micros> },
}

/// What a reader follows and hides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Follows {
    pub keys: Vec<i64>,
    pub hidden: Vec<i64>,
    /// The outbox position at which that was so.
    pub as_of: i64,
}
