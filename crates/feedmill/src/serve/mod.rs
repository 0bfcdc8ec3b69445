//! Serving: the API over HTTP.
//!
//! In:    requests.
//! Out:   JSON as XRPC clients expect it, errors included.
//! Never: a request without a limit on size, time and number; a cause leaked
//!        in a 500; a reader who waits for the writer.

// Dead letters for the operator.
pub mod admin;
// Bodies from stored JSON.
pub mod body;
// Opaque cursors.
pub mod cursor;
// Records written over HTTP.
pub mod direct;
// Errors.
pub mod error;
mod feed;
mod filters;
// Our feeds in a Bluesky client.
pub mod generator;
mod graph;
mod health;
mod hydration;
// Which account asks through its host.
pub mod jwt;
mod lexicons;
mod meters;
// Query parameters.
pub mod params;
mod profile;
mod records;
mod references;
mod reply;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::serve::ListenerExt as _;
use tokio::sync::{Semaphore, watch};
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;

use crate::clock::Clock;
use crate::config::Config;
use crate::fanout::Fanout;
use crate::metrics as names;
use crate::search::SearchIndex;
use crate::status::Status;
use crate::store::filter::Filter;
use crate::store::{Lens, Plan, Position, SharedStore};
use error::XrpcError;
use params::Params;

/// Paths that are counted under their own name.
const PATHS: [&str; 12] = [
    "/",
    "/health",
    "/status",
    "/metrics",
    "/page/readers",
    "/xrpc/_health",
    "/.well-known/did.json",
    "/feed",
    "/follow",
    "/follow-many",
    "/tokens",
    "/unfollow",
];

/// What every request needs.
#[derive(Debug)]
pub struct Server {
    pub namespace: String,
    pub plan: Arc<Plan>,
    pub store: SharedStore,
    /// Timelines in memory, if they are given any.
    pub fanout: Option<Arc<Fanout>>,
    pub status: Arc<Status>,
    pub clock: Clock,
    /// Where words are found, if a collection can be searched.
    pub search: Option<Arc<SearchIndex>>,
    /// The operator's part, if it is given any.
    pub admin: Option<admin::Admin>,
    /// The direct API, if a collection is written directly.
    pub direct: Option<direct::Direct>,
    /// Our feeds as the network knows them, if we have a DID.
    pub generator: Option<generator::Generator>,
    methods: Vec<(String, Call)>,
    questions: filters::Questions,
    page_scan_max: usize,
    timeout: Duration,
    slots: Semaphore,
    meters: meters::Meters,
}

/// A method of the API.
#[derive(Debug, Clone)]
enum Call {
    List(String),
    Get(String),
    Feed,
    ListReferences,
    GetReferences,
    Graph,
    Profile,
    Cursor,
    Describe,
    /// The answer, made at start.
    Lexicons(String),
}

/// A successful answer.
#[derive(Debug)]
pub(crate) struct Answer {
    body: String,
}

impl Answer {
    pub(crate) fn json(body: String) -> Self {
        Self { body }
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
        let ns = &config.namespace;
        let mut methods = vec![
            (format!("{ns}.getFeed"), Call::Feed),
            (format!("{ns}.listReferences"), Call::ListReferences),
            (format!("{ns}.getReferences"), Call::GetReferences),
            (format!("{ns}.getGraph"), Call::Graph),
            (format!("{ns}.getProfile"), Call::Profile),
            (format!("{ns}.getCursor"), Call::Cursor),
            (generator::DESCRIBE.to_owned(), Call::Describe),
        ];
        let bundle = lexicons::bundle(&config.lexicons);
        methods.extend(bundle.map(|bundle| (format!("{ns}.lexicons"), Call::Lexicons(bundle))));
        for (short, collection) in &config.collections {
            use crate::config::collection::Method as M;
            for method in &collection.methods {
                let nsid = collection.collection.clone();
                methods.push(match method {
                    M::ListRecords => (format!("{ns}.{short}.listRecords"), Call::List(nsid)),
                    M::GetRecord => (format!("{ns}.{short}.getRecord"), Call::Get(nsid)),
                });
            }
        }
        let counted = methods.iter().map(|(name, _)| name.as_str());
        let meters = meters::Meters::new(counted.chain([generator::SKELETON]));
        Self {
            meters,
            namespace: ns.clone(),
            questions: filters::Questions::new(config, &plan),
            plan,
            store,
            fanout,
            status,
            clock,
            search: None,
            admin: None,
            direct: None,
            generator: None,
            methods,
            page_scan_max: config.timelines.page_scan_max,
            timeout: Duration::from_secs(config.serve.timeout_s),
            slots: Semaphore::new(config.serve.requests_max),
        }
    }

    /// The DID behind a DID or a handle.
    fn actor(&self, actor: &str) -> Result<String, XrpcError> {
        if record::ids::Did::parse(actor).is_ok() {
            return Ok(actor.to_owned());
        }
        let unresolved = || {
            XrpcError::invalid(format!(
                "could not resolve actor {actor:?}: neither a DID nor a handle known here"
            ))
        };
        if record::ids::Handle::parse(actor).is_err() {
            return Err(unresolved());
        }
        self.store
            .did_of(&actor.to_ascii_lowercase())?
            .ok_or_else(unresolved)
    }

