//! Dead letters, newest first, and how many there are.

use decide::batch::{Fault, Stage};
use decide::ids::{CollectionId, DeadId, KeyId, Micros, Rev};
use decide::rows::Dead;
use decide::value::{Cell as _, Damaged};

use super::budget::{Budget, larger};
use super::record::Texts;
use super::status::Total;
use crate::error::StoreError;
use crate::port::{Asked, Range, Snapshot};

/// Which dead letters.
#[derive(Debug, Clone, Copy)]
pub struct DeadQuery<'q> {
    pub collection: Option<&'q str>,
    pub stage: Option<Stage>,
    pub did: Option<&'q str>,
    /// Refused at this moment or later.
    pub since_us: Option<Micros>,
    /// Refused before this moment.
    pub until_us: Option<Micros>,
    /// The last one of the page before.
    pub before: Option<DeadId>,
    pub budget: Budget<'q>,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub id: DeadId,
    /// Empty if it is about no account that is known.
    pub did: String,
    /// Empty, like the record key, if it is about no record.
    pub collection: String,
    pub rkey: String,
    pub rev: Rev,
    pub fault: Fault,
    pub raw: String,
    pub source: String,
    pub cursor: i64,
    pub time_us: Micros,
    /// How often the same bytes arrived.
    pub arrivals: i64,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadPage {
    pub letters: Vec<DeadLetter>,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<DeadId>,
    /// How many there are, whatever was asked for.
    pub total: Total,
}

/// A page of dead letters. One round trip for the names asked for, one for each chunk, one for the
/// names found, one for the total.
pub fn dead(
    snapshot: &dyn Snapshot,
    query: &DeadQuery<'_>,
    count_max: usize,
) -> Result<DeadPage, StoreError> {
    let mut page = DeadPage {
        letters: Vec::new(),
        next: None,
        total: Total::of(snapshot, &[Range::of::<Dead>(Vec::new())], count_max)?.remove(0),
    };
    let Some(wanted) = Wanted::of(snapshot, query)? else {
        return Ok(page);
    };
    let budget = query.budget;
    let (mut before, mut looked) = (query.before, 0);
    let mut chunk = budget.limit.saturating_add(1);
    let mut found: Vec<(Dead, Fault)> = Vec::new();
    'pages: loop {
        budget.check()?;
        let range = Range {
            after: before.map(|id| id.to_value()).into_iter().collect(),
            descending: true,
            max: chunk,
            ..Range::of::<Dead>(Vec::new())
        };
        let mut rows = snapshot.range(&[range])?;
        let rows = rows.pop().map(|rows| rows.typed::<Dead>());
        let rows = rows.transpose()?.unwrap_or_default();
        let is_last = rows.len() < chunk;
        for dead in rows {
            looked += 1;
            before = Some(dead.id);
            let fault = fault(&dead)?;
            if wanted.admits(query, &dead, &fault) {
                if found.len() >= budget.limit {
                    page.next = found.last().map(|(dead, _)| dead.id);
                    break 'pages;
                }
                found.push((dead, fault));
            }
            if looked >= budget.scan_max {
                page.next = before;
                break 'pages;
            }
        }
        if is_last {
            break;
        }
        chunk = larger(chunk);
    }
    page.letters = named(snapshot, found)?;
    Ok(page)
}

/// One dead letter; `None` if there is none of this number. Two round trips.
pub fn letter(snapshot: &dyn Snapshot, id: DeadId) -> Result<Option<DeadLetter>, StoreError> {
    let mut rows = snapshot.range(&[Range::of::<Dead>(vec![id.to_value()])])?;
    let rows = rows.pop().map(|rows| rows.typed::<Dead>());
    let mut found = Vec::new();
    for dead in rows.transpose()?.unwrap_or_default() {
        let fault = fault(&dead)?;
        found.push((dead, fault));
    }
    Ok(named(snapshot, found)?.pop())
}

/// What a query's names are in numbers.
#[derive(Debug)]
struct Wanted {
    author: Option<KeyId>,
    collection: Option<CollectionId>,
}

impl Wanted {
    /// `None` if a name is not known, so that nothing can have it.
    fn of(snapshot: &dyn Snapshot, query: &DeadQuery<'_>) -> Result<Option<Self>, StoreError> {
        let asked = Asked {
            keys: query.did.into_iter().collect(),
            collections: query.collection.into_iter().collect(),
            ..Asked::default()
        };
        let names = match query.did.is_some() || query.collection.is_some() {
            true => snapshot.names(&asked)?,
            false => Default::default(),
        };
        let wanted = Self {
            author: query.did.and_then(|did| names.keys.get(did).copied()),
            collection: query
                .collection
                .and_then(|nsid| names.collections.get(nsid).copied()),
        };
        let known = wanted.author.is_some() == query.did.is_some()
            && wanted.collection.is_some() == query.collection.is_some();
        Ok(known.then_some(wanted))
    }

    fn admits(&self, query: &DeadQuery<'_>, dead: &Dead, fault: &Fault) -> bool {
        self.author.is_none_or(|author| author == dead.author)
            && self
                .collection
                .is_none_or(|wanted| wanted == dead.collection)
            && query.stage.is_none_or(|stage| stage == fault.stage)
            && query
                .since_us
                .is_none_or(|since_us| dead.time_us >= since_us)
            && query
                .until_us
                .is_none_or(|until_us| dead.time_us < until_us)
    }
}

fn fault(dead: &Dead) -> Result<Fault, StoreError> {
    serde_json::from_str(&dead.fault).map_err(|_| {
        StoreError::Damaged(Damaged {
            table: "dead",
            column: "fault",
        })
    })
}

fn named(
    snapshot: &dyn Snapshot,
    found: Vec<(Dead, Fault)>,
) -> Result<Vec<DeadLetter>, StoreError> {
    let mut key_ids: Vec<KeyId> = found.iter().map(|(dead, _)| dead.author).collect();
    key_ids.sort();
    key_ids.dedup();
    let mut collection_ids: Vec<CollectionId> =
        found.iter().map(|(dead, _)| dead.collection).collect();
    collection_ids.sort();
    collection_ids.dedup();
    let asked = Asked {
        key_ids,
        collection_ids,
        ..Asked::default()
    };
    let texts = match found.is_empty() {
        true => Texts::default(),
        false => Texts::from(snapshot.names(&asked)?),
    };
    let letter = |(dead, fault): (Dead, Fault)| DeadLetter {
        id: dead.id,
        did: texts.key(dead.author).unwrap_or_default().to_owned(),
        collection: texts
            .collection(dead.collection)
            .unwrap_or_default()
            .to_owned(),
        rkey: dead.rkey,
        rev: dead.rev,
        fault,
        raw: dead.raw,
        source: dead.source,
        cursor: dead.cursor,
        time_us: dead.time_us,
        arrivals: dead.arrivals,
    };
    Ok(found.into_iter().map(letter).collect())
}
