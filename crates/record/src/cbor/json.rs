//! From CBOR bytes straight to AT Protocol JSON text.
//!
//! In:    the bytes of one block.
//! Out:   JSON with `$link` and `$bytes`, fields in the block's order.
//! Never: a tree in between; JSON from a block [`super::decode`] would refuse.
//!
//! A record's body is stored as JSON and mostly never looked at again, so
//! building a tree of it first would be work for nobody.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::CborError;
use super::reader::{Fields, Major, Reader, deeper, int_of, simple_of, tag_is_link};
use crate::cid::Cid;

/// Appends the JSON of `cbor` to `out`. After an error `out` is as long as before.
pub fn to_json(cbor: &[u8], out: &mut Vec<u8>) -> Result<(), CborError> {
    let start = out.len();
    // JSON of records is a little longer than their CBOR.
    out.reserve(cbor.len() + cbor.len() / 4);
    let mut reader = Reader::new(cbor);
    let written = value(&mut reader, out, 0).and_then(|()| match reader.rest() {
        [] => Ok(()),
        _ => Err(CborError::Malformed("bytes after the value")),
    });
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn value(reader: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), CborError> {
    let (major, argument) = reader.head()?;
    match major {
        Major::Unsigned | Major::Negative => {
            if let Some(value) = int_of(major, argument)? {
                int(value, out);
            }
        }
        Major::Bytes => bytes(reader.take(argument)?, out),
        Major::Text => text(reader.take_text(argument)?, out),
        Major::Tag => {
            tag_is_link(argument)?;
            link(&reader.link_body()?, out);
        }
        Major::Simple => out.extend_from_slice(match simple_of(argument)? {
            Some(true) => b"true",
            Some(false) => b"false",
            None => b"null",
        }),
        Major::List => {
            let depth = deeper(depth)?;
            out.push(b'[');
            for at in 0..argument {
                if at > 0 {
                    out.push(b',');
                }
                value(reader, out, depth)?;
            }
            out.push(b']');
        }
        Major::Map => {
            let depth = deeper(depth)?;
            out.push(b'{');
            let mut fields = Fields::new(argument);
            let mut first = true;
            while let Some(key) = fields.key(reader)? {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                text(key, out);
                out.push(b':');
                value(reader, out, depth)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn link(cid: &Cid, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"$link\":\"");
    out.extend_from_slice(&cid.to_text());
    out.extend_from_slice(b"\"}");
}

fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"$bytes\":\"");
    out.extend_from_slice(STANDARD_NO_PAD.encode(bytes).as_bytes());
    out.extend_from_slice(b"\"}");
}

fn int(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut left = value.unsigned_abs();
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        used += 1;
        if left == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend(digits.iter().skip(digits.len() - used));
}

/// Writes a JSON string. UTF-8 goes through as it is; only what JSON forbids
/// is escaped.
fn text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let plain = rest
            .iter()
            .position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\')
            .unwrap_or(rest.len());
        let (clean, tail) = rest.split_at_checked(plain).unwrap_or((rest, &[]));
        out.extend_from_slice(clean);
        let Some((&special, tail)) = tail.split_first() else {
            break;
        };
        escape(special, out);
        rest = tail;
    }
    out.push(b'"');
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let digit = |nibble: u8| match nibble {
                0..=9 => b'0' + nibble,
                _ => b'a' + nibble - 10,
            };
            out.extend([b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.extend([b'\\', short]);
}
