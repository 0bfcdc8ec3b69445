//! The keys a record stands under in a lane.
//!
//! In:    a lane and a record.
//! Out:   its author, and what the fields say that the lane names: a text, a
//!        whole number where ids are an app's own, or a list of those.
//! Never: a key twice; more than [`RECORD_KEYS_MAX`].

use record::value::Value;

use super::plan::{Counted, Lane, Plan};
use crate::expression::Scope;
use crate::local::{self, LocalId};

/// Keys that one record stands under in a lane; of more, the first count.
pub const RECORD_KEYS_MAX: usize = 100;

impl Plan {
    /// The keys of a record in a lane; `None` if it is not in it. It may be in it without a key,
    /// where no field names one.
    pub(super) fn keys(&self, lane: &Lane, did: &str, value: &Value<'_>) -> Option<Vec<String>> {
        let paths = lane.paths(|| Scope::new(did, "", value))?;
        let mut keys: Vec<String> = Vec::with_capacity(paths.len());
        for path in paths {
            let named = match (path.as_str(), lane.counted) {
                ("author", _) => self.author(&lane.nsid, did, value).into_iter().collect(),
                (_, Counted::Not) => self.all_named(&lane.nsid, path, value),
                (_, Counted::Each | Counted::Authors) => {
                    self.named(&lane.nsid, path, value).into_iter().collect()
                }
            };
            for key in named {
                if keys.len() < RECORD_KEYS_MAX && !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        Some(keys)
    }

    /// The key of a record's author.
    pub(super) fn author(&self, nsid: &str, did: &str, value: &Value<'_>) -> Option<String> {
        match self.actors.get(nsid) {
            Some(field) if did == local::REPO => Some(LocalId::from_field(value.at(field)?)?.did()),
            _ => Some(did.to_owned()),
        }
    }

    /// The key of the person who wrote a record, where that is not its account: an app's records
    /// are all in one repository, and each names who wrote it.
    pub fn person(&self, nsid: &str, did: &str, value: &Value<'_>) -> Option<String> {
        let is_apps = did == local::REPO && self.is_direct(nsid);
        is_apps.then(|| self.author(nsid, did, value)).flatten()
    }

    /// The key that a field names; ids of direct records may be numbers.
    pub(super) fn named(&self, nsid: &str, path: &str, value: &Value<'_>) -> Option<String> {
        self.key(nsid, value.at(path)?)
    }

    /// The keys that a field names: one, or those of a list.
    pub(super) fn all_named(&self, nsid: &str, path: &str, value: &Value<'_>) -> Vec<String> {
        match value.at(path) {
            Some(Value::List(items)) => {
                let items = items.iter().take(RECORD_KEYS_MAX);
                items.filter_map(|item| self.key(nsid, item)).collect()
            }
            Some(value) => self.key(nsid, value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    fn key(&self, nsid: &str, value: &Value<'_>) -> Option<String> {
        match value {
            Value::Text(text) => Some(text.as_ref().to_owned()),
            Value::Int(number) if self.is_direct(nsid) => Some(number.to_string()),
            _ => None,
        }
    }
}
