//! What is wrong with a stream is in the log once, with its cause.

use sim::faults::Fault;
use sim::network::NetworkOptions;

use crate::bed;
use crate::life::{Home, Life};

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_bad_input_is_logged_once_with_its_cause() {
    let network = bed::network(41, NetworkOptions::default()).await;
    // Small enough that most posts are over it.
    let small = ("[intake]\n", "[intake]\nrecord_bytes_max = 150\n");
    let home = Home::new(&network, &[small]);
    let mut life = Life::begin("run", &home.file, None);
    home.settled(network.last_seq(), &mut [&mut life]).await;
    for _ in 0..3 {
        for fault in [
            Fault::Garbage,
            Fault::Unknown,
            Fault::Oversized,
            Fault::Future,
            Fault::Disconnect,
        ] {
            network.order(fault);
            let done = network.faults_done(fault);
            // Who says that a cursor is from the future says so at connect, after the disconnect.
            while fault != Fault::Future && network.faults_done(fault) == done {
                network.emit(5);
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    }
    network.settle();
    let status = home
        .settled(network.last_seq(), &mut [&mut life])
        .await
        .unwrap();
    assert!(network.faults_done(Fault::Future) >= 2);
    assert!(status["dead_letters"].as_i64().unwrap() > 6, "{status}");
    for (kind, cause) in [
        ("kind=\"frame\"", "frame"),
        ("kind=\"#mystery\"", "new to this version"),
        ("kind=\"size\"", "at most 150 bytes"),
        ("kind=\"FutureCursor\"", "ended the stream"),
    ] {
        let lines = life.said(kind);
        assert_eq!(lines.len(), 1, "{kind}: {lines:#?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains(cause),
            "{lines:?}"
        );
    }
    let all = life.said("could not be used").len();
    assert!(
        all <= 6,
        "a line for every kind, not for every event: {all}"
    );
    life.end();
    network.stop().await;
}
