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

/// The text of the first scrape of a process with this configuration.
fn scraped(config: &str) -> String {
    App::start(config).tagged("/metrics", None).2
}

/// The declared metrics that the first scrape of a process with this configuration lacks.
fn missing(config: &str) -> BTreeSet<&'static str> {
    let text = scraped(config);
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

/// Who reads in the table of limits where something ends must be able to see how near it is.
#[test]
fn every_metric_in_the_table_of_limits_exists_from_the_start() {
    let pages = include_str!("../../../../docs/operations.md");
    let (_, table) = pages.split_once("## What may be in memory").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let named = table.lines().filter_map(|line| {
        let cell = line.trim_end_matches([' ', '|']).rsplit('|').next()?;
        cell.trim().strip_prefix('`')?.strip_suffix('`')
    });
    let named: Vec<&str> = named.filter(|name| name.starts_with("feedmill_")).collect();
    assert!(named.len() >= 12, "{named:?}");
    let text = scraped("namespace = \"com.example\"\n[log]\nfile = \"log.db\"\n");
    let shown = |name: &&&str| text.lines().any(|line| line.starts_with(**name));
    let lacks: Vec<&&str> = named.iter().filter(|name| !shown(name)).collect();
    assert!(lacks.is_empty(), "{lacks:?} of {text}");
}
