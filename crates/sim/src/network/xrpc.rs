//! Answers and refusals of XRPC methods.
//!
//! In:    the query of a request.
//! Out:   JSON, or `{"error": …, "message": …}` with the right status.
//! Never: a panic for a parameter that is missing or malformed.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::account::Account;
use crate::world::World;

/// A refusal.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) error: &'static str,
    pub(super) message: String,
}

impl Refusal {
    /// A 400 with the error's name.
    pub(super) fn new(error: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error,
            message: message.into(),
        }
    }

    /// A parameter is missing or malformed.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new("InvalidRequest", message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.error, "message": self.message });
        (self.status, Json(body)).into_response()
    }
}

/// What a JSON method returns.
pub(super) type Answer = Result<Json<Value>, Refusal>;

/// The object with a field more, if there is a value for it.
pub(super) fn with(mut body: Value, key: &str, value: Option<impl Into<Value>>) -> Value {
    if let (Value::Object(fields), Some(value)) = (&mut body, value) {
        fields.insert(key.to_owned(), value.into());
    }
    body
}

/// The parameters of a request, of which any may come several times.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// The first value of `name`.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// All values of `name`.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A value that must be there.
    pub(super) fn need(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name)
            .ok_or_else(|| Refusal::invalid(format!("parameter {name} is missing")))
    }

    /// A number between 1 and `max`, or `default`.
    pub(super) fn limit(&self, default: usize, max: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get("limit") else {
            return Ok(default);
        };
        match text.parse() {
            Ok(limit) if (1..=max).contains(&limit) => Ok(limit),
            _ => Err(Refusal::invalid(format!("limit must be 1 to {max}"))),
        }
    }
}

/// The account a DID or handle names.
pub(super) fn find<'w>(world: &'w World, identifier: &str) -> Result<&'w Account, Refusal> {
    world
        .account(identifier)
        .or_else(|| world.by_handle(identifier))
        .ok_or_else(|| Refusal::new("RepoNotFound", format!("could not find repo {identifier}")))
}

/// The account, if its repository is served.
pub(super) fn find_served<'w>(world: &'w World, identifier: &str) -> Result<&'w Account, Refusal> {
    use crate::model::Standing;
    let account = find(world, identifier)?;
    let error = match account.standing {
        Standing::Takendown => "RepoTakendown",
        Standing::Suspended => "RepoSuspended",
        Standing::Deactivated => "RepoDeactivated",
        Standing::Deleted => "RepoNotFound",
        Standing::Active | Standing::Desynchronized | Standing::Throttled => return Ok(account),
    };
    Err(Refusal::new(error, format!("no repo of {identifier} here")))
}
