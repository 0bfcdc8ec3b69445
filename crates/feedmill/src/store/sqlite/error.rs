//! SQLite's errors, sorted by what the caller does about them.

use rusqlite::{Error, ErrorCode};

use crate::file;
use crate::store::StoreError;

/// What an operator does about a damaged file.
const DAMAGED: &str = "the file is damaged. Stop every process that uses it, move it away with its -wal and -shm, and put a backup back with `feedmill restore`. Without a backup, start anew: what the network has is read again, but records of the direct API are gone";

/// Sorts SQLite's errors by what the caller does about them.
pub(super) fn sql(error: Error) -> StoreError {
    let error = match error {
        // Another engine's word, carried through.
        Error::ToSqlConversionFailure(cause) => match cause.downcast::<StoreError>() {
            Ok(cause) => return *cause,
            Err(cause) => Error::ToSqlConversionFailure(cause),
        },
        error => error,
    };
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => StoreError::Ended,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked(text),
        Some(ErrorCode::DiskFull) => StoreError::Full(text),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => {
            StoreError::Passing(text)
        }
        _ if file::is_damage(&error) => StoreError::Broken(format!("{text}; {DAMAGED}")),
        _ => StoreError::Broken(text),
    }
}

/// Whether an error says that the file is damaged, or is not what this process takes it for.
pub(super) fn is_damage(error: &Error) -> bool {
    let is_ours = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(StoreError::Broken(_)))
    };
    match error {
        Error::ToSqlConversionFailure(cause) => is_ours(&**cause),
        error => file::is_damage(error),
    }
}

pub(super) fn broken(message: String) -> StoreError {
    StoreError::Broken(message)
}
