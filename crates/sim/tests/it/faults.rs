//! Each fault does what it says and is counted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use record::car::{Car, CarLimits};
use record::event::{Frame, FrameLimits};
use sim::faults::{FAULTS, Fault, Faults, OVERSIZED_BYTES};
use sim::network::{Network, NetworkOptions};
use sim::traffic::{Act, Traffic};
use sim::world::{World, WorldOptions};

use crate::client::{End, Socket, quiet};

async fn network() -> Network {
    let world = World::new(WorldOptions {
        seed: 41,
        accounts: 12,
        traffic: Traffic::none().with(Act::Post, 1.0),
        ..WorldOptions::default()
    });
    Network::start(world, NetworkOptions::default())
        .await
        .unwrap()
}

/// A connection at the tip, and `count` posts behind it.
async fn posts(network: &Network, count: usize, fault: Fault) -> Socket {
    quiet(network).await;
    let cursor = network.last_seq();
    network.order(fault);
    network.emit(count);
    Socket::relay(network, Some(cursor)).await
}

fn seq(bytes: &[u8]) -> Option<i64> {
    Frame::parse(bytes).ok()?.seq()
}

fn seqs(messages: &[Vec<u8>]) -> Vec<Option<i64>> {
    messages.iter().map(|bytes| seq(bytes)).collect()
}

/// The numbers of the newest `count` events, told by a healthy connection.
async fn truth(network: &Network, count: usize) -> Vec<Option<i64>> {
    let mut socket = Socket::relay(network, Some(0)).await;
    let mut all = Vec::new();
    while all.last() != Some(&Some(network.last_seq() as i64)) {
        all.push(seq(&socket.next().await.unwrap()));
    }
    all.split_off(all.len() - count)
}

#[tokio::test]
async fn dropped_commit_never_comes_and_breaks_its_chain() {
    let network = network().await;
    let mut socket = posts(&network, 3, Fault::Drop).await;
    let found = seqs(&socket.take(2).await);
    assert_eq!(found, truth(&network, 3).await[1..]);
    assert_eq!(network.faults_done(Fault::Drop), 1);
}

