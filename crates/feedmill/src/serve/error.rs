//! Errors as XRPC clients know them: `{"error": "Name", "message": "text"}`.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tracing::error;

use crate::store::StoreError;

/// Seconds after which one who met our limits may come back.
const RETRY_S: &str = "1";

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XrpcError {
    pub status: StatusCode,
    pub name: &'static str,
    pub message: String,
}

impl XrpcError {
    fn new(status: StatusCode, name: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            name,
            message: message.into(),
        }
    }

    /// The request is wrong; the message says what is accepted.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequest", message)
    }

    /// The request is wrong in a way its method declares.
    pub fn declared(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, name, message)
    }

    /// Nobody we know asks; `name` says what is wrong with what was shown.
    pub fn unauthorized(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, name, message)
    }

    /// Somebody we know asks for what is not his.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// Somebody else was faster.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// There is no such record.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "RecordNotFound", message)
    }

    /// There is no such method.
    pub fn no_method(nsid: &str, others: &[&str]) -> Self {
        let served = match others {
            [] => "what is served is in /openapi.json".to_owned(),
            others => format!("there are: {}", others.join(", ")),
        };
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            "MethodNotImplemented",
            format!("method {nsid:?} is not served here; {served}"),
        )
    }

    /// We are busy or our store is; come back.
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "NotEnoughResources",
            message,
        )
    }

    /// It took too long.
    pub fn slow() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "UpstreamTimeout",
            "the request took too long and was ended; ask for a smaller page or fewer filters",
        )
    }

    /// Our fault; the cause stays with us.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            "internal server error",
        )
    }
}

impl From<StoreError> for XrpcError {
    fn from(cause: StoreError) -> Self {
        if matches!(cause, StoreError::Ended) {
            return Self::slow(); // the request's own doing, and counted
        }
        error!(%cause, "a request failed");
        match cause.passes() {
            true => Self::busy("the store cannot answer now; try again"),
            false => Self::internal(),
        }
    }
}

impl IntoResponse for XrpcError {
    fn into_response(self) -> Response {
        let body = serde_json::json!({"error": self.name, "message": self.message}).to_string();
        let mut response = (
            self.status,
            [(header::CONTENT_TYPE, "application/json")],
            body,
        )
            .into_response();
        if let StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT = self.status {
            let wait = header::HeaderValue::from_static(RETRY_S);
            response.headers_mut().insert(header::RETRY_AFTER, wait);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = header::HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
