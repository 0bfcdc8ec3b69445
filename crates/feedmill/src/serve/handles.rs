//! Handles in requests, resolved before a thread that may block is taken.
//!
//! In:    the parameters of a request.
//! Out:   what its handles mean, where the resolver remembers it.
//! Never: a thread that waits for a stranger's server; a request that waits for
//!        its handle where more are being resolved than `identity.handles_max`
//!        allows: that one is refused, and all others go on; more than
//!        `TOLD_MAX` of those that wait for the store, for each holds a slot.

use std::sync::Arc;

use metrics::counter;

use super::error::XrpcError;
use super::params::Params;
use super::{Server, blocking};
use crate::identity::IdentityError;
use crate::metrics as names;

/// Requests whose handles cannot be resolved now and that wait for what the streams told of them.
pub(super) const TOLD_MAX: usize = 64;
/// Parameters that name an account, or begin with one.
const NAMING: [&str; 4] = ["actor", "did", "reader", "uri"];

/// Resolves every handle that a request names.
pub(super) async fn resolve(server: &Arc<Server>, params: &Params) -> Result<(), XrpcError> {
    if server.handles.is_none() {
        return Ok(());
    }
    for name in NAMING {
        let Some(value) = params.get(name) else {
            continue;
        };
        let authority = match value.strip_prefix("at://") {
            Some(rest) => rest.split('/').next().unwrap_or_default(),
            None => value,
        };
        if server.is_handle(authority) {
            one(server, authority.to_ascii_lowercase()).await?;
        }
    }
    Ok(())
}

async fn one(server: &Arc<Server>, handle: String) -> Result<(), XrpcError> {
    let Some(resolver) = &server.handles else {
        return Ok(());
    };
    // Where the world cannot be asked, what the streams told is the best there is.
    let Err(IdentityError::Later(_)) = resolver.did_of(&handle).await else {
        return Ok(());
    };
    let Ok(_waiting) = server.handles_told.try_acquire() else {
        return Err(refusal());
    };
    let told = move |server: &Server| Ok(server.store.did_of(&handle)?);
    match blocking(Arc::clone(server), told).await? {
        Some(_) => Ok(()),
        None => Err(refusal()),
    }
}

fn refusal() -> XrpcError {
    counter!(names::LIMITED, "by" => "handles").increment(1);
    XrpcError::busy("too many handles are being resolved; try again, or give the DID")
}
