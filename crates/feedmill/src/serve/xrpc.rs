//! XRPC: from a method's name to its row in the table, and to its answer.
//!
//! In:    requests under `/xrpc/`.
//! Out:   what the row's handler answers; who asked, where a token says so,
//!        counted and told how far his own repository is read.
//! Never: a method that is not in the table; a parameter that its row does not
//!        have; another's feed where methods are private; what is written
//!        directly, without a token of the direct API.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, header};
use axum::response::{IntoResponse, Response};

use super::caller::Caller;
use super::error::XrpcError;
use super::methods::handler::Handler;
use super::methods::shape::Shape;
use super::methods::{Auth, Method, Place, Verb};
use super::params::{Asker, Params};
use super::{
    Answer, Server, blocking, first_read, generator, handles, labelers, notify, rate, reply,
    subscribe,
};

/// Tells a host how far we have read its account's repository, so that it can add what is newer.
const REPO_REV: HeaderName = HeaderName::from_static("atproto-repo-rev");

/// The rows of the table that are asked for by name.
#[derive(Debug)]
pub(super) struct Methods(HashMap<String, Arc<Method>>);

impl Methods {
    pub(super) fn new(table: &[Method]) -> Self {
        let named = table.iter().filter_map(|method| {
            let nsid = method.nsid.clone()?;
            Some((nsid, Arc::new(method.clone())))
        });
        Self(named.collect())
    }

    fn get(&self, nsid: &str) -> Result<Arc<Method>, XrpcError> {
        match self.0.get(nsid) {
            Some(method) => Ok(Arc::clone(method)),
            None if record::ids::Nsid::is_valid(nsid) => {
                // Whoever errs in the collection is told those that can be asked the same.
                let name = nsid.rsplit('.').next();
                let same = self.0.keys().map(String::as_str);
                let mut same: Vec<&str> = same.filter(|it| it.rsplit('.').next() == name).collect();
                same.sort_unstable();
                Err(XrpcError::no_method(nsid, &same))
            }
            None => Err(XrpcError::invalid("invalid xrpc path")),
        }
    }
}

/// The name of the method that a path asks for, if it asks for one. What begins like `_health`
/// is no name, but a path as any other.
pub(super) fn name(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/xrpc/")?;
    (!name.is_empty() && !name.starts_with('_') && !name.contains('/')).then_some(name)
}

