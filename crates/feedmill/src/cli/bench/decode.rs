//! `bench decode`: real-sized frames opened, every block hashed, the
//! operations' records decoded; and with full Sync 1.1 checks.

use std::hint::black_box;

use record::car::{self, Car, CarLimits};
use record::cbor;
use record::cid::Cid;
use record::commit::Commit;
use record::event::{Action, CommitEvent, Frame, RepoOp};
use record::key::{PublicKey, SigningKey};
use record::mst::{self, Tree};
use record::tid::Tid;
use sha2::{Digest, Sha256};
use sim::compose::{Composer, Draft, LIKE, Reference, Times};
use sim::rng::Rng;

use super::meter::best_of;
use super::{Ending, Report};

const DID: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
/// Records in a repository before frames are taken: enough for the depth of real ones.
const HISTORY: usize = 80_000;
const FRAMES: usize = 800;
const ROUNDS: usize = 5;
const REPEATS: usize = 20;

pub(super) fn run() -> Result<Report, Ending> {
    let key = SigningKey::k256([7; 32])?;
    let frames = frames(&key)?;
    let public = key.public();
    let bytes: usize = frames.iter().map(Vec::len).sum();
    let mut blocks = 0;
    for frame in &frames {
        blocks += decode(frame)?;
    }
    let per = |seconds: f64, repeats: usize| (frames.len() * repeats) as f64 / seconds;
    let mut faults = 0;
    let hashed = best_of(ROUNDS, || {
        for frame in frames.iter().cycle().take(frames.len() * REPEATS) {
            black_box(Sha256::digest(frame));
        }
    });
    let decoded = best_of(ROUNDS, || {
        for frame in frames.iter().cycle().take(frames.len() * REPEATS) {
            faults += usize::from(black_box(decode(frame)).is_err());
        }
    });
    let full = best_of(ROUNDS, || {
        for frame in &frames {
            faults += usize::from(black_box(prove(frame, &public)).is_err());
        }
    });
    if faults > 0 {
        return Err("a good frame was refused".into());
    }
    let mut report = Report {
        workload: format!(
            "{FRAMES} commits of one operation on repositories of {HISTORY} records: mean {} bytes, {:.1} blocks",
            bytes / frames.len().max(1),
            blocks as f64 / frames.len() as f64
        ),
        ..Report::default()
    };
    report.figure("frames_per_cpu_s", per(decoded, REPEATS));
    report.figure("full_per_cpu_s", per(full, 1));
    report.figure("sha256_per_cpu_s", per(hashed, REPEATS));
    report.ratio("vs_sha256", hashed / decoded);
    report.at_least("frames per CPU-second", per(decoded, REPEATS), 150_000.0);
    report.at_least("speed of SHA-256 of the same bytes", hashed / decoded, 0.5);
    report.at_least("fully proved frames per CPU-second", per(full, 1), 12_000.0);
    Ok(report)
}

/// Opens a frame, hashes its blocks, decodes its records; returns its blocks.
fn decode(frame: &[u8]) -> Result<usize, Ending> {
    let Frame::Commit(event) = Frame::parse(frame)? else {
        return Err("not a commit".into());
    };
    let car = Car::read(event.blocks, CarLimits::COMMIT, true)?;
    for cid in event.ops.iter().filter_map(|op| op.cid) {
        black_box(cbor::decode(car.get(&cid).ok_or("a record is missing")?)?);
    }
    Ok(car.blocks().len())
}

