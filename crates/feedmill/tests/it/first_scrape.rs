//! Every declared metric is in the first scrape of a process: a rate needs a
//! first sample, and an alert must not wait for the first failure.

use std::collections::BTreeSet;

use crate::app::App;

/// Those whose labels only a configuration can name.
const BY_CONFIGURATION: [&str; 7] = [
    "feedmill_clock_offset_seconds",
    "feedmill_firehose_events_processed_total",
    "feedmill_firehose_validation_failures_total",
    "feedmill_log_behind_positions",
    "feedmill_log_position",
    "feedmill_source_connected",
    "feedmill_source_connections_total",
];

const MUCH: &str = r#"namespace = "com.example"
[queues.slow]
priority = "low"
[collections.post]
collection = "com.example.post"
validate = false
queue = "slow"
[[source]]
name = "relay"
firehose = "ws://127.0.0.1:9"
[[source]]
name = "peer"
log = "http://127.0.0.1:9/log/river"
"#;

/// The declared metrics that the first scrape of a process with this configuration lacks.
fn missing(config: &str) -> BTreeSet<&'static str> {
    let app = App::start(config);
    let (_, _, text) = app.tagged("/metrics", None);
    let of_feedmill = feedmill::metrics::ALL.iter().map(|(name, _)| *name);
    let of_the_log = replicate::metrics::ALL.iter().map(|(name, _, _)| *name);
    let shown = |name: &str| {
        text.lines().any(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{', '_']))
        })
    };
    let all = of_feedmill.chain(of_the_log);
    all.filter(|name| !shown(name)).collect()
}

#[test]
fn every_series_of_a_process_exists_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.db");
    let log = format!("[log]\nfile = {file:?}\npublish = \"river\"\n");
    let lacks = missing(&format!("{MUCH}{log}"));
    assert!(lacks.is_empty(), "status::gauges::begin lacks {lacks:?}");
}

#[test]
fn a_process_without_sources_lacks_only_what_they_would_name() {
    let lacks = missing("namespace = \"com.example\"\n");
    let expected = BTreeSet::from(BY_CONFIGURATION);
    assert_eq!(lacks, expected, "status::gauges::begin makes each series");
}
