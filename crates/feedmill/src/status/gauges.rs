//! The numbers as metrics, computed when somebody scrapes.
//!
//! In:    facts and the clock.
//! Out:   the text of `/metrics`; every series of it from the first scrape on.
//! Never: a wait for the store; a gauge that only a working stage sets.

use metrics::{Counter, Gauge, counter, gauge, histogram};
use parking_lot::Mutex;
use replicate::metrics as log;

use super::{Measured, Status};
use crate::clock::Micros;
use crate::condition::{self, Condition};
use crate::config::Config;
use crate::config::queue::DEFAULT;
use crate::config::settle::STAGES;
use crate::metrics as names;
use crate::store::Writing;

/// One process scrapes itself once at a time, so that all gauges are of one moment.
static SCRAPE: Mutex<()> = Mutex::new(());

/// Counters with one label, and all its values.
const FIXED: &[(&str, &str, &[&str])] = &[
    (
        names::UNITS,
        "outcome",
        &[
            "applied",
            "repeated",
            "superseded",
            "filtered",
            "pending",
            "parked",
            "held",
            "dead",
        ],
    ),
    (
        names::SETTLED,
        "fate",
        &["applied", "repeated", "superseded", "buried"],
    ),
    (
        names::WOKEN,
        "fate",
        &["applied", "repeated", "superseded", "buried", "parked"],
    ),
    (names::RESYNCS, "result", &["ok", "failed", "later"]),
    (names::SIGNATURES, "result", &["passed", "doubted"]),
    (names::BACKFILL, "state", &["listed", "adopted", "put-off"]),
    (names::LABELS, "result", &["kept", "refused"]),
    (
        names::LIMITED,
        "by",
        &[
            "address",
            "account",
            "requests",
            "address-requests",
            "reads",
            "writes",
            "handles",
            "connections",
            "idle-connections",
            "stall",
            "listeners",
            "address-listeners",
            "unknown-listeners",
        ],
    ),
    (names::PAGES, "from", &["memory", "store"]),
    (names::RECORD_CACHE, "result", &["hit", "miss"]),
    (names::DELIVERIES, "how", &["pushed", "pulled"]),
    (
        names::ANONYMOUS,
        "result",
        &["admitted", "refused", "invented", "unanswered"],
    ),
    (names::FETCH_BYTES, "cause", CAUSES),
    (names::BRANCH_FAILURES, "branch", &["search", "log"]),
    (names::BRANCH_REBUILDS, "branch", &["search", "log"]),
    (names::DERIVED_REBUILDS, "file", &["search", "labels"]),
    (names::STORE_COMMITS, "sync", &["full", "normal"]),
    (
        names::DEAD_CLOSED,
        "cause",
        &["deleted", "account", "newer", "age", "size"],
    ),
];
/// Why hosts are asked.
const CAUSES: &[&str] = &[
    "repair",
    "reader",
    "list",
    "identity",
    "token",
    "handle",
    "notify",
    "lexicon",
    "label",
    "alert",
    "dictionary",
    "command",
];
/// Gauges with one label, and all its values.
const LABELED: &[(&str, &str, &[&str])] = &[
    (
        names::TIMELINES,
        "kind",
        &[
            "readers",
            "entries",
            "records",
            "fanouts",
            "joining",
            "merged_keys",
        ],
    ),
    (
        names::IDENTITY_BYTES,
        "kind",
        &["documents", "handles", "tokens"],
    ),
    (names::CACHE_BYTES, "cache", &["records", "texts", "window"]),
    (
        names::QUEUE_BYTES,
        "queue",
        &[
            "intake",
            "listeners",
            "answers",
            "uploads",
            "pending",
            "parked",
            "held",
            "outbox",
        ],
    ),
    (names::STORE_WAITING, "for", &["reads", "writes"]),
];
/// How a request to a host ends.
const FETCH_RESULTS: [&str; 7] = [
    "ok",
    "failed",
    "slow",
    "large",
    "later",
    "forbidden",
    "refused",
];

