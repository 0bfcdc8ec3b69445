//! Why a record is, or is not, in a reader's feed.
//!
//! In:    a feed, a reader, a record's URI.
//! Out:   the first thing that keeps it out, or the follows that bring it in.
//! Never: an answer that the feed itself contradicts.
//!
//! The questions are asked in the order in which the record would be stopped:
//! on its way in, then by what is visible, then by who follows what. At most
//! 16 round trips, and those of the whole feed where it ends.

use std::collections::HashMap;

use decide::account::Status;
use decide::batch::{Fault, Stage};
use decide::derived::{Placed, unpack};
use decide::ids::{DeadId, FollowId, IndexId, KeyId, Micros, RecordId};
use decide::rows::{Account, Dead, Follow, Member, Parked};
use decide::table::damaged;
use decide::value::{Cell as _, Value};
use decide::version::State;

use super::budget::Budget;
use super::feed::{Feed, FeedQuery, Target, feed};
use super::filter::Filter;
use super::place::split;
use super::record::{Texts, records, stored_at};
use super::visibility::placed;
use crate::error::StoreError;
use crate::port::{Asked, Range, Snapshot, Stored};

/// Members of a thing that are looked through for the beginning of a group.
const MEMBERS_MAX: usize = 1_001;

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    pub reason: Reason,
    /// Its place in time, where it has one.
    pub time_us: Option<Micros>,
    /// The keys it is published under; in a merged feed those of its whole group.
    pub keys: Vec<String>,
    /// The first record of its group, in a merged feed.
    pub begins: Option<String>,
    /// Which of its keys the reader follows, and by which record.
    pub follows: Vec<Via>,
}

/// One follow that reaches a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    pub key: String,
    /// The follow's URI; `None` where readers see their own without a follow.
    pub record: Option<String>,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Shown,
    /// The feed does not show records of this collection.
    NotATarget,
    /// Nothing was ever heard of it.
    NeverSeen,
    /// It waits for a record that it requires.
    Parked {
        missing: String,
    },
    /// It was refused; without a number if its dead letter was discarded.
    Dead {
        letter: Option<(DeadId, Stage, String)>,
    },
    Deleted,
    /// Everything of its author is hidden.
    AuthorHidden(Status),
    /// Everything of the reader is hidden, its follows too.
    ReaderHidden(Status),
    /// The target's condition does not hold for it.
    Filtered,
    /// The reader follows none of its keys.
    NotFollowed,
    /// The reader hides its author, or every key that reaches it.
    Muted {
        key: String,
        record: String,
    },
    /// The feed ends before it.
    BeyondEnd {
        cap: usize,
    },
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'q> {
    pub feed: &'q Feed,
    /// The collections of a merged feed.
    pub merged: &'q [&'q str],
    pub reader: &'q str,
    pub uri: &'q str,
}

/// Why a record is, or is not, in a reader's feed. Of several targets that could show it, the
/// first that does counts, else the first.
pub fn explain(snapshot: &dyn Snapshot, asked: &Question<'_>) -> Result<Explained, StoreError> {
    let (_, nsid, _) = split(asked.uri).unwrap_or_default();
    let targets = asked.feed.targets.iter();
    let targets = targets.filter(|target| match target.collection.is_empty() {
        true => asked.merged.contains(&nsid),
        false => target.collection == nsid,
    });
    let mut first = None;
    for target in targets {
        let found = of_target(snapshot, asked, target)?;
        if found.reason == Reason::Shown {
            return Ok(found);
        }
        first = first.or(Some(found));
    }
    Ok(first.unwrap_or_else(|| Explained::of(Reason::NotATarget)))
}

impl Explained {
    fn of(reason: Reason) -> Self {
        Self {
            reason,
            time_us: None,
            keys: Vec::new(),
            begins: None,
            follows: Vec::new(),
        }
    }
}

fn of_target(
    snapshot: &dyn Snapshot,
    asked: &Question<'_>,
    target: &Target,
) -> Result<Explained, StoreError> {
    let stored = stored_at(snapshot, &[asked.uri])?.remove(asked.uri);
    let stored = match stored {
        Some(stored) if State::from_code(stored.record.state) != State::Refused => stored,
        refused => {
            return Ok(Explained::of(stopped(
                snapshot,
                asked.uri,
                refused.is_some(),
            )?));
        }
    };
    let mut found = Explained::of(Reason::Deleted);
    found.time_us = Some(stored.record.time_us);
    if State::from_code(stored.record.state) == State::Deleted {
        // A newer version may be on its way.
        if let waiting @ Reason::Parked { .. } = stopped(snapshot, asked.uri, false)? {
            found.reason = waiting;
        }
        return Ok(found);
    }
    let status = Status::from_code(stored.status);
    if !status.visible() {
        found.reason = Reason::AuthorHidden(status);
        return Ok(found);
    }
    let placed = placed(&stored)?;
    let (keys, writer, begins) = match target.collection.is_empty() {
        true => group(snapshot, target.index, asked.uri, &stored, &placed)?,
        false => plain(target.index, &stored, &placed),
    };
    found.begins = begins;
    let Some(keys) = keys else {
        found.reason = Reason::Filtered;
        return Ok(found);
    };
    found.reason = followed(snapshot, asked, (&keys, writer), &mut found)?;
    if let (Reason::Shown, Some(cap)) = (&found.reason, target.cap) {
        let uri = found.begins.as_deref().unwrap_or(asked.uri);
        if !is_within(snapshot, asked, target, cap, uri)? {
            found.reason = Reason::BeyondEnd { cap };
        }
    }
    Ok(found)
}

