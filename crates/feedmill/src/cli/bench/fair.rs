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

use parking_lot::{RwLock, RwLockWriteGuard};
use timeline::Read;

use super::Report;
use super::crowd::{Crowd, Draft};
use super::fanout::{GIANT_KEY, giant_crowd, giant_readers};
use crate::fanout::{LOCKED_MAX, PATIENCE, WORK};

const ROUNDS: usize = 7;
const POSTS: usize = 400;
/// Between small posts: more than the public network has.
const PAUSE: Duration = Duration::from_micros(500);
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
    let best = |rounds: &[f64]| rounds.iter().copied().fold(f64::MAX, f64::min);
    let (rest, busy) = (best(&rest), best(&busy));
    report.figure("p99_rest_us", rest);
    report.figure("p99_busy_us", busy);
    report.figure("giant_pushes_meanwhile", pushes as f64);
    report.ratio("p99_busy_vs_rest", busy / rest);
    report.at_most(
        "microseconds of p99 while busy (five times rest, or rest + 1 ms)",
        busy,
        (rest * 5.0).max(rest + 1_000.0),
    );
    report
}

/// The p99 of one round in microseconds, with so many giant posts under way.
fn round(shared: &Arc<RwLock<Crowd>>, giants: usize) -> f64 {
    let (sender, drafts) = sync_channel(LOCKED_MAX);
    let stop = AtomicBool::new(false);
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || draw(shared, &drafts, giants, stop));
        for post in 0..POSTS {
            std::thread::sleep(PAUSE);
            let draft = shared.write().draft_at_once(AUTHOR + post as u32 % AUTHORS);
            let id = draft.id();
            let start = Instant::now();
            if sender.send(draft).is_err() {
                break;
            }
            while !is_seen(&shared.read(), id) {
                std::hint::spin_loop();
            }
            waits.push(start.elapsed().as_secs_f64() * 1e6);
        }
        stop.store(true, Ordering::Relaxed);
    });
    waits.sort_by(f64::total_cmp);
    waits.get(waits.len() * 99 / 100).copied().unwrap_or(0.0)
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
            let mut crowd = shared.write();
            crowd.publish_all(&came);
            RwLockWriteGuard::unlock_fair(crowd);
        }
        let mut crowd = shared.write();
        if crowd.engine.stats().fanouts < giants {
            let draft = crowd.draft_at_once(GIANT_KEY);
            crowd.publish(&draft);
        }
        let now_us = crowd.now_us;
        crowd.engine.step(now_us, WORK);
        RwLockWriteGuard::unlock_fair(crowd);
    }
}
