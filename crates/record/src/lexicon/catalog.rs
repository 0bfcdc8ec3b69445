//! The catalog: all definitions in one array, which refer to each other by index.
//!
//! References are resolved to indexes. A definition may contain itself (a reply
//! inside a reply), so walks are bounded by the depth of the value, not by the
//! depth of the catalog.

use std::collections::HashMap;

use crate::value::key_order;

use super::document::{BlobRule, BooleanRule, Bounds, Document, IntegerRule, KeyType, TextRule};
use super::{LexiconError, compile};

/// The index of a node in its catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(super) u32);

/// The type and constraints of one value, with resolved references.
#[derive(Debug)]
pub(crate) enum Node {
    Null,
    Boolean(BooleanRule),
    Integer(IntegerRule),
    Text(TextRule),
    Bytes(Bounds),
    Link,
    Blob(BlobRule),
    Array {
        items: NodeId,
        length: Bounds,
    },
    /// In canonical order of names, like the fields of a value.
    Object(Box<[Field]>),
    Union(Union),
    /// The full name of the token, which is its only value.
    Token(Box<str>),
    /// An object of any shape.
    Unknown,
    /// Any value: not described, or described in a lexicon that was not loaded.
    Any,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    pub(crate) node: NodeId,
    pub(crate) required: bool,
    pub(crate) nullable: bool,
}

#[derive(Debug)]
pub(crate) struct Union {
    /// By `$type`, in canonical order.
    pub(super) members: Box<[(Box<str>, NodeId)]>,
    pub(crate) closed: bool,
}

impl Union {
    /// The member that a `$type` names. Like the reference implementation, this
    /// ignores a trailing `#main`.
    pub(crate) fn member(&self, name: &str) -> Option<NodeId> {
        let name = name.strip_suffix("#main").unwrap_or(name);
        let at = self
            .members
            .binary_search_by(|(member, _)| key_order(member, name))
            .ok()?;
        self.members.get(at).map(|(_, node)| *node)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().map(|(_, node)| *node)
    }

    /// The names of the members, for error messages.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| name.as_ref())
    }
}

/// A collection: the schema of its records and the format of their keys.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) node: NodeId,
    pub(crate) key: KeyType,
}

/// The schemas of the bodies of a query or procedure.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) input: Option<NodeId>,
    pub(crate) output: Option<NodeId>,
}

/// All loaded lexicons, with resolved references.
#[derive(Debug)]
pub struct Catalog {
    pub(super) nodes: Vec<Node>,
    /// Per node, whether a link can occur at or below it.
    pub(super) linked: Vec<bool>,
    pub(super) collections: HashMap<Box<str>, Collection>,
    pub(super) methods: HashMap<Box<str>, Method>,
    /// Every definition a field can refer to, by its full name.
    pub(super) defs: HashMap<Box<str>, NodeId>,
    pub(super) missing: Vec<String>,
}

impl Catalog {
    /// Links `documents`. The same document may occur more than once.
    pub fn new(documents: impl IntoIterator<Item = Document>) -> Result<Self, LexiconError> {
        compile::catalog(documents)
    }

    /// Parses and links documents.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, LexiconError> {
        let documents: Result<Vec<Document>, LexiconError> =
            texts.into_iter().map(Document::parse).collect();
        Self::new(documents?)
    }

    /// Whether records of `nsid` are described here.
    pub fn describes(&self, nsid: &str) -> bool {
        self.collections.contains_key(nsid)
    }

    /// The collections described here, in order of their names.
    pub fn collections(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.collections.keys().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names
    }

    /// The format of the record keys of `nsid`.
    pub fn key_type(&self, nsid: &str) -> Option<&KeyType> {
        self.collections.get(nsid).map(|collection| &collection.key)
    }

    /// References to definitions that were not loaded, in order, each once.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    pub(crate) fn collection(&self, nsid: &str) -> Option<&Collection> {
        self.collections.get(nsid)
    }

    pub(crate) fn method(&self, nsid: &str) -> Option<&Method> {
        self.methods.get(nsid)
    }

    pub(crate) fn def(&self, name: &str) -> Option<NodeId> {
        let name = name.strip_suffix("#main").unwrap_or(name);
        self.defs.get(name).copied()
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).unwrap_or(&Node::Any)
    }

    /// Whether a link can occur at or below the node.
    pub(crate) fn is_linked(&self, id: NodeId) -> bool {
        self.linked.get(id.0 as usize).copied().unwrap_or(false)
    }
}
