//! References between records, as they are asked for.

use super::page::Row;

/// Which records refer to a URI, newest stored first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferrerQuery {
    pub uri: String,
    /// Only references at this path.
    pub path: Option<String>,
    /// The last record and path of the page before.
    pub before: Option<(i64, String)>,
    pub limit: usize,
}

/// A record that refers to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referrer {
    pub row: Row,
    pub path: String,
}

/// Something that a record refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub path: String,
    pub uri: String,
    /// The record there, if it is here, live and visible.
    pub row: Option<Row>,
}
