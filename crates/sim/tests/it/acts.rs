//! Each act does what its name says.

use record::car::{Car, CarLimits};
use record::commit::Commit;
use record::event::{Action, Frame};
use sim::compose::{FOLLOW, POST};
use sim::event::{Body, Operation, SeqEvent};
use sim::model::Standing;
use sim::traffic::{Act, Traffic};
use sim::world::{World, WorldOptions};

fn world(seed: u64) -> World {
    let mut world = World::new(WorldOptions {
        seed,
        accounts: 25,
        traffic: Traffic::lively(),
        ..WorldOptions::default()
    });
    world.take_genesis();
    world
}

fn operations(event: &SeqEvent) -> &[Operation] {
    match &event.body {
        Body::Commit { ops, .. } => ops,
        other => panic!("not a commit: {other:?}"),
    }
}

/// Lets `act` happen until it is not replaced by a post.
fn happen(world: &mut World, act: Act, is_it: impl Fn(&[SeqEvent]) -> bool) -> Vec<SeqEvent> {
    for _ in 0..200 {
        let events = world.act(act);
        if is_it(&events) {
            return events;
        }
    }
    panic!("{act:?} never happened")
}

/// The one operation of the one commit that `act` made.
fn one(world: &mut World, act: Act, action: Action, collection: &str) -> (String, Operation) {
    let events = happen(world, act, |events| {
        let [event] = events else { return false };
        let [op] = operations(event) else {
            return false;
        };
        op.action == action && op.collection == collection
    });
    (events[0].did.to_string(), operations(&events[0])[0].clone())
}

/// The subjects of an account's follow records, one per record.
fn subjects(world: &World, did: &str) -> Vec<String> {
    let records = world.model().records();
    records
        .filter(|(_, fact)| fact.did == did && fact.collection == FOLLOW)
        .filter_map(|(_, fact)| fact.text("subject").map(str::to_owned))
        .collect()
}

fn subject(world: &World, did: &str, op: &Operation) -> String {
    let uri = format!("at://{did}/{FOLLOW}/{}", op.rkey);
    let fact = world.model().record(&uri).unwrap();
    fact.text("subject").unwrap().to_owned()
}

#[test]
fn double_follow_names_somebody_already_followed() {
    let mut world = world(71);
    let (did, op) = one(&mut world, Act::DoubleFollow, Action::Create, FOLLOW);
    let subject = subject(&world, &did, &op);
    let all = subjects(&world, &did);
    assert!(all.iter().filter(|it| **it == subject).count() >= 2);
}

#[test]
fn self_follow_names_its_author() {
    let mut world = world(72);
    let (did, op) = one(&mut world, Act::SelfFollow, Action::Create, FOLLOW);
    assert_eq!(subject(&world, &did, &op), did);
}

#[test]
fn unfollowed_account_is_followed_again() {
    let mut world = world(73);
    for _ in 0..20 {
        one(&mut world, Act::Unfollow, Action::Delete, FOLLOW);
    }
    let (did, op) = one(&mut world, Act::Refollow, Action::Create, FOLLOW);
    let subject = subject(&world, &did, &op);
    assert!(world.account(&subject).is_some());
}

#[test]
fn turned_follow_keeps_its_key() {
    let mut world = world(74);
    let (did, op) = one(&mut world, Act::TurnFollow, Action::Update, FOLLOW);
    assert!(world.account(&subject(&world, &did, &op)).is_some());
}

#[test]
fn deleted_post_leaves_model_and_repository() {
    let mut world = world(75);
    let (did, op) = one(&mut world, Act::Delete, Action::Delete, POST);
    let path = format!("{POST}/{}", op.rkey);
    assert!(
        world
            .model()
            .record(&format!("at://{did}/{path}"))
            .is_none()
    );
    assert!(world.account(&did).unwrap().repo.record(&path).is_none());
}

#[test]
fn recreated_post_is_deleted_and_created_under_one_key() {
    let mut world = world(76);
    let events = happen(&mut world, Act::Recreate, |events| events.len() == 2);
    let (gone, back) = (&operations(&events[0])[0], &operations(&events[1])[0]);
    assert_eq!((gone.action, back.action), (Action::Delete, Action::Create));
    assert_eq!(gone.rkey, back.rkey);
}

#[test]
fn spoiled_edit_makes_a_sound_post_unsound() {
    let mut world = world(77);
    let (did, op) = one(&mut world, Act::SpoiledEdit, Action::Update, POST);
    assert!(!op.sound);
    let uri = format!("at://{did}/{POST}/{}", op.rkey);
    assert!(!world.model().record(&uri).unwrap().sound);
}

