//! Rings against sorted lists, at caps that wrap, widen and drop.

use super::*;
use crate::records::RecordsWriter;
use sdd::Guard;

/// A ring beside the list it must equal.
struct Pair {
    rings: Rings,
    writer: RingsWriter,
    records: Records,
    recorder: RecordsWriter,
    /// Everything ever pushed.
    pushed: Vec<u32>,
}

impl Pair {
    fn new(items_max: usize) -> Self {
        let rings = Rings::new(items_max);
        let mut writer = RingsWriter::new(&rings);
        let records = Records::default();
        writer.build(&rings, 3, &[], (false, i64::MIN), &records);
        Self {
            rings,
            writer,
            records,
            recorder: RecordsWriter::default(),
            pushed: Vec::new(),
        }
    }

    fn record(&mut self, time_us: i64) -> u32 {
        let at = self.pushed.len() as u64;
        let uri = format!("at://a/b/{:09}", (at * 7_919) % 1_000_003);
        self.recorder
            .add(&self.records, at, time_us, &uri, 1, &[1], None)
    }

    fn push(&mut self, time_us: i64) {
        let number = self.record(time_us);
        self.pushed.push(number);
        self.push_to(&[3, 9], number, time_us);
    }

    fn push_to(&mut self, slots: &[u32], number: u32, time_us: i64) -> u64 {
        let push = |&slot: &u32| Push {
            slot,
            number,
            time_us,
        };
        self.writer
            .push_each(&self.rings, slots, push, &self.records)
    }

    /// The newest of all that was pushed, and nothing missing above the floor.
    #[track_caller]
    fn check(&self) {
        let mut expected = self.pushed.clone();
        expected.sort_by(|one, other| self.records.compare(*other, *one));
        let guard = Guard::new();
        let ring = self.rings.ring(3, &guard).unwrap();
        let floor = ring.floor();
        let found: Vec<u32> = ring.walk().collect();
        assert_eq!(found, expected[..found.len()]);
        assert_eq!(found.len(), expected.len().min(self.rings.items_max));
        assert_eq!(found.len() as u64, self.writer.entries());
        let by_place: Vec<u32> = (0..).map_while(|back| ring.nth(back)).collect();
        assert_eq!(by_place, found);
        if expected.len() > found.len() {
            assert_eq!(floor.oldest, found.last().copied());
        } else {
            assert_eq!(floor.oldest, None);
        }
    }
}

/// Small numbers that look random.
fn noise(step: i64) -> i64 {
    (step.wrapping_mul(6_364_136_223_846_793_005) >> 33) & 0xffff
}

#[test]
fn a_ring_holds_the_newest_whatever_its_cap_and_however_late_records_are() {
    for items_max in [1, 2, 3, 7, 8, 11, 12, 16, 17, 24, 40, 64, 200] {
        for lateness in [1, 4, 40, 3_000] {
            let mut pair = Pair::new(items_max);
            for step in 0..900 {
                pair.push(step * 3 - noise(step * 77 + lateness) % (lateness * 3));
                if step % 7 == 0 {
                    pair.check();
                }
            }
            pair.check();
        }
    }
}

/// Pushes that need more than their line are put off while those behind them are made.
#[test]
fn many_at_once_are_as_many_one_after_another() {
    for (items_max, lateness) in [(8, 1), (24, 40), (64, 4), (200, 1), (200, 3_000)] {
        let mut pair = Pair::new(items_max);
        for batch in 0..4 {
            let steps = batch * 900..(batch + 1) * 900;
            let pushes: Vec<Push> = steps
                .map(|step| {
                    let time_us = step * 3 - noise(step * 77 + lateness) % (lateness * 3);
                    let number = pair.record(time_us);
                    pair.pushed.push(number);
                    Push {
                        slot: 3,
                        number,
                        time_us,
                    }
                })
                .collect();
            pair.writer
                .push_each(&pair.rings, &pushes, |push| *push, &pair.records);
            pair.check();
        }
    }
}

#[test]
fn a_record_pushed_again_changes_nothing() {
    let mut pair = Pair::new(24);
    for step in 0..40 {
        pair.push(step);
    }
    for number in pair.pushed.clone() {
        let time_us = pair.records.time_us(number);
        let written = pair.push_to(&[3], number, time_us);
        assert_eq!(written, 0, "it is there, or below the floor");
    }
    pair.check();
}

#[test]
fn a_ring_built_from_a_list_goes_on_like_one_that_grew() {
    for length in 0..70 {
        let mut pair = Pair::new(40);
        for step in 0..length {
            let number = pair.record(step);
            pair.pushed.push(number);
        }
        let mut list = pair.pushed.clone();
        list.reverse();
        let more = list.len() > 40;
        list.truncate(40);
        let floor = (more, i64::MIN);
        pair.writer
            .build(&pair.rings, 3, &list, floor, &pair.records);
        pair.check();
        for step in 0..60 {
            pair.push(length + step - noise(step) % 9);
            pair.check();
        }
    }
}

#[test]
fn a_closed_ring_takes_nothing_and_holds_nothing() {
    let mut pair = Pair::new(200);
    for step in 0..100 {
        pair.push(step);
    }
    pair.writer.close(&pair.rings, 3);
    let number = pair.record(1_000);
    assert_eq!(pair.push_to(&[3], number, 1_000), 0);
    assert_eq!((pair.writer.entries(), pair.writer.rings()), (0, 0));
    assert!(pair.rings.ring(3, &Guard::new()).is_none());
}
