//! What nobody reads any more goes soon. A process of its own: the guards of other tests would hold
//! it up.

use sdd::Guard;
use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, RecordId, Settings, TargetSpec, Timelines,
};

#[test]
fn what_rings_that_widen_leave_behind_is_freed_in_a_few_steps() {
    let target = TargetSpec { items_max: 64 };
    let mut engine = Timelines::new(
        Settings {
            feeds: vec![FeedSpec {
                targets: vec![target],
                include_self: false,
            }],
            ..Settings::default()
        },
        0,
    );
    engine.loaded(0, 0, None);
    let cold = Cold {
        follows: &KeyList::new([KeyId(7)]),
        hidden: &KeyList::default(),
        as_of: 0,
    };
    let readers = 20_000;
    for reader in 0..readers {
        engine.register(0, KeyId(100 + reader), &cold, 0);
    }
    while engine.step(1, 100_000) {}
    for post in 0..40 {
        let record = NewRecord {
            id: RecordId(post),
            time_us: 10 + post as i64,
            uri: &format!("at://did/post/{post}"),
            author: KeyId(7),
            keys: &[KeyId(7)],
        };
        engine.insert(0, 0, record);
        engine.end();
        while engine.step(1, 100_000) {}
    }
    // By itself it would go after hundreds of guards.
    let has_garbage = |engine: &mut Timelines| {
        engine.step(1, 1);
        Guard::new().has_garbage()
    };
    assert!((0..8).any(|_| !has_garbage(&mut engine)));
}