/// Where a record that is not here was stopped on its way. Two round trips.
fn stopped(snapshot: &dyn Snapshot, uri: &str, is_refused: bool) -> Result<Reason, StoreError> {
    let none = match is_refused {
        true => Reason::Dead { letter: None },
        false => Reason::NeverSeen,
    };
    let Some((did, nsid, rkey)) = split(uri) else {
        return Ok(none);
    };
    let names = snapshot.names(&Asked {
        keys: vec![did],
        collections: vec![nsid],
        ..Asked::default()
    })?;
    let (Some(author), Some(collection)) = (names.keys.get(did), names.collections.get(nsid))
    else {
        return Ok(none);
    };
    let path = || {
        let rkey = Value::Text(rkey.to_owned());
        vec![author.to_value(), collection.to_value(), rkey]
    };
    let parked = Range {
        index: "parked_by_path",
        ..Range::of::<Parked>(path())
    };
    let dead = Range {
        index: "dead_by_path",
        descending: true,
        max: 1,
        ..Range::of::<Dead>(path())
    };
    let mut rows = snapshot.range(&[parked, dead])?;
    let dead = rows.pop().map(|rows| rows.typed::<Dead>()).transpose()?;
    let parked = rows.pop().map(|rows| rows.typed::<Parked>()).transpose()?;
    let waiting = parked
        .into_iter()
        .flatten()
        .filter(|one| one.dead.is_none());
    if let Some(newest) = waiting.max_by_key(|one| one.rev) {
        return Ok(Reason::Parked {
            missing: newest.need,
        });
    }
    let letter = dead.and_then(|mut letters| letters.pop());
    let letter = letter.and_then(|one| {
        let fault: Fault = serde_json::from_str(&one.fault).ok()?;
        Some((one.id, fault.stage, fault.message))
    });
    Ok(match letter {
        Some(letter) => Reason::Dead {
            letter: Some(letter),
        },
        None => none,
    })
}

/// The keys of a record in an index, if it is there; who wrote it; where its group begins.
type Reached = (Option<Vec<KeyId>>, KeyId, Option<String>);

fn plain(index: IndexId, stored: &Stored, placed: &Placed) -> Reached {
    let mut entries = placed.entries.iter();
    let entry = entries.find(|(other, _)| *other == index);
    let writer = placed.person.unwrap_or(stored.record.author);
    (entry.map(|(_, keys)| keys.clone()), writer, None)
}

