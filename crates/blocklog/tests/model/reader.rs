//! Readers who carry their cursor from one log to another.

use super::{SPACE, Workshop, World, held};
use blocklog::authority::Authority;
use blocklog::block::Hash;
use blocklog::limits::Limits;
use blocklog::message::{Answer, Blocks, Expected, Fault, From, QueryRequest, Request, Wanted};
use blocklog::page::Selection;
use blocklog::store::ReplicaStore;
use blocklog::writers::Writers;
use std::collections::BTreeMap;

/// A walk over the whole space, wherever it leads.
#[derive(Debug, Clone, Default)]
pub(super) struct Reader {
    cursor: Option<String>,
    after: u64,
    seen: BTreeMap<u64, Hash>,
}

impl<W: Workshop> World<W> {
    /// Let a reader ask for its next page, at the authority or at the replica that holds everything.
    pub(super) fn read(&mut self) {
        let which = self.luck.below(self.readers.len() as u64) as usize;
        // After a rollback only the log that a cursor is from can tell whether it still holds.
        let at_authority = match self.weather.disasters {
            true => which == 0,
            false => self.luck.below(2) == 0,
        };
        let mut reader = self.readers[which].clone();
        let store: &dyn ReplicaStore = match at_authority {
            true => &self.authority,
            false => &self.peers[0].store,
        };
        match ask(store, &reader) {
            Ok(page) => reader.take(&page),
            // Another history, or a gap: it starts over.
            Err(
                Fault::Replaced { .. }
                | Fault::RolledBack { .. }
                | Fault::Gone { .. }
                | Fault::BadCursor,
            ) => reader = Reader::default(),
            Err(other) => panic!("a reader is refused: {other:?}"),
        }
        if at_authority || self.weather.disasters {
            check(store, &reader);
        }
        self.readers[which] = reader;
    }
}

fn ask(store: &dyn ReplicaStore, reader: &Reader) -> Result<Blocks, Fault> {
    let request = Request::Query(QueryRequest {
        wanted: Wanted::Here(Selection::Space),
        from: match &reader.cursor {
            Some(cursor) => From::Cursor(cursor.clone()),
            None => From::Oldest,
        },
        limit: Some(3),
        skip_gone: false,
        unpositioned: false,
        expected: Expected::default(),
    });
    let log = Authority {
        store,
        limits: &Limits::default(),
        writers: &Writers::Anyone,
    };
    match log.answer(SPACE, &request, 0, &[0; 16])? {
        Answer::Blocks(page) => Ok(page),
        other => panic!("not a page: {other:?}"),
    }
}

impl Reader {
    fn take(&mut self, page: &Blocks) {
        assert_eq!(page.after, self.after, "a cursor leads elsewhere");
        for held in &page.blocks {
            let position = held.position.expect("only what is final was asked for");
            assert!(position > self.after && position <= page.covered);
            let before = self.seen.insert(position, held.hash);
            assert_eq!(before, None, "position {position} came twice");
        }
        self.after = page.covered;
        self.cursor = Some(page.next_cursor.clone());
    }
}

/// A reader whom a log lets read on has missed nothing, and saw nothing else.
fn check(store: &dyn ReplicaStore, reader: &Reader) {
    for held in held(store) {
        let position = held.position.unwrap_or(u64::MAX);
        if position <= reader.after {
            let seen = reader.seen.get(&position);
            assert_eq!(seen, Some(&held.hash), "a reader missed {position}");
        }
    }
}
