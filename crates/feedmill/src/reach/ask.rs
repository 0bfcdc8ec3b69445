//! A request to a host that somebody else named, and its answer.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::fetch::FetchError;
use crate::host::{Cause, Load};

/// Redirects followed.
pub(super) const REDIRECTS_MAX: usize = 3;
/// Bytes of the largest document or status.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the largest page of a list, and of the largest answer with one record.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Time for an answer that is no archive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    pub(super) cause: Cause,
    pub(super) url: &'a str,
    pub(super) load: Load,
    pub(super) is_named: bool,
    pub(super) host: Option<&'a str>,
    pub(super) body: Option<String>,
    pub(super) bearer: Option<&'a str>,
    pub(super) redirects_max: usize,
    /// `None`: only the status is wanted.
    pub(super) bytes_max: Option<usize>,
    pub(super) timeout: Duration,
}

impl<'a> Ask<'a> {
    /// A document at an address that a stranger named.
    pub fn new(cause: Cause, url: &'a str) -> Self {
        Self {
            cause,
            url,
            load: Load::Light,
            is_named: false,
            host: None,
            body: None,
            bearer: None,
            redirects_max: REDIRECTS_MAX,
            bytes_max: Some(DOCUMENT_BYTES_MAX),
            timeout: TIMEOUT,
        }
    }

    /// The operator named this address: it may be anywhere.
    #[must_use]
    pub fn named(mut self) -> Self {
        self.is_named = true;
        self
    }

    /// It costs the host more than a document, so few run at a time.
    #[must_use]
    pub fn heavy(mut self) -> Self {
        self.load = Load::Heavy;
        self
    }

    /// The server answers for many hosts; this one is meant.
    #[must_use]
    pub fn of_host(mut self, host: &'a str) -> Self {
        self.host = Some(host);
        self
    }

    /// Posts JSON; redirects are not followed.
    #[must_use]
    pub fn posting(self, json: String) -> Self {
        let body = Some(json);
        Self { body, ..self }.without_redirects()
    }

    #[must_use]
    pub fn bearing(mut self, token: &'a str) -> Self {
        self.bearer = Some(token).filter(|token| !token.is_empty());
        self
    }

    /// Only who was asked may answer.
    #[must_use]
    pub fn without_redirects(mut self) -> Self {
        self.redirects_max = 0;
        self
    }

    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = Some(bytes_max);
        self
    }

    /// Only the status is wanted: the body is not read.
    #[must_use]
    pub fn status_only(mut self) -> Self {
        self.bytes_max = None;
        self
    }

    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether one server that the operator named answers, and no stranger decides how slowly.
    pub(super) fn is_of_operator(&self) -> bool {
        self.is_named && self.host.is_none()
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The reply, if it is what was asked for.
    pub fn good(self) -> Result<Self, FetchError> {
        match self.is_success() {
            true => Ok(self),
            false => Err(FetchError::Status(self.status)),
        }
    }

    pub fn json<T: DeserializeOwned>(&self) -> Result<T, FetchError> {
        serde_json::from_slice(&self.body).map_err(|_| FetchError::Nonsense)
    }
}
