//! The door of the direct API: who asks.
//!
//! In:    the `Authorization` header, and the secrets of the environment.
//! Out:   the app, a reader, or nobody.
//! Never: a comparison that tells by its time how much was right; a secret in
//!        a log or an answer; a page of another origin taken for the app
//!        because no token is needed: any page in the browser of whoever runs
//!        the server could write.
//!
//! A reader's token is the reader's id, the second it ends, and a MAC over
//! both. Nothing about it is kept: who holds the secret can mint and check.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::RwLock;
use replicate::origin::Origin;
use sha2::Sha256;

use crate::clock::Micros;
use crate::config;
use crate::local::LocalId;
use crate::secret::Secrets;
use crate::serve::error::XrpcError;

/// Bytes of the longest token looked at.
const TOKEN_BYTES_MAX: usize = 1024;
/// Says what kind of token it is, should there ever be another.
const KIND: &str = "fm1";

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// The app: it acts for whom it names.
    App,
    /// A reader, for himself.
    Reader(LocalId),
    /// Nobody said.
    Nobody,
}

/// Tells callers apart.
pub(super) struct Door {
    keys: RwLock<Arc<Keys>>,
    open: bool,
    /// Whose pages may use an open door without a token.
    origins: Vec<String>,
    token_us: i64,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// What callers are told apart by.
struct Keys {
    app_token: Option<String>,
    secret: Option<String>,
    /// Under which readers' tokens are made.
    key: Vec<u8>,
}

impl Keys {
    /// Without `FEEDMILL_SECRET` the key follows from the app token; without both it ends with the process.
    fn of(secrets: &Secrets) -> Self {
        let key = match (&secrets.secret, &secrets.app) {
            (Some(secret), _) => secret.clone().into_bytes(),
            (None, Some(token)) => mac(token.as_bytes(), b"reader tokens")
                .finalize()
                .into_bytes()
                .to_vec(),
            (None, None) => {
                let mut bytes = vec![0; 32];
                // Without randomness tokens could be guessed; the clock then decides nothing either.
                if getrandom::fill(&mut bytes).is_err() {
                    bytes.clear();
                }
                bytes
            }
        };
        Self {
            app_token: secrets.app.clone(),
            secret: secrets.secret.clone(),
            key,
        }
    }

    fn is_of(&self, secrets: &Secrets) -> bool {
        (&self.app_token, &self.secret) == (&secrets.app, &secrets.secret)
    }
}

impl Door {
    pub(super) fn new(secrets: &Secrets, settings: &config::Direct) -> Self {
        Self {
            keys: RwLock::new(Arc::new(Keys::of(secrets))),
            open: settings.open,
            origins: settings.origins.clone(),
            token_us: i64::from(settings.token_hours) * 3_600_000_000,
        }
    }

