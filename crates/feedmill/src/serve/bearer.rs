//! Bearers: which account asks, by the service-auth token that its host made.
//!
//! In:    the `Authorization` header, and the method that was called.
//! Out:   the account's DID; nobody where no token is shown.
//! Never: a token taken twice; a token believed on its own word; more tokens
//!        remembered than `USED_MAX`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use quick_cache::sync::Cache;

use super::error::XrpcError;
use super::jwt::Token;
use crate::identity::{IdentityError, Resolver};

/// Tokens remembered, so that none is taken twice.
const USED_MAX: usize = 100_000;
/// Tokens believed again without looking at their signatures, and for how long at most.
const BELIEVED_MAX: usize = 50_000;
const BELIEVED_S_MAX: i64 = 300;

/// Knows accounts by their tokens.
#[derive(Debug)]
pub struct Bearers {
    /// Who we are: tokens must be for us.
    did: String,
    resolver: Arc<Resolver>,
    used: Cache<(String, String), ()>,
    /// Tokens that may come again and were believed lately, by what they were for: their account, and until when.
    believed: Cache<(String, String), (String, i64)>,
}

impl Bearers {
    /// Tokens for `did`, signed with keys that `resolver` finds.
    pub fn new(did: String, resolver: Arc<Resolver>) -> Self {
        Self {
            did,
            resolver,
            used: Cache::new(USED_MAX),
            believed: Cache::new(BELIEVED_MAX),
        }
    }

    /// The account that the headers prove; `None` if nobody is named.
    pub(super) async fn account(
        &self,
        headers: &HeaderMap,
        method: &str,
        now_s: i64,
    ) -> Result<Option<String>, XrpcError> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(None);
        };
        let text = value
            .to_str()
            .ok()
            .and_then(|text| text.strip_prefix("Bearer "))
            .ok_or_else(|| {
                XrpcError::unauthorized("BadJwt", "send \"Authorization: Bearer <jwt>\"")
            })?;
        let known = (method.to_owned(), text.to_owned());
        if let Some((did, until_s)) = self.believed.get(&known)
            && now_s < until_s
        {
            return Ok(Some(did));
        }
        let token = Token::parse(text)?;
        token.check(&self.did, method, now_s)?;
        let did = token.issuer()?;
        // A key may have changed since we last looked.
        if token.verify(&self.key(did).await?).is_err() {
            self.resolver.forget(did);
            token.verify(&self.key(did).await?)?;
        }
        if let Some(jti) = &token.claims.jti {
            let name = (did.to_owned(), jti.clone());
            if !self.is_new(&name) {
                return Err(XrpcError::unauthorized("BadJwt", "jwt was used before"));
            }
        } else {
            let until_s = token.claims.exp.min(now_s + BELIEVED_S_MAX);
            self.believed.insert(known, (did.to_owned(), until_s));
        }
        Ok(Some(did.to_owned()))
    }

    /// Whether a token's number comes for the first time; of several at once, one is the first.
    fn is_new(&self, name: &(String, String)) -> bool {
        let mut new = false;
        let Ok::<(), Infallible>(()) = self.used.get_or_insert_with(name, || {
            new = true;
            Ok(())
        });
        new
    }

    async fn key(&self, did: &str) -> Result<record::key::PublicKey, XrpcError> {
        self.resolver.key(did).await.map_err(|error| match error {
            IdentityError::Unreachable(_) | IdentityError::Nameless(_) | IdentityError::Silent => {
                XrpcError::busy("the issuer's DID document cannot be fetched now; try again")
            }
            IdentityError::Forbidden(_) => {
                XrpcError::unauthorized("BadJwtIss", "jwt issuer is not on a public host")
            }
            IdentityError::Missing => {
                XrpcError::unauthorized("BadJwtIss", "jwt issuer is not registered")
            }
            IdentityError::Unresolvable(why) => XrpcError::unauthorized("BadJwtIss", why),
        })
    }
}
