//! Transactions: how the one writer begins, ends and accounts for them.
//!
//! In:    work to be done in a transaction.
//! Out:   its outcome, once the transaction is durable.
//! Never: a failed transaction that leaves anything, in the file or in memory.

use super::append::Batch;
use super::moment::{self, Moment};
use super::remembered::Remembered;
use super::slices::Slices;
use super::tail::Tail;
use super::{SqliteLog, Writer, connection, passing};
use blocklog::store::{AppendError, StoreError};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::sync::atomic::Ordering;

impl SqliteLog {
    /// Run one transaction that writes. It is kept if `work` succeeds.
    pub(crate) fn writing<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Moment<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact(|moment, known| {
            known.forget();
            work(moment)
        })
    }

    /// Run one transaction that writes. If it fails, all is as if it had not begun.
    fn transact<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_in(&mut self.writer.lock(), work)
    }

    /// The same for a thread that has locked the writer.
    pub(super) fn transact_in<T, E: From<StoreError>>(
        &self,
        writer: &mut Writer,
        work: impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E>,
    ) -> Result<T, E> {
        let Writer {
            connection,
            known: remembered,
            slices,
            ..
        } = writer;
        // Nothing is remembered of a transaction that panics.
        let mut known = std::mem::take(remembered);
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(passing)?;
        if known.check(&transaction).map_err(passing)? {
            moment::catch_up(&transaction, &self.tail).map_err(passing)?;
        }
        let done = attempt(transaction, &self.tail, &mut known, slices, work);
        match done.is_ok() {
            true => self.account(connection),
            false => known.forget(),
        }
        *remembered = known;
        done
    }

    /// Run one transaction that only adds blocks to `space`.
    pub(super) fn adding<T>(
        &self,
        space: &str,
        now_ms: u64,
        work: impl FnOnce(Batch<'_>) -> Result<T, AppendError>,
    ) -> Result<T, AppendError> {
        self.transact(|moment, known| {
            let row = known.take_space(moment, space).map_err(passing)?;
            let row = row.ok_or(StoreError::UnknownSpace)?;
            work(Batch::new(moment, row, now_ms, known))
        })
    }

    /// Bytes of the file that are in use.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// Account for a transaction that was committed, or for the file as it was opened.
    pub(super) fn account(&self, connection: &Connection) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        // The size of before is near enough: the commit counts, whether it can be read or not.
        if let Ok(bytes) = connection::used_bytes(connection) {
            self.file_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Transactions that were committed.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }
}

/// Do the work and its share of the slices in a transaction that has begun, and commit.
fn attempt<T, E: From<StoreError>>(
    transaction: Transaction<'_>,
    tail: &Tail,
    known: &mut Remembered,
    slices: &mut Slices,
    work: impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E>,
) -> Result<T, E> {
    // Begun after the transaction, and so given up before it.
    let attempt = tail.attempt();
    let answer = work(&Moment::of_writer(&transaction, tail), known)?;
    let mut cut = slices.clone();
    let settled = cut.write(&transaction, tail, attempt.added())?;
    transaction.commit().map_err(passing)?;
    attempt.keep();
    *slices = cut;
    if let Some(through) = settled {
        tail.settle(through);
    }
    Ok(answer)
}
