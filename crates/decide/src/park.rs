//! Parking: a record that needs another which is not here yet.
//!
//! A reply can arrive before the post it answers. That is not an error in the
//! reply, so it is parked under what it waits for. The batch that brings that
//! marks it due (`wake`), and a later batch tries it again; so the work of one
//! batch never grows by what it releases. Looked at again after each pause, it
//! becomes a dead letter in the end, and is still woken if the missing record
//! comes.

use std::collections::BTreeMap;

use crate::accounting::Outcome;
use crate::batch::{Fault, Stage};
use crate::content::{Content, Needed, Where};
use crate::dead::{self, Refusal};
use crate::ids::{CollectionId, DeadId, ParkedId, Path, RecordId, Rev, hash};
use crate::retry::parked_pause_us;
use crate::rows::{Dead, Parked, Record, Reference};
use crate::rules::Subject;
use crate::stored::names_text;
use crate::table::damaged;
use crate::value::{Cell, Damaged, Value};
use crate::version::State;
use crate::wants::Scan;
use crate::world::{Halt, World, first};

/// Why a checked record cannot be applied now.
#[derive(Debug)]
pub(crate) enum Obstacle<'c> {
    /// Something it needs is not here.
    Missing(Lack<'c>),
    /// It breaks a rule over records that it refers to.
    Broken(Fault),
}

/// What a record needs and what is not here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lack<'c> {
    pub(crate) need: &'c Needed,
    /// This transaction removed what was read of it, and there may be more: look again in the next.
    pub(crate) again: bool,
}

/// Why a parked record is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its pause is over, or what it lacked has come.
    Due,
    /// Too many wait, and it is among the oldest.
    Excess,
}

/// What stands between a checked record and its place. Asks for everything it may look at before
/// it gives up, so that one load is enough.
pub(crate) fn obstacle<'c>(
    world: &mut World<'_>,
    (did, nsid, rkey): (&str, &str, &str),
    content: &'c Content,
) -> Result<Option<Obstacle<'c>>, Halt> {
    let unmet = unmet(world, content);
    let mut live = BTreeMap::new();
    let mut halt = None;
    for (uri, path) in content.linked.iter().flatten() {
        match world.get::<Record>(record_key(path)) {
            Ok(record) => {
                let body = record
                    .filter(|record| State::from_code(record.state) == State::Live)
                    .and_then(|record| record.body);
                live.extend(body.map(|body| (uri.as_str(), body)));
            }
            Err(stop) => halt = Some(stop),
        }
    }
    if let Some(lack) = unmet? {
        return Ok(Some(Obstacle::Missing(lack)));
    }
    if let Some(halt) = halt {
        return Err(halt);
    }
    let Some(expressions) = world
        .rules
        .expressions
        .as_ref()
        .filter(|_| content.linked.is_some())
    else {
        return Ok(None);
    };
    let subject = Subject {
        did,
        nsid,
        rkey,
        body: &content.body,
    };
    let fault = expressions.broken(subject, &|uri| live.get(uri).cloned());
    Ok(fault.map(Obstacle::Broken))
}

/// The first thing that a record needs and that is not here. Records of hidden accounts count:
/// they may come back.
pub(crate) fn unmet<'c>(
    world: &mut World<'_>,
    content: &'c Content,
) -> Result<Option<Lack<'c>>, Halt> {
    let mut halt = None;
    let mut missing = None;
    for need in &content.needs {
        match is_here(world, &need.at) {
            Ok(Here::Yes) => {}
            Ok(here) => {
                let again = here == Here::Perhaps;
                missing = missing.or(Some(Lack { need, again }));
            }
            Err(stop) => halt = Some(stop),
        }
    }
    halt.map_or(Ok(missing), Err)
}

/// Whether something is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    Yes,
    No,
    /// All that was read of it is removed by this transaction.
    Perhaps,
}

fn is_here(world: &mut World<'_>, at: &Where) -> Result<Here, Halt> {
    match at {
        Where::Path(path) => {
            let record = world.get::<Record>(record_key(path))?;
            let live = record.is_some_and(|it| State::from_code(it.state) == State::Live);
            Ok(if live { Here::Yes } else { Here::No })
        }
        Where::Naming {
            collection,
            path,
            value,
        } => is_named(world, *collection, (path, value)),
    }
}

