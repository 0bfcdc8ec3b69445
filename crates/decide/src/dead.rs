//! Dead letters: what was refused for good, kept for inspection and replay.
//!
//! One for the same bytes, however often they arrive. Closed when its record is
//! deleted, when a newer version is applied, or when its account is gone.

use crate::accounting::Outcome;
use crate::batch::Fault;
use crate::fate::Closed;
use crate::ids::{CollectionId, DeadId, KeyId, Path, Rev, hash};
use crate::rows::Dead;
use crate::value::Cell;
use crate::world::{Halt, World, first};

/// What is refused, and where it came from.
#[derive(Debug)]
pub(crate) struct Refusal<'r> {
    pub(crate) path: Path,
    /// Its AT-URI; empty where it is about no record.
    pub(crate) uri: &'r str,
    pub(crate) rev: Rev,
    pub(crate) fault: &'r Fault,
    pub(crate) raw: &'r str,
    pub(crate) source: &'r str,
    /// The event's own sequence number.
    pub(crate) cursor: i64,
}

impl Refusal<'_> {
    /// What tells its bytes from others: the same bytes are one dead letter, whatever the reason.
    fn fingerprint(&self) -> i64 {
        let Path {
            author,
            collection,
            rkey,
        } = &self.path;
        let (author, collection) = (author.0, collection.0);
        hash(&format!("{author} {collection} {rkey} {}", self.raw))
    }
}

/// The path of what is about no record.
pub(crate) fn nowhere(author: Option<KeyId>) -> Path {
    Path {
        author: author.unwrap_or_default(),
        collection: CollectionId::default(),
        rkey: String::new(),
    }
}

/// A dead letter that was kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) id: DeadId,
    /// It is new; otherwise the same bytes were a dead letter already.
    pub(crate) new: bool,
}

impl Kept {
    /// What became of the unit that it is about.
    pub(crate) fn outcome(self) -> Outcome {
        match self.new {
            true => Outcome::Dead,
            false => Outcome::Repeated,
        }
    }
}

/// Dead letters with one fingerprint that are read.
const SAME_MAX: usize = 16;

/// Keeps a dead letter, under its number if it had one. One with the same bytes is given today's
/// reason instead; older ones of the same record are closed.
pub(crate) fn keep(
    world: &mut World<'_>,
    refusal: &Refusal<'_>,
    was: Option<DeadId>,
) -> Result<Kept, Halt> {
    let fingerprint = refusal.fingerprint();
    let is_record = !refusal.path.rkey.is_empty();
    let prefix = vec![fingerprint.to_value()];
    if !is_record {
        // Of one account there may be many, so they are found by their bytes.
        world.want_scan(first::<Dead>(
            "dead_by_fingerprint",
            prefix.clone(),
            SAME_MAX,
        ));
    }
    let mut known = world.at::<Dead>(&refusal.path)?;
    if !is_record {
        known.extend(world.scan::<Dead>(first::<Dead>("dead_by_fingerprint", prefix, SAME_MAX))?);
    }
    let same = |dead: &Dead| dead.fingerprint == fingerprint && dead.raw == refusal.raw;
    if let Some(mut dead) = known.into_iter().find(same) {
        dead.arrivals += 1;
        if refusal.rev >= dead.rev && refusal.cursor > 0 {
            dead.cursor = refusal.cursor;
        }
        dead.rev = dead.rev.max(refusal.rev);
        let id = dead.id;
        revise(world, dead, refusal.fault);
        return Ok(Kept { id, new: false });
    }
    if is_record {
        close(world, &refusal.path, refusal.rev, Closed::Newer)?;
    }
    let id = match was {
        Some(id) => id,
        None => DeadId(world.new_id()?),
    };
    let path = refusal.path.clone();
    let mut dead = Dead {
        id,
        author: path.author,
        collection: path.collection,
        rkey: path.rkey,
        rev: refusal.rev,
        uri: refusal.uri.to_owned(),
        fingerprint,
        raw: refusal.raw.to_owned(),
        source: refusal.source.to_owned(),
        cursor: refusal.cursor,
        time_us: world.now_us,
        arrivals: 1,
        ..Dead::default()
    };
    describe(&mut dead, refusal.fault);
    count(world, &dead, 1);
    world.put_at(&dead);
    Ok(Kept { id, new: true })
}

/// Bytes of a row beside its texts.
const ROW_BYTES: usize = 200;

/// Writes the reason into a row.
fn describe(dead: &mut Dead, fault: &Fault) {
    dead.fault = serde_json::to_string(fault).expect("plain data is always JSON");
    dead.stage = fault.stage.word().to_owned();
    let bytes = ROW_BYTES + dead.raw.len() + dead.fault.len();
    dead.bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
}

/// Counts a dead letter in or out.
fn count(world: &mut World<'_>, dead: &Dead, by: i64) {
    *world.dead_kind(&dead.stage, dead.collection) += by;
    *world.total(DEAD_BYTES) += by * dead.bytes;
}

/// Bytes of all dead letters.
pub const DEAD_BYTES: &str = "dead bytes";

/// Closes the dead letters at a path up to a revision: its record is gone, or something newer is
/// stored there.
pub(crate) fn close(
    world: &mut World<'_>,
    path: &Path,
    rev: Rev,
    cause: Closed,
) -> Result<(), Halt> {
    for dead in world.at::<Dead>(path)? {
        if dead.rev <= rev {
            supersede(world, &dead, cause);
        }
    }
    Ok(())
}

/// Removes a dead letter whose record is gone or replaced.
pub(crate) fn supersede(world: &mut World<'_>, dead: &Dead, cause: Closed) {
    remove(world, dead);
    *world.writes.closed.entry(cause).or_default() += 1;
    let counts = world.counts(&dead.source);
    counts.move_to(Outcome::Dead, Outcome::Superseded, 1);
}

/// The dead letter of a number at a path.
pub(crate) fn at(world: &mut World<'_>, path: &Path, id: DeadId) -> Result<Option<Dead>, Halt> {
    let all = world.at::<Dead>(path)?;
    Ok(all.into_iter().find(|dead| dead.id == id))
}

/// Where the record of a dead letter is.
pub(crate) fn path_of(dead: &Dead) -> Path {
    Path {
        author: dead.author,
        collection: dead.collection,
        rkey: dead.rkey.clone(),
    }
}

/// Writes today's reason into a dead letter.
pub(crate) fn revise(world: &mut World<'_>, mut dead: Dead, fault: &Fault) {
    count(world, &dead, -1);
    describe(&mut dead, fault);
    count(world, &dead, 1);
    world.put_at(&dead);
}

/// Removes a dead letter; its unit is counted by the caller.
pub(crate) fn remove(world: &mut World<'_>, dead: &Dead) {
    count(world, dead, -1);
    world.delete::<Dead>(vec![dead.id.to_value()]);
}
