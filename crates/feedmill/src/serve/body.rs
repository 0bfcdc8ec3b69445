//! Response bodies, put together from stored JSON without parsing it again.

use std::borrow::Borrow;

use crate::store::Row;
use crate::store::shown::{Shown, push_text};

/// Appends a JSON string.
pub fn push_string(out: &mut String, text: &str) {
    push_text(out, text);
}

/// Appends a record as clients know it.
pub fn push_record(out: &mut String, row: &Row) {
    push_shown(out, &Shown::of(row), "");
}

/// Appends a record with further fields, each of which brings its comma.
pub fn push_shown(out: &mut String, shown: &Shown, extra: &str) {
    out.push_str(shown.json());
    out.push_str(extra);
    out.push('}');
}

/// `{"records": […], "cursor": …}`.
pub fn page<S: Borrow<Shown>>(rows: &[S], cursor: Option<&str>) -> String {
    let mut out = open_page(rows, &[]);
    push_cursor(&mut out, cursor);
    out.push('}');
    out
}

/// `{"records": […]`, with each record's further fields.
pub fn open_page<S: Borrow<Shown>>(rows: &[S], extras: &[String]) -> String {
    let fields: usize = extras.iter().map(String::len).sum();
    let records: usize = rows.iter().map(|row| row.borrow().json().len() + 2).sum();
    let mut out = String::with_capacity(records + fields + 400);
    out.push_str("{\"records\":[");
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_shown(
            &mut out,
            row.borrow(),
            extras.get(index).map_or("", String::as_str),
        );
    }
    out.push(']');
    out
}

/// Appends the cursor of a page that goes on.
pub fn push_cursor(out: &mut String, cursor: Option<&str>) {
    if let Some(cursor) = cursor {
        out.push_str(",\"cursor\":");
        push_string(out, cursor);
    }
}
