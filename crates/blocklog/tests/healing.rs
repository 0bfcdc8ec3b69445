//! Single steps of healing that the random world reaches too seldom.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use blocklog::authority::Authority;
use blocklog::block::{BlockKey, Held};
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::memory::Memory;
use blocklog::message::{Fault, Reply, Request, RequestId};
use blocklog::replica::{Mode, Target};
use blocklog::signature::Author;
use blocklog::store::{EVICTED_REMEMBERED_MAX, FeedName, Keep, LogStore, ReplicaStore, Role};
use blocklog::sync::{Input, Sync, SyncSettings};
use blocklog::writers::Writers;

const SPACE: &str = "space";

type Outgoing = Option<(RequestId, Request)>;

struct Pair {
    server: Memory,
    replica: Memory,
    sync: Sync,
    now_ms: u64,
}

impl Pair {
    fn new() -> Self {
        let (server, replica) = (Memory::default(), Memory::default());
        server.open(SPACE, Role::Authority, Epoch([1; 16])).unwrap();
        replica.open(SPACE, Role::Replica, Epoch([2; 16])).unwrap();
        replica
            .set_lane(SPACE, &Target::Space, Some(Mode::From(0)))
            .unwrap();
        Self {
            server,
            replica,
            sync: Sync::new(SPACE, "run", SyncSettings::default(), Limits::default()),
            now_ms: 1000,
        }
    }

    fn write(&self, text: &str) -> BlockKey {
        let draft = Draft {
            timestamp_ms: 1,
            data: text.into(),
        };
        let name = FeedName {
            feed: "f",
            namespace: None,
        };
        let mut written = self
            .replica
            .write(SPACE, &name, &Author::named("ada"), &[draft], 1)
            .unwrap();
        written.pop().unwrap().block.key()
    }

    fn step(&mut self, input: Input<'_>) -> Outgoing {
        self.now_ms += 60_000;
        self.sync.step(&self.replica, self.now_ms, input).unwrap()
    }

    fn answer(&self, (id, request): (RequestId, Request)) -> Reply {
        let authority = Authority {
            store: &self.server,
            limits: &Limits::default(),
            writers: &Writers::Anyone,
        };
        let reply = Reply {
            id: Some(id),
            outcome: authority.answer(SPACE, &request, self.now_ms, &[0; 16]),
        };
        Reply::parse(&reply.to_message(), SPACE, &Limits::default()).unwrap()
    }

    /// Carry messages until nothing is left to say.
    fn settle(&mut self) {
        let mut next = self.step(Input::Changed);
        for _ in 0..100 {
            next = match next {
                Some(request) => {
                    let reply = self.answer(request);
                    self.step(Input::Reply(&reply))
                }
                None if self.sync.is_idle() => return,
                None => self.step(Input::Tick),
            };
        }
        panic!("never settles");
    }

    /// Let somebody else write to the same feed.
    fn write_at_server(&self, count: u64) {
        let draft = Draft {
            timestamp_ms: 1,
            data: b"other".to_vec(),
        };
        let drafts = vec![draft; usize::try_from(count).unwrap()];
        let name = FeedName {
            feed: "f",
            namespace: None,
        };
        self.server
            .write(SPACE, &name, &Author::named("bob"), &drafts, 1)
            .unwrap();
    }

    /// Let the authority keep the newest block only.
    fn evict_at_server(&self) {
        let all = usize::MAX;
        self.server.evict(SPACE, "f", Keep::Newest(1), all).unwrap();
    }

    /// Let the replica doubt everything, and find out.
    fn heal(&mut self) {
        let epoch = self.server.space(SPACE).unwrap().unwrap().epoch;
        self.replica.begin_healing(SPACE, epoch).unwrap();
        self.settle();
        assert!(!self.replica.upstream(SPACE).unwrap().healing);
    }

    /// Push: the answer brings the position, the pull that follows is lost.
    fn push_alone(&mut self) {
        let push = self.step(Input::Changed).unwrap();
        let reply = self.answer(push);
        self.step(Input::Reply(&reply));
        self.step(Input::Lost);
    }

    fn position(&self, key: &BlockKey) -> Option<u64> {
        self.replica.block(SPACE, key).unwrap().unwrap().position
    }

