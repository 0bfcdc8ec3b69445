//! Descriptors: how many files and connections the process may have open.
//!
//! In:    the limits of the system.
//! Out:   the soft limit raised to the hard one; as many connections as fit.
//!
//! The soft limit is 1024 on many systems, for the sake of programs that use
//! `select`. A thousand idle connections would use it up, and then neither the
//! store nor a source could open anything.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Descriptors kept for files, sources and requests of our own.
const KEPT: usize = 256;

/// Raises the soft limit to the hard one.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, limit = limit.current, "the limit of open files cannot be raised");
    }
}

/// As many connections as there may be, and as there are descriptors for.
pub(super) fn fitting(connections_max: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return connections_max;
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let fits = limit.saturating_sub(KEPT).max(limit / 2);
    if fits < connections_max {
        warn!(
            limit,
            connections_max,
            fits,
            "fewer connections are accepted than serve.connections_max; raise the limit of open files (LimitNOFILE)"
        );
    }
    connections_max.min(fits)
}
