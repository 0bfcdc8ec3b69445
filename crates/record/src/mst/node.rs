//! One node of the tree, in memory and as a block.
//!
//! A node has the keys of one layer, and between and around them links to nodes
//! of the layer below. A link is a loaded node, or only its CID until the node
//! is needed: a commit contains a few nodes of a large tree.

use std::sync::{Arc, OnceLock};

use crate::car::Car;
use crate::cbor::{Reader, Writer};
use crate::cid::Cid;

use super::{MstError, common_prefix, height, is_path};

/// The link between two keys.
#[derive(Debug, Clone, Default)]
pub(super) enum Link {
    #[default]
    None,
    /// Not loaded: only the CID is known.
    Stub(Cid),
    Node(Arc<Node>),
}

/// A key, its record, and the link to its right.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Arc<[u8]>,
    pub(super) value: Cid,
    pub(super) right: Link,
}

/// The keys of one layer between two keys of the layer above.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) layer: u8,
    pub(super) left: Link,
    pub(super) entries: Vec<Entry>,
    /// Computed when it is needed; a change clears it.
    pub(super) cid: OnceLock<Cid>,
}

// The fixed parts of a node block, in canonical order.
const NODE_E: &[u8] = &[0xa2, 0x61, b'e'];
const ENTRY_K: &[u8] = &[0xa4, 0x61, b'k'];
const P: &[u8] = &[0x61, b'p'];
const T: &[u8] = &[0x61, b't'];
const V: &[u8] = &[0x61, b'v'];
const L: &[u8] = &[0x61, b'l'];

/// Keys allocated before any has been read.
const PREALLOCATED_MAX: u64 = 16;

/// Where the blocks of stubs are read from.
pub(super) trait Source {
    fn block(&self, cid: &Cid) -> Option<&[u8]>;
}

impl Source for Car<'_> {
    fn block(&self, cid: &Cid) -> Option<&[u8]> {
        self.get(cid)
    }
}

/// For trees that are completely in memory.
pub(super) struct NoBlocks;

impl Source for NoBlocks {
    fn block(&self, _: &Cid) -> Option<&[u8]> {
        None
    }
}

impl Link {
    /// The CID of the linked node.
    pub(super) fn cid(&self) -> Option<Cid> {
        match self {
            Link::None => None,
            Link::Stub(cid) => Some(*cid),
            Link::Node(node) => Some(node.cid()),
        }
    }

    /// The linked node, which is loaded if it is a stub.
    pub(super) fn load(
        &mut self,
        layer: u8,
        source: &impl Source,
    ) -> Result<Option<&mut Arc<Node>>, MstError> {
        if let Link::Stub(cid) = self {
            *self = Link::Node(Arc::new(Node::read(cid, Some(layer), source)?));
        }
        match self {
            Link::Node(node) => Ok(Some(node)),
            _ => Ok(None),
        }
    }

    /// A link to `node`, or to nothing if it is empty.
    pub(super) fn to(node: Node) -> Self {
        if node.is_empty() {
            return Link::None;
        }
        Link::Node(Arc::new(node))
    }
}

