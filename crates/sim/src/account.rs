//! One inhabitant of the world.
//!
//! In:    a number and a generator.
//! Out:   a DID, a handle, a key, an empty repository.
//! Never: two accounts with one DID or handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use record::key::SigningKey;

use crate::model::Standing;
use crate::repo::Repo;
use crate::rng::Rng;

/// Where did:web accounts and all handles live.
pub const DOMAIN: &str = "sim.test";

const NAMES: [&str; 24] = [
    "ada", "bela", "carl", "dora", "egon", "fay", "gus", "hana", "ivo", "june", "kofi", "lena",
    "milo", "nora", "omar", "pia", "quin", "rosa", "sven", "tara", "udo", "vera", "wes", "yuki",
];

const BASE32: [char; 32] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's',
    't', 'u', 'v', 'w', 'x', 'y', 'z', '2', '3', '4', '5', '6', '7',
];

/// An account.
#[derive(Debug)]
pub struct Account {
    pub did: Arc<str>,
    pub handle: String,
    pub key: SigningKey,
    pub standing: Standing,
    pub repo: Repo,
    /// Record keys by collection, in no order: to draw one at random.
    shelves: BTreeMap<&'static str, Vec<String>>,
    /// Subjects once followed and left.
    pub(crate) left: Vec<String>,
}

/// How many of an account's former follows are remembered.
const LEFT_MAX: usize = 32;

impl Account {
    /// Account number `number`, drawn from `rng`.
    pub fn draw(number: usize, rng: &mut Rng, web_share: f64, p256_share: f64) -> Self {
        let name = NAMES.get(number % NAMES.len()).unwrap_or(&"zoe");
        let handle = format!("{name}{number}.{DOMAIN}");
        let did = if rng.chance(web_share) {
            format!("did:web:{handle}")
        } else {
            let id: String = (0..24).filter_map(|_| rng.pick(&BASE32)).collect();
            format!("did:plc:{id}")
        };
        Self {
            did: did.into(),
            handle,
            key: draw_key(rng, p256_share),
            standing: Standing::Active,
            repo: Repo::default(),
            shelves: BTreeMap::new(),
            left: Vec::new(),
        }
    }

    /// Whether the account is of method did:web.
    pub fn is_web(&self) -> bool {
        self.did.starts_with("did:web:")
    }

    /// Puts a record key on its shelf.
    pub(crate) fn shelve(&mut self, collection: &'static str, rkey: String) {
        self.shelves.entry(collection).or_default().push(rkey);
    }

    /// Takes a random record key off its shelf.
    pub(crate) fn unshelve(&mut self, collection: &str, rng: &mut Rng) -> Option<String> {
        let shelf = self.shelves.get_mut(collection)?;
        if shelf.is_empty() {
            return None;
        }
        Some(shelf.swap_remove(rng.index(shelf.len())))
    }

    /// A random record key, left on its shelf.
    pub(crate) fn glance(&self, collection: &str, rng: &mut Rng) -> Option<String> {
        rng.pick(self.shelves.get(collection)?).cloned()
    }

    /// Takes one record key off its shelf.
    pub(crate) fn forget(&mut self, collection: &str, rkey: &str) {
        if let Some(shelf) = self.shelves.get_mut(collection) {
            shelf.retain(|other| other != rkey);
        }
    }

    /// Remembers somebody no longer followed.
    pub(crate) fn leave(&mut self, subject: String) {
        if self.left.len() == LEFT_MAX {
            self.left.remove(0);
        }
        self.left.push(subject);
    }

    /// Forgets everything written.
    pub(crate) fn clear(&mut self) {
        self.repo = Repo::default();
        self.shelves.clear();
        self.left.clear();
    }
}

/// A signing key, now and then of the rarer curve.
pub(crate) fn draw_key(rng: &mut Rng, p256_share: f64) -> SigningKey {
    let rare = rng.chance(p256_share);
    loop {
        let secret = rng.bytes();
        // Almost every number is a key; the few that are none are drawn again.
        let key = match rare {
            true => SigningKey::p256(secret),
            false => SigningKey::k256(secret),
        };
        if let Ok(key) = key {
            return key;
        }
    }
}
