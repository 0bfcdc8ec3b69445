//! The rows that follow from a live record: its places in feeds and sort
//! indexes, its follows, its references, its share in counters and groups.
//!
//! Added when a record comes, removed by the same function when it goes, from
//! what was kept with it ([`Placed`]).

use std::collections::{BTreeMap, BTreeSet, btree_map};

use crate::change::{Change, Grouped, Published};
use crate::derived::{Placed, PlacedPart, SortKey, pack, unpack};
use crate::group::{self, Group, Part, Parts, Regrouped};
use crate::ids::{IndexId, KeyId, Micros, Path, RecordId, hash};
use crate::rows::{Entry, Follow, Member, Recent, Reference, Sorted, Voice};
use crate::rules::Counted;
use crate::table::{Row, damaged};
use crate::value::{Cell, Value};
use crate::world::{Halt, World, first};

/// Whether a record's rows are added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Add,
    Remove,
}

/// The record whose rows are touched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'s> {
    pub(crate) path: &'s Path,
    pub(crate) did: &'s str,
    pub(crate) nsid: &'s str,
    pub(crate) record: RecordId,
    pub(crate) time_us: Micros,
    /// Whether counters count it: its account is visible.
    pub(crate) counted: bool,
    /// Happened just now.
    pub(crate) live: bool,
}

impl Subject<'_> {
    /// Sorts as the URI does within one collection.
    fn tail(&self) -> String {
        [self.did, "/", &self.path.rkey].concat()
    }

    /// Sorts as the URI does across collections.
    fn merged_tail(&self) -> String {
        merged_tail(self.did, self.nsid, &self.path.rkey)
    }
}

/// What sorts as the URI does across collections.
pub(crate) fn merged_tail(did: &str, nsid: &str, rkey: &str) -> String {
    [did, "/", nsid, "/", rkey].concat()
}

/// The records of one author about one thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThingKey {
    index: IndexId,
    author: KeyId,
    thing: String,
}

impl ThingKey {
    /// The beginning of its members' primary keys.
    fn prefix(&self) -> Vec<Value> {
        vec![
            self.index.to_value(),
            self.author.to_value(),
            self.thing.to_value(),
        ]
    }
}

/// A thing that this transaction touches.
#[derive(Debug)]
struct Thing {
    before: Parts,
    /// Where the stored groups begin.
    firsts: BTreeSet<group::Place>,
    after: Parts,
    /// Records that this transaction added.
    brought: BTreeSet<RecordId>,
    live: bool,
}

/// The things of a transaction. Each is regrouped once, when all its members are known.
#[derive(Debug)]
pub(crate) struct Things {
    touched: BTreeMap<ThingKey, Thing>,
    /// Members that are read beyond `thing_max`: as many as the batch could remove.
    slack: usize,
}

impl Things {
    /// Things of a batch that touches at most this many records.
    pub(crate) fn new(operations: usize) -> Self {
        Self {
            touched: BTreeMap::new(),
            slack: operations + 1,
        }
    }
}

/// Adds or removes everything derived from a record; returns its places in feed indexes.
pub(crate) fn touch(
    world: &mut World<'_>,
    things: &mut Things,
    subject: Subject<'_>,
    (placed, links): (&Placed, &[(String, String)]),
    touch: Touch,
) -> Result<Vec<Published>, Halt> {
    let tail = subject.tail();
    let author = placed.person.unwrap_or(subject.path.author);
    let mut published = Vec::with_capacity(placed.entries.len());
    for (index, keys) in &placed.entries {
        let place = Entries {
            index: *index,
            time_us: subject.time_us,
            tail: &tail,
            record: subject.record,
            author,
            keys,
        };
        place.touch(world, touch);
        count(world, &place, subject, touch)?;
        published.push(Published {
            index: *index,
            time_us: subject.time_us,
            author,
            keys: keys.clone(),
        });
    }
    for part in &placed.parts {
        things.touch(world, subject, part, touch)?;
    }
    sorts(world, subject, &placed.sorts, &tail, touch);
    references(world, subject, links, touch);
    follows(world, subject, placed, touch);
    Ok(published)
}

