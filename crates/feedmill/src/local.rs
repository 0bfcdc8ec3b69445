//! Local ids: the names that an app without AT Protocol gives to people and records.
//!
//! In:    a number or a short text, as a path, a JSON value or a stored key.
//! Out:   a DID for a person, a record key and URI for a record, and the way back;
//!        whether a name that is no DID is such an id.
//! Never: two ids with one encoding; a number that sorts as text.
//!
//! Records of all people share one repository, because their ids are unique
//! within a collection: so an id alone finds its record, and records of one
//! moment stand in the order of their ids whoever wrote them. A number is
//! written after a letter that says how many digits it has, so that the order
//! of the text is the order of the numbers.

use std::fmt;

use record::value::Value;

use crate::config::Config;

/// The repository of every record written directly.
pub const REPO: &str = "did:local:repo";

/// How the DID of a person begins who has no account on the network.
pub const PEOPLE: &str = "did:local:";

/// Bytes of a text id.
pub const ID_BYTES_MAX: usize = 128;

/// An id that an app gave.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LocalId {
    Number(u64),
    Text(Box<str>),
}

/// Why something is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an id is a whole number from 0, or a text of 1 to {ID_BYTES_MAX} bytes without control characters"
)]
pub struct NotAnId;

impl LocalId {
    /// Reads an id from text; digits without a leading zero are a number.
    pub fn parse(text: &str) -> Result<Self, NotAnId> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if digits
            && (text == "0" || !text.starts_with('0'))
            && let Ok(number) = text.parse()
        {
            return Ok(Self::Number(number));
        }
        let fits = !text.is_empty() && text.len() <= ID_BYTES_MAX;
        if fits && !text.chars().any(char::is_control) {
            Ok(Self::Text(text.into()))
        } else {
            Err(NotAnId)
        }
    }

    /// Reads an id from a request's JSON.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, NotAnId> {
        match value {
            serde_json::Value::Number(number) => number.as_u64().map(Self::Number).ok_or(NotAnId),
            serde_json::Value::String(text) => Self::parse(text),
            _ => Err(NotAnId),
        }
    }

    /// Reads an id from a record's field.
    pub fn from_field(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Int(number) => u64::try_from(*number).ok().map(Self::Number),
            Value::Text(text) => Self::parse(text).ok(),
            _ => None,
        }
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    /// The id as JSON; a number too great for the data model is a text.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Number(number) => match i64::try_from(*number) {
                Ok(number) => number.into(),
                Err(_) => number.to_string().into(),
            },
            Self::Text(text) => (&**text).into(),
        }
    }

    /// The text that stands for it in a record key or a DID; sorts as the ids do.
    pub fn encoded(&self) -> String {
        match self {
            Self::Number(number) => {
                let digits = number.to_string();
                // 1 to 20 digits: a to t.
                let length = (b'a' - 1).saturating_add(digits.len() as u8);
                format!("{}{digits}", char::from(length))
            }
            Self::Text(text) => format!("_{}", escaped(text)),
        }
    }

    /// The id behind an encoding.
    pub fn decode(encoded: &str) -> Option<Self> {
        let id = match encoded.strip_prefix('_') {
            Some(text) => Self::Text(unescaped(text)?.into()),
            None => Self::Number(encoded.get(1..)?.parse().ok()?),
        };
        (id.encoded() == encoded).then_some(id)
    }

    /// The DID of the person of this id.
    pub fn did(&self) -> String {
        format!("{PEOPLE}{}", self.encoded())
    }

    /// The id of the person behind a DID of ours.
    pub fn of_did(did: &str) -> Option<Self> {
        Self::decode(did.strip_prefix(PEOPLE)?)
    }

    /// The URI of the record of this id.
    pub fn uri(&self, collection: &str) -> String {
        format!("at://{REPO}/{collection}/{}", self.encoded())
    }

    /// The id in a URI of ours.
    pub fn of_uri(uri: &str) -> Option<Self> {
        Self::decode(uri.rsplit_once('/')?.1)
    }
}

impl fmt::Display for LocalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// What a name may be that is no DID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A handle: nothing is written directly.
    Handles,
    /// A handle if it looks like one, else an app's id.
    Both,
    /// An app's id: everything is written directly.
    Ids,
}

impl Names {
    /// As a configuration's collections have it.
    pub fn of(config: &Config) -> Self {
        let mut collections = config.collections.values();
        match (config.has_direct(), collections.all(|one| one.direct)) {
            (false, _) => Self::Handles,
            (true, false) => Self::Both,
            (true, true) => Self::Ids,
        }
    }

    /// The DID of the person whose id a name is; `None` if it can only be a handle.
    pub fn person(self, name: &str) -> Option<String> {
        let id = match self {
            Self::Handles => return None,
            Self::Both if record::ids::Handle::parse(name).is_ok() => return None,
            Self::Both | Self::Ids => LocalId::parse(name).ok()?,
        };
        Some(id.did())
    }
}

/// Text of which only letters, digits, `.` and `-` stay as they are; the rest becomes `:XX`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!(":{byte:02X}"));
        }
    }
    out
}

/// The text behind [`escaped`].
pub fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split(':');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_as_numbers() {
        let numbers = [0, 7, 9, 10, 99, 100, 1040, 1_000_000, u64::MAX];
        let encoded: Vec<String> = numbers
            .iter()
            .map(|number| LocalId::Number(*number).encoded())
            .collect();
        assert!(encoded.is_sorted(), "{encoded:?}");
    }

    #[test]
    fn every_id_comes_back_from_its_encoding() {
        let long = "x".repeat(ID_BYTES_MAX);
        for text in [
            "0",
            "404",
            "007",
            "18446744073709551615",
            "18446744073709551616",
            "a404",
            "_x",
            "a/b c",
            "ünï:41",
            ":",
            "..",
            "repo",
            &long,
        ] {
            let id = LocalId::parse(text).unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(LocalId::decode(&id.encoded()), Some(id.clone()), "{text}");
            assert!(record::ids::Did::parse(&id.did()).is_ok(), "{}", id.did());
            assert!(record::ids::RecordKey::parse(&id.encoded()).is_ok());
            assert_ne!(id.did(), REPO);
        }
    }

    #[test]
    fn a_name_is_an_id_where_it_cannot_be_a_handle() {
        let check = |names: Names, name: &str, expected: Option<&str>| {
            assert_eq!(names.person(name).as_deref(), expected, "{names:?} {name}");
        };
        check(Names::Handles, "404", None);
        check(Names::Both, "404", Some("did:local:c404"));
        check(Names::Both, "anna.example.com", None);
        check(
            Names::Ids,
            "anna.example.com",
            Some("did:local:_anna.example.com"),
        );
        check(Names::Ids, "", None);
        let id = LocalId::Number(404);
        assert_eq!(LocalId::of_did(&id.did()), Some(id));
        assert_eq!(LocalId::of_did(REPO), None);
        assert_eq!(LocalId::of_did("did:plc:c404"), None);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "a\nb", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert_eq!(LocalId::parse(text), Err(NotAnId));
        }
        for json in ["-1", "1.5", "null", "true", "[1]"] {
            let value = serde_json::from_str(json).unwrap();
            assert_eq!(LocalId::from_json(&value), Err(NotAnId), "{json}");
        }
        assert_eq!(LocalId::decode("c1050"), None);
        assert_eq!(LocalId::decode("_\u{e9}:4"), None);
    }

    #[test]
    fn a_number_and_its_text_are_one_id() {
        let text = LocalId::from_json(&"501".into()).unwrap();
        assert_eq!(LocalId::from_json(&501.into()).unwrap(), text);
    }
}