#[tokio::test]
async fn drops_by_rate_are_the_same_on_every_connection() {
    let network = network().await;
    network.set_faults(
        Faults {
            seed: 9,
            ..Faults::none()
        }
        .with(Fault::Drop, 0.3),
    );
    let cursor = network.last_seq();
    network.emit(200);
    network.set_faults(Faults::none());
    let all = truth(&network, 200).await;
    network.set_faults(
        Faults {
            seed: 9,
            ..Faults::none()
        }
        .with(Fault::Drop, 0.3),
    );
    let mut runs = Vec::new();
    for _ in 0..2 {
        let done = network.faults_done(Fault::Drop);
        let mut socket = Socket::relay(&network, Some(cursor)).await;
        let mut found = BTreeSet::new();
        let deadline = Duration::from_millis(500);
        while let Ok(message) = tokio::time::timeout(deadline, socket.next()).await {
            found.insert(seq(&message.unwrap()));
        }
        let lost = network.faults_done(Fault::Drop) - done;
        assert_eq!(found.len() as u64 + lost, all.len() as u64);
        assert!((30..90).contains(&lost), "{lost} of 200");
        runs.push(found);
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test]
async fn doubled_frame_comes_twice() {
    let network = network().await;
    let mut socket = posts(&network, 2, Fault::Double).await;
    let found = seqs(&socket.take(3).await);
    let truth = truth(&network, 2).await;
    assert_eq!(found, [truth[0], truth[0], truth[1]]);
    assert_eq!(network.faults_done(Fault::Double), 1);
}

#[tokio::test]
async fn reordered_frame_comes_after_the_next_of_another_account() {
    let network = network().await;
    let mut socket = posts(&network, 40, Fault::Reorder).await;
    let messages = socket.take(40).await;
    let found = seqs(&messages);
    let truth = truth(&network, 40).await;
    assert_ne!(found, truth);
    assert_eq!(
        found.iter().collect::<BTreeSet<_>>(),
        truth.iter().collect::<BTreeSet<_>>()
    );
    let dids: BTreeSet<String> = messages
        .iter()
        .map(|bytes| Frame::parse(bytes).unwrap().did().unwrap().to_owned())
        .collect();
    for did in dids {
        let own: Vec<_> = messages
            .iter()
            .filter(|bytes| Frame::parse(bytes).unwrap().did() == Some(&did))
            .map(|bytes| seq(bytes))
            .collect();
        assert!(own.is_sorted(), "{did} is told in order");
    }
    assert_eq!(network.faults_done(Fault::Reorder), 1);
}

#[tokio::test]
async fn corrupted_commit_does_not_hash() {
    let network = network().await;
    for _ in 0..30 {
        let mut socket = posts(&network, 2, Fault::Corrupt).await;
        let messages = socket.take(2).await;
        let readable = |bytes: &[u8]| match Frame::parse(bytes) {
            Ok(Frame::Commit(commit)) => {
                let car = Car::read(commit.blocks, CarLimits::COMMIT, true);
                car.is_ok_and(|car| car.root() == Some(commit.commit))
            }
            _ => false,
        };
        assert!(!readable(&messages[0]));
        assert!(readable(&messages[1]));
    }
    assert_eq!(network.faults_done(Fault::Corrupt), 30);
}

#[tokio::test]
async fn garbage_is_no_frame_and_nothing_is_lost_by_it() {
    let network = network().await;
    let mut socket = posts(&network, 2, Fault::Garbage).await;
    let messages = socket.take(3).await;
    assert!(Frame::parse(&messages[0]).is_err());
    assert_eq!(seqs(&messages[1..]), truth(&network, 2).await);
    assert_eq!(network.faults_done(Fault::Garbage), 1);
}

#[tokio::test]
async fn unknown_kind_is_well_formed_and_nothing_is_lost_by_it() {
    let network = network().await;
    let mut socket = posts(&network, 2, Fault::Unknown).await;
    let messages = socket.take(3).await;
    let frame = Frame::parse(&messages[0]).unwrap();
    assert!(matches!(frame, Frame::Unknown { kind: "#mystery" }));
    assert_eq!(seqs(&messages[1..]), truth(&network, 2).await);
}

#[tokio::test]
async fn oversized_frame_is_over_the_protocols_limit() {
    let network = network().await;
    let mut socket = posts(&network, 1, Fault::Oversized).await;
    let messages = socket.take(2).await;
    assert!(messages[0].len() > OVERSIZED_BYTES);
    assert!(messages[0].len() > FrameLimits::default().frame_bytes_max);
    assert!(Frame::parse(&messages[0]).is_err());
    assert_eq!(seqs(&messages[1..]), truth(&network, 1).await);
}

#[tokio::test]
async fn stall_keeps_the_client_waiting() {
    let network = network().await;
    network.set_faults(Faults {
        stall_ms: 300,
        ..Faults::none()
    });
    let started = Instant::now();
    let mut socket = posts(&network, 1, Fault::Stall).await;
    socket.take(1).await;
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert_eq!(network.faults_done(Fault::Stall), 1);
}

#[tokio::test]
async fn disconnected_client_can_come_back_for_the_rest() {
    let network = network().await;
    let cursor = network.last_seq();
    let mut socket = posts(&network, 3, Fault::Disconnect).await;
    let (messages, _) = socket.rest().await;
    assert!(messages.is_empty());
    let mut socket = Socket::relay(&network, Some(cursor)).await;
    assert_eq!(seqs(&socket.take(3).await), truth(&network, 3).await);
    assert_eq!(network.faults_done(Fault::Disconnect), 1);
}

#[tokio::test]
async fn torn_frame_never_arrives_whole() {
    let network = network().await;
    for _ in 0..20 {
        let mut socket = posts(&network, 1, Fault::Tear).await;
        let (messages, end) = socket.rest().await;
        assert_eq!((messages.len(), end), (0, End::Broken));
    }
    assert_eq!(network.faults_done(Fault::Tear), 20);
}

#[tokio::test]
async fn cursor_called_too_old_loses_a_part_of_the_window() {
    let network = network().await;
    let mut socket = posts(&network, 40, Fault::Outdated).await;
    let first = socket.next().await.unwrap();
    assert!(matches!(Frame::parse(&first).unwrap(), Frame::Info(_)));
    let truth = truth(&network, 40).await;
    let next = seq(&socket.next().await.unwrap());
    assert!(
        next > truth[10] && next < truth[35],
        "{next:?} of {truth:?}"
    );
    assert_eq!(network.faults_done(Fault::Outdated), 1);
}

#[tokio::test]
async fn cursor_called_one_from_the_future_is_refused_once() {
    let network = network().await;
    let cursor = network.last_seq();
    let mut socket = posts(&network, 3, Fault::Future).await;
    let (messages, end) = socket.rest().await;
    assert!(matches!(
        Frame::parse(&messages[0]).unwrap(),
        Frame::Error {
            error: "FutureCursor",
            ..
        }
    ));
    assert_eq!((messages.len(), end), (1, End::Closed(1008)));
    let mut socket = Socket::relay(&network, Some(cursor)).await;
    assert_eq!(seqs(&socket.take(3).await), truth(&network, 3).await);
}

/// A client that persists what it saw and comes back sees everything that was
/// not dropped or corrupted, whatever else goes wrong.
#[tokio::test]
async fn persistent_client_gets_through_all_faults() {
    let network = network().await;
    let start = network.last_seq();
    network.emit(600);
    let all = truth(&network, 600).await;
    let faults = Faults {
        stall_ms: 1,
        ..Faults::all(77, 0.01)
    };
    network.set_faults(
        faults
            .with(Fault::Outdated, 0.0)
            .with(Fault::Drop, 0.0)
            .with(Fault::Corrupt, 0.0)
            .with(Fault::Oversized, 0.002),
    );
    let mut found = BTreeSet::new();
    let mut cursor = start;
    let mut connections = 0;
    while found.len() < all.len() {
        connections += 1;
        assert!(connections < 500, "no progress at {cursor}");
        let mut socket = Socket::relay(&network, Some(cursor)).await;
        while let Ok(message) = socket.next().await {
            if let Some(seq) = seq(&message) {
                found.insert(Some(seq));
                cursor = cursor.max(seq as u64);
            }
            if found.len() == all.len() {
                break;
            }
        }
    }
    assert!(all.iter().all(|seq| found.contains(seq)));
    assert!(connections > 2, "{connections}");
    let done: u64 = FAULTS.iter().map(|&fault| network.faults_done(fault)).sum();
    assert!(done > 20, "{done}");
}
