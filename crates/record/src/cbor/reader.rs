//! A cursor over CBOR bytes that reads one head at a time and borrows the rest.
//!
//! In:    a byte slice.
//! Out:   heads, texts, byte strings, links and integers, one by one.
//! Never: an allocation; a read past the end; a padded length accepted.
//!
//! The event filter needs three fields of a frame and must not decode the
//! other nine, so the cursor is public and skipping is cheap.

use crate::cid::Cid;

use super::{CborError, DEPTH_MAX};

/// The major types of CBOR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Major {
    Unsigned,
    Negative,
    Bytes,
    Text,
    List,
    Map,
    Tag,
    Simple,
}

/// A position in CBOR bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// Tag 42, a byte string of 37, and the zero before the CID.
pub(super) const LINK_HEAD: [u8; 5] = [0xd8, 42, 0x58, 37, 0];

const FALSE: u64 = 20;
const TRUE: u64 = 21;
const NULL: u64 = 22;

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The major type of the next value, without moving.
    #[inline]
    pub fn major(&self) -> Result<Major, CborError> {
        let first = self.rest.first().ok_or(CborError::Truncated)?;
        Ok(major_of(*first))
    }

    /// Reads one head: its major type and its argument, which must be minimal.
    #[inline]
    pub fn head(&mut self) -> Result<(Major, u64), CborError> {
        let (&first, rest) = self.rest.split_first().ok_or(CborError::Truncated)?;
        let major = major_of(first);
        let low = first & 0x1f;
        if low < 24 {
            self.rest = rest;
            return Ok((major, u64::from(low)));
        }
        if major == Major::Simple {
            return Err(CborError::Malformed("a float or an unknown simple value"));
        }
        self.long_head(major, low, rest)
    }

    fn long_head(
        &mut self,
        major: Major,
        low: u8,
        rest: &'a [u8],
    ) -> Result<(Major, u64), CborError> {
        let (argument, least, rest) = match low {
            24 => {
                let (bytes, rest) = rest.split_first_chunk::<1>().ok_or(CborError::Truncated)?;
                (u64::from(u8::from_be_bytes(*bytes)), 24, rest)
            }
            25 => {
                let (bytes, rest) = rest.split_first_chunk::<2>().ok_or(CborError::Truncated)?;
                (u64::from(u16::from_be_bytes(*bytes)), 1 << 8, rest)
            }
            26 => {
                let (bytes, rest) = rest.split_first_chunk::<4>().ok_or(CborError::Truncated)?;
                (u64::from(u32::from_be_bytes(*bytes)), 1 << 16, rest)
            }
            27 => {
                let (bytes, rest) = rest.split_first_chunk::<8>().ok_or(CborError::Truncated)?;
                (u64::from_be_bytes(*bytes), 1 << 32, rest)
            }
            31 => return Err(CborError::Malformed("indefinite length")),
            _ => return Err(CborError::Malformed("reserved head")),
        };
        if argument < least {
            return Err(CborError::Malformed("a length or integer is padded"));
        }
        self.rest = rest;
        Ok((major, argument))
    }

    /// Takes as many bytes as a head claims.
    #[inline]
    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], CborError> {
        let length = usize::try_from(length).map_err(|_| CborError::Truncated)?;
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(CborError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes text of the length a head claims and checks that it is UTF-8.
    #[inline]
    pub(super) fn take_text(&mut self, length: u64) -> Result<&'a str, CborError> {
        let bytes = self.take(length)?;
        simdutf8::basic::from_utf8(bytes)
            .map_err(|_| CborError::Malformed("text that is not utf-8"))
    }

    #[inline]
    fn expect(&mut self, wanted: Major, name: &'static str) -> Result<u64, CborError> {
        match self.head()? {
            (major, argument) if major == wanted => Ok(argument),
            _ => Err(CborError::Unexpected(name)),
        }
    }

    /// Skips exactly `literal`, if it comes next. Strict CBOR has one encoding,
    /// so known heads and field names can be compared as bytes.
    #[inline]
    pub fn literal(&mut self, literal: &[u8]) -> bool {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Reads text.
    #[inline]
    pub fn text(&mut self) -> Result<&'a str, CborError> {
        let length = self.expect(Major::Text, "text")?;
        self.take_text(length)
    }

    /// Reads a byte string.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], CborError> {
        let length = self.expect(Major::Bytes, "bytes")?;
        self.take(length)
    }

    /// Reads an integer of the data model.
    #[inline]
    pub fn int(&mut self) -> Result<i64, CborError> {
        let (major, argument) = self.head()?;
        int_of(major, argument)?.ok_or(CborError::Unexpected("an integer"))
    }

    /// Reads a boolean.
    pub fn bool(&mut self) -> Result<bool, CborError> {
        match self.head()? {
            (Major::Simple, FALSE) => Ok(false),
            (Major::Simple, TRUE) => Ok(true),
            _ => Err(CborError::Unexpected("a boolean")),
        }
    }

    /// Skips a null, if it comes next.
    #[inline]
    pub fn null(&mut self) -> bool {
        match self.rest.split_first() {
            Some((0xf6, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Reads a link (tag 42).
    #[inline]
    pub fn link(&mut self) -> Result<Cid, CborError> {
        // The only encoding of a valid link; the code below finds what is wrong with another.
        if let Some(rest) = self.rest.strip_prefix(&LINK_HEAD)
            && let Some((cid, rest)) = rest.split_first_chunk::<36>()
            && let Ok(cid) = Cid::from_bytes(cid)
        {
            self.rest = rest;
            return Ok(cid);
        }
        match self.head()? {
            (Major::Tag, 42) => self.link_body(),
            _ => Err(CborError::Unexpected("a link")),
        }
    }

    /// Reads the content of tag 42: a byte string of a zero and the CID.
    #[inline]
    pub(super) fn link_body(&mut self) -> Result<Cid, CborError> {
        let (major, length) = self.head()?;
        if major != Major::Bytes {
            return Err(CborError::Malformed("tag 42 without bytes"));
        }
        let Some((0, cid)) = self.take(length)?.split_first() else {
            return Err(CborError::Malformed("a link without its zero byte"));
        };
        Cid::from_bytes(cid)
            .map_err(|_| CborError::Malformed("a link whose CID is not of this network"))
    }

    /// Reads a link or null.
    #[inline]
    pub fn link_or_null(&mut self) -> Result<Option<Cid>, CborError> {
        if self.null() {
            return Ok(None);
        }
        self.link().map(Some)
    }

    /// Reads the head of a list: how many values follow.
    #[inline]
    pub fn list(&mut self) -> Result<u64, CborError> {
        self.expect(Major::List, "a list")
    }

    /// Reads the head of a map; the fields follow through [`Fields`].
    #[inline]
    pub fn map(&mut self) -> Result<Fields<'a>, CborError> {
        let count = self.expect(Major::Map, "a map")?;
        Ok(Fields::new(count))
    }

    /// Skips one whole value. Heads, tags, nesting and the type of keys are
    /// checked; UTF-8 and the order of keys are not.
    #[inline]
    pub fn skip(&mut self) -> Result<(), CborError> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: usize) -> Result<(), CborError> {
        let (major, argument) = self.head()?;
        match major {
            Major::Unsigned | Major::Negative => int_of(major, argument).map(|_| ()),
            Major::Bytes | Major::Text => self.take(argument).map(|_| ()),
            Major::Tag => tag_is_link(argument).and_then(|()| self.link_body().map(|_| ())),
            Major::Simple => simple_of(argument).map(|_| ()),
            Major::List => {
                let depth = deeper(depth)?;
                (0..argument).try_for_each(|_| self.skip_at(depth))
            }
            Major::Map => {
                let depth = deeper(depth)?;
                (0..argument).try_for_each(|_| {
                    let length = self.expect(Major::Text, "a text key")?;
                    self.take(length)?;
                    self.skip_at(depth)
                })
            }
        }
    }
}

/// The fields of one map that is being read, in their canonical order.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    left: u64,
    last: Option<&'a str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(count: u64) -> Self {
        Self {
            left: count,
            last: None,
        }
    }

    /// Fields not yet read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Reads the next key, which must follow the previous key in canonical
    /// order; the caller then reads or skips its value.
    #[inline]
    pub fn key(&mut self, reader: &mut Reader<'a>) -> Result<Option<&'a str>, CborError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let (major, length) = reader.head()?;
        if major != Major::Text {
            return Err(CborError::Malformed("a key that is not text"));
        }
        let key = reader.take_text(length)?;
        if let Some(last) = self.last
            && (last.len(), last.as_bytes()) >= (key.len(), key.as_bytes())
        {
            return Err(CborError::Malformed("keys unsorted or repeated"));
        }
        self.last = Some(key);
        Ok(Some(key))
    }
}

