//! `/admin/dlq/replay-all`: a replay of many dead letters, begun, watched and stopped.
//!
//! In:    a filter, with the operator's token.
//! Out:   how far the one job is.
//! Never: two jobs at once; a job that outlives its server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use parking_lot::Mutex;

use super::{FILTERS, admin, filter};
use crate::check::Checker;
use crate::clock::Clock;
use crate::dead::job::{self, Job, Progress};
use crate::serve::error::XrpcError;
use crate::serve::params::Params;
use crate::serve::{Answer, Server};
use crate::store::{LetterQuery, SharedStore};

/// The job that runs, or ran last.
#[derive(Debug, Default)]
pub struct Jobs(Mutex<Option<Arc<Job>>>);

impl Jobs {
    /// Begins a job on a thread of its own.
    fn begin(
        &self,
        store: SharedStore,
        checker: Arc<Checker>,
        clock: Clock,
        query: LetterQuery,
    ) -> Result<Progress, XrpcError> {
        let mut last = self.0.lock();
        let running = last
            .as_ref()
            .is_some_and(|job| job.progress().state == job::State::Running);
        if running {
            return Err(XrpcError::conflict(
                "a replay is running; watch it with GET, stop it with DELETE",
            ));
        }
        let job = Arc::new(Job::new(&clock));
        let ours = Arc::clone(&job);
        let begun = std::thread::Builder::new()
            .name("replay-all".into())
            .spawn(move || {
                drop(ours.run(&*store, &checker, &clock, &query, &mut |_| {}));
            });
        if begun.is_err() {
            return Err(XrpcError::busy("no thread for a replay; try again"));
        }
        let progress = job.progress();
        *last = Some(job);
        Ok(progress)
    }

    fn last(&self) -> Result<Arc<Job>, XrpcError> {
        let last = self.0.lock().clone();
        last.ok_or_else(|| XrpcError::not_found("no replay was begun since this server started"))
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        if let Some(job) = self.0.lock().take() {
            job.stop();
        }
    }
}

fn shown(progress: &Progress) -> Answer {
    Answer::json(progress.json().to_string())
}

/// `POST`: begins a job.
pub(in crate::serve) async fn begin(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let query = request.uri().query().map(str::to_owned);
    admin(server, &headers, move |server, admin| {
        let params = Params::parse(query.as_deref())?;
        params.only(FILTERS)?;
        let (store, checker) = (Arc::clone(&server.store), Arc::clone(&admin.checker));
        let clock = server.clock.clone();
        let begun = admin.jobs.begin(store, checker, clock, filter(&params)?)?;
        Ok(shown(&begun))
    })
    .await
}

/// `GET`: how far it is.
pub(in crate::serve) async fn watch(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
) -> Response {
    admin(server, &headers, move |_, admin| {
        Ok(shown(&admin.jobs.last()?.progress()))
    })
    .await
}

/// `DELETE`: stops it after the dead letter that is being tried.
pub(in crate::serve) async fn stop(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
) -> Response {
    admin(server, &headers, move |_, admin| {
        let job = admin.jobs.last()?;
        job.stop();
        Ok(shown(&job.progress()))
    })
    .await
}
