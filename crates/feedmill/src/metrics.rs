//! Every metric by name, declared once. docs/operations.md explains each.

use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;

/// Seconds between now and the time of the last processed event.
pub const LAG: &str = "feedmill_firehose_cursor_lag_seconds";
/// Units processed, by collection.
pub const PROCESSED: &str = "feedmill_firehose_events_processed_total";
/// Units not of interest.
pub const FILTERED: &str = "feedmill_firehose_events_filtered_total";
/// Records refused, by stage and collection.
pub const REFUSED: &str = "feedmill_firehose_validation_failures_total";
/// Events waiting, by queue.
pub const QUEUE: &str = "feedmill_firehose_queue_depth";
/// Seconds that the first record of a queue has waited in the store.
pub const QUEUE_AGE: &str = "feedmill_firehose_queue_age_seconds";
/// Records worked on, by queue.
pub const QUEUE_DONE: &str = "feedmill_firehose_queue_done_total";
/// Records put off into the store, by queue.
pub const QUEUE_SPILLED: &str = "feedmill_firehose_queue_spilled_total";
/// Dead letters kept.
pub const DEAD: &str = "feedmill_dead_letters";
/// Records that wait for another.
pub const PARKED: &str = "feedmill_parked_records";
/// Parked records tried again, by what became of them.
pub const SETTLED: &str = "feedmill_settled_total";
/// Alerts, by alert and result.
pub const ALERTS: &str = "feedmill_alerts_total";
/// Units by what became of them.
pub const UNITS: &str = "feedmill_units_total";
/// Connections made to sources, by source and result.
pub const CONNECTIONS: &str = "feedmill_source_connections_total";
/// Repositories fetched to repair a gap, by result.
pub const RESYNCS: &str = "feedmill_resyncs_total";
/// Frames that passed the notary, by result.
pub const SIGNATURES: &str = "feedmill_signatures_total";
/// Accounts found in lists, by what they were.
pub const BACKFILL: &str = "feedmill_backfill_accounts_total";
/// Seconds a store transaction took.
pub const COMMIT_SECONDS: &str = "feedmill_store_commit_seconds";
/// Requests answered, by method and status.
pub const REQUESTS: &str = "feedmill_http_requests_total";
/// Seconds a request took, by method.
pub const REQUEST_SECONDS: &str = "feedmill_http_request_duration_seconds";
/// Connections of clients that are open.
pub const HTTP_CONNECTIONS: &str = "feedmill_http_connections";
/// Requests and connections that met a limit, by limit.
pub const LIMITED: &str = "feedmill_http_limited_total";
/// Records of feed pages looked for in memory, by result.
pub const RECORD_CACHE: &str = "feedmill_record_cache_total";
/// Labels heard, by result.
pub const LABELS: &str = "feedmill_labels_total";
/// Feed pages answered, by where they came from.
pub const PAGES: &str = "feedmill_feed_pages_total";
/// What is in memory for feeds, by kind.
pub const TIMELINES: &str = "feedmill_timelines";
/// Bytes of memory that readers and their timelines take.
pub const TIMELINE_BYTES: &str = "feedmill_timeline_bytes";
/// Deliveries to timelines in memory, by how they were made.
pub const DELIVERIES: &str = "feedmill_deliveries_total";
/// Changes that the timelines have still to draw.
pub const TIMELINES_BEHIND: &str = "feedmill_timelines_behind_changes";
/// Blocks added to the log, by how they came.
pub const LOG_BLOCKS: &str = "feedmill_log_blocks_total";
/// Messages of the log answered, by kind and result.
pub const LOG_REQUESTS: &str = "feedmill_log_requests_total";
/// Blocks given out in pages.
pub const LOG_READ: &str = "feedmill_log_blocks_read_total";
/// Blocks refused because another has their key.
pub const LOG_CONFLICTS: &str = "feedmill_log_conflicts_total";
/// Blocks let go by retention.
pub const LOG_EVICTED: &str = "feedmill_log_blocks_evicted_total";
/// WebSocket connections to the log, open now.
pub const LOG_CONNECTIONS: &str = "feedmill_log_connections";
/// Spaces of the log.
pub const LOG_SPACES: &str = "feedmill_log_spaces";
/// Live subscriptions, in all spaces.
pub const LOG_SUBSCRIPTIONS: &str = "feedmill_log_subscriptions";
/// Highest position, by space.
pub const LOG_POSITION: &str = "feedmill_log_position";
/// Positions that a replica has still to pull, by space.
pub const LOG_BEHIND: &str = "feedmill_log_behind_positions";
/// Changes a branch has still to draw, by branch.
pub const BRANCH_BEHIND: &str = "feedmill_branch_behind_changes";
/// Times a branch could not go on, by branch.
pub const BRANCH_FAILURES: &str = "feedmill_branch_failures_total";
/// Times a branch started anew from the records, by branch.
pub const BRANCH_REBUILDS: &str = "feedmill_branch_rebuilds_total";

