//! An engine for a configuration, loaded from one snapshot of the store.

use std::collections::HashSet;

use timeline::{FeedSpec, KeyId, NewRecord, RecordId, Settings, TargetSpec, Timelines};

use super::{Routes, State, group, key};
use crate::clock::Micros;
use crate::config;
use crate::store::{Loaded, Outbox, Plan, StoreError};

/// What the engine is told of the configuration.
pub(super) fn engine_settings(settings: &config::Timelines, plan: &Plan) -> Settings {
    let bytes = settings.memory_mib << 20;
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
        window_bytes_max: bytes / 4,
        reader_bytes_max: bytes / 4 * 3,
        ..Settings::default()
    }
}

/// A fresh engine, loaded from one snapshot of the store.
pub(super) fn load(
    settings: &Settings,
    routes: &Routes,
    store: &dyn Outbox,
) -> Result<State, StoreError> {
    let lanes: usize = settings.feeds.iter().map(|feed| feed.targets.len()).sum();
    let lane_max = (settings.window_bytes_max / timeline::RECORD_BYTES / lanes.max(1)).max(1);
    // The position is known only after the visit; nothing reads the engine before that.
    let head = store.head()?;
    let mut timelines = Timelines::new(settings.clone(), head.max(0).cast_unsigned());
    let mut hidden = HashSet::new();
    let mut wrong = None;
    let position = store.load(lane_max, &mut |loaded| match loaded {
        Loaded::Hidden { key: account } => {
            hidden.insert(account);
            match key(account) {
                Ok(account) => timelines.account(account, true),
                Err(error) => wrong = Some(error),
            }
        }
        Loaded::Record {
            lane,
            record,
            time_us,
            uri,
            author,
            keys,
        } => {
            let record = match routes.merged.contains(&lane) {
                true => group(record),
                false => record,
            };
            for (feed, target) in routes.lanes.get(&lane).into_iter().flatten() {
                if let Err(error) = insert(
                    &mut timelines,
                    *feed,
                    *target,
                    record,
                    time_us,
                    uri,
                    author,
                    keys,
                ) {
                    wrong = Some(error);
                }
            }
        }
        Loaded::LaneEnd { lane, floor_us } => {
            for (feed, target) in routes.lanes.get(&lane).into_iter().flatten() {
                timelines.loaded(*feed, *target, floor_us);
            }
        }
    })?;
    timelines.begin(position.max(0).cast_unsigned());
    match wrong {
        Some(error) => Err(error),
        None => Ok(State { timelines, hidden }),
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
) -> Result<(), StoreError> {
    let keys: Vec<KeyId> = keys
        .iter()
        .map(|number| key(*number))
        .collect::<Result<_, _>>()?;
    timelines.insert(
        feed,
        target,
        NewRecord {
            id: RecordId(record.cast_unsigned()),
            time_us,
            uri,
            author: key(author)?,
            keys: &keys,
        },
    );
    Ok(())
}
