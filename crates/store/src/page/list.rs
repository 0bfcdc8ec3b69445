//! The records of a collection, or those of it under one key: an author, a parent.

use std::collections::HashSet;

use decide::ids::IndexId;

use super::budget::Budget;
use super::fill::{Filled, Wanted};
use super::filter::Filter;
use super::place::Place;
use super::row::Page;
use super::stream::{Streams, Way};
use super::visibility::Under;
use super::{equal, sort};
use crate::error::StoreError;
use crate::port::{Asked, Snapshot};

/// Which page of a collection.
#[derive(Debug, Clone, Copy)]
pub struct ListQuery<'q> {
    /// The index that lists the collection, and its NSID.
    pub index: IndexId,
    pub collection: &'q str,
    /// Only what is under this key.
    pub key: Option<&'q str>,
    pub before: Option<&'q Place>,
    pub filter: &'q Filter<'q>,
    pub budget: Budget<'q>,
}

/// A page of a collection.
pub fn list(snapshot: &dyn Snapshot, query: &ListQuery<'_>) -> Result<Page, StoreError> {
    let key = match query.key {
        Some(text) => {
            let asked = Asked {
                keys: vec![text],
                ..Asked::default()
            };
            match snapshot.names(&asked)?.keys.get(text) {
                Some(key) => Some(*key),
                None => return Ok(Page::default()),
            }
        }
        None => None,
    };
    let none = HashSet::new();
    let keys: Vec<_> = key.into_iter().collect();
    let (way, under) = match key {
        Some(key) => (Way::Keys(&keys), Under::One(key)),
        None => (Way::All, Under::Any),
    };
    let index = (query.index, query.collection);
    let wanted = Wanted {
        filter: query.filter,
        hidden: &none,
        under: None,
        before: query.before,
        caps: &[None],
        budget: query.budget,
    };
    let among = Wanted {
        under: Some((query.index, under)),
        ..wanted
    };
    if let Some(order) = query.filter.sort {
        return Ok(sort::sorted(snapshot, &among, order, query.collection)?.into());
    }
    let walk = |scan_max| -> Result<Filled, StoreError> {
        let budget = Budget {
            scan_max,
            ..query.budget
        };
        let mut streams = Streams::default();
        streams.add(index, way, query.before);
        Wanted { budget, ..wanted }.fill(snapshot, &mut streams)
    };
    let is_all = key.is_none();
    let page = equal::page(snapshot, &among, query.collection, is_all, &walk)?;
    Ok(page.into())
}