/// The same for the group of a record. Two round trips.
fn group(
    snapshot: &dyn Snapshot,
    index: IndexId,
    uri: &str,
    stored: &Stored,
    placed: &Placed,
) -> Result<Reached, StoreError> {
    let mut parts = placed.parts.iter();
    let writer = placed.person.unwrap_or(stored.record.author);
    let Some(part) = parts.find(|part| part.index == index) else {
        return Ok((None, writer, None));
    };
    let thing = part.thing.clone().unwrap_or_else(|| uri.to_owned());
    let prefix = vec![index.to_value(), part.author.to_value(), thing.to_value()];
    let tail = uri.strip_prefix("at://").unwrap_or_default().to_owned();
    let read = |place: (Micros, &str), descending| {
        let range = Range {
            after: vec![place.0.to_value(), Value::Text(place.1.to_owned())],
            inclusive: true,
            descending,
            max: MEMBERS_MAX,
            ..Range::of::<Member>(prefix.clone())
        };
        let mut rows = snapshot.range(&[range])?;
        let rows = rows.pop().map(|rows| rows.typed::<Member>());
        Ok::<_, StoreError>(rows.transpose()?.unwrap_or_default())
    };
    let before = read((stored.record.time_us, &tail), true)?;
    let Some(begins) = before.into_iter().find(|member| member.first) else {
        return Ok((Some(part.keys.clone()), writer, None));
    };
    let mut keys = part.keys.clone();
    let members = read((begins.time_us, &begins.tail), false)?.into_iter();
    for member in members
        .enumerate()
        .take_while(|(at, member)| *at == 0 || !member.first)
        .map(|(_, member)| member)
    {
        for key in unpack(&member.keys).ok_or(damaged::<Member>("keys"))? {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    Ok((Some(keys), writer, Some(["at://", &begins.tail].concat())))
}

/// Whether one of its keys is followed, and nothing hides it. Five round trips.
fn followed(
    snapshot: &dyn Snapshot,
    asked: &Question<'_>,
    (keys, writer): (&[KeyId], KeyId),
    found: &mut Explained,
) -> Result<Reason, StoreError> {
    let mut key_ids = keys.to_vec();
    key_ids.push(writer);
    let names = snapshot.names(&Asked {
        keys: vec![asked.reader],
        key_ids,
        ..Asked::default()
    })?;
    let reader = names.keys.get(asked.reader).copied();
    let texts = Texts::from(names);
    let text = |key: KeyId| texts.key(key).unwrap_or_default().to_owned();
    found.keys = keys.iter().map(|key| text(*key)).collect();
    let Some(reader) = reader else {
        return Ok(Reason::NotFollowed);
    };
    let account = snapshot.range(&[Range::of::<Account>(vec![reader.to_value()])])?;
    for rows in account {
        for account in rows.typed::<Account>()? {
            let status = Status::from_code(account.status);
            if !status.visible() {
                return Ok(Reason::ReaderHidden(status));
            }
        }
    }
    let mut all = keys.to_vec();
    all.push(writer);
    let follows = named(snapshot, &asked.feed.follows, reader, keys)?;
    let hides = named(snapshot, &asked.feed.hides, reader, &all)?;
    let mute = |key: KeyId| {
        let record = hides.get(&key)?.first()?.clone();
        Some(Reason::Muted {
            key: text(key),
            record,
        })
    };
    if let Some(muted) = mute(writer) {
        return Ok(muted);
    }
    let mut muted = None;
    for key in keys {
        let own = (asked.feed.include_self && *key == reader).then_some(None);
        let records = follows.get(key).into_iter().flatten().cloned().map(Some);
        let mut via = own.into_iter().chain(records).peekable();
        if via.peek().is_none() {
            continue;
        }
        match mute(*key) {
            Some(mute) => muted = muted.or(Some(mute)),
            None => found.follows.extend(via.map(|record| Via {
                key: text(*key),
                record,
            })),
        }
    }
    Ok(match found.follows.is_empty() {
        true => muted.unwrap_or(Reason::NotFollowed),
        false => Reason::Shown,
    })
}

/// The URIs of the records by which a reader names some keys. Three round trips.
fn named(
    snapshot: &dyn Snapshot,
    sources: &[FollowId],
    reader: KeyId,
    keys: &[KeyId],
) -> Result<HashMap<KeyId, Vec<String>>, StoreError> {
    let mut ranges = Vec::new();
    for source in sources {
        let of_key = |key: &KeyId| {
            Range::of::<Follow>(vec![source.to_value(), reader.to_value(), key.to_value()])
        };
        ranges.extend(keys.iter().map(of_key));
    }
    let mut named: HashMap<KeyId, Vec<String>> = HashMap::new();
    if ranges.is_empty() {
        return Ok(named);
    }
    let mut follows: Vec<Follow> = Vec::new();
    for rows in snapshot.range(&ranges)? {
        follows.extend(rows.typed::<Follow>()?);
    }
    let mut ids: Vec<RecordId> = follows.iter().map(|follow| follow.record).collect();
    ids.sort();
    ids.dedup();
    let rows = match ids.is_empty() {
        true => Vec::new(),
        false => records(snapshot, &ids)?,
    };
    let uris: HashMap<RecordId, String> = rows.into_iter().map(|row| (row.id, row.uri)).collect();
    for follow in follows {
        let uri = uris.get(&follow.record).cloned().unwrap_or_default();
        let of_key = named.entry(follow.key).or_default();
        if !of_key.contains(&uri) {
            of_key.push(uri);
        }
    }
    Ok(named)
}

/// Whether a feed that ends shows a record.
fn is_within(
    snapshot: &dyn Snapshot,
    asked: &Question<'_>,
    target: &Target,
    cap: usize,
    uri: &str,
) -> Result<bool, StoreError> {
    let one = Feed {
        targets: vec![target.clone()],
        ..asked.feed.clone()
    };
    let filter = Filter::default();
    let mut before = None;
    loop {
        let query = FeedQuery {
            feed: &one,
            reader: asked.reader,
            before: before.as_ref(),
            filter: &filter,
            budget: Budget::of(cap),
        };
        let page = feed(snapshot, &query)?;
        if page.rows.iter().any(|row| row.uri == uri) {
            return Ok(true);
        }
        match page.next {
            Some(next) => before = Some(next),
            None => return Ok(false),
        }
    }
}
