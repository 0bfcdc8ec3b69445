//! A record as clients know it, made once and shown often.
//!
//! In:    a row.
//! Out:   its JSON text, as one of a list, or open at the end, so that counts,
//!        children and labels can follow; and the parts of it that pages need.
//! Never: a body parsed to be shown.
//!
//! One piece of memory holds it all: the URI, the account and the body are
//! ranges of the text. An identifier that needs an escape in JSON is none that
//! the network allows, but nobody checks record keys on the way in; such a
//! record keeps its identifiers beside the text.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::page::{Page, Position, Row, Rung};
use crate::clock::Micros;

/// What stands before the URI.
const HEAD: &str = "{\"uri\":\"";
/// What stands between the URI and the hash, and between the hash and the body.
const CID: &str = "\",\"cid\":";
const VALUE: &str = ",\"value\":";
/// What ends it in a list.
const END: &str = "},";
/// What stands before the account in a URI.
const SCHEME: &str = "at://";

/// A record as clients know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub id: i64,
    pub time_us: Micros,
    json: Box<str>,
    uri_bytes: u32,
    did_bytes: u32,
    collection_bytes: u32,
    body: Range<u32>,
    /// The URI where its text needed an escape.
    odd: Option<Box<Row>>,
    tag: u64,
}

/// A page as clients know it, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownPage {
    pub rows: Vec<Arc<Shown>>,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<Position>,
    /// Of a sorted page, the value at which the next one begins.
    pub next_rung: Option<Rung>,
}

impl From<Page> for ShownPage {
    fn from(page: Page) -> Self {
        let rows = page.rows.iter();
        Self {
            rows: rows.map(|row| Arc::new(Shown::of(row))).collect(),
            next: page.next,
            next_rung: page.next_rung,
        }
    }
}

impl ShownPage {
    /// Ends the page where its rows are this many bytes; the rest is on the next one. Only of a page
    /// in the order of time: the store itself ends a sorted one.
    #[must_use]
    pub fn cut(mut self, bytes_max: usize) -> Self {
        let mut bytes = 0;
        let fits = self.rows.iter().take_while(|row| {
            let fits = bytes < bytes_max;
            bytes += row.bytes();
            fits
        });
        let kept = fits.count().max(1);
        if kept < self.rows.len() && self.next_rung.is_none() {
            self.rows.truncate(kept);
            self.next = self.rows.last().map(|row| row.position());
        }
        self
    }

    /// How many bytes its rows are.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.bytes()).sum()
    }
}

impl Shown {
    /// The record of a row.
    pub fn of(row: &Row) -> Self {
        let mut json = String::with_capacity(row.body.len() + 2 * row.uri.len() + 260);
        json.push_str("{\"uri\":");
        push_text(&mut json, &row.uri);
        json.push_str(",\"cid\":");
        match &row.cid {
            Some(cid) => push_text(&mut json, cid),
            None => json.push_str("null"),
        }
        json.push_str(",\"value\":");
        let begins = json.len() as u32;
        json.push_str(&row.body);
        let body = begins..json.len() as u32;
        json.push_str(",\"did\":");
        push_text(&mut json, &row.did);
        json.push_str(",\"collection\":");
        push_text(&mut json, &row.collection);
        json.push_str(",\"rkey\":");
        push_text(&mut json, &row.rkey);
        json.push_str(",\"time_us\":");
        json.push_str(&row.time_us.to_string());
        json.push_str(END);
        Self {
            id: row.id,
            time_us: row.time_us,
            tag: xxh3_64(json.as_bytes()),
            json: json.into_boxed_str(),
            uri_bytes: row.uri.len() as u32,
            did_bytes: row.did.len() as u32,
            collection_bytes: row.collection.len() as u32,
            body,
            odd: needs_escape(&row.uri).then(|| Box::new(row.clone())),
        }
    }

    /// Its JSON without the closing brace.
    pub fn json(&self) -> &str {
        let open = self.json.len() - END.len();
        self.json.get(..open).unwrap_or_default() // that is how it was made
    }