    fn held_by_server(&self, key: &BlockKey) -> Option<Held> {
        self.server.block(SPACE, key).unwrap()
    }
}

#[test]
fn an_acknowledged_block_that_was_rolled_back_is_pushed_again_at_once() {
    let mut pair = Pair::new();
    pair.write("first");
    pair.settle();
    let copy = pair.server.snapshot();
    let second = pair.write("second");
    pair.push_alone();
    assert_eq!(pair.position(&second), Some(2));

    // The cursor stands before what was lost, so it looks right.
    pair.server = copy;
    pair.settle();
    assert_eq!(pair.held_by_server(&second).unwrap().position, Some(2));
    assert_eq!(pair.sync.report().healed, 1);
}

#[test]
fn a_block_lost_in_a_rollback_is_pushed_though_its_position_was_evicted_since() {
    let mut pair = Pair::new();
    let copy = pair.server.snapshot();
    let lost = pair.write("lost");
    pair.settle();
    pair.server = copy;
    pair.write_at_server(3);
    pair.evict_at_server();
    pair.settle();
    assert_eq!(pair.held_by_server(&lost).unwrap().position, Some(4));
    assert_eq!(pair.position(&lost), Some(4));
}

#[test]
fn it_is_pushed_also_where_the_rollback_cannot_be_seen() {
    let mut pair = Pair::new();
    pair.write("first");
    pair.settle();
    let copy = pair.server.snapshot();
    let lost = pair.write("lost");
    pair.push_alone();
    // The cursor stands before what was lost, and the server has grown past it.
    pair.server = copy;
    pair.write_at_server(3);
    pair.evict_at_server();
    pair.settle();
    assert_eq!(pair.sync.report().healed, 0);
    assert_eq!(pair.held_by_server(&lost).unwrap().position, Some(5));
    assert_eq!(pair.position(&lost), Some(5));
}

#[test]
fn what_the_authority_evicted_on_purpose_is_not_brought_back_by_healing() {
    let mut pair = Pair::new();
    let archived = pair.write("archived");
    pair.settle();
    pair.write_at_server(3);
    pair.evict_at_server();
    pair.heal();
    assert_eq!(pair.sync.report().unplaced, 1, "it was asked about");
    assert_eq!(pair.position(&archived), Some(1));
    assert_eq!(pair.held_by_server(&archived), None);
    let server = pair.server.space(SPACE).unwrap().unwrap();
    assert_eq!(server.position_max, 4);
}

#[test]
fn what_the_authority_has_forgotten_to_have_evicted_is_left_alone() {
    let mut pair = Pair::new();
    let archived = pair.write("archived");
    pair.settle();
    pair.write_at_server(EVICTED_REMEMBERED_MAX + 1);
    pair.evict_at_server();
    pair.heal();
    assert_eq!(pair.sync.report().unplaced, 0);
    assert_eq!(pair.position(&archived), Some(1));
    assert_eq!(pair.held_by_server(&archived), None);
}

#[test]
fn a_push_to_another_history_than_the_pulled_one_appends_nothing() {
    let mut pair = Pair::new();
    let copy = pair.server.snapshot();
    let first = pair.write("first");
    pair.settle();
    let later = std::mem::replace(&mut pair.server, copy);
    let second = pair.write("second");
    let push = pair.step(Input::Changed).unwrap();
    let reply = pair.answer(push);
    pair.step(Input::Reply(&reply));
    assert_eq!(pair.held_by_server(&second), None);
    assert_eq!(
        (pair.position(&first), pair.position(&second)),
        (Some(1), None)
    );
    // A later copy is found: had a position of the older one been taken, it would look right.
    pair.server = later;
    pair.step(Input::Lost);
    pair.settle();
    assert_eq!(
        (pair.position(&first), pair.position(&second)),
        (Some(1), Some(2))
    );
}

