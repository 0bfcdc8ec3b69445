//! Walks over references, by seeks, in one snapshot.

use std::collections::{BTreeSet, HashSet};

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::names::hash;
use super::read::{ROW_FROM, VISIBLE, split};
use super::reference;
use crate::store::graph::{Direction, Edge, Node, Walk, Walked};

pub(super) fn walk(connection: &Connection, walk: &Walk) -> Result<Walked, Error> {
    let mut walker = Walker {
        connection,
        walk,
        seen: HashSet::new(),
        edges: BTreeSet::new(),
        found: Walked::default(),
    };
    walker.reach(&walk.from, 0)?;
    // Nodes are appended while they are gone through: what is reached is looked at in its turn.
    let mut next = 0;
    while let Some(node) = walker.found.nodes.get(next) {
        let (uri, depth) = (node.uri.clone(), node.depth);
        if depth < walk.depth {
            walker.step(&uri, depth + 1)?;
        }
        next += 1;
    }
    walker.found.edges = walker.edges.into_iter().collect();
    Ok(walker.found)
}

struct Walker<'a> {
    connection: &'a Connection,
    walk: &'a Walk,
    seen: HashSet<String>,
    edges: BTreeSet<Edge>,
    found: Walked,
}

impl Walker<'_> {
    /// Notes a node once; false if there is no room for it.
    fn reach(&mut self, uri: &str, depth: usize) -> Result<bool, Error> {
        if self.seen.contains(uri) {
            return Ok(true);
        }
        if self.found.nodes.len() >= self.walk.nodes_max {
            self.found.truncated = true;
            return Ok(false);
        }
        let exists = number(self.connection, uri)?.is_some();
        self.seen.insert(uri.to_owned());
        self.found.nodes.push(Node {
            uri: uri.to_owned(),
            depth,
            exists,
        });
        Ok(true)
    }

    /// Follows the references of one node.
    fn step(&mut self, uri: &str, depth: usize) -> Result<(), Error> {
        if self.walk.direction != Direction::In {
            for (path, to) in self.named_by(uri)? {
                let edge = Edge {
                    from: uri.to_owned(),
                    path,
                    to: to.clone(),
                };
                self.follow(edge, &to, depth)?;
            }
        }
        if self.walk.direction != Direction::Out {
            for (from, path) in self.naming(uri)? {
                let edge = Edge {
                    from: from.clone(),
                    path,
                    to: uri.to_owned(),
                };
                self.follow(edge, &from, depth)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, edge: Edge, node: &str, depth: usize) -> Result<(), Error> {
        if self.edges.len() >= self.walk.edges_max && !self.edges.contains(&edge) {
            self.found.truncated = true;
        } else if self.reach(node, depth)? {
            self.edges.insert(edge);
        }
        Ok(())
    }

    /// One more than there is room for, so that a bound that was met is noticed.
    fn room(&self) -> usize {
        self.walk.edges_max.saturating_add(1)
    }

    fn named_by(&self, uri: &str) -> Result<Vec<(String, String)>, Error> {
        let Some(record) = number(self.connection, uri)? else {
            return Ok(Vec::new());
        };
        let path = self.walk.path.as_deref();
        let links = reference::links(self.connection, record)?.into_iter();
        Ok(links
            .filter(|(at, _)| path.is_none_or(|path| path == at))
            .take(self.room())
            .collect())
    }

    fn naming(&self, uri: &str) -> Result<Vec<(String, String)>, Error> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT k.text, c.nsid, r.rkey, r.links FROM {ROW_FROM} WHERE r.id = ?1 AND {VISIBLE}"
        ))?;
        let mut naming = reference::Naming::new(self.connection, uri, None, None)?;
        let mut found = Vec::new();
        while found.len() < self.room()
            && let Some(record) = naming.next()?
        {
            let read = statement.query_row([record], |row| {
                let (did, nsid, rkey): (String, String, String) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                let links = reference::from_text(row.get_ref(3)?.as_str_or_null()?)?;
                Ok((format!("at://{did}/{nsid}/{rkey}"), links))
            });
            let Some((from, links)) = read.optional()? else {
                continue;
            };
            let paths = reference::paths_to(&links, uri, self.walk.path.as_deref());
            found.extend(paths.map(|path| (from.clone(), path.to_owned())));
        }
        found.truncate(self.room());
        Ok(found)
    }
}

/// The number of the live, visible record at `uri`.
fn number(connection: &Connection, uri: &str) -> Result<Option<i64>, Error> {
    let Some((did, nsid, rkey)) = split(uri) else {
        return Ok(None);
    };
    connection
        .prepare_cached(&format!(
            "SELECT r.id FROM {ROW_FROM} WHERE r.hash = ?1 AND r.rkey = ?2 AND k.text = ?3 AND c.nsid = ?4 AND {VISIBLE}"
        ))?
        .query_row(params![hash(uri), rkey, did, nsid], |row| row.get(0))
        .optional()
}