#[inline]
fn major_of(first: u8) -> Major {
    match first >> 5 {
        0 => Major::Unsigned,
        1 => Major::Negative,
        2 => Major::Bytes,
        3 => Major::Text,
        4 => Major::List,
        5 => Major::Map,
        6 => Major::Tag,
        _ => Major::Simple,
    }
}

/// The integer that a head encodes; `None` for another major type.
#[inline]
pub(super) fn int_of(major: Major, argument: u64) -> Result<Option<i64>, CborError> {
    let magnitude = match major {
        Major::Unsigned | Major::Negative => i64::try_from(argument)
            .map_err(|_| CborError::Malformed("an integer outside 64 bits"))?,
        _ => return Ok(None),
    };
    Ok(Some(if major == Major::Negative {
        -1 - magnitude
    } else {
        magnitude
    }))
}

/// `Some(bool)` for a boolean, `None` for null.
#[inline]
pub(super) fn simple_of(argument: u64) -> Result<Option<bool>, CborError> {
    match argument {
        FALSE => Ok(Some(false)),
        TRUE => Ok(Some(true)),
        NULL => Ok(None),
        _ => Err(CborError::Malformed("a float or an unknown simple value")),
    }
}

#[inline]
pub(super) fn tag_is_link(tag: u64) -> Result<(), CborError> {
    match tag {
        42 => Ok(()),
        _ => Err(CborError::Malformed("a tag other than 42")),
    }
}

#[inline]
pub(super) fn deeper(depth: usize) -> Result<usize, CborError> {
    if depth >= DEPTH_MAX {
        return Err(CborError::TooDeep);
    }
    Ok(depth + 1)
}
