-- The tables of a store. Ids are integers, long keys are hashed to integers and checked, indexes are few: a row that is
-- appended in order is cheap here, and every entry of an index at a random place is not.

CREATE TABLE source (
    name TEXT PRIMARY KEY, cursor INTEGER, updated_us INTEGER NOT NULL DEFAULT 0,
    applied INTEGER NOT NULL DEFAULT 0, repeated INTEGER NOT NULL DEFAULT 0, superseded INTEGER NOT NULL DEFAULT 0,
    filtered INTEGER NOT NULL DEFAULT 0, pending INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0, received INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Every string that can be followed, account DIDs among them.
CREATE TABLE key (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX key_by_hash ON key (hash);

-- repair: 0 in step, 1 a resync is due, 2 due and its frames are held. doubt: the status may have changed where we could
-- not see it; the host is to be asked. covered: the layout under which its history came whole, 0 if it did not.
CREATE TABLE account (
    key INTEGER PRIMARY KEY, status INTEGER NOT NULL DEFAULT 0, status_us INTEGER NOT NULL DEFAULT 0,
    snapshot INTEGER NOT NULL DEFAULT 0, repair INTEGER NOT NULL DEFAULT 0, handle TEXT,
    handle_us INTEGER NOT NULL DEFAULT 0, doubt INTEGER NOT NULL DEFAULT 0, covered INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX account_by_repair ON account (repair) WHERE repair > 0;
CREATE INDEX account_by_handle ON account (handle) WHERE handle IS NOT NULL;
CREATE INDEX account_by_doubt ON account (doubt) WHERE doubt > 0;

-- The newest revision and tree of each account, packed: those of a stretch of keys in one row.
CREATE TABLE tip (stretch INTEGER PRIMARY KEY, tips BLOB NOT NULL);

-- since: the layout since which the records of a collection are kept, 0 if they are not. time: the path of the field
-- that gave its records their times; empty: the moment of first sight.
CREATE TABLE collection (
    id INTEGER PRIMARY KEY, nsid TEXT NOT NULL UNIQUE, live INTEGER NOT NULL DEFAULT 0, since INTEGER NOT NULL DEFAULT 0,
    time TEXT
);

-- state: 0 live, 1 deleted, 2 refused. A tombstone keeps its time, for cursors.
-- tail is did/rkey: within one collection it sorts as the URI does. links: what it refers to, as JSON: [path, target] by path.
CREATE TABLE record (
    id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, collection INTEGER NOT NULL, author INTEGER NOT NULL,
    rkey TEXT NOT NULL, tail TEXT NOT NULL, rev INTEGER NOT NULL, state INTEGER NOT NULL, time INTEGER NOT NULL,
    seen INTEGER NOT NULL, cid BLOB, body TEXT, links TEXT
);
CREATE INDEX record_by_hash ON record (hash);
-- The lane of all records of a collection under their authors is no table: this index, and a pile by author.
CREATE INDEX record_by_time ON record (collection, time, tail, author) WHERE state = 0;
CREATE VIEW author_recent AS SELECT collection AS lane, time, tail, id AS record, author AS keys FROM record WHERE state = 0;

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

-- Another number whenever lanes, sources or ladders became others: who began under an earlier one must stop.
CREATE TABLE layout (number INTEGER NOT NULL);
INSERT INTO layout VALUES (1);

-- Records of merged feeds, by author and by what they are about. role: 0 joins the group before it, 1 begins one, 2 is
-- alone: its thing has more records than are merged. tail is did/collection/rkey: a group may begin with a record of any
-- of the feed's collections.
CREATE TABLE part (
    lane INTEGER NOT NULL, author INTEGER NOT NULL, merge TEXT NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL,
    record INTEGER NOT NULL, role INTEGER NOT NULL, keys BLOB NOT NULL, adds TEXT NOT NULL,
    PRIMARY KEY (lane, author, merge, time, tail)
) WITHOUT ROWID;

-- Children under each key of a lane, of visible accounts; kept so that no read counts.
CREATE TABLE tally (
    lane INTEGER NOT NULL, key INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (lane, key)
) WITHOUT ROWID;
-- How many children of one author stand under a key, where authors are counted and not children.
CREATE TABLE voice (
    lane INTEGER NOT NULL, key INTEGER NOT NULL, author INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (lane, key, author)
) WITHOUT ROWID;

-- Orders other than that of time. rung: a number, a text, or an empty blob for a record without either.
CREATE TABLE ladder (id INTEGER PRIMARY KEY, spec TEXT NOT NULL UNIQUE);
CREATE TABLE rung (
    ladder INTEGER NOT NULL, rung NOT NULL, time INTEGER NOT NULL, tail TEXT NOT NULL, record INTEGER NOT NULL,
    PRIMARY KEY (ladder, rung, time, tail)
) WITHOUT ROWID;

-- Readers whose repositories were asked for because they read, until these come. failed: when that was given up.
-- Nothing else is kept of them, so they are known by their DIDs.
CREATE TABLE first_read (did TEXT PRIMARY KEY, asked INTEGER NOT NULL, failed INTEGER) WITHOUT ROWID;
CREATE INDEX first_read_by_failed ON first_read (failed);
-- Accounts that are being fetched: when the last attempt began, and how many began and did not end.
CREATE TABLE fetching (did TEXT PRIMARY KEY, begun INTEGER NOT NULL, attempts INTEGER NOT NULL) WITHOUT ROWID;

-- content: a hash of a dead letter's place and bytes: the same bytes are one dead letter. place: the hash of its
-- record's URI, null where it holds no record. arrivals: how often the bytes came; replayed: when it was last tried.
CREATE TABLE dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, did TEXT NOT NULL, collection TEXT NOT NULL,
    rkey TEXT NOT NULL, rev INTEGER NOT NULL, stage TEXT NOT NULL, message TEXT NOT NULL, path TEXT NOT NULL,
    expected TEXT NOT NULL, received TEXT NOT NULL, raw TEXT NOT NULL, cursor INTEGER NOT NULL, time INTEGER NOT NULL,
    rule TEXT NOT NULL, cid TEXT NOT NULL, content BLOB NOT NULL, place INTEGER, arrivals INTEGER NOT NULL DEFAULT 1,
    replayed INTEGER, bytes INTEGER NOT NULL
);
CREATE UNIQUE INDEX dead_by_content ON dead (content);
CREATE INDEX dead_by_place ON dead (place) WHERE place IS NOT NULL;
CREATE INDEX dead_by_did ON dead (did);
CREATE INDEX dead_by_time ON dead (time);
-- How many dead letters there are of each stage and collection.
CREATE TABLE dead_kind (
    stage TEXT NOT NULL, collection TEXT NOT NULL, rows INTEGER NOT NULL, PRIMARY KEY (stage, collection)
) WITHOUT ROWID;

-- Frames of accounts whose repositories are to be fetched first.
CREATE TABLE held (
    id INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, source TEXT NOT NULL,
    units INTEGER NOT NULL, rev INTEGER NOT NULL, frame BLOB NOT NULL
);
CREATE UNIQUE INDEX held_by_account ON held (account, rev);
-- Bytes of the frames of each account.
CREATE TABLE held_sum (account INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
-- Frames of accounts out of step that were not kept: whose, how many units, and the newest revision.
CREATE TABLE dropped (
    account INTEGER NOT NULL, source TEXT NOT NULL, units INTEGER NOT NULL, rev INTEGER NOT NULL, PRIMARY KEY (account, source)
) WITHOUT ROWID;

-- Records that wait for another, under the key of what they lack. due: when one is tried again; dead: the number of its
-- dead letter, once only an arrival wakes it. was: the number of the dead letter that was replayed and now waits, given
-- back if it is refused again. seen: when it was first seen, however long it waits.
CREATE TABLE parked (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, cursor INTEGER NOT NULL, author INTEGER NOT NULL,
    hash INTEGER NOT NULL, collection INTEGER NOT NULL, rkey TEXT NOT NULL, rev INTEGER NOT NULL, live INTEGER NOT NULL,
    cid BLOB, body TEXT NOT NULL, time INTEGER, links TEXT NOT NULL, missing TEXT NOT NULL, missing_hash INTEGER NOT NULL,
    path TEXT NOT NULL, attempt INTEGER NOT NULL, due INTEGER, dead INTEGER, was INTEGER, seen INTEGER
);
CREATE INDEX parked_by_hash ON parked (hash);
CREATE INDEX parked_by_missing ON parked (missing_hash);
CREATE INDEX parked_by_author ON parked (author);
CREATE INDEX parked_by_due ON parked (due) WHERE due IS NOT NULL;
CREATE INDEX parked_by_dead ON parked (dead) WHERE dead IS NOT NULL;
CREATE INDEX parked_waiting ON parked (id) WHERE dead IS NULL;

-- Operations that wait in a queue: a body is a put, a letter a refusal, neither a delete.
CREATE TABLE pending (
    id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, source TEXT NOT NULL, cursor INTEGER NOT NULL,
    author INTEGER NOT NULL, collection INTEGER NOT NULL, rkey TEXT NOT NULL, rev INTEGER NOT NULL, live INTEGER NOT NULL,
    seen INTEGER NOT NULL, cid BLOB, body TEXT, time INTEGER, links TEXT, letter TEXT
);
CREATE INDEX pending_by_queue ON pending (queue, id);
CREATE INDEX pending_by_author ON pending (author, id);

-- One row per transaction: changes first..=last, packed.
CREATE TABLE outbox (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, changes BLOB NOT NULL);
-- began: the position of the outbox after which this life of the file counts; 0 unless it was restored. One row.
CREATE TABLE epoch (id INTEGER PRIMARY KEY CHECK (id = 1), began INTEGER NOT NULL);
INSERT INTO epoch VALUES (1, 0);

-- How the ingesting process is, as JSON; one row at most.
CREATE TABLE heartbeat (id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL, report TEXT NOT NULL);
-- Our clock was found wrong by the events' times, and what was stored meanwhile is not repaired yet. at: when that was
-- found; off: our clock minus the events'. One row at most.
CREATE TABLE wrong_clock (id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL, off INTEGER NOT NULL);

-- Rows and bytes that an operator asks for; kept by triggers, so that no writer can forget.
CREATE TABLE size (name TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO size VALUES ('account', 0), ('dead', 0), ('dead bytes', 0), ('held', 0), ('held bytes', 0),
    ('outbox bytes', 0), ('parked bytes', 0), ('pending bytes', 0), ('unmerged', 0);
CREATE TRIGGER account_more AFTER INSERT ON account BEGIN UPDATE size SET rows = rows + 1 WHERE name = 'account'; END;
CREATE TRIGGER account_less AFTER DELETE ON account BEGIN UPDATE size SET rows = rows - 1 WHERE name = 'account'; END;
-- Bytes of what waits: each row with what it takes beside its texts; octet_length reads no text.
CREATE TRIGGER held_came AFTER INSERT ON held BEGIN
    UPDATE size SET rows = rows + 1 WHERE name = 'held';
    UPDATE size SET rows = rows + 200 + octet_length(new.frame) WHERE name = 'held bytes';
    INSERT INTO held_sum VALUES (new.account, 200 + octet_length(new.frame))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER held_went AFTER DELETE ON held BEGIN
    UPDATE size SET rows = rows - 1 WHERE name = 'held';
    UPDATE size SET rows = rows - 200 - octet_length(old.frame) WHERE name = 'held bytes';
    UPDATE held_sum SET bytes = bytes - 200 - octet_length(old.frame) WHERE account = old.account;
    DELETE FROM held_sum WHERE account = old.account AND bytes <= 0;
END;
CREATE TRIGGER parked_came AFTER INSERT ON parked WHEN new.dead IS NULL BEGIN
    UPDATE size SET rows = rows + 500 + 2 * octet_length(new.body) + octet_length(new.links) WHERE name = 'parked bytes';
END;
CREATE TRIGGER parked_went AFTER DELETE ON parked WHEN old.dead IS NULL BEGIN
    UPDATE size SET rows = rows - 500 - 2 * octet_length(old.body) - octet_length(old.links) WHERE name = 'parked bytes';
END;
CREATE TRIGGER parked_died AFTER UPDATE OF dead ON parked WHEN old.dead IS NULL AND new.dead IS NOT NULL BEGIN
    UPDATE size SET rows = rows - 500 - 2 * octet_length(old.body) - octet_length(old.links) WHERE name = 'parked bytes';
END;
CREATE TRIGGER pending_came AFTER INSERT ON pending BEGIN
    UPDATE size SET rows = rows + 200 + coalesce(octet_length(new.body), 0) + coalesce(octet_length(new.links), 0)
        + coalesce(octet_length(new.letter), 0) WHERE name = 'pending bytes';
END;
CREATE TRIGGER pending_went AFTER DELETE ON pending BEGIN
    UPDATE size SET rows = rows - 200 - coalesce(octet_length(old.body), 0) - coalesce(octet_length(old.links), 0)
        - coalesce(octet_length(old.letter), 0) WHERE name = 'pending bytes';
END;
CREATE TRIGGER dead_came AFTER INSERT ON dead BEGIN
    UPDATE size SET rows = rows + 1 WHERE name = 'dead';
    UPDATE size SET rows = rows + new.bytes WHERE name = 'dead bytes';
    INSERT INTO dead_kind VALUES (new.stage, new.collection, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER dead_went AFTER DELETE ON dead BEGIN
    UPDATE size SET rows = rows - 1 WHERE name = 'dead';
    UPDATE size SET rows = rows - old.bytes WHERE name = 'dead bytes';
    UPDATE dead_kind SET rows = rows - 1 WHERE stage = old.stage AND collection = old.collection;
    DELETE FROM dead_kind WHERE stage = old.stage AND collection = old.collection AND rows = 0;
END;
CREATE TRIGGER dead_revised AFTER UPDATE OF stage ON dead WHEN old.stage <> new.stage BEGIN
    UPDATE dead_kind SET rows = rows - 1 WHERE stage = old.stage AND collection = old.collection;
    DELETE FROM dead_kind WHERE stage = old.stage AND collection = old.collection AND rows = 0;
    INSERT INTO dead_kind VALUES (new.stage, new.collection, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
