//! Rings that change under a page, though no change in the journal concerns it.
//!
//! Fan-outs and sweeps enter nothing: they change no page. But they move the numbers that a page
//! is walking, and give their place to others. Only the version of the ring tells.

use super::*;
use crate::accounts::Accounts;
use crate::feed::{Feed, FeedWriter};
use crate::lane::NewRecord;
use crate::ring::RingWalk;
use crate::settings::{FeedSpec, Settings, TargetSpec};
use crate::sweep::{Due, Sweep};
use sdd::Guard;
use std::sync::Arc;

const FIRST_READER: u32 = 100;
const NOW_US: i64 = 1_000_000;
/// Who is followed beside an author, and posts nothing.
const QUIET: u32 = 50;

/// A feed whose readers each follow an author of their own: slot 0 author 0, and so on.
struct Scene {
    writer: FeedWriter,
    sweep: Sweep,
    /// Records so far.
    posts: u64,
}

impl Scene {
    fn new(items_max: usize, readers: u32) -> Self {
        Self::with(items_max, readers, 1_000)
    }

    fn with(items_max: usize, readers: u32, scan_above: usize) -> Self {
        let spec = FeedSpec {
            targets: vec![TargetSpec { items_max }],
            include_self: false,
        };
        let settings = Settings {
            sync_threshold: 0, // every push is a fan-out's
            scan_above,
            ..Settings::default()
        };
        let mut writer = FeedWriter::new(&spec, &settings, 0);
        writer.lanes[0].loaded(i64::MIN);
        for author in 0..readers {
            let follows = KeyList::new([author, QUIET].map(KeyId));
            let reader = FIRST_READER + author;
            writer.register(reader, &follows, &KeyList::default(), 0, NOW_US);
        }
        writer.step_joining(10_000);
        Self {
            writer,
            sweep: Sweep::default(),
            posts: 0,
        }
    }

    /// Posts to an author's reader, which has them after [`Scene::fan_out`].
    fn post(&mut self, author: u32, count: u64) {
        for _ in 0..count {
            self.post_at(author, self.posts as i64 * 10);
        }
    }

    fn post_at(&mut self, author: u32, time_us: i64) {
        let record = NewRecord {
            id: RecordId(self.posts),
            time_us,
            uri: &format!("at://author/post/{:09}", self.posts),
            author: KeyId(author),
            keys: &[KeyId(author)],
        };
        self.posts += 1;
        self.writer.insert(0, &record, &Guard::new());
        self.writer.send_taken(0);
        self.writer.feed.journal.close();
    }

    fn fan_out(&mut self) {
        self.writer.step_jobs(10_000);
    }

    /// Sweeps the rings, but frees no number: that would stand in the journal.
    fn sweep_rings(&mut self) {
        let due = Due {
            ttl_us: i64::MAX,
            removed_max: 1,
        };
        for _ in 0..self.writer.readers.slots_end() {
            self.sweep.step(&mut self.writer, due, NOW_US, 1);
        }
    }

    /// Whoever has looked at the ring of `slot` and goes on after the change would show what was
    /// at no instant; and knows it by the ring alone.
    #[track_caller]
    fn check(&mut self, slot: u32, change: impl FnOnce(&mut Self)) {
        let feed = Arc::clone(&self.writer.feed);
        let (guard, accounts) = (Guard::new(), Accounts::default());
        let mut witness = Witness::new(&feed, &accounts, &guard);
        read(&request(slot, 100), &READING, &mut witness);
        let walk = walk(&feed, slot, &guard);
        let before: Vec<u32> = walk.clone().collect();
        assert!(witness.holds(), "nothing is changed yet");

        change(self);

        let amid: Vec<u32> = walk.collect();
        let after: Vec<u32> = self::walk(&feed, slot, &guard).collect();
        assert!(amid != before && amid != after, "it disturbs nobody");
        assert!(witness.is_quiet(), "the journal tells");
        assert!(!witness.is_unmoved(), "{amid:?} is believed");
    }
}

const READING: Reading = Reading {
    position: 0,
    page_scan_max: 1_000,
    window_scan_max: 1_000,
};

/// The newest of the reader of a slot.
fn request(slot: u32, limit: usize) -> Request<'static> {
    Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(FIRST_READER + slot),
        before: None,
        limit,
        now_us: NOW_US,
    }
}

fn walk<'g>(feed: &Feed, slot: u32, guard: &'g Guard) -> RingWalk<'g> {
    match feed.lanes[0].rings.look(slot, guard) {
        Look::Open(ring) => ring.walk(),
        other => panic!("the reader has a ring: {other:?}"),
    }
}

#[test]
fn a_page_notices_fanouts_that_write_over_the_oldest_of_its_ring() {
    let mut scene = Scene::new(16, 1);
    scene.post(0, 17);
    scene.fan_out();
    // The line has one number now, and takes seven more before it spills into a full body.
    scene.post(0, 8);
    scene.check(0, Scene::fan_out);
}

#[test]
fn a_page_notices_a_fanout_that_puts_a_late_record_into_its_ring() {
    let mut scene = Scene::new(64, 1);
    scene.post(0, 16);
    scene.fan_out();
    scene.post_at(0, 25);
    scene.check(0, Scene::fan_out);
}

