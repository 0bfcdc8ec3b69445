//! One account's repository: a real tree, real blocks, real signatures.
//!
//! In:    changes to records, a key and a revision.
//! Out:   a commit with everything a `#commit` event must carry; the whole
//!        repository as one CAR.
//! Never: a revision that does not grow; a record without its block.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Bytes;
use record::car;
use record::cid::Cid;
use record::commit::Commit;
use record::event::Action;
use record::key::SigningKey;
use record::mst::Tree;
use record::tid::Tid;

/// A record to write, or to delete if it has no block.
#[derive(Debug, Clone)]
pub struct Change {
    /// `collection/rkey`.
    pub path: String,
    pub block: Option<Bytes>,
}

/// What one change did.
#[derive(Debug, Clone)]
pub struct Done {
    pub action: Action,
    pub path: String,
    pub cid: Option<Cid>,
    pub prev: Option<Cid>,
    pub block: Option<Bytes>,
}

/// A commit as it was made.
#[derive(Debug, Clone)]
pub struct Committed {
    pub commit: Cid,
    pub rev: Tid,
    /// The revision before; `None` for the first.
    pub since: Option<Tid>,
    /// The root before; `None` for the first.
    pub prev_data: Option<Cid>,
    pub done: Vec<Done>,
    /// The commit, the proof and the records, as one CAR.
    pub car: Vec<u8>,
}

/// The newest signed commit.
#[derive(Debug, Clone)]
pub struct Head {
    pub cid: Cid,
    pub rev: Tid,
    pub data: Cid,
    pub block: Vec<u8>,
}

/// A repository.
#[derive(Debug, Clone, Default)]
pub struct Repo {
    tree: Tree,
    records: BTreeMap<String, (Cid, Bytes)>,
    head: Option<Head>,
}

impl Repo {
    /// Makes the changes in one signed commit. A delete of what is not there
    /// is left out.
    pub fn commit(
        &mut self,
        did: &str,
        key: &SigningKey,
        rev: Tid,
        changes: Vec<Change>,
    ) -> Committed {
        let before = self.head.take();
        assert!(
            before.as_ref().is_none_or(|head| head.rev < rev),
            "revisions grow"
        );
        let done: Vec<Done> = changes
            .into_iter()
            .filter_map(|change| self.change(change))
            .collect();
        let data = self.tree.root();
        let block = Commit::sign(did, rev, data, key).to_block();
        let cid = Cid::of_cbor(&block);
        let proof = self.tree.proof(done.iter().map(|done| done.path.as_str()));
        let blocks = std::iter::once((cid, block.as_slice()))
            .chain(proof.iter().map(|(cid, block)| (*cid, block.as_slice())))
            .chain(
                done.iter()
                    .filter_map(|done| Some((done.cid?, done.block.as_deref()?))),
            );
        let car = car::write(&[cid], blocks);
        self.head = Some(Head {
            cid,
            rev,
            data,
            block,
        });
        Committed {
            commit: cid,
            rev,
            since: before.as_ref().map(|head| head.rev),
            prev_data: before.as_ref().map(|head| head.data),
            done,
            car,
        }
    }

    fn change(&mut self, change: Change) -> Option<Done> {
        let Change { path, block } = change;
        let cid = block.as_deref().map(Cid::of_cbor);
        let prev = match cid {
            Some(cid) => self.tree.insert(&path, cid),
            None => self.tree.remove(&path),
        }
        .expect("the world writes lawful paths");
        let action = match (prev, cid) {
            (None, Some(_)) => Action::Create,
            (Some(_), Some(_)) => Action::Update,
            (Some(_), None) => Action::Delete,
            (None, None) => return None,
        };
        match cid.zip(block.clone()) {
            Some(entry) => self.records.insert(path.clone(), entry),
            None => self.records.remove(&path),
        };
        Some(Done {
            action,
            path,
            cid,
            prev,
            block,
        })
    }

    /// The newest commit; `None` before the first.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The newest commit block alone, as a `#sync` event carries it.
    pub fn head_car(&self) -> Vec<u8> {
        let Some(head) = &self.head else {
            return Vec::new();
        };
        car::write(&[head.cid], [(head.cid, head.block.as_slice())])
    }

    /// The commit and the tree's root without operations: what a commit too
    /// big for the stream carries.
    pub fn bare_car(&self) -> Vec<u8> {
        let Some(head) = &self.head else {
            return Vec::new();
        };
        let proof = self.tree.proof([]);
        let blocks = std::iter::once((head.cid, head.block.as_slice()))
            .chain(proof.iter().map(|(cid, block)| (*cid, block.as_slice())));
        car::write(&[head.cid], blocks)
    }

    /// The whole repository as one CAR: the commit, the tree, the records.
    pub fn export(&self) -> Vec<u8> {
        let Some(head) = &self.head else {
            return Vec::new();
        };
        let nodes = self.tree.blocks();
        let mut seen = BTreeSet::new();
        let records = self
            .records
            .values()
            .filter(|(cid, _)| seen.insert(*cid))
            .map(|(cid, block)| (*cid, block.as_ref()));
        let blocks = std::iter::once((head.cid, head.block.as_slice()))
            .chain(nodes.iter().map(|(cid, block)| (*cid, block.as_slice())))
            .chain(records);
        car::write(&[head.cid], blocks)
    }

    /// The record at `path`.
    pub fn record(&self, path: &str) -> Option<&(Cid, Bytes)> {
        self.records.get(path)
    }

    /// The records of one collection in the order of their keys.
    pub fn collection<'a>(
        &'a self,
        collection: &str,
    ) -> impl Iterator<Item = (&'a str, &'a (Cid, Bytes))> {
        let prefix = format!("{collection}/");
        self.records
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, entry)| (path.as_str(), entry))
    }

    /// The collections that hold a record.
    pub fn collections(&self) -> BTreeSet<&str> {
        self.records
            .keys()
            .filter_map(|path| path.split_once('/').map(|(collection, _)| collection))
            .collect()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
