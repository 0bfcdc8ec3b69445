//! The graph of references, walked: what a record leads to, and what leads to it.
//!
//! In:    where a walk begins, which way it goes, and its bounds.
//! Out:   what was reached, nearest first, and the references on the way.
//! Never: more nodes or references than were allowed; a bound that was met and not reported.
//!
//! A walk goes breadth first. Everything that one step away needs is read
//! together: at most seven round trips for each step, and two more at the start.

use std::collections::{BTreeSet, HashMap, HashSet};

use decide::ids::RecordId;
use decide::rows::Reference;

use super::record::{Texts, stored_at};
use super::reference::{links, naming};
use super::visibility::is_visible;
use crate::error::StoreError;
use crate::port::{Snapshot, Stored};

/// References that name one node and are read at once; those of hidden records are among them.
const READ_MORE: usize = 100;
/// Reads of the references that name one node, at most.
const READS_MAX: usize = 2;

/// Which way references are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a record to what it names.
    Out,
    /// From a record to those that name it.
    In,
    Both,
}

/// A walk to be made.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'w> {
    pub from: &'w str,
    pub direction: Direction,
    /// Only references at this path.
    pub path: Option<&'w str>,
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

/// What a walk found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Nearest first.
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// A bound was met: there is more than this.
    pub truncated: bool,
}

/// Walks the graph.
pub fn walk(snapshot: &dyn Snapshot, walk: &Walk<'_>) -> Result<Walked, StoreError> {
    let mut walker = Walker {
        walk,
        seen: HashSet::new(),
        edges: BTreeSet::new(),
        found: Walked::default(),
    };
    walker.reach(walk.from, 0);
    let mut begin = 0;
    for depth in 0..=walk.depth {
        let level: Vec<String> = walker
            .found
            .nodes
            .iter()
            .skip(begin)
            .map(|node| node.uri.clone())
            .collect();
        let uris: Vec<&str> = level.iter().map(String::as_str).collect();
        let mut here = stored_at(snapshot, &uris)?;
        here.retain(|_, stored| is_visible(stored));
        for node in walker.found.nodes.iter_mut().skip(begin) {
            node.exists = here.contains_key(&node.uri);
        }
        begin += level.len();
        if depth == walk.depth || level.is_empty() {
            break;
        }
        let named = match walk.direction {
            Direction::Out => HashMap::new(),
            Direction::In | Direction::Both => walker.naming(snapshot, &uris)?,
        };
        for uri in &level {
            walker.step(uri, here.get(uri), named.get(uri.as_str()), depth + 1)?;
        }
    }
    walker.found.edges = walker.edges.into_iter().collect();
    Ok(walker.found)
}

/// References that name a node: from which URI, at which path.
type Naming = Vec<(String, String)>;

struct Walker<'w> {
    walk: &'w Walk<'w>,
    seen: HashSet<String>,
    edges: BTreeSet<Edge>,
    found: Walked,
}

