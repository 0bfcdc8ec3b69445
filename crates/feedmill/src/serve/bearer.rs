//! Bearers: which account asks, by the service-auth token that its host made.
//!
//! In:    the `Authorization` header, and the method that was called.
//! Out:   the account's DID; nobody where no token is shown.
//! Never: a token taken twice; a token believed on its own word.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};

use super::caller::Caller;
use super::charges::SIGNATURE_STEPS;
use super::error::XrpcError;
use super::jwt::Token;
use super::tokens::Tokens;
use crate::identity::{IdentityError, Resolver};

/// How long a token is believed without another look at its signature.
const BELIEVED_S_MAX: i64 = 300;

/// The token behind the scheme `Bearer`, in whatever case that is written.
pub(super) fn shown(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Knows accounts by their tokens.
#[derive(Debug)]
pub struct Bearers {
    /// Who we are: tokens must be for us.
    did: String,
    resolver: Arc<Resolver>,
    tokens: Tokens,
}

impl Bearers {
    /// Tokens for `did`, signed with keys that `resolver` finds.
    pub fn new(did: String, resolver: Arc<Resolver>) -> Self {
        Self {
            did,
            resolver,
            tokens: Tokens::default(),
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
        let text = shown(value).ok_or_else(|| {
            XrpcError::unauthorized("BadJwt", "send \"Authorization: Bearer <jwt>\"")
        })?;
        if let Some(did) = self.tokens.believed(method, text, now_s) {
            return Ok(Some(did));
        }
        let token = Token::parse(text)?;
        token.check(&self.did, method, now_s)?;
        let did = token.issuer()?;
        self.verify(&token, did).await?;
        if let Some(jti) = &token.claims.jti {
            if !self.tokens.is_new(did, jti) {
                return Err(XrpcError::unauthorized("BadJwt", "jwt was used before"));
            }
        } else {
            let until_s = token.claims.exp.min(now_s + BELIEVED_S_MAX);
            self.tokens.believe(method, text, did, until_s);
        }
        Ok(Some(did.to_owned()))
    }

    /// Holds a token against its issuer's key, which may have changed since we last looked.
    async fn verify(&self, token: &Token<'_>, did: &str) -> Result<(), XrpcError> {
        let (key, is_fresh) = self.resolver.token_key(did).await.map_err(unknown)?;
        Caller::cost(SIGNATURE_STEPS);
        let Err(bad) = token.verify(&key) else {
            return Ok(());
        };
        if is_fresh {
            return Err(bad);
        }
        match self.resolver.token_key_anew(did).await.map_err(unknown)? {
            Some(key) => {
                Caller::cost(SIGNATURE_STEPS);
                token.verify(&key)
            }
            None => Err(bad),
        }
    }
}

/// What is said of an issuer whose key is not known.
fn unknown(error: IdentityError) -> XrpcError {
    match error {
        IdentityError::Unreachable(_) | IdentityError::Later(_) | IdentityError::Silent => {
            XrpcError::busy("the issuer's DID document cannot be fetched now; try again")
        }
        IdentityError::Forbidden(_) => {
            XrpcError::unauthorized("BadJwtIss", "jwt issuer is not on a public host")
        }
        IdentityError::Missing => {
            XrpcError::unauthorized("BadJwtIss", "jwt issuer is not registered")
        }
        IdentityError::Unresolvable(why) => XrpcError::unauthorized("BadJwtIss", why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &'static str, expected: Option<&str>) {
        assert_eq!(shown(&HeaderValue::from_static(value)), expected, "{value}");
    }

    #[test]
    fn the_scheme_is_read_in_any_case() {
        check("Bearer abc", Some("abc"));
        check("bearer abc", Some("abc"));
        check("BEARER  abc", Some("abc"));
        check("Basic abc", None);
        check("Bearerabc", None);
        check("Bearer ", None);
    }
}