/// Asks for the rows that adding or removing a record reads.
pub(crate) fn ask(
    world: &mut World<'_>,
    things: &Things,
    (path, merged_tail): (&Path, &str),
    placed: &Placed,
) {
    ask_counts(world, path, placed);
    for part in &placed.parts {
        let thing = part.thing.clone().unwrap_or_else(|| itself(merged_tail));
        let key = ThingKey {
            index: part.index,
            author: part.author,
            thing,
        };
        if !things.touched.contains_key(&key) {
            let thing_max = world.rules.merging(part.index).thing_max;
            let max = thing_max.saturating_add(things.slack);
            world.want_scan(first::<Member>("", key.prefix(), max));
        }
    }
}

/// Asks for the rows that counting a record reads.
pub(crate) fn ask_counts(world: &mut World<'_>, path: &Path, placed: &Placed) {
    let author = placed.person.unwrap_or(path.author);
    for (index, keys) in &placed.entries {
        if world.rules.counted(*index) == Counted::Authors {
            for key in keys {
                world.want::<Voice>(vec![index.to_value(), key.to_value(), author.to_value()]);
            }
        }
    }
}

/// The thing of a record that is about nothing else.
fn itself(merged_tail: &str) -> String {
    ["at://", merged_tail].concat()
}

/// A record's, or a group's, rows in one feed index.
#[derive(Debug)]
struct Entries<'e> {
    index: IndexId,
    time_us: Micros,
    tail: &'e str,
    record: RecordId,
    author: KeyId,
    keys: &'e [KeyId],
}

impl Entries<'_> {
    fn touch(&self, world: &mut World<'_>, touch: Touch) {
        for key in self.keys {
            let entry = Entry {
                index: self.index,
                key: *key,
                time_us: self.time_us,
                tail: self.tail.to_owned(),
                record: self.record,
            };
            keep(world, &entry, touch);
        }
        let recent = Recent {
            index: self.index,
            time_us: self.time_us,
            tail: self.tail.to_owned(),
            record: self.record,
            author: self.author,
            keys: pack(self.keys),
        };
        keep(world, &recent, touch);
    }
}

fn keep<R: Row>(world: &mut World<'_>, row: &R, touch: Touch) {
    match touch {
        Touch::Add => world.put(row),
        Touch::Remove => world.delete::<R>(R::TABLE.key_of(&row.to_values())),
    }
}

fn count(
    world: &mut World<'_>,
    place: &Entries<'_>,
    subject: Subject<'_>,
    touch: Touch,
) -> Result<(), Halt> {
    if !subject.counted {
        return Ok(());
    }
    let by = match touch {
        Touch::Add => 1,
        Touch::Remove => -1,
    };
    for key in place.keys {
        match world.rules.counted(place.index) {
            Counted::Nothing => {}
            Counted::Records => world.add(place.index, *key, by),
            Counted::Authors => {
                let key_values = vec![
                    place.index.to_value(),
                    key.to_value(),
                    place.author.to_value(),
                ];
                let voice = world.get::<Voice>(key_values.clone())?;
                let was = voice.map_or(0, |voice| voice.n);
                let now = was + by;
                if now > 0 {
                    world.put(&Voice {
                        index: place.index,
                        key: *key,
                        author: place.author,
                        n: now,
                    });
                } else {
                    world.delete::<Voice>(key_values);
                }
                world.add(place.index, *key, i64::from(now > 0) - i64::from(was > 0));
            }
        }
    }
    Ok(())
}

/// Counts a record that stays where it is: it was counted, or not, and from now on it is counted
/// as its account is visible.
pub(crate) fn recount(
    world: &mut World<'_>,
    subject: Subject<'_>,
    placed: &Placed,
    was_counted: bool,
) -> Result<(), Halt> {
    let touch = match (was_counted, subject.counted) {
        (false, true) => Touch::Add,
        (true, false) => Touch::Remove,
        _ => return Ok(()),
    };
    let subject = Subject {
        counted: true,
        ..subject
    };
    let tail = subject.tail();
    for (index, keys) in &placed.entries {
        let place = Entries {
            index: *index,
            time_us: subject.time_us,
            tail: &tail,
            record: subject.record,
            author: placed.person.unwrap_or(subject.path.author),
            keys,
        };
        count(world, &place, subject, touch)?;
    }
    Ok(())
}

