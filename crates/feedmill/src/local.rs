//! Local ids: the names that an app without AT Protocol gives to people and records.
//!
//! In:    a number or a short text, as a path, a JSON value or a stored key.
//! Out:   a DID for a person, a record key and URI for a record, and the way back;
//!        what a name may be, and whom it names.
//! Never: two ids with one encoding; a number that sorts as text; a person's id
//!        that could be taken for a DID or a URI.
//!
//! Records of all people share one repository, because their ids are unique
//! within a collection: so an id alone finds its record, and records of one
//! moment stand in the order of their ids whoever wrote them. A number is
//! written after a letter that says how many digits it has, so that the order
//! of the text is the order of the numbers.

use std::fmt;

use record::value::Value;

use crate::config::Config;
use crate::config::direct::Ids;

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

/// How a text begins that names somebody or something of the network, and so is no person's id.
const NETWORK: [&str; 2] = ["did:", "at://"];

/// Characters of a did:plc after its method.
const PLC_CHARS: usize = 24;

/// Why something is not an id: it says what is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnId {
    /// Where ids are numbers and texts.
    #[error(
        "an id is a whole number from 0, or a text of 1 to {ID_BYTES_MAX} bytes without control characters"
    )]
    Any,
    /// The same, of a person.
    #[error(
        "a person's id is a whole number from 0, or a text of 1 to {ID_BYTES_MAX} bytes without control characters that does not begin with did: or at://"
    )]
    Person,
    /// Where ids are numbers.
    #[error("an id is a whole number from 0 to {}", u64::MAX)]
    Number,
}

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
            Err(NotAnId::Any)
        }
    }

    /// Reads an id from a request's JSON.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, NotAnId> {
        match value {
            serde_json::Value::Number(number) => {
                number.as_u64().map(Self::Number).ok_or(NotAnId::Any)
            }
            serde_json::Value::String(text) => Self::parse(text),
            _ => Err(NotAnId::Any),
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

impl Ids {
    /// The id of a record.
    pub fn record(self, text: &str) -> Result<LocalId, NotAnId> {
        self.one_of_these(LocalId::parse(text))
    }

    /// The id of a person.
    pub fn person(self, text: &str) -> Result<LocalId, NotAnId> {
        self.a_person(LocalId::parse(text))
    }

    /// The id of a person in a request's JSON.
    pub fn person_in(self, value: &serde_json::Value) -> Result<LocalId, NotAnId> {
        self.a_person(LocalId::from_json(value))
    }

    fn a_person(self, read: Result<LocalId, NotAnId>) -> Result<LocalId, NotAnId> {
        match self.one_of_these(read) {
            Ok(LocalId::Text(text)) if NETWORK.iter().any(|it| text.starts_with(it)) => {
                Err(NotAnId::Person)
            }
            Err(NotAnId::Any) => Err(NotAnId::Person),
            read => read,
        }
    }

    fn one_of_these(self, read: Result<LocalId, NotAnId>) -> Result<LocalId, NotAnId> {
        match (self, read) {
            (Self::Any, read) | (Self::Number, read @ Ok(LocalId::Number(_))) => read,
            (Self::Number, _) => Err(NotAnId::Number),
        }
    }
}

/// What a name may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A DID or a handle: nothing is written directly.
    Handles,
    /// A DID, a handle if it looks like one, else an app's id.
    Both(Ids),
    /// A DID or an app's id: everything is written directly.
    Ids(Ids),
}

impl Names {
    /// As a configuration's collections have it.
    pub fn of(config: &Config) -> Self {
        let mut collections = config.collections.values();
        let ids = config.direct.ids;
        match (config.has_direct(), collections.all(|one| one.direct)) {
            (false, _) => Self::Handles,
            (true, false) => Self::Both(ids),
            (true, true) => Self::Ids(ids),
        }
    }

    /// The DID of the person whose id a name is.
    pub fn person(self, name: &str) -> Option<String> {
        let id = match self {
            Self::Handles => return None,
            Self::Both(_) if self.is_handle(name) => return None,
            Self::Both(ids) | Self::Ids(ids) => ids.person(name).ok()?,
        };
        Some(id.did())
    }

