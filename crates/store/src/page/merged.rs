//! A reader's feed of groups: records of one author about one thing, shown as one activity.
//!
//! In:    a reader's query, or the first records that memory found.
//! Out:   activities newest first, each with its members and what they add; and, of the same
//!        moment, the records and handles that they name.
//! Never: a page of two moments; an activity whose first record no longer begins a group.
//!
//! A group is in its index under the keys of all its members, at the place of
//! its first one. So the feed gives first records, and their members follow
//! them in the order of the thing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use decide::derived::{Placed, PlacedPart};
use decide::ids::{IndexId, KeyId, Micros, RecordId};
use decide::rows::{Account, Member, Record};
use decide::value::{Cell as _, Damaged, Value};

use super::budget::{Budget, larger};
use super::feed::{Feed, FeedQuery, Reader};
use super::fill::Shown;
use super::filter::Filter;
use super::place::{Place, split};
use super::record::{Texts, row};
use super::row::Row;
use super::visibility::is_visible;
use crate::error::StoreError;
use crate::port::{Asked, Range, Snapshot, Stored};

/// Members named of one activity; of more it says that there are more.
const MEMBERS_MAX: usize = if cfg!(debug_assertions) { 2 } else { 500 };
/// What one activity is shown to add, in number and bytes.
const UNION_MAX: usize = 500;
const UNION_BYTES_MAX: usize = 64 << 10;
/// Bytes of the records that one activity shows of its union.
pub const UNION_RECORDS_BYTES_MAX: usize = 256 << 10;

/// One entry of a merged feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// The record it begins with.
    pub first: Row,
    /// The URIs of its members, first to last.
    pub members: Vec<String>,
    /// Whether there are more members than are named.
    pub is_cut: bool,
    /// The key of whoever wrote them.
    pub author: String,
    /// What they add, each once, in the order first seen.
    pub union: Vec<String>,
    /// What they are about; its own URI, if it is about nothing else.
    pub thing: String,
}

impl Activity {
    /// The record that it is about, if it is here.
    pub fn subject<'a>(&'a self, named: &'a Named) -> Option<&'a Row> {
        match self.thing == self.first.uri {
            true => Some(&self.first),
            false => named.records.get(&self.thing),
        }
    }
}

/// What the activities of a page name beside themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Subjects and unions by URI; a record that is not here is absent.
    pub records: BTreeMap<String, Row>,
    /// Records of unions that are here, and too large to be shown.
    pub omitted: BTreeSet<String>,
    /// Handles of authors by DID, as far as they are known.
    pub handles: BTreeMap<String, String>,
}

/// A page of activities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityPage {
    pub activities: Vec<Activity>,
    pub named: Named,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<Place>,
    /// How many there are in all, if that was asked and could be counted within the budget.
    pub total: Option<usize>,
}

/// Whether an activity about a record is shown; the record is `None` if it is not here.
pub type SubjectTest<'t> = dyn Fn(Option<&Row>) -> bool + 't;

/// Which activities are shown.
#[derive(Clone, Copy, Default)]
pub struct ActivityFilter<'f> {
    /// Collections of the first record; `None`: any.
    pub first: Option<&'f [&'f str]>,
    /// Whether an activity about this subject is shown; `None`: any is.
    pub subject: Option<&'f SubjectTest<'f>>,
}

impl std::fmt::Debug for ActivityFilter<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("ActivityFilter");
        debug.field("first", &self.first);
        debug.field("subject", &self.subject.is_some());
        debug.finish()
    }
}

/// Which page of a merged feed.
#[derive(Debug, Clone, Copy)]
pub struct ActivityQuery<'q> {
    /// Its one target is the merged index.
    pub feed: &'q Feed,
    pub reader: &'q str,
    pub before: Option<&'q Place>,
    pub filter: ActivityFilter<'q>,
    /// Activities passed over first.
    pub skip: usize,
    pub count: bool,
    pub budget: Budget<'q>,
}

/// A page of a merged feed.
pub fn activities(
    snapshot: &dyn Snapshot,
    query: &ActivityQuery<'_>,
) -> Result<ActivityPage, StoreError> {
    let empty = || ActivityPage {
        total: query.count.then_some(0),
        ..ActivityPage::default()
    };
    let Some(target) = query.feed.targets.first() else {
        return Ok(empty());
    };
    let Some(reader) = Reader::load(snapshot, query.feed, query.reader)? else {
        return Ok(empty());
    };
    let walk = Walk {
        snapshot,
        query,
        reader: &reader,
        index: target.index,
    };
    let mut page = walk.page()?;
    if query.count {
        page.total = walk.count()?;
    }
    Ok(page)
}

