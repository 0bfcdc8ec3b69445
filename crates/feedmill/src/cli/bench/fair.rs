//! `bench fair`: how soon a small post is seen while a post to 31 million runs.
//!
//! Two threads, as in the server: one draws (inserts what came, then does a
//! portion of background work, letting go of the lock in between), one posts
//! and reads a follower's page until the post is on it. Time is by the wall,
//! because that is what a reader waits; each side is the best of several rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use timeline::Read;

use super::Report;
use super::crowd::{Crowd, Draft};
use super::fanout::{GIANT_KEY, giant_crowd, giant_readers};
use crate::fanout::{LANDED_MAX, LOCKED_MAX, PATIENCE, WORK};

const ROUNDS: usize = 7;
const POSTS: usize = 400;
/// Between small posts: more than the public network has.
const PAUSE: Duration = Duration::from_micros(500);
/// Looks in each pause, to see how often a page would meet the drawer alone.
const LOOKS: u32 = 5;
/// A reader of the small authors, and the first of them.
const READER: u32 = 50;
const AUTHOR: u32 = 10;
const AUTHORS: u32 = 20;
/// What one reader of the giant needs while its ring is only a line and a small body.
const BYTES: usize = 330;
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
    let shared = Arc::new(RwLock::new(crowd));
    let rest = (0..ROUNDS).map(|_| round(&shared, 0)).collect::<Vec<_>>();
    let before = shared.read().engine.stats().pushes;
    let busy = (0..ROUNDS)
        .map(|_| round(&shared, UNDER_WAY))
        .collect::<Vec<_>>();
    let pushes = shared.read().engine.stats().pushes - before;
    let best = |rounds: &[Round]| {
        let all = rounds.iter().map(|round| round.p99_us);
        all.fold(f64::MAX, f64::min)
    };
    let met: usize = busy.iter().map(|round| round.met).sum();
    let looks: usize = busy.iter().map(|round| round.looks).sum();
    let (rest, busy) = (best(&rest), best(&busy));
    report.figure("p99_rest_us", rest);
    report.figure("p99_busy_us", busy);
    report.figure("giant_pushes_meanwhile", pushes as f64);
    report.ratio("p99_busy_vs_rest", busy / rest);
    report.ratio("drawer_is_alone", met as f64 / looks.max(1) as f64);
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
    /// Looks at the lock, and those of them that found the drawer alone.
    looks: usize,
    met: usize,
}

/// One round, with so many giant posts under way.
fn round(shared: &Arc<RwLock<Crowd>>, giants: usize) -> Round {
    let (sender, drafts) = sync_channel(LOCKED_MAX);
    let stop = AtomicBool::new(false);
    let mut waits = Vec::new();
    let mut round = Round::default();
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || draw(shared, &drafts, giants, stop));
        for post in 0..POSTS {
            for _ in 0..LOOKS {
                std::thread::sleep(PAUSE / LOOKS);
                round.looks += 1;
                round.met += usize::from(shared.try_read().is_none());
            }
            let draft = shared.write().draft_at_once(AUTHOR + post as u32 % AUTHORS);
            let id = draft.id();
            let start = Instant::now();
            if sender.send(draft).is_err() {
                break;
            }
            // Who meets the drawer alone would be answered by the store; here it looks again.
            loop {
                if shared.try_read().is_some_and(|crowd| is_seen(&crowd, id)) {
                    break;
                }
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

fn is_seen(crowd: &Crowd, id: u64) -> bool {
    match crowd.engine.read(&crowd.request(READER)) {
        Read::Page { entries, .. } => entries.first().is_some_and(|entry| entry.id.0 == id),
        Read::Cold | Read::Below => false,
    }
}

/// What the drawer does, without a store.
fn draw(shared: &RwLock<Crowd>, drafts: &Receiver<Draft>, giants: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut came: Vec<Draft> = drafts.try_iter().take(LOCKED_MAX).collect();
        if came.is_empty() && giants == 0 {
            match drafts.recv_timeout(PATIENCE) {
                Ok(draft) => came.push(draft),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        if !came.is_empty() {
            shared.write().publish_all(&came);
        }
        let mut crowd = shared.write();
        if crowd.engine.stats().fanouts < giants {
            let draft = crowd.draft_at_once(GIANT_KEY);
            crowd.publish(&draft);
        }
        let now_us = crowd.now_us;
        crowd.engine.tend(now_us, WORK);
        drop(crowd);
        let mut carried = shared.read().engine.carry(WORK);
        while !carried.is_empty() {
            shared.write().engine.land(&mut carried, LANDED_MAX);
        }
    }
}
