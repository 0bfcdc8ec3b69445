//! A lexicon document as it was written, checked but not yet linked.
//!
//! Descriptions, defaults, known values and error names do not decide which
//! values are valid; they are checked while parsing and not stored.

use crate::ids::{Nsid, RecordKey};
use crate::tid::Tid;

use super::format::Format;

/// One lexicon document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The name of the lexicon.
    pub id: Nsid,
    /// Definitions by name; `main` is the definition that has the document's name.
    pub defs: Vec<(String, Def)>,
}

/// One definition of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Def {
    /// Records of a collection.
    Record { key: KeyType, schema: Schema },
    /// A query or a procedure.
    Method {
        input: Option<Schema>,
        output: Option<Schema>,
    },
    /// An event stream.
    Subscription { message: Option<Schema> },
    /// A set of permissions. It describes no values.
    PermissionSet,
    /// A type that a field can refer to.
    Field(Schema),
}

/// The type and constraints of one value.
#[derive(Debug, Clone, PartialEq)]
pub enum Schema {
    Null,
    Boolean(BooleanRule),
    Integer(IntegerRule),
    Text(TextRule),
    Bytes(Bounds),
    Link,
    Blob(BlobRule),
    Array { items: Box<Schema>, length: Bounds },
    Object(Vec<Property>),
    Ref(Reference),
    Union { refs: Vec<Reference>, closed: bool },
    Token,
    Unknown,
}

/// One field of an object, in canonical order of names.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    pub name: String,
    /// `None` if the field is required but not described.
    pub schema: Option<Schema>,
    pub required: bool,
    pub nullable: bool,
}

/// The full name of a definition: `com.example.thing#part`, and for a main
/// definition the NSID alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(Box<str>);

impl Reference {
    /// The definition `name` of the lexicon `id`.
    pub fn new(id: &Nsid, name: &str) -> Self {
        if name == "main" {
            Self(id.as_str().into())
        } else {
            Self(format!("{id}#{name}").into())
        }
    }

    /// Parses a reference in the lexicon `home`.
    pub fn parse(text: &str, home: &Nsid) -> Option<Self> {
        let (id, name) = text.split_once('#').unwrap_or((text, "main"));
        if !is_def_name(name) {
            return None;
        }
        if id.is_empty() {
            return Some(Self::new(home, name));
        }
        Nsid::parse(id).ok().map(|id| Self::new(&id, name))
    }

    /// The full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `name` may name a definition.
pub(super) fn is_def_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The least and the greatest value allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds<T = usize> {
    pub min: T,
    pub max: T,
}

impl<T: PartialOrd> Bounds<T> {
    /// Whether `amount` is within the bounds.
    pub fn contains(&self, amount: T) -> bool {
        self.min <= amount && amount <= self.max
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BooleanRule {
    pub constant: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegerRule {
    pub range: Bounds<i64>,
    /// If not empty, the only values allowed. A constant is a list of one.
    pub allowed: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRule {
    /// In bytes of UTF-8.
    pub length: Bounds,
    pub graphemes: Bounds,
    pub format: Option<Format>,
    /// If not empty, the only values allowed. A constant is a list of one.
    pub allowed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRule {
    /// MIME types, or patterns such as `image/*`; empty for any.
    pub accept: Vec<String>,
    pub size_max: i64,
}

impl BlobRule {
    /// Whether a blob may be of this MIME type.
    pub fn accepts(&self, mime_type: &str) -> bool {
        self.accept.is_empty()
            || self.accept.iter().any(|pattern| {
                pattern == "*/*"
                    || pattern == mime_type
                    || pattern.strip_suffix('*').is_some_and(|prefix| {
                        prefix.ends_with('/') && mime_type.starts_with(prefix)
                    })
            })
    }
}

/// The format of the record keys of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyType {
    Tid,
    Nsid,
    Literal(String),
    Any,
}

impl KeyType {
    /// Reads `tid`, `nsid`, `any` or `literal:…`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "tid" => Some(Self::Tid),
            "nsid" => Some(Self::Nsid),
            "any" => Some(Self::Any),
            _ => text
                .strip_prefix("literal:")
                .filter(|literal| RecordKey::is_valid(literal))
                .map(|literal| Self::Literal(literal.to_owned())),
        }
    }

    /// Whether a record may have this key.
    pub fn accepts(&self, rkey: &str) -> bool {
        match self {
            Self::Tid => Tid::parse(rkey).is_ok(),
            Self::Nsid => Nsid::is_valid(rkey),
            Self::Literal(literal) => literal == rkey,
            Self::Any => RecordKey::is_valid(rkey),
        }
    }
}

impl std::fmt::Display for KeyType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tid => f.write_str("tid"),
            Self::Nsid => f.write_str("nsid"),
            Self::Literal(literal) => write!(f, "literal:{literal}"),
            Self::Any => f.write_str("any"),
        }
    }
}
