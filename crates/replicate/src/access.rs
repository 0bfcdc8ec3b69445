//! Access: who may read, append to and create spaces.
//!
//! In:    the settings, the tokens of the environment, the token that a request shows.
//! Out:   nothing where the request may go on; else the fault to answer with.
//! Never: a right because of the caller's address: every web page can reach the loopback
//!        address of the person who reads it; a token in a log or an answer; a comparison
//!        whose time depends on how much of a token is right.

use crate::settings::{LogSettings, Right, Who};
use axum::http::{HeaderMap, header};
use blocklog::block::Hash;
use blocklog::message::Fault;
use std::collections::BTreeSet;
use std::fmt;

/// The environment variable with the token that may do everything.
pub const TOKEN: &str = "FEEDMILL_LOG_TOKEN";
/// The WebSocket subprotocol of the log.
pub const PROTOCOL: &str = "feedmill.log";
/// A browser cannot set headers of a WebSocket: it shows its token as one more subprotocol.
const PROTOCOL_TOKEN: &str = "feedmill.token.";
/// Bytes of the longest token looked at.
const TOKEN_BYTES_MAX: usize = 1024;

/// The tokens that are believed. Only their hashes are held.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    hash: Hash,
    may: BTreeSet<Right>,
    /// `None`: every space.
    spaces: Option<BTreeSet<String>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Keys {
    /// The tokens in the environment: [`TOKEN`], and those that `log.tokens` names. An empty
    /// variable is none.
    ///
    /// # Errors
    /// The name of a variable that the settings name and the environment lacks.
    pub fn from_environment(settings: &LogSettings) -> Result<Self, String> {
        let filled = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let mut keys = Self::default();
        if let Some(token) = filled(TOKEN) {
            keys = keys.with(&token, &Right::ALL, None);
        }
        for setting in &settings.tokens {
            let token = filled(&setting.env).ok_or_else(|| setting.env.clone())?;
            keys = keys.with(&token, &setting.may, setting.spaces.clone());
        }
        Ok(keys)
    }

    /// The same with one more token, for some spaces or for all.
    #[must_use]
    pub fn with(mut self, token: &str, may: &[Right], spaces: Option<BTreeSet<String>>) -> Self {
        self.0.push(Key {
            hash: Hash::of(token.as_bytes()),
            may: may.iter().copied().collect(),
            spaces,
        });
        self
    }

    /// Whether `caller` may do this to `space` where the rule says `who`.
    ///
    /// # Errors
    /// That a token is needed, or that the caller's does not allow it.
    pub(crate) fn allow(
        &self,
        who: Who,
        right: Right,
        space: &str,
        caller: &Caller,
    ) -> Result<(), Fault> {
        match who {
            Who::Anyone => return Ok(()),
            Who::Nobody => return Err(Fault::NotAllowed),
            Who::Token => {}
        }
        let held: Vec<&Key> = self.0.iter().filter(|key| caller.holds(key)).collect();
        let fits = |key: &&&Key| {
            let here = key.spaces.as_ref().is_none_or(|all| all.contains(space));
            here && key.may.contains(&right)
        };
        match held.iter().find(fits) {
            Some(_) => Ok(()),
            None if held.is_empty() => Err(Fault::Unauthorized),
            None => Err(Fault::NotAllowed),
        }
    }
}

/// Who asks: the hash of the token that was shown, if one was.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller(Option<Hash>);

impl Caller {
    /// Who sent these headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| bearer(value.to_str().ok()?));
        let token = shown.or_else(|| {
            let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
            let mut names = offered.filter_map(|value| value.to_str().ok());
            names.find_map(|list| {
                let mut each = list.split(',').map(str::trim);
                each.find_map(|name| name.strip_prefix(PROTOCOL_TOKEN))
            })
        });
        let token = token.filter(|token| !token.is_empty() && token.len() <= TOKEN_BYTES_MAX);
        Self(token.map(|token| Hash::of(token.as_bytes())))
    }

    fn holds(&self, key: &Key) -> bool {
        self.0 == Some(key.hash)
    }
}

/// The token behind the scheme `Bearer`, in whatever case that is written.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &'static str, value: &str) -> Caller {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        Caller::of(&headers)
    }

    #[track_caller]
    fn check(who: Who, right: Right, space: &str, caller: Caller, expected: Result<(), Fault>) {
        let some = Some(BTreeSet::from(["chat".to_owned()]));
        let keys =
            Keys::default()
                .with("all", &Right::ALL, None)
                .with("some", &[Right::Read], some);
        assert_eq!(keys.allow(who, right, space, &caller), expected);
    }

    #[test]
    fn a_token_opens_what_it_is_for_and_nothing_else() {
        let (all, some) = ("Bearer all", "bearer  some");
        let name = "authorization";
        let unknown = Err(Fault::Unauthorized);
        let denied = Err(Fault::NotAllowed);
        let token = Who::Token;
        check(token, Right::Create, "any", caller(name, all), Ok(()));
        check(token, Right::Read, "chat", caller(name, some), Ok(()));
        check(
            token,
            Right::Append,
            "chat",
            caller(name, some),
            denied.clone(),
        );
        check(
            token,
            Right::Read,
            "other",
            caller(name, some),
            denied.clone(),
        );
        check(
            token,
            Right::Read,
            "chat",
            Caller::default(),
            unknown.clone(),
        );
        check(
            token,
            Right::Read,
            "chat",
            caller(name, "Bearer al"),
            unknown.clone(),
        );
        check(
            token,
            Right::Read,
            "chat",
            caller(name, "Basic all"),
            unknown,
        );
        check(Who::Anyone, Right::Create, "any", Caller::default(), Ok(()));
        check(Who::Nobody, Right::Read, "any", caller(name, all), denied);
        let offered = "feedmill.log, feedmill.token.all";
        let browser = caller("sec-websocket-protocol", offered);
        check(token, Right::Append, "any", browser, Ok(()));
    }
}
