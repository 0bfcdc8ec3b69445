//! Checks of booleans, integers, text, bytes and blobs.

use unicode_segmentation::UnicodeSegmentation;

use crate::json;
use crate::lexicon::{BlobRule, BooleanRule, Bounds, Format, IntegerRule, TextRule};
use crate::value::Value;

use super::fault::Fault;
use super::walk::Checked;

pub(super) fn boolean(rule: BooleanRule, value: &Value<'_>) -> Checked {
    match (value, rule.constant) {
        (Value::Bool(_), None) => Ok(()),
        (Value::Bool(bool), Some(constant)) if *bool == constant => Ok(()),
        (Value::Bool(_), Some(constant)) => Err(Fault::of(constant.to_string(), value)),
        _ => Err(Fault::kind("boolean", value)),
    }
}

pub(super) fn integer(rule: &IntegerRule, value: &Value<'_>) -> Checked {
    let Value::Int(int) = value else {
        return Err(Fault::kind("integer", value));
    };
    if !rule.allowed.is_empty() && !rule.allowed.contains(int) {
        return Err(Fault::of(one_of(&rule.allowed), value));
    }
    if !rule.range.contains(*int) {
        let expected = match (rule.range.min, rule.range.max) {
            (i64::MIN, max) => format!("integer of at most {max}"),
            (min, i64::MAX) => format!("integer of at least {min}"),
            (min, max) => format!("integer from {min} to {max}"),
        };
        return Err(Fault::of(expected, value));
    }
    Ok(())
}

pub(super) fn text(rule: &TextRule, value: &Value<'_>) -> Checked {
    let Value::Text(text) = value else {
        return Err(Fault::kind("string", value));
    };
    let length = text.len();
    if !rule.length.contains(length) {
        return Err(amount("string", rule.length, length, "bytes"));
    }
    if !graphemes_fit(rule.graphemes, text) {
        let count = text.graphemes(true).count();
        return Err(amount("string", rule.graphemes, count, "graphemes"));
    }
    if let Some(format) = rule.format
        && !format.accepts(text)
    {
        return Err(bad_format(format, value));
    }
    if !rule.allowed.is_empty() && !rule.allowed.iter().any(|allowed| allowed == text) {
        return Err(Fault::of(one_of(&rule.allowed), value));
    }
    Ok(())
}

#[cold]
fn bad_format(format: Format, value: &Value<'_>) -> Box<Fault> {
    Fault::of(format!("string of format {}", format.name()), value)
}

/// Counts graphemes only if no cheaper count decides. A grapheme has at least
/// one character, a character at least one byte.
fn graphemes_fit(bounds: Bounds, text: &str) -> bool {
    let no_minimum = bounds.min == 0;
    if no_minimum && text.len() <= bounds.max {
        return true;
    }
    if text.len() < bounds.min {
        return false;
    }
    if text.is_ascii() && !text.contains('\r') {
        return bounds.contains(text.len());
    }
    if no_minimum && text.chars().count() <= bounds.max {
        return true;
    }
    let enough = bounds.max.saturating_add(1);
    bounds.contains(text.graphemes(true).take(enough).count())
}

pub(super) fn token(name: &str, value: &Value<'_>) -> Checked {
    match value {
        Value::Text(text) if text == name => Ok(()),
        _ => Err(Fault::of(format!("\"{name}\""), value)),
    }
}

pub(super) fn bytes(length: Bounds, value: &Value<'_>) -> Checked {
    match value {
        Value::Bytes(bytes) if length.contains(bytes.len()) => Ok(()),
        Value::Bytes(bytes) => Err(amount("bytes", length, bytes.len(), "bytes")),
        _ => Err(Fault::kind("bytes", value)),
    }
}

/// A blob, also in the network's first blob format, with the CID as text and
/// without a size. Repositories still contain such records.
pub(super) fn blob(rule: &BlobRule, value: &Value<'_>) -> Checked {
    let Value::Map(fields) = value else {
        return Err(Fault::kind("blob", value));
    };
    let mime_type = value.get("mimeType");
    let Some(Value::Text(mime_type)) = mime_type else {
        return Err(Fault::of("string", mime_type.unwrap_or(&Value::Null)).under("mimeType"));
    };
    let legacy = || {
        fields.len() == 2
            && matches!(value.get("cid"), Some(Value::Text(cid)) if Format::Cid.accepts(cid))
    };
    let typed =
        value.get("$type").and_then(Value::text) == Some("blob") && json::check_map(fields).is_ok();
    if !typed && !legacy() {
        return Err(Fault::new(
            "blob with $type, ref, mimeType and size",
            "object",
        ));
    }
    if !rule.accepts(mime_type) {
        let expected = format!("one of {}", rule.accept.join(", "));
        return Err(Fault::new(expected, mime_type).under("mimeType"));
    }
    match value.get("size") {
        Some(size @ Value::Int(int)) if *int > rule.size_max => {
            Err(Fault::of(format!("integer of at most {}", rule.size_max), size).under("size"))
        }
        _ => Ok(()),
    }
}

/// A fault of a length or a count.
#[cold]
pub(super) fn amount(what: &str, bounds: Bounds, amount: usize, unit: &str) -> Box<Fault> {
    let expected = match (bounds.min, bounds.max) {
        (0, max) => format!("{what} of at most {max} {unit}"),
        (min, usize::MAX) => format!("{what} of at least {min} {unit}"),
        (min, max) => format!("{what} of {min} to {max} {unit}"),
    };
    Fault::new(expected, format!("{amount} {unit}"))
}

fn one_of(allowed: &[impl ToString]) -> String {
    let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    match allowed.as_slice() {
        [only] => only.clone(),
        _ => format!("one of {}", allowed.join(", ")),
    }
}
