//! Replicas at work over WebSocket: what their authorities do not take, and what they are told.

use super::*;
use crate::peer::{Peer, PeerSettings, Reports};
use blocklog::replica::{Mode, Target};
use blocklog::store::{LogStore as _, ReplicaStore as _};
use blocklog::sync::SyncReport;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A replica that runs.
pub(super) struct Running {
    pub(super) reports: Reports,
    stop: watch::Sender<bool>,
    ended: JoinHandle<()>,
}

impl Running {
    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        self.ended.await.unwrap();
    }
}

pub(super) fn report(running: &Running) -> SyncReport {
    running.reports.now()
}

/// Replicate `space` of `authority` in the log of `replica`.
pub(super) fn replicate(authority: &Server, replica: &Server, space: &str) -> Running {
    let settings = PeerSettings {
        url: format!("ws://{}", authority.address),
        space: space.into(),
        lanes: vec![(Target::Space, Mode::From(0))],
        token: None,
    };
    let peer = Peer::new(replica.log.clone(), settings).unwrap();
    let reports = peer.reports();
    let (stop, stopped) = watch::channel(false);
    Running {
        reports,
        stop,
        ended: tokio::spawn(peer.run(stopped)),
    }
}

/// Write a block of so many bytes.
async fn write(server: &Server, feed: &'static str, bytes: usize) {
    let log = server.log.clone();
    let work = move || {
        let name = FeedName {
            feed,
            namespace: None,
        };
        let draft = Draft {
            timestamp_ms: 1,
            data: vec![b'x'; bytes],
        };
        log.write("space", &name, &Author::named("ada"), &[draft])
            .unwrap();
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

/// Blocks of the space, which are more than a page may hold.
fn count(server: &Server) -> u64 {
    let state = server.log.store().space("space").unwrap();
    state.map_or(0, |state| state.position_max)
}

#[tokio::test]
async fn a_push_that_is_longer_than_the_connection_takes_is_halved() {
    // Messages of 2.3 MB: less than a push holds, and more than one of its blocks.
    let settings = LogSettings {
        batch_bytes_max: 640_000,
        ..LogSettings::open()
    };
    let (authority, replica) = (serve(settings).await, serve(LogSettings::open()).await);
    authority.append(1).await;
    let running = replicate(&authority, &replica, "space");
    until("the history is here", async || report(&running).pulled == 1).await;
    running.stop().await;
    for _ in 0..7 {
        write(&replica, "f", 290_000).await;
    }
    write(&replica, "f", 1_900_000).await; // alone longer than a message may be
    write(&replica, "f", 1).await;
    let running = replicate(&authority, &replica, "space");
    until("the others are there", async || count(&authority) == 9).await;
    let asides = replica.log.store().conflicts("space", 10).unwrap();
    let reasons: Vec<&str> = asides.iter().map(|aside| aside.reason.as_str()).collect();
    assert_eq!(reasons, ["message_bytes_max"]);
    running.stop().await;
}

#[tokio::test]
async fn a_page_as_long_as_the_authority_gives_is_read() {
    let (authority, replica) = (
        serve(LogSettings::open()).await,
        serve(LogSettings::open()).await,
    );
    authority.ask("create", &json!({"requestId": 1})).await;
    write(&authority, "f", 13 << 20).await; // more than 16 MiB in base64
    let running = replicate(&authority, &replica, "space");
    until("it is here", async || report(&running).pulled == 1).await;
    running.stop().await;
}

#[tokio::test]
async fn who_may_not_push_is_told_and_goes_on_pulling() {
    let closed = LogSettings {
        append: Who::Token,
        ..LogSettings::open()
    };
    let full = LogSettings {
        space_bytes_max: 2 * (128 + 2),
        ..LogSettings::open()
    };
    for (settings, code) in [(closed, "unauthorized"), (full, "spaceBytes")] {
        let (authority, replica) = (serve(settings).await, serve(LogSettings::open()).await);
        authority.ask("create", &json!({"requestId": 1})).await;
        write(&authority, "g", 2).await;
        let running = replicate(&authority, &replica, "space");
        until("the history is here", async || report(&running).pulled == 1).await;
        write(&replica, "f", 100).await;
        until("it is refused", async || {
            report(&running).refused == Some(code)
        })
        .await;
        write(&authority, "g", 2).await;
        until("what comes is here", async || report(&running).pulled == 2).await;
        let held = report(&running);
        assert_eq!((held.set_aside, held.pushed), (0, 0), "it waits: {held:?}");
        running.stop().await;
    }
}
