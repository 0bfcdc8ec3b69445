//! What happens in the world, and how often.
//!
//! In:    nothing; these are settings.
//! Out:   a weight for each [`Act`].
//! Never: an act that the world cannot undo its bookkeeping for.

use crate::compose::Times;

/// One thing an inhabitant, or the network, may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    Post,
    Reply,
    Like,
    Repost,
    Follow,
    /// A second follow record for somebody already followed.
    DoubleFollow,
    SelfFollow,
    /// Deletes a follow record.
    Unfollow,
    /// Follows again somebody who was unfollowed.
    Refollow,
    /// Puts another subject into a follow record.
    TurnFollow,
    /// Rewrites a post, sometimes with another time.
    Edit,
    /// Deletes a post.
    Delete,
    /// Deletes a post and writes another under the same key.
    Recreate,
    /// Deletes a like or repost.
    Undo,
    Profile,
    /// A record of a collection without lexicon.
    Odd,
    /// A post or follow that breaks its lexicon.
    Spoiled,
    /// Rewrites a sound post into one that breaks its lexicon.
    SpoiledEdit,
    /// Several operations in one commit.
    Batch,
    /// A commit without operations.
    Empty,
    /// A new account.
    Join,
    /// Takedown, suspension or deactivation.
    Hide,
    /// Back from hiding.
    Restore,
    /// Desynchronized or throttled: hides nothing.
    Falter,
    /// Deletes an account for good.
    Leave,
    /// An account that is hidden or falters writes all the same.
    Murmur,
    /// A new handle.
    Rename,
    /// A new signing key.
    Rekey,
    /// A `#sync` that changes nothing.
    Sync,
    /// The repository changes unseen; only a `#sync` tells.
    Rewrite,
    /// A commit announced as too big to carry its operations.
    TooBig,
    /// A record longer than a block may be.
    Oversized,
    /// A card, written, edited or deleted.
    Card,
    /// A link that puts a card into a collection, the same.
    Link,
    /// A card and its links in one commit.
    Save,
    /// A follow of a person, a collection, a topic or a post, the same.
    Watch,
    /// A mute or a block, the same.
    Mute,
}

/// The mix of acts.
#[derive(Debug, Clone)]
pub struct Traffic {
    /// Relative frequency of each act; an act not named does not happen.
    pub weights: Vec<(Act, f64)>,
    pub times: Times,
}

impl Traffic {
    /// Nothing happens.
    pub fn none() -> Self {
        Self {
            weights: Vec::new(),
            times: Times::default(),
        }
    }

    /// The same mix with `act` at `weight`.
    #[must_use]
    pub fn with(mut self, act: Act, weight: f64) -> Self {
        self.weights.retain(|(other, _)| *other != act);
        self.weights.push((act, weight));
        self
    }

    /// The mix of the public network, without its rare troubles: likes 70 %,
    /// posts 12 %, reposts 10 %, follows 6 %.
    pub fn bluesky() -> Self {
        Self::none()
            .with(Act::Like, 68.0)
            .with(Act::Undo, 2.0)
            .with(Act::Post, 7.0)
            .with(Act::Reply, 5.0)
            .with(Act::Repost, 10.0)
            .with(Act::Follow, 5.2)
            .with(Act::Unfollow, 0.8)
            .with(Act::Delete, 0.7)
            .with(Act::Edit, 0.1)
            .with(Act::Profile, 0.6)
            .with(Act::Join, 0.1)
            .with(Act::Rename, 0.05)
            .with(Act::Odd, 0.5)
    }

    /// Every act often enough to meet it in a few thousand events, except
    /// [`Act::Oversized`], which must be asked for.
    pub fn wild() -> Self {
        Self::lively()
            .and_library()
            .with(Act::Hide, 1.0)
            .with(Act::Restore, 1.2)
            .with(Act::Leave, 0.3)
            .with(Act::Falter, 0.4)
            .with(Act::Murmur, 0.6)
            .with(Act::Rename, 0.5)
            .with(Act::Rekey, 0.5)
            .with(Act::Sync, 0.5)
            .with(Act::Rewrite, 0.5)
            .with(Act::TooBig, 0.4)
            .with(Act::Join, 0.5)
            .with(Act::Empty, 1.0)
            .with(Act::Spoiled, 2.0)
            .with(Act::SpoiledEdit, 0.7)
            .with(Act::Recreate, 1.0)
    }

    /// The same mix, and records for feeds of every kind.
    #[must_use]
    pub fn and_library(self) -> Self {
        self.with(Act::Card, 4.0)
            .with(Act::Link, 9.0)
            .with(Act::Save, 7.0)
            .with(Act::Watch, 10.0)
            .with(Act::Mute, 4.0)
    }

    /// Posts and changes of mind more often than in life, so that a small
    /// world moves; every trouble now and then.
    pub fn lively() -> Self {
        Self::none()
            .with(Act::Post, 24.0)
            .with(Act::Reply, 10.0)
            .with(Act::Like, 25.0)
            .with(Act::Repost, 6.0)
            .with(Act::Undo, 2.0)
            .with(Act::Follow, 8.0)
            .with(Act::DoubleFollow, 1.0)
            .with(Act::SelfFollow, 0.2)
            .with(Act::Unfollow, 3.0)
            .with(Act::Refollow, 1.0)
            .with(Act::TurnFollow, 0.3)
            .with(Act::Edit, 2.0)
            .with(Act::Delete, 3.0)
            .with(Act::Recreate, 0.3)
            .with(Act::Profile, 1.0)
            .with(Act::Odd, 2.0)
            .with(Act::Spoiled, 0.8)
            .with(Act::SpoiledEdit, 0.2)
            .with(Act::Batch, 2.0)
            .with(Act::Empty, 0.3)
            .with(Act::Join, 0.1)
            .with(Act::Hide, 0.15)
            .with(Act::Restore, 0.15)
            .with(Act::Falter, 0.05)
            .with(Act::Leave, 0.02)
            .with(Act::Murmur, 0.05)
            .with(Act::Rename, 0.1)
            .with(Act::Rekey, 0.05)
            .with(Act::Sync, 0.1)
            .with(Act::Rewrite, 0.05)
            .with(Act::TooBig, 0.05)
    }
}

impl Default for Traffic {
    fn default() -> Self {
        Self::lively()
    }
}
