//! The layout of a store's file: made in an empty one, refused where it is another.
//!
//! In:    a connection.
//! Out:   a file with the tables of `tables.sql`, marked with the layout's number.
//! Never: a change to a file of another program, or of a layout that this one does not know.
//!
//! A released layout never changes. The next one gets the next number, and a
//! step that leads there from the one before.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error};

use super::broken;

/// Tells our files from those of other programs, which SQLite marks with 0 or a number of their own.
const APPLICATION: u32 = 0x464d_494c;
/// The layout that this program writes.
const LAYOUT: u32 = 1;
const TABLES: &str = include_str!("tables.sql");

/// What a file is.
enum File {
    Empty,
    Ours,
    /// Why it cannot be used.
    Foreign(String),
}

fn file(connection: &Connection) -> Result<File, Error> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    let (application, layout) = (pragma("application_id")?, pragma("user_version")?);
    if (application, layout) == (APPLICATION, LAYOUT) {
        return Ok(File::Ours);
    }
    if application == APPLICATION {
        return Ok(File::Foreign(format!(
            "the file was written by a newer version of feedmill (its layout is {layout}, this program knows {LAYOUT}); install that version, or restore a backup from before the upgrade"
        )));
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match tables {
        0 => File::Empty,
        _ => File::Foreign(
            "the file is a database of another program, or of feedmill before 0.1.0; name another file in store.url, or remove this one"
                .to_owned(),
        ),
    })
}

/// Makes the tables in an empty file; one that has them is left as it is.
pub(super) fn create(connection: &mut Connection) -> Result<(), Error> {
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    match file(&tx)? {
        File::Ours => return Ok(()),
        File::Foreign(cause) => {
            return Err(Error::ToSqlConversionFailure(Box::new(broken(cause))));
        }
        File::Empty => tx.execute_batch(TABLES)?,
    }
    tx.pragma_update(None, "application_id", APPLICATION)?;
    tx.pragma_update(None, "user_version", LAYOUT)?;
    tx.commit()
}

/// Why a file cannot be used as it is; `None` if it has the tables.
pub(super) fn unfit(connection: &Connection) -> Result<Option<String>, Error> {
    Ok(match file(connection)? {
        File::Ours => None,
        File::Foreign(cause) => Some(cause),
        File::Empty => Some("it is empty; `feedmill run` makes its tables".to_owned()),
    })
}

/// How long a connection waits for another one that writes.
pub(super) const BUSY_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// Settings of every connection.
pub(super) fn prepare(connection: &Connection, cache_mib: u32) -> Result<(), Error> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -(i64::from(cache_mib) * 1024))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(128);
    // What is bound changes no plan here, so a statement need not be planned again for it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(connection: &mut Connection, expected: &str) {
        let tables = |connection: &Connection| -> i64 {
            let count = "SELECT count(*) FROM sqlite_schema";
            connection.query_row(count, [], |row| row.get(0)).unwrap()
        };
        let before = tables(connection);
        let cause = create(connection).unwrap_err().to_string();
        assert!(cause.contains(expected), "{cause}");
        let cause = unfit(connection).unwrap().unwrap();
        assert!(cause.contains(expected), "{cause}");
        assert_eq!(tables(connection), before);
    }

    #[test]
    fn a_file_of_another_program_or_from_before_the_first_release_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE theirs (id); PRAGMA user_version = 122")
            .unwrap();
        refused(&mut connection, "another program");
    }

    #[test]
    fn a_file_of_a_newer_layout_is_refused_and_left_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        create(&mut connection).unwrap();
        connection
            .pragma_update(None, "user_version", LAYOUT + 1)
            .unwrap();
        refused(&mut connection, "newer version of feedmill");
    }

    #[test]
    fn a_file_that_is_opened_again_is_left_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(unfit(&connection).unwrap().unwrap().contains("empty"));
        create(&mut connection).unwrap();
        create(&mut connection).unwrap();
        assert_eq!(unfit(&connection).unwrap(), None);
    }
}
