//! What a stream of strangers brings: a relay all of whose accounts mean harm.
//!
//! It sends a frame every `FRAME_EVERY`, by turns: broken chains of accounts on hostile hosts and what is held behind
//! them, poison, frames larger than any may be, dead letters, records that wait for others that never come, doubled
//! follows, and records that are expensive for a rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt as _;
use record::cbor::Writer;
use record::event::{AccountEvent, CommitEvent, Frame, RepoOp};
use record::tid::Tid;
use sim::compose::FOLLOW;
use sim::repo::{Change, Committed, Repo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use super::{HOSTILE, WAITING, hosts, invented};
use crate::budgets::rkey;

const TIME: &str = "2026-01-02T03:04:05.000Z";
/// Between two frames.
const FRAME_EVERY: Duration = Duration::from_millis(if cfg!(debug_assertions) { 400 } else { 25 });
/// Frames between two that are larger than any may be.
const OVERSIZE_EVERY: usize = 400;
/// Bytes of such a frame, of a record that is refused, and of one that is held.
const OVERSIZE: usize = 6_000_000;
const REFUSED: usize = 60_000;
const HELD: usize = 20_000;
/// Words of a record that a rule looks at each with each other.
const WORDS: usize = if cfg!(debug_assertions) { 50 } else { 120 };
/// Follows of one account in one commit.
const FOLLOWS: usize = 50;

/// A relay that means harm.
pub(crate) struct Relay {
    pub(crate) url: String,
    sent: Arc<AtomicUsize>,
    begins: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Relay {
    /// A relay of these accounts on hostile hosts, and of others.
    pub(crate) async fn start(hostile: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicUsize::new(0));
        let begins = watch::Sender::new(false);
        let (counted, mut begun) = (Arc::clone(&sent), begins.subscribe());
        let serving = tokio::spawn(async move {
            let mut stream = Stream::new(hostile);
            // One stream at a time; who reconnects goes on with the frames that come.
            while let Ok((line, _)) = listener.accept().await {
                let Ok(mut socket) = tokio_tungstenite::accept_async(line).await else {
                    continue;
                };
                // Its owner may be gone already.
                drop(begun.wait_for(|begun| *begun).await);
                loop {
                    for frame in stream.next() {
                        if socket.send(Message::binary(frame)).await.is_err() {
                            break;
                        }
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                    if socket.flush().await.is_err() {
                        break;
                    }
                    tokio::time::sleep(FRAME_EVERY).await;
                }
            }
        });
        Self {
            url,
            sent,
            begins,
            serving,
        }
    }

    /// From now on it sends to whoever connects.
    pub(crate) fn begin(&self) {
        self.begins.send_replace(true);
    }

    /// Turns that were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A hostile account.
struct Author {
    did: String,
    repo: Repo,
    written: usize,
}

impl Author {
    fn new(did: String) -> Self {
        Self {
            did,
            repo: Repo::default(),
            written: 0,
        }
    }

    /// Writes records in one commit.
    fn write(&mut self, collection: &str, records: impl IntoIterator<Item = Vec<u8>>) -> Committed {
        let mut changes = Vec::new();
        for block in records {
            changes.push(Change {
                path: format!("{collection}/{}", rkey(self.written)),
                block: Some(Bytes::from(block)),
            });
            self.written += 1;
        }
        self.repo
            .commit(&self.did, &hosts::key(), next_rev(), changes)
    }
}

fn next_rev() -> Tid {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    let now_us = feedmill::clock::Clock::Wall.now_us();
    Tid::new(
        (now_us + NEXT.fetch_add(1, Ordering::Relaxed)).unsigned_abs(),
        0,
    )
}

/// What comes next.
struct Stream {
    seq: i64,
    turn: usize,
    /// On hostile hosts.
    broken: Vec<Author>,
    writer: Author,
    follower: Author,
}

impl Stream {
    fn new(hostile: Vec<String>) -> Self {
        Self {
            seq: 0,
            turn: 0,
            broken: hostile.into_iter().map(Author::new).collect(),
            writer: Author::new(invented(77 << 40)),
            follower: Author::new(invented(78 << 40)),
        }
    }

    /// The frames of one turn.
    fn next(&mut self) -> Vec<Vec<u8>> {
        self.turn += 1;
        if self.turn.is_multiple_of(OVERSIZE_EVERY) {
            return vec![self.oversize()];
        }
        match self.turn % 7 {
            0 => self.broken_chain(),
            1 => vec![vec![0xff; 200], self.poison()],
            2 => vec![self.refused()],
            3 => vec![self.waiting()],
            4 => vec![self.doubled_follows()],
            5 => vec![self.expensive()],
            _ => vec![self.account()],
        }
    }

    fn seq(&mut self) -> i64 {
        self.seq += 1;
        self.seq
    }

    fn commit(&mut self, did: &str, made: &Committed) -> Vec<u8> {
        let ops = made.done.iter().map(|done| RepoOp {
            action: done.action,
            path: &done.path,
            cid: done.cid,
            prev: done.prev,
        });
        Frame::Commit(CommitEvent {
            seq: self.seq(),
            repo: did,
            commit: made.commit,
            rev: made.rev,
            since: made.since,
            blocks: &made.car,
            ops: ops.collect(),
            prev_data: made.prev_data,
            time: TIME,
            too_big: false,
            rebase: false,
        })
        .to_bytes()
    }

    /// A commit that nobody is told of, and one after it.
    fn broken_chain(&mut self) -> Vec<Vec<u8>> {
        let number = self.turn / 7 % self.broken.len();
        let Some(author) = self.broken.get_mut(number) else {
            return Vec::new();
        };
        author.write(HOSTILE, [text(1)]);
        let made = author.write(HOSTILE, [text(HELD)]);
        let did = author.did.clone();
        vec![self.commit(&did, &made)]
    }

    /// A commit whose blocks are not what they are called.
    fn poison(&mut self) -> Vec<u8> {
        let did = invented(79 << 40 | self.turn as u64);
        let made = Author::new(did.clone()).write(HOSTILE, [text(100)]);
        let mut frame = self.commit(&did, &made);
        let middle = frame.len() / 2;
        frame[middle] ^= 0xff;
        frame
    }

    fn oversize(&mut self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(OVERSIZE + 500);
        writer.map(2).text("t").text("#commit").text("op").int(1);
        writer.map(6).text("ops").list(0);
        writer.text("rev").text("3aaaaaaaaaa22");
        writer.text("seq").int(self.seq());
        // Of an account of its own: the others go on.
        writer.text("repo").text(&invented(81 << 40));
        writer.text("time").text(TIME);
        writer.text("blocks").bytes(&vec![7; OVERSIZE]);
        writer.into_bytes()
    }

    /// A record that a rule refuses.
    fn refused(&mut self) -> Vec<u8> {
        self.written(HOSTILE, [text(REFUSED)])
    }

    /// Records that wait for another one each.
    fn waiting(&mut self) -> Vec<u8> {
        let turn = self.turn;
        let one = |number: usize| {
            let parent = format!("at://{}/{WAITING}/never{turn}-{number}", invented(1));
            let mut writer = Writer::with_capacity(2_000);
            writer.map(2).text("text").text(&"x".repeat(1_000));
            writer.text("parent").text(&parent);
            writer.into_bytes()
        };
        self.written(WAITING, (0..20).map(one))
    }

    /// Many follows of one account.
    fn doubled_follows(&mut self) -> Vec<u8> {
        let one = |_| {
            let mut writer = Writer::with_capacity(300);
            writer.map(3).text("$type").text(FOLLOW);
            writer.text("subject").text(&invented(1));
            writer.text("createdAt").text(TIME);
            writer.into_bytes()
        };
        let made = self.follower.write(FOLLOW, (0..FOLLOWS).map(one));
        let did = self.follower.did.clone();
        self.commit(&did, &made)
    }

    /// A record whose words a rule holds against each other.
    fn expensive(&mut self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(WORDS * 8);
        writer.map(1).text("words").list(WORDS);
        for number in 0..WORDS {
            writer.text(&format!("w{number}"));
        }
        self.written(HOSTILE, [writer.into_bytes()])
    }

    fn written(&mut self, collection: &str, records: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
        let made = self.writer.write(collection, records);
        let did = self.writer.did.clone();
        self.commit(&did, &made)
    }

    /// An account comes and goes.
    fn account(&mut self) -> Vec<u8> {
        let active = self.turn.is_multiple_of(2);
        Frame::Account(AccountEvent {
            seq: self.seq(),
            did: &invented(80 << 40),
            active,
            status: (!active).then_some("deactivated"),
            time: TIME,
        })
        .to_bytes()
    }
}

/// A record with so many letters.
fn text(letters: usize) -> Vec<u8> {
    let mut writer = Writer::with_capacity(letters + 100);
    writer.map(1).text("text").text(&"x".repeat(letters));
    writer.into_bytes()
}
