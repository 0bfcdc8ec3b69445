//! Reading CBOR as ordinary programs write it.
//!
//! In:    bytes of RFC 8949: keys in any order, lengths of any width or none, floats, tags.
//! Out:   the JSON form they stand for.
//! Never: a value with two readings: a repeated key, a key that is no text, bytes left over;
//!        more nesting than [`DEPTH_MAX`]; memory set aside because a length says so.
//!
//! Many writers have one kind of number and write whole ones above 2^32 as floats, so a float that is
//! whole is read as an integer. Tags say how to look at what they stand before; they are skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

/// Containers and tags inside each other that are still read.
const DEPTH_MAX: usize = 64;

/// Whole numbers up to here are exact in a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The JSON form of one item that is all of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader { rest: bytes };
    let value = reader.value("", 0)?;
    reader.rest.is_empty().then_some(value)
}

/// Hashes are hexadecimal in JSON, all other bytes base64.
pub(crate) fn is_hash(field: &str) -> bool {
    field == "hash" || field == "predHash"
}

/// How the bytes of a field are written in JSON.
pub(crate) fn bytes_in_json(field: &str, bytes: &[u8]) -> String {
    match is_hash(field) {
        true => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        false => STANDARD.encode(bytes),
    }
}

/// What follows the first byte of an item.
enum Argument {
    Number(u64),
    /// The item ends with a break.
    Open,
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    /// A number of so many bytes.
    fn number(&mut self, bytes: u64) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some(
            taken
                .iter()
                .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
        )
    }

    fn argument(&mut self, low: u8) -> Option<Argument> {
        Some(match low {
            0..24 => Argument::Number(low.into()),
            24 => Argument::Number(self.number(1)?),
            25 => Argument::Number(self.number(2)?),
            26 => Argument::Number(self.number(4)?),
            27 => Argument::Number(self.number(8)?),
            31 => Argument::Open,
            _ => return None,
        })
    }

    /// Whether the break comes next; it is taken.
    fn at_break(&mut self) -> Option<bool> {
        let ends = *self.rest.first()? == 0xff;
        if ends {
            self.byte()?;
        }
        Some(ends)
    }

    /// The next item, which is the value of `field`.
    fn value(&mut self, field: &str, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        let first = self.byte()?;
        let (major, low) = (first >> 5, first & 31);
        if major == 7 {
            return self.simple(low);
        }
        let argument = self.argument(low)?;
        Some(match (major, argument) {
            (0, Argument::Number(number)) => Value::Number(number.into()),
            (1, Argument::Number(number)) => {
                let number = i64::try_from(number).ok()?;
                Value::Number((-1 - number).into())
            }
            (2, argument) => Value::String(bytes_in_json(field, &self.bytes(2, &argument)?)),
            (3, argument) => Value::String(self.text(&argument)?),
            (4, argument) => Value::Array(self.list(&argument, depth)?),
            (5, argument) => Value::Object(self.map(&argument, depth)?),
            (6, Argument::Number(_)) => self.value(field, depth + 1)?,
            _ => return None,
        })
    }

    /// A string, or its pieces one after the other.
    fn bytes(&mut self, major: u8, argument: &Argument) -> Option<Vec<u8>> {
        if let Argument::Number(length) = argument {
            return self.take(*length).map(<[u8]>::to_vec);
        }
        let mut all = Vec::new();
        while !self.at_break()? {
            let first = self.byte()?;
            let Argument::Number(length) = self.argument(first & 31)? else {
                return None;
            };
            if first >> 5 != major {
                return None;
            }
            all.extend_from_slice(self.take(length)?);
        }
        Some(all)
    }

    fn text(&mut self, argument: &Argument) -> Option<String> {
        String::from_utf8(self.bytes(3, argument)?).ok()
    }

    fn list(&mut self, argument: &Argument, depth: usize) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        while !self.is_over(argument, values.len())? {
            values.push(self.value("", depth + 1)?);
        }
        Some(values)
    }

    fn map(&mut self, argument: &Argument, depth: usize) -> Option<Map<String, Value>> {
        let mut fields = Map::new();
        while !self.is_over(argument, fields.len())? {
            let first = self.byte()?;
            let length = self.argument(first & 31)?;
            if first >> 5 != 3 {
                return None;
            }
            let name = self.text(&length)?;
            let value = self.value(&name, depth + 1)?;
            if fields.insert(name, value).is_some() {
                return None;
            }
        }
        Some(fields)
    }

    /// Whether a container of which so many items were read has no more.
    fn is_over(&mut self, argument: &Argument, read: usize) -> Option<bool> {
        match argument {
            Argument::Number(count) => Some(read as u64 >= *count),
            Argument::Open => self.at_break(),
        }
    }

    fn simple(&mut self, low: u8) -> Option<Value> {
        Some(match low {
            20 => Value::Bool(false),
            21 => Value::Bool(true),
            22 | 23 => Value::Null,
            25 => float(half(self.number(2)? as u16))?,
            26 => float(f32::from_bits(self.number(4)? as u32).into())?,
            27 => float(f64::from_bits(self.number(8)?))?,
            _ => return None,
        })
    }
}

/// A float of sixteen bits.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 31, f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn float(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() <= EXACT_MAX {
        return Some(Value::Number((number as i64).into()));
    }
    Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(bytes: &[u8], expected: Option<Value>) {
        assert_eq!(read(bytes), expected, "{bytes:02x?}");
    }

    #[test]
    fn ordinary_cbor_is_read() {
        check(b"\xa2\x62bb\x01\x61a\x02", Some(json!({"bb": 1, "a": 2}))); // keys in any order
        check(b"\x1b\0\0\0\0\0\0\0\x05", Some(json!(5))); // a padded integer
        check(b"\x39\x00\x02", Some(json!(-3)));
        check(
            b"\xfb\x42\x78\x00\x00\x00\x00\x00\x00",
            Some(json!(1_649_267_441_664_u64)),
        );
        check(b"\xfa\x3f\xc0\x00\x00", Some(json!(1.5)));
        check(b"\xf9\x3e\x00", Some(json!(1.5)));
        check(b"\xf9\xc4\x00", Some(json!(-4)));
        check(b"\x9f\x01\x82\x02\x03\xff", Some(json!([1, [2, 3]]))); // no length
        check(b"\xbf\x61a\xf7\xff", Some(json!({"a": null})));
        check(b"\x7f\x62ab\x61c\xff", Some(json!("abc")));
        check(
            b"\xd9\xd9\xf7\xa1\x64data\x42hi",
            Some(json!({"data": "aGk="})),
        ); // a tag
        check(
            b"\xa1\x64data\x5f\x41h\x41i\xff",
            Some(json!({"data": "aGk="})),
        );
        check(
            b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
            Some(json!(u64::MAX)),
        );
    }

    #[test]
    fn what_is_broken_or_has_two_readings_is_nothing() {
        for wrong in [
            b"".as_slice(),
            b"\x01\x01",                                 // bytes left over
            b"\xa2\x61a\x01\x61a\x02",                   // a repeated key
            b"\xa1\x01\x02",                             // a key that is no text
            b"\x42h",                                    // cut short
            b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a length that lies
            b"\x5f\x61a\xff",                            // pieces of another kind
            b"\x5f\x5f\xff\xff",
            b"\x61\xff", // no UTF-8
            b"\xff",
            b"\x1c",
            b"\xf9\x7c\x00",                         // infinity
            b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff", // below every integer of JSON
        ] {
            check(wrong, None);
        }
        check(&[0x81; 100], None);
        check(&[0xc0; 100], None);
    }
}