/// References to one text that are read to find a live record that names it. They are found by the
/// text's hash, so each is confirmed by its record.
const NAMING_MAX: usize = 8;

fn is_named(
    world: &mut World<'_>,
    collection: CollectionId,
    (path, value): (&str, &str),
) -> Result<Here, Halt> {
    if world.refers(collection, path, value) {
        return Ok(Here::Yes);
    }
    let prefix = vec![
        hash(value).to_value(),
        collection.to_value(),
        Value::Text(path.to_owned()),
    ];
    let scan = first::<Reference>("", prefix, NAMING_MAX);
    let read = world.loaded::<Reference>(&scan)?;
    // All of them, whatever becomes of them: what is asked for does not depend on other rows.
    for row in &read {
        world.want_scan(by_id(row.record));
    }
    let left = world.scan::<Reference>(scan)?;
    for row in &left {
        for record in world.scan::<Record>(by_id(row.record))? {
            if names_text(&record, path, value)? {
                return Ok(Here::Yes);
            }
        }
    }
    let again = read.len() == NAMING_MAX && left.len() < read.len();
    Ok(if again { Here::Perhaps } else { Here::No })
}

fn by_id(record: RecordId) -> Scan {
    first::<Record>("record_by_id", vec![record.to_value()], 1)
}

/// The primary key of the record at a path.
pub(crate) fn record_key(path: &Path) -> Vec<crate::value::Value> {
    vec![
        path.author.to_value(),
        path.collection.to_value(),
        path.rkey.to_value(),
    ]
}

/// A record to be parked.
#[derive(Debug)]
pub(crate) struct Waiting<'w> {
    pub(crate) path: &'w Path,
    pub(crate) uri: &'w str,
    pub(crate) rev: Rev,
    pub(crate) live: bool,
    pub(crate) source: &'w str,
    pub(crate) cursor: i64,
    pub(crate) content: &'w Content,
    pub(crate) lack: Lack<'w>,
    /// The dead letter it was, if it was replayed.
    pub(crate) was: Option<DeadId>,
}

/// Parks a record.
pub(crate) fn park(world: &mut World<'_>, waiting: &Waiting<'_>) -> Result<(), Halt> {
    let id = ParkedId(world.new_id()?);
    let pause_us = parked_pause_us(0).unwrap_or_default();
    let content = column_of(waiting.content);
    let texts = [&content, waiting.uri, &waiting.lack.need.key];
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    *world.waiting(waiting.path.collection) += 1;
    world.put_at(&Parked {
        id,
        author: waiting.path.author,
        collection: waiting.path.collection,
        rkey: waiting.path.rkey.clone(),
        rev: waiting.rev,
        uri: waiting.uri.to_owned(),
        content,
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        live: waiting.live,
        source: waiting.source.to_owned(),
        cursor: waiting.cursor,
        need: waiting.lack.need.key.clone(),
        need_hash: hash(&waiting.lack.need.key),
        need_path: waiting.lack.need.path.clone(),
        attempts: 1,
        due_us: Some(world.now_us + pause_us),
        dead: None,
        was: waiting.was,
        woken: 0,
        woken_us: waiting.lack.again.then_some(world.now_us),
    });
    Ok(())
}

/// What the version that waits at a path means for an operation on it; `Some` ends the operation.
pub(crate) fn meet(
    world: &mut World<'_>,
    path: &Path,
    (rev, state): (Rev, State),
    (fetched, cid): (bool, Option<&[u8]>),
) -> Result<Option<Outcome>, Halt> {
    if !world.may_wait(path.collection)? {
        return Ok(None);
    }
    // Its dead letter goes with it.
    world.want_at::<Dead>(path);
    for mut parked in world.at::<Parked>(path)? {
        let content = content_of(&parked)?;
        let same = content.cid.is_some() && content.cid.as_deref() == cid;
        if fetched && state == State::Live && same {
            // The repository confirms what waits; older events must not come between.
            parked.rev = parked.rev.max(rev);
            world.put_at(&parked);
            return Ok(Some(Outcome::Repeated));
        }
        if rev < parked.rev {
            return Ok(Some(Outcome::Superseded));
        }
        if rev == parked.rev && state != State::Deleted {
            return Ok(Some(Outcome::Repeated));
        }
        end(world, &parked, Outcome::Superseded)?;
    }
    Ok(None)
}

