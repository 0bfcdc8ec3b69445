//! What answers a method: the last part of its row.
//!
//! Methods under an NSID are all reached by one path and told apart by name
//! (`serve::xrpc`); what they need of a request differs, and that is the
//! difference between these. A plain path has a route of its own.

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter};

use crate::serve::error::XrpcError;
use crate::serve::params::Params;
use crate::serve::{Answer, Server};

type Answered = Result<Answer, XrpcError>;

/// What answers a method.
#[derive(Debug, Clone)]
pub(in crate::serve) enum Handler {
    /// A read, on a thread that may block.
    Read(fn(&Server, &Params) -> Answered),
    /// The same, of one collection.
    ReadOf(String, fn(&Server, &str, &Params) -> Answered),
    /// A page of the feed of the reader it names.
    Feed {
        read: fn(&Server, &Params) -> Answered,
        /// The answer, if it needs neither the store nor a wait.
        at_once: Option<fn(&Server, &Params) -> Option<Answer>>,
    },
    /// A page of the feed of the reader who asks.
    Skeleton,
    /// A feed as it changes.
    Subscribe,
    /// Word of records that were written.
    Notify,
    /// A path of its own.
    Route(fn(MethodFilter) -> MethodRouter<Arc<Server>>),
}
