//! The payload of a published block: one change of a record or of an account.
//!
//! In:    a change.
//! Out:   JSON, in the shape that a Jetstream gives events of the same kind.
//! Never: a field that depends on who reads it.
//!
//! The shape is public and there are readers for it in every language. Two
//! fields are ours: `seen_us`, the moment of first sight, by which a record
//! without a usable time of its own is sorted, so that a replica sorts as its
//! origin does; and `live`, false for what was fetched from the past.

use serde::Serialize;
use serde_json::value::RawValue;

/// The feed that tells how accounts stand. No collection can have this name.
pub const ACCOUNTS: &str = "accounts";

/// A record in its newest version.
#[derive(Debug, Clone)]
pub struct RecordEvent {
    pub did: String,
    pub collection: String,
    pub rkey: String,
    /// A TID.
    pub rev: String,
    pub seen_us: i64,
    pub live: bool,
    /// The record as JSON text with its CID; `None` where it is gone.
    pub content: Option<(Option<String>, String)>,
}

/// How an account stands.
#[derive(Debug, Clone)]
pub struct AccountEvent {
    pub did: String,
    pub active: bool,
    /// Why it is not active.
    pub status: Option<&'static str>,
    /// Since when, in Unix microseconds.
    pub since_us: i64,
}

#[derive(Serialize)]
struct Envelope<'a> {
    did: &'a str,
    time_us: i64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<CommitBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<AccountBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<bool>,
}

#[derive(Serialize)]
struct CommitBody<'a> {
    rev: &'a str,
    operation: &'static str,
    collection: &'a str,
    rkey: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cid: Option<&'a str>,
}

#[derive(Serialize)]
struct AccountBody<'a> {
    did: &'a str,
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

impl RecordEvent {
    /// The payload; `known` says whether a version of the record was published before.
    #[must_use]
    pub fn payload(&self, known: bool, now_us: i64) -> Vec<u8> {
        let record: Option<&RawValue> = self
            .content
            .as_ref()
            .and_then(|(_, body)| serde_json::from_str(body).ok());
        let operation = match (record, known) {
            (None, _) => "delete",
            (Some(_), true) => "update",
            (Some(_), false) => "create",
        };
        bytes(&Envelope {
            did: &self.did,
            time_us: now_us,
            kind: "commit",
            commit: Some(CommitBody {
                rev: &self.rev,
                operation,
                collection: &self.collection,
                rkey: &self.rkey,
                record,
                cid: self.content.as_ref().and_then(|(cid, _)| cid.as_deref()),
            }),
            account: None,
            seen_us: record.map(|_| self.seen_us),
            live: record.map(|_| self.live),
        })
    }

    /// The record's URI.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("at://{}/{}/{}", self.did, self.collection, self.rkey)
    }
}

impl AccountEvent {
    /// The payload. Its time is when the account came to stand so, wherever it is told.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        bytes(&Envelope {
            did: &self.did,
            time_us: self.since_us,
            kind: "account",
            commit: None,
            account: Some(AccountBody {
                did: &self.did,
                active: self.active,
                status: self.status,
            }),
            seen_us: None,
            live: None,
        })
    }
}

fn bytes(envelope: &Envelope<'_>) -> Vec<u8> {
    serde_json::to_vec(envelope).expect("text, numbers and JSON that was parsed are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn event(content: Option<(Option<String>, String)>) -> RecordEvent {
        RecordEvent {
            did: "did:plc:a".into(),
            collection: "app.example.post".into(),
            rkey: "1".into(),
            rev: "3k2yihcrp6f2c".into(),
            seen_us: 5,
            live: true,
            content,
        }
    }

    fn read(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_record_is_told_as_a_jetstream_would() {
        let put = event(Some((Some("bafy".into()), r#"{"text":"é"}"#.into())));
        let expected = json!({
            "did": "did:plc:a", "time_us": 9, "kind": "commit", "seen_us": 5, "live": true,
            "commit": {"rev": "3k2yihcrp6f2c", "operation": "create", "collection": "app.example.post",
                       "rkey": "1", "record": {"text": "é"}, "cid": "bafy"},
        });
        assert_eq!(read(&put.payload(false, 9)), expected);
        assert_eq!(read(&put.payload(true, 9))["commit"]["operation"], "update");
        let gone = read(&event(None).payload(true, 9));
        assert_eq!(gone["commit"]["operation"], "delete");
        assert_eq!(gone["commit"].get("record"), None);
    }
}