pub(super) async fn call(server: Arc<Server>, request: Request) -> Response {
    let answered = answer(server, request).await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(server: Arc<Server>, request: Request) -> Result<Response, XrpcError> {
    let nsid = name(request.uri().path()).unwrap_or_default();
    let method = server.methods.get(nsid)?;
    fits(&method, request.method())?;
    let is_list = |name: &str| {
        let mut lists = method.parameters.iter();
        lists.any(|one| one.name == name && matches!(one.shape, Shape::List(_)))
    };
    let mut params = Params::with_lists(request.uri().query(), is_list)?;
    let taken = method.parameters.iter();
    let taken = taken.filter(|one| one.place == Place::Query);
    params.only(taken.map(|one| one.name.as_str()))?;
    params.labelers = labelers::of(&server, &method, &params, request.headers())?;
    let applied = params.labelers.clone();
    let mut response = asked(server, &method, params, request).await?;
    labelers::tell(&applied, response.headers_mut());
    Ok(response)
}

/// The same, once it is known who asks.
async fn asked(
    server: Arc<Server>,
    method: &Arc<Method>,
    mut params: Params,
    request: Request,
) -> Result<Response, XrpcError> {
    params.asker = holder(&server, method, request.headers())?;
    if params.asker != Asker::Nobody {
        return handled(server, method, None, params, request).await;
    }
    let Some(account) = account(&server, method, request.headers()).await? else {
        return handled(server, method, None, params, request).await;
    };
    // Who asks matters beyond his share only where a method is private.
    if method.auth == Auth::Service {
        params.asker = Asker::Account(account.clone());
    }
    Caller::prove(&account);
    let now_s = server.clock.now_us() / 1_000_000;
    let asker = rate::Asker::Account(account.clone());
    let standing = match server.rates.take(asker, 1, now_s) {
        Ok(standing) => standing,
        Err(standing) => return Ok(standing.refusal(now_s)),
    };
    // Before the page is read: what it says must not be newer than the page.
    let rev = match method.verb {
        Verb::Get => revision(&server, &account).await?,
        _ => None,
    };
    let mut response = handled(server, method, Some(account), params, request).await?;
    if let Some(rev) = rev {
        response.headers_mut().insert(REPO_REV, rev);
    }
    if let Some(standing) = standing {
        response.extensions_mut().insert(standing);
    }
    Ok(response)
}

/// Refuses a verb that the method does not have.
fn fits(method: &Method, verb: &HttpMethod) -> Result<(), XrpcError> {
    let expected = method.verb.name();
    let head = verb == HttpMethod::HEAD && method.verb == Verb::Get;
    match head || verb.as_str() == expected {
        true => Ok(()),
        false => Err(XrpcError::invalid(format!(
            "Incorrect HTTP method ({verb}) expected {expected}"
        ))),
    }
}

/// Who shows a token of the direct API, where the method looks at that.
fn holder(server: &Server, method: &Method, headers: &HeaderMap) -> Result<Asker, XrpcError> {
    let Some(direct) = &server.direct else {
        return Ok(Asker::Nobody);
    };
    let now_us = server.clock.now_us();
    match (method.auth, &method.handler) {
        (Auth::AppOrReader, _) => direct.known(headers, now_us),
        (_, Handler::Feed { .. } | Handler::Subscribe) => direct.asker(headers, now_us),
        (Auth::Service, _) => Ok(Asker::Nobody),
        (_, Handler::Read(_)) => direct.asker(headers, now_us),
        _ => Ok(Asker::Nobody),
    }
}

/// The account that asks, where the method looks at that.
async fn account(
    server: &Server,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Option<String>, XrpcError> {
    let needed = match method.auth {
        Auth::Service => true,
        Auth::ServiceMaybe if headers.contains_key(header::AUTHORIZATION) => false,
        _ => return Ok(None),
    };
    let now_s = server.clock.now_us() / 1_000_000;
    let generator = server.generator.as_ref().ok_or_else(XrpcError::internal)?;
    let nsid = method.nsid.as_deref().unwrap_or_default();
    let account = generator.bearers.account(headers, nsid, now_s).await?;
    match account {
        None if needed => Err(XrpcError::unauthorized(
            "AuthenticationRequired",
            "authorization header required",
        )),
        account => Ok(account),
    }
}

/// How far we have read an account's own repository, as the network writes it.
async fn revision(server: &Arc<Server>, did: &str) -> Result<Option<HeaderValue>, XrpcError> {
    let at_once = server.fanout.as_ref().and_then(|it| it.rev_at_once(did));
    let rev = match at_once {
        Some(rev) => rev,
        None => {
            let did = did.to_owned();
            let look = move |server: &Server| match &server.fanout {
                Some(fanout) => Ok(fanout.rev(&did)?),
                None => Ok(server.store.account(&did)?.map_or(0, |known| known.rev)),
            };
            blocking(Arc::clone(server), look).await?
        }
    };
    let text = || record::tid::Tid::from_bits(rev).to_string();
    Ok((rev > 0).then(text).and_then(|text| text.parse().ok()))
}

/// What the method's handler answers, and to whom.
async fn handled(
    server: Arc<Server>,
    method: &Arc<Method>,
    account: Option<String>,
    mut params: Params,
    request: Request,
) -> Result<Response, XrpcError> {
    let client = request.extensions().get::<rate::Client>();
    params.is_from_elsewhere = client.is_some_and(|client| client.0.is_some());
    params.account.clone_from(&account);
    handles::resolve(&server, &params).await?;
    match &method.handler {
        Handler::Skeleton => generator::skeleton(server, account, params, request).await,
        Handler::Subscribe => subscribe::subscribe(server, params, request).await,
        Handler::Notify => {
            let issuer = account.filter(|_| method.auth == Auth::Service);
            notified(server, issuer, request).await
        }
        Handler::Feed { at_once, .. } => {
            let word = first_read::before(&server, &params).await;
            params.is_incomplete = word.is_some();
            if word.is_none()
                && let Some(answer) = at_once.and_then(|at_once| at_once(&server, &params))
            {
                return Ok(reply::json(answer, tags(&request)));
            }
            let mark = move |answer| match word {
                Some(word) => word.mark(answer),
                None => answer,
            };
            read(server, method, params, request, mark).await
        }
        _ => read(server, method, params, request, |answer| answer).await,
    }
}

fn tags(request: &Request) -> Option<&HeaderValue> {
    request.headers().get(header::IF_NONE_MATCH)
}

/// Reads on a thread that may block.
async fn read(
    server: Arc<Server>,
    method: &Arc<Method>,
    params: Params,
    request: Request,
    mark: impl FnOnce(Answer) -> Answer + Send,
) -> Result<Response, XrpcError> {
    let method = Arc::clone(method);
    let read = move |server: &Server| match &method.handler {
        Handler::Read(read) | Handler::Feed { read, .. } => read(server, &params),
        Handler::ReadOf(collection, read) => read(server, collection, &params),
        // They are answered elsewhere.
        Handler::Skeleton | Handler::Subscribe | Handler::Notify | Handler::Route(_) => {
            Err(XrpcError::internal())
        }
    };
    let answer = mark(blocking(server, read).await?);
    Ok(reply::json(answer, tags(&request)))
}

/// Answers who says that records were written.
async fn notified(
    server: Arc<Server>,
    issuer: Option<String>,
    request: Request,
) -> Result<Response, XrpcError> {
    let client = request.extensions().get::<rate::Client>().copied();
    // A body is read only of who may notify.
    let notifier = notify::admit(&server, issuer.as_deref(), request.headers())?;
    let body = match axum::body::Bytes::from_request(request, &()).await {
        Ok(body) => body,
        Err(rejection) => return Ok(rejection.into_response()),
    };
    notify::answer(&server, notifier, issuer.as_deref(), client, &body).await
}
