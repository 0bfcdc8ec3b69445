//! A parked record, as it is read.

use record::cid::Cid;
use rusqlite::{Error, OptionalExtension};

use super::super::apply::{Apply, Author, Place};
use super::super::derive;
use crate::store::batch::Put;

#[derive(Debug)]
pub(super) struct Parked {
    pub(super) id: i64,
    pub(super) source: String,
    pub(super) cursor: i64,
    pub(super) author: i64,
    pub(super) did: String,
    pub(super) collection: i64,
    pub(super) nsid: String,
    pub(super) rkey: String,
    pub(super) rev: u64,
    pub(super) live: bool,
    pub(super) put: Put,
    pub(super) attempt: u32,
    pub(super) dead: Option<i64>,
    pub(super) was: Option<i64>,
}

impl Apply<'_> {
    /// A row; `derives`: with all that follows from its record.
    pub(super) fn parked(&self, id: i64, derives: bool) -> Result<Option<Parked>, Error> {
        let mut parked = self
            .tx
            .prepare_cached(
                "SELECT p.source, p.cursor, p.author, k.text, p.collection, c.nsid, p.rkey, p.rev, p.live, p.cid, p.body,
                    p.time, p.links, p.attempt, p.dead, p.was, p.seen
                 FROM parked p JOIN key k ON k.id = p.author JOIN collection c ON c.id = p.collection WHERE p.id = ?1",
            )?
            .query_row([id], |row| {
                let cid: Option<Vec<u8>> = row.get(9)?;
                let links: String = row.get(12)?;
                Ok(Parked {
                    id,
                    source: row.get(0)?,
                    cursor: row.get(1)?,
                    author: row.get(2)?,
                    did: row.get(3)?,
                    collection: row.get(4)?,
                    nsid: row.get(5)?,
                    rkey: row.get(6)?,
                    rev: row.get::<_, i64>(7)?.cast_unsigned(),
                    live: row.get(8)?,
                    put: Put {
                        cid: cid.and_then(|bytes| Cid::from_bytes(&bytes).ok()),
                        body: row.get(10)?,
                        time_us: row.get(11)?,
                        seen_us: row.get(16)?,
                        links: serde_json::from_str(&links).unwrap_or_default(),
                        derived: Default::default(),
                    },
                    attempt: row.get(13)?,
                    dead: row.get(14)?,
                    was: row.get(15)?,
                })
            })
            .optional()?;
        if let Some(parked) = parked.as_mut().filter(|_| derives) {
            // Derived anew: the configuration may have changed while it waited.
            let Parked { nsid, did, put, .. } = parked;
            put.derived = derive::of_body(self.plan, nsid, did, &put.body);
        }
        Ok(parked)
    }
}

impl Parked {
    pub(super) fn place(&self) -> Place<'_> {
        let author = Author {
            key: self.author,
            did: &self.did,
            snapshot: 0,
        };
        Place::new(author, self.collection, &self.nsid, &self.rkey)
    }
}
