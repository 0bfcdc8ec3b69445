//! How long a replica waits after failures, by a clock that the test sets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use blocklog::authority::Authority;
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::memory::Memory;
use blocklog::message::{Fault, Reply, Request, RequestId};
use blocklog::replica::{Mode, Target};
use blocklog::signature::Author;
use blocklog::store::{FeedName, LogStore, ReplicaStore, Role};
use blocklog::sync::{Input, Sync, SyncSettings};
use blocklog::writers::Writers;

const SPACE: &str = "space";

struct Pair {
    server: Memory,
    replica: Memory,
    sync: Sync,
    now_ms: u64,
}

fn write(store: &Memory, actor: &str) {
    let draft = Draft {
        timestamp_ms: 1,
        data: b"x".to_vec(),
    };
    let name = FeedName {
        feed: actor,
        namespace: None,
    };
    let written = store.write(SPACE, &name, &Author::named(actor), &[draft], 1);
    assert_eq!(written.unwrap().len(), 1);
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

    fn step(&mut self, input: Input<'_>) -> Option<(RequestId, Request)> {
        self.sync.step(&self.replica, self.now_ms, input).unwrap()
    }

    fn answer(&self, id: RequestId, request: &Request) -> Reply {
        let authority = Authority {
            store: &self.server,
            limits: &Limits::default(),
            writers: &Writers::Anyone,
        };
        Reply {
            id: Some(id),
            outcome: authority.answer(SPACE, request, self.now_ms, &[0; 16]),
        }
    }

    /// Carry messages until it waits; pushes are refused where `fault` is given. How many were.
    fn carry(&mut self, input: Input<'_>, fault: Option<&Fault>) -> u32 {
        let (mut next, mut refused) = (self.step(input), 0);
        while let Some((id, request)) = next {
            let reply = match (&request, fault) {
                (Request::Append(_), Some(fault)) => {
                    refused += 1;
                    Reply {
                        id: Some(id),
                        outcome: Err(fault.clone()),
                    }
                }
                _ => self.answer(id, &request),
            };
            next = self.step(Input::Reply(&reply));
        }
        refused
    }
}

#[test]
fn pauses_double_up_to_half_a_minute_and_begin_anew_after_a_success() {
    let mut pair = Pair::new();
    for expected in [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert!(pair.step(Input::Lost).is_none());
        assert_eq!(pair.sync.wake_ms() - pair.now_ms, expected);
        // Losing a connection that is waited with is no other failure.
        assert!(pair.step(Input::Lost).is_none());
        assert_eq!(pair.sync.wake_ms() - pair.now_ms, expected);
        pair.now_ms = pair.sync.wake_ms();
    }
    pair.carry(Input::Tick, None);
    assert!(pair.sync.is_idle());
    assert!(pair.step(Input::Lost).is_none());
    assert_eq!(pair.sync.wake_ms() - pair.now_ms, 250);
}

#[test]
fn refused_pushes_wait_longer_and_longer_while_pulls_go_on() {
    let mut pair = Pair::new();
    pair.carry(Input::Tick, None);
    write(&pair.replica, "ours");
    let fault = Fault::Full {
        limit: "bytes_max".into(),
        max: 1,
    };
    let mut refused_at = Vec::new();
    let mut input = Input::Changed;
    while refused_at.len() < 11 {
        write(&pair.server, "theirs");
        let refused = pair.carry(input, Some(&fault));
        assert!(refused <= 1, "{refused} pushes at one moment");
        refused_at.extend((refused == 1).then_some(pair.now_ms));
        assert_eq!(pair.sync.report().refused, Some("full"));
        assert!(pair.sync.wake_ms() > pair.now_ms, "it never rests");
        pair.now_ms = pair.sync.wake_ms();
        input = Input::Tick;
    }
    let gaps: Vec<u64> = refused_at
        .iter()
        .zip(&refused_at[1..])
        .map(|(one, other)| other - one)
        .collect();
    assert_eq!(gaps[..7], [250, 500, 1000, 2000, 4000, 8000, 16_000]);
    assert!(
        gaps[7..].iter().all(|gap| (30_000..=60_000).contains(gap)),
        "{gaps:?}"
    );
    let report = pair.sync.report();
    assert!(report.pulled > 3, "{report:?}");
    assert_eq!((report.pushed, report.set_aside, report.failed), (0, 0, 0));
    // Somebody made room: at the latest when the pause is over it is sent.
    for _ in 0..2 {
        pair.now_ms = pair.sync.wake_ms();
        pair.carry(Input::Tick, None);
    }
    let report = pair.sync.report();
    assert_eq!((report.pushed, report.refused), (1, None));
}