    /// Puts other secrets in force, if they are others; returns why not, if the app could not show
    /// any more who it is.
    pub(super) fn set_secrets(&self, secrets: &Secrets) -> Option<&'static str> {
        if self.keys.read().is_of(secrets) {
            return None;
        }
        if secrets.app.is_none() && !self.open {
            return Some("FEEDMILL_APP_TOKEN is empty now; the one before stays in force");
        }
        *self.keys.write() = Arc::new(Keys::of(secrets));
        None
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read())
    }

    /// Whether readers may name themselves.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// A token for a reader, and the second it ends.
    pub(super) fn mint(
        &self,
        reader: &LocalId,
        now_us: Micros,
    ) -> Result<(String, i64), XrpcError> {
        let keys = self.keys();
        if keys.key.is_empty() {
            return Err(XrpcError::internal());
        }
        let ends = (now_us + self.token_us) / 1_000_000;
        let claim = format!("{KIND}.{}.{ends}", URL_SAFE_NO_PAD.encode(reader.encoded()));
        let seal = mac(&keys.key, claim.as_bytes()).finalize().into_bytes();
        Ok((format!("{claim}.{}", URL_SAFE_NO_PAD.encode(seal)), ends))
    }

    /// Who makes a request of this method with these headers.
    pub(super) fn caller(
        &self,
        (method, headers): (&Method, &HeaderMap),
        now_us: Micros,
    ) -> Result<Caller, XrpcError> {
        let caller = self.shown(headers, now_us)?;
        let is_assumed = caller == Caller::App && !headers.contains_key(header::AUTHORIZATION);
        if is_assumed && Origin::of(method, headers, &self.origins) == Origin::Foreign {
            return Err(XrpcError::forbidden(
                "pages of other origins need a token here, or their origin in direct.origins",
            ));
        }
        Ok(caller)
    }

    /// Who shows these headers.
    pub(super) fn shown(&self, headers: &HeaderMap, now_us: Micros) -> Result<Caller, XrpcError> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            let unlocked = self.open && self.keys().app_token.is_none();
            return Ok(if unlocked {
                Caller::App
            } else {
                Caller::Nobody
            });
        };
        let bad = |message: &str| XrpcError::unauthorized("InvalidToken", message);
        let token = bearer(value)
            .ok_or_else(|| bad("the authorization header must be \"Bearer <token>\""))?;
        if self.is_the_app(token) {
            return Ok(Caller::App);
        }
        self.reader(token, now_us)
    }

    /// The same where other tokens are shown too: one that is none of ours is nobody's.
    pub(super) fn holder(&self, headers: &HeaderMap, now_us: Micros) -> Result<Caller, XrpcError> {
        let token = headers.get(header::AUTHORIZATION).and_then(bearer);
        let ours = |token: &str| token.split('.').next() == Some(KIND);
        match token {
            Some(token) if self.is_the_app(token) => Ok(Caller::App),
            Some(token) if ours(token) => self.reader(token, now_us),
            _ => Ok(Caller::Nobody),
        }
    }

    fn is_the_app(&self, token: &str) -> bool {
        let keys = self.keys();
        keys.app_token.as_ref().is_some_and(|expected| {
            // Both sides through a MAC: the comparison takes as long for any token.
            let seal = mac(&keys.key, expected.as_bytes()).finalize().into_bytes();
            mac(&keys.key, token.as_bytes()).verify(&seal).is_ok()
        })
    }

    fn reader(&self, token: &str, now_us: Micros) -> Result<Caller, XrpcError> {
        let unknown = || XrpcError::unauthorized("InvalidToken", "the token is not one of ours");
        let (claim, seal) = token.rsplit_once('.').ok_or_else(unknown)?;
        let seal = URL_SAFE_NO_PAD.decode(seal).map_err(|_| unknown())?;
        let keys = self.keys();
        let sealed = mac(&keys.key, claim.as_bytes()).verify_slice(&seal).is_ok();
        if !sealed || keys.key.is_empty() {
            return Err(unknown());
        }
        let mut parts = claim.split('.');
        let (Some(KIND), Some(id), Some(ends), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(unknown());
        };
        let id = URL_SAFE_NO_PAD
            .decode(id)
            .ok()
            .and_then(|bytes| LocalId::decode(std::str::from_utf8(&bytes).ok()?))
            .ok_or_else(unknown)?;
        let ends: i64 = ends.parse().map_err(|_| unknown())?;
        if now_us / 1_000_000 >= ends {
            return Err(XrpcError::unauthorized(
                "ExpiredToken",
                "the token has ended; ask the app for another",
            ));
        }
        Ok(Caller::Reader(id))
    }
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let token = crate::serve::bearer::shown(value)?;
    (token.len() <= TOKEN_BYTES_MAX).then_some(token)
}

