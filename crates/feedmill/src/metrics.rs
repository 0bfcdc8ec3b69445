//! Every metric by name, declared once; those of the log are in `replicate::metrics`.
//! docs/operations.md explains each.

use metrics::{describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use replicate::metrics::Kind;
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
/// Bytes of dead letters kept.
pub const DEAD_BYTES: &str = "feedmill_dead_letter_bytes";
/// Dead letters closed without anybody's asking, by cause.
pub const DEAD_CLOSED: &str = "feedmill_dead_letters_closed_total";
/// Records of merged feeds that are entries of their own, because their thing has more than `thing_max`.
pub const UNMERGED: &str = "feedmill_unmerged_records";
/// Records that wait for another.
pub const PARKED: &str = "feedmill_parked_records";
/// Parked records tried again, by what became of them.
pub const SETTLED: &str = "feedmill_settled_total";
pub const WOKEN: &str = "feedmill_woken_total";
/// Alerts, by alert and result.
pub const ALERTS: &str = "feedmill_alerts_total";
/// 1 while a condition holds, by condition.
pub const CONDITION: &str = "feedmill_condition";
/// 1 while the process is ready.
pub const READY: &str = "feedmill_ready";
/// 1 while the process waits for another one that ingests.
pub const STANDBY: &str = "feedmill_standby";
/// 1 while a source is connected, by source.
pub const SOURCE_CONNECTED: &str = "feedmill_source_connected";
/// Our clock minus the events' own times, by source.
pub const CLOCK_OFFSET: &str = "feedmill_clock_offset_seconds";
/// Age of the oldest work that was handed to the store and is not durable.
pub const COMMIT_AGE: &str = "feedmill_store_commit_age_seconds";
/// Bytes free on the store's disk.
pub const DISK_FREE: &str = "feedmill_store_disk_free_bytes";
/// Age of the last measurement of the store.
pub const MEASURED_AGE: &str = "feedmill_measured_age_seconds";
/// Units by what became of them.
pub const UNITS: &str = "feedmill_units_total";
/// Connections made to sources, by source and result.
pub const CONNECTIONS: &str = "feedmill_source_connections_total";
/// Repositories fetched to repair a gap, by result.
pub const RESYNCS: &str = "feedmill_resyncs_total";
/// Requests to hosts that others named, by cause and result.
pub const FETCHES: &str = "feedmill_fetches_total";
/// Bytes of their answers, by cause.
pub const FETCH_BYTES: &str = "feedmill_fetched_bytes_total";
/// Bytes of fetched repositories in memory.
pub const REPO_BYTES: &str = "feedmill_repository_bytes";
/// Bytes of what is remembered of DID documents and handles, by kind.
pub const IDENTITY_BYTES: &str = "feedmill_identity_cache_bytes";
/// First reads that somebody asked for from elsewhere without a token, by result.
pub const ANONYMOUS: &str = "feedmill_anonymous_reads_total";
/// Frames that passed the notary, by result.
pub const SIGNATURES: &str = "feedmill_signatures_total";
/// Accounts found in lists, by what they were.
pub const BACKFILL: &str = "feedmill_backfill_accounts_total";
/// Times that a thread went to sleep until the outbox moves.
pub const WAITS: &str = "feedmill_outbox_waits_total";
/// Looks for what other processes wrote into the store.
pub const STORE_LOOKS: &str = "feedmill_store_looks_total";
/// Damaged files that were made anew, by file.
pub const DERIVED_REBUILDS: &str = "feedmill_derived_files_rebuilt_total";
/// Bytes of write-ahead logs, by file.
pub const WAL_BYTES: &str = "feedmill_store_wal_bytes";
/// Attempts to cut one back, by file and result.
pub const WAL_TRUNCATIONS: &str = "feedmill_store_wal_truncations_total";
/// Transactions of the store, by how they were synced.
pub const STORE_COMMITS: &str = "feedmill_store_commits_total";
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
/// Bytes of what is kept only so that it need not be made again, by cache.
pub const CACHE_BYTES: &str = "feedmill_cache_bytes";
/// Requests that wait for the store, by what for.
pub const STORE_WAITING: &str = "feedmill_store_waiting_requests";
/// Requests charged beside those that were made, for what they cost.
pub const CHARGED: &str = "feedmill_http_charged_total";
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
/// Positions that a replica has still to pull, by space.
pub const LOG_BEHIND: &str = "feedmill_log_behind_positions";
/// Changes a branch has still to draw, by branch.
pub const BRANCH_BEHIND: &str = "feedmill_branch_behind_changes";
/// Times a branch could not go on, by branch.
pub const BRANCH_FAILURES: &str = "feedmill_branch_failures_total";
/// Times a branch started anew from the records, by branch.
pub const BRANCH_REBUILDS: &str = "feedmill_branch_rebuilds_total";

/// Bytes waiting, by queue.
pub const QUEUE_BYTES: &str = "feedmill_queue_bytes";
/// Readers who listen to their feeds.
pub const LISTENERS: &str = "feedmill_feed_listeners";
/// Readers let go because they took too long.
pub const LISTENERS_SLOW: &str = "feedmill_feed_listeners_slow_total";

/// Name and meaning of each, for the documentation test.
pub const ALL: &[(&str, &str)] = &[
    (
        LAG,
        "seconds that the oldest event that is not durable yet is behind",
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
    (QUEUE_BYTES, "bytes waiting, by queue"),
    (DEAD, "dead letters kept"),
    (DEAD_BYTES, "bytes of dead letters kept"),
    (
        DEAD_CLOSED,
        "dead letters closed without anybody's asking, by cause",
    ),
    (
        UNMERGED,
        "records of merged feeds beyond thing_max, which are entries of their own",
    ),
    (PARKED, "records that wait for another"),
    (
        SETTLED,
        "parked records tried again, by what became of them",
    ),
    (
        WOKEN,
        "parked records tried because what they lack arrived, by what became of them",
    ),
    (ALERTS, "alerts, by alert and result"),
    (CONDITION, "1 while a condition holds, by condition"),
    (READY, "1 while the process is ready"),
    (
        STANDBY,
        "1 while another process ingests and this one waits",
    ),
    (SOURCE_CONNECTED, "1 while a source is connected, by source"),
    (
        CLOCK_OFFSET,
        "our clock minus the events' own times, by source",
    ),
    (
        COMMIT_AGE,
        "age of the oldest work that was handed to the store and is not durable",
    ),
    (DISK_FREE, "bytes free on the store's disk"),
    (MEASURED_AGE, "age of the last measurement of the store"),
    (
        UNITS,
        "units received, each once, by what became of them on arrival",
    ),
    (CONNECTIONS, "connections to sources, by source and result"),
    (RESYNCS, "repositories fetched to repair a gap, by result"),
    (
        FETCHES,
        "requests to hosts that others named, by cause and result",
    ),
    (FETCH_BYTES, "bytes of their answers, by cause"),
    (
        REPO_BYTES,
        "bytes of fetched repositories on disk and in memory, by place",
    ),
    (
        IDENTITY_BYTES,
        "bytes remembered of DID documents and handles, by kind",
    ),
    (
        ANONYMOUS,
        "first reads asked for from elsewhere without a token, by result",
    ),
    (SIGNATURES, "frames that passed the notary, by result"),
    (BACKFILL, "accounts found in lists, by what they were"),
    (WAITS, "times a thread went to sleep until the outbox moves"),
    (
        STORE_LOOKS,
        "looks for what other processes wrote into the store",
    ),
    (
        DERIVED_REBUILDS,
        "damaged files that were made anew, by file",
    ),
    (WAL_BYTES, "bytes of write-ahead logs, by file"),
    (
        WAL_TRUNCATIONS,
        "attempts to cut a write-ahead log back, by file and result",
    ),
    (
        STORE_COMMITS,
        "transactions of the store, by how they were synced",
    ),
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
    (
        STORE_WAITING,
        "requests that wait for the store, by what for",
    ),
    (
        CHARGED,
        "requests charged beside those that were made, for what they cost",
    ),
    (LABELS, "labels heard, by result"),
    (
        RECORD_CACHE,
        "records of feed pages looked for in memory, by result",
    ),
    (
        CACHE_BYTES,
        "bytes of what is kept so that it need not be made again, by cache",
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
                LAG | CONDITION | READY | STANDBY | SOURCE_CONNECTED | CLOCK_OFFSET
                | COMMIT_AGE | DISK_FREE | MEASURED_AGE | QUEUE | QUEUE_BYTES | STORE_WAITING
                | QUEUE_AGE | REPO_BYTES | IDENTITY_BYTES | CACHE_BYTES | DEAD | DEAD_BYTES
                | UNMERGED | PARKED | LISTENERS | BRANCH_BEHIND | HTTP_CONNECTIONS | LOG_BEHIND
                | TIMELINES | TIMELINE_BYTES | TIMELINES_BEHIND => {
                    describe_gauge!(*name, *meaning)
                }
                COMMIT_SECONDS | REQUEST_SECONDS => describe_histogram!(*name, *meaning),
                _ => describe_counter!(*name, *meaning),
            }
        }
        for (name, kind, meaning) in replicate::metrics::ALL {
            match kind {
                Kind::Counter => describe_counter!(*name, *meaning),
                Kind::Gauge => describe_gauge!(*name, *meaning),
            }
        }
        handle
    })
}
