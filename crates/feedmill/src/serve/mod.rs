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
// Errors.
pub mod error;
mod feed;
mod filters;
mod first_read;
mod following;
// Our feeds in a Bluesky client.
pub mod generator;
mod graph;
mod health;
mod hydration;
// Tokens of service-auth.
pub mod jwt;
// Connections.
pub mod line;
// What can be asked, said once.
mod meters;
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

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use metrics::counter;
use tokio::sync::Semaphore;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;

use crate::clock::Clock;
use crate::config::Config;
use crate::fanout::Fanout;
use crate::identity::Resolver;
use crate::live::Live;
use crate::metrics as names;
use crate::search::SearchIndex;
use crate::status::Status;
use crate::store::filter::Filter;
use crate::store::{Lens, Plan, Position, SharedStore};
use error::XrpcError;
use params::Params;

/// Paths that are counted under their own name.
const PATHS: [&str; 15] = [
    "/",
    "/health",
    "/status",
    "/metrics",
    "/page/readers",
    "/xrpc/_health",
    "/.well-known/did.json",
    "/.well-known/contrail",
    "/lexicons",
    "/openapi.json",
    "/feed",
    "/follow",
    "/follow-many",
    "/tokens",
    "/unfollow",
];

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
    private: Vec<String>,
    rates: rate::Rates,
    methods: Vec<(String, Call)>,
    service: service::Service,
    questions: filters::Questions,
    first_reads: Option<first_read::FirstReads>,
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
    Following,
    Subscribe,
    ListReferences,
    GetReferences,
    Graph,
    Profile,
    Cursor,
    Describe,
    Lexicons,
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
        let ns = &config.namespace;
        let mut methods = vec![
            (format!("{ns}.getFeed"), Call::Feed),
            (format!("{ns}.getFollowingFeed"), Call::Following),
            (format!("{ns}.subscribeFeed"), Call::Subscribe),
            (format!("{ns}.listReferences"), Call::ListReferences),
            (format!("{ns}.getReferences"), Call::GetReferences),
            (format!("{ns}.getGraph"), Call::Graph),
            (format!("{ns}.getProfile"), Call::Profile),
            (format!("{ns}.getCursor"), Call::Cursor),
            (generator::DESCRIBE.to_owned(), Call::Describe),
        ];
        methods.push((format!("{ns}.lexicons"), Call::Lexicons));
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
            live: None,
            search: None,
            admin: None,
            direct: None,
            generator: None,
            notifier: None,
            handles: None,
            private: config.serve.private.clone(),
            rates: rate::Rates::new(&config.serve),
            methods,
            first_reads: first_read::FirstReads::new(config),
            service: service::Service::new(config),
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
                "could not resolve actor {actor:?}: neither a DID nor a handle of an account"
            ))
        };
        if record::ids::Handle::parse(actor).is_err() {
            return Err(unresolved());
        }
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
            || method.strip_prefix(&self.namespace) == Some(".notifyOfUpdate")
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
            Some(Call::Following) => following::get(self, params),
            // It is answered before: a subscription is no single answer.
            Some(Call::Subscribe) | None => Err(XrpcError::no_method(nsid)),
            Some(Call::ListReferences) => references::list(self, params),
            Some(Call::GetReferences) => references::get(self, params),
            Some(Call::Graph) => graph::get(self, params),
            Some(Call::Profile) => profile::get(self, params),
            Some(Call::Cursor) => health::cursor(self, params),
            Some(Call::Lexicons) => {
                params.only(&[])?;
                Ok(Answer::json(self.service.bundle.clone()))
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
        .merge(service::routes())
        .route("/.well-known/did.json", get(did_document))
        .merge(direct)
        // One layer, the outermost first: each layer alone would be copied anew for every request.
        .layer((
            DefaultBodyLimit::max(body_bytes_max),
            CorsLayer::permissive().max_age(Duration::from_secs(86400)),
            middleware::from_fn_with_state(Arc::clone(&server), rate::layer),
            middleware::from_fn_with_state(Arc::clone(&server), limits),
            CompressionLayer::new(),
        ))
        .with_state(server)
}

