//! The baselines in SQL: what the seeds would do, on SQLite.

use std::path::Path;

use rusqlite::{Connection, params};
use sim::rng::Rng;

use super::Ending;
use super::crowd::Graph;
use super::folder::Folder;
use super::meter::cpu_s;

/// Rows of a transaction.
const BATCH: i64 = 50_000;

/// Seed 000's table of deliveries.
const FEED_ITEMS: &str = "
    CREATE TABLE feed_items (actor TEXT NOT NULL, uri TEXT NOT NULL, collection TEXT NOT NULL, time_us INTEGER NOT NULL, PRIMARY KEY (actor, uri));
    CREATE INDEX feed_by_collection ON feed_items (actor, collection, time_us DESC);
    CREATE INDEX feed_by_time ON feed_items (actor, time_us DESC);";

fn open(path: &Path) -> Result<Connection, Ending> {
    let database = Connection::open(path)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "NORMAL")?;
    database.pragma_update(None, "cache_size", -262_144)?;
    Ok(database)
}

/// Seed 000's fan-out: one INSERT … SELECT per post into rows per delivery.
pub(super) fn pushes_per_cpu_s() -> Result<f64, Ending> {
    let folder = Folder::new("fanout")?;
    fan_out(&folder.join("baseline.db"))
}

fn fan_out(path: &Path) -> Result<f64, Ending> {
    let database = open(path)?;
    database.execute_batch(FEED_ITEMS)?;
    database.execute_batch(
        "CREATE TABLE follows (did TEXT NOT NULL, subject TEXT NOT NULL);
         CREATE INDEX follows_by_subject ON follows (subject);
         BEGIN;",
    )?;
    let graph = Graph::draw(20_000);
    for (reader, follows) in graph.follows.iter().enumerate() {
        for followed in follows {
            database
                .prepare_cached("INSERT INTO follows VALUES (?1, ?2)")?
                .execute([
                    format!("did:plc:{reader:024}"),
                    format!("did:plc:{followed:024}"),
                ])?;
        }
    }
    database.execute_batch("COMMIT")?;
    let mut rng = Rng::new(3);
    let (mut start, mut pushes) = (cpu_s(), 0usize);
    for round in 0..600i64 {
        if round == 200 {
            // An empty table is cheaper to insert into, so it is filled first.
            (start, pushes) = (cpu_s(), 0);
        }
        database.execute_batch("BEGIN")?;
        for copy in 0..50i64 {
            let Some(author) = graph.writers.spin(&mut rng) else {
                continue;
            };
            let uri = format!("at://did:plc:{author:024}/app.bsky.feed.post/{round:08}{copy:05}");
            pushes += database
                .prepare_cached("INSERT OR IGNORE INTO feed_items SELECT did, ?1, 'app.bsky.feed.post', ?2 FROM follows WHERE subject = ?3")?
                .execute(params![uri, round * 50 + copy, format!("did:plc:{author:024}")])?;
        }
        database.execute_batch("COMMIT")?;
    }
    if pushes == 0 {
        return Err("the baseline delivered nothing".into());
    }
    Ok(pushes as f64 / (cpu_s() - start))
}

/// Seed 000's delete of one record, in microseconds, if it stands in so many timelines.
pub(super) fn delete_us(timelines: u32) -> Result<f64, Ending> {
    let folder = Folder::new("delete")?;
    delete_all(&folder.join("baseline.db"), timelines)
}

fn delete_all(path: &Path, timelines: u32) -> Result<f64, Ending> {
    let mut database = open(path)?;
    database.execute_batch(FEED_ITEMS)?;
    let uri = "at://did:plc:author/app.bsky.feed.post/3kabcdefghijk";
    let tx = database.transaction()?;
    for reader in 0..timelines {
        tx.prepare_cached("INSERT INTO feed_items VALUES (?1, ?2, 'app.bsky.feed.post', 1)")?
            .execute(params![format!("did:plc:{reader:024}"), uri])?;
    }
    tx.commit()?;
    let start = cpu_s();
    let gone = database.execute("DELETE FROM feed_items WHERE uri = ?1", [uri])?;
    if gone != timelines as usize {
        return Err("the baseline deleted something else".into());
    }
    Ok((cpu_s() - start) * 1e6)
}

/// Seed 002's posts and follows.
#[derive(Debug)]
pub(super) struct Posts {
    database: Connection,
    added: i64,
}

impl Posts {
    pub(super) fn create(path: &Path) -> Result<Self, Ending> {
        let database = open(path)?;
        database.execute_batch(
            "CREATE TABLE posts (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, created_at INTEGER NOT NULL);
             CREATE INDEX posts_by_user ON posts (user_id, created_at DESC, id DESC);
             CREATE INDEX posts_by_time ON posts (created_at DESC, id DESC);
             CREATE TABLE follows (follower_id INTEGER NOT NULL, followee_id INTEGER NOT NULL, PRIMARY KEY (follower_id, followee_id)) WITHOUT ROWID;
             BEGIN;",
        )?;
        Ok(Self { database, added: 0 })
    }

    pub(super) fn add(&mut self, id: i64, author: u32, time_us: i64) -> Result<(), Ending> {
        self.database
            .prepare_cached("INSERT INTO posts VALUES (?1, ?2, ?3)")?
            .execute(params![id, author, time_us])?;
        self.added += 1;
        if self.added % BATCH == 0 {
            self.database.execute_batch("COMMIT; BEGIN;")?;
        }
        Ok(())
    }

    /// Ends the filling: from now on the planner knows the tables.
    pub(super) fn ready(&mut self) -> Result<(), Ending> {
        self.database.execute_batch("COMMIT; ANALYZE;")?;
        Ok(())
    }

    pub(super) fn follow_each(
        &mut self,
        reader: u32,
        authors: impl IntoIterator<Item = u32>,
    ) -> Result<(), Ending> {
        for author in authors {
            self.database
                .prepare_cached("INSERT OR IGNORE INTO follows VALUES (?1, ?2)")?
                .execute([reader, author])?;
        }
        Ok(())
    }

    pub(super) fn followed(&self, reader: u32) -> Result<Vec<u32>, Ending> {
        let mut statement = self
            .database
            .prepare_cached("SELECT followee_id FROM follows WHERE follower_id = ?1")?;
        let keys = statement.query_map([reader], |row| row.get(0))?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// Seed 002's join: the newest posts of whom a reader follows, below a time.
    pub(super) fn page(
        &self,
        reader: u32,
        before_us: Option<i64>,
        limit: usize,
    ) -> Result<Vec<i64>, Ending> {
        let mut statement = self.database.prepare_cached(
            "SELECT p.id FROM posts p JOIN follows f ON f.followee_id = p.user_id
             WHERE f.follower_id = ?1 AND (p.created_at, p.id) < (?2, 0)
             ORDER BY p.created_at DESC, p.id DESC LIMIT ?3",
        )?;
        let before = before_us.unwrap_or(i64::MAX);
        let ids = statement.query_map(params![reader, before, limit as i64], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }
}
