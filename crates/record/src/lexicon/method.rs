//! Lexicons of methods, streams and permissions.
//!
//! They describe no records, but they are checked, so that an invalid file is
//! noticed when it is loaded. The schemas of bodies are stored, so that inputs
//! and outputs can be validated.

use crate::ids::Nsid;
use crate::value::Value;

use super::document::{Def, Schema};
use super::parse::{Mistake, Parsed, kind, object, schema, text, texts};

/// A query or a procedure.
pub(super) fn method(kind: &str, value: &Value<'_>, home: &Nsid) -> Parsed<Def> {
    parameters(value, home)?;
    errors(value)?;
    if kind == "query" && value.get("input").is_some() {
        return Err(Mistake::new("belongs to a procedure").under("input"));
    }
    Ok(Def::Method {
        input: body(value, "input", home)?,
        output: body(value, "output", home)?,
    })
}

/// An event stream; `$type` distinguishes its messages.
pub(super) fn subscription(value: &Value<'_>, home: &Nsid) -> Parsed<Def> {
    parameters(value, home)?;
    errors(value)?;
    let message = match value.get("message") {
        None => None,
        Some(message) => Some(
            body_schema(message, home)
                .and_then(|schema| match schema {
                    Some(schema @ Schema::Union { .. }) => Ok(schema),
                    _ => Err(Mistake::new("must be a union").under("schema")),
                })
                .map_err(|mistake| mistake.under("message"))?,
        ),
    };
    Ok(Def::Subscription { message })
}

/// A permission set. The meaning of a permission is not checked.
pub(super) fn permission_set(value: &Value<'_>) -> Parsed<Def> {
    text(value, "title")?;
    text(value, "detail")?;
    let Some(Value::List(permissions)) = value.get("permissions") else {
        return Err(Mistake::new("must be a list").under("permissions"));
    };
    for permission in permissions {
        let good = match kind(permission)? {
            "permission" => text(permission, "resource")?.is_some(),
            _ => false,
        };
        if !good {
            return Err(
                Mistake::new("must contain permissions with a resource").under("permissions")
            );
        }
        for key in ["collection", "action", "lxm"] {
            texts(permission, key).map_err(|mistake| mistake.under("permissions"))?;
        }
    }
    Ok(Def::PermissionSet)
}

/// Parameters are sent in a query string, so they are flat.
fn parameters(value: &Value<'_>, home: &Nsid) -> Parsed<()> {
    let Some(parameters) = value.get("parameters") else {
        return Ok(());
    };
    let check = || {
        if kind(parameters)? != "params" {
            return Err(Mistake::new("must be params").under("type"));
        }
        for property in object(parameters, home)? {
            let flat = match &property.schema {
                Some(Schema::Array { items, .. }) => is_scalar(items),
                Some(schema) => is_scalar(schema),
                None => false,
            };
            if !flat {
                return Err(Mistake::new("must be a scalar or a list of scalars")
                    .under(&property.name)
                    .under("properties"));
            }
        }
        Ok(())
    };
    check().map_err(|mistake| mistake.under("parameters"))
}

fn is_scalar(schema: &Schema) -> bool {
    matches!(
        schema,
        Schema::Boolean(_) | Schema::Integer(_) | Schema::Text(_) | Schema::Unknown
    )
}

fn errors(value: &Value<'_>) -> Parsed<()> {
    let named = match value.get("errors") {
        None => true,
        Some(Value::List(errors)) => errors
            .iter()
            .all(|error| error.get("name").and_then(Value::text).is_some()),
        Some(_) => false,
    };
    if named {
        Ok(())
    } else {
        Err(Mistake::new("must be a list of named errors").under("errors"))
    }
}

fn body(value: &Value<'_>, key: &str, home: &Nsid) -> Parsed<Option<Schema>> {
    let Some(body) = value.get(key) else {
        return Ok(None);
    };
    let check = || match text(body, "encoding")? {
        None => Err(Mistake::new("is missing").under("encoding")),
        Some(_) => body_schema(body, home),
    };
    check().map_err(|mistake| mistake.under(key))
}

fn body_schema(body: &Value<'_>, home: &Nsid) -> Parsed<Option<Schema>> {
    let Some(value) = body.get("schema") else {
        return Ok(None);
    };
    let schema = schema(value, home).map_err(|mistake| mistake.under("schema"))?;
    match schema {
        Schema::Object(_) | Schema::Ref(_) | Schema::Union { .. } => Ok(Some(schema)),
        _ => Err(Mistake::new("must be object, ref or union").under("schema")),
    }
}