/// Bounds every request in number and time, and counts it.
async fn limits(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let Ok(_slot) = server.slots.try_acquire() else {
        counter!(names::LIMITED, "by" => "requests").increment(1);
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
        Ok(answer) => answer.into_response(),
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
    let notifies = nsid.strip_prefix(&server.namespace) == Some(".notifyOfUpdate");
    let expected = if notifies { Method::POST } else { Method::GET };
    let head = request.method() == Method::HEAD && !notifies;
    if request.method() != expected && !head {
        let method = request.method();
        let message = format!("Incorrect HTTP method ({method}) expected {expected}");
        return XrpcError::invalid(message).into_response();
    }
    let params = match Params::parse(request.uri().query()) {
        Ok(params) => params,
        Err(error) => return error.into_response(),
    };
    let asked = asked(server, &nsid, params, request).await;
    asked.unwrap_or_else(IntoResponse::into_response)
}

/// Answers a method, after who asks for it is known where that matters.
async fn asked(
    server: Arc<Server>,
    nsid: &str,
    params: Params,
    request: Request,
) -> Result<Response, XrpcError> {
    if nsid == generator::SKELETON {
        let headers = request.headers().clone();
        return generator::skeleton(server, headers, params).await;
    }
    let name = nsid
        .strip_prefix(&server.namespace)
        .and_then(|name| name.strip_prefix('.'))
        .unwrap_or_default();
    let now_s = server.clock.now_us() / 1_000_000;
    let mut issuer = None;
    let mut standing = None;
    if let Some(generator) = &server.generator
        && server.private.iter().any(|private| private == name)
    {
        let headers = request.headers();
        let did = generator.bearers.required(headers, nsid, now_s).await?;
        match server
            .rates
            .take(rate::Asker::Account(did.clone()), 1, now_s)
        {
            Ok(left) => standing = left,
            Err(left) => return Ok(left.refusal(now_s)),
        }
        issuer = Some(did);
    }
    if name == "subscribeFeed" {
        return subscribe::subscribe(server, issuer, params, request).await;
    }
    let word = match server.method(nsid) {
        Some(Call::Feed | Call::Following) => first_read::before(&server, &params).await,
        _ => None,
    };
    let mut response = if name == "notifyOfUpdate" {
        notified(server, issuer, &params, request).await?
    } else {
        let tags = request.headers().get(header::IF_NONE_MATCH);
        // Who proved who he is asks for himself, and that is looked at first.
        if issuer.is_none()
            && word.is_none()
            && let Some(answer) = server.call_at_once(nsid, &params)
        {
            return Ok(reply::json(answer.body, tags));
        }
        let tags = tags.cloned();
        let nsid = nsid.to_owned();
        let answered = blocking(server, move |server| {
            if let (Some(issuer), true) = (&issuer, is_feed(&nsid)) {
                own_feed(server, &params, issuer)?;
            }
            let answer = server.call(&nsid, &params)?;
            Ok(match word {
                Some(word) => word.mark(answer),
                None => answer,
            })
        });
        reply::json(answered.await?.body, tags.as_ref())
    };
    if let Some(standing) = standing {
        response.extensions_mut().insert(standing);
    }
    Ok(response)
}

/// Who proved who he is reads his own feed and nobody else's.
fn own_feed(server: &Server, params: &Params, issuer: &str) -> Result<(), XrpcError> {
    match server.actor(params.need("actor")?)? == issuer {
        true => Ok(()),
        false => Err(XrpcError::forbidden(
            "feed actor must match the service-auth issuer",
        )),
    }
}

/// Answers who says that records were written.
async fn notified(
    server: Arc<Server>,
    issuer: Option<String>,
    params: &Params,
    request: Request,
) -> Result<Response, XrpcError> {
    params.only(&[])?;
    let client = request.extensions().get::<rate::Client>().copied();
    let headers = request.headers().clone();
    let body = match axum::body::Bytes::from_request(request, &()).await {
        Ok(body) => body,
        Err(rejection) => return Ok(rejection.into_response()),
    };
    notify::answer(&server, issuer.as_deref(), client, &headers, &body).await
}

/// Whether a method answers with the feed of the reader it names.
fn is_feed(nsid: &str) -> bool {
    nsid.ends_with(".getFeed") || nsid.ends_with(".getFollowingFeed")
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
