//! `bench fair`: how soon a small post is seen while a post to 31 million runs.
//!
//! Two threads, as in the server: one draws (inserts what came, then does a
//! portion of background work), one posts and reads a follower's page until the
//! post is on it. Time is by the wall, because that is what a reader waits;
//! each side is the best of several rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use timeline::{Pages, Read, Request};

use super::Report;
use super::crowd::{Crowd, Draft};
use super::fanout::{GIANT_KEY, giant_crowd, giant_readers};
use crate::fanout::{TOGETHER_MAX, WORK};

/// How long the writer waits for a post before it looks after its background work.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);

const ROUNDS: usize = 7;
const POSTS: usize = 400;
/// Between small posts: more than the public network has.
const PAUSE: Duration = Duration::from_micros(500);
/// Looks in each pause, to see how often a page would be left to the store.
const LOOKS: u32 = 5;
/// A reader of the small authors, and the first of them.
const READER: u32 = 50;
const AUTHOR: u32 = 10;
const AUTHORS: u32 = 20;
/// What one reader of the giant needs while its ring is only a line and a small body.
const BYTES: usize = 330;
/// The ids of small posts lie above those of the giant's.
const FIRST_ID: u64 = 1 << 40;
/// Posts of the giant under way at once.
const UNDER_WAY: usize = 2;

pub(super) fn run(scale: f64) -> Report {
    let mut report = Report::default();
    let readers = giant_readers(scale, BYTES, &mut report);
    let mut crowd = giant_crowd(readers);
    let follows: Vec<u32> = (AUTHOR..AUTHOR + AUTHORS).collect();
    crowd.register(READER, &follows);
    crowd.settle();
    report.workload = format!(
        "a post every {} µs to one of {AUTHORS} authors' readers, {ROUNDS} rounds of {POSTS}; {readers} readers of one author; portions of {WORK} pushes",
        PAUSE.as_micros()
    );
    let rest: Vec<Round> = (0..ROUNDS).map(|_| round(&mut crowd, 0)).collect();
    let before = crowd.engine.stats().pushes;
    let busy: Vec<Round> = (0..ROUNDS).map(|_| round(&mut crowd, UNDER_WAY)).collect();
    let pushes = crowd.engine.stats().pushes - before;
    let best = |rounds: &[Round]| {
        let all = rounds.iter().map(|round| round.p99_us);
        all.fold(f64::MAX, f64::min)
    };
    let left: usize = busy.iter().map(|round| round.left).sum();
    let looks: usize = busy.iter().map(|round| round.looks).sum();
    let (rest, busy) = (best(&rest), best(&busy));
    report.figure("p99_rest_us", rest);
    report.figure("p99_busy_us", busy);
    report.figure("giant_pushes_meanwhile", pushes as f64);
    report.ratio("p99_busy_vs_rest", busy / rest);
    report.ratio("left_to_the_store", left as f64 / looks.max(1) as f64);
    report.at_most(
        "microseconds of p99 while busy (five times rest, or rest + 1 ms)",
        busy,
        (rest * 5.0).max(rest + 1_000.0),
    );
    report
}

/// What one round showed.
#[derive(Debug, Default)]
struct Round {
    p99_us: f64,
    /// Pages read, and those of them that the engine left to the store.
    looks: usize,
    left: usize,
}

/// A post to be made.
#[derive(Debug)]
struct Post {
    id: u64,
    author: u32,
}

/// One round, with so many giant posts under way.
fn round(crowd: &mut Crowd, giants: usize) -> Round {
    let (sender, posts) = sync_channel(TOGETHER_MAX);
    let stop = AtomicBool::new(false);
    let (pages, request) = (crowd.engine.pages(), crowd.request(READER));
    let first = FIRST_ID + crowd.posted * POSTS as u64;
    let mut waits = Vec::new();
    let mut round = Round::default();
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || draw(crowd, &posts, giants, stop));
        for post in 0..POSTS {
            for _ in 0..LOOKS {
                std::thread::sleep(PAUSE / LOOKS);
                round.looks += 1;
                round.left += usize::from(newest(&pages, &request).is_none());
            }
            let (id, author) = (first + post as u64, AUTHOR + post as u32 % AUTHORS);
            let start = Instant::now();
            if sender.send(Post { id, author }).is_err() {
                break;
            }
            // What is left to the store it would answer; here it is looked at again.
            while newest(&pages, &request) != Some(id) {
                std::hint::spin_loop();
            }
            waits.push(start.elapsed().as_secs_f64() * 1e6);
        }
        stop.store(true, Ordering::Relaxed);
    });
    waits.sort_by(f64::total_cmp);
    round.p99_us = waits.get(waits.len() * 99 / 100).copied().unwrap_or(0.0);
    round
}

/// The newest record on a page, 0 if it has none; `None` if the page is left to the store.
fn newest(pages: &Pages, request: &Request<'_>) -> Option<u64> {
    let newest = pages.read(request, |_, page| {
        page.entries.first().map_or(0, |entry| entry.id.0)
    });
    match newest {
        Read::Page(id) => Some(id),
        Read::Cold | Read::Below | Read::Sparse | Read::Busy => None,
    }
}

/// What the drawer does, without a store.
fn draw(crowd: &mut Crowd, posts: &Receiver<Post>, giants: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut came: Vec<Post> = posts.try_iter().take(TOGETHER_MAX).collect();
        if came.is_empty() && giants == 0 {
            match posts.recv_timeout(PATIENCE) {
                Ok(post) => came.push(post),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let drafts: Vec<Draft> = came
            .iter()
            .map(|post| crowd.draft_at_once(post.author).with_id(post.id))
            .collect();
        crowd.publish_all(&drafts);
        if crowd.engine.stats().fanouts < giants {
            let draft = crowd.draft_at_once(GIANT_KEY);
            crowd.publish(&draft);
        }
        crowd.engine.step(crowd.now_us, WORK);
    }
}