impl Status {
    /// The text of `/metrics` at `now_us`.
    pub fn scrape(&self, now_us: Micros, writing: &Writing) -> String {
        let _one = SCRAPE.lock();
        self.set_conditions(now_us, writing);
        self.set_ingestion(now_us);
        self.set_measured(now_us, &self.measured());
        let age_us = writing.waiting_since_us.map_or(0, |since| now_us - since);
        gauge!(names::COMMIT_AGE).set(seconds(age_us));
        names::recorder().render()
    }

    fn set_conditions(&self, now_us: Micros, writing: &Writing) {
        let problems = self.problems(now_us, writing);
        for one in Condition::ALL {
            let holds = problems.iter().any(|problem| problem.condition == *one);
            gauge!(names::CONDITION, "condition" => one.code()).set(f64::from(u8::from(holds)));
        }
        let ready = condition::is_ready(&problems);
        gauge!(names::READY).set(f64::from(u8::from(ready)));
        gauge!(names::STANDBY).set(0.0); // it has started
    }

    fn set_ingestion(&self, now_us: Micros) {
        let ingestion = self.ingestion(now_us);
        gauge!(names::LAG).set(seconds(ingestion.lag_us()));
        gauge!(names::QUEUE, "queue" => "intake").set(ingestion.pending() as f64);
        for source in &ingestion.sources {
            let connected = f64::from(u8::from(source.connected));
            gauge!(names::SOURCE_CONNECTED, "source" => source.name.clone()).set(connected);
            let off_us = source.clock_offset_us.unwrap_or(0);
            gauge!(names::CLOCK_OFFSET, "source" => source.name.clone()).set(off_us as f64 / 1e6);
        }
    }

    fn set_measured(&self, now_us: Micros, measured: &Measured) {
        let age_us = now_us - measured.at_us.unwrap_or(self.started_us);
        gauge!(names::MEASURED_AGE).set(seconds(age_us));
        gauge!(names::DEAD).set(measured.waiting.dead as f64);
        gauge!(names::DEAD_BYTES).set(measured.waiting.dead_bytes as f64);
        gauge!(names::PARKED).set(measured.waiting.parked as f64);
        gauge!(names::UNMERGED).set(measured.unmerged as f64);
        let waiting = &measured.waiting;
        for (queue, bytes) in [
            ("pending", waiting.pending_bytes),
            ("parked", waiting.parked_bytes),
            ("held", waiting.held_bytes),
            ("outbox", waiting.outbox_bytes),
        ] {
            gauge!(names::QUEUE_BYTES, "queue" => queue).set(bytes as f64);
        }
        if let Some(free) = measured.free_bytes {
            gauge!(names::DISK_FREE).set(free as f64);
        }
        for depth in &measured.queues {
            let age_us = depth.since_us.map_or(0, |since_us| now_us - since_us);
            gauge!(names::QUEUE, "queue" => depth.queue.clone()).set(depth.waiting as f64);
            gauge!(names::QUEUE_AGE, "queue" => depth.queue.clone()).set(seconds(age_us));
        }
    }
}

fn seconds(us: Micros) -> f64 {
    us.max(0) as f64 / 1e6
}