/// Removes a parked record; its unit is counted by the caller.
pub(crate) fn remove(world: &mut World<'_>, parked: &Parked) {
    world.delete::<Parked>(vec![parked.id.to_value()]);
    *world.waiting(parked.collection) -= 1;
}

fn column_of(content: &Content) -> String {
    serde_json::to_string(content).expect("plain data is always JSON")
}

/// The record that waits.
pub(crate) fn content_of(parked: &Parked) -> Result<Content, Damaged> {
    serde_json::from_str(&parked.content).map_err(|_| damaged::<Parked>("content"))
}

fn path_of(parked: &Parked) -> Path {
    Path {
        author: parked.author,
        collection: parked.collection,
        rkey: parked.rkey.clone(),
    }
}

/// Removes a parked record and its dead letter, and counts its unit as `outcome`.
pub(crate) fn end(world: &mut World<'_>, parked: &Parked, outcome: Outcome) -> Result<(), Halt> {
    let (was, source) = match parked.dead {
        // The unit of a dead letter is counted where that came from.
        Some(id) => match dead::at(world, &path_of(parked), id)? {
            Some(dead) => {
                dead::remove(world, &dead);
                (Outcome::Dead, dead.source)
            }
            None => return Err(damaged::<Parked>("dead").into()),
        },
        None => (Outcome::Parked, parked.source.clone()),
    };
    remove(world, parked);
    world.counts(&source).move_to(was, outcome, 1);
    Ok(())
}

/// A parked record breaks a rule: it is a dead letter from now on, under the number that it had.
pub(crate) fn refuse(
    world: &mut World<'_>,
    parked: &Parked,
    (fault, raw): (&Fault, &str),
) -> Result<(), Halt> {
    remove(world, parked);
    if let Some(id) = parked.dead {
        let dead = dead::at(world, &path_of(parked), id)?;
        let dead = dead.ok_or(damaged::<Parked>("dead"))?;
        dead::revise(world, dead, fault);
        return Ok(());
    }
    let kept = dead::keep(world, &refusal(parked, fault, raw), parked.was)?;
    let counts = world.counts(&parked.source);
    counts.move_to(Outcome::Parked, kept.outcome(), 1);
    Ok(())
}

fn refusal<'r>(parked: &'r Parked, fault: &'r Fault, raw: &'r str) -> Refusal<'r> {
    Refusal {
        path: path_of(parked),
        uri: &parked.uri,
        rev: parked.rev,
        fault,
        raw,
        source: &parked.source,
        cursor: parked.cursor,
    }
}

/// It still lacks something: it waits on, or it waited too long. Says whether it became a dead letter.
pub(crate) fn wait_on(
    world: &mut World<'_>,
    parked: &Parked,
    content: &Content,
    lack: Lack<'_>,
    why: Why,
) -> Result<bool, Halt> {
    let need = lack.need;
    let mut parked = parked.clone();
    parked.content = column_of(content);
    parked.need = need.key.clone();
    parked.need_hash = hash(&need.key);
    parked.need_path = need.path.clone();
    if parked.woken_us.take().is_some() && why == Why::Due {
        // One of several things arrived. That used up no attempt.
        parked.woken_us = lack.again.then_some(world.now_us);
        world.put_at(&parked);
        return Ok(false);
    }
    if lack.again && why == Why::Due {
        parked.woken_us = Some(world.now_us);
        world.put_at(&parked);
        return Ok(false);
    }
    let waits_on = why == Why::Due && parked.dead.is_none();
    let pause_us = parked_pause_us(parked.attempts).filter(|_| waits_on);
    parked.attempts += 1;
    parked.due_us = pause_us.map(|pause_us| world.now_us + pause_us);
    let gives_up = parked.due_us.is_none() && parked.dead.is_none();
    if gives_up {
        let fault = Fault {
            stage: Stage::Dependency,
            message: format!(
                "{} did not arrive; if it does, the record is applied",
                need.key
            ),
            rule: None,
            path: need.path.split('.').map(str::to_owned).collect(),
            expected: "a live record".into(),
            received: need.key.clone(),
        };
        let kept = dead::keep(world, &refusal(&parked, &fault, &content.body), parked.was)?;
        parked.dead = Some(kept.id);
        let counts = world.counts(&parked.source);
        counts.move_to(Outcome::Parked, kept.outcome(), 1);
    }
    world.put_at(&parked);
    Ok(gives_up)
}
