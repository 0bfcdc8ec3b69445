//! Each fault of a stream, made on purpose: what was broken is explained, the
//! stream goes on, and every feed becomes what it should be.

use feedmill::clock::Clock;
use feedmill::river::River;
use record::car::{self, Car, CarLimits};
use record::cid::Cid;
use record::commit::Commit;
use record::event::{CommitEvent, Frame};
use record::key::SigningKey;
use sim::network::{Network, NetworkOptions};
use sim::traffic::Act;
use tokio_tungstenite::tungstenite::Bytes;

use crate::bed::{config, equal, firehose, network_without, start, until};
use crate::tape::{Player, did, posts, record, seq};

/// A network that has lived for a while, and its tape.
async fn life(seed: u64) -> (Network, Vec<Bytes>) {
    // An account that leaves for good has no repository to be healed from.
    let acts = [Act::Leave, Act::Hide, Act::Murmur];
    let network = network_without(&acts, seed, NetworkOptions::default()).await;
    network.emit(300);
    network.settle();
    let tape = record(&network).await;
    (network, tape)
}

/// Plays `tape` to a river; every feed must become what the model says.
async fn played(network: &Network, tape: Vec<Bytes>, change: Option<(&str, &str)>) -> River {
    let player = Player::start(tape).await;
    let relay = (firehose(network), format!("firehose = \"{}\"", player.url));
    let mut changes = vec![(relay.0.as_str(), relay.1.as_str())];
    changes.extend(change);
    let since_us = Clock::Wall.now_us();
    let river = start(&config(network, "sqlite::memory:", &changes)).await;
    equal(&river, network, since_us).await;
    player.stop().await;
    river
}

#[track_caller]
fn letters(river: &River, stage: &str) -> usize {
    let letters = river.store.dead(None, 1000).unwrap();
    let of_stage = letters.iter().filter(|letter| letter.stage == stage);
    of_stage.filter(|letter| !letter.message.is_empty()).count()
}

async fn over(river: River, network: Network) {
    river.stop().await;
    network.stop().await;
}

fn commit(frame: &[u8]) -> CommitEvent<'_> {
    match Frame::parse(frame).unwrap() {
        Frame::Commit(event) => event,
        other => panic!("{other:?}"),
    }
}

