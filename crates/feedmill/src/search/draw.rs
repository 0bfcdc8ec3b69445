//! From the outbox into the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, Error, TransactionBehavior};

use super::SearchIndex;
use super::docs::{self, Doc};
use crate::branch::{Branch, BranchError};
use crate::store::search::words_of;
use crate::store::{Change, Drawn, Outbox, Row};

/// Records read at once when the index is made anew.
const READ_MAX: usize = 1000;

/// The branch that keeps the index.
#[derive(Debug)]
pub struct SearchBranch(Arc<SearchIndex>);

impl SearchBranch {
    pub fn new(index: Arc<SearchIndex>) -> Self {
        Self(index)
    }

    /// Runs `work` in one transaction that nobody else can be within.
    fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, BranchError>,
    ) -> Result<T, BranchError> {
        let failed = |error| self.0.failed(error);
        let mut connection = self.0.connection().map_err(failed)?;
        let tx = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let done = work(&tx)?;
        tx.commit().map_err(failed)?;
        self.0.committed(&connection).map_err(failed)?;
        self.0.give_back(connection);
        Ok(done)
    }

    fn put(&self, connection: &Connection, row: &Row) -> Result<(), Error> {
        let Some(table) = self.0.table(&row.collection) else {
            return Ok(());
        };
        let fields = self.0.collections.get(table).map(|it| it.fields.as_slice());
        let doc = Doc {
            record: row.id,
            time_us: row.time_us,
            uri: &row.uri,
            words: words_of(&row.body, fields.unwrap_or_default()),
        };
        docs::put(connection, table, &doc)
    }
}

/// The position, if what is there was made by this specification.
pub(super) fn position(connection: &Connection, spec: &str) -> Result<Option<i64>, Error> {
    match docs::meta::<String>(connection, "spec")? {
        Some(found) if found == spec => docs::meta(connection, "position"),
        _ => Ok(None),
    }
}

impl Branch for SearchBranch {
    fn name(&self) -> &'static str {
        "search"
    }

    fn position(&self) -> Result<Option<i64>, BranchError> {
        let connection = self.0.connection().map_err(|error| self.0.failed(error))?;
        let found = position(&connection, &self.0.spec).map_err(|error| self.0.failed(error))?;
        self.0.rest(&connection);
        self.0.give_back(connection);
        Ok(found)
    }

    fn apply(&mut self, store: &dyn Outbox, _from: i64, drawn: &Drawn) -> Result<(), BranchError> {
        // Each touched record once, as it is by now.
        let mut touched: BTreeMap<i64, usize> = BTreeMap::new();
        for (_, change) in &drawn.changes {
            if let Change::Put { record, uri, .. } | Change::Delete { record, uri, .. } = change
                && let Some(table) = uri.split('/').nth(3).and_then(|nsid| self.0.table(nsid))
            {
                touched.insert(*record, table);
            }
        }
        let ids: Vec<i64> = touched.keys().copied().collect();
        let rows = store.kept(&ids)?;
        self.transaction(|connection| {
            match position(connection, &self.0.spec).map_err(|error| self.0.failed(error))? {
                // Another process was here, and is as far or farther.
                Some(held) if held >= drawn.position => return Ok(()),
                Some(_) => {}
                None => return Err(BranchError::Keep("made anew by another process".into())),
            }
            for (record, table) in &touched {
                docs::remove(connection, *table, *record).map_err(|error| self.0.failed(error))?;
            }
            for row in &rows {
                self.put(connection, row)
                    .map_err(|error| self.0.failed(error))?;
            }
            docs::set_meta(connection, "position", &drawn.position)
                .map_err(|error| self.0.failed(error))
        })
    }

    fn rebuild(&mut self, store: &dyn Outbox) -> Result<i64, BranchError> {
        let before = self.position()?;
        self.transaction(|connection| {
            // Another process may have made it anew while we waited for our turn.
            let now = position(connection, &self.0.spec).map_err(|error| self.0.failed(error))?;
            if let Some(position) = now.filter(|_| now != before) {
                return Ok(position);
            }
            let head = store.head()?;
            docs::begin_anew(connection, self.0.collections.len())
                .map_err(|error| self.0.failed(error))?;
            let mut after = 0;
            loop {
                let rows = store.kept_after(after, READ_MAX)?;
                let Some(last) = rows.last() else { break };
                after = last.id;
                for row in &rows {
                    self.put(connection, row)
                        .map_err(|error| self.0.failed(error))?;
                }
            }
            docs::set_meta(connection, "spec", &self.0.spec)
                .map_err(|error| self.0.failed(error))?;
            docs::set_meta(connection, "position", &head).map_err(|error| self.0.failed(error))?;
            Ok(head)
        })
    }
}
