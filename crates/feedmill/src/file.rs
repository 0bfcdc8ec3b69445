//! SQLite files, and what SQLite keeps beside them.
//!
//! In:    paths and errors.
//! Out:   whether a file is damaged, and a place without it.
//! Never: a file removed without its companions: they would be applied to the next one there.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Error, ErrorCode};

/// The files that SQLite may keep beside one.
pub fn companions(path: &Path) -> [PathBuf; 3] {
    ["-wal", "-shm", "-journal"].map(|ending| with_ending(path, ending))
}

/// The path with an ending added.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Whether an error says that the file itself is damaged, so that trying again cannot help.
pub fn is_damage(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Removes a file that can be made again.
pub fn discard(path: &Path) -> io::Result<()> {
    for file in companions(path).iter().map(PathBuf::as_path).chain([path]) {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
