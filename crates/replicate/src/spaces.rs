//! Spaces: made and deleted on request, and feeds purged.
//!
//! In:    `create`, `delete` and `purge`, from whoever may create spaces.
//! Out:   how much was changed.
//! Never: a space made because somebody reads; more spaces than `spaces_max`; a transaction
//!        as long as the space is large.

use crate::access::Caller;
use crate::log::Log;
use crate::settings::Right;
use crate::streams;
use blocklog::message::{Fault, Kind};
use blocklog::store::{LogStore, Role};
use serde_json::Value;

/// Blocks deleted or purged in one transaction.
const SLICE_BLOCKS_MAX: usize = 1000;

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// One of the messages of the log; the kind is known if the path named it.
    Message(Option<Kind>),
    /// Make the space.
    Create,
    /// Delete the space with everything in it.
    Delete,
    /// Drop the content of every block of a feed.
    Purge,
}

impl Ask {
    /// What the path, or else the field `type`, names.
    pub(crate) fn named(path: Option<&str>, message: &Value) -> Result<Self, Fault> {
        let name = path.or_else(|| message.get("type").and_then(Value::as_str));
        match name {
            Some("create") => Ok(Self::Create),
            Some("delete") => Ok(Self::Delete),
            Some("purge") => Ok(Self::Purge),
            Some(name) if path.is_some() => Ok(Self::Message(Some(Kind::named(name)?))),
            _ => Ok(Self::Message(None)),
        }
    }
}

impl Log {
    /// Make `space` if it is not there; how many were made. Blocks.
    pub(crate) fn create_space(&self, space: &str, caller: &Caller) -> Result<u64, Fault> {
        self.may(Right::Create, space, caller)?;
        if self.store().space(space)?.is_some() {
            return Ok(0);
        }
        let spaces_max = self.settings().spaces_max;
        if self.store().spaces()?.len() >= spaces_max {
            return Err(Fault::Full {
                limit: "spaces_max".into(),
                max: spaces_max as u64,
            });
        }
        self.open_space(space, Role::Authority)?;
        Ok(1)
    }

    /// Delete `space`; how many blocks it had. Blocks.
    pub(crate) fn delete_space(&self, space: &str, caller: &Caller) -> Result<u64, Fault> {
        self.may(Right::Create, space, caller)?;
        if self.is_own(space) {
            return Err(Fault::NotAllowed);
        }
        self.store().begin_deletion(space)?;
        Ok(self.store().delete_some(space, SLICE_BLOCKS_MAX)?)
    }

    /// Drop the content of a feed's blocks; of how many. Their hashes stay. Blocks.
    pub(crate) fn purge_feed(
        &self,
        space: &str,
        message: &Value,
        caller: &Caller,
    ) -> Result<u64, Fault> {
        self.may(Right::Create, space, caller)?;
        if self.is_own(space) {
            return Err(Fault::NotAllowed);
        }
        let feed = message.get("feedId").and_then(Value::as_str);
        let feed = feed.ok_or_else(|| Fault::bad("feedId", "is missing, or not a string"))?;
        Ok(self.store().purge_feed(space, feed, SLICE_BLOCKS_MAX)?)
    }

    /// Whether this process alone writes to `space`: what is published there, and streams.
    pub(crate) fn is_own(&self, space: &str) -> bool {
        space == streams::SPACE || self.settings().publish.as_deref() == Some(space)
    }
}
