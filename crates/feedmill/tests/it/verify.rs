//! `verify = "full"`: signatures and inductive proofs, on real and forged commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use feedmill::check::Checker;
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::decode::{Decoder, Opened, Opener};
use feedmill::identity::Resolver;
use feedmill::intake::Intake;
use feedmill::notary::Notary;
use feedmill::source::{Arrival, Rewind};
use feedmill::status::Status;
use feedmill::store::{self, Item, SharedStore};
use record::car::{self, Car, CarLimits};
use record::cid::Cid;
use record::commit::Commit;
use record::event::{CommitEvent, Frame};
use record::key::SigningKey;
use sim::faults::{Fault, Faults};
use sim::network::{Network, NetworkOptions};
use sim::world::{World, WorldOptions};
use tokio::sync::mpsc;

use crate::bed::{config, equal, network, start};

const SEED: u64 = 81;
const FULL: (&str, &str) = ("[intake]\n", "[intake]\nverify = \"full\"\n");

#[tokio::test(flavor = "multi_thread")]
async fn every_commit_is_proved_and_feeds_equal_the_model() {
    let options = NetworkOptions {
        faults: Faults {
            seed: SEED,
            ..Faults::none()
        }
        .with(Fault::Corrupt, 0.02),
        ..NetworkOptions::default()
    };
    let network = network(SEED, options).await;
    let since_us = Clock::Wall.now_us();
    let river = start(&config(&network, "sqlite::memory:", &[FULL])).await;
    network.emit(300);
    network.settle();
    equal(&river, &network, since_us).await;
    let letters = river.store.dead(None, 1000).unwrap();
    assert!(letters.iter().any(|letter| letter.stage == "verify"));
    river.stop().await;
    network.stop().await;
}

/// A network, the same world beside it for its frames, and what opens them.
struct Court {
    network: Network,
    config: Config,
    decoder: Decoder,
    store: SharedStore,
}

async fn court() -> Court {
    let network = network(SEED, NetworkOptions::default()).await;
    let config = config(&network, "sqlite::memory:", &[FULL]);
    let store = store::open(&config).unwrap();
    let checker = Checker::new(&config, Arc::clone(store.plan()), sim::lexicons::ALL).unwrap();
    let decoder = Decoder::new(Arc::new(checker), &config.intake);
    Court {
        network,
        config,
        decoder,
        store,
    }
}

/// Frames of commits with operations of a world like the network's, as (did,
/// bytes): its beginning, and `steps` acts more.
fn commits(seed: u64, steps: usize) -> Vec<(String, Bytes)> {
    let mut world = World::new(WorldOptions {
        seed,
        accounts: 12,
        ..WorldOptions::default()
    });
    let mut events = world.take_genesis();
    for _ in 0..steps {
        events.extend(world.step());
    }
    let told = |frame: &[u8]| match Frame::parse(frame) {
        Ok(Frame::Commit(event)) => !event.ops.is_empty(),
        _ => false,
    };
    let events = events.into_iter().filter(|event| told(&event.frame));
    events
        .map(|event| (event.did.to_string(), event.frame))
        .collect()
}

/// A commit of an account whose document its own host keeps.
fn commit_of_a_web_account() -> Bytes {
    let all = (1..200).flat_map(|seed| commits(seed, 0));
    let mut web = all.filter(|(did, _)| did.starts_with("did:web:"));
    web.next().expect("some account has a host of its own").1
}

fn commit(frame: &[u8]) -> CommitEvent<'_> {
    match Frame::parse(frame).unwrap() {
        Frame::Commit(event) => event,
        other => panic!("{other:?}"),
    }
}

/// The same commit, signed by somebody else.
fn forged(frame: &[u8]) -> Bytes {
    let event = commit(frame);
    let archive = Car::read(event.blocks, CarLimits::COMMIT, true).unwrap();
    let genuine = Commit::parse(archive.get(&event.commit).unwrap()).unwrap();
    let key = SigningKey::k256([9; 32]).unwrap();
    let block = Commit::sign(genuine.did.clone(), genuine.rev, genuine.data, &key).to_block();
    let cid = Cid::of_cbor(&block);
    let rest = archive
        .blocks()
        .iter()
        .filter(|other| other.cid != event.commit)
        .map(|other| (other.cid, other.data));
    let blocks = car::write(&[cid], std::iter::once((cid, &*block)).chain(rest));
    let forged = CommitEvent {
        commit: cid,
        blocks: &blocks,
        ..event
    };
    Frame::Commit(forged).to_bytes().into()
}

