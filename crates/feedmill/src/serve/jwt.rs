//! Service-auth tokens: which account asks through its host.
//!
//! In:    a JWT, our DID, the method that was called, the time, and the issuer's key.
//! Out:   the issuer; or the error that the network's clients know by name.
//! Never: an algorithm other than ES256 and ES256K; a token for another
//!        service, another method or another purpose; a token believed before
//!        its signature is checked.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use record::key::PublicKey;
use serde::Deserialize;

use super::error::XrpcError;

/// Bytes of the longest token looked at.
const TOKEN_BYTES_MAX: usize = 8192;
/// Seconds that clocks may differ.
const LEEWAY_S: i64 = 5;
/// Seconds that a token may be good for at most.
const LIFETIME_S_MAX: i64 = 3600;

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    /// Fields of the header that must be understood; we understand none.
    crit: Option<serde_json::Value>,
}

/// What a token says of itself.
#[derive(Debug, Clone, Deserialize)]
pub struct Claims {
    /// The account, perhaps with the service that acts for it.
    pub iss: String,
    pub aud: String,
    pub exp: i64,
    pub iat: Option<i64>,
    /// It is not good before this time.
    pub nbf: Option<i64>,
    /// The method that it is for.
    pub lxm: Option<String>,
    /// A number used once.
    pub jti: Option<String>,
}

/// A token that was read and not yet believed.
#[derive(Debug)]
pub struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    pub claims: Claims,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Es256,
    Es256k,
}

fn refused(name: &'static str, message: impl Into<String>) -> XrpcError {
    XrpcError::unauthorized(name, message)
}

