//! What a decision must read, and what was read.
//!
//! A decision names rows by primary key ([`Wants::get`]) or as the beginning
//! of an order ([`Scan`]). An engine answers everything it was asked in one
//! round trip; what it was not asked is unknown, which is not the same as absent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ids::{CollectionId, KeyId};
use crate::table::Table;
use crate::value::Value;

/// Rows that begin with `prefix` in one of a table's orders, the first `max` of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scan {
    pub table: &'static str,
    /// The name of an index; empty for the order of the primary key.
    pub index: &'static str,
    pub prefix: Vec<Value>,
    /// Only rows after these further columns of the order.
    pub after: Vec<Value>,
    pub max: usize,
}

/// What must be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// Primary keys by table.
    pub get: BTreeMap<&'static str, BTreeSet<Vec<Value>>>,
    pub scans: BTreeSet<Scan>,
    /// How many new numbers are needed for records, parked records and dead letters.
    pub ids: usize,
    /// Numbers whose names are needed.
    pub keys: BTreeSet<KeyId>,
    pub collections: BTreeSet<CollectionId>,
}

impl Wants {
    /// Asks for the row with this primary key.
    pub fn row(&mut self, table: &'static Table, key: Vec<Value>) {
        self.get.entry(table.name).or_default().insert(key);
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What was read: the answers to everything asked so far in this transaction.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// By table and primary key; `None` where there is no such row.
    pub rows: HashMap<(&'static str, Vec<Value>), Option<Vec<Value>>>,
    pub scans: HashMap<Scan, Vec<Vec<Value>>>,
    /// Numbers that nobody else was or will be given, ascending.
    pub ids: Vec<i64>,
    /// The names of the numbers asked for. A number without a name is absent.
    pub keys: HashMap<KeyId, String>,
    pub collections: HashMap<CollectionId, String>,
}

impl Loaded {
    /// Adds the answers to a further load.
    pub fn extend(&mut self, more: Self) {
        self.rows.extend(more.rows);
        self.scans.extend(more.scans);
        self.ids.extend(more.ids);
        self.keys.extend(more.keys);
        self.collections.extend(more.collections);
    }
}

/// The names of a batch and their numbers. Interned before the transaction begins.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub keys: HashMap<String, KeyId>,
    pub collections: HashMap<String, CollectionId>,
}

impl Names {
    /// The number of a name. All names of a batch are interned before it is decided.
    pub fn key(&self, text: &str) -> KeyId {
        let key = self.keys.get(text).copied();
        key.expect("every name of a batch is interned before it is decided")
    }

    /// The number of a collection.
    pub fn collection(&self, nsid: &str) -> CollectionId {
        let collection = self.collections.get(nsid).copied();
        collection.expect("every collection of a batch is interned before it is decided")
    }
}