/// The same with every proof: fields, signature, inversion.
fn prove(frame: &[u8], key: &PublicKey) -> Result<(), Ending> {
    decode(frame)?;
    let Frame::Commit(event) = Frame::parse(frame)? else {
        return Err("not a commit".into());
    };
    let car = Car::read(event.blocks, CarLimits::COMMIT, false)?;
    let commit = Commit::parse(car.get(&event.commit).ok_or("the commit is missing")?)?;
    commit.verify(key)?;
    let ops: Vec<mst::Op<'_>> = event
        .ops
        .iter()
        .map(|op| mst::Op {
            path: op.path,
            cid: op.cid,
            prev: op.prev,
        })
        .collect();
    let same =
        commit.did == event.repo && commit.rev == event.rev && car.root() == Some(event.commit);
    if !same || Some(mst::invert(&car, commit.data, &ops)?) != event.prev_data {
        return Err("the proof fails".into());
    }
    Ok(())
}

/// Commits in the mix of the public network: mostly likes, some posts and follows, a tenth deletes.
fn frames(key: &SigningKey) -> Result<Vec<Vec<u8>>, Ending> {
    let mut rng = Rng::new(20_260_704);
    let mut composer = Composer::new(rng.split("composer"), Times::default());
    let mut tree = Tree::new();
    let mut clock_us: u64 = 1_700_000_000_000_000;
    let mut paths: Vec<String> = Vec::new();
    let mut frames = Vec::with_capacity(FRAMES);
    for number in 0..HISTORY + FRAMES {
        clock_us += rng.below(600_000_000);
        let before = tree.root();
        let undo = number % 10 == 9 && number >= HISTORY;
        let (path, block) = if undo {
            let at = rng.below(paths.len() as u64) as usize;
            (paths.swap_remove(at), None)
        } else {
            let draft = draft(&mut rng, &mut composer, clock_us);
            let path = format!("{}/{}", draft.collection, Tid::new(clock_us, 3));
            paths.push(path.clone());
            (path, Some(cbor::encode(&draft.value)))
        };
        let cid = block.as_deref().map(Cid::of_cbor);
        let prev = match cid {
            Some(cid) => tree.insert(&path, cid)?,
            None => tree.remove(&path)?,
        };
        if number < HISTORY {
            continue;
        }
        let action = if undo { Action::Delete } else { Action::Create };
        let op = RepoOp {
            action,
            path: &path,
            cid,
            prev,
        };
        frames.push(frame(&tree, key, clock_us, before, op, block.as_deref())?);
    }
    Ok(frames)
}

fn draft(rng: &mut Rng, composer: &mut Composer, clock_us: u64) -> Draft {
    let to = Reference {
        uri: format!(
            "at://did:plc:{:024x}/app.bsky.feed.post/{}",
            rng.bits(),
            Tid::new(clock_us, 9)
        ),
        cid: Cid::of_cbor(&rng.bits().to_be_bytes()).to_string(),
    };
    match rng.below(100) {
        0..80 => composer.reaction(clock_us as i64, LIKE, &to),
        80..93 => composer.post(clock_us as i64, Some(&to)),
        _ => composer.follow(clock_us as i64, DID),
    }
}

fn frame(
    tree: &Tree,
    key: &SigningKey,
    clock_us: u64,
    before: Cid,
    op: RepoOp<'_>,
    block: Option<&[u8]>,
) -> Result<Vec<u8>, Ending> {
    let rev = Tid::new(clock_us, 1);
    let commit = Commit::sign(DID, rev, tree.root(), key).to_block();
    let root = Cid::of_cbor(&commit);
    let proof = tree.proof([op.path]);
    let nodes = proof.iter().map(|(cid, node)| (*cid, node.as_slice()));
    let record = op.cid.zip(block);
    let blocks = car::write(
        &[root],
        std::iter::once((root, commit.as_slice()))
            .chain(nodes)
            .chain(record),
    );
    let event = CommitEvent {
        seq: i64::try_from(clock_us)?,
        repo: DID,
        commit: root,
        rev,
        since: Some(Tid::new(clock_us - 1, 1)),
        blocks: &blocks,
        ops: vec![op],
        prev_data: Some(before),
        time: "2026-07-04T14:38:00.123Z",
        too_big: false,
        rebase: false,
    };
    Ok(Frame::Commit(event).to_bytes())
}
