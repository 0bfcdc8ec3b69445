//! Shapes: what parameters and bodies look like.
//!
//! Only what a lexicon can say too, so that one shape becomes a lexicon's
//! schema and an OpenAPI document's without loss. Both are written by one walk
//! over the shape; a `Dialect` says where they differ.

use serde_json::{Map, Value, json};

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
    /// It may be absent, and may be null.
    Perhaps,
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

/// A field that may be absent, and may be null.
pub fn perhaps(name: &str, shape: Shape) -> Field {
    Field {
        need: Need::Perhaps,
        ..always(name, shape)
    }
}

/// Where one language of schemas differs from the other.
pub(super) trait Dialect {
    /// A text of a format that lexicons know.
    fn format(&self, format: &str) -> Value;
    /// An object of which nothing is said.
    fn unknown(&self) -> Value;
    /// Anything at all.
    fn any(&self) -> Value;
    /// One of the method's named shapes.
    fn named(&self, name: &str) -> Value;
    /// The same, where a field may be null.
    fn nullable(&self, schema: Value) -> Value;
    /// What an object says of fields that may be null, beside what each says of itself.
    fn object(&self, object: &mut Map<String, Value>, nullable: Vec<&str>);
}

impl Shape {
    /// The schema of this shape.
    pub(super) fn schema(&self, dialect: &dyn Dialect) -> Value {
        match self {
            Self::Text { format: None } => json!({"type": "string"}),
            Self::Text {
                format: Some(format),
            } => dialect.format(format),
            Self::Choice(choices) => json!({"type": "string", "enum": choices}),
            Self::Integer {
                least,
                most,
                default,
            } => {
                let bounds = [("minimum", least), ("maximum", most), ("default", default)];
                let mut found = Map::from_iter([("type".to_owned(), json!("integer"))]);
                for (name, bound) in bounds {
                    found.extend(bound.map(|bound| (name.to_owned(), bound.into())));
                }
                Value::Object(found)
            }
            Self::Boolean => json!({"type": "boolean"}),
            Self::Unknown => dialect.unknown(),
            Self::Any => dialect.any(),
            Self::List(items) => json!({"type": "array", "items": items.schema(dialect)}),
            Self::Named(name) => dialect.named(name),
            Self::Object(fields) => object(fields, dialect),
        }
    }
}

fn object(fields: &[Field], dialect: &dyn Dialect) -> Value {
    let names = |needs: [Need; 2]| -> Vec<&str> {
        let found = fields.iter().filter(|field| needs.contains(&field.need));
        found.map(|field| field.name.as_str()).collect()
    };
    let required = names([Need::Always, Need::OrNull]);
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let schema = field.shape.schema(dialect);
            let schema = match field.need {
                Need::OrNull | Need::Perhaps => dialect.nullable(schema),
                Need::Always | Need::Sometimes => schema,
            };
            (field.name.clone(), schema)
        })
        .collect();
    let mut found = Map::new();
    found.insert("type".into(), "object".into());
    if !required.is_empty() {
        found.insert("required".into(), required.into());
    }
    dialect.object(&mut found, names([Need::OrNull, Need::Perhaps]));
    found.insert("properties".into(), Value::Object(properties));
    Value::Object(found)
}
