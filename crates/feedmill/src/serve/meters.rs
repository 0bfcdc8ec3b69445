//! What is counted of requests, with the names made once.
//!
//! In:    a path, a status and the time it took.
//! Out:   metrics.
//! Never: a name that a stranger chose; a name made anew for each request.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::StatusCode;
use metrics::{Counter, Histogram, counter, histogram};

use crate::metrics as names;

/// The metrics of one label.
struct Meter {
    label: String,
    seconds: Histogram,
    ok: Counter,
}

impl Meter {
    fn new(label: &str) -> Self {
        let named = label.to_owned();
        Self {
            seconds: histogram!(names::REQUEST_SECONDS, "method" => named.clone()),
            ok: counter!(names::REQUESTS, "method" => named.clone(), "status" => "200"),
            label: named,
        }
    }

    fn count(&self, status: StatusCode, took: Duration) {
        self.seconds.record(took.as_secs_f64());
        if status == StatusCode::OK {
            self.ok.increment(1);
        } else {
            let (method, status) = (self.label.clone(), status.as_u16().to_string());
            counter!(names::REQUESTS, "method" => method, "status" => status).increment(1);
        }
    }
}

/// The metrics of all requests.
pub(super) struct Meters {
    by_path: HashMap<String, Meter>,
    pub(super) from_memory: Counter,
    pub(super) from_store: Counter,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

impl Meters {
    /// Meters for methods, each of which is counted under its own name.
    pub(super) fn new<'a>(methods: impl Iterator<Item = &'a str>) -> Self {
        let by_path = methods.map(|method| (format!("/xrpc/{method}"), Meter::new(method)));
        Self {
            by_path: by_path.collect(),
            from_memory: counter!(names::PAGES, "from" => "memory"),
            from_store: counter!(names::PAGES, "from" => "store"),
        }
    }

    /// Counts a request; `label` names it where its path is not one of the methods.
    pub(super) fn count(
        &self,
        path: &str,
        label: impl FnOnce(&str) -> String,
        status: StatusCode,
        took: Duration,
    ) {
        match self.by_path.get(path) {
            Some(meter) => meter.count(status, took),
            None => Meter::new(&label(path)).count(status, took),
        }
    }
}