impl Walker<'_> {
    /// Notes a node once; false if there is no room for it.
    fn reach(&mut self, uri: &str, depth: usize) -> bool {
        if self.seen.contains(uri) {
            return true;
        }
        if self.found.nodes.len() >= self.walk.nodes_max {
            self.found.truncated = true;
            return false;
        }
        self.seen.insert(uri.to_owned());
        self.found.nodes.push(Node {
            uri: uri.to_owned(),
            depth,
            exists: false,
        });
        true
    }

    /// Follows the references of one node.
    fn step(
        &mut self,
        uri: &str,
        stored: Option<&Stored>,
        naming: Option<&Naming>,
        depth: usize,
    ) -> Result<(), StoreError> {
        if let (Some(stored), true) = (stored, self.walk.direction != Direction::In) {
            let path = self.walk.path;
            let links = links(stored)?.into_iter();
            let links = links.filter(|(at, _)| path.is_none_or(|path| path == at));
            for (path, to) in links.take(self.room()) {
                let edge = Edge {
                    from: uri.to_owned(),
                    path,
                    to: to.clone(),
                };
                self.follow(edge, &to, depth);
            }
        }
        for (from, path) in naming.into_iter().flatten() {
            let edge = Edge {
                from: from.clone(),
                path: path.clone(),
                to: uri.to_owned(),
            };
            self.follow(edge, from, depth);
        }
        Ok(())
    }

    fn follow(&mut self, edge: Edge, node: &str, depth: usize) {
        if self.edges.len() >= self.walk.edges_max && !self.edges.contains(&edge) {
            self.found.truncated = true;
        } else if self.reach(node, depth) {
            self.edges.insert(edge);
        }
    }

    /// One more than there is room for, so that a bound that was met is noticed.
    fn room(&self) -> usize {
        self.walk.edges_max.saturating_add(1)
    }

    /// The references that name some nodes, those of the records that were stored last first. Two
    /// round trips for each read, and one for names.
    fn naming(
        &mut self,
        snapshot: &dyn Snapshot,
        uris: &[&str],
    ) -> Result<HashMap<String, Naming>, StoreError> {
        let room = self.room();
        let max = room.saturating_add(READ_MORE);
        let mut found: Vec<(usize, Stored, Vec<String>)> = Vec::new();
        let mut counts: Vec<usize> = vec![0; uris.len()];
        let mut open: Vec<(usize, Option<RecordId>)> =
            (0..uris.len()).map(|at| (at, None)).collect();
        for read in 0..READS_MAX {
            let asked = open.iter();
            let ranges = asked.filter_map(|(at, after)| {
                Some(naming(uris.get(*at)?, after.map(|id| (id, false)), max))
            });
            let ranges: Vec<_> = ranges.collect();
            if ranges.is_empty() {
                break;
            }
            let mut ids: Vec<(usize, RecordId)> = Vec::new();
            let mut further = Vec::new();
            for ((at, _), rows) in open.iter().zip(snapshot.range(&ranges)?) {
                let is_last = rows.len() < max;
                let first = ids.len();
                ids.extend(
                    rows.typed::<Reference>()?
                        .iter()
                        .map(|row| (*at, row.record)),
                );
                let last = ids.get(first..).and_then(<[_]>::last).map(|(_, id)| *id);
                if !is_last {
                    further.push((*at, last));
                }
            }
            ids.dedup();
            let numbers: Vec<RecordId> = ids.iter().map(|(_, id)| *id).collect();
            let records = match numbers.is_empty() {
                true => Vec::new(),
                false => snapshot.records(&numbers)?,
            };
            for ((at, _), stored) in ids.into_iter().zip(records) {
                let (Some(stored), Some(uri)) = (stored.filter(is_visible), uris.get(at)) else {
                    continue;
                };
                let named = links(&stored)?.into_iter().filter(|(path, target)| {
                    target == uri && self.walk.path.is_none_or(|wanted| wanted == path)
                });
                let paths: Vec<String> = named.map(|(path, _)| path).collect();
                if let Some(count) = counts.get_mut(at) {
                    *count += paths.len();
                }
                found.push((at, stored, paths));
            }
            open = further;
            open.retain(|(at, _)| counts.get(*at).is_some_and(|count| *count < room));
            // What was not read may name the node too.
            self.found.truncated |= read + 1 == READS_MAX && !open.is_empty();
        }
        let mut all = by_uri(snapshot, uris, found)?;
        all.values_mut().for_each(|naming| naming.truncate(room));
        Ok(all)
    }
}

/// What was found, under the URIs that it names.
fn by_uri(
    snapshot: &dyn Snapshot,
    uris: &[&str],
    found: Vec<(usize, Stored, Vec<String>)>,
) -> Result<HashMap<String, Naming>, StoreError> {
    let stored: Vec<Stored> = found.iter().map(|(_, stored, _)| stored.clone()).collect();
    let texts = Texts::of(snapshot, &stored)?;
    let mut all: HashMap<String, Naming> = HashMap::new();
    for (at, stored, paths) in found {
        let (Some(uri), Some(from)) = (uris.get(at), texts.uri(&stored.record)) else {
            continue;
        };
        let naming = all.entry((*uri).to_owned()).or_default();
        naming.extend(paths.into_iter().map(|path| (from.clone(), path)));
    }
    Ok(all)
}