/// The activities that begin with these records at these times; `None` if one of them no longer
/// does. Five round trips.
pub fn activities_at(
    snapshot: &dyn Snapshot,
    index: IndexId,
    firsts: &[(RecordId, Micros)],
    bytes_max: usize,
) -> Result<Option<ActivityPage>, StoreError> {
    let ids: Vec<RecordId> = firsts.iter().map(|(id, _)| *id).collect();
    let stored: Vec<Option<Stored>> = match ids.is_empty() {
        true => Vec::new(),
        false => snapshot.records(&ids)?,
    };
    let mut found = Vec::with_capacity(stored.len());
    for (stored, (_, time_us)) in stored.into_iter().zip(firsts) {
        match stored.filter(|stored| is_visible(stored) && stored.record.time_us == *time_us) {
            Some(stored) => found.push(stored),
            None => return Ok(None),
        }
    }
    let texts = Texts::of(snapshot, &found)?;
    let shown = found.into_iter().map(|stored| {
        let uri = texts.uri(&stored.record).unwrap_or_default();
        let placed = stored.record.placed.clone();
        let row = row(uri, stored);
        Shown { row, placed }
    });
    let groups = groups(snapshot, index, shown.collect())?;
    let groups: Option<Vec<Group>> = groups.into_iter().collect();
    let Some(mut groups) = groups else {
        return Ok(None);
    };
    let mut bytes = 0;
    groups.retain(|group| {
        let fits = bytes == 0 || bytes < bytes_max;
        bytes += group.bytes();
        fits
    });
    let mut page = ActivityPage::default();
    (page.activities, page.named) = name(snapshot, groups)?;
    Ok(Some(page))
}

/// A group, before its author has a name.
#[derive(Debug)]
struct Group {
    first: Row,
    members: Vec<String>,
    is_cut: bool,
    author: KeyId,
    union: Vec<String>,
    thing: String,
}

impl Group {
    fn bytes(&self) -> usize {
        let texts = self.members.iter().chain(&self.union);
        self.first.bytes() + texts.map(String::len).sum::<usize>()
    }
}

/// A walk over a reader's groups.
#[derive(Clone, Copy)]
struct Walk<'w> {
    snapshot: &'w dyn Snapshot,
    query: &'w ActivityQuery<'w>,
    reader: &'w Reader,
    index: IndexId,
}

impl Walk<'_> {
    fn is_filtered(&self) -> bool {
        self.query.filter.first.is_some() || self.query.filter.subject.is_some()
    }

    /// The first records of the next groups.
    fn firsts(
        &self,
        before: Option<&Place>,
        limit: usize,
    ) -> Result<(Vec<Shown>, Option<Place>), StoreError> {
        let filter = Filter::default();
        let query = FeedQuery {
            feed: self.query.feed,
            reader: self.query.reader,
            before,
            filter: &filter,
            budget: Budget {
                limit,
                bytes_max: usize::MAX,
                ..self.query.budget
            },
        };
        let filled = self.reader.page(self.snapshot, &query)?;
        Ok((filled.shown, filled.next))
    }

    fn page(&self) -> Result<ActivityPage, StoreError> {
        let budget = &self.query.budget;
        let mut skip = self.query.skip;
        let mut chunk = match self.is_filtered() {
            true => budget.limit.max(200),
            false => budget.limit.saturating_add(skip),
        };
        let mut page = ActivityPage::default();
        let mut kept: Vec<Group> = Vec::new();
        let mut before = self.query.before.cloned();
        let (mut looked, mut bytes) = (0, 0);
        'pages: loop {
            budget.check()?;
            let (mut firsts, next) = self.firsts(before.as_ref(), chunk)?;
            looked += firsts.len();
            let is_short = firsts.len() < chunk;
            if !self.is_filtered() {
                let passed = skip.min(firsts.len());
                firsts.drain(..passed);
                skip -= passed;
            }
            for group in self.admitted(firsts)? {
                if skip > 0 && self.is_filtered() {
                    skip -= 1;
                    continue;
                }
                let is_full =
                    kept.len() >= budget.limit || (!kept.is_empty() && bytes >= budget.bytes_max);
                if is_full {
                    page.next = kept.last().map(|group| group.first.place());
                    break 'pages;
                }
                bytes += group.bytes();
                kept.push(group);
            }
            // A read that was cut short says where to go on; so does the page.
            let is_full = kept.len() >= budget.limit && !self.is_filtered();
            if next.is_none() || is_short || is_full || looked >= budget.scan_max {
                page.next = next;
                break;
            }
            before = next;
            chunk = larger(chunk);
        }
        (page.activities, page.named) = name(self.snapshot, kept)?;
        Ok(page)
    }

    /// The groups that begin with these records and pass the filter.
    fn admitted(&self, mut firsts: Vec<Shown>) -> Result<Vec<Group>, StoreError> {
        if let Some(wanted) = self.query.filter.first {
            firsts.retain(|shown| wanted.contains(&shown.row.collection()));
        }
        let groups = groups(self.snapshot, self.index, firsts)?;
        let mut groups: Vec<Group> = groups.into_iter().flatten().collect();
        if let Some(admits) = self.query.filter.subject {
            let uris: Vec<&str> = groups.iter().map(|group| group.thing.as_str()).collect();
            let subjects = super::record::records_at(self.snapshot, &uris)?;
            groups.retain(|group| match group.thing == group.first.uri {
                true => admits(Some(&group.first)),
                false => admits(subjects.get(&group.thing)),
            });
        }
        Ok(groups)
    }

    /// How many activities there are in all; `None` if there are too many to count.
    fn count(&self) -> Result<Option<usize>, StoreError> {
        let (mut before, mut total, mut looked) = (None::<Place>, 0, 0);
        loop {
            let (firsts, next) = self.firsts(before.as_ref(), 2_000)?;
            looked += firsts.len().max(1);
            total += match self.is_filtered() {
                true => self.admitted(firsts)?.len(),
                false => firsts.len(),
            };
            if next.is_none() {
                return Ok(Some(total));
            }
            if looked >= self.query.budget.scan_max {
                return Ok(None);
            }
            before = next;
        }
    }
}

