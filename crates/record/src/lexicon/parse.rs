//! From lexicon JSON to a [`Document`].
//!
//! In:    the text of one lexicon document.
//! Out:   the document, or the path and the reason of its first mistake.
//! Never: a constraint that is dropped. Unknown keys are ignored, because
//!        documents may have them; a known key of the wrong type is a mistake,
//!        because its author intended a constraint.

use crate::ids::Nsid;
use crate::json;
use crate::value::{Value, key_order};

use super::LexiconError;
use super::document::{
    BlobRule, BooleanRule, Bounds, Def, Document, IntegerRule, KeyType, Property, Reference,
    Schema, TextRule, is_def_name,
};
use super::format::Format;
use super::method;

impl Document {
    /// Parses one document.
    pub fn parse(text: &str) -> Result<Self, LexiconError> {
        Self::from_value(&json::from_json(text)?)
    }

    /// Parses one document that is already a value, such as a record of the
    /// collection `com.atproto.lexicon.schema`.
    pub fn from_value(value: &Value<'_>) -> Result<Self, LexiconError> {
        document(value).map_err(|mistake| LexiconError::Invalid {
            id: value
                .get("id")
                .and_then(Value::text)
                .unwrap_or("without an id")
                .to_owned(),
            path: mistake.path(),
            reason: mistake.reason,
        })
    }
}

/// The reason and the path of a mistake; callers add to the path.
pub(super) struct Mistake {
    path_reversed: Vec<String>,
    reason: &'static str,
}

pub(super) type Parsed<T> = Result<T, Mistake>;

impl Mistake {
    pub(super) fn new(reason: &'static str) -> Self {
        Self {
            path_reversed: Vec::new(),
            reason,
        }
    }

    pub(super) fn under(mut self, key: &str) -> Self {
        self.path_reversed.push(key.to_owned());
        self
    }

    fn path(&self) -> String {
        let parts: Vec<&str> = self
            .path_reversed
            .iter()
            .rev()
            .map(String::as_str)
            .collect();
        parts.join(".")
    }
}

fn document(value: &Value<'_>) -> Parsed<Document> {
    if value.get("lexicon") != Some(&Value::Int(1)) {
        return Err(Mistake::new("must be 1").under("lexicon"));
    }
    let id = Nsid::parse(text(value, "id")?.unwrap_or_default())
        .map_err(|_| Mistake::new("must be an NSID").under("id"))?;
    let Some(Value::Map(entries)) = value.get("defs") else {
        return Err(Mistake::new("must be an object").under("defs"));
    };
    let mut defs = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let def = if is_def_name(name) {
            def(name, entry, &id)
        } else {
            Err(Mistake::new("is not a name"))
        };
        let def = def.map_err(|mistake| mistake.under(name).under("defs"))?;
        defs.push((name.to_string(), def));
    }
    Ok(Document { id, defs })
}

fn def(name: &str, value: &Value<'_>, home: &Nsid) -> Parsed<Def> {
    let kind = kind(value)?;
    let primary = match kind {
        "record" => record(value, home)?,
        "query" | "procedure" => method::method(kind, value, home)?,
        "subscription" => method::subscription(value, home)?,
        "permission-set" => method::permission_set(value)?,
        "ref" | "union" | "unknown" => {
            return Err(Mistake::new("cannot be a definition, only a field").under("type"));
        }
        _ => return schema(value, home).map(Def::Field),
    };
    if name == "main" {
        Ok(primary)
    } else {
        Err(Mistake::new("must be the main definition").under("type"))
    }
}

fn record(value: &Value<'_>, home: &Nsid) -> Parsed<Def> {
    let key = text(value, "key")?
        .and_then(KeyType::parse)
        .ok_or_else(|| Mistake::new("must be tid, nsid, any or literal:…").under("key"))?;
    let schema = value
        .get("record")
        .ok_or_else(|| Mistake::new("is missing"))
        .and_then(|object| match kind(object)? {
            "object" => schema(object, home),
            _ => Err(Mistake::new("must be object").under("type")),
        })
        .map_err(|mistake| mistake.under("record"))?;
    Ok(Def::Record { key, schema })
}