/// Readers who listen to their feeds.
pub const LISTENERS: &str = "feedmill_feed_listeners";
/// Readers let go because they took too long.
pub const LISTENERS_SLOW: &str = "feedmill_feed_listeners_slow_total";

/// Name and meaning of each, for the documentation test.
pub const ALL: &[(&str, &str)] = &[
    (
        LAG,
        "seconds between now and the time of the last processed event",
    ),
    (PROCESSED, "operations processed, by collection"),
    (FILTERED, "operations that were not of interest"),
    (REFUSED, "records refused, by stage and collection"),
    (QUEUE, "events waiting, by queue"),
    (
        QUEUE_AGE,
        "seconds that the first record of a queue has waited in the store",
    ),
    (QUEUE_DONE, "records worked on, by queue"),
    (QUEUE_SPILLED, "records put off into the store, by queue"),
    (DEAD, "dead letters kept"),
    (PARKED, "records that wait for another"),
    (
        SETTLED,
        "parked records tried again, by what became of them",
    ),
    (ALERTS, "alerts, by alert and result"),
    (UNITS, "units of work by what became of them"),
    (CONNECTIONS, "connections to sources, by source and result"),
    (RESYNCS, "repositories fetched to repair a gap, by result"),
    (SIGNATURES, "frames that passed the notary, by result"),
    (BACKFILL, "accounts found in lists, by what they were"),
    (COMMIT_SECONDS, "seconds a store transaction took"),
    (REQUESTS, "requests answered, by method and status"),
    (REQUEST_SECONDS, "seconds a request took, by method"),
    (LISTENERS, "readers who listen to their feeds"),
    (
        LISTENERS_SLOW,
        "listening readers let go because they took too long",
    ),
    (HTTP_CONNECTIONS, "connections of clients that are open"),
    (
        LIMITED,
        "requests and connections that met a limit, by limit",
    ),
    (LABELS, "labels heard, by result"),
    (
        RECORD_CACHE,
        "records of feed pages looked for in memory, by result",
    ),
    (PAGES, "feed pages answered, by where they came from"),
    (TIMELINES, "what is in memory for feeds, by kind"),
    (
        TIMELINE_BYTES,
        "bytes of memory that readers and their timelines take",
    ),
    (
        DELIVERIES,
        "deliveries to timelines in memory, by how they were made",
    ),
    (
        TIMELINES_BEHIND,
        "changes that the timelines have still to draw",
    ),
    (LOG_BLOCKS, "blocks added to the log, by how they came"),
    (
        LOG_REQUESTS,
        "messages of the log answered, by kind and result",
    ),
    (LOG_READ, "blocks given out in pages"),
    (
        LOG_CONFLICTS,
        "blocks refused because another has their key",
    ),
    (LOG_EVICTED, "blocks let go by retention"),
    (
        LOG_CONNECTIONS,
        "WebSocket connections to the log, open now",
    ),
    (LOG_SPACES, "spaces of the log"),
    (LOG_SUBSCRIPTIONS, "live subscriptions, in all spaces"),
    (LOG_POSITION, "highest position, by space"),
    (
        LOG_BEHIND,
        "positions that a log source has still to read, by space",
    ),
    (
        BRANCH_BEHIND,
        "changes a branch has still to draw, by branch",
    ),
    (BRANCH_FAILURES, "times a branch could not go on, by branch"),
    (
        BRANCH_REBUILDS,
        "times a branch started anew from the records, by branch",
    ),
];

/// The process's one recorder, installed on first use.
pub fn recorder() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        // A recorder is there already only if a test installed its own.
        drop(metrics::set_global_recorder(recorder));
        for (name, meaning) in ALL {
            match *name {
                LAG | QUEUE | QUEUE_AGE | DEAD | PARKED | LISTENERS | BRANCH_BEHIND
                | LOG_CONNECTIONS | HTTP_CONNECTIONS | LOG_SPACES | LOG_SUBSCRIPTIONS
                | LOG_POSITION | LOG_BEHIND | TIMELINES | TIMELINE_BYTES | TIMELINES_BEHIND => {
                    describe_gauge!(*name, *meaning)
                }
                COMMIT_SECONDS | REQUEST_SECONDS => describe_histogram!(*name, *meaning),
                _ => describe_counter!(*name, *meaning),
            }
        }
        handle
    })
}
