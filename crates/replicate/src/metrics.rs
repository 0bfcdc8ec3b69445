//! Every metric of the log by name, declared once. docs/operations.md explains each.

/// Blocks added to the log, by how they came.
pub const LOG_BLOCKS: &str = "feedmill_log_blocks_total";
/// Messages of the log answered, by kind and result.
pub const LOG_REQUESTS: &str = "feedmill_log_requests_total";
/// Blocks given out in pages.
pub const LOG_READ: &str = "feedmill_log_blocks_read_total";
/// Blocks refused because another has their key.
pub const LOG_CONFLICTS: &str = "feedmill_log_conflicts_total";
/// Blocks of replicas that were written again because another block has their key.
pub const LOG_REISSUED: &str = "feedmill_log_blocks_reissued_total";
/// Blocks of replicas that their authorities do not have and will not take.
pub const LOG_ASIDE: &str = "feedmill_log_blocks_aside";
/// Requests of replicas that their authorities refuse as a whole, by error.
pub const LOG_REFUSALS: &str = "feedmill_log_replica_refusals_total";
/// Transactions that made appends durable.
pub const LOG_COMMITS: &str = "feedmill_log_commits_total";
/// Appends that wait for a transaction.
pub const LOG_WAITING: &str = "feedmill_log_appends_waiting";
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

/// Bytes of the log's write-ahead log.
pub const LOG_WAL_BYTES: &str = "feedmill_log_wal_bytes";

/// What a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Name, kind and meaning of each: the process describes them to its recorder.
pub const ALL: &[(&str, Kind, &str)] = &[
    (
        LOG_BLOCKS,
        Kind::Counter,
        "blocks added to the log, by how they came",
    ),
    (
        LOG_REQUESTS,
        Kind::Counter,
        "messages of the log answered, by kind and result",
    ),
    (LOG_READ, Kind::Counter, "blocks given out in pages"),
    (
        LOG_WAL_BYTES,
        Kind::Gauge,
        "bytes of the log's write-ahead log",
    ),
    (
        LOG_CONFLICTS,
        Kind::Counter,
        "blocks refused because another has their key",
    ),
    (
        LOG_REISSUED,
        Kind::Counter,
        "blocks of replicas written again because another has their key",
    ),
    (
        LOG_ASIDE,
        Kind::Gauge,
        "blocks of replicas that their authorities do not have and will not take",
    ),
    (
        LOG_REFUSALS,
        Kind::Counter,
        "requests of replicas that their authorities refuse as a whole, by error",
    ),
    (
        LOG_COMMITS,
        Kind::Counter,
        "transactions that made appends durable; each may hold many",
    ),
    (
        LOG_WAITING,
        Kind::Gauge,
        "appends that wait for a transaction",
    ),
    (LOG_EVICTED, Kind::Counter, "blocks let go by retention"),
    (
        LOG_CONNECTIONS,
        Kind::Gauge,
        "WebSocket connections to the log, open now",
    ),
    (LOG_SPACES, Kind::Gauge, "spaces of the log"),
    (
        LOG_SUBSCRIPTIONS,
        Kind::Gauge,
        "live subscriptions, in all spaces",
    ),
    (LOG_POSITION, Kind::Gauge, "highest position, by space"),
];
