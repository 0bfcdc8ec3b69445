//! `/admin/dlq`: dead letters for the operator.
//!
//! In:    requests with the operator's token.
//! Out:   dead letters as seed-shaped entries; what became of a replay.
//! Never: an answer without the token, or where none is set; a comparison
//!        whose time tells how much of a guess was right.

// A replay of many dead letters.
pub(super) mod job;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::RwLock;
use serde_json::json;

use super::cursor;
use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server, answer, feed, handles, records};
use crate::check::Checker;
use crate::clock::Micros;
use crate::dead::{self, ReplayError};
use crate::store::explain::meant;
use crate::store::plan::FeedPlan;
use crate::store::{Fate, LetterQuery, Position};

/// The environment variable that holds the operator's token.
pub const TOKEN: &str = crate::secret::ADMIN;

/// The greatest whole number that JavaScript holds as it is; as a time, the year 2255.
const JAVASCRIPT_MAX: Micros = (1 << 53) - 1;

/// What the operator's requests need.
#[derive(Debug)]
pub struct Admin {
    /// Without one every request is refused.
    token: RwLock<Option<String>>,
    /// Today's checks, for replays.
    pub checker: Arc<Checker>,
    /// The replay of many that runs.
    pub jobs: job::Jobs,
}

impl Admin {
    /// With a token, if one is set, and today's checks.
    pub fn new(token: Option<String>, checker: Arc<Checker>) -> Self {
        Self {
            token: RwLock::new(token),
            checker,
            jobs: job::Jobs::default(),
        }
    }

    /// Puts another token in force.
    pub fn set_token(&self, token: Option<String>) {
        *self.token.write() = token;
    }
}

/// Whether two texts are equal, in a time that depends on the guess alone.
pub(super) fn same(secret: &str, guess: &str) -> bool {
    let mut difference = secret.len() ^ guess.len();
    let mut secret = secret.bytes().cycle();
    for byte in guess.bytes() {
        difference |= usize::from(byte ^ secret.next().unwrap_or(!byte));
    }
    std::hint::black_box(difference) == 0
}

fn allowed<'s>(server: &'s Server, headers: &HeaderMap) -> Result<&'s Admin, Box<Response>> {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(super::bearer::shown);
    let admin = server.admin.as_ref();
    let token = admin.and_then(|admin| admin.token.read().clone());
    match (admin, token.as_deref(), given) {
        (Some(admin), Some(token), Some(given)) if !token.is_empty() && same(token, given) => {
            Ok(admin)
        }
        (_, None | Some(""), _) => Err(refused(&format!("no admin token is set; set {TOKEN}"))),
        _ => Err(refused(
            "an admin token is needed: Authorization: Bearer <token>",
        )),
    }
}

fn refused(message: &str) -> Box<Response> {
    let body = json!({"error": "AuthRequired", "message": message}).to_string();
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::WWW_AUTHENTICATE, "Bearer"),
    ];
    Box::new((StatusCode::UNAUTHORIZED, headers, body).into_response())
}

impl From<ReplayError> for XrpcError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Gone(_) => Self::not_found(error.to_string()),
            ReplayError::NoRecord { .. } => Self::declared("NotReplayable", error.to_string()),
            ReplayError::Store(cause) => cause.into(),
        }
    }
}

/// Answers with the operator's rights, on a thread that may block.
async fn admin<F>(server: Arc<Server>, headers: &HeaderMap, make: F) -> Response
where
    F: FnOnce(&Server, &Admin) -> Result<Answer, XrpcError> + Send + 'static,
{
    if let Err(refusal) = allowed(&server, headers) {
        return *refusal;
    }
    answer(server, move |server| match &server.admin {
        Some(admin) => make(server, admin),
        None => Err(XrpcError::internal()),
    })
    .await
}

/// `GET /admin/explain`: why a record is, or is not, in a reader's feeds, and who answers its pages.
pub(super) async fn explain(State(server): State<Arc<Server>>, request: Request) -> Response {
    let headers = request.headers().clone();
    let params = match Params::parse(request.uri().query()) {
        Ok(params) => params,
        Err(error) => return error.into_response(),
    };
    if let Err(refusal) = allowed(&server, &headers) {
        return *refusal;
    }
    if let Err(error) = handles::resolve(&server, &params).await {
        return error.into_response();
    }
    admin(server, &headers, move |server, _| {
        params.only(["reader", "uri", "feed"])?;
        let reader = server.actor(params.need("reader")?)?;
        let uri = params.need("uri")?;
        let plans = match params.get("feed") {
            Some(name) => vec![feed::named(server, name)?],
            None => server.plan.feeds.iter().collect(),
        };
        let mut feeds = Vec::new();
        for plan in plans {
            let Some(record) = record(server, plan, uri)? else {
                continue; // an app's id, and the feed shows nothing of an app's
            };
            let now_us = server.clock.now_us();
            let first_read = server.store.first_read(&reader, &plan.name, now_us)?;
            let explained = server.store.explain(&plan.name, &reader, &record)?;
            let explained = explained.map(|it| it.given(&reader, first_read, server.has_whole_accounts));
            let mut answer = serde_json::to_value(explained).unwrap_or_default();
            let memory = match (&server.fanout, server.store.key(&reader)?) {
                (Some(fanout), Some(number)) => fanout.standing(&plan.name, number),
                _ => None,
            };
            if let Some(fields) = answer.as_object_mut() {
                fields.insert("inMemory".to_owned(), json!(memory.is_some()));
                fields.insert("completeAboveUs".to_owned(), json!(memory.and_then(floor)));
            }
            feeds.push(answer);
        }
        if feeds.is_empty() {
            return Err(XrpcError::invalid(
                "uri must be at://<actor>/<collection>/<rkey>, or the id of a record written directly",
            ));
        }
        Ok(Answer::json(
            json!({"reader": reader, "uri": uri, "feeds": feeds}).to_string(),
        ))
    })
    .await
}