#[test]
fn nothing_is_pushed_before_every_lane_knows_where_it_starts() {
    let mut pair = Pair::new();
    pair.settle();
    let tail = Target::Feed("g".into());
    pair.replica
        .set_lane(SPACE, &tail, Some(Mode::Tail))
        .unwrap();
    pair.write("waits");
    let first = pair.step(Input::Changed).unwrap();
    assert!(matches!(first.1, Request::Query(_)));
    let reply = pair.answer(first);
    let second = pair.step(Input::Reply(&reply)).unwrap();
    assert!(matches!(second.1, Request::Append(_)));
}

#[test]
fn an_acknowledgement_waits_for_a_lane_that_was_set_meanwhile() {
    let mut pair = Pair::new();
    pair.settle();
    let key = pair.write("pushed");
    let push = pair.step(Input::Changed).unwrap();
    let tail = Target::Feed("f".into());
    pair.replica
        .set_lane(SPACE, &tail, Some(Mode::Tail))
        .unwrap();
    let reply = pair.answer(push);
    pair.step(Input::Reply(&reply));
    assert_eq!(pair.position(&key), None);
    pair.step(Input::Lost);
    pair.settle();
    assert_eq!(pair.position(&key), Some(1));
}

#[test]
fn a_page_asked_before_a_lane_was_set_does_not_end_its_walk() {
    let mut pair = Pair::new();
    pair.write_at_server(3);
    pair.settle();
    let pull = pair.step(Input::Hint).unwrap();
    let reply = pair.answer(pull);
    let space = Some(Mode::From(0));
    pair.replica.set_lane(SPACE, &Target::Space, space).unwrap();
    let walk = pair.step(Input::Reply(&reply)).unwrap();
    assert!(matches!(walk.1, Request::Query(_)));
}

#[test]
fn a_push_to_a_replaced_server_heals_before_it_believes_a_position() {
    let mut pair = Pair::new();
    let first = pair.write("first");
    pair.settle();
    let second = pair.write("second");
    let push = pair.step(Input::Changed).unwrap();
    pair.server = Memory::default();
    pair.server
        .open(SPACE, Role::Authority, Epoch([9; 16]))
        .unwrap();
    let reply = pair.answer(push);
    pair.step(Input::Reply(&reply));
    assert_eq!(
        (pair.position(&first), pair.position(&second)),
        (Some(1), None),
        "position 1 is not taken from the first"
    );
    pair.step(Input::Lost);
    pair.settle();
    assert!(pair.held_by_server(&first).is_some() && pair.held_by_server(&second).is_some());
}

#[test]
fn a_lost_acknowledgement_is_repaired_by_the_next_pull() {
    let mut pair = Pair::new();
    pair.settle();
    let key = pair.write("once");
    let push = pair.step(Input::Changed).unwrap();
    drop(pair.answer(push));
    pair.step(Input::Lost);
    pair.settle();
    assert_eq!(pair.position(&key), Some(1));
    assert_eq!(
        pair.server.space(SPACE).unwrap().unwrap().position_max,
        1,
        "it was not stored twice"
    );
}

/// An authority may take less at once than a replica would send, and one block may be too large
/// for it: neither holds up the rest.
#[test]
fn a_push_that_is_too_large_is_halved_and_one_block_that_is_alone_is_set_aside() {
    let mut pair = Pair::new();
    pair.settle();
    let keys: Vec<BlockKey> = (0..20).map(|n| pair.write(&format!("block {n}"))).collect();
    let huge = &keys[7];
    let mut next = pair.step(Input::Changed);
    for _ in 0..200 {
        next = match next {
            Some((id, Request::Append(append)))
                if append.blocks.len() > 3
                    || append.blocks.iter().any(|one| one.block.key() == *huge) =>
            {
                let limit = "batch_bytes_max".into();
                let refused = Reply {
                    id: Some(id),
                    outcome: Err(Fault::TooLarge { limit, max: 3 }),
                };
                pair.step(Input::Reply(&refused))
            }
            Some(request) => {
                let reply = pair.answer(request);
                pair.step(Input::Reply(&reply))
            }
            None if pair.sync.is_idle() => break,
            None => pair.step(Input::Tick),
        };
    }
    let missing: Vec<&BlockKey> = keys
        .iter()
        .filter(|key| pair.held_by_server(key).is_none())
        .collect();
    assert_eq!(missing, [huge]);
    assert_eq!(pair.sync.report().set_aside, 1);
}
