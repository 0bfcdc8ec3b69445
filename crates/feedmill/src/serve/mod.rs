//! Serving: the API over HTTP.
//!
//! In:    requests.
//! Out:   JSON as XRPC clients expect it, errors included.
//! Never: a request without a limit on size, time and number; a cause leaked
//!        in a 500; a reader who waits for the writer.

// Dead letters for the operator.
pub mod admin;
// By which names this server may be asked.
pub mod allowed_hosts;
// Which account asks.
pub mod bearer;
// Bodies from stored JSON.
pub mod body;
mod caller;
mod charges;
mod connections;
// Opaque cursors.
pub mod cursor;
// How many descriptors there may be.
pub mod descriptors;
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
mod handles;
mod health;
mod hydration;
mod labelers;
// Tokens of service-auth.
pub mod jwt;
// Limits that a reload changes.
pub mod limits;
// Connections.
pub mod line;
mod meters;
// What can be asked, said once.
pub mod methods;
// Records fetched because somebody says that they are new.
pub mod notify;
// What every process answers its operator.
pub mod operator;
mod page;
// Query parameters.
pub mod params;
mod patience;
mod permits;
mod profile;
mod rate;
mod reading;
mod records;
mod references;
mod reply;
pub(crate) mod service;
mod slots;
// What is answered before there is a server.
pub mod starting;
mod subscribe;
mod tokens;
mod unsent;
mod upload;
mod xrpc;

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use replicate::memory_pool::MemoryPool;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::config::{self, Config};
use crate::fanout::Fanout;
use crate::identity::Resolver;
use crate::labels::Labels;
use crate::live::Live;
use crate::local::Names;
use crate::search::SearchIndex;
use crate::secret::Secrets;
use crate::status::Status;
use crate::store::filter::Filter;
use crate::store::plan::FeedPlan;
use crate::store::{Lens, Plan, Position, SharedStore};
use error::XrpcError;
use params::{Asker, Params};
use reading::{answer, blocking};

/// Requests that wait for the store to be written, each on a thread of its own.
const WRITES_MAX: usize = 64;

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
    /// Requests that wait for what the streams told of a handle.
    handles_told: Semaphore,
    /// Who asks whether a DID exists, if anybody does.
    pub resolver: Option<Arc<Resolver>>,
    rates: rate::Rates,
    /// What an actor may be called.
    names: Names,
    /// Everything that is answered.
    table: Vec<methods::Method>,
    methods: xrpc::Methods,
    service: service::Service,
    questions: filters::Questions,
    first_reads: Option<first_read::FirstReads>,
    /// Whether accounts come whole with the stream, so that none is fetched.
    has_whole_accounts: bool,
    page_scan_max: usize,
    limits: Arc<limits::Limits>,
    slots: slots::Slots,
    /// What answers take until their readers took them.
    unsent: Arc<MemoryPool>,
    /// What requests take until they are answered.
    uploads: Arc<MemoryPool>,
    /// Who may read the store, and who may write.
    reads: Arc<permits::Permits>,
    writes: Arc<permits::Permits>,
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
        let limits = Arc::new(limits::Limits::new(&config.serve));
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
            handles_told: Semaphore::new(handles::TOLD_MAX),
            resolver: None,
            rates: rate::Rates::new(&config.serve, Arc::clone(&limits)),
            names: Names::of(config),
            methods: xrpc::Methods::new(&table),
            meters: meters::Meters::new(&table),
            first_reads: first_read::FirstReads::new(config),
            has_whole_accounts: config.has_whole_accounts(),
            service: service::Service::new(config, &table),
            table,
            page_scan_max: config.timelines.page_scan_max,
            slots: slots::Slots::new(Arc::clone(&limits)),
            unsent: unsent::pool(config.serve.unsent_bytes_max),
            uploads: upload::pool(config.serve.uploads_bytes_max),
            reads: permits::Permits::new(
                "reads",
                config.store.readers.get(),
                config.serve.reads_waiting_max,
            ),
            writes: permits::Permits::new("writes", WRITES_MAX, config.serve.reads_waiting_max),
            limits,
        }
    }

    /// What the operator's paths are answered from.
    fn operator(&self) -> operator::Operator {
        operator::Operator {
            store: Arc::clone(&self.store),
            status: Arc::clone(&self.status),
            clock: self.clock.clone(),
            fanout: self.fanout.clone(),
        }
    }

    /// Puts other limits and tokens in force; returns why a token stays as it was.
    pub fn reload(&self, settings: &config::Serve, secrets: &Secrets) -> Option<&'static str> {
        self.limits.set(settings);
        if let Some(admin) = &self.admin {
            admin.set_token(secrets.admin.clone());
        }
        if let Some(notifier) = &self.notifier {
            notifier.set_token(secrets.notify.clone());
        }
        self.direct.as_ref()?.set_secrets(secrets)
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
        if !self.is_handle(actor) {
            return Err(self.unnamed(actor));
        }
        let unresolved = || {
            XrpcError::invalid(format!(
                "could not resolve actor {actor:?}: it is the handle of no account"
            ))
        };
        let handle = actor.to_ascii_lowercase();
        // It was resolved before this thread was taken, if anybody could be asked.
        let known = self
            .handles
            .as_ref()
            .and_then(|it| it.known_did_of(&handle));
        if let Some(Ok(found)) = known {
            return found.ok_or_else(unresolved);
        }
        self.store.did_of(&handle)?.ok_or_else(unresolved)
    }

    /// Whether a name is a handle, and neither a DID nor an id of an app's own.
    fn is_handle(&self, name: &str) -> bool {
        self.names.is_handle(name)
            && record::ids::Did::parse(name).is_err()
            && self.names.person(name).is_none()
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

async fn health() -> Response {
    operator::live()
}

async fn ready(State(server): State<Arc<Server>>) -> Response {
    server.operator().ready()
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
    answer(server, |server| Ok(health::status(&server.operator()))).await
}

async fn readers(State(server): State<Arc<Server>>) -> Response {
    answer(server, health::readers).await
}

async fn prometheus(State(server): State<Arc<Server>>) -> Response {
    server.operator().metrics()
}
