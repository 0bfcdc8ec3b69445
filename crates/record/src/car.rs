//! Content archives (CAR): the blocks of a commit or of a whole repo.
//!
//! In:    a CARv1 and its limits.
//! Out:   its roots and its blocks, borrowed, found by CID.
//! Never: another version; a padded or endless varint; more blocks or longer
//!        ones than the caller allows; with `verify_hashes`, a block that is
//!        does not hash to its CID.
//!
//! Most archives are commits of ten blocks, where a linear search is faster
//! than an index. Larger ones get a sorted index once, after reading.

use crate::cbor::{CborError, Reader as CborReader, Writer};
use crate::cid::Cid;

/// The limits of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarLimits {
    /// Blocks in one archive.
    pub blocks_max: usize,
    /// Bytes of one block.
    pub block_bytes_max: usize,
}

impl CarLimits {
    /// For the blocks of one commit. A block may be as large as a frame: a record
    /// that is too large is refused alone, not together with its commit.
    pub const COMMIT: Self = Self {
        blocks_max: 20_000,
        block_bytes_max: 2_000_000,
    };

    /// For a whole repo. A repo with one huge record must still be readable, so
    /// a block may be as large as an archive that is fetched.
    pub const REPO: Self = Self {
        blocks_max: 20_000_000,
        block_bytes_max: 1 << 30,
    };
}

/// Why an archive is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CarError {
    /// The archive ends too early; more bytes could make it valid.
    #[error("archive ends inside a section")]
    Truncated,

    /// Not a CARv1 of this network.
    #[error("not a strict car of version 1: {0}")]
    Malformed(&'static str),

    /// The header is not the map it must be.
    #[error("header of the archive")]
    Header(#[source] CborError),

    /// Beyond a limit of the caller, which is named.
    #[error("archive over its limit: {0}")]
    TooBig(&'static str),

    /// A block does not hash to its CID.
    #[error("block {0} does not hash to its cid")]
    Forged(Cid),
}

/// One block of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    pub cid: Cid,
    pub data: &'a [u8],
}

/// Up to this many blocks are searched one by one.
const LINEAR_MAX: usize = 24;

/// Roots an archive may name; a repo has one.
const ROOTS_MAX: u64 = 16;

/// An archive that has been read.
#[derive(Debug, Clone)]
pub struct Car<'a> {
    roots: Vec<Cid>,
    blocks: Vec<Block<'a>>,
    /// Positions in `blocks`, sorted by CID; empty for small archives.
    index: Vec<u32>,
}

impl<'a> Car<'a> {
    /// Reads a whole archive.
    pub fn read(bytes: &'a [u8], limits: CarLimits, verify_hashes: bool) -> Result<Self, CarError> {
        let mut reader = Reader::new(bytes, limits)?;
        let mut blocks = Vec::with_capacity(LINEAR_MAX.min(limits.blocks_max));
        while let Some(block) = reader.next_block()? {
            if verify_hashes && !block.cid.names(block.data) {
                return Err(CarError::Forged(block.cid));
            }
            blocks.push(block);
        }
        Ok(Self {
            index: index(&blocks),
            roots: reader.roots,
            blocks,
        })
    }

    /// The roots, in order.
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// The first root: the commit.
    pub fn root(&self) -> Option<Cid> {
        self.roots.first().copied()
    }

    /// The blocks in the order of the archive.
    pub fn blocks(&self) -> &[Block<'a>] {
        &self.blocks
    }

    /// The block with this CID. If an archive repeats a CID, the first block is used.
    #[inline]
    pub fn get(&self, cid: &Cid) -> Option<&'a [u8]> {
        if self.index.is_empty() {
            // Comparing the last eight bytes first rules out nearly every other CID.
            let end = |cid: &Cid| cid.as_bytes().last_chunk::<8>().copied();
            let wanted = end(cid);
            return self
                .blocks
                .iter()
                .find(|block| end(&block.cid) == wanted && block.cid == *cid)
                .map(|block| block.data);
        }
        let at = |position: &u32| self.blocks.get(*position as usize);
        let first = self
            .index
            .partition_point(|position| at(position).is_some_and(|block| block.cid < *cid));
        let block = self.index.get(first).and_then(at)?;
        (block.cid == *cid).then_some(block.data)
    }
}

