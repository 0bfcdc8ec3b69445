//! What the operator sees of the log: its spaces, and what waits aside.
//!
//! In:    the log.
//! Out:   role, highest position, feeds and bytes of each space, by name.
//! Never: a space that not everybody may read; more spaces than [`SPACES_SHOWN_MAX`].

use crate::log::Log;
use crate::settings::{Right, Who};
use blocklog::store::{LogStore, Role, StoreError};
use serde_json::{Value, json};

/// Spaces that are shown; the others are counted.
pub const SPACES_SHOWN_MAX: usize = 100;

impl Log {
    /// The spaces, as JSON. Blocks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn overview(&self) -> Result<Value, StoreError> {
        let all = self.store().spaces()?;
        let is_open = |space: &&String| self.settings().who(Right::Read, space) == Who::Anyone;
        let mut shown = Vec::new();
        for space in all.iter().filter(is_open).take(SPACES_SHOWN_MAX) {
            // One that is deleted meanwhile is left out.
            if let Some((state, size)) = self.store().space(space)?.zip(self.store().size(space)?) {
                let role = match state.role {
                    Role::Authority => "authority",
                    Role::Replica => "replica",
                };
                shown.push(json!({
                    "space": space, "role": role, "position": state.position_max,
                    "feeds": size.feeds, "bytes": size.bytes,
                }));
            }
        }
        let others = all.len().saturating_sub(shown.len());
        let aside = self.store().aside_count()?;
        Ok(json!({"spaces": shown, "others": others, "aside": aside}))
    }
}