/// What a record brought to its group in an index.
fn part(index: IndexId, shown: &Shown) -> Result<Option<PlacedPart>, StoreError> {
    let placed = Placed::from_column(shown.placed.as_deref()).map_err(|_| Damaged {
        table: "record",
        column: "placed",
    })?;
    let mut parts = placed.parts.into_iter();
    Ok(parts.find(|part| part.index == index))
}

/// The groups that begin with some records; `None` where none does. One round trip.
fn groups(
    snapshot: &dyn Snapshot,
    index: IndexId,
    firsts: Vec<Shown>,
) -> Result<Vec<Option<Group>>, StoreError> {
    let mut ranges = Vec::with_capacity(firsts.len());
    let mut known = Vec::with_capacity(firsts.len());
    for shown in firsts {
        let Some(part) = part(index, &shown)? else {
            known.push(None);
            continue;
        };
        let thing = part.thing.unwrap_or_else(|| shown.row.uri.clone());
        let tail = shown.row.uri.strip_prefix("at://").unwrap_or_default();
        ranges.push(Range {
            after: vec![shown.row.time_us.to_value(), Value::Text(tail.to_owned())],
            inclusive: true,
            max: MEMBERS_MAX + 1,
            ..Range::of::<Member>(vec![
                index.to_value(),
                part.author.to_value(),
                thing.to_value(),
            ])
        });
        known.push(Some((shown.row, part.author, thing)));
    }
    let mut rows = match ranges.is_empty() {
        true => Vec::new(),
        false => snapshot.range(&ranges)?,
    }
    .into_iter();
    let group = |known: Option<(Row, KeyId, String)>| {
        let Some((first, author, thing)) = known else {
            return Ok(None);
        };
        let members = rows.next().map(|rows| rows.typed::<Member>());
        let members = members.transpose()?.unwrap_or_default();
        Ok(Group::of(first, (author, thing), members))
    };
    known.into_iter().map(group).collect()
}

impl Group {
    /// The group of the members that follow its first record; `None` if no group begins with it.
    fn of(first: Row, (author, thing): (KeyId, String), rows: Vec<Member>) -> Option<Self> {
        let mut group = Self {
            first,
            members: Vec::new(),
            is_cut: false,
            author,
            union: Vec::new(),
            thing,
        };
        let (mut known, mut bytes) = (HashSet::new(), 0);
        for row in rows {
            if row.first != group.members.is_empty() {
                break; // the next group; or no group begins here any more
            }
            if group.members.len() == MEMBERS_MAX {
                group.is_cut = true;
                break;
            }
            // Members are live, and visible if the first one is: they have one author.
            group.members.push(["at://", &row.tail].concat());
            let adds: Vec<String> = serde_json::from_str(&row.adds).unwrap_or_default();
            for add in adds {
                let fits = group.union.len() < UNION_MAX && bytes < UNION_BYTES_MAX;
                if fits && known.insert(add.clone()) {
                    bytes += add.len();
                    group.union.push(add);
                }
            }
        }
        (group.members.first() == Some(&group.first.uri)).then_some(group)
    }
}

