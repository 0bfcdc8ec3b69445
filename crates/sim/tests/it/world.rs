//! The world repeats itself, and its bytes are what they claim to be.

use std::collections::{BTreeMap, BTreeSet};

use record::car::{Car, CarLimits};
use record::cid::Cid;
use record::commit::Commit;
use record::event::{Action, Frame};
use record::mst::{self, Op};
use record::value::Value;
use sim::compose::library::LINK;
use sim::event::{Body, SeqEvent};
use sim::model::Fact;
use sim::traffic::{Act, Traffic};
use sim::world::{World, WorldOptions};

fn options(seed: u64, accounts: usize) -> WorldOptions {
    WorldOptions {
        seed,
        accounts,
        traffic: Traffic::wild(),
        ..WorldOptions::default()
    }
}

/// The history and `steps` acts of a world.
fn events(world: &mut World, steps: usize) -> Vec<SeqEvent> {
    let mut events = world.take_genesis();
    for _ in 0..steps {
        events.extend(world.step());
    }
    events
}

#[test]
fn same_seed_gives_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| {
        let mut world = World::new(options(seed, 60));
        let events = events(&mut world, 800);
        events
            .into_iter()
            .map(|event| event.frame)
            .collect::<Vec<_>>()
    };
    assert_eq!(bytes(5), bytes(5));
    assert_ne!(bytes(5), bytes(6));
}

/// What a careful consumer of the stream knows of one account.
#[derive(Default)]
struct Followed {
    rev: Option<record::tid::Tid>,
    data: Option<Cid>,
}

/// Checks one commit as Sync 1.1 demands. `true` if its operations tell all.
#[track_caller]
fn check_commit(
    event: &record::event::CommitEvent<'_>,
    key: &record::key::PublicKey,
    known: &mut Followed,
) -> bool {
    let car = Car::read(event.blocks, CarLimits::COMMIT, true).unwrap();
    assert_eq!(car.root(), Some(event.commit));
    let commit = Commit::parse(car.get(&event.commit).unwrap()).unwrap();
    assert_eq!((&*commit.did, commit.rev), (event.repo, event.rev));
    commit.verify(key).unwrap();
    assert!(known.rev.is_none_or(|rev| rev < event.rev));
    let told = !event.too_big;
    if told {
        let ops: Vec<Op<'_>> = event
            .ops
            .iter()
            .map(|op| Op {
                path: op.path,
                cid: op.cid,
                prev: op.prev,
            })
            .collect();
        let before = mst::invert(&car, commit.data, &ops).unwrap();
        let empty = mst::Tree::new().root();
        assert_eq!(before, event.prev_data.unwrap_or(empty));
        for op in &event.ops {
            assert_eq!(op.action == Action::Delete, op.cid.is_none());
            if let Some(cid) = op.cid {
                record::cbor::decode(car.get(&cid).unwrap()).unwrap();
            }
        }
    }
    known.rev = Some(event.rev);
    known.data = Some(commit.data);
    told
}

