//! The tables, and how an older file becomes a newer one.
//!
//! Ids are integers, long keys are hashed to integers and checked, indexes
//! are few: on this engine a row appended in order is cheap and every random
//! index entry is not. Migrations only ever append to the list.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error};

use super::{broken, cover, outbox, reference, shelf, tip};

/// Versions below this were never released, and no step leads on from them.
const FIRST: u32 = 100;

/// One step per schema version; never edited once released.
const MIGRATIONS: &[&str] = &["
CREATE TABLE source (
    name TEXT PRIMARY KEY, cursor INTEGER, updated_us INTEGER NOT NULL DEFAULT 0,
    applied INTEGER NOT NULL DEFAULT 0, repeated INTEGER NOT NULL DEFAULT 0, superseded INTEGER NOT NULL DEFAULT 0,
    filtered INTEGER NOT NULL DEFAULT 0, pending INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0, received INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Every string that can be followed, account DIDs among them.
CREATE TABLE key (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX key_by_hash ON key (hash);

-- repair: 0 in step, 1 a resync is due, 2 due and its frames are held.
CREATE TABLE account (
    key INTEGER PRIMARY KEY, status INTEGER NOT NULL DEFAULT 0, status_us INTEGER NOT NULL DEFAULT 0,
    rev INTEGER NOT NULL DEFAULT 0, data BLOB, snapshot INTEGER NOT NULL DEFAULT 0,
    repair INTEGER NOT NULL DEFAULT 0, handle TEXT, handle_us INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX account_by_repair ON account (repair) WHERE repair > 0;
CREATE INDEX account_by_handle ON account (handle) WHERE handle IS NOT NULL;

CREATE TABLE collection (id INTEGER PRIMARY KEY, nsid TEXT NOT NULL UNIQUE, live INTEGER NOT NULL DEFAULT 0);

-- state: 0 live, 1 deleted, 2 refused. A tombstone keeps its time, for cursors.
-- tail is did/rkey: within one collection it sorts as the URI does. links: what it refers to, as JSON: [path, target] by path.
CREATE TABLE record (
    id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, collection INTEGER NOT NULL, author INTEGER NOT NULL,
    rkey TEXT NOT NULL, tail TEXT NOT NULL, rev INTEGER NOT NULL, state INTEGER NOT NULL, time INTEGER NOT NULL,
    seen INTEGER NOT NULL, cid BLOB, body TEXT, links TEXT
);
CREATE INDEX record_by_hash ON record (hash);
-- A lane of all records of a collection under their authors is no table but two indexes.
CREATE INDEX record_by_author ON record (collection, author, time, tail) WHERE state = 0;
CREATE INDEX record_by_time ON record (collection, time, tail, author) WHERE state = 0;
CREATE VIEW author_published AS SELECT collection AS lane, author AS key, time, tail, id AS record FROM record WHERE state = 0;
CREATE VIEW author_recent AS SELECT collection AS lane, time, tail, id AS record, author AS keys FROM record WHERE state = 0;

-- A lane holds the records of one collection in order: under each key, and as a whole.
CREATE TABLE lane (id INTEGER PRIMARY KEY, spec TEXT NOT NULL UNIQUE);
CREATE TABLE published (
    lane INTEGER NOT NULL, key INTEGER NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL, record INTEGER NOT NULL,
    PRIMARY KEY (lane, key, time, tail)
) WITHOUT ROWID;
CREATE TABLE recent (
    lane INTEGER NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL, record INTEGER NOT NULL, keys BLOB NOT NULL,
    PRIMARY KEY (lane, time, tail)
) WITHOUT ROWID;

CREATE TABLE follow_source (id INTEGER PRIMARY KEY, spec TEXT NOT NULL UNIQUE);
CREATE TABLE follow (
    source INTEGER NOT NULL, reader INTEGER NOT NULL, key INTEGER NOT NULL, record INTEGER NOT NULL,
    PRIMARY KEY (source, reader, key, record)
) WITHOUT ROWID;

-- References backward: target is the hash of what the record's links name, and the links confirm it.
CREATE TABLE reference (
    target INTEGER NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (target, record)
) WITHOUT ROWID;

CREATE TABLE dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, did TEXT NOT NULL, collection TEXT NOT NULL,
    rkey TEXT NOT NULL, rev INTEGER NOT NULL, stage TEXT NOT NULL, message TEXT NOT NULL, path TEXT NOT NULL,
    expected TEXT NOT NULL, received TEXT NOT NULL, raw TEXT NOT NULL, cursor INTEGER NOT NULL, time INTEGER NOT NULL
);

CREATE TABLE held (
    id INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, source TEXT NOT NULL,
    units INTEGER NOT NULL, rev INTEGER NOT NULL, frame BLOB NOT NULL
);
CREATE UNIQUE INDEX held_by_account ON held (account, rev);

-- One row per transaction: changes first..=last as JSON.
CREATE TABLE outbox (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, changes BLOB NOT NULL);
", "
ALTER TABLE dead ADD COLUMN rule TEXT NOT NULL DEFAULT '';
ALTER TABLE dead ADD COLUMN cid TEXT NOT NULL DEFAULT '';

-- Records that wait for another, under the key of what they lack. due: when one is tried again;
-- dead: the number of its dead letter, once it is buried and only an arrival wakes it.
CREATE TABLE parked (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, cursor INTEGER NOT NULL, author INTEGER NOT NULL,
    hash INTEGER NOT NULL, collection INTEGER NOT NULL, rkey TEXT NOT NULL, rev INTEGER NOT NULL, live INTEGER NOT NULL,
    cid BLOB, body TEXT NOT NULL, time INTEGER, links TEXT NOT NULL, missing TEXT NOT NULL, missing_hash INTEGER NOT NULL,
    path TEXT NOT NULL, attempt INTEGER NOT NULL, due INTEGER, dead INTEGER
);
CREATE INDEX parked_by_hash ON parked (hash);
CREATE INDEX parked_by_missing ON parked (missing_hash);
CREATE INDEX parked_by_author ON parked (author);
CREATE INDEX parked_by_due ON parked (due) WHERE due IS NOT NULL;
CREATE INDEX parked_by_dead ON parked (dead) WHERE dead IS NOT NULL;
CREATE INDEX parked_waiting ON parked (id) WHERE dead IS NULL;
", "
-- Operations that wait in a queue: a body is a put, a letter a refusal, neither a delete.
CREATE TABLE pending (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, source TEXT NOT NULL, cursor INTEGER NOT NULL,
    author INTEGER NOT NULL, collection INTEGER NOT NULL, rkey TEXT NOT NULL, rev INTEGER NOT NULL, live INTEGER NOT NULL,
    seen INTEGER NOT NULL, cid BLOB, body TEXT, time INTEGER, links TEXT, letter TEXT
);
CREATE INDEX pending_by_queue ON pending (queue, id);
CREATE INDEX pending_by_author ON pending (author, id);
", "
-- Children under each key of a lane, of visible accounts; kept so that no read counts.
CREATE TABLE tally (
    lane INTEGER NOT NULL, key INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (lane, key)
) WITHOUT ROWID;

-- Orders other than that of time. rung: a number, a text, or an empty blob for a record without either.
CREATE TABLE ladder (id INTEGER PRIMARY KEY, spec TEXT NOT NULL UNIQUE);
CREATE TABLE rung (
    ladder INTEGER NOT NULL, rung NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL, record INTEGER NOT NULL,
    PRIMARY KEY (ladder, rung, time, tail)
) WITHOUT ROWID;

-- Rows of tables that an operator asks the size of; triggers, so that no writer can forget.
CREATE TABLE size (name TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO size VALUES ('account', (SELECT count(*) FROM account)), ('dead', (SELECT count(*) FROM dead)),
    ('held', (SELECT count(*) FROM held));
CREATE TRIGGER account_more AFTER INSERT ON account BEGIN UPDATE size SET rows = rows + 1 WHERE name = 'account'; END;
CREATE TRIGGER account_less AFTER DELETE ON account BEGIN UPDATE size SET rows = rows - 1 WHERE name = 'account'; END;
CREATE TRIGGER dead_more AFTER INSERT ON dead BEGIN UPDATE size SET rows = rows + 1 WHERE name = 'dead'; END;
CREATE TRIGGER dead_less AFTER DELETE ON dead BEGIN UPDATE size SET rows = rows - 1 WHERE name = 'dead'; END;
CREATE TRIGGER held_more AFTER INSERT ON held BEGIN UPDATE size SET rows = rows + 1 WHERE name = 'held'; END;
CREATE TRIGGER held_less AFTER DELETE ON held BEGIN UPDATE size SET rows = rows - 1 WHERE name = 'held'; END;
", "
-- doubt: the status may have changed where we could not see it; the host is to be asked.
ALTER TABLE account ADD COLUMN doubt INTEGER NOT NULL DEFAULT 0;
CREATE INDEX account_by_doubt ON account (doubt) WHERE doubt > 0;
", "
-- Records of merged feeds, by author and by what they are about. first: a group begins here.
-- tail is did/collection/rkey: a group may begin with a record of any of the feed's collections.
CREATE TABLE part (
    lane INTEGER NOT NULL, author INTEGER NOT NULL, merge TEXT NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL,
    record INTEGER NOT NULL, first INTEGER NOT NULL, keys BLOB NOT NULL, adds TEXT NOT NULL,
    PRIMARY KEY (lane, author, merge, time, tail)
) WITHOUT ROWID;

-- Readers whose repositories were asked for because they read, until these come. failed: when that was given up.
CREATE TABLE first_read (reader INTEGER PRIMARY KEY, asked INTEGER NOT NULL, failed INTEGER);
", "
-- How many children of one author stand under a key, where authors are counted and not children.
CREATE TABLE voice (
    lane INTEGER NOT NULL, key INTEGER NOT NULL, author INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (lane, key, author)
) WITHOUT ROWID;
", "
-- Another number whenever lanes, sources or ladders became others: who began under an earlier one must stop.
CREATE TABLE layout (number INTEGER NOT NULL);
INSERT INTO layout VALUES (1);
", "
-- Under one author rkey sorts as tail does, in a third of its bytes.
DROP VIEW author_published;
DROP INDEX record_by_author;
CREATE INDEX record_by_author ON record (collection, author, time, rkey) WHERE state = 0;
CREATE VIEW author_published AS SELECT collection AS lane, author AS key, time, rkey, id AS record FROM record WHERE state = 0;
", "
-- Piles: ordered sets of byte strings. A sheet holds neighbours, packed; nothing on it is below its fence.
CREATE TABLE sheet (id INTEGER PRIMARY KEY, entries BLOB NOT NULL);
CREATE TABLE fence (
    pile INTEGER NOT NULL, level INTEGER NOT NULL, first BLOB NOT NULL, sheet INTEGER NOT NULL,
    PRIMARY KEY (pile, level, first)
) WITHOUT ROWID;
-- turn: where the next stretch that moves down a level begins.
CREATE TABLE level (
    pile INTEGER NOT NULL, level INTEGER NOT NULL, count INTEGER NOT NULL, turn BLOB NOT NULL,
    PRIMARY KEY (pile, level)
) WITHOUT ROWID;
", "
-- Both are piles now, which the step before this one filled.
DROP VIEW author_published;
DROP INDEX record_by_author;
DROP TABLE reference;
", "
-- data is the beginning of a hash now: the row of an account is written with every commit.
UPDATE account SET data = substr(data, 5, 8) WHERE data IS NOT NULL;
", "
-- The newest revision and tree of each account, packed: those of a stretch of keys in one row.
CREATE TABLE tip (stretch INTEGER PRIMARY KEY, tips BLOB NOT NULL);
", "
-- Both are tips now, which the step before this one took out.
ALTER TABLE account DROP COLUMN rev;
ALTER TABLE account DROP COLUMN data;
", "
-- The changes of a row of the outbox are packed, which is done after this step.
", "
-- covered: the layout under which an account's history came whole, 0 if it did not; since: the one since which
-- the records of a collection are kept, 0 if they are not. Both are layouts' numbers.
ALTER TABLE account ADD COLUMN covered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE collection ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
UPDATE collection SET since = 1;
CREATE INDEX first_read_by_failed ON first_read (failed);
-- Nobody waits for the repository of a hidden account.
DELETE FROM first_read WHERE reader IN (SELECT key FROM account WHERE status % 2 = 1);
", "
-- role: 0 joins the group before it, 1 begins one, 2 is alone: its thing has more records than are merged.
DROP TABLE part;
CREATE TABLE part (
    lane INTEGER NOT NULL, author INTEGER NOT NULL, merge TEXT NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL,
    record INTEGER NOT NULL, role INTEGER NOT NULL, keys BLOB NOT NULL, adds TEXT NOT NULL,
    PRIMARY KEY (lane, author, merge, time, tail)
) WITHOUT ROWID;
INSERT INTO size VALUES ('unmerged', 0);
", "
-- Nothing else is kept of a reader that waits for its repository, so it is known by its DID.
DROP TABLE first_read;
CREATE TABLE first_read (did TEXT PRIMARY KEY, asked INTEGER NOT NULL, failed INTEGER) WITHOUT ROWID;
CREATE INDEX first_read_by_failed ON first_read (failed);
-- Accounts that are being fetched: when the last attempt began, and how many began and did not end.
CREATE TABLE fetching (did TEXT PRIMARY KEY, begun INTEGER NOT NULL, attempts INTEGER NOT NULL) WITHOUT ROWID;
", "
-- The path of the field that gave the records of a collection their times; empty: the moment of first sight.
ALTER TABLE collection ADD COLUMN time TEXT;
", "
-- content: a hash of a dead letter's place and bytes: the same bytes are one dead letter. place: the hash of its
-- record's URI, null where it holds no record. arrivals: how often the bytes came; replayed: when it was last tried.
ALTER TABLE dead ADD COLUMN content BLOB;
ALTER TABLE dead ADD COLUMN place INTEGER;
ALTER TABLE dead ADD COLUMN arrivals INTEGER NOT NULL DEFAULT 1;
ALTER TABLE dead ADD COLUMN replayed INTEGER;
ALTER TABLE dead ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE dead SET bytes = 200 + length(raw);
CREATE UNIQUE INDEX dead_by_content ON dead (content) WHERE content IS NOT NULL;
CREATE INDEX dead_by_place ON dead (place) WHERE place IS NOT NULL;
CREATE INDEX dead_by_did ON dead (did);
CREATE INDEX dead_by_time ON dead (time);
INSERT INTO size VALUES ('dead bytes', (SELECT coalesce(sum(bytes), 0) FROM dead));
CREATE TABLE dead_kind (
    stage TEXT NOT NULL, collection TEXT NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (stage, collection)
) WITHOUT ROWID;
INSERT INTO dead_kind SELECT stage, collection, count(*) FROM dead GROUP BY stage, collection;
CREATE TRIGGER dead_came AFTER INSERT ON dead BEGIN
    UPDATE size SET rows = rows + new.bytes WHERE name = 'dead bytes';
    INSERT INTO dead_kind VALUES (new.stage, new.collection, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER dead_went AFTER DELETE ON dead BEGIN
    UPDATE size SET rows = rows - old.bytes WHERE name = 'dead bytes';
    UPDATE dead_kind SET rows = rows - 1 WHERE stage = old.stage AND collection = old.collection;
    DELETE FROM dead_kind WHERE stage = old.stage AND collection = old.collection AND rows = 0;
END;
CREATE TRIGGER dead_revised AFTER UPDATE OF stage ON dead WHEN old.stage <> new.stage BEGIN
    UPDATE dead_kind SET rows = rows - 1 WHERE stage = old.stage AND collection = old.collection;
    DELETE FROM dead_kind WHERE stage = old.stage AND collection = old.collection AND rows = 0;
    INSERT INTO dead_kind VALUES (new.stage, new.collection, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
-- was: the number of the dead letter that was replayed and now waits, given back if it is refused again.
ALTER TABLE parked ADD COLUMN was INTEGER;
", "
-- How the ingesting process is, as JSON; one row at most.
CREATE TABLE heartbeat (id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL, report TEXT NOT NULL);
", "
-- Our clock was found wrong by the events' times, and what was stored meanwhile is not repaired yet. at: when that was
-- found; off: our clock minus the events'. One row at most.
CREATE TABLE wrong_clock (id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL, off INTEGER NOT NULL);
", "
-- seen: when it was first seen, however long it waits.
ALTER TABLE parked ADD COLUMN seen INTEGER;
", "
-- began: the position of the outbox after which this life of the file counts; 0 unless it was restored. One row.
-- `feedmill restore` writes it too, also into a copy of an earlier layout.
CREATE TABLE IF NOT EXISTS epoch (id INTEGER PRIMARY KEY CHECK (id = 1), began INTEGER NOT NULL);
INSERT OR IGNORE INTO epoch VALUES (1, 0);
"];

/// The step after which the piles are filled from what stood in indexes before.
const PILED: u32 = FIRST + 10;
/// The step after which the tips are taken out of the rows of accounts.
const TIPPED: u32 = FIRST + 13;
/// The step after which the outbox is packed.
const PACKED: u32 = FIRST + 15;
/// The step after which it is noted whose histories are whole.
const COVERED: u32 = FIRST + 16;

/// Brings a connection's file to the newest version.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version: u32 = tx.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if (1..FIRST).contains(&version) {
        let cause = format!("its layout {version} was never released; remove it and start anew");
        return Err(Error::ToSqlConversionFailure(Box::new(broken(cause))));
    }
    if let Some(cause) = newer(version) {
        return Err(Error::ToSqlConversionFailure(Box::new(broken(cause))));
    }
    let done = version.saturating_sub(FIRST);
    for (step, sql) in (FIRST + 1..).zip(MIGRATIONS).skip(done as usize) {
        tx.execute_batch(sql)?;
        if step == PILED {
            shelf::pile_up(&tx)?;
            reference::pile_up(&tx)?;
        }
        if step == TIPPED {
            tip::take_out(&tx)?;
        }
        if step == PACKED {
            outbox::pack_up(&tx)?;
        }
        if step == COVERED {
            cover::take_over(&tx)?;
        }
        tx.pragma_update(None, "user_version", step)?;
    }
    tx.commit()
}

/// The version that this program writes.
const NEWEST: u32 = FIRST + MIGRATIONS.len() as u32;

/// What to do about a file of a version that this program does not know.
fn newer(version: u32) -> Option<String> {
    (version > NEWEST).then(|| format!(
        "the file was written by a newer version of feedmill (its layout is {version}, this program knows {NEWEST}); install that version, or restore a backup from before the upgrade"
    ))
}

/// Why a file cannot be used as it is; `None` if it is at the newest version.
pub(super) fn unfit(connection: &Connection) -> Result<Option<String>, Error> {
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let older = || "it is of an older version; `feedmill run` brings it to this one".to_owned();
    Ok(newer(version).or_else(|| (version < NEWEST).then(older)))
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
    use crate::store::change::Change;

    #[test]
    fn a_file_of_a_layout_that_was_never_released_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 6).unwrap();
        let refused = migrate(&mut connection).unwrap_err();
        assert!(refused.to_string().contains("start anew"), "{refused}");
    }

    #[test]
    fn a_file_of_a_newer_version_is_refused_and_left_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .pragma_update(None, "user_version", NEWEST + 1)
            .unwrap();
        let refused = migrate(&mut connection).unwrap_err().to_string();
        assert!(refused.contains("newer version of feedmill"), "{refused}");
        assert_eq!(
            unfit(&connection)
                .unwrap()
                .map(|cause| cause.contains("newer")),
            Some(true)
        );
        let tables =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
        assert_eq!(tables, Ok(0));
    }

    /// A file as it was before a step.
    fn before(step: u32) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for sql in MIGRATIONS.iter().take((step - FIRST) as usize - 1) {
            connection.execute_batch(sql).unwrap();
        }
        connection
            .pragma_update(None, "user_version", step - 1)
            .unwrap();
        connection
    }

    /// A file as it was before there were piles: authors with several posts, each naming two others.
    fn before_piles() -> Connection {
        let connection = before(PILED);
        connection
            .execute_batch(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 9000)
                 INSERT INTO record (id, hash, collection, author, rkey, tail, rev, state, time, seen)
                 SELECT n, n, 1, n % 7, 'p' || n, 'did/p' || n, 1, n % 10 = 0, 1000 - n % 100, 0 FROM n;
                 INSERT INTO reference SELECT id % 50 - 25, id FROM record WHERE state = 0;",
            )
            .unwrap();
        connection
    }

    #[test]
    fn what_stood_in_indexes_stands_in_piles_afterwards_in_the_same_order() {
        let mut connection = before_piles();
        let listed = |sql: &str| -> Vec<i64> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let authored = listed(
            "SELECT id FROM record WHERE collection = 1 AND author = 3 AND state = 0 ORDER BY time DESC, rkey DESC",
        );
        let referring =
            listed("SELECT record FROM reference WHERE target = -7 ORDER BY record DESC");
        migrate(&mut connection).unwrap();
        let shelf = shelf::Shelf::of(shelf::lane_of(1));
        let found = shelf.below(&connection, 3, (i64::MAX, ""), 10_000).unwrap();
        let found: Vec<i64> = found.iter().map(|placed| placed.record).collect();
        assert!(found.len() > 1000);
        assert_eq!(found, authored);
        let mut naming = reference::Naming::of(&connection, -7, None, None).unwrap();
        let mut found = Vec::new();
        while let Some(record) = naming.next().unwrap() {
            found.push(record);
        }
        assert!(found.len() > 100);
        assert_eq!(found, referring);
    }

    #[test]
    fn what_stood_with_accounts_are_tips_afterwards() {
        let mut connection = before(TIPPED);
        connection
            .execute_batch(
                "INSERT INTO account (key, rev, data, snapshot, handle) VALUES
                 (1, 11, x'0102030405060708', 5, 'one.example'), (2, 12, NULL, 0, NULL), (3, 0, NULL, 0, NULL),
                 (500, 4611686018427387904, x'ffffffffffffffff', 0, NULL);",
            )
            .unwrap();
        migrate(&mut connection).unwrap();
        let found = [1, 2, 3, 4, 500].map(|key| tip::find(&connection, key).unwrap());
        let tip = |rev, data| tip::Tip { rev, data };
        let expected = [
            tip(11, Some([1, 2, 3, 4, 5, 6, 7, 8])),
            tip(12, None),
            tip(0, None),
            tip(0, None),
            tip(1 << 62, Some([255; 8])),
        ];
        assert_eq!(found, expected);
        let kept = "SELECT snapshot, handle FROM account WHERE key = 1";
        let kept = connection.query_row(kept, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(kept, Ok((5, String::from("one.example"))));
    }

    #[test]
    fn changes_that_were_written_as_json_are_drawn_as_before() {
        let mut connection = before(PACKED);
        let row = r#"[{"c":"put","record":7,"uri":"at://did:plc:a/com.example.post/1","live":true,
            "lanes":[{"lane":-2,"time_us":1777866988491000,"author":3,"keys":[3,9]}]},
            {"c":"delete","record":6,"uri":"at://did:plc:a/com.example.like/1"},
            {"c":"follow","source":1,"reader":2,"key":3},{"c":"unfollow","source":1,"reader":2,"key":4},
            {"c":"account","key":3,"did":"did:plc:a","visible":false},
            {"c":"regroup","lane":5,"was":[],"now":[{"record":7,"uri":"at://did:plc:a/com.example.post/1",
            "time_us":1,"author":3,"keys":[]}],"live":false}]"#;
        let expected: Vec<Change> = serde_json::from_str(row).unwrap();
        let insert = "INSERT INTO outbox VALUES (?1, ?2, CAST(?3 AS BLOB))";
        for first in [11, 17] {
            let values = rusqlite::params![first, first + 5, row];
            connection.execute(insert, values).unwrap();
        }
        migrate(&mut connection).unwrap();
        let drawn = outbox::draw(&connection, 16, 100).unwrap();
        let changes: Vec<(i64, Change)> = (17..).zip(expected).collect();
        assert_eq!((drawn.changes, drawn.position), (changes, 22));
        assert_eq!(
            outbox::draw(&connection, 12, 100).unwrap().changes.len(),
            10
        );
    }

    #[test]
    fn histories_of_an_older_file_hold_what_was_kept_when_it_is_brought_over() {
        let mut connection = before(COVERED);
        connection
            .execute_batch(
                "INSERT INTO collection (nsid) VALUES ('com.example.post');
                 INSERT INTO account (key, snapshot, repair, status) VALUES
                 (1, 5, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 0, 1, 0), (5, 0, 1, 5);
                 INSERT INTO first_read (reader, asked) VALUES (4, 1), (5, 1);",
            )
            .unwrap();
        // Followed from its first commit, told by a Jetstream, met in the middle.
        let mut moved = tip::Moved::default();
        for (key, data) in [(2, Some([1; 8])), (3, None), (4, Some([2; 8]))] {
            moved.to(key, tip::Tip { rev: 7, data });
        }
        moved.settle(&connection).unwrap();
        migrate(&mut connection).unwrap();
        let numbers = |sql: &str| -> Vec<i64> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let covered = numbers("SELECT covered FROM account ORDER BY key");
        assert_eq!(covered, [1, 1, 0, 0, 0]);
        assert_eq!(numbers("SELECT since FROM collection"), [1]);
    }

    #[test]
    fn a_file_that_is_opened_again_is_left_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        migrate(&mut connection).unwrap();
    }
}
