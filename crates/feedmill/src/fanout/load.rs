//! Loading: the store's records and settings as the engine takes them.
//!
//! In:    the configuration and the store, slice by slice.
//! Out:   an engine at the outbox position before the first slice.
//! Never: a number that the engine cannot hold: it is told as damage; a page from this engine
//!        before every change up to the end of loading is applied to it.
//!
//! Slices are of different moments, so that no snapshot is held for long. That is sound because
//! a change says all that it leaves of the record, group or account it names: what changed since
//! the first slice is settled by its last change, and everything else was the same all the time.

use timeline::{
    FeedSpec, Inserted, KeyId, KeyList, NewRecord, RecordId, Settings, TargetSpec, Timelines,
};

use super::WORK;
use super::loading::Loading;
use crate::clock::Micros;
use crate::config;
use crate::store::routes::Routes;
use crate::store::{LoadPlace, Loaded, Outbox, Plan, StoreError};

/// Largest number a key can have: the engine holds 32 bits.
const KEY_MAX: i64 = u32::MAX as i64;

/// Marks the ids of groups: a group and its first record are two things.
pub(super) const GROUP: i64 = 1 << 62;

/// What the engine is told of the configuration.
pub(super) fn engine_settings(settings: &config::Timelines, plan: &Plan) -> Settings {
    let bytes = settings.memory_mib << 20;
    let defaults = Settings::default();
    Settings {
        feeds: plan
            .feeds
            .iter()
            .map(|feed| FeedSpec {
                targets: feed
                    .targets
                    .iter()
                    .map(|target| TargetSpec {
                        items_max: (target.max_items as usize).min(timeline::RING_ITEMS_MAX),
                    })
                    .collect(),
                include_self: feed.include_self,
            })
            .collect(),
        sync_threshold: settings.sync_threshold,
        pull_above: settings.pull_above,
        scan_above: settings.scan_above,
        ttl_us: i64::from(settings.ttl_days) * 86_400_000_000,
        page_scan_max: settings.page_scan_max.min(defaults.page_scan_max),
        window_bytes_max: bytes / 4,
        reader_bytes_max: bytes / 4 * 3,
        ..defaults
    }
}

/// A fresh engine, loaded from the store; `None` if `enough` became true meanwhile.
pub(super) fn load(
    settings: &Settings,
    routes: &Routes,
    store: &dyn Outbox,
    loading: &Loading,
    enough: &dyn Fn() -> bool,
) -> Result<Option<Timelines>, StoreError> {
    // The engine counts what records take, of all indexes together, and lets the oldest leave.
    let lane_max = (settings.window_bytes_max / timeline::RECORD_BYTES).max(1);
    let sizes = store.lane_sizes()?;
    loading.begin(sizes.iter().map(|size| (*size).min(lane_max as u64)).sum());
    // Before the first slice: every change after it is applied again.
    let head = store.head()?;
    let mut timelines = Timelines::new(settings.clone(), head.max(0).cast_unsigned());
    let mut place = Some(LoadPlace::START);
    while let Some(from) = place {
        if enough() {
            return Ok(None);
        }
        place = load_slice(&mut timelines, routes, store, (from, lane_max), loading)?;
        // What left the window for newer records of another index gives its memory back.
        while timelines.step(0, WORK) {}
    }
    timelines.begin(head.max(0).cast_unsigned());
    timelines.end(); // what was loaded is whole, also if no change follows
    Ok(Some(timelines))
}

/// Takes one slice in; returns where the next begins. An index ends early where the window is full
/// of later records.
fn load_slice(
    timelines: &mut Timelines,
    routes: &Routes,
    store: &dyn Outbox,
    (from, lane_max): (LoadPlace, usize),
    loading: &Loading,
) -> Result<Option<LoadPlace>, StoreError> {
    let (mut wrong, mut records, mut left_out) = (None, 0, None);
    let next = store.load(from, lane_max, &mut |loaded| match loaded {
        Loaded::Hidden { key: account } => match key(account) {
            Ok(account) => timelines.account(account, true),
            Err(error) => wrong = Some(error),
        },
        Loaded::Record {
            lane,
            record,
            time_us,
            uri,
            author,
            keys,
        } => {
            records += 1;
            let record = match routes.is_merged(lane) {
                true => group(record),
                false => record,
            };
            let mut is_below = true;
            for (feed, target) in routes.targets(lane) {
                match insert(timelines, feed, target, record, time_us, uri, author, keys) {
                    Ok(inserted) => is_below &= inserted == Inserted::Below,
                    Err(error) => wrong = Some(error),
                }
            }
            let is_left_out = is_below && timelines.is_window_full();
            left_out = is_left_out.then_some((lane, time_us));
        }
        Loaded::LaneEnd { lane, floor_us } => {
            for (feed, target) in routes.targets(lane) {
                timelines.loaded(feed, target, floor_us);
            }
        }
    })?;
    loading.add(records);
    if let Some(error) = wrong {
        return Err(error);
    }
    match (next, left_out) {
        (Some(LoadPlace::Lane { at, visited, .. }), Some((lane, time_us))) if visited > 0 => {
            for (feed, target) in routes.targets(lane) {
                timelines.loaded(feed, target, Some(time_us));
            }
            Ok(Some(LoadPlace::lane(at + 1)))
        }
        (next, _) => Ok(next),
    }
}

#[allow(clippy::too_many_arguments)] // one record, spelled out
pub(super) fn insert(
    timelines: &mut Timelines,
    feed: usize,
    target: usize,
    record: i64,
    time_us: Micros,
    uri: &str,
    author: i64,
    keys: &[i64],
) -> Result<Inserted, StoreError> {
    let keys: Vec<KeyId> = keys
        .iter()
        .map(|number| key(*number))
        .collect::<Result<_, _>>()?;
    Ok(timelines.insert(
        feed,
        target,
        NewRecord {
            id: RecordId(record.cast_unsigned()),
            time_us,
            uri,
            author: key(author)?,
            keys: &keys,
        },
    ))
}

/// The id of the group that begins with a record.
pub(super) fn group(record: i64) -> i64 {
    record | GROUP
}

pub(super) fn key(number: i64) -> Result<KeyId, StoreError> {
    if !(0..=KEY_MAX).contains(&number) {
        return Err(StoreError::Broken(format!(
            "key number {number} is beyond what timelines can hold"
        )));
    }
    Ok(KeyId(number as u32))
}

pub(super) fn key_list(numbers: &[i64]) -> Result<KeyList, StoreError> {
    let keys: Vec<KeyId> = numbers
        .iter()
        .map(|number| key(*number))
        .collect::<Result<_, _>>()?;
    Ok(KeyList::new(keys))
}