/// The commit with its blocks told anew by `change`, which may rename the commit itself.
fn rebuilt(frame: &[u8], change: impl Fn(&CommitEvent<'_>, Cid, &[u8]) -> (Cid, Vec<u8>)) -> Bytes {
    let event = commit(frame);
    let archive = Car::read(event.blocks, CarLimits::COMMIT, true).unwrap();
    let all = archive.blocks().iter();
    let blocks: Vec<(Cid, Vec<u8>)> = all
        .map(|block| change(&event, block.cid, block.data))
        .collect();
    let at = archive
        .blocks()
        .iter()
        .position(|block| block.cid == event.commit);
    let root = blocks[at.unwrap()].0;
    let told = car::write(&[root], blocks.iter().map(|(cid, data)| (*cid, &data[..])));
    let event = CommitEvent {
        commit: root,
        blocks: &told,
        ..event
    };
    Frame::Commit(event).to_bytes().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_frame_is_buried_and_its_account_healed() {
    let (network, mut tape) = life(21).await;
    let at = posts(&tape)[5];
    tape[at] = tape[at].slice(..tape[at].len() / 2);
    let river = played(&network, tape, None).await;
    assert_eq!(letters(&river, "frame"), 1);
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_not_what_its_cid_says_is_buried_and_its_account_healed() {
    let (network, mut tape) = life(22).await;
    let at = posts(&tape)[5];
    tape[at] = rebuilt(&tape[at], |event, cid, data| {
        let is_record = event.ops.iter().any(|op| op.cid == Some(cid));
        let mut data = data.to_vec();
        if let Some(last) = data.last_mut().filter(|_| is_record) {
            *last ^= 1;
        }
        (cid, data)
    });
    let river = played(&network, tape, None).await;
    assert_eq!(letters(&river, "verify"), 1);
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_a_bad_signature_is_buried_and_its_account_healed() {
    let (network, mut tape) = life(23).await;
    let at = posts(&tape)[5];
    let stranger = SigningKey::k256([9; 32]).unwrap();
    tape[at] = rebuilt(&tape[at], |event, cid, data| {
        if cid != event.commit {
            return (cid, data.to_vec());
        }
        let genuine = Commit::parse(data).unwrap();
        let forged = Commit::sign(genuine.did.clone(), genuine.rev, genuine.data, &stranger);
        let block = forged.to_block();
        (Cid::of_cbor(&block), block)
    });
    let full = ("[intake]\n", "[intake]\nverify = \"full\"\n");
    let river = played(&network, tape, Some(full)).await;
    assert_eq!(letters(&river, "verify"), 1);
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_shows_in_the_chain_and_is_healed() {
    let (network, mut tape) = life(24).await;
    let places = posts(&tape);
    // Not the newest of anybody: the settling commits behind it break the chain.
    tape.drain(places[5]..places[15]);
    let river = played(&network, tape, None).await;
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_comes_twice_changes_nothing_the_second_time() {
    let (network, tape) = life(25).await;
    // With their numbers, as from a host whose cursor means "from here on", and whose memory is long.
    let twice: Vec<Bytes> = tape
        .iter()
        .flat_map(|frame| [frame.clone(), frame.clone()])
        .collect();
    let river = played(&network, twice, None).await;
    let twice = river.store.accounting(None).unwrap();
    let records = river.store.counts().unwrap().records;
    river.stop().await;
    let river = played(&network, tape, None).await;
    let once = river.store.accounting(None).unwrap();
    assert_eq!(twice.applied, once.applied, "{twice:?} {once:?}");
    assert!(twice.repeated > once.repeated, "{twice:?} {once:?}");
    assert_eq!(records, river.store.counts().unwrap().records);
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_one_account_in_the_wrong_order_end_in_the_right_state() {
    let (network, mut tape) = life(26).await;
    let places = posts(&tape);
    let same = |a: &usize, b: &usize| did(&tape[*a]) == did(&tape[*b]);
    let pairs = places.iter().flat_map(|a| {
        let later = places.iter().filter(move |b| *b > a);
        later.map(move |b| (*a, *b))
    });
    let pairs: Vec<(usize, usize)> = pairs.filter(|(a, b)| same(a, b)).take(3).collect();
    assert_eq!(pairs.len(), 3);
    for (a, b) in pairs {
        tape.swap(a, b);
    }
    let river = played(&network, tape, None).await;
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_told_backwards_ends_in_the_right_state() {
    let (network, mut tape) = life(27).await;
    tape.reverse();
    let river = played(&network, tape, None).await;
    over(river, network).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_restarts_is_read_on_from_where_it_was() {
    let (network, tape) = life(28).await;
    let half = tape.len() / 2;
    let player = Player::start(tape[..half].to_vec()).await;
    let relay = (firehose(&network), format!("firehose = \"{}\"", player.url));
    let quick = ("[intake]\n", "[intake]\nreconnect_ms = 20\n");
    let changes = [(relay.0.as_str(), relay.1.as_str()), quick];
    let since_us = Clock::Wall.now_us();
    let river = start(&config(&network, "sqlite::memory:", &changes)).await;
    let read = tape[..half]
        .iter()
        .rev()
        .find_map(|frame| seq(frame))
        .unwrap();
    until(|| river.store.cursor("sim").unwrap() == Some(read)).await;
    let player = player.restart(tape).await;
    equal(&river, &network, since_us).await;
    assert_eq!(player.asked.lock().unwrap()[..], [read]);
    assert_eq!(letters(&river, "frame"), 0);
    player.stop().await;
    over(river, network).await;
}