#[test]
fn every_commit_is_signed_inverts_and_continues_its_chain() {
    let mut world = World::new(options(21, 50));
    let mut keys: BTreeMap<String, record::key::PublicKey> = BTreeMap::new();
    let mut known: BTreeMap<String, Followed> = BTreeMap::new();
    let (mut commits, mut breaks) = (0, 0);
    let mut pending = world.take_genesis();
    for _ in 0..1200 {
        for event in pending.drain(..) {
            let did = event.did.to_string();
            // The directory is asked again when the stream says so, as in life.
            if matches!(event.body, Body::Identity { .. }) {
                let account = world.account(&did).unwrap();
                keys.insert(did.clone(), account.key.public());
            }
            let known = known.entry(did.clone()).or_default();
            match Frame::parse(&event.frame).unwrap() {
                Frame::Commit(commit) => {
                    let continues = commit.since == known.rev && commit.prev_data == known.data;
                    breaks += usize::from(!continues);
                    check_commit(&commit, &keys[&did], known);
                    commits += 1;
                }
                Frame::Sync(sync) => {
                    let car = Car::read(sync.blocks, CarLimits::COMMIT, true).unwrap();
                    let commit = Commit::parse(car.get(&car.root().unwrap()).unwrap()).unwrap();
                    *known = Followed {
                        rev: Some(sync.rev),
                        data: Some(commit.data),
                    };
                }
                Frame::Identity(_) | Frame::Account(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        pending = world.step();
    }
    assert!(commits > 1000, "{commits} commits");
    assert_eq!(breaks, 0, "nothing is lost without faults");
}

#[test]
fn frames_say_what_their_bodies_say() {
    let mut world = World::new(options(22, 50));
    for event in events(&mut world, 1500) {
        let frame = Frame::parse(&event.frame).unwrap();
        assert_eq!(frame.seq(), Some(event.seq as i64));
        assert_eq!(frame.did(), Some(&*event.did));
        match (&event.body, frame) {
            (
                Body::Commit {
                    rev,
                    ops,
                    too_big,
                    blocks,
                },
                Frame::Commit(commit),
            ) => {
                assert_eq!(*rev, commit.rev.to_string());
                assert_eq!(*too_big, commit.too_big);
                assert_eq!(&event.frame[blocks.clone()], commit.blocks);
                assert_eq!(ops.len(), commit.ops.len());
                for (told, op) in ops.iter().zip(&commit.ops) {
                    assert_eq!(format!("{}/{}", told.collection, told.rkey), op.path);
                    assert_eq!(told.record.as_ref().map(|(cid, _)| *cid), op.cid);
                }
            }
            (Body::Sync { rev }, Frame::Sync(sync)) => assert_eq!(*rev, sync.rev.to_string()),
            (Body::Identity { handle }, Frame::Identity(identity)) => {
                assert_eq!(Some(handle.as_str()), identity.handle);
            }
            (Body::Account { standing }, Frame::Account(account)) => {
                assert_eq!(standing.status(), account.status);
                assert_eq!(standing.status().is_none(), account.active);
            }
            (body, frame) => panic!("{body:?} told as {frame:?}"),
        }
    }
}

/// Whatever the acts, the repositories hold exactly the model's records.
#[test]
fn model_and_repositories_agree_after_wild_traffic() {
    let mut world = World::new(options(23, 60));
    events(&mut world, 3000);
    let mut in_repos = BTreeMap::new();
    for account in world.accounts() {
        let car = account.repo.export();
        if account.repo.head().is_none() {
            continue;
        }
        let car = Car::read(&car, CarLimits::REPO, true).unwrap();
        let commit = Commit::parse(car.get(&car.root().unwrap()).unwrap()).unwrap();
        commit.verify(&account.key.public()).unwrap();
        for entry in mst::walk(&car, commit.data, 1_000_000) {
            let (path, cid) = entry.unwrap();
            record::cbor::decode(car.get(&cid).unwrap()).unwrap();
            in_repos.insert(format!("at://{}/{path}", account.did), cid.to_string());
        }
    }
    let in_model: BTreeMap<String, String> = world
        .model()
        .records()
        .map(|(uri, fact)| (uri.to_owned(), fact.cid.clone()))
        .collect();
    assert_eq!(in_repos, in_model);
}

/// How many fields of a record are as the model was told.
fn says(value: &Value<'_>, fact: &Fact, uri: &str) -> usize {
    let told = fact.fields.as_ref().unwrap();
    for (path, said) in told {
        let mut at = Some(value);
        for step in path.split('.') {
            at = at.and_then(|value| value.get(step));
        }
        let read: Vec<&str> = match at {
            Some(Value::List(items)) => items.iter().filter_map(|item| item.text()).collect(),
            other => other.and_then(|it| it.text()).into_iter().collect(),
        };
        assert_eq!(&read, said, "{uri} {path}");
    }
    told.len()
}

/// The fields and times the model was told are those in the records.
#[test]
fn facts_are_what_the_records_say() {
    let mut world = World::new(options(24, 60));
    events(&mut world, 2500);
    let (mut timeless, mut unsound, mut fields) = (0, 0, 0);
    for (uri, fact) in world.model().records() {
        let account = world.account(&fact.did).unwrap();
        let path = format!("{}/{}", fact.collection, fact.rkey);
        let (_, block) = account.repo.record(&path).unwrap();
        let value = record::cbor::decode(block).unwrap();
        let time = match fact.collection.as_str() {
            LINK => "addedAt",
            _ => "createdAt",
        };
        let created = value.get(time).and_then(|it| it.text());
        let parsed = created.and_then(record::datetime::parse_us);
        assert_eq!(parsed, fact.created_us, "{uri} {created:?}");
        if fact.sound {
            fields += says(&value, fact, uri);
        }
        timeless += usize::from(fact.created_us.is_none());
        unsound += usize::from(!fact.sound);
    }
    assert!(timeless > 10, "{timeless}");
    assert!(unsound > 10, "{unsound}");
    assert!(fields > 1000, "{fields}");
}

#[test]
fn every_act_can_happen_and_tells_something() {
    let mut world = World::new(options(25, 40));
    world.take_genesis();
    let acts: BTreeSet<Act> = Traffic::wild()
        .with(Act::Oversized, 1.0)
        .weights
        .iter()
        .map(|(act, _)| *act)
        .collect();
    assert_eq!(acts.len(), 37);
    for act in acts {
        for _ in 0..3 {
            assert!(!world.act(act).is_empty(), "{act:?}");
        }
    }
}

#[test]
fn oversized_record_is_longer_than_a_block_may_be_and_unsound() {
    let mut world = World::new(options(26, 20));
    let events = world.act(Act::Oversized);
    let Body::Commit { ops, .. } = &events[0].body else {
        panic!("{events:?}")
    };
    assert!(!ops[0].sound);
    let (_, block) = ops[0].record.as_ref().unwrap();
    assert!(block.len() > record::event::RECORD_BYTES_MAX);
}

#[test]
fn small_world_has_its_shape() {
    let world = World::new(options(27, 2000));
    let marginals = world.marginals();
    assert_eq!(marginals.median, 1, "{marginals}");
    assert!((60..150).contains(&marginals.p95), "{marginals}");
    assert!((0.65..0.85).contains(&marginals.silent), "{marginals}");
    let web = world.accounts().iter().filter(|it| it.is_web()).count();
    assert!((40..200).contains(&web), "{web} of did:web");
    assert!(!world.readers().is_empty());
}

#[test]
fn settling_gives_every_visible_account_a_commit() {
    let mut world = World::new(options(28, 40));
    events(&mut world, 1000);
    let visible = world
        .accounts()
        .iter()
        .filter(|account| !account.standing.hides())
        .count();
    let settled = world.settle();
    assert_eq!(settled.len(), visible);
}

#[test]
fn full_world_takes_back_instead_of_writing() {
    let mut world = World::new(WorldOptions {
        records_max: 1500,
        ..options(29, 20)
    });
    events(&mut world, 3000);
    let records = world.model().len();
    assert!((1000..1600).contains(&records), "{records}");
}