/// The type of a field.
pub(super) fn schema(value: &Value<'_>, home: &Nsid) -> Parsed<Schema> {
    Ok(match kind(value)? {
        "null" => Schema::Null,
        "boolean" => Schema::Boolean(boolean(value)?),
        "integer" => Schema::Integer(integer(value)?),
        "string" => Schema::Text(string(value)?),
        "bytes" => Schema::Bytes(bounds(value, "minLength", "maxLength")?),
        "cid-link" => Schema::Link,
        "blob" => Schema::Blob(blob(value)?),
        "array" => Schema::Array {
            items: value
                .get("items")
                .ok_or_else(|| Mistake::new("is missing"))
                .and_then(|items| schema(items, home))
                .map(Box::new)
                .map_err(|mistake| mistake.under("items"))?,
            length: bounds(value, "minLength", "maxLength")?,
        },
        "object" => Schema::Object(object(value, home)?),
        "ref" => {
            let target = text(value, "ref")?.and_then(|text| Reference::parse(text, home));
            Schema::Ref(target.ok_or_else(|| Mistake::new("must be a reference").under("ref"))?)
        }
        "union" => union(value, home)?,
        "token" => Schema::Token,
        "unknown" => Schema::Unknown,
        _ => return Err(Mistake::new("is not a type of field").under("type")),
    })
}

/// The fields of an object; also the parameters of a method.
pub(super) fn object(value: &Value<'_>, home: &Nsid) -> Parsed<Vec<Property>> {
    let required = texts(value, "required")?;
    let nullable = texts(value, "nullable")?;
    let mut properties = Vec::new();
    match value.get("properties") {
        None => {}
        Some(Value::Map(entries)) => {
            for (name, entry) in entries {
                // The data model defines these keys; a lexicon cannot.
                let schema = if name.starts_with('$') {
                    Err(Mistake::new("is a reserved name"))
                } else {
                    schema(entry, home)
                };
                let schema = schema.map_err(|mistake| mistake.under(name).under("properties"))?;
                properties.push(Property {
                    name: name.to_string(),
                    schema: Some(schema),
                    required: required.contains(&name.as_ref()),
                    nullable: nullable.contains(&name.as_ref()),
                });
            }
        }
        Some(_) => return Err(Mistake::new("must be an object").under("properties")),
    }
    for name in &required {
        if !properties.iter().any(|property| property.name == *name) {
            properties.push(Property {
                name: (*name).to_owned(),
                schema: None,
                required: true,
                nullable: nullable.contains(name),
            });
        }
    }
    properties.sort_unstable_by(|a, b| key_order(&a.name, &b.name));
    Ok(properties)
}

fn union(value: &Value<'_>, home: &Nsid) -> Parsed<Schema> {
    let closed = flag(value, "closed")?.unwrap_or(false);
    let refs: Option<Vec<Reference>> = match value.get("refs") {
        Some(Value::List(_)) => texts(value, "refs")?
            .into_iter()
            .map(|text| Reference::parse(text, home))
            .collect(),
        _ => None,
    };
    let refs = refs.ok_or_else(|| Mistake::new("must be a list of references").under("refs"))?;
    if closed && refs.is_empty() {
        return Err(Mistake::new("must not be empty in a closed union").under("refs"));
    }
    Ok(Schema::Union { refs, closed })
}

fn boolean(value: &Value<'_>) -> Parsed<BooleanRule> {
    flag(value, "default")?;
    Ok(BooleanRule {
        constant: flag(value, "const")?,
    })
}

fn integer(value: &Value<'_>) -> Parsed<IntegerRule> {
    int(value, "default")?;
    let range = Bounds {
        min: int(value, "minimum")?.unwrap_or(i64::MIN),
        max: int(value, "maximum")?.unwrap_or(i64::MAX),
    };
    if range.min > range.max {
        return Err(Mistake::new("is above maximum").under("minimum"));
    }
    let listed = list(value, "enum", Value::int, "must be a list of integers")?;
    let allowed = match (int(value, "const")?, listed) {
        (Some(constant), _) => vec![constant],
        (None, Some(listed)) if listed.is_empty() => {
            return Err(Mistake::new("must not be empty").under("enum"));
        }
        (None, listed) => listed.unwrap_or_default(),
    };
    Ok(IntegerRule { range, allowed })
}

