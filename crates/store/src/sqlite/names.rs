//! Names whose numbers are known: most of a batch's, so that few are looked up.
//!
//! A name keeps its number for ever, so nothing here can be wrong. Names that
//! were not asked for lately are forgotten: there are two halves, and when one is
//! full it takes the place of the other.

use std::collections::{BTreeSet, HashMap};

use decide::ids::{CollectionId, KeyId};
use decide::wants::Names;
use parking_lot::Mutex;

/// Bytes of a name beside its text.
const NAME_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct NameCache {
    halves: Mutex<Halves>,
    half_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Halves {
    new: HashMap<String, KeyId>,
    old: HashMap<String, KeyId>,
    new_bytes: usize,
    /// As few as the configuration has.
    collections: HashMap<String, CollectionId>,
}

impl Halves {
    fn insert(&mut self, text: String, id: KeyId, bytes_max: usize) {
        self.new_bytes += text.len() + NAME_BYTES;
        self.new.insert(text, id);
        self.turn(bytes_max);
    }

    /// If the new half is full, it takes the place of the old one.
    fn turn(&mut self, bytes_max: usize) {
        if self.new_bytes > bytes_max {
            self.old = std::mem::take(&mut self.new);
            self.new_bytes = 0;
            // Collections that records name are strangers' texts.
            self.collections.clear();
        }
    }
}

impl NameCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            halves: Mutex::default(),
            half_bytes_max: bytes_max / 2,
        }
    }

    /// The numbers that are known, and the names of which they are not.
    pub(super) fn known<'n>(
        &self,
        keys: &BTreeSet<&'n str>,
        collections: &BTreeSet<&'n str>,
    ) -> (Names, Vec<&'n str>, Vec<&'n str>) {
        let mut halves = self.halves.lock();
        let mut names = Names::default();
        let (mut new_keys, mut new_collections) = (Vec::new(), Vec::new());
        for text in keys {
            let known = halves.new.get(*text).copied();
            let id = match known {
                Some(id) => id,
                None => match halves.old.remove(*text) {
                    Some(id) => {
                        halves.insert((*text).to_owned(), id, self.half_bytes_max);
                        id
                    }
                    None => {
                        new_keys.push(*text);
                        continue;
                    }
                },
            };
            names.keys.insert((*text).to_owned(), id);
        }
        for nsid in collections {
            match halves.collections.get(*nsid) {
                Some(id) => drop(names.collections.insert((*nsid).to_owned(), *id)),
                None => new_collections.push(*nsid),
            }
        }
        (names, new_keys, new_collections)
    }

    /// Numbers that were committed.
    pub(super) fn learn(&self, names: &Names) {
        let mut halves = self.halves.lock();
        for (text, id) in &names.keys {
            halves.insert(text.clone(), *id, self.half_bytes_max);
        }
        for (nsid, id) in &names.collections {
            halves.new_bytes += nsid.len() + NAME_BYTES;
            halves.collections.insert(nsid.clone(), *id);
        }
        halves.turn(self.half_bytes_max);
    }
}