#[test]
fn new_key_signs_the_head_from_now_on() {
    let mut world = world(78);
    let before: Vec<_> = world
        .accounts()
        .iter()
        .map(|it| (it.did.clone(), it.key.public()))
        .collect();
    let events = world.act(Act::Rekey);
    assert!(matches!(events[0].body, Body::Identity { .. }));
    let account = world.account(&events[0].did).unwrap();
    let (_, old) = before.iter().find(|(did, _)| *did == account.did).unwrap();
    assert_ne!(*old, account.key.public());
    let Frame::Commit(event) = Frame::parse(&events[1].frame).unwrap() else {
        panic!("no commit after the identity")
    };
    let car = Car::read(event.blocks, CarLimits::COMMIT, true).unwrap();
    let commit = Commit::parse(car.get(&event.commit).unwrap()).unwrap();
    commit.verify(&account.key.public()).unwrap();
    commit.verify(old).unwrap_err();
}

#[test]
fn new_handle_replaces_the_old_one() {
    let mut world = world(79);
    let old: Vec<String> = world
        .accounts()
        .iter()
        .map(|it| it.handle.clone())
        .collect();
    let events = happen(
        &mut world,
        Act::Rename,
        |events| matches!(&events[0].body, Body::Identity { handle } if !old.contains(handle)),
    );
    let Body::Identity { handle } = &events[0].body else {
        panic!("no identity")
    };
    assert_eq!(world.by_handle(handle).unwrap().did, events[0].did);
    let number = world
        .accounts()
        .iter()
        .position(|it| it.did == events[0].did);
    assert!(world.by_handle(&old[number.unwrap()]).is_none());
}

#[test]
fn hidden_account_returns_with_account_identity_and_sync() {
    let mut world = world(80);
    let hidden = world.act(Act::Hide);
    assert!(world.model().standing(&hidden[0].did).hides());
    let back = world.act(Act::Restore);
    assert_eq!(back[0].did, hidden[0].did);
    assert!(matches!(
        (&back[0].body, &back[1].body, &back[2].body),
        (
            Body::Account {
                standing: Standing::Active
            },
            Body::Identity { .. },
            Body::Sync { .. }
        )
    ));
    assert_eq!(world.model().standing(&back[0].did), Standing::Active);
}

#[test]
fn account_that_leaves_takes_everything_with_it() {
    let mut world = world(81);
    let events = world.act(Act::Leave);
    let did = &events[0].did;
    assert!(world.model().records().all(|(_, fact)| fact.did != **did));
    assert!(world.account(did).unwrap().repo.is_empty());
    assert_eq!(world.model().standing(did), Standing::Deleted);
}

#[test]
fn hidden_account_may_write_and_stays_hidden() {
    let mut world = world(82);
    let hidden = world.act(Act::Hide)[0].did.clone();
    let events = happen(&mut world, Act::Murmur, |events| events[0].did == hidden);
    assert!(!operations(&events[0]).is_empty());
    assert!(world.model().standing(&hidden).hides());
}

#[test]
fn too_big_commit_names_no_operation_but_changes_the_tree() {
    let mut world = world(83);
    let events = world.act(Act::TooBig);
    let Frame::Commit(event) = Frame::parse(&events[0].frame).unwrap() else {
        panic!("no commit")
    };
    assert!(event.too_big && event.ops.is_empty());
    let car = Car::read(event.blocks, CarLimits::COMMIT, true).unwrap();
    let commit = Commit::parse(car.get(&event.commit).unwrap()).unwrap();
    assert_ne!(Some(commit.data), event.prev_data);
}

#[test]
fn rewritten_repository_is_told_by_a_sync_alone() {
    let mut world = world(84);
    let records = world.model().len();
    let events = world.act(Act::Rewrite);
    let [event] = events.as_slice() else {
        panic!("{events:?}")
    };
    let Body::Sync { rev } = &event.body else {
        panic!("no sync")
    };
    let head = world.account(&event.did).unwrap().repo.head().unwrap();
    assert_eq!(*rev, head.rev.to_string());
    assert_ne!(world.model().len(), records);
}

#[test]
fn batch_names_each_path_once() {
    let mut world = world(85);
    for _ in 0..100 {
        let events = world.act(Act::Batch);
        let ops = operations(&events[0]);
        assert!(ops.len() >= 2);
        let mut paths: Vec<_> = ops.iter().map(|op| (&op.collection, &op.rkey)).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), ops.len());
    }
}

#[test]
fn newcomer_is_announced_as_hosts_announce_one() {
    let mut world = world(86);
    let count = world.accounts().len();
    let events = world.act(Act::Join);
    assert_eq!(world.accounts().len(), count + 1);
    assert!(matches!(events[0].body, Body::Identity { .. }));
    assert!(matches!(events[1].body, Body::Account { .. }));
    assert!(operations(&events[2]).is_empty());
    assert!(matches!(events[3].body, Body::Sync { .. }));
    assert_eq!(operations(&events[4])[0].collection, FOLLOW);
}
