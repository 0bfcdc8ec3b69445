//! Response bodies, put together from stored JSON without parsing it again.

use crate::store::Row;

/// Appends a JSON string.
pub fn push_string(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Appends a record as clients know it.
pub fn push_record(out: &mut String, row: &Row) {
    push_record_with(out, row, "");
}

/// Appends a record with further fields, each of which brings its comma.
pub fn push_record_with(out: &mut String, row: &Row, extra: &str) {
    out.push_str("{\"uri\":");
    push_string(out, &row.uri);
    out.push_str(",\"cid\":");
    match &row.cid {
        Some(cid) => push_string(out, cid),
        None => out.push_str("null"),
    }
    out.push_str(",\"value\":");
    out.push_str(&row.body);
    out.push_str(",\"did\":");
    push_string(out, &row.did);
    out.push_str(",\"collection\":");
    push_string(out, &row.collection);
    out.push_str(",\"rkey\":");
    push_string(out, &row.rkey);
    out.push_str(&format!(",\"time_us\":{}{extra}}}", row.time_us));
}