    /// Refuses parameters that a page of this collection does not have.
    fn only(&self, params: &Params, nsid: &str, known: &[&str]) -> Result<(), XrpcError> {
        let hydrating = hydration::parameters(self, nsid);
        let mut all = known.to_vec();
        all.extend(self.questions.parameters(nsid));
        all.extend(hydrating.iter().map(String::as_str));
        params.only(&all)
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

    /// What a request is counted under: one of our own names, so that strangers make no new ones.
    fn label(&self, path: &str) -> String {
        if path.starts_with("/admin/") {
            return "/admin".to_owned(); // numbers are not labels
        }
        let method = path.strip_prefix("/xrpc/").unwrap_or(path);
        let ours = PATHS.contains(&path)
            || method == generator::SKELETON
            || self.methods.iter().any(|(name, _)| name == method);
        if ours {
            method.to_owned()
        } else if path.starts_with("/records/") && self.direct.is_some() {
            "/records".to_owned()
        } else {
            "other".to_owned()
        }
    }

    fn method(&self, nsid: &str) -> Option<&Call> {
        let mut methods = self.methods.iter();
        methods.find(|(name, _)| name == nsid).map(|(_, call)| call)
    }

    /// The answer, if it needs neither the store nor a wait.
    fn call_at_once(&self, nsid: &str, params: &Params) -> Option<Answer> {
        match self.method(nsid)? {
            Call::Feed => feed::get_at_once(self, params),
            _ => None,
        }
    }

    fn call(&self, nsid: &str, params: &Params) -> Result<Answer, XrpcError> {
        match self.method(nsid) {
            Some(Call::Feed) => feed::get(self, params),
            Some(Call::ListReferences) => references::list(self, params),
            Some(Call::GetReferences) => references::get(self, params),
            Some(Call::Graph) => graph::get(self, params),
            Some(Call::Profile) => profile::get(self, params),
            Some(Call::Cursor) => health::cursor(self, params),
            Some(Call::Lexicons(bundle)) => {
                params.only(&[])?;
                Ok(Answer::json(bundle.clone()))
            }
            Some(Call::Describe) => {
                params.only(&[])?;
                match &self.generator {
                    Some(generator) => Ok(Answer::json(generator.describe())),
                    None => Err(XrpcError::no_method(nsid)),
                }
            }
            Some(Call::List(collection)) => records::list(self, collection, params),
            Some(Call::Get(collection)) => records::get(self, collection, params),
            None => Err(XrpcError::no_method(nsid)),
        }
    }
}

/// The routes.
pub fn router(server: Arc<Server>, body_bytes_max: usize) -> Router {
    let direct = if server.direct.is_some() {
        direct::routes()
    } else {
        Router::new()
    };
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/status", get(status))
        .route("/metrics", get(prometheus))
        .route("/page/readers", get(readers))
        .route("/xrpc/_health", get(health))
        .route("/xrpc/{nsid}", any(xrpc))
        .merge(admin::routes())
        .route("/.well-known/did.json", get(did_document))
        .merge(direct)
        // One layer, the outermost first: each layer alone would be copied anew for every request.
        .layer((
            DefaultBodyLimit::max(body_bytes_max),
            CorsLayer::permissive().max_age(Duration::from_secs(86400)),
            middleware::from_fn_with_state(Arc::clone(&server), limits),
            CompressionLayer::new(),
        ))
        .with_state(server)
}

/// Serves until `stop` is set, then finishes open requests.
pub async fn run(
    listener: tokio::net::TcpListener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    // An answer goes out whole; its last part must not wait for a word from the client.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            // An error means that the sender is gone: stop as well.
            drop(stop.wait_for(|stop| *stop).await);
        })
        .await
}

/// Bounds every request in number and time, and counts it.
async fn limits(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let Ok(_slot) = server.slots.try_acquire() else {
        return XrpcError::busy("too many requests at once; try again").into_response();
    };
    let begun = Instant::now();
    let path = request.uri().path().to_owned();
    let response = match tokio::time::timeout(server.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => XrpcError::slow().into_response(),
    };
    let label = |path: &str| server.label(path);
    let meters = &server.meters;
    meters.count(&path, label, response.status(), begun.elapsed());
    response
}

/// Runs a blocking answer on a thread that may block.
async fn answer<F>(server: Arc<Server>, make: F) -> Response
where
    F: FnOnce(&Server) -> Result<Answer, XrpcError> + Send + 'static,
{
    match blocking(server, make).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer.body).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn blocking<F>(server: Arc<Server>, make: F) -> Result<Answer, XrpcError>
where
    F: FnOnce(&Server) -> Result<Answer, XrpcError> + Send + 'static,
{
    let made = tokio::task::spawn_blocking(move || make(&server)).await;
    made.unwrap_or_else(|_| Err(XrpcError::internal()))
}

async fn xrpc(
    State(server): State<Arc<Server>>,
    Path(nsid): Path<String>,
    request: Request,
) -> Response {
    if record::ids::Nsid::parse(&nsid).is_err() {
        return XrpcError::invalid("invalid xrpc path").into_response();
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let message = format!("Incorrect HTTP method ({}) expected GET", request.method());
        return XrpcError::invalid(message).into_response();
    }
    let params = match Params::parse(request.uri().query()) {
        Ok(params) => params,
        Err(error) => return error.into_response(),
    };
    if nsid == generator::SKELETON {
        let headers = request.headers().clone();
        let found = generator::skeleton(server, headers, params).await;
        return found.unwrap_or_else(IntoResponse::into_response);
    }
    let tags = request.headers().get(header::IF_NONE_MATCH);
    if let Some(answer) = server.call_at_once(&nsid, &params) {
        return reply::json(answer.body, tags);
    }
    let tags = tags.cloned();
    match blocking(server, move |server| server.call(&nsid, &params)).await {
        Ok(answer) => reply::json(answer.body, tags.as_ref()),
        Err(error) => error.into_response(),
    }
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

async fn prometheus() -> Response {
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
