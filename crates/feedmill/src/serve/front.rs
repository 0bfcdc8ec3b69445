//! The front: what every request passes before its method, and every answer
//! after it.
//!
//! In:    requests as they come from a connection.
//! Out:   answers that any web page may read, compressed where that was asked
//!        for, counted; refusals in the form that clients know.
//! Never: more requests at once than `requests_max`; one that takes longer
//!        than `timeout_s`; more of one address than its share; a probe that
//!        is refused because there is much else.
//!
//! One function instead of a tower of layers: each layer costs every request a
//! copy of all that lies under it. Methods are found by their names here, and
//! only other paths by a router: its way to a handler is as long as a page's own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use metrics::counter;
use replicate::charge::Charge;
use replicate::client_memory::ClientMemory;
use tokio::sync::Notify;
use tower_http::compression::Compression;
use tower_service::Service;

use super::caller::Caller;
use super::charges::{self, Bill};
use super::error::XrpcError;
use super::line::{Answers, Closing, Reads};
use super::methods::handler::Handler;
use super::rate::{self, Asker, Client, Standing};
use super::upload::Upload;
use super::{Server, unsent, xrpc};
use crate::metrics as names;

/// Anybody's page may ask and read everything.
const ANY: HeaderValue = HeaderValue::from_static("*");
/// Seconds for which a browser remembers that.
const PREFLIGHT_S: HeaderValue = HeaderValue::from_static("86400");

/// What machines ask to see whether we live: answered however many other requests there are. They are
/// answered from memory, in less time than a refusal.
const PROBES: [&str; 3] = ["/xrpc/_health", "/health", "/ready"];
/// The same for one that takes longer: each address has its share of it.
const SCRAPE: &str = "/metrics";

/// Everything that is served.
#[derive(Debug)]
pub struct Front {
    server: Arc<Server>,
    body_max: DefaultBodyLimit,
    paths: Router,
}

impl Front {
    /// A server's methods and paths, which are those of its table.
    pub fn new(server: Arc<Server>, body_bytes_max: usize) -> Self {
        let body_max = DefaultBodyLimit::max(body_bytes_max);
        let mut paths = Router::new();
        for method in &server.table {
            if let Handler::Route(route) = method.handler {
                paths = paths.route(&method.path, route(method.verb.filter()));
            }
        }
        let by_path = middleware::from_fn_with_state(Arc::clone(&server), by_path);
        let paths = paths
            .layer((body_max, by_path))
            .with_state(Arc::clone(&server));
        Self {
            server,
            body_max,
            paths,
        }
    }

    /// The same with the paths of the log, which charge what they cost to whoever asks and answer
    /// within the same limits.
    #[must_use]
    pub fn beside(mut self, paths: Router) -> Self {
        let bounded = middleware::from_fn_with_state(Arc::clone(&self.server), beside);
        self.paths = self.paths.merge(paths.layer(bounded));
        self
    }
}

impl Answers for Front {
    async fn answer(&self, mut request: Request) -> Response {
        if xrpc::name(request.uri().path()).is_none() {
            return self.paths.answer(request).await;
        }
        self.body_max.apply(&mut request);
        let call = |request| xrpc::call(Arc::clone(&self.server), request);
        pass(&self.server, request, call).await
    }
}

/// Lets a request to the log in. It is given the share that it takes from, and where its messages are
/// counted.
async fn beside(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = server
        .rates
        .address(peer.map(|info| info.0), request.headers());
    let closing = closing(&request);
    let reads = request.extensions().get::<Reads>().cloned();
    request.extensions_mut().insert(ClientMemory {
        address,
        uploads: Arc::clone(&server.uploads),
        answers: Arc::clone(&server.unsent),
        closing: Arc::clone(&closing),
        reading: reads.unwrap_or_default().0,
    });
    if let Some(address) = address {
        let server = Arc::clone(&server);
        let charge = Charge::from_fn(move |cost| {
            let now_s = server.clock.now_us() / 1_000_000;
            let taken = server.rates.take(Asker::Address(address), cost, now_s);
            taken.map(drop).map_err(|standing| standing.wait_ms(now_s))
        });
        request.extensions_mut().insert(charge);
    }
    // Who waits for news waits for longer than a request may take, and takes no slot meanwhile.
    if replicate::waits(request.method(), request.uri()) {
        let response = next.run(request).await;
        return unsent::reserve(response, &server.unsent, address, closing);
    }
    bounded(&server, request, (address, None), |request| {
        next.run(request)
    })
    .await
}

