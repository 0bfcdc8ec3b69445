//! What is counted of requests, with the names made once.
//!
//! In:    a request's path, its status and the time it took.
//! Out:   metrics.
//! Never: a name that a stranger chose; a name made anew for each request.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::StatusCode;
use metrics::{Counter, Histogram, counter, histogram};

use super::methods::Method;
use crate::metrics as names;

/// The metrics of one label.
pub(super) struct Meter {
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

    pub(super) fn count(&self, status: StatusCode, took: Duration) {
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
    /// Of paths that have parameters in them.
    templates: Vec<(String, Meter)>,
    /// Whatever nobody serves.
    other: Meter,
    pub(super) from_memory: Counter,
    pub(super) from_store: Counter,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

impl Meters {
    /// Meters for the table's methods, each of which is counted under its own name.
    pub(super) fn new(table: &[Method]) -> Self {
        let named = table.iter().map(|method| {
            let label = method.nsid.as_deref().unwrap_or(&method.path);
            (method.path.clone(), Meter::new(label))
        });
        let (templates, by_path): (Vec<_>, _) = named.partition(|(path, _)| path.contains('{'));
        Self {
            by_path: by_path.into_iter().collect(),
            templates,
            other: Meter::new("other"),
            from_memory: counter!(names::PAGES, "from" => "memory"),
            from_store: counter!(names::PAGES, "from" => "store"),
        }
    }

    /// The meter of a request.
    pub(super) fn of(&self, path: &str) -> &Meter {
        let found = self.by_path.get(path).or_else(|| {
            let templates = &mut self.templates.iter();
            let (_, meter) = templates.find(|(template, _)| fits(template, path))?;
            Some(meter)
        });
        found.unwrap_or(&self.other)
    }
}

/// Whether a path is one of a template with `{name}` for some of its parts.
fn fits(template: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let all = template.split('/').all(|wanted| {
        let part = parts.next();
        part.is_some_and(|part| part == wanted || wanted.starts_with('{'))
    });
    all && parts.next().is_none()
}