fn mac(key: &[u8], message: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(message);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Door {
        let secrets = Secrets {
            app: Some("app".into()),
            secret: Some("secret".into()),
            ..Secrets::default()
        };
        Door::new(&secrets, &settings(false))
    }

    fn settings(open: bool) -> config::Direct {
        config::Direct {
            open,
            token_hours: 1,
            ..config::Direct::default()
        }
    }

    #[track_caller]
    fn caller(door: &Door, token: &str, now_us: i64) -> Result<Caller, &'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().unwrap(),
        );
        door.shown(&headers, now_us).map_err(|error| error.name)
    }

    #[test]
    fn a_reader_is_known_by_his_token_until_it_ends() {
        let id = LocalId::Text("anna@example.com".into());
        let (token, ends) = door().mint(&id, 0).unwrap();
        assert_eq!(ends, 3600);
        assert_eq!(
            caller(&door(), &token, 3_599_999_999),
            Ok(Caller::Reader(id))
        );
        assert_eq!(caller(&door(), &token, 3_600_000_000), Err("ExpiredToken"));
    }

    #[test]
    fn a_changed_token_is_nobodys() {
        let (token, _) = door().mint(&LocalId::Number(404), 0).unwrap();
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(
                caller(&door(), &changed, 0),
                Err("InvalidToken"),
                "{changed}"
            );
        }
        let other = Door::new(&Secrets::default(), &settings(false));
        assert_eq!(caller(&other, &token, 0), Err("InvalidToken"));
    }

    #[test]
    fn where_others_show_tokens_too_only_ours_are_looked_at() {
        let check = |token: &str, expected: Result<Caller, &str>| {
            let mut headers = HeaderMap::new();
            let value = format!("Bearer {token}").parse().unwrap();
            headers.insert(header::AUTHORIZATION, value);
            let found = door().holder(&headers, 0).map_err(|error| error.name);
            assert_eq!(found, expected, "{token}");
        };
        let id = LocalId::Number(404);
        let (token, _) = door().mint(&id, 0).unwrap();
        check(&token, Ok(Caller::Reader(id)));
        check("app", Ok(Caller::App));
        check("eyJ0.eyJp.c2ln", Ok(Caller::Nobody));
        check(&format!("{token}x"), Err("InvalidToken"));
    }

    #[test]
    fn only_the_whole_app_token_is_the_app() {
        assert_eq!(caller(&door(), "app", 0), Ok(Caller::App));
        for token in ["", "ap", "apps", "APP"] {
            assert_eq!(caller(&door(), token, 0), Err("InvalidToken"));
        }
    }

    #[test]
    fn without_a_header_only_an_open_door_without_a_token_lets_write() {
        let headers = HeaderMap::new();
        let at = |app: Option<&str>, open| {
            let secrets = Secrets {
                app: app.map(str::to_owned),
                ..Secrets::default()
            };
            Door::new(&secrets, &settings(open))
                .shown(&headers, 0)
                .unwrap()
        };
        assert_eq!(at(None, true), Caller::App);
        assert_eq!(at(Some("app"), true), Caller::Nobody);
        assert_eq!(at(None, false), Caller::Nobody);
    }

    #[test]
    fn other_secrets_count_at_once_and_the_same_ones_leave_tokens_valid() {
        let shown = |door: &Door, token: &str| {
            let mut headers = HeaderMap::new();
            let value = format!("Bearer {token}");
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            door.shown(&headers, 0).is_ok()
        };
        let secrets = |app: &str| Secrets {
            app: Some(app.into()),
            ..Secrets::default()
        };
        let door = Door::new(&secrets("one"), &settings(false));
        let (token, _) = door.mint(&LocalId::Number(7), 0).unwrap();
        assert_eq!(door.set_secrets(&secrets("one")), None);
        assert!(shown(&door, "one") && shown(&door, &token));
        assert_eq!(door.set_secrets(&secrets("two")), None);
        assert!(shown(&door, "two") && !shown(&door, "one") && !shown(&door, &token));
        assert!(door.set_secrets(&Secrets::default()).is_some());
        assert!(shown(&door, "two"), "the app is not locked out");
    }
}
