//! Memory: the limits hold.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod posts;

use posts::{post, world};
use timeline::{Cold, FeedSpec, KeyId, KeyList, Registered, Settings, TargetSpec, Timelines};

#[test]
fn a_window_stays_below_its_memory_and_uses_it() {
    let window_bytes_max = 2_000_000;
    let mut engine = world(Settings {
        window_bytes_max,
        removed_max: 1,
        ..Settings::default()
    });
    for round in 0..40 {
        post(&mut engine, round * 2_000..(round + 1) * 2_000, 500);
        while engine.step(round.cast_signed(), 100_000) {}
        let stats = engine.stats();
        assert!(stats.window_bytes <= window_bytes_max, "{stats:?}");
        let full = engine.is_window_full();
        assert_eq!(full, engine.floor_us(0, 0).unwrap() > i64::MIN);
        if full {
            // All but the share of records that are gone and not yet freed.
            assert!(
                stats.window_bytes > window_bytes_max / 8 * 7 - 1_000,
                "{stats:?}"
            );
        }
    }
    assert!(engine.is_window_full());
}

/// The store hands its records out newest first.
#[test]
fn what_does_not_fit_when_a_window_is_loaded_is_left_out() {
    let window_bytes_max = 300_000;
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 200 }],
            include_self: false,
        }],
        window_bytes_max,
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    for id in (0..6_000).rev() {
        post(&mut engine, id..id + 1, 500);
    }
    engine.loaded(0, 0, None);
    let stats = engine.stats();
    assert_eq!(stats.removed, 0);
    assert!(stats.window_bytes <= window_bytes_max, "{stats:?}");
    assert!(stats.records > 1_000, "{stats:?}");
    let newest_left_out = 6_000 - stats.records as i64 - 1;
    let floor_us = 1_700_000_000_000_000 + newest_left_out * 1_000;
    assert_eq!(engine.floor_us(0, 0), Some(floor_us));
}

#[test]
fn no_reader_is_registered_beyond_the_memory_of_readers() {
    let mut engine = world(Settings {
        reader_bytes_max: 3_000_000,
        ..Settings::default()
    });
    let follows = KeyList::new((0..1_000).map(KeyId));
    let cold = Cold {
        follows: &follows,
        hidden: &KeyList::default(),
        as_of: 0,
    };
    let mut registered = 0;
    let full = (0..10_000).find(|reader| {
        let outcome = engine.register(0, KeyId(5_000 + reader), &cold, 1);
        while engine.step(1, 100_000) {}
        registered += usize::from(outcome == Registered::Active);
        outcome == Registered::Full
    });
    let full = full.unwrap();
    assert!(registered > 100, "{registered}");
    let stats = engine.stats();
    assert_eq!(stats.readers, registered);
    assert!(stats.reader_bytes < 3_000_000 + 20_000, "{stats:?}");
    // Who is active already stays so; and who leaves makes room.
    let again = engine.register(0, KeyId(5_000), &cold, 1);
    assert_eq!(again, Registered::Active);
    for reader in 0..100 {
        engine.hibernate(0, KeyId(5_000 + reader));
    }
    while engine.step(1, 100_000) {}
    let outcome = engine.register(0, KeyId(5_000 + full), &cold, 1);
    assert_eq!(outcome, Registered::Active);
}