/// Makes every series that a configuration implies, with zero: a rate needs a first sample, and an
/// alert must not wait for the first failure.
pub fn begin(config: &Config) {
    names::recorder();
    for (name, label, values) in FIXED {
        for value in *values {
            zero(counter!(*name, *label => *value));
        }
    }
    for cause in CAUSES {
        for result in FETCH_RESULTS {
            zero(counter!(names::FETCHES, "cause" => *cause, "result" => result));
        }
    }
    // A process that starts or waits has these too: their absence raises alerts.
    for one in Condition::ALL {
        nothing(gauge!(names::CONDITION, "condition" => one.code()));
    }
    for name in [names::FILTERED, names::LISTENERS_SLOW, names::CHARGED] {
        zero(counter!(name));
    }
    for name in [
        names::READY,
        names::STANDBY,
        names::LAG,
        names::COMMIT_AGE,
        names::MEASURED_AGE,
        names::DEAD,
        names::DEAD_BYTES,
        names::PARKED,
        names::UNMERGED,
        names::LISTENERS,
        names::HTTP_CONNECTIONS,
        names::DISK_FREE,
        names::REPO_BYTES,
        names::TIMELINE_BYTES,
        names::TIMELINES_BEHIND,
    ] {
        nothing(gauge!(name));
    }
    for (name, label, values) in LABELED {
        for value in *values {
            nothing(gauge!(*name, *label => *value));
        }
    }
    for file in ["store", "search", "labels"] {
        nothing(gauge!(names::WAL_BYTES, "file" => file));
        for result in ["done", "busy", "failed"] {
            zero(counter!(names::WAL_TRUNCATIONS, "file" => file, "result" => result));
        }
    }
    for branch in ["search", "log"] {
        nothing(gauge!(names::BRANCH_BEHIND, "branch" => branch));
    }
    for alert in ["dead_letters", "dead_letters_per_hour"] {
        for result in ["raised", "sent", "failed"] {
            zero(counter!(names::ALERTS, "alert" => alert, "result" => result));
        }
    }
    zero(counter!(names::REQUESTS, "method" => "other", "status" => "200"));
    // Made, a histogram shows a count of zero.
    drop(histogram!(names::REQUEST_SECONDS, "method" => "other"));
    drop(histogram!(names::COMMIT_SECONDS));
    begin_configured(config);
    begin_log();
}

/// Series whose labels the configuration names.
fn begin_configured(config: &Config) {
    for collection in config.collections.values() {
        let nsid = &collection.collection;
        zero(counter!(names::PROCESSED, "collection" => nsid.clone()));
        for stage in STAGES {
            zero(counter!(names::REFUSED, "stage" => stage, "collection" => nsid.clone()));
        }
    }
    for source in &config.sources {
        let name = source.name();
        for result in ["ok", "refused"] {
            zero(counter!(names::CONNECTIONS, "source" => name.clone(), "result" => result));
        }
        nothing(gauge!(names::SOURCE_CONNECTED, "source" => name.clone()));
        nothing(gauge!(names::CLOCK_OFFSET, "source" => name));
        if let Some((_, space)) = source.log_space() {
            nothing(gauge!(names::LOG_BEHIND, "space" => space));
        }
    }
    if let Some(space) = &config.log.publish {
        nothing(gauge!(log::LOG_POSITION, "space" => space.clone()));
    }
    let queues = config.queues.keys().map(String::as_str).chain([DEFAULT]);
    for queue in queues.map(str::to_owned) {
        zero(counter!(names::QUEUE_DONE, "queue" => queue.clone()));
        zero(counter!(names::QUEUE_SPILLED, "queue" => queue.clone()));
        nothing(gauge!(names::QUEUE, "queue" => queue.clone()));
        nothing(gauge!(names::QUEUE_AGE, "queue" => queue));
    }
}

/// Series of the log.
fn begin_log() {
    for by in ["peer", "river", "stream"] {
        zero(counter!(log::LOG_BLOCKS, "by" => by));
    }
    for kind in ["query", "subscribe", "append", "list"] {
        zero(counter!(log::LOG_REQUESTS, "kind" => kind, "result" => "ok"));
    }
    for error in ["unauthorized", "notAllowed", "full", "spaceBytes"] {
        zero(counter!(log::LOG_REFUSALS, "error" => error));
    }
    for name in [
        log::LOG_READ,
        log::LOG_CONFLICTS,
        log::LOG_COMMITS,
        log::LOG_EVICTED,
        log::LOG_REISSUED,
    ] {
        zero(counter!(name));
    }
    for name in [
        log::LOG_CONNECTIONS,
        log::LOG_WAITING,
        log::LOG_ASIDE,
        log::LOG_SPACES,
        log::LOG_SUBSCRIPTIONS,
        log::LOG_WAL_BYTES,
    ] {
        nothing(gauge!(name));
    }
}

fn zero(counter: Counter) {
    counter.increment(0);
}

fn nothing(gauge: Gauge) {
    gauge.increment(0.0);
}
