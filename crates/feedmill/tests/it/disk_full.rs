//! A full disk: intake stops with a clear message, answers go on, and when
//! there is room again everything is read on as if nothing had been.
//!
//! The disk is a small file system in memory, which only root may mount. A
//! limit on the size of the process's files, which SQLite meets as a failed
//! write, needs no right; the process can then not be helped, only the next one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use feedmill::oracle::Oracle;
use feedmill::store::attempt::Attempt;
use sim::network::{Network, NetworkOptions};

use crate::bed;
use crate::life::{Home, Life, PATIENCE, adds_up};

/// Bytes of the disk: the store of the first events fits, that of the later ones does not.
const DISK_BYTES: u64 = 6 << 20;

/// A file system of its own, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None`, and a loud word, where nothing can be mounted.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let size = format!("size={DISK_BYTES}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "feedmill-test"])
            .arg(at)
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(at.to_owned()));
        }
        println!(
            "\n*** NOTHING CAN BE MOUNTED HERE (root can): A LIMIT ON FILE SIZES STANDS IN FOR THE FULL DISK ***\n"
        );
        None
    }

    fn grow(&self) {
        let grown = Command::new("mount")
            .args(["-o", "remount,size=512m"])
            .arg(&self.0)
            .status();
        assert!(grown.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whoever still writes there has been killed before; lazily for a reader of the folder.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Fills the store beyond `DISK_BYTES`, slowly enough that a group commits in between.
async fn pour(network: &Network, life: &Life, words: &str) {
    let mut waited = Duration::ZERO;
    while life.said(words).is_empty() {
        network.emit(200);
        tokio::time::sleep(Duration::from_millis(50)).await;
        waited += Duration::from_millis(50);
        assert!(waited < PATIENCE, "never full: {:#?}", life.said(""));
    }
}

const FULL: &str = "the store cannot be written; intake stops";

#[tokio::test(flavor = "multi_thread")]
async fn intake_stops_on_a_full_disk_with_a_clear_message_and_resumes_by_itself() {
    let network = bed::network(51, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("disk");
    let Some(disk) = Disk::mount(&place) else {
        return limited(network, folder).await;
    };
    let store = disk.0.join("store.db");
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let home = Home::with_store(&network, folder, &store, &[]);
    let mut life = Life::begin("run", &home.file, None);
    home.settled(network.last_seq(), &mut [&mut life])
        .await
        .expect("it lives");
    pour(&network, &life, FULL).await;
    let line = life.said(FULL).swap_remove(0);
    assert!(line.contains("ERROR") && line.contains("full"), "{line}");
    // Readers are answered meanwhile, the numbers are right, and nobody is told twice.
    let status = home.status().await.expect("an answer");
    adds_up(&status["accounting"]);
    let behind = status["ingestion"]["cursors"]["sim"].as_u64().unwrap();
    assert!(behind < network.last_seq());
    assert_eq!(life.said(FULL).len(), 1, "{:#?}", life.said(""));
    ready(&home, 503, &["disk_full"]).await;

    disk.grow();
    life.says("the store can be written again; intake goes on")
        .await;
    ready(&home, 200, &[]).await;
    healed(&network, &home, life, since_us).await;
    drop(disk);
    network.stop().await;
}

/// Waits until `/ready` answers with this status and, where some are given, one of these reasons.
async fn ready(home: &Home, status: u16, reasons: &[&str]) {
    let begun = std::time::Instant::now();
    loop {
        let answer = reqwest::get(format!("http://{}/ready", home.address)).await;
        let answer = answer.expect("an answer");
        let code = answer.status().as_u16();
        let text = answer.text().await.expect("text");
        let is_named = |reason: &&str| text.contains(&format!("\"code\":\"{reason}\""));
        if code == status && (reasons.is_empty() || reasons.iter().any(is_named)) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{code}: {text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Everything is read to its end, and every feed is what it should be.
async fn healed(network: &Network, home: &Home, mut life: Life, since_us: i64) {
    network.settle();
    let status = home.settled(network.last_seq(), &mut [&mut life]).await;
    let status = status.expect("it lives");
    adds_up(&status["accounting"]);
    let oracle = Oracle::new(network, home.address.clone(), since_us);
    let outcome = oracle.every_feed(&|_, _| {}).await;
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {:#?}", life.said("")));
    assert_eq!(outcome.first, None);
    assert!(outcome.entries > 0);
    let status = life.end();
    assert!(status.success(), "{status}");
}

/// A process whose files may not grow beyond `DISK_BYTES`.
fn bounded(home: &Home) -> Life {
    let mut shell = Command::new("sh");
    let script = format!(
        "trap '' XFSZ; ulimit -f {}; exec \"$0\" run \"$1\"",
        DISK_BYTES / 512
    );
    shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_feedmill")])
        .arg(&home.file);
    Life::of(shell)
}

/// With a limit on the size of files the same process cannot be helped; the next one can.
async fn limited(network: Network, folder: tempfile::TempDir) {
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let store = folder.path().join("store.db");
    let home = Home::with_store(&network, folder, &store, &[]);
    let life = bounded(&home);
    pour(&network, &life, FULL).await;
    // SQLite meets the limit as a failed write, or as a disk without room.
    ready(&home, 503, &["store_failing", "disk_full"]).await;
    let status = life.end();
    assert!(status.success(), "{status}");
    let life = Life::begin("run", &home.file, None);
    healed(&network, &home, life, since_us).await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_can_write_no_more_still_stops_when_asked_and_loses_nothing() {
    let network = bed::network(52, NetworkOptions::default()).await;
    limited(network, tempfile::tempdir().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_while_its_disk_is_full_accuses_nothing() {
    let network = bed::network(53, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let (store, place) = (folder.path().join("store.db"), folder.path().to_owned());
    let home = Home::with_store(&network, folder, &store, &[]);
    let life = bounded(&home);
    pour(&network, &life, FULL).await;
    network.emit(500);
    life.kill();
    let markers = std::fs::read_dir(&place).unwrap();
    let markers = markers.map(|entry| entry.unwrap().path());
    let markers: Vec<PathBuf> = markers
        .filter(|path| path.to_string_lossy().contains("attempt"))
        .collect();
    assert_eq!(markers.len(), 2, "{markers:?}");
    for marker in markers {
        assert_eq!(Attempt::open(&marker).unwrap().found(), None, "{marker:?}");
    }
    network.stop().await;
}