async fn by_path(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    pass(&server, request, |request| next.run(request)).await
}

/// Lets a request in, and its answer out.
async fn pass<F: Future<Output = Response>>(
    server: &Server,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    if is_preflight(&request) {
        return preflight();
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = server
        .rates
        .address(peer.map(|info| info.0), request.headers());
    let now_s = || server.clock.now_us() / 1_000_000;
    let is_probe = PROBES.contains(&request.uri().path());
    let taken = match address.filter(|_| !is_probe) {
        Some(address) => server.rates.take(Asker::Address(address), 1, now_s()),
        None => Ok(None),
    };
    let mut response = match taken {
        Err(standing) => standing.refusal(now_s()),
        Ok(standing) => {
            request.extensions_mut().insert(Client(address));
            let packing = Packing::of(request.headers());
            let (request, upload) = Upload::of(request, &server.uploads, address);
            let mut response = bounded(server, request, (address, packing), next).await;
            if let Some(upload) = upload {
                response = upload.or_refused(response);
            }
            response = shaped(response);
            // An account's standing is told instead of the address's where both are counted.
            let own = response.extensions().get::<Standing>().copied();
            if let Some(standing) = own.or(standing)
                && !response.headers().contains_key(rate::LIMIT)
            {
                standing.write(response.headers_mut());
            }
            response
        }
    };
    open(response.headers_mut());
    response
}

/// Bounds a request in number and time, and its answer in bytes, and counts it.
async fn bounded<F: Future<Output = Response>>(
    server: &Server,
    request: Request,
    (address, packing): (Option<IpAddr>, Option<Packing>),
    next: impl FnOnce(Request) -> F,
) -> Response {
    let path = request.uri().path();
    let is_free = path == SCRAPE || PROBES.contains(&path);
    let slot = (!is_free).then(|| server.slots.take(address));
    let _slot = match slot.transpose() {
        Ok(slot) => slot,
        Err(by) => {
            counter!(names::LIMITED, "by" => by).increment(1);
            return XrpcError::busy("too many requests at once; try again").into_response();
        }
    };
    let begun = Instant::now();
    let closing = closing(&request);
    let meter = server.meters.of(request.uri().path());
    let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let timeout = server.limits.timeout();
    let caller = Arc::new(Caller::new(address, writes, timeout));
    let _bill = Bill::of(server, &caller);
    let answering = tokio::time::timeout(timeout, Arc::clone(&caller).scope(next(request)));
    let response = match answering.await {
        Ok(response) => response,
        Err(_) => XrpcError::slow().into_response(),
    };
    meter.count(response.status(), begun.elapsed());
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    let response = unsent::reserve(response, &server.unsent, address, closing);
    let response = match packing {
        Some(packing) => packing.pack(response).await,
        None => response,
    };
    let is_packed = response.headers().contains_key(header::CONTENT_ENCODING);
    caller.add(charges::answered(bytes, is_packed));
    response
}

/// What closes the connection of a request.
fn closing(request: &Request) -> Arc<Notify> {
    let closing = request.extensions().get::<Closing>();
    closing.map_or_else(Arc::default, |closing| Arc::clone(&closing.0))
}

/// How an answer may be compressed; looked at only where that was asked for.
struct Packing(HeaderMap);

impl Packing {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let asked = headers.get_all(header::ACCEPT_ENCODING);
        let asked = asked
            .iter()
            .map(|one| (header::ACCEPT_ENCODING, one.clone()));
        let asked: HeaderMap = asked.collect();
        (!asked.is_empty()).then_some(Self(asked))
    }

    async fn pack(self, response: Response) -> Response {
        let mut question = Request::default();
        *question.headers_mut() = self.0;
        let Ok(packed) = Compression::new(Made(response)).call(question).await;
        packed.map(Body::new)
    }
}