/// What leaves the notary, in order.
async fn notarised(court: &Court, frames: &[Bytes], web_url: Option<&str>) -> Vec<Arrival> {
    notarised_in(court, frames, web_url, 1000).await
}

/// The same where so many frames may wait.
async fn notarised_in(
    court: &Court,
    frames: &[Bytes],
    web_url: Option<&str>,
    waiting_max: usize,
) -> Vec<Arrival> {
    let mut config = court.config.clone();
    if let Some(url) = web_url {
        config.intake.did_web_url = Some(url.to_owned());
    }
    let resolver = Resolver::new(&config).unwrap();
    let (input, frames_in) = mpsc::channel(1000);
    let (out, mut frames_out) = mpsc::channel(1000);
    let notary = Notary::new(court.decoder.clone(), Arc::new(resolver), out, waiting_max)
        .pausing(|pause_us| Duration::from_micros(pause_us.unsigned_abs() / 200));
    tokio::spawn(notary.run(frames_in));
    for frame in frames {
        let arrival = Arrival {
            frame: frame.clone(),
            row: "sim".into(),
            ..Arrival::default()
        };
        input.send(arrival).await.unwrap();
    }
    let mut passed = Vec::new();
    while passed.len() < frames.len() {
        match tokio::time::timeout(Duration::from_secs(5), frames_out.recv()).await {
            Ok(Some(arrival)) => passed.push(arrival),
            _ => break,
        }
    }
    passed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_signed_with_another_key_is_buried_and_its_account_fetched() {
    let court = court().await;
    let (did, frame) = commits(SEED, 0).swap_remove(0);
    let passed = notarised(&court, &[forged(&frame)], None).await;
    let doubt = passed[0].doubt.clone().unwrap();
    assert!(doubt.message.contains("not signed"), "{doubt:?}");

    let mut intake = Intake::new(
        "sim".into(),
        Opener::Firehose(court.decoder.clone()),
        court.store.clone(),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    );
    let committed = intake.step(Clock::Wall.now_us(), &passed).unwrap();
    assert_eq!(committed.accounting.dead, 1);
    assert_eq!(committed.accounting.applied, 0);
    assert_eq!(court.store.broken_accounts(10).unwrap(), [did]);
    assert_eq!(court.store.dead(None, 10).unwrap()[0].stage, "verify");
    court.network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn genuine_commits_pass_in_the_order_of_each_account() {
    let court = court().await;
    let frames: Vec<Bytes> = commits(SEED, 0)
        .into_iter()
        .map(|(_, frame)| frame)
        .collect();
    let passed = notarised(&court, &frames, None).await;
    assert_eq!(passed.len(), frames.len());
    assert!(passed.iter().all(|arrival| arrival.doubt.is_none()));
    for did in commits(SEED, 0).iter().map(|(did, _)| did) {
        let of = |frames: Vec<Bytes>| -> Vec<i64> {
            let events = frames.iter().map(|frame| commit(frame));
            let own = events.filter(|event| event.repo == did);
            own.map(|event| event.seq).collect()
        };
        let out = passed.iter().map(|arrival| arrival.frame.clone());
        assert_eq!(of(out.collect()), of(frames.clone()));
    }
    court.network.stop().await;
}

/// The host of the waiting account accepts connections and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_be_had_holds_up_only_its_own_account_and_the_cursor() {
    let court = court().await;
    let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hole.local_addr().unwrap());
    let waiting = commit_of_a_web_account();
    let others: Vec<Bytes> = commits(SEED, 0)
        .into_iter()
        .map(|(_, frame)| frame)
        .collect();
    let mut frames = vec![waiting.clone()];
    frames.extend(others.clone());
    let passed = notarised(&court, &frames, Some(&url)).await;
    assert_eq!(passed.len(), others.len(), "everybody else's");
    let floor = commit(&waiting).seq - 1;
    let floors = passed.iter().map(|arrival| arrival.floor.unwrap());
    assert!(floors.clone().all(|at| at <= floor), "never past it");
    assert_eq!(floors.last(), Some(floor), "and up to it at last");
    court.network.stop().await;
}