/// Where what is in memory ends; `None` if it is all there is. A number is one that JavaScript holds.
fn floor(complete_above_us: Micros) -> Option<Micros> {
    let floor_us = complete_above_us.min(JAVASCRIPT_MAX);
    (floor_us >= -JAVASCRIPT_MAX).then_some(floor_us)
}

/// The record that is meant: by its URI, or by the id that an app gave it, which not every feed can
/// show.
fn record(server: &Server, plan: &FeedPlan, name: &str) -> Result<Option<String>, XrpcError> {
    match name.starts_with("at://") {
        true => records::uri(server, name).map(Some),
        false => match server.names.record(name) {
            Some(id) => Ok(meant(&server.store, plan, &id)?),
            None => Ok(None),
        },
    }
}

fn number(text: &str) -> Result<i64, XrpcError> {
    text.parse()
        .map_err(|_| XrpcError::invalid(format!("{text:?} is not the number of a dead letter")))
}

/// The filter in a request's parameters.
fn filter(params: &Params) -> Result<LetterQuery, XrpcError> {
    let moment = |name: &str| match params.get(name) {
        None => Ok(None),
        Some(text) => record::datetime::parse_us(text).map(Some).ok_or_else(|| {
            XrpcError::invalid(format!(
                "{name} must be a time such as 2026-01-31T00:00:00Z"
            ))
        }),
    };
    Ok(LetterQuery {
        collection: params.get("collection").map(str::to_owned),
        stage: params.get("stage").map(str::to_owned),
        did: params.get("did").map(str::to_owned),
        since_us: moment("since")?,
        until_us: moment("until")?,
        before: None,
        limit: params.limit()?,
    })
}

const FILTERS: [&str; 5] = ["collection", "stage", "did", "since", "until"];

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let query = request.uri().query().map(str::to_owned);
    admin(server, &headers, move |server, _| {
        let params = Params::parse(query.as_deref())?;
        params.only(FILTERS.into_iter().chain(["limit", "cursor"]))?;
        let mut query = filter(&params)?;
        if let Some(text) = params.get("cursor") {
            query.before = Some(cursor::read("dlq", text)?.time_us);
        }
        let limit = query.limit;
        query.limit += 1; // one more tells whether there is more
        let mut letters = server.store.letters(&query)?;
        let more = letters.len() > limit;
        letters.truncate(limit);
        let entries: Vec<_> = letters.iter().map(dead::entry).collect();
        let mut page = json!({"entries": entries, "total": server.store.count_dead(&query)?});
        if let (true, Some(last), Some(page)) = (more, letters.last(), page.as_object_mut()) {
            let position = Position {
                time_us: last.id,
                uri: String::new(),
            };
            page.insert("cursor".into(), cursor::write("dlq", &position).into());
        }
        Ok(Answer::json(page.to_string()))
    })
    .await
}

pub(super) async fn show(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    admin(server, &headers, move |server, _| {
        let id = number(&id)?;
        let letter = server.store.letter(id)?.ok_or(ReplayError::Gone(id))?;
        Ok(Answer::json(dead::entry(&letter).to_string()))
    })
    .await
}

pub(super) async fn replay(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    admin(server, &headers, move |server, admin| {
        let now_us = server.clock.now_us();
        let done = dead::replay(&*server.store, &admin.checker, now_us, number(&id)?)?;
        let mut shown = json!({"id": id, "result": done.fate.word()});
        if let (Some(letter), Some(fields)) = (&done.letter, shown.as_object_mut()) {
            fields.insert("error".into(), dead::reason(letter));
        }
        Ok(Answer::json(shown.to_string()))
    })
    .await
}

pub(super) async fn discard(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    admin(server, &headers, move |server, _| {
        let id = number(&id)?;
        match server.store.discard(server.clock.now_us(), id)? {
            Fate::Gone => Err(ReplayError::Gone(id).into()),
            _ => Ok(Answer::json(json!({"deleted": true}).to_string())),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::{JAVASCRIPT_MAX, floor, same};

    #[test]
    fn only_the_whole_token_is_the_token() {
        assert!(same("secret", "secret"));
        for guess in ["", "secre", "secrets", "secretsecret", "Secret", "s"] {
            assert!(!same("secret", guess), "{guess}");
        }
    }

    #[test]
    fn a_floor_is_a_number_that_javascript_holds_or_none() {
        assert_eq!(floor(i64::MIN), None);
        assert_eq!(floor(1_790_000_000_000_000), Some(1_790_000_000_000_000));
        assert_eq!(floor(-5), Some(-5));
        assert_eq!(floor(i64::MAX), Some(JAVASCRIPT_MAX));
    }
}
