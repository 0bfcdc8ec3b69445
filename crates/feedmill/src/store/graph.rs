//! The graph of references, walked: what a record leads to, and what leads to it.
//!
//! The edges are the references that were committed with their records, so the
//! graph is never behind them. A walk goes breadth first and is bounded; what
//! it leaves out it says.

/// Which way references are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a record to what it names.
    Out,
    /// From a record to those that name it.
    In,
    /// Both ways.
    Both,
}

/// A walk to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    pub from: String,
    pub direction: Direction,
    /// Only references at this path.
    pub path: Option<String>,
    /// Steps away from the start.
    pub depth: usize,
    pub nodes_max: usize,
    pub edges_max: usize,
}

/// Something that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub uri: String,
    pub depth: usize,
    /// A live, visible record is here; false for what dangles, is hidden, or is no record.
    pub exists: bool,
}

/// One reference on the way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: String,
    pub path: String,
    pub to: String,
}

/// What a walk found, nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// A bound was met: there is more than this.
    pub truncated: bool,
}
