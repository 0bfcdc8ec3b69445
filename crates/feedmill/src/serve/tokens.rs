//! Tokens that were shown before: those that may be believed again, and the numbers of those that may not come twice.
//!
//! In:    tokens that were verified.
//! Out:   whose a token is, without another look at its signature; whether a number is new.
//! Never: more bytes than `BELIEVED_BYTES_MAX` and `USED_MAX` entries of a digest each, whatever tokens and accounts
//!        strangers make.

use std::convert::Infallible;

use metrics::gauge;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::digest::Digest;
use crate::metrics as names;

/// Tokens remembered, so that none is taken twice.
const USED_MAX: usize = 100_000;
/// Tokens believed again without looking at their signatures, and their bytes.
const BELIEVED: usize = 50_000;
const BELIEVED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of an entry beside its account's DID: a digest, a time and what the table needs.
const ENTRY_BYTES: u64 = 80;

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Digest, (String, i64)> for Bytes {
    fn weight(&self, _: &Digest, (did, _): &(String, i64)) -> u64 {
        ENTRY_BYTES + did.len() as u64
    }
}

/// What is remembered of tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    used: Cache<Digest, ()>,
    /// By method and token: the account, and until when.
    believed: Cache<Digest, (String, i64), Bytes>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            used: Cache::new(USED_MAX),
            believed: Cache::with_weighter(BELIEVED, BELIEVED_BYTES_MAX, Bytes),
        }
    }
}

impl Tokens {
    /// The account of a token that was believed for this method.
    pub(super) fn believed(&self, method: &str, token: &str, now_s: i64) -> Option<String> {
        let (did, until_s) = self.believed.get(&Digest::of_all(&[method, token]))?;
        (now_s < until_s).then_some(did)
    }

    pub(super) fn believe(&self, method: &str, token: &str, did: &str, until_s: i64) {
        let known = Digest::of_all(&[method, token]);
        self.believed.insert(known, (did.to_owned(), until_s));
        self.measure();
    }

    /// Whether the number of an account's token comes for the first time; of several at once, one is the first.
    pub(super) fn is_new(&self, did: &str, number: &str) -> bool {
        let mut new = false;
        let name = Digest::of_all(&[did, number]);
        let Ok::<(), Infallible>(()) = self.used.get_or_insert_with(&name, || {
            new = true;
            Ok(())
        });
        self.measure();
        new
    }

    /// About how many bytes are held.
    fn bytes(&self) -> u64 {
        self.believed.weight() + self.used.len() as u64 * ENTRY_BYTES
    }

    fn measure(&self) {
        gauge!(names::IDENTITY_BYTES, "kind" => "tokens").set(self.bytes() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tokens_and_dids_take_a_bounded_number_of_bytes() {
        let tokens = Tokens::default();
        let long = "x".repeat(8192);
        let believed = |number: u32| format!("{long}{number}");
        for number in 0..20_000 {
            let did = format!("did:web:{}{number}", &long[..2000]);
            tokens.believe("m", &believed(number), &did, 100);
            assert!(tokens.is_new(&did, &long[..6000]));
            assert!(!tokens.is_new(&did, &long[..6000]));
        }
        let bytes = tokens.bytes();
        assert!(
            bytes <= BELIEVED_BYTES_MAX + 20_000 * ENTRY_BYTES,
            "{bytes}"
        );
        let kept =
            (0..20_000).filter(|number| tokens.believed("m", &believed(*number), 1).is_some());
        assert!(kept.count() > 1000, "the table holds what it may");
    }

    #[test]
    fn a_token_is_believed_for_its_method_until_its_time_is_over() {
        let tokens = Tokens::default();
        tokens.believe("m", "token", "did:web:a.test", 100);
        assert_eq!(
            tokens.believed("m", "token", 99).as_deref(),
            Some("did:web:a.test")
        );
        assert_eq!(tokens.believed("m", "token", 100), None);
        assert_eq!(tokens.believed("other", "token", 99), None);
        assert!(tokens.is_new("did:web:a.test", "1"));
        assert!(tokens.is_new("did:web:b.test", "1"));
        assert!(!tokens.is_new("did:web:a.test", "1"));
    }
}
