//! From bytes to a [`Value`] that borrows them.

use std::borrow::Cow;

use crate::value::Value;

use super::CborError;
use super::reader::{Fields, Major, Reader, deeper, int_of, simple_of, tag_is_link};

/// Elements allocated before any has been read. The length is only claimed by
/// the input; the vector grows as elements are read.
const PREALLOCATED_MAX: u64 = 16;

/// Reads one value that is the whole input.
pub fn decode(bytes: &[u8]) -> Result<Value<'_>, CborError> {
    let (value, rest) = decode_first(bytes)?;
    if !rest.is_empty() {
        return Err(CborError::Malformed("bytes after the value"));
    }
    Ok(value)
}

/// Reads one value at the start of the input and returns what follows it.
pub fn decode_first(bytes: &[u8]) -> Result<(Value<'_>, &[u8]), CborError> {
    let mut reader = Reader::new(bytes);
    let value = value(&mut reader, 0)?;
    Ok((value, reader.rest()))
}

fn value<'a>(reader: &mut Reader<'a>, depth: usize) -> Result<Value<'a>, CborError> {
    let (major, argument) = reader.head()?;
    match major {
        Major::Unsigned | Major::Negative => {
            Ok(int_of(major, argument)?.map_or(Value::Null, Value::Int))
        }
        Major::Bytes => Ok(Value::Bytes(Cow::Borrowed(reader.take(argument)?))),
        Major::Text => Ok(Value::Text(Cow::Borrowed(reader.take_text(argument)?))),
        Major::Tag => {
            tag_is_link(argument)?;
            Ok(Value::Link(reader.link_body()?))
        }
        Major::Simple => Ok(simple_of(argument)?.map_or(Value::Null, Value::Bool)),
        Major::List => {
            let depth = deeper(depth)?;
            let mut items = Vec::with_capacity(argument.min(PREALLOCATED_MAX) as usize);
            for _ in 0..argument {
                items.push(value(reader, depth)?);
            }
            Ok(Value::List(items))
        }
        Major::Map => {
            let depth = deeper(depth)?;
            let mut items = Vec::with_capacity(argument.min(PREALLOCATED_MAX) as usize);
            let mut fields = Fields::new(argument);
            while let Some(key) = fields.key(reader)? {
                items.push((Cow::Borrowed(key), value(reader, depth)?));
            }
            Ok(Value::Map(items))
        }
    }
}