    /// Its JSON, and the comma before the next of a list.
    pub fn listed(&self) -> &str {
        &self.json
    }

    /// A hash of its JSON, by which a page that shows it is told from others.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Its AT-URI.
    pub fn uri(&self) -> &str {
        match &self.odd {
            Some(row) => &row.uri,
            None => self.part(HEAD.len(), self.uri_bytes),
        }
    }

    /// The hash that names this version of it.
    pub fn cid(&self) -> Option<&str> {
        if let Some(row) = &self.odd {
            return row.cid.as_deref();
        }
        let begins = HEAD.len() + self.uri_bytes as usize + CID.len();
        let ends = (self.body.start as usize).checked_sub(VALUE.len())?;
        let cid = self.json.get(begins..ends)?;
        cid.strip_prefix('"')?.strip_suffix('"')
    }

    /// Its author.
    pub fn did(&self) -> &str {
        match &self.odd {
            Some(row) => &row.did,
            None => self.part(HEAD.len() + SCHEME.len(), self.did_bytes),
        }
    }

    /// The NSID of its collection.
    pub fn collection(&self) -> &str {
        let begins = HEAD.len() + SCHEME.len() + self.did_bytes as usize + 1;
        match &self.odd {
            Some(row) => &row.collection,
            None => self.part(begins, self.collection_bytes),
        }
    }

    /// The record itself, as JSON text.
    pub fn body(&self) -> &str {
        self.part(self.body.start as usize, self.body.end - self.body.start)
    }

    /// Its place in the order.
    pub fn position(&self) -> Position {
        Position {
            time_us: self.time_us,
            uri: self.uri().to_owned(),
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.json.len() + size_of::<Self>()
    }

    fn part(&self, begins: usize, bytes: u32) -> &str {
        let part = self.json.get(begins..begins + bytes as usize);
        part.unwrap_or_default() // the ranges were taken from this very text
    }
}

/// Whether a text is written otherwise in JSON than it is.
pub fn needs_escape(text: &str) -> bool {
    let odd = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // To the end always: then many bytes are looked at in one step.
    text.bytes().fold(false, |found, byte| found | odd(byte))
}

/// Appends a JSON string.
pub fn push_text(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

/// Appends what stands between the quotes of a JSON string.
pub fn push_escaped(out: &mut String, text: &str) {
    if needs_escape(text) {
        let quoted = serde_json::Value::from(text).to_string();
        let within = quoted.strip_prefix('"');
        out.push_str(within.and_then(|rest| rest.strip_suffix('"')).unwrap_or(""));
    } else {
        out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_record_is_json_and_gives_its_parts_back() {
        let row = Row {
            id: 7,
            uri: "at://did:web:a.test/com.example.post/3k".into(),
            did: "did:web:a.test".into(),
            collection: "com.example.post".into(),
            rkey: "3k".into(),
            cid: Some("bafy".into()),
            time_us: 5,
            body: r#"{"text":"a \"quote\""}"#.into(),
        };
        for (rkey, cid) in [("3k", Some("bafy")), ("3k", None), ("a\"b\\", None)] {
            let row = Row {
                uri: format!("at://did:web:a.test/com.example.post/{rkey}"),
                rkey: rkey.into(),
                cid: cid.map(str::to_owned),
                ..row.clone()
            };
            let shown = Shown::of(&row);
            let text = format!("{}}}", shown.json());
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(shown.listed(), format!("{text},"));
            assert_eq!(json["uri"], row.uri);
            assert_eq!(json["cid"], serde_json::json!(cid));
            assert_eq!(json["value"]["text"], "a \"quote\"");
            assert_eq!(json["did"], row.did);
            assert_eq!(json["collection"], row.collection);
            assert_eq!(json["rkey"], row.rkey);
            assert_eq!(json["time_us"], 5);
            assert_eq!(shown.uri(), row.uri);
            assert_eq!(shown.did(), row.did);
            assert_eq!(shown.cid(), cid);
            assert_eq!(shown.collection(), row.collection);
            assert_eq!(shown.body(), row.body);
            assert_eq!(shown.position(), row.position());
        }
    }
}