impl Node {
    /// No key and no link.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && matches!(self.left, Link::None)
    }

    /// Position of the first key not below `key`, and whether it is `key`.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> (usize, bool) {
        let at = self.entries.partition_point(|entry| *entry.key < *key);
        let found = self.entries.get(at).is_some_and(|entry| *entry.key == *key);
        (at, found)
    }

    /// The link before the key at `at`.
    #[inline]
    pub(super) fn gap(&self, at: usize) -> &Link {
        at.checked_sub(1)
            .and_then(|before| self.entries.get(before))
            .map_or(&self.left, |entry| &entry.right)
    }

    /// The same link, mutable.
    #[inline]
    pub(super) fn gap_mut(&mut self, at: usize) -> &mut Link {
        match at
            .checked_sub(1)
            .and_then(|before| self.entries.get_mut(before))
        {
            Some(entry) => &mut entry.right,
            None => &mut self.left,
        }
    }

    /// The node in the gap at `at`, which is loaded if it is a stub. Its keys
    /// must lie between the keys around the gap.
    #[inline]
    pub(super) fn child(
        &mut self,
        at: usize,
        source: &impl Source,
    ) -> Result<Option<&mut Arc<Node>>, MstError> {
        if let Link::Stub(cid) = self.gap(at) {
            let child = Node::read(cid, Some(self.layer.saturating_sub(1)), source)?;
            let before = at.checked_sub(1).and_then(|at| self.entries.get(at));
            let fits = follows(before, child.entries.first())
                && follows(child.entries.last(), self.entries.get(at));
            if !fits {
                return Err(MstError::Malformed("keys out of order"));
            }
            *self.gap_mut(at) = Link::Node(Arc::new(child));
        }
        match self.gap_mut(at) {
            Link::Node(child) => Ok(Some(child)),
            Link::None | Link::Stub(_) => Ok(None),
        }
    }

    /// The node's CID; computes those of changed nodes below it.
    pub(super) fn cid(&self) -> Cid {
        *self.cid.get_or_init(|| Cid::of_cbor(&self.to_block()))
    }

    /// The node's block.
    pub(super) fn to_block(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(64 + 128 * self.entries.len());
        writer.literal(NODE_E).list(self.entries.len());
        let mut last: &[u8] = &[];
        for entry in &self.entries {
            let shared = common_prefix(last, &entry.key);
            let suffix = entry.key.get(shared..).unwrap_or_default();
            writer.literal(ENTRY_K).bytes(suffix);
            writer.literal(P).int(shared as i64);
            writer.literal(T).link_or_null(entry.right.cid().as_ref());
            writer.literal(V).link(&entry.value);
            last = &entry.key;
        }
        writer.literal(L).link_or_null(self.left.cid().as_ref());
        writer.into_bytes()
    }

    /// Reads the node `cid`. Its parent determines its `layer`; without a
    /// parent the first key does.
    pub(super) fn read(
        cid: &Cid,
        layer: Option<u8>,
        source: &impl Source,
    ) -> Result<Self, MstError> {
        let block = source.block(cid).ok_or(MstError::Missing(*cid))?;
        let mut node = Node {
            layer: layer.unwrap_or(0),
            cid: OnceLock::from(*cid),
            ..Node::default()
        };
        let mut raw = RawNode::parse(block)?;
        let stub = |cid: Option<Cid>| cid.map_or(Link::None, Link::Stub);
        let mut key = Vec::with_capacity(64);
        node.entries
            .reserve(raw.left.min(PREALLOCATED_MAX) as usize);
        while let Some(entry) = raw.next_entry(&mut key)? {
            if !is_path(&key) {
                return Err(MstError::Malformed("a key that is not a record path"));
            }
            node.entries.push(Entry {
                key: key.as_slice().into(),
                value: entry.value,
                right: stub(entry.right),
            });
        }
        node.left = stub(raw.finish()?);
        node.check(layer)?;
        Ok(node)
    }

    /// Checks a node by itself: its keys belong to its layer. Their order was
    /// checked while reading.
    fn check(&mut self, layer: Option<u8>) -> Result<(), MstError> {
        match (layer, self.entries.first()) {
            (None, Some(first)) => self.layer = height(&first.key),
            // The empty repo: a root without keys and without a link.
            (None, None) if self.is_empty() => {}
            (None, None) => return Err(MstError::Malformed("a root without keys")),
            (Some(_), None) if self.is_empty() => {
                return Err(MstError::Malformed("an empty node below the root"));
            }
            _ => {}
        }
        if self
            .entries
            .iter()
            .any(|entry| height(&entry.key) != self.layer)
        {
            return Err(MstError::Malformed("a key at the wrong height"));
        }
        let linked = |link: &Link| !matches!(link, Link::None);
        if self.layer == 0
            && (linked(&self.left) || self.entries.iter().any(|entry| linked(&entry.right)))
        {
            return Err(MstError::Malformed("a link below the lowest layer"));
        }
        Ok(())
    }
}

/// Whether the second key is greater; true if one of them is absent.
pub(super) fn follows(first: Option<&Entry>, second: Option<&Entry>) -> bool {
    match (first, second) {
        (Some(first), Some(second)) => first.key < second.key,
        _ => true,
    }
}

/// An entry as it is in the block.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawEntry {
    pub(super) value: Cid,
    pub(super) right: Option<Cid>,
}

/// A node block that is being read, entry by entry.
#[derive(Debug, Clone)]
pub(super) struct RawNode<'a> {
    reader: Reader<'a>,
    left: u64,
    first: bool,
}

impl<'a> RawNode<'a> {
    /// Reads up to the first entry.
    pub(super) fn parse(block: &'a [u8]) -> Result<Self, MstError> {
        let mut reader = Reader::new(block);
        expect(&mut reader, NODE_E)?;
        let left = reader.list()?;
        Ok(Self {
            reader,
            left,
            first: true,
        })
    }

    /// Reads the next entry; `key` contains the previous key and then its own.
    pub(super) fn next_entry(&mut self, key: &mut Vec<u8>) -> Result<Option<RawEntry>, MstError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let reader = &mut self.reader;
        expect(reader, ENTRY_K)?;
        let suffix = reader.bytes()?;
        expect(reader, P)?;
        let shared = usize::try_from(reader.int()?).unwrap_or(usize::MAX);
        expect(reader, T)?;
        let right = reader.link_or_null()?;
        expect(reader, V)?;
        let value = reader.link()?;
        next_key(key, shared, suffix, std::mem::take(&mut self.first))?;
        Ok(Some(RawEntry { value, right }))
    }

    /// Reads the rest: the link to the left of all keys.
    pub(super) fn finish(mut self) -> Result<Option<Cid>, MstError> {
        expect(&mut self.reader, L)?;
        let left = self.reader.link_or_null()?;
        if !self.reader.rest().is_empty() {
            return Err(MstError::Malformed("bytes after the node"));
        }
        Ok(left)
    }
}

/// Turns the previous key into the next one and checks that it is greater.
/// A prefix that could be longer is accepted: the key is still unambiguous, and
/// a host's inefficient encoding is no reason to refuse the repo.
fn next_key(key: &mut Vec<u8>, shared: usize, suffix: &[u8], first: bool) -> Result<(), MstError> {
    if first {
        key.clear();
    }
    let Some(old) = key.get(shared..) else {
        return Err(MstError::Malformed("a prefix longer than the previous key"));
    };
    if !first && old >= suffix {
        return Err(MstError::Malformed("keys out of order"));
    }
    key.truncate(shared);
    key.extend_from_slice(suffix);
    Ok(())
}

#[inline]
fn expect(reader: &mut Reader<'_>, literal: &[u8]) -> Result<(), MstError> {
    if reader.literal(literal) {
        return Ok(());
    }
    Err(MstError::Malformed("a node with other fields"))
}
