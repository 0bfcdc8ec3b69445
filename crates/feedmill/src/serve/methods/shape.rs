//! Shapes: what parameters and bodies look like.
//!
//! Only what a lexicon can say too, so that one shape becomes a lexicon's
//! schema and an OpenAPI document's without loss.

/// What a value looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    Text {
        /// A format that lexicons know: `did`, `at-uri`, `datetime` and so on.
        format: Option<&'static str>,
    },
    /// One of these texts.
    Choice(Vec<String>),
    Integer {
        least: Option<i64>,
        most: Option<i64>,
        default: Option<i64>,
    },
    Boolean,
    /// An object of which nothing is said.
    Unknown,
    /// Anything: an id that is a number or a text.
    Any,
    List(Box<Shape>),
    /// One of the method's named shapes.
    Named(String),
    Object(Vec<Field>),
}

/// Whether a field is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Always,
    Sometimes,
    /// It is there, and may be null.
    OrNull,
}

/// One field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub shape: Shape,
    pub need: Need,
}

impl Shape {
    /// Any text.
    pub fn text() -> Self {
        Self::Text { format: None }
    }

    /// A text of a format.
    pub fn format(format: &'static str) -> Self {
        Self::Text {
            format: Some(format),
        }
    }

    /// Any whole number.
    pub fn integer() -> Self {
        Self::Integer {
            least: None,
            most: None,
            default: None,
        }
    }

    /// A whole number from zero on.
    pub fn count() -> Self {
        Self::Integer {
            least: Some(0),
            most: None,
            default: None,
        }
    }

    /// A list of one of the method's named shapes.
    pub fn list_of(name: &str) -> Self {
        Self::List(Box::new(Self::Named(name.to_owned())))
    }
}

/// A field that is always there.
pub fn always(name: &str, shape: Shape) -> Field {
    Field {
        name: name.to_owned(),
        shape,
        need: Need::Always,
    }
}

/// A field that may be absent.
pub fn sometimes(name: &str, shape: Shape) -> Field {
    Field {
        need: Need::Sometimes,
        ..always(name, shape)
    }
}

/// A field that is there and may be null.
pub fn or_null(name: &str, shape: Shape) -> Field {
    Field {
        need: Need::OrNull,
        ..always(name, shape)
    }
}
