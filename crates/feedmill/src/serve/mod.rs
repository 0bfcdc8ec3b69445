//! Serving: the API over HTTP.
//!
//! In:    requests.
//! Out:   JSON as XRPC clients expect it, errors included.
//! Never: a request without a limit on size, time and number; a cause leaked
//!        in a 500; a reader who waits for the writer.

// Dead letters for the operator.
pub mod admin;
// Which account asks.
pub mod bearer;
// Bodies from stored JSON.
pub mod body;
// Opaque cursors.
pub mod cursor;
// Records written over HTTP.
pub mod direct;
mod ending;
// Errors.
pub mod error;
mod feed;
mod filters;
mod first_read;
mod following;
// What every request passes.
pub mod front;
// Our feeds in a Bluesky client.
pub mod generator;
mod graph;
mod health;
mod hydration;
mod labelers;
// Tokens of service-auth.
pub mod jwt;
// Connections.
pub mod line;
mod meters;
// What can be asked, said once.
pub mod methods;
// Records fetched because somebody says that they are new.
pub mod notify;
// Query parameters.
pub mod params;
mod profile;
mod rate;
mod records;
mod references;
mod reply;
pub(crate) mod service;
mod subscribe;
mod xrpc;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::config::Config;
use crate::fanout::Fanout;
use crate::identity::Resolver;
use crate::labels::Labels;
use crate::live::Live;
use crate::local::Names;
use crate::metrics as names;
use crate::search::SearchIndex;
use crate::status::Status;
use crate::store::filter::Filter;
use crate::store::plan::FeedPlan;
use crate::store::{Lens, Plan, Position, SharedStore};
use error::XrpcError;
use params::{Asker, Params};

/// How long a handle may take to be resolved.
const HANDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// What every request needs.
#[derive(Debug)]
pub struct Server {
    pub namespace: String,
    pub plan: Arc<Plan>,
    pub store: SharedStore,
    /// Timelines in memory, if they are given any.
    pub fanout: Option<Arc<Fanout>>,
    /// Who is told of changes as they happen, if anybody is.
    pub live: Option<Arc<Live>>,
    pub status: Arc<Status>,
    pub clock: Clock,
    /// Where words are found, if a collection can be searched.
    pub search: Option<Arc<SearchIndex>>,
    /// What labelers say, if any are listened to.
    pub labels: Option<Arc<Labels>>,
    /// The operator's part, if it is given any.
    pub admin: Option<admin::Admin>,
    /// The direct API, if a collection is written directly.
    pub direct: Option<direct::Direct>,
    /// Our feeds as the network knows them, if we have a DID.
    pub generator: Option<generator::Generator>,
    /// Notifications, if somebody may notify.
    pub notifier: Option<notify::Notifier>,
    /// Handles that no stream told of, if they are to be resolved.
    pub handles: Option<Arc<Resolver>>,
    rates: rate::Rates,
    /// What an actor may be called.
    names: Names,
    /// Everything that is answered.
    table: Vec<methods::Method>,
    methods: xrpc::Methods,
    service: service::Service,
    questions: filters::Questions,
    first_reads: Option<first_read::FirstReads>,
    page_scan_max: usize,
    timeout: Duration,
    slots: Semaphore,
    meters: meters::Meters,
}

/// A successful answer.
#[derive(Debug)]
pub(crate) struct Answer {
    body: String,
    /// What tells it from other answers, if that is known without reading all of it.
    tag: Option<u64>,
}

impl Answer {
    pub(crate) fn json(body: String) -> Self {
        Self { body, tag: None }
    }