/// Frames of accounts whose hosts never answer fill no more than their share of the room: everybody else's go on, and
/// theirs leave in doubt, in order.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_never_answer_do_not_stop_the_frames_of_others() {
    let court = court().await;
    let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", hole.local_addr().unwrap());
    let web = commit_of_a_web_account();
    let theirs = |account: usize, seq: i64| -> Bytes {
        let did = format!("did:web:h{}.test:u{account}", account % 40);
        let event = CommitEvent {
            repo: &did,
            seq,
            ..commit(&web)
        };
        Frame::Commit(event).to_bytes().into()
    };
    let others: Vec<Bytes> = commits(SEED, 0)
        .into_iter()
        .filter(|(did, _)| did.starts_with("did:plc:"))
        .map(|(_, frame)| frame)
        .collect();
    let mut frames: Vec<Bytes> = (0..300).map(|n| theirs(n % 100, 1000 + n as i64)).collect();
    frames.extend(others.clone());
    let passed = notarised_in(&court, &frames, Some(&url), 160).await;
    let did_of = |arrival: &Arrival| commit(&arrival.frame).repo.to_owned();
    let honest = passed
        .iter()
        .filter(|it| did_of(it).starts_with("did:plc:"));
    assert_eq!(honest.clone().count(), others.len());
    assert!(honest.clone().all(|it| it.doubt.is_none()));
    let theirs: Vec<&Arrival> = passed
        .iter()
        .filter(|it| did_of(it).starts_with("did:web:"))
        .collect();
    assert!(theirs.len() >= 300 - 80, "{} left", theirs.len());
    for it in &theirs {
        assert_eq!(
            it.doubt.as_ref().map(|doubt| doubt.stage),
            Some("retryable")
        );
    }
    for account in 0..100 {
        let did = format!("did:web:h{}.test:u{account}", account % 40);
        let own = theirs.iter().filter(|it| did_of(it) == did);
        let seqs: Vec<i64> = own.map(|it| commit(&it.frame).seq).collect();
        assert!(seqs.is_sorted(), "{did}: {seqs:?}");
    }
    court.network.stop().await;
}

/// A host that is out of order is asked five times more; then its account's frame is put aside,
/// and its repository is fetched when the host is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_world_withholds_is_asked_for_five_times_more_and_then_given_up() {
    use axum::http::StatusCode;
    let court = court().await;
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let broken = axum::Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::SeqCst);
        StatusCode::INTERNAL_SERVER_ERROR
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, broken).await });
    let frame = commit_of_a_web_account();
    let passed = notarised(&court, std::slice::from_ref(&frame), Some(&url)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 6, "once, and five times more");
    assert_eq!(passed[0].doubt.as_ref().unwrap().stage, "retryable");
    let mut intake = Intake::new(
        "sim".into(),
        Opener::Firehose(court.decoder.clone()),
        court.store.clone(),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    );
    intake.step(Clock::Wall.now_us(), &passed).unwrap();
    assert_eq!(court.store.dead(None, 10).unwrap()[0].stage, "retryable");
    assert_eq!(
        court.store.broken_accounts(10).unwrap(),
        [commit(&frame).repo]
    );
    court.network.stop().await;
}

fn opened(court: &Court, event: CommitEvent<'_>) -> Item {
    match court.decoder.open(&Frame::Commit(event).to_bytes().into()) {
        Opened::Item { item, .. } => item,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_left_out_of_a_commit_is_found_by_its_proof() {
    let court = court().await;
    let all = commits(SEED, 100);
    let event = all
        .iter()
        .map(|(_, frame)| commit(frame))
        .find(|event| event.prev_data.is_some())
        .expect("a commit that is not the first");
    assert!(matches!(opened(&court, event.clone()), Item::Commit(_)));
    let mut short = event.clone();
    short.ops.pop();
    let Item::Unopened(letter) = opened(&court, short) else {
        panic!("believed");
    };
    assert_eq!(letter.stage, "verify");
    let mut other = event;
    other.prev_data = Some(Cid::of_cbor(b"another tree"));
    assert!(matches!(opened(&court, other), Item::Unopened(_)));
    court.network.stop().await;
}