    /// The id that a record's name is.
    pub fn record(self, name: &str) -> Option<LocalId> {
        match self {
            Self::Handles => None,
            Self::Both(ids) | Self::Ids(ids) => ids.record(name).ok(),
        }
    }

    /// Whether a name is a handle.
    pub fn is_handle(self, name: &str) -> bool {
        !matches!(self, Self::Ids(_)) && record::ids::Handle::parse(name).is_ok()
    }

    /// Whether a DID can be that of an account. Nobody could resolve one of another method.
    pub fn is_account(self, did: &str) -> bool {
        match (self, did.strip_prefix(PEOPLE), did.strip_prefix("did:plc:")) {
            (Self::Both(ids) | Self::Ids(ids), Some(_), _) => {
                LocalId::of_did(did).is_some_and(|id| ids.person(&id.to_string()) == Ok(id))
            }
            (Self::Both(_) | Self::Ids(_), _, Some(plc)) => {
                let base32 = |byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7');
                plc.len() == PLC_CHARS && plc.bytes().all(base32)
            }
            (_, local, plc) => local.is_some() || plc.is_some() || did.starts_with("did:web:"),
        }
    }

    /// What names an account, in words.
    pub fn accepted(self) -> String {
        let (handle, ids) = match self {
            Self::Handles => return "an account is a did:plc, a did:web or a handle".to_owned(),
            Self::Both(ids) => (", a handle", ids),
            Self::Ids(ids) => ("", ids),
        };
        let id = match ids {
            Ids::Any => NotAnId::Person,
            Ids::Number => NotAnId::Number,
        };
        format!(
            "an account is a did:plc with its {PLC_CHARS} characters, a did:web, a did:local of a person{handle} or an app's id; {id}"
        )
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
        let (both, ids) = (Names::Both(Ids::Any), Names::Ids(Ids::Any));
        check(Names::Handles, "404", None);
        check(both, "404", Some("did:local:c404"));
        check(both, "anna.example.com", None);
        check(ids, "anna.example.com", Some("did:local:_anna.example.com"));
        for name in ["", "did:", "did:foo", "at://x"] {
            check(both, name, None);
            check(ids, name, None);
        }
        let numbers = Names::Ids(Ids::Number);
        check(numbers, "404", Some("did:local:c404"));
        for name in ["abc", "-1", "1.5", "007", "18446744073709551616"] {
            check(numbers, name, None);
        }
        let id = LocalId::Number(404);
        assert_eq!(LocalId::of_did(&id.did()), Some(id));
        assert_eq!(LocalId::of_did(REPO), None);
        assert_eq!(LocalId::of_did("did:plc:c404"), None);
    }

    #[test]
    fn an_account_is_known_by_its_method_and_beside_an_app_by_its_form() {
        let (any, numbers) = (Names::Both(Ids::Any), Names::Ids(Ids::Number));
        let check = |names: Names, did: &str, expected: bool| {
            assert_eq!(names.is_account(did), expected, "{names:?} {did}");
        };
        for names in [Names::Handles, any, numbers] {
            check(names, "did:plc:aaaaaaaaaaaaaaaaaaaaaaa7", true);
            check(names, "did:web:a.test", true);
            check(names, "did:local:c404", true);
            check(names, "did:foo:baz2", false);
        }
        for names in [any, numbers] {
            check(names, "did:plc:xyz", false);
            check(names, "did:plc:aaaaaaaaaaaaaaaaaaaaaaa8", false);
            check(names, "did:local:c4", false);
            check(names, "did:local:_404", false);
            check(names, REPO, false);
        }
        check(any, "did:local:_anna", true);
        check(numbers, "did:local:_anna", false);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "a\nb", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert_eq!(LocalId::parse(text), Err(NotAnId::Any));
        }
        for json in ["-1", "1.5", "null", "true", "[1]"] {
            let value = serde_json::from_str(json).unwrap();
            assert_eq!(LocalId::from_json(&value), Err(NotAnId::Any), "{json}");
            assert_eq!(Ids::Any.person_in(&value), Err(NotAnId::Person), "{json}");
            assert_eq!(
                Ids::Number.person_in(&value),
                Err(NotAnId::Number),
                "{json}"
            );
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