fn sorts(
    world: &mut World<'_>,
    subject: Subject<'_>,
    sorts: &[(crate::ids::SortId, SortKey)],
    tail: &str,
    touch: Touch,
) {
    for (sort, value) in sorts {
        let row = Sorted {
            sort: *sort,
            value: match value {
                SortKey::Missing => Value::Blob(Vec::new()),
                SortKey::Number(number) => Value::Int(*number),
                SortKey::Text(text) => Value::Text(text.clone()),
            },
            time_us: subject.time_us,
            tail: tail.to_owned(),
            record: subject.record,
        };
        keep(world, &row, touch);
    }
}

/// Adds or removes the references of a record.
pub(crate) fn references(
    world: &mut World<'_>,
    subject: Subject<'_>,
    links: &[(String, String)],
    touch: Touch,
) {
    for (path, target) in links {
        let row = Reference {
            target: hash(target),
            collection: subject.path.collection,
            path: path.clone(),
            record: subject.record,
        };
        match touch {
            Touch::Add => world.refer(&row, target),
            Touch::Remove => keep(world, &row, touch),
        }
    }
}

fn follows(world: &mut World<'_>, subject: Subject<'_>, placed: &Placed, touch: Touch) {
    let reader = placed.person.unwrap_or(subject.path.author);
    for (source, key) in &placed.follows {
        let row = Follow {
            source: *source,
            reader,
            key: *key,
            record: subject.record,
        };
        keep(world, &row, touch);
        let (source, key) = (*source, *key);
        world.change(match touch {
            Touch::Add => Change::Follow {
                source,
                reader,
                key,
            },
            Touch::Remove => Change::Unfollow {
                source,
                reader,
                key,
            },
        });
    }
}

impl Things {
    fn touch(
        &mut self,
        world: &mut World<'_>,
        subject: Subject<'_>,
        part: &PlacedPart,
        touch: Touch,
    ) -> Result<(), Halt> {
        let tail = subject.merged_tail();
        let thing = part.thing.clone().unwrap_or_else(|| itself(&tail));
        let key = ThingKey {
            index: part.index,
            author: part.author,
            thing,
        };
        let slack = self.slack;
        let thing = match self.touched.entry(key) {
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
            btree_map::Entry::Vacant(entry) => {
                let thing = load(world, entry.key(), slack)?;
                entry.insert(thing)
            }
        };
        // A record that left is news to whoever saw it, whenever it was written.
        thing.live |= subject.live || touch == Touch::Remove;
        let place = (subject.time_us, tail);
        let member = Part {
            record: subject.record,
            keys: part.keys.clone(),
            adds: part.adds.clone(),
        };
        match touch {
            Touch::Add => {
                thing.brought.insert(member.record);
                thing.after.insert(place, member);
            }
            Touch::Remove => {
                if thing.after.remove(&place).is_none() {
                    // It was beyond what is read of a large thing: a group of its own.
                    thing.firsts.insert(place.clone());
                    thing.before.insert(place, member);
                }
            }
        }
        Ok(())
    }

    /// Forms the groups of every touched thing anew, and writes what changed: everything that goes
    /// before anything that comes, since a record that moved from one thing to another at the same
    /// time has the same place in both.
    pub(crate) fn regroup(self, world: &mut World<'_>) {
        let changed: Vec<_> = self
            .touched
            .iter()
            .map(|(key, thing)| (key, thing, thing.regrouped(world, key.index)))
            .collect();
        for (key, _, (changed, _)) in &changed {
            for group in &changed.was {
                entries(key, group).touch(world, Touch::Remove);
            }
        }
        let mut reports: BTreeMap<(IndexId, KeyId), Report> = BTreeMap::new();
        for (key, thing, (changed, all)) in &changed {
            for group in &changed.now {
                entries(key, group).touch(world, Touch::Add);
            }
            thing.write_members(world, key, all);
            let report = reports.entry((key.index, key.author)).or_default();
            let grouped = |group: &Group| grouped(key.author, group, thing.live);
            report.was.extend(changed.was.iter().map(grouped));
            report.now.extend(changed.now.iter().map(grouped));
        }
        for ((index, _), report) in reports {
            report.publish(world, index);
        }
    }
}