impl<'a> Token<'a> {
    /// Reads a token.
    pub fn parse(text: &'a str) -> Result<Self, XrpcError> {
        let bad = || refused("BadJwt", "poorly formatted jwt");
        if text.len() > TOKEN_BYTES_MAX {
            return Err(bad());
        }
        let (signed, signature) = text.rsplit_once('.').ok_or_else(bad)?;
        let (header, claims) = signed.split_once('.').ok_or_else(bad)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| bad());
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| bad())?;
        let kind = header.typ.as_deref().map(str::to_ascii_lowercase);
        if let Some(kind @ ("at+jwt" | "refresh+jwt" | "dpop+jwt")) = kind.as_deref() {
            return Err(refused("BadJwtType", format!("invalid jwt type {kind:?}")));
        }
        if header.crit.is_some() {
            let message = "jwt header fields in \"crit\" are not understood here";
            return Err(refused("BadJwt", message));
        }
        let algorithm = match header.alg.as_str() {
            "ES256" => Algorithm::Es256,
            "ES256K" => Algorithm::Es256k,
            other => {
                let message = format!("unsupported jwt algorithm {other:?}; use ES256 or ES256K");
                return Err(refused("BadJwt", message));
            }
        };
        Ok(Self {
            signed,
            signature: decode(signature)?,
            algorithm,
            claims: serde_json::from_slice(&decode(claims)?).map_err(|_| bad())?,
        })
    }

    /// Whether it is meant for us, for this method, now.
    pub fn check(&self, audience: &str, method: &str, now_s: i64) -> Result<(), XrpcError> {
        let claims = &self.claims;
        if now_s > claims.exp.saturating_add(LEEWAY_S) {
            return Err(refused("JwtExpired", "jwt expired"));
        }
        let future = now_s.saturating_add(LEEWAY_S);
        if claims.exp > future.saturating_add(LIFETIME_S_MAX) {
            return Err(refused("BadJwt", "jwt is good for too long"));
        }
        if claims.iat.is_some_and(|made| made > future) {
            return Err(refused("BadJwt", "jwt was made in the future"));
        }
        if claims.nbf.is_some_and(|begins| begins > future) {
            return Err(refused("BadJwt", "jwt is not good yet"));
        }
        // A proxying host sends the bare DID; others name the service in it too.
        let aud = claims.aud.split('#').next().unwrap_or_default();
        if aud != audience {
            let message = format!("jwt audience does not match service did {audience}");
            return Err(refused("BadJwtAudience", message));
        }
        if claims.lxm.as_deref() != Some(method) {
            let message = format!("bad jwt lexicon method (\"lxm\"); must match: {method}");
            return Err(refused("BadJwtLexiconMethod", message));
        }
        self.issuer().map(drop)
    }

    /// The account that it claims to be from.
    pub fn issuer(&self) -> Result<&str, XrpcError> {
        let did = self.claims.iss.split('#').next().unwrap_or_default();
        match record::ids::Did::is_valid(did) {
            true => Ok(did),
            false => Err(refused("BadJwtIss", "jwt issuer is not a did")),
        }
    }

    /// Whether the signature is the issuer's.
    pub fn verify(&self, key: &PublicKey) -> Result<(), XrpcError> {
        let fits = matches!(
            (key, self.algorithm),
            (PublicKey::K256(_), Algorithm::Es256k) | (PublicKey::P256(_), Algorithm::Es256)
        );
        let signed = fits && key.verify(self.signed.as_bytes(), &self.signature).is_ok();
        match signed {
            true => Ok(()),
            false => Err(refused(
                "BadJwtSignature",
                "jwt signature does not match jwt issuer",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::key::SigningKey;
    use serde_json::{Value, json};

    const US: &str = "did:web:feeds.example";
    const METHOD: &str = "app.bsky.feed.getFeedSkeleton";

    fn token(header: Value, claims: Value, key: &SigningKey) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn good() -> Value {
        json!({"iss": "did:plc:a", "aud": US, "exp": 160, "iat": 100, "lxm": METHOD, "jti": "1"})
    }

    fn with(field: &str, value: Value) -> Value {
        let mut claims = good();
        claims[field] = value;
        claims
    }

    #[track_caller]
    fn check(header: Value, claims: Value, expected: Result<(), &str>) {
        let key = SigningKey::k256([7; 32]).unwrap();
        let text = token(header, claims, &key);
        let found = Token::parse(&text)
            .and_then(|token| token.check(US, METHOD, 100).map(|()| token))
            .and_then(|token| token.verify(&key.public()));
        assert_eq!(found.map_err(|error| error.name), expected);
    }

    #[test]
    fn a_good_token_passes_under_both_curves_and_both_forms_of_audience() {
        check(json!({"alg": "ES256K", "typ": "JWT"}), good(), Ok(()));
        check(
            json!({"alg": "ES256K"}),
            with("aud", json!(format!("{US}#bsky_fg"))),
            Ok(()),
        );
        let key = SigningKey::p256([7; 32]).unwrap();
        let text = token(json!({"alg": "ES256", "typ": "JWT"}), good(), &key);
        let token = Token::parse(&text).unwrap();
        token.check(US, METHOD, 100).unwrap();
        token.verify(&key.public()).unwrap();
        assert_eq!(token.issuer().unwrap(), "did:plc:a");
    }

    #[test]
    fn each_fault_has_the_name_that_clients_know() {
        let head = || json!({"alg": "ES256K", "typ": "JWT"});
        check(json!({"alg": "none"}), good(), Err("BadJwt"));
        check(json!({"alg": "HS256"}), good(), Err("BadJwt"));
        check(json!({"alg": "ES256"}), good(), Err("BadJwtSignature"));
        check(
            json!({"alg": "ES256K", "typ": "at+jwt"}),
            good(),
            Err("BadJwtType"),
        );
        check(
            json!({"alg": "ES256K", "typ": "DPoP+JWT"}),
            good(),
            Err("BadJwtType"),
        );
        check(head(), with("exp", json!(94)), Err("JwtExpired"));
        check(head(), with("exp", json!(9_999_999)), Err("BadJwt"));
        check(head(), with("iat", json!(106)), Err("BadJwt"));
        check(head(), with("nbf", json!(106)), Err("BadJwt"));
        check(head(), with("nbf", json!(105)), Ok(()));
        let critical = json!({"alg": "ES256K", "crit": ["exp"], "exp": 1});
        check(critical, good(), Err("BadJwt"));
        check(
            head(),
            with("aud", json!("did:web:other.example")),
            Err("BadJwtAudience"),
        );
        check(
            head(),
            with("lxm", json!("app.bsky.feed.getFeed")),
            Err("BadJwtLexiconMethod"),
        );
        check(head(), with("lxm", Value::Null), Err("BadJwtLexiconMethod"));
        check(head(), with("iss", json!("nobody")), Err("BadJwtIss"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in [
            "",
            ".",
            "..",
            "a.b",
            "a.b.c",
            "e30.e30.e30",
            &"x".repeat(9000),
        ] {
            assert_eq!(Token::parse(text).unwrap_err().name, "BadJwt", "{text}");
        }
    }

    #[test]
    fn a_changed_claim_breaks_the_signature() {
        let key = SigningKey::k256([7; 32]).unwrap();
        let text = token(json!({"alg": "ES256K"}), good(), &key);
        let other = token(
            json!({"alg": "ES256K"}),
            with("iss", json!("did:plc:b")),
            &key,
        );
        let (_, signature) = text.rsplit_once('.').unwrap();
        let (signed, _) = other.rsplit_once('.').unwrap();
        let forged = format!("{signed}.{signature}");
        let error = Token::parse(&forged)
            .unwrap()
            .verify(&key.public())
            .unwrap_err();
        assert_eq!(error.name, "BadJwtSignature");
    }
}
