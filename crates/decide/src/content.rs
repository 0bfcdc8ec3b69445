//! An operation with all its names in numbers: what is applied, or waits until it can be.
//!
//! In:    what the checks said of an operation ([`Verdict`]), and the numbers of its names.
//! Out:   the same in numbers, so that a row that waits needs no name looked up again.

use serde::{Deserialize, Serialize};

use crate::batch::{Fault, Need, Put, Target, Verdict};
use crate::derived::{Derived, Placed, PlacedPart};
use crate::ids::{CollectionId, Micros, Path};
use crate::version::State;
use crate::wants::Names;

/// A checked record with all its names in numbers: what is applied, or parked until it can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The layout under which it was numbered: under another one it is derived anew.
    pub layout: i64,
    pub cid: Option<Vec<u8>>,
    pub body: String,
    pub time_us: Option<Micros>,
    pub seen_us: Option<Micros>,
    pub links: Vec<(String, String)>,
    pub placed: Placed,
    pub needs: Vec<Needed>,
    pub satisfies: Vec<String>,
    /// Records that the rules of its collection look at: URI and path. `None`: there is no such rule.
    #[serde(default)]
    pub linked: Option<Vec<(String, Path)>>,
}

/// An operation with all its names in numbers: what is applied, or waits in a queue until it can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbered {
    Put(Box<Content>),
    Delete,
    Refused { fault: Fault, raw: String },
}

/// Something that must be here before a record is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// The text under which it waits.
    pub key: String,
    /// The field that names it.
    pub path: String,
    pub at: Where,
}

/// Where a needed record is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Where {
    /// At this path.
    Path(Path),
    /// Any record of this collection that names this text at this path.
    Naming {
        collection: CollectionId,
        path: String,
        value: String,
    },
}

impl Numbered {
    /// What would be at its path.
    pub(crate) fn state(&self) -> State {
        match self {
            Self::Put(_) => State::Live,
            Self::Delete => State::Deleted,
            Self::Refused { .. } => State::Refused,
        }
    }

    pub(crate) fn cid(&self) -> Option<&[u8]> {
        match self {
            Self::Put(content) => content.cid.as_deref(),
            Self::Delete | Self::Refused { .. } => None,
        }
    }

    /// New numbers that it may need: for a record or tombstone, and for a dead letter or a row that
    /// waits.
    pub(crate) fn ids(&self) -> usize {
        match self {
            Self::Put(content) if content.linked.is_none() => 1,
            Self::Delete => 1,
            Self::Put(_) | Self::Refused { .. } => 2,
        }
    }

    /// An operation in numbers.
    pub(crate) fn of(verdict: &Verdict, names: &Names, layout: i64) -> Self {
        match verdict {
            Verdict::Put(put) => Self::Put(Box::new(number(names, layout, put))),
            Verdict::Delete => Self::Delete,
            Verdict::Refused { fault, raw } => Self::Refused {
                fault: fault.clone(),
                raw: raw.clone(),
            },
        }
    }
}

/// A checked record with its names in numbers.
pub(crate) fn number(names: &Names, layout: i64, put: &Put) -> Content {
    Content {
        layout,
        cid: put.cid.clone(),
        body: put.body.clone(),
        time_us: put.time_us,
        seen_us: put.seen_us,
        links: put.links.clone(),
        placed: place_names(names, &put.derived),
        needs: put
            .needs
            .iter()
            .map(|need| place_need(names, need))
            .collect(),
        satisfies: put.satisfies.clone(),
        linked: put.linked.as_ref().map(|uris| linked(names, uris)),
    }
}

fn place_names(names: &Names, derived: &Derived) -> Placed {
    let keys = |texts: &[String]| texts.iter().map(|text| names.key(text)).collect();
    Placed {
        entries: derived
            .entries
            .iter()
            .map(|(index, texts)| (*index, keys(texts)))
            .collect(),
        person: derived.person.as_deref().map(|person| names.key(person)),
        follows: derived
            .follows
            .iter()
            .map(|(source, text)| (*source, names.key(text)))
            .collect(),
        parts: derived
            .parts
            .iter()
            .map(|part| PlacedPart {
                index: part.index,
                author: names.key(&part.author),
                thing: part.thing.clone(),
                keys: keys(&part.keys),
                adds: part.adds.clone(),
            })
            .collect(),
        sorts: derived.sorts.clone(),
    }
}

fn place_need(names: &Names, need: &Need) -> Needed {
    let at = match &need.target {
        Target::Record {
            did,
            collection,
            rkey,
        } => Where::Path(Path {
            author: names.key(did),
            collection: names.collection(collection),
            rkey: rkey.clone(),
        }),
        Target::Naming {
            collection,
            path,
            value,
        } => Where::Naming {
            collection: names.collection(collection),
            path: path.clone(),
            value: value.clone(),
        },
    };
    Needed {
        key: need.key(),
        path: need.path.clone(),
        at,
    }
}

/// The paths of URIs; what is not the URI of a record is not among them.
fn linked(names: &Names, uris: &[String]) -> Vec<(String, Path)> {
    let path = |uri: &String| {
        let (did, nsid, rkey) = split(uri)?;
        let path = Path {
            author: names.key(did),
            collection: names.collection(nsid),
            rkey: rkey.to_owned(),
        };
        Some((uri.clone(), path))
    };
    uris.iter().filter_map(path).collect()
}

/// The parts of the URI of a record: DID, collection, record key.
pub fn split(uri: &str) -> Option<(&str, &str, &str)> {
    let (did, rest) = uri.strip_prefix("at://")?.split_once('/')?;
    let (nsid, rkey) = rest.split_once('/')?;
    let whole = !did.is_empty() && !nsid.is_empty() && !rkey.is_empty() && !rkey.contains('/');
    whole.then_some((did, nsid, rkey))
}