/// An answer that is there already, for what asks a service for one.
#[derive(Default)]
struct Made(Response);

impl Service<Request> for Made {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        ready(Ok(std::mem::take(&mut self.0)))
    }
}

/// Whether a browser asks on behalf of a page whether the page may ask.
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    open(headers);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ANY);
    // A star does not stand for this one.
    let allowed = HeaderValue::from_static("*, authorization");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_S);
    response
}

fn open(headers: &mut HeaderMap) {
    const OPEN: [HeaderName; 2] = [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ];
    for name in OPEN {
        headers.insert(name, ANY);
    }
}

/// Refusals of the HTTP stack as XRPC errors: unknown paths, wrong verbs, bodies too large.
fn shaped(response: Response) -> Response {
    let status = response.status();
    if !status.is_client_error() {
        return response;
    }
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain")) {
        return response;
    }
    let (name, message) = match status.as_u16() {
        404 => ("NotFound", "nothing is served at this path"),
        405 => ("InvalidRequest", "this path takes another HTTP method"),
        413 => (
            "PayloadTooLarge",
            "the body is larger than serve.body_bytes_max",
        ),
        _ => ("InvalidRequest", "the request is not well formed"),
    };
    let (mut parts, _) = response.into_parts();
    let body = serde_json::json!({"error": name, "message": message}).to_string();
    parts.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    Response::from_parts(parts, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::status::Status;
    use crate::store;

    const OTHER: &str = "/openapi.json";

    fn server(serve: &str) -> Arc<Server> {
        let text = format!(
            "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n[serve]\n{serve}"
        );
        let config = Config::parse(&text).unwrap();
        let store = store::open(&config).unwrap();
        let (plan, status) = (Arc::clone(store.plan()), Arc::new(Status::default()));
        Arc::new(Server::new(&config, plan, store, None, status, Clock::Wall))
    }

    /// How a stranger's request is answered.
    async fn ask(front: &Front, path: &str) -> StatusCode {
        let stranger = ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 1)));
        let request = Request::builder().uri(path).extension(stranger);
        let request = request.body(Body::empty()).unwrap();
        front.answer(request).await.status()
    }

    #[tokio::test]
    async fn probes_are_answered_where_nothing_else_is() {
        let server = server("requests_max = 1\nrate_max = 2\nrate_s = 3600\n");
        let front = Front::new(Arc::clone(&server), 1_000);
        let slot = server.slots.take(None).unwrap();
        assert_eq!(ask(&front, OTHER).await, 503, "no slot is free");
        for _ in 0..3 {
            for path in PROBES {
                let status = ask(&front, path).await;
                assert!(status == 200 || path == "/ready", "{path}: {status}");
                assert_ne!(status, 429, "{path}");
            }
        }
        drop(slot);
        assert_eq!(ask(&front, OTHER).await, 200);
        assert_eq!(ask(&front, OTHER).await, 429, "its share is used up");
        assert_eq!(ask(&front, SCRAPE).await, 429);
        assert_eq!(ask(&front, "/health").await, 200);
    }

    /// What is left of a stranger's share after one request.
    async fn left(server: &Arc<Server>, packed: bool) -> u32 {
        let front = Front::new(Arc::clone(server), 1_000);
        let stranger = ConnectInfo(SocketAddr::from(([10, 0, 0, 2], 1)));
        let mut left = 0;
        for _ in 0..200 {
            let mut request = Request::builder().uri(OTHER).extension(stranger);
            if packed {
                request = request.header(header::ACCEPT_ENCODING, "gzip");
            }
            let answer = front.answer(request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status(), 200);
            left = answer.headers()["ratelimit-remaining"]
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
        }
        left
    }

    #[tokio::test]
    async fn bytes_are_charged_and_packed_ones_more() {
        let limits = "rate_max = 10000\nrate_s = 3600\n";
        let plain = left(&server(limits), false).await;
        let packed = left(&server(limits), true).await;
        assert!(packed < plain && plain <= 9_800, "{packed} {plain}");
    }
}
