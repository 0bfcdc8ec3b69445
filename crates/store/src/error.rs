//! What can go wrong in a store, sorted by what is done about it.

use decide::value::Damaged;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else holds the file. Try again.
    #[error("the store is locked by another process")]
    Locked,
    /// As many readers as may be are reading. Try again.
    #[error("all connections of readers are in use")]
    Busy,
    /// There is no room. Make some; nothing was written.
    #[error("the disk is full")]
    Full,
    /// The transaction was decided on rows that are others now. Decide again.
    #[error("the rows changed meanwhile")]
    Stale,
    /// The commit may or may not have happened. Look at the cursor.
    #[error("the outcome of the commit is unknown: {0}")]
    Unknown(String),
    /// A row is not one of ours.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// A consumer asks for changes of another history, or for changes that were trimmed.
    #[error("position {asked} cannot be continued: {why}")]
    Gone { asked: String, why: &'static str },
    /// The batch asked for rows more often than any batch may.
    #[error("a batch needed more than {0} loads")]
    TooManyLoads(usize),
    /// The caller's deadline has passed, or the caller has left. Nobody waits for an answer.
    #[error("the read was ended because nobody waits for it any more")]
    Ended,
    /// Anything else that the engine said.
    #[error("{0}")]
    Engine(String),
}
