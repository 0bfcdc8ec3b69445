//! Records as they are served, and pages of them.

use decide::ids::{KeyId, Micros, RecordId};
use decide::value::Value;

use super::place::{Place, split};

/// A record as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: RecordId,
    /// Its account.
    pub author: KeyId,
    pub uri: String,
    pub time_us: Micros,
    /// The bytes of its CID.
    pub cid: Option<Vec<u8>>,
    /// The record as JSON text.
    pub body: String,
}

impl Row {
    /// Its place in the order.
    pub fn place(&self) -> Place {
        Place {
            time_us: self.time_us,
            uri: self.uri.clone(),
        }
    }

    /// The DID of its account.
    pub fn did(&self) -> &str {
        split(&self.uri).map_or("", |(did, _, _)| did)
    }

    /// The NSID of its collection.
    pub fn collection(&self) -> &str {
        split(&self.uri).map_or("", |(_, collection, _)| collection)
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.uri.len()
    }
}

/// A page, newest first unless it is sorted otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<Place>,
    /// Of a sorted page, the value at which the next one begins.
    pub next_value: Option<Value>,
}
