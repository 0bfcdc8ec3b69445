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
use crate::ids::{DeadId, ParkedId, Path, Rev, hash};
use crate::retry::parked_pause_us;
use crate::rows::{Parked, Record, Reference};
use crate::rules::Subject;
use crate::value::Cell;
use crate::version::State;
use crate::world::{Halt, World};

/// Why a checked record cannot be applied now.
#[derive(Debug)]
pub(crate) enum Obstacle<'c> {
    /// Something it needs is not here.
    Missing(&'c Needed),
    /// It breaks a rule over records that it refers to.
    Broken(Fault),
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
    if let Some(need) = unmet? {
        return Ok(Some(Obstacle::Missing(need)));
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
fn unmet<'c>(world: &mut World<'_>, content: &'c Content) -> Result<Option<&'c Needed>, Halt> {
    let mut halt = None;
    let mut missing = None;
    for need in &content.needs {
        match is_here(world, &need.at) {
            Ok(true) => {}
            Ok(false) => missing = missing.or(Some(need)),
            Err(stop) => halt = Some(stop),
        }
    }
    halt.map_or(Ok(missing), Err)
}

fn is_here(world: &mut World<'_>, at: &Where) -> Result<bool, Halt> {
    match at {
        Where::Path(path) => {
            let record = world.get::<Record>(record_key(path))?;
            Ok(record.is_some_and(|record| State::from_code(record.state) == State::Live))
        }
        Where::Naming {
            target,
            collection,
            path,
        } => {
            world.exists::<Reference>(&[target.to_value(), collection.to_value(), path.to_value()])
        }
    }
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
    pub(crate) need: &'w Needed,
    /// The dead letter it was, if it was replayed.
    pub(crate) was: Option<DeadId>,
}

/// Parks a record.
pub(crate) fn park(world: &mut World<'_>, waiting: &Waiting<'_>) -> Result<(), Halt> {
    let id = ParkedId(world.new_id()?);
    let pause_us = parked_pause_us(0).unwrap_or_default();
    world.put_at(&Parked {
        id,
        author: waiting.path.author,
        collection: waiting.path.collection,
        rkey: waiting.path.rkey.clone(),
        rev: waiting.rev,
        uri: waiting.uri.to_owned(),
        content: serde_json::to_string(waiting.content).expect("plain data is always JSON"),
        live: waiting.live,
        source: waiting.source.to_owned(),
        cursor: waiting.cursor,
        need: waiting.need.key.clone(),
        need_hash: hash(&waiting.need.key),
        need_path: waiting.need.path.clone(),
        attempts: 1,
        due_us: Some(world.now_us + pause_us),
        dead: None,
        was: waiting.was,
        woken: 0,
        woken_us: None,
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
    for mut parked in world.at::<Parked>(path)? {
        let content: Option<Content> = serde_json::from_str(&parked.content).ok();
        let same =
            content.is_some_and(|content| content.cid.is_some() && content.cid.as_deref() == cid);
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
        end(world, &parked, Outcome::Superseded);
    }
    Ok(None)
}

/// Removes a parked record and its dead letter, and counts its unit as `outcome`.
pub(crate) fn end(world: &mut World<'_>, parked: &Parked, outcome: Outcome) {
    world.delete::<Parked>(vec![parked.id.to_value()]);
    let was = match parked.dead {
        Some(dead) => {
            dead::remove(world, dead);
            Outcome::Dead
        }
        None => Outcome::Parked,
    };
    world.counts(&parked.source).move_to(was, outcome, 1);
}

/// It still lacks something: it waits on, or it waited too long. Says whether it became a dead letter.
pub(crate) fn wait_on(
    world: &mut World<'_>,
    parked: &Parked,
    content: &Content,
    need: &Needed,
    why: Why,
) -> Result<bool, Halt> {
    let mut parked = parked.clone();
    parked.need = need.key.clone();
    parked.need_hash = hash(&need.key);
    parked.need_path = need.path.clone();
    if parked.woken_us.take().is_some() && why == Why::Due {
        // One of several things arrived. That used up no attempt.
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
        let refusal = Refusal {
            path: Path {
                author: parked.author,
                collection: parked.collection,
                rkey: parked.rkey.clone(),
            },
            uri: &parked.uri.clone(),
            rev: parked.rev,
            fault: &fault,
            raw: &content.body,
            source: &parked.source.clone(),
            cursor: parked.cursor,
        };
        parked.dead = Some(dead::keep(world, &refusal, parked.was)?.id);
        world
            .counts(&parked.source)
            .move_to(Outcome::Parked, Outcome::Dead, 1);
    }
    world.put_at(&parked);
    Ok(gives_up)
}