/// Groups with the names of their authors, and the records and handles they name. Two round trips.
fn name(snapshot: &dyn Snapshot, groups: Vec<Group>) -> Result<(Vec<Activity>, Named), StoreError> {
    if groups.is_empty() {
        return Ok((Vec::new(), Named::default()));
    }
    let about = groups.iter().filter(|group| group.thing != group.first.uri);
    let mut uris: Vec<&str> = about.map(|group| group.thing.as_str()).collect();
    uris.extend(
        groups
            .iter()
            .flat_map(|group| &group.union)
            .map(String::as_str),
    );
    uris.sort_unstable();
    uris.dedup();
    let mut key_ids: Vec<KeyId> = groups.iter().map(|group| group.author).collect();
    key_ids.sort();
    key_ids.dedup();
    let parts = uris.iter().filter_map(|uri| split(uri));
    let (mut keys, mut collections) = (BTreeSet::new(), BTreeSet::new());
    for (did, nsid, _) in parts {
        keys.insert(did);
        collections.insert(nsid);
    }
    let names = snapshot.names(&Asked {
        keys: keys.into_iter().collect(),
        collections: collections.into_iter().collect(),
        key_ids: key_ids.clone(),
        collection_ids: Vec::new(),
    })?;
    let mut ranges = Vec::with_capacity(uris.len());
    let mut asked = Vec::with_capacity(uris.len());
    for uri in uris {
        let Some((did, nsid, rkey)) = split(uri) else {
            continue;
        };
        if let (Some(author), Some(collection)) = (names.keys.get(did), names.collections.get(nsid))
        {
            let rkey = Value::Text(rkey.to_owned());
            let path = vec![author.to_value(), collection.to_value(), rkey];
            ranges.push(Range::of::<Record>(path));
            asked.push(uri.to_owned());
            key_ids.push(*author);
        }
    }
    key_ids.sort();
    key_ids.dedup();
    let of_account = |key: &KeyId| Range::of::<Account>(vec![key.to_value()]);
    ranges.extend(key_ids.iter().map(of_account));
    let mut rows = snapshot.range(&ranges)?;
    let of_accounts = rows.split_off(asked.len());
    let mut accounts: HashMap<KeyId, Account> = HashMap::new();
    for rows in of_accounts {
        for account in rows.typed::<Account>()? {
            accounts.insert(account.key, account);
        }
    }
    let mut records: HashMap<String, Row> = HashMap::new();
    for (uri, rows) in asked.into_iter().zip(rows) {
        if let Some(record) = rows.typed::<Record>()?.pop() {
            let status = accounts.get(&record.author).map_or(0, |one| one.status);
            let stored = Stored { record, status };
            if is_visible(&stored) {
                records.insert(uri.clone(), row(uri, stored));
            }
        }
    }
    let texts = Texts::from(names);
    Ok(shown(groups, records, &accounts, &texts))
}

/// The activities of a page, and those of the records that it shows.
fn shown(
    groups: Vec<Group>,
    mut records: HashMap<String, Row>,
    accounts: &HashMap<KeyId, Account>,
    texts: &Texts,
) -> (Vec<Activity>, Named) {
    let mut named = Named::default();
    let mut activities = Vec::with_capacity(groups.len());
    for group in groups {
        if group.thing != group.first.uri
            && let Some(row) = records.remove(&group.thing)
        {
            named.records.insert(group.thing.clone(), row);
        }
        let mut left = UNION_RECORDS_BYTES_MAX;
        for uri in &group.union {
            if let Some(row) = named.records.get(uri) {
                left = left.saturating_sub(row.bytes());
            } else if let Some(row) = records.remove(uri) {
                match row.bytes() <= left {
                    true => {
                        left -= row.bytes();
                        named.records.insert(uri.clone(), row);
                    }
                    false => {
                        named.omitted.insert(uri.clone());
                        records.insert(uri.clone(), row); // another activity may have room for it
                    }
                }
            }
        }
        let author = texts.key(group.author).unwrap_or_default().to_owned();
        let account = accounts.get(&group.author);
        if let Some(handle) = account.and_then(|account| account.handle.clone()) {
            named.handles.insert(author.clone(), handle);
        }
        activities.push(Activity {
            first: group.first,
            members: group.members,
            is_cut: group.is_cut,
            author,
            union: group.union,
            thing: group.thing,
        });
    }
    (activities, named)
}