fn index(blocks: &[Block<'_>]) -> Vec<u32> {
    if blocks.len() <= LINEAR_MAX {
        return Vec::new();
    }
    let mut order: Vec<(&Cid, u32)> = blocks
        .iter()
        .zip(0u32..)
        .map(|(block, position)| (&block.cid, position))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

/// Reads an archive block by block and stores none of them. The caller checks
/// the hashes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    roots: Vec<Cid>,
    rest: &'a [u8],
    limits: CarLimits,
    seen: usize,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    pub fn new(bytes: &'a [u8], limits: CarLimits) -> Result<Self, CarError> {
        let (length, rest) = varint(bytes)?;
        let (header, rest) = rest.split_at_checked(length).ok_or(CarError::Truncated)?;
        Ok(Self {
            roots: roots(header)?,
            rest,
            limits,
            seen: 0,
        })
    }

    /// The roots named in the header.
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// The next block; `None` at the end.
    #[inline]
    pub fn next_block(&mut self) -> Result<Option<Block<'a>>, CarError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (length, rest) = varint(self.rest)?;
        let (section, rest) = rest.split_at_checked(length).ok_or(CarError::Truncated)?;
        let (cid, data) = section
            .split_at_checked(36)
            .ok_or(CarError::Malformed("a section shorter than its cid"))?;
        let cid = Cid::from_bytes(cid)
            .map_err(|_| CarError::Malformed("a block whose CID is not of this network"))?;
        if data.len() > self.limits.block_bytes_max {
            return Err(CarError::TooBig("block_bytes_max"));
        }
        if self.seen >= self.limits.blocks_max {
            return Err(CarError::TooBig("blocks_max"));
        }
        self.seen += 1;
        self.rest = rest;
        Ok(Some(Block { cid, data }))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Block<'a>, CarError>;

    /// Ends after the first error, because nothing after it can be trusted.
    fn next(&mut self) -> Option<Self::Item> {
        let block = self.next_block();
        if block.is_err() {
            self.rest = &[];
        }
        block.transpose()
    }
}

/// The header: `{roots: [cid, …], version: 1}` and nothing else.
fn roots(header: &[u8]) -> Result<Vec<Cid>, CarError> {
    let mut reader = CborReader::new(header);
    let mut roots = None;
    let mut version = None;
    let mut fields = reader.map().map_err(CarError::Header)?;
    while let Some(key) = fields.key(&mut reader).map_err(CarError::Header)? {
        match key {
            "roots" => {
                let count = reader.list().map_err(CarError::Header)?;
                if count > ROOTS_MAX {
                    return Err(CarError::TooBig("roots"));
                }
                let list: Result<Vec<Cid>, _> = (0..count).map(|_| reader.link()).collect();
                roots = Some(list.map_err(CarError::Header)?);
            }
            "version" => version = Some(reader.int().map_err(CarError::Header)?),
            _ => return Err(CarError::Malformed("an unknown header field")),
        }
    }
    if version != Some(1) {
        return Err(CarError::Malformed("another version than 1"));
    }
    if !reader.rest().is_empty() {
        return Err(CarError::Malformed("bytes after the header"));
    }
    roots.ok_or(CarError::Malformed("a header without roots"))
}

/// Reads an unsigned LEB128 of at most 63 bits in its shortest form.
#[inline]
fn varint(bytes: &[u8]) -> Result<(usize, &[u8]), CarError> {
    let mut value = 0u64;
    let mut rest = bytes;
    for shift in (0..63).step_by(7) {
        let (&byte, tail) = rest.split_first().ok_or(CarError::Truncated)?;
        rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            if byte == 0 && shift > 0 {
                return Err(CarError::Malformed("a padded varint"));
            }
            let value = usize::try_from(value).map_err(|_| CarError::Truncated)?;
            return Ok((value, rest));
        }
    }
    Err(CarError::Malformed("a varint over 63 bits"))
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes an archive; the blocks keep their order.
pub fn write<'b>(roots: &[Cid], blocks: impl IntoIterator<Item = (Cid, &'b [u8])>) -> Vec<u8> {
    let mut header = Writer::with_capacity(64);
    header.map(2).text("roots").list(roots.len());
    for root in roots {
        header.link(root);
    }
    header.text("version").int(1);
    let header = header.into_bytes();

    let mut out = Vec::with_capacity(4096);
    put_varint(header.len() as u64, &mut out);
    out.extend_from_slice(&header);
    for (cid, data) in blocks {
        put_varint(36 + data.len() as u64, &mut out);
        out.extend_from_slice(cid.as_bytes());
        out.extend_from_slice(data);
    }
    out
}
