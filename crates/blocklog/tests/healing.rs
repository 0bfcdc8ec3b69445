//! Single steps of healing that the random world reaches too seldom.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use blocklog::authority::Authority;
use blocklog::block::{BlockKey, Held};
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::memory::Memory;
use blocklog::message::{Reply, Request, RequestId};
use blocklog::replica::{Mode, Target};
use blocklog::signature::Author;
use blocklog::store::{FeedName, LogStore, ReplicaStore, Role};
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
        Reply {
            id: Some(id),
            outcome: authority.answer(SPACE, &request, self.now_ms, &[0; 16]),
        }
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
    let push = pair.step(Input::Changed).unwrap();
    let reply = pair.answer(push);
    // The answer brings the position; the pull that follows is lost.
    pair.step(Input::Reply(&reply));
    pair.step(Input::Lost);
    assert_eq!(
        pair.replica
            .block(SPACE, &second)
            .unwrap()
            .unwrap()
            .position,
        Some(2)
    );

    // The cursor stands before what was lost, so it looks right.
    pair.server = copy;
    pair.settle();
    assert_eq!(pair.held_by_server(&second).unwrap().position, Some(2));
    assert_eq!(pair.sync.report().healed, 1);
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
    let position = |key: &BlockKey| pair.replica.block(SPACE, key).unwrap().unwrap().position;
    assert_eq!(
        (position(&first), position(&second)),
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
    assert_eq!(
        pair.replica.block(SPACE, &key).unwrap().unwrap().position,
        Some(1)
    );
    assert_eq!(
        pair.server.space(SPACE).unwrap().unwrap().position_max,
        1,
        "it was not stored twice"
    );
}
