//! A host that counts how it is asked.
//!
//! In:    requests for `com.atproto.sync.*` at the personal data server.
//! Out:   answers; beyond the limit a refusal that says when to come again.
//! Never: a refusal without a limit that the owner set.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Shared, lock};

/// How a host wants to be asked.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Requests answered before a pause.
    pub requests: u64,
    pub pause: Duration,
    /// Every answer says how many requests are left.
    pub tells: bool,
    /// How long an answer takes.
    pub takes: Duration,
}

/// How it was asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manners {
    pub answered: u64,
    pub refused: u64,
    /// Requests that came although the host had said to wait.
    pub rude: u64,
    /// The most requests at one time.
    pub at_once: u64,
}

#[derive(Debug, Default)]
pub(super) struct Guard {
    limit: Option<Limit>,
    pub(super) manners: Manners,
    closed_until: Option<Instant>,
    used: u64,
    under_way: u64,
}

impl Guard {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit: Some(limit),
            ..Self::default()
        }
    }

    /// Whether a request is answered, how many more will be, and after how long again.
    fn admit(&mut self, now: Instant) -> Option<(bool, u64, Duration)> {
        let limit = self.limit.clone()?;
        self.under_way += 1;
        self.manners.at_once = self.manners.at_once.max(self.under_way);
        match self.closed_until {
            Some(until) if now < until => {
                self.manners.rude += 1;
                return Some((false, 0, until - now));
            }
            Some(_) => (self.closed_until, self.used) = (None, 0),
            None => {}
        }
        let admitted = self.used < limit.requests;
        self.used += u64::from(admitted);
        let left = limit.requests - self.used;
        if !admitted || (left == 0 && limit.tells) {
            self.closed_until = Some(now + limit.pause);
        }
        Some((admitted, left, limit.pause))
    }
}

pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    if !path.contains("com.atproto.sync.") || path.ends_with("subscribeRepos") {
        return next.run(request).await;
    }
    let (limit, asked) = {
        let mut guard = lock(&shared.guard);
        (guard.limit.clone(), guard.admit(Instant::now()))
    };
    let (Some(limit), Some((admitted, left, rest))) = (limit, asked) else {
        return next.run(request).await;
    };
    tokio::time::sleep(limit.takes).await;
    let seconds = rest.as_secs_f64().ceil() as u64;
    let mut response = match admitted {
        true => next.run(request).await,
        false => {
            let wait = [("retry-after", seconds.to_string())];
            (StatusCode::TOO_MANY_REQUESTS, wait).into_response()
        }
    };
    if limit.tells {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let reset = now.map_or(0, |now| (now + rest).as_secs_f64().ceil() as u64);
        let told = [("ratelimit-remaining", left), ("ratelimit-reset", reset)];
        for (name, number) in told {
            let value = HeaderValue::from(number);
            response.headers_mut().insert(name, value);
        }
    }
    let mut guard = lock(&shared.guard);
    guard.under_way -= 1;
    guard.manners.answered += u64::from(admitted);
    guard.manners.refused += u64::from(!admitted);
    response
}