    pub(crate) fn tagged(body: String, tag: u64) -> Self {
        let tag = Some(tag);
        Self { body, tag }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

impl Server {
    /// The server of a configuration.
    pub fn new(
        config: &Config,
        plan: Arc<Plan>,
        store: SharedStore,
        fanout: Option<Arc<Fanout>>,
        status: Arc<Status>,
        clock: Clock,
    ) -> Self {
        let table = methods::table(config);
        Self {
            namespace: config.namespace.clone(),
            questions: filters::Questions::new(config, &plan),
            plan,
            store,
            fanout,
            status,
            clock,
            live: None,
            search: None,
            labels: None,
            admin: None,
            direct: None,
            generator: None,
            notifier: None,
            handles: None,
            rates: rate::Rates::new(&config.serve),
            names: Names::of(config),
            methods: xrpc::Methods::new(&table),
            meters: meters::Meters::new(&table),
            first_reads: first_read::FirstReads::new(config),
            service: service::Service::new(config, &table),
            table,
            page_scan_max: config.timelines.page_scan_max,
            timeout: Duration::from_secs(config.serve.timeout_s),
            slots: Semaphore::new(config.serve.requests_max),
        }
    }

    /// Whose page of a feed is asked for, once it is sure that it may be.
    fn reader(&self, feed: &FeedPlan, params: &Params) -> Result<String, XrpcError> {
        let guards = |direct: &direct::Direct| direct.guards(&feed.name);
        let guarded = self.direct.as_ref().is_some_and(guards);
        match &params.asker {
            Asker::Nobody if guarded => Err(direct::nobody()),
            Asker::Nobody | Asker::App => self.actor(params.need("actor")?),
            Asker::Account(own) => match params.get("actor") {
                Some(actor) if self.actor(actor)? != *own => Err(XrpcError::forbidden(
                    "feed actor must match the account whose token is shown",
                )),
                _ => Ok(own.clone()),
            },
        }
    }

    /// Whether who asks may see the record at a URI.
    fn shows(&self, params: &Params, uri: &str) -> bool {
        let nsid = uri
            .strip_prefix("at://")
            .and_then(|rest| rest.split('/').nth(1));
        let guards = |direct: &direct::Direct| nsid.is_some_and(|nsid| direct.guards_records(nsid));
        params.asker != Asker::Nobody || !self.direct.as_ref().is_some_and(guards)
    }

    /// The account behind a DID, a handle, or an id of an app's own.
    fn actor(&self, actor: &str) -> Result<String, XrpcError> {
        let did = self.authority(actor)?;
        match self.names.is_account(&did) {
            true => Ok(did),
            false => Err(self.unnamed(actor)),
        }
    }

    /// What is no name of anybody.
    fn unnamed(&self, actor: &str) -> XrpcError {
        let accepted = self.names.accepted();
        XrpcError::invalid(format!("could not resolve actor {actor:?}: {accepted}"))
    }

    /// The DID behind a DID of any method or a handle.
    fn authority(&self, actor: &str) -> Result<String, XrpcError> {
        if record::ids::Did::parse(actor).is_ok() {
            return Ok(actor.to_owned());
        }
        if let Some(did) = self.names.person(actor) {
            return Ok(did);
        }
        if !self.names.is_handle(actor) {
            return Err(self.unnamed(actor));
        }
        let unresolved = || {
            XrpcError::invalid(format!(
                "could not resolve actor {actor:?}: it is the handle of no account"
            ))
        };
        let handle = actor.to_ascii_lowercase();
        if let Some(handles) = &self.handles {
            let asked = tokio::time::timeout(HANDLE_TIMEOUT, handles.did_of(&handle));
            // Where the world cannot be asked, what the streams told is the best there is.
            if let Ok(Ok(found)) = tokio::runtime::Handle::current().block_on(asked) {
                return found.ok_or_else(unresolved);
            }
        }
        self.store.did_of(&handle)?.ok_or_else(unresolved)
    }

    /// The lens, with the index that knows where to look, if there is one.
    fn focus(
        &self,
        nsid: &str,
        mut lens: Lens,
        before: Option<&Position>,
    ) -> Result<Lens, XrpcError> {
        let search = lens.filters.iter().find_map(|filter| match filter {
            Filter::Search(search) => Some(search),
            Filter::Field(_) => None,
        });
        if let (Some(search), None, Some(index)) = (search, &lens.sort, &self.search) {
            lens.among = index.candidates(nsid, search, before)?;
        }
        Ok(lens)
    }
}

/// Runs a blocking answer on a thread that may block.
async fn answer<F>(server: Arc<Server>, make: F) -> Response
where
    F: FnOnce(&Server) -> Result<Answer, XrpcError> + Send + 'static,
{
    match blocking(server, make).await {
        Ok(answer) => answer.into_response(),
        Err(error) => error.into_response(),
    }
}

async fn blocking<T: Send + 'static>(
    server: Arc<Server>,
    make: impl FnOnce(&Server) -> Result<T, XrpcError> + Send + 'static,
) -> Result<T, XrpcError> {
    let made = tokio::task::spawn_blocking(move || make(&server)).await;
    made.unwrap_or_else(|_| Err(XrpcError::internal()))
}

async fn health(State(server): State<Arc<Server>>) -> Response {
    answer(server, health::health).await
}

async fn did_document(State(server): State<Arc<Server>>) -> Response {
    answer(server, |server| match &server.generator {
        Some(generator) => generator.document().map(Answer::json),
        None => Err(XrpcError::not_found(
            "no document here; set serve.service_did",
        )),
    })
    .await
}

async fn status(State(server): State<Arc<Server>>) -> Response {
    answer(server, health::status).await
}

async fn readers(State(server): State<Arc<Server>>) -> Response {
    answer(server, health::readers).await
}

async fn prometheus(State(server): State<Arc<Server>>) -> Response {
    if let Some(fanout) = server.fanout.clone() {
        // Where the store cannot be asked, what was told before stands.
        drop(tokio::task::spawn_blocking(move || fanout.tell_behind()).await);
    }
    let text = names::recorder().render();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn page() -> Response {
    let html = include_str!("../../assets/index.html");
    Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, "text/html; charset=utf-8")
        .body(Body::from(html))
        .unwrap_or_else(|_| XrpcError::internal().into_response())
}