/// What consumers are told of one author's groups in one index.
#[derive(Debug, Default)]
struct Report {
    was: Vec<Grouped>,
    now: Vec<Grouped>,
}

/// Groups that one change names. The author of a large thing decides how many change at once.
const GROUPS_MAX: usize = if cfg!(debug_assertions) { 4 } else { 64 };

impl Report {
    /// Publishes it in parts of bounded size: everything that ended, then everything that is now.
    fn publish(mut self, world: &mut World<'_>, index: IndexId) {
        while !self.was.is_empty() || !self.now.is_empty() {
            let rest = self.was.split_off(self.was.len().min(GROUPS_MAX));
            let was = std::mem::replace(&mut self.was, rest);
            let room = self.now.len().min(GROUPS_MAX - was.len());
            let rest = self.now.split_off(room);
            let now = std::mem::replace(&mut self.now, rest);
            let continues = !self.was.is_empty() || !self.now.is_empty();
            world.change(Change::Regroup {
                index,
                was,
                now,
                continues,
            });
        }
    }
}

fn load(world: &mut World<'_>, key: &ThingKey, slack: usize) -> Result<Thing, Halt> {
    let thing_max = world.rules.merging(key.index).thing_max;
    let max = thing_max.saturating_add(slack);
    let mut before = Parts::new();
    let mut firsts = BTreeSet::new();
    for row in world.scan::<Member>(first::<Member>("", key.prefix(), max))? {
        let place = (row.time_us, row.tail);
        if row.first {
            firsts.insert(place.clone());
        }
        let part = Part {
            record: row.record,
            keys: unpack(&row.keys).ok_or(damaged::<Member>("keys"))?,
            adds: serde_json::from_str(&row.adds).map_err(|_| damaged::<Member>("adds"))?,
        };
        before.insert(place, part);
    }
    Ok(Thing {
        after: before.clone(),
        before,
        firsts,
        brought: BTreeSet::new(),
        live: false,
    })
}

impl Thing {
    /// What changed about the groups, and all there are now.
    fn regrouped(&self, world: &World<'_>, index: IndexId) -> (Regrouped, Vec<Group>) {
        let merging = world.rules.merging(index);
        let all = group::groups(&self.after, merging.window_us, merging.thing_max);
        let before = group::beginning_at(&self.before, &self.firsts);
        let changed = group::regroup(&before, &all, &self.brought);
        (changed, all)
    }

    /// Writes the members whose row is another than before.
    fn write_members(&self, world: &mut World<'_>, key: &ThingKey, groups: &[Group]) {
        let firsts: BTreeSet<&group::Place> = groups.iter().map(|group| &group.first).collect();
        for (place, part) in &self.after {
            let first = firsts.contains(place);
            if self.before.get(place) == Some(part) && self.firsts.contains(place) == first {
                continue;
            }
            world.put(&Member {
                index: key.index,
                author: key.author,
                thing: key.thing.clone(),
                time_us: place.0,
                tail: place.1.clone(),
                record: part.record,
                first,
                keys: pack(&part.keys),
                adds: serde_json::Value::from(part.adds.as_slice()).to_string(),
            });
        }
        for place in self
            .before
            .keys()
            .filter(|place| !self.after.contains_key(*place))
        {
            world.delete::<Member>(vec![
                key.index.to_value(),
                key.author.to_value(),
                key.thing.to_value(),
                place.0.to_value(),
                place.1.to_value(),
            ]);
        }
    }
}

fn grouped(author: KeyId, group: &Group, live: bool) -> Grouped {
    Grouped {
        record: group.record,
        uri: ["at://", &group.first.1].concat(),
        time_us: group.first.0,
        author,
        keys: group.keys.clone(),
        live,
    }
}

fn entries<'g>(key: &ThingKey, group: &'g Group) -> Entries<'g> {
    Entries {
        index: key.index,
        time_us: group.first.0,
        tail: &group.first.1,
        record: group.record,
        author: key.author,
        keys: &group.keys,
    }
}