fn string(value: &Value<'_>) -> Parsed<TextRule> {
    text(value, "default")?;
    texts(value, "knownValues")?;
    let format = match text(value, "format")? {
        None => None,
        Some(name) => Some(
            Format::named(name)
                .ok_or_else(|| Mistake::new("is not a known format").under("format"))?,
        ),
    };
    let listed = list(value, "enum", Value::text, "must be a list of strings")?;
    let allowed = match (text(value, "const")?, listed) {
        (Some(constant), _) => vec![constant],
        (None, Some(listed)) if listed.is_empty() => {
            return Err(Mistake::new("must not be empty").under("enum"));
        }
        (None, listed) => listed.unwrap_or_default(),
    };
    Ok(TextRule {
        length: bounds(value, "minLength", "maxLength")?,
        graphemes: bounds(value, "minGraphemes", "maxGraphemes")?,
        format,
        allowed: allowed.into_iter().map(str::to_owned).collect(),
    })
}

fn blob(value: &Value<'_>) -> Parsed<BlobRule> {
    let accept = texts(value, "accept")?;
    if !accept.iter().all(|pattern| pattern.contains('/')) {
        return Err(Mistake::new("must be a list of MIME types").under("accept"));
    }
    Ok(BlobRule {
        accept: accept.into_iter().map(str::to_owned).collect(),
        size_max: int(value, "maxSize")?.unwrap_or(i64::MAX),
    })
}

fn bounds(value: &Value<'_>, least: &str, most: &str) -> Parsed<Bounds> {
    let size = |key: &str| match int(value, key)? {
        None => Ok(None),
        Some(int) => usize::try_from(int)
            .map(Some)
            .map_err(|_| Mistake::new("must not be negative").under(key)),
    };
    let bounds = Bounds {
        min: size(least)?.unwrap_or(0),
        max: size(most)?.unwrap_or(usize::MAX),
    };
    if bounds.min > bounds.max {
        return Err(Mistake::new("is above the maximum length").under(least));
    }
    Ok(bounds)
}

/// The `type` of a definition or field.
pub(super) fn kind<'v>(value: &'v Value<'_>) -> Parsed<&'v str> {
    text(value, "type")?.ok_or_else(|| Mistake::new("is missing").under("type"))
}

/// The text at `key`, if the key is present.
pub(super) fn text<'v>(value: &'v Value<'_>, key: &str) -> Parsed<Option<&'v str>> {
    match value.get(key) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(_) => Err(Mistake::new("must be a string").under(key)),
    }
}

/// The list of texts at `key`; empty if the key is absent.
pub(super) fn texts<'v>(value: &'v Value<'_>, key: &str) -> Parsed<Vec<&'v str>> {
    list(value, key, Value::text, "must be a list of strings").map(Option::unwrap_or_default)
}

fn int(value: &Value<'_>, key: &str) -> Parsed<Option<i64>> {
    match value.get(key) {
        None => Ok(None),
        Some(Value::Int(int)) => Ok(Some(*int)),
        Some(_) => Err(Mistake::new("must be an integer").under(key)),
    }
}

fn flag(value: &Value<'_>, key: &str) -> Parsed<Option<bool>> {
    match value.get(key) {
        None => Ok(None),
        Some(Value::Bool(bool)) => Ok(Some(*bool)),
        Some(_) => Err(Mistake::new("must be true or false").under(key)),
    }
}

fn list<'v, 'a, T>(
    value: &'v Value<'a>,
    key: &str,
    item: impl Fn(&'v Value<'a>) -> Option<T>,
    reason: &'static str,
) -> Parsed<Option<Vec<T>>> {
    match value.get(key) {
        None => Ok(None),
        Some(Value::List(items)) => items
            .iter()
            .map(item)
            .collect::<Option<Vec<T>>>()
            .map(Some)
            .ok_or_else(|| Mistake::new(reason).under(key)),
        Some(_) => Err(Mistake::new(reason).under(key)),
    }
}
