//! Reading: an answer that needs the store, on a thread that may block.
//!
//! In:    a caller, and what makes the answer.
//! Out:   the answer; `UpstreamTimeout` at the deadline, with the query ended.
//! Never: a thread taken before there is a permit for it; a query that goes on
//!        when its caller has left; work that nobody is charged for.

use std::sync::Arc;

use super::caller::Caller;
use super::error::XrpcError;
use super::{Answer, Server};
use crate::store::budget::{self, Budget};

/// Ends a read whose caller has left.
struct Leaving(Arc<Budget>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Server {
    /// Makes an answer, when it is this caller's turn.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        make: impl FnOnce(&Self) -> Result<T, XrpcError> + Send + 'static,
    ) -> Result<T, XrpcError> {
        let permits = match caller.writes {
            true => &self.writes,
            false => &self.reads,
        };
        let entered = permits.enter(caller.client(), self.clock.now_us()).await;
        let mut permit = entered.map_err(|_| {
            XrpcError::busy("too many requests of yours wait; ask for less at once")
        })?;
        let budget = Arc::new(Budget::until(
            caller.deadline(),
            self.limits.response_bytes_max(),
        ));
        let _leaving = Leaving(Arc::clone(&budget));
        let (server, caller) = (Arc::clone(self), Arc::clone(caller));
        let made = tokio::task::spawn_blocking(move || {
            let made = budget::with(&budget, || make(&server));
            // Here, so that it is charged to one who has left, too.
            permit.used(budget.steps(), server.clock.now_us());
            drop(permit);
            server.charge(&caller, budget.steps());
            made
        });
        made.await.unwrap_or_else(|_| Err(XrpcError::internal()))
    }

    /// About how large an answer may grow.
    pub(super) fn is_large(&self, answer: &str) -> bool {
        answer.len() >= self.limits.response_bytes_max()
    }
}

/// The same for the caller of the request at hand.
pub(super) async fn blocking<T: Send + 'static>(
    server: Arc<Server>,
    make: impl FnOnce(&Server) -> Result<T, XrpcError> + Send + 'static,
) -> Result<T, XrpcError> {
    let caller = Caller::current(server.limits.timeout());
    server.read(&caller, make).await
}

/// The answer or the error, as a response.
pub(super) async fn answer<F>(server: Arc<Server>, make: F) -> axum::response::Response
where
    F: FnOnce(&Server) -> Result<Answer, XrpcError> + Send + 'static,
{
    use axum::response::IntoResponse as _;
    match blocking(server, make).await {
        Ok(answer) => answer.into_response(),
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use axum::http::StatusCode;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::status::Status;
    use crate::store;

    const TEXT: &str =
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\nreaders = 2\n";

    fn server() -> Arc<Server> {
        let config = Config::parse(TEXT).unwrap();
        let store = store::open(&config).unwrap();
        let (plan, status) = (Arc::clone(store.plan()), Arc::new(Status::default()));
        Arc::new(Server::new(&config, plan, store, None, status, Clock::Wall))
    }

    fn caller(last: u8, timeout: Duration) -> Arc<Caller> {
        Arc::new(Caller::new(
            Some(IpAddr::from([10, 0, 0, last])),
            false,
            timeout,
        ))
    }

    /// Reads for ever; only its budget ends it.
    fn endless(server: &Server) -> Result<(), XrpcError> {
        loop {
            server.store.head()?;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reads_of_one_client_end_at_their_deadline_and_leave_the_others_a_permit() {
        let server = server();
        let ended = Arc::new(AtomicUsize::new(0));
        let greedy: Vec<_> = (0..8)
            .map(|_| {
                let (server, ended) = (Arc::clone(&server), Arc::clone(&ended));
                tokio::spawn(async move {
                    let caller = caller(1, Duration::from_millis(200));
                    let work = move |server: &Server| {
                        let result = endless(server);
                        ended.fetch_add(1, Ordering::SeqCst);
                        result
                    };
                    server.read(&caller, work).await
                })
            })
            .collect();
        // Another is answered whenever it asks, while the first one's requests wait for each other.
        for _ in 0..20 {
            let honest = caller(2, Duration::from_secs(600));
            let head = server
                .read(&honest, |server| Ok(server.store.head()?))
                .await;
            assert_eq!(head, Ok(0));
        }
        for read in greedy {
            let error = read.await.unwrap().unwrap_err();
            assert_eq!(error.status, StatusCode::GATEWAY_TIMEOUT, "{error:?}");
        }
        assert_eq!(ended.load(Ordering::SeqCst), 8, "none of them goes on");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_read_ends_when_its_caller_goes_away() {
        let server = server();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let (over, ends) = tokio::sync::oneshot::channel();
        let reading = tokio::spawn({
            let server = Arc::clone(&server);
            async move {
                let caller = caller(1, Duration::from_secs(600));
                let work = move |server: &Server| {
                    begun.send(()).unwrap_or_default();
                    let result = endless(server);
                    over.send(()).unwrap_or_default();
                    result
                };
                server.read(&caller, work).await
            }
        });
        assert!(begins.recv().await.is_some());
        reading.abort();
        assert!(ends.await.is_ok(), "its thread is free again");
    }
}
