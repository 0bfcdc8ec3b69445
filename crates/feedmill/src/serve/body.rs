//! Response bodies, put together from stored JSON without parsing it again.

use std::borrow::Borrow;

use xxhash_rust::xxh3::xxh3_64;

use super::Answer;
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

/// `{"records": […], "cursor": …}`, with each record's further fields, and those of the page.
pub(super) fn page<S: Borrow<Shown>>(
    rows: &[S],
    extras: &[String],
    cursor: Option<&str>,
    rest: &str,
) -> Answer {
    let mut out = open_page(rows, extras);
    push_cursor(&mut out, cursor);
    out.push_str(rest);
    out.push('}');
    let tag = tag(rows, extras, cursor, rest);
    Answer::tagged(out, tag)
}

/// The tag of such a page: of its records' own tags, and of all that is not theirs.
fn tag<S: Borrow<Shown>>(rows: &[S], extras: &[String], cursor: Option<&str>, rest: &str) -> u64 {
    let of = |text: &str| xxh3_64(text.as_bytes());
    let extras = extras.iter().take(rows.len()).enumerate();
    let extras = extras.filter(|(_, extra)| !extra.is_empty());
    let all = rows
        .iter()
        .map(|row| row.borrow().tag())
        .chain(extras.flat_map(|(index, extra)| [index as u64, of(extra)]))
        .chain([of(cursor.unwrap_or_default()), of(rest)]);
    let mut tags = Vec::with_capacity((rows.len() + 2) * size_of::<u64>());
    all.for_each(|tag| tags.extend_from_slice(&tag.to_le_bytes()));
    xxh3_64(&tags)
}

/// `{"records": […]`, with each record's further fields.
fn open_page<S: Borrow<Shown>>(rows: &[S], extras: &[String]) -> String {
    let fields: usize = extras.iter().map(String::len).sum();
    let records: usize = rows.iter().map(|row| row.borrow().listed().len()).sum();
    let mut out = String::with_capacity(records + fields + 400);
    // Their texts lie anywhere: the beginnings are asked for together.
    let begins = rows.iter().map(|row| row.borrow().listed().as_bytes());
    timeline::fetch(begins.map(|text| text.first().copied().unwrap_or(0)));
    out.push_str("{\"records\":[");
    for (index, row) in rows.iter().enumerate() {
        match extras.get(index).filter(|extra| !extra.is_empty()) {
            None => out.push_str(row.borrow().listed()),
            Some(extra) => {
                push_shown(&mut out, row.borrow(), extra);
                out.push(',');
            }
        }
    }
    if !rows.is_empty() {
        out.pop(); // the comma after the last
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Shown {
        Shown::of(&Row {
            id: 7,
            uri: "at://did:web:a.test/com.example.post/3k".into(),
            did: "did:web:a.test".into(),
            collection: "com.example.post".into(),
            rkey: "3k".into(),
            cid: None,
            time_us: 5,
            body: format!("{{\"text\":\"{text}\"}}"),
        })
    }

    #[test]
    fn pages_have_one_tag_only_if_they_are_the_same() {
        let [one, two] = [shown("one"), shown("two")];
        let (no, likes) = (String::new(), ",\"likes\":1".to_owned());
        let pages = [
            page(&[&one, &two], &[], None, ""),
            page(&[&two, &one], &[], None, ""),
            page(&[&one], &[], None, ""),
            page(&[&one, &two], &[], Some("next"), ""),
            page(&[&one, &two], &[], None, ",\"profiles\":[]"),
            page(&[&one, &two], &[likes.clone(), no.clone()], None, ""),
            page(&[&one, &two], &[no.clone(), likes], None, ""),
        ];
        for (at, first) in pages.iter().enumerate() {
            for (other_at, other) in pages.iter().enumerate() {
                assert_eq!(first.body == other.body, at == other_at);
                assert_eq!(first.tag == other.tag, at == other_at, "{at} {other_at}");
            }
        }
        let again = page(&[&one, &two], &[no.clone(), no], None, "");
        assert_eq!(
            (again.body, again.tag),
            (pages[0].body.clone(), pages[0].tag)
        );
    }
}
