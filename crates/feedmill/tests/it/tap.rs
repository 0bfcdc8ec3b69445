//! Tap: a channel on which every message is acknowledged, over real sockets.

use std::sync::Arc;

use feedmill::clock::Clock;
use feedmill::decode::tap::TapDecoder;
use feedmill::decode::{Decoder, Opener};
use feedmill::intake::Intake;
use feedmill::source::tap::Acks;
use feedmill::source::{Arrival, Rewind};
use feedmill::store::Accounting;
use sim::network::{Network, NetworkOptions};

use crate::bed::{UNTOLD, config, equal, firehose, network_without, start, status, until};
use crate::desk::Desk;

fn source(network: &Network) -> String {
    format!("tap = \"{}\"", network.tap_ws_url())
}

fn tapped(network: &Network, store: &str, more: &str) -> feedmill::config::Config {
    let (firehose, source) = (firehose(network), source(network));
    let intake = format!("[intake]\n{more}");
    config(
        network,
        store,
        &[(&firehose, &source), ("[intake]\n", &intake)],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_from_a_tap_equal_the_model_and_everything_is_acknowledged_once() {
    let network = network_without(UNTOLD, 81, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let river = start(&tapped(&network, "sqlite::memory:", "")).await;
    network.emit(300);
    equal(&river, &network, since_us).await;
    let received = |river: &feedmill::river::River| {
        let counted = river.store.accounting(None).unwrap();
        counted.received > 300 && counted.adds_up()
    };
    assert!(received(&river));
    // Feeds may be whole before the last acknowledgement has left.
    until(|| network.tap_told().0 > 300).await;
    let (_, repeated, strange) = network.tap_told();
    assert_eq!((repeated, strange), (0, 0));
    let stream = &status(&river).await["ingestion"]["streams"][0];
    assert_eq!(stream["kind"], "tap");
    river.stop().await;
    network.stop().await;
}

/// What was not acknowledged when the line went dead comes again and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_line_loses_nothing_and_what_comes_again_changes_nothing() {
    let network = network_without(UNTOLD, 82, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let more = "reconnect_ms = 20\nflush_ms = 60\n";
    let river = start(&tapped(&network, "sqlite::memory:", more)).await;
    for _ in 0..6 {
        network.emit(40);
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        network.cut_tap();
    }
    equal(&river, &network, since_us).await;
    let (_, repeated, strange) = network.tap_told();
    assert!(repeated > 0, "no message was under way when a line was cut");
    assert_eq!(strange, 0);
    river.stop().await;
    network.stop().await;
}

/// The Tap keeps the cursor: after a restart only what was not acknowledged comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_reads_on_where_acknowledgements_ended() {
    let network = network_without(UNTOLD, 83, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let config = tapped(&network, &store, "");
    let river = start(&config).await;
    network.emit(150);
    equal(&river, &network, since_us).await;
    let before = river.store.accounting(None).unwrap();
    river.stop().await;
    let (acked, _, _) = network.tap_told();
    network.emit(150);
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    until(|| network.tap_told().0 > acked).await;
    let after = river.store.accounting(None).unwrap();
    assert!(
        after.repeated - before.repeated < 20,
        "{before:?} {after:?}"
    );
    river.stop().await;
    network.stop().await;
}

/// The stages below a Tap, on a store in memory.
struct Bench {
    desk: Desk,
    intake: Intake,
    acks: Arc<Acks>,
}

impl Bench {
    fn new() -> Self {
        let desk =
            Desk::new("[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n");
        let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
        let acks = Arc::new(Acks::default());
        let intake = Intake::new(
            "tap".into(),
            Opener::Tap(TapDecoder::new(decoder)),
            desk.store.clone(),
            Arc::new(Rewind::default()),
            Arc::default(),
        )
        .acknowledging(Arc::clone(&acks));
        Self { desk, intake, acks }
    }

    /// Takes messages that came over the connection opened at `line_us` in one transaction.
    fn take(&mut self, line_us: i64, messages: &[&str]) -> Accounting {
        self.acks.begin(line_us);
        let frames: Vec<Arrival> = messages
            .iter()
            .map(|text| Arrival {
                frame: (*text).to_owned().into(),
                row: "tap".into(),
                line_us,
                ..Arrival::default()
            })
            .collect();
        let now_us = self.desk.now_us();
        self.intake.step(now_us, &frames).unwrap().accounting
    }
}

const POST: &str = r#"{"id":5,"type":"record","record":{"live":false,"rev":"3kb3fge5lm32x","did":"did:web:alice.test","collection":"com.example.post","rkey":"a","action":"create","record":{"n":1}}}"#;

#[test]
fn a_message_is_acknowledged_with_its_transaction_also_where_its_body_is_wrong() {
    let mut bench = Bench::new();
    let bad = r#"{"id":6,"type":"record","record":{"live":true,"rev":"no revision","did":"did:web:alice.test","collection":"com.example.post","rkey":"a","action":"create"}}"#;
    let user = r#"{"id":7,"type":"user","user":{"did":"did:web:alice.test","handle":"alice.test","isActive":false,"status":"takendown"}}"#;
    let counted = bench.take(1, &[POST, bad, user, "{"]);
    assert_eq!(counted.applied, 3, "record, standing, handle");
    assert_eq!(counted.dead, 2, "each by itself");
    let acked = bench.acks.done_now();
    assert_eq!(acked, [5, 6, 7], "a wrong body is acknowledged too");
    let has = |bench: &Bench| bench.desk.has("did:web:alice.test", "post", "a");
    assert!(!has(&bench), "taken down");
    // The same again: nothing changes but the counts.
    assert_eq!(bench.take(1, &[POST]).repeated, 1);
    assert_eq!(bench.acks.done_now(), [5]);
    // A handle that a Tap could not confirm is nobody's.
    let unconfirmed = user.replace("\"id\":7", "\"id\":8");
    let unconfirmed = unconfirmed.replace("\"alice.test\"", "\"handle.invalid\"");
    bench.take(1, &[&unconfirmed]);
    let store = &bench.desk.store;
    let handle = store.handle_of("did:web:alice.test").unwrap();
    assert_eq!(handle.as_deref(), Some("alice.test"));
    assert_eq!(store.did_of("handle.invalid").unwrap(), None);
}

/// Standings come in any order and several in one transaction; a killed Tap
/// tells old ones again, and one that has lost its own store counts anew.
#[test]
fn the_newest_standing_holds_in_whatever_order_a_tap_tells_them() {
    let mut bench = Bench::new();
    let told = |id: i64, active: bool| {
        let status = if active { "active" } else { "deactivated" };
        format!(
            r#"{{"id":{id},"type":"identity","identity":{{"did":"did:web:alice.test","handle":"handle.invalid","is_active":{active},"status":"{status}"}}}}"#
        )
    };
    let (left, back, left_again, back_again) = (
        told(21, false),
        told(22, true),
        told(28, false),
        told(29, true),
    );
    let mut seen = |line_us: i64, messages: &[&str]| {
        bench.take(line_us, messages);
        bench.desk.has("did:web:alice.test", "post", "a")
    };
    assert!(seen(1_000_000, &[POST]));
    assert!(!seen(1_000_000, &[&left]));
    assert!(seen(1_000_000, &[&back]));
    assert!(seen(2_000_000, &[&left, &back, &left_again, &back_again]));
    assert!(seen(2_000_000, &[&left_again, &left]), "told again, late");
    assert!(
        seen(3_000_000, &[&back_again, &left_again]),
        "the newer first"
    );
    assert!(!seen(4_000_000, &[&told(1, false)]), "counted anew");
    assert!(seen(4_000_000, &[&told(2, true)]));
}