#[test]
fn a_page_notices_a_fanout_that_widens_its_ring_and_gives_the_narrow_one_away() {
    let mut scene = Scene::new(64, 2);
    // Body and line of the first are full, and the other, whose line is full, has no body.
    scene.post(0, 24);
    scene.post(1, 9);
    scene.fan_out();
    scene.post(0, 1);
    scene.post(1, 1);
    scene.check(0, Scene::fan_out);
}

/// Readers with bodies, one after the other.
fn neighbours() -> Scene {
    let mut scene = Scene::new(64, 3);
    for author in 0..3 {
        scene.post(author, 16);
        scene.fan_out();
    }
    scene
}

#[test]
fn a_page_notices_a_sweep_that_moves_its_ring_to_the_place_of_one_that_left() {
    let mut scene = neighbours();
    scene.writer.hibernate(0, &Guard::new());
    // And the ring of the next to the place that is free then.
    scene.check(1, Scene::sweep_rings);
}

#[test]
fn a_page_notices_a_sweep_that_takes_removed_records_out_of_its_ring() {
    let mut scene = neighbours();
    let feed = Arc::clone(&scene.writer.feed);
    let number = walk(&feed, 1, &Guard::new()).last().unwrap();
    scene.writer.lanes[0].take_out(number, &feed.journal, &Guard::new());
    feed.journal.close();
    scene.check(1, Scene::sweep_rings);
}

#[test]
fn a_page_notices_a_sweep_that_builds_its_ring_anew_after_an_unfollow() {
    let mut scene = neighbours();
    let reader = FIRST_READER + 1;
    scene.writer.unfollow(1, reader, QUIET, &Guard::new());
    scene.writer.feed.journal.close();
    scene.check(1, Scene::sweep_rings);
}

/// A key that is pulled from now on, and a ring that is built without it: the rings of two instants,
/// though the page looks at its ring only once.
#[test]
fn a_page_notices_that_other_keys_are_merged_than_those_it_asked_for() {
    let mut scene = neighbours();
    let feed = Arc::clone(&scene.writer.feed);
    let (guard, accounts) = (Guard::new(), Accounts::default());
    let mut witness = Witness::new(&feed, &accounts, &guard);
    read(&request(1, 100), &READING, &mut witness);
    assert!(witness.holds(), "nothing is changed yet");
    scene.writer.audience.not_pushed(1, Some(NOW_US));
    assert!(witness.is_quiet(), "the journal tells");
    assert!(!witness.is_unmoved());
}

/// The reader leaves and another is given its slot, after the page found the slot and before it
/// looks at the ring, which has one version from then on.
#[test]
fn a_page_notices_that_its_slot_is_of_another_reader() {
    let mut scene = neighbours();
    let feed = Arc::clone(&scene.writer.feed);
    let (guard, accounts) = (Guard::new(), Accounts::default());
    let mut witness = Witness::new(&feed, &accounts, &guard);
    let active = witness.active(FIRST_READER + 1).unwrap();

    scene.writer.hibernate(active.slot, &guard);
    scene.writer.step_leaving(10_000);
    let (next, follows) = (FIRST_READER + 9, KeyList::new([KeyId(2)]));
    scene
        .writer
        .register(next, &follows, &KeyList::default(), 0, NOW_US);
    scene.writer.step_joining(10_000);
    assert_eq!(feed.readers.slot_of(next), Some(active.slot));

    let index = index_of(0, &mut witness).unwrap();
    assert!(matches!(witness.ring(index, active.slot), Look::Open(_)));
    assert!(witness.is_quiet(), "the journal tells");
    assert!(!witness.is_unmoved(), "the ring of another is believed");
}

/// A walk of the window meets records of all keys, and of those that the reader does not follow
/// the journal tells the page nothing. The oldest leaves the window, is freed, and its number is
/// given to another record before the walk arrives at it.
#[test]
fn a_walk_of_the_window_notices_that_a_number_it_will_meet_is_of_another_record() {
    const OTHERS: u32 = 60;
    let mut scene = Scene::with(64, 1, 1);
    scene.post(OTHERS, 1);
    scene.post(0, 5); // in one block with it
    let feed = Arc::clone(&scene.writer.feed);
    let (guard, accounts) = (Guard::new(), Accounts::default());
    let mut witness = Witness::new(&feed, &accounts, &guard);
    let read = read(&request(0, 2), &READING, &mut witness);
    assert!(matches!(read, Read::Page(_)), "{read:?}");
    let records = &feed.lanes[0].records;
    let mut walk = feed.lanes[0].window.walk(None, records, &guard);
    assert!(witness.holds(), "nothing is changed yet");

    let oldest = feed.lanes[0].window.oldest(&guard).unwrap();
    assert!(scene.writer.lanes[0].evict(&guard));
    scene.writer.lanes[0].bury(oldest, &feed.journal, &guard);
    feed.journal.close();
    assert!(witness.holds(), "the number is free, and its row as it was");
    scene.post(OTHERS, 1);

    let last = walk.by_ref().last();
    assert_eq!(last, Some(oldest));
    assert_eq!(records.row(oldest).unwrap().id, scene.posts - 1);
    assert!(witness.is_quiet(), "the journal tells");
    assert!(
        !witness.is_unmoved(),
        "the row of another record is believed"
    );
}
