//! Records that name a parent: how many there are, and the newest of each parent's.

use decide::ids::{IndexId, KeyId};

use super::budget::larger;
use super::filter::counts;
use super::place::uri;
use super::record::row;
use super::row::Row;
use super::visibility::is_visible;
use crate::error::StoreError;
use crate::port::{Asked, Newest, Snapshot};

/// Bytes of the children shown with one parent; the first is shown however large it is.
const BYTES_MAX: usize = 256 << 10;
/// Reads of a parent's children, at most: more are hidden than anybody would look through.
const CHUNKS_MAX: usize = 4;

/// The children of one parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Children {
    pub count: i64,
    /// The newest of them, as many as were asked for.
    pub rows: Vec<Row>,
}

/// Which children are read.
#[derive(Debug, Clone, Copy)]
pub struct ChildQuery<'q> {
    /// The index in which children are under their parents, and their collection's NSID.
    pub index: IndexId,
    pub collection: &'q str,
    /// URIs or DIDs, as the children name them.
    pub parents: &'q [&'q str],
    /// The newest children of each.
    pub limit: usize,
}

/// A parent whose children are being read.
#[derive(Debug)]
struct Parent {
    key: KeyId,
    /// Where it is in the answer.
    at: usize,
    before: Option<(i64, String)>,
    bytes: usize,
    ended: bool,
}

/// The children of each parent, in the order asked.
pub fn children(
    snapshot: &dyn Snapshot,
    query: &ChildQuery<'_>,
) -> Result<Vec<Children>, StoreError> {
    let mut found: Vec<Children> = vec![Children::default(); query.parents.len()];
    let asked = Asked {
        keys: query.parents.to_vec(),
        ..Asked::default()
    };
    let names = snapshot.names(&asked)?;
    let known = query.parents.iter().enumerate();
    let known = known.filter_map(|(at, text)| Some((at, *names.keys.get(*text)?)));
    let parent = |(at, key)| Parent {
        key,
        at,
        before: None,
        bytes: 0,
        ended: query.limit == 0,
    };
    let mut parents: Vec<Parent> = known.map(parent).collect();
    let keys: Vec<(IndexId, KeyId)> = parents.iter().map(|one| (query.index, one.key)).collect();
    if keys.is_empty() {
        return Ok(found);
    }
    let counts = counts(snapshot, &keys)?;
    for parent in &parents {
        if let Some(children) = found.get_mut(parent.at) {
            let count = counts.get(&(query.index, parent.key));
            children.count = count.copied().unwrap_or_default();
        }
    }
    let mut chunk = query.limit;
    for _ in 0..CHUNKS_MAX {
        parents.retain(|parent| !parent.ended);
        if parents.is_empty() {
            break;
        }
        read(snapshot, query, &mut parents, chunk, &mut found)?;
        chunk = larger(chunk);
    }
    Ok(found)
}

/// Reads the next children of some parents. One round trip.
fn read(
    snapshot: &dyn Snapshot,
    query: &ChildQuery<'_>,
    parents: &mut [Parent],
    chunk: usize,
    found: &mut [Children],
) -> Result<(), StoreError> {
    let mut asked: Vec<Newest<'_>> = Vec::with_capacity(parents.len());
    for parent in &*parents {
        let before = parent.before.as_ref();
        asked.push(Newest {
            index: query.index,
            keys: Some(std::slice::from_ref(&parent.key)),
            before: before.map(|(time_us, tail)| (*time_us, tail.as_str())),
            max: chunk,
        });
    }
    let read = snapshot.newest(&asked)?;
    for (parent, candidates) in parents.iter_mut().zip(read) {
        parent.ended = candidates.len() < chunk;
        for candidate in candidates {
            let Some(children) = found.get_mut(parent.at) else {
                break;
            };
            if is_visible(&candidate.stored) {
                let uri = uri(query.collection, &candidate.tail);
                let row = row(uri, candidate.stored);
                parent.bytes += row.bytes();
                if children.rows.len() == query.limit
                    || (parent.bytes > BYTES_MAX && !children.rows.is_empty())
                {
                    parent.ended = true;
                    break;
                }
                children.rows.push(row);
            }
            parent.before = Some((candidate.time_us, candidate.tail));
        }
        let children = found.get(parent.at);
        parent.ended |= children.is_none_or(|children| children.rows.len() == query.limit);
    }
    Ok(())
}
