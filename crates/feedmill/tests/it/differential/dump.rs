//! What a store published, in lines that do not depend on the store.
//!
//! Numbers are replaced by names. Left out: moments of first sight, numbers, positions, and
//! what was deleted of accounts that are gone.

use std::collections::HashMap;

use decide::change::{Change as New, Grouped, Published};
use decide::ids::{CollectionId, KeyId};
use feedmill::store::change::Change as Old;
use feedmill::store::plan::{LaneId, Plan, SourceId};
use feedmill::store::{SharedStore, change};
use rusqlite::Connection;

/// The names behind numbers.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) keys: HashMap<i64, String>,
    pub(crate) collections: HashMap<i64, String>,
    pub(crate) lanes: HashMap<i64, i64>,
    pub(crate) sources: HashMap<i64, i64>,
}

impl Named {
    /// Those of today's store.
    pub(crate) fn of_old(file: &Connection, store: &SharedStore, plan: &Plan) -> Self {
        let texts = |sql: &str| -> HashMap<i64, String> {
            let mut statement = file.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let lane = |at: usize| (store.lane_number(LaneId(at)).unwrap(), at as i64 + 1);
        let source = |at: usize| (store.source_number(SourceId(at)).unwrap(), at as i64 + 1);
        Self {
            keys: texts("SELECT id, text FROM key"),
            collections: texts("SELECT id, nsid FROM collection"),
            lanes: (0..plan.lanes.len()).map(lane).collect(),
            sources: (0..plan.sources.len()).map(source).collect(),
        }
    }

    /// Adds the names of a batch.
    pub(crate) fn learn(&mut self, names: decide::wants::Names) {
        let keys = names.keys.into_iter();
        self.keys.extend(keys.map(|(text, KeyId(id))| (id, text)));
        let collections = names.collections.into_iter();
        let collections = collections.map(|(nsid, CollectionId(id))| (id, nsid));
        self.collections.extend(collections);
    }

    pub(crate) fn key(&self, id: i64) -> &str {
        &self.keys[&id]
    }

    pub(crate) fn lane(&self, id: i64) -> i64 {
        self.lanes.get(&id).copied().unwrap_or(id)
    }

    pub(crate) fn source(&self, id: i64) -> i64 {
        self.sources.get(&id).copied().unwrap_or(id)
    }

    pub(crate) fn list(&self, keys: impl IntoIterator<Item = i64>) -> String {
        let keys = keys.into_iter().map(|key| self.key(key));
        keys.collect::<Vec<_>>().join(",")
    }

    fn entries(&self, entries: &[(i64, i64, i64, Vec<i64>)]) -> String {
        let entry = |(lane, time_us, author, keys): &(i64, i64, i64, Vec<i64>)| {
            let (lane, author) = (self.lane(*lane), self.key(*author));
            format!("{lane}@{time_us} {author} [{}]", self.list(keys.clone()))
        };
        let mut lines: Vec<String> = entries.iter().map(entry).collect();
        lines.sort();
        lines.join("; ")
    }

    fn group(&self, group: (i64, &str, i64, i64, Vec<i64>)) -> String {
        let (lane, uri, time_us, author, keys) = group;
        let (lane, author) = (self.lane(lane), self.key(author));
        format!("{lane}@{time_us} {uri} {author} [{}]", self.list(keys))
    }

    /// A change of today's store.
    pub(crate) fn of_today(&self, change: &Old) -> Vec<String> {
        let entries = |lanes: &[change::Published]| {
            let lanes = lanes.iter();
            let all = lanes.map(|it| (it.lane, it.time_us, it.author, it.keys.clone()));
            self.entries(&all.collect::<Vec<_>>())
        };
        match change {
            Old::Put {
                uri,
                live,
                moved,
                lanes,
                ..
            } => vec![format!(
                "put {uri} live {live} moved {moved} {}",
                entries(lanes)
            )],
            Old::Delete { uri, lanes, .. } => vec![format!("delete {uri} {}", entries(lanes))],
            Old::Follow {
                source,
                reader,
                key,
            } => vec![self.follow("follow", *source, *reader, *key)],
            Old::Unfollow {
                source,
                reader,
                key,
            } => vec![self.follow("unfollow", *source, *reader, *key)],
            Old::Regroup {
                lane,
                was,
                now,
                live,
                ..
            } => {
                let line = |word: &str, it: &change::Grouped| {
                    let group = (
                        *lane,
                        it.uri.as_str(),
                        it.time_us,
                        it.author,
                        it.keys.clone(),
                    );
                    format!("{word} {}", self.group(group))
                };
                // Which of two things a record that moved between them is told of is a matter of
                // their names, so only what is there now is told as live or not.
                let now = now.iter().map(|it| line(&format!("now live {live}"), it));
                was.iter().map(|it| line("was", it)).chain(now).collect()
            }
            Old::Account { did, visible, .. } => vec![format!("account {did} {visible}")],
        }
    }

    fn follow(&self, word: &str, source: i64, reader: i64, key: i64) -> String {
        let (reader, key) = (self.key(reader), self.key(key));
        format!("{word} {} {reader} {key}", self.source(source))
    }

    /// A change of the new store.
    pub(crate) fn of_tomorrow(&self, change: &New) -> Vec<String> {
        let entries = |entries: &[Published]| {
            let all = entries.iter().map(|it| {
                let keys = it.keys.iter().map(|key| key.0).collect();
                (it.index.0, it.time_us, it.author.0, keys)
            });
            self.entries(&all.collect::<Vec<_>>())
        };
        match change {
            New::Put {
                uri,
                live,
                moved,
                entries: of,
                ..
            } => vec![format!(
                "put {uri} live {live} moved {moved} {}",
                entries(of)
            )],
            New::Delete {
                uri, entries: of, ..
            } => vec![format!("delete {uri} {}", entries(of))],
            New::Follow {
                source,
                reader,
                key,
            } => vec![self.follow("follow", source.0, reader.0, key.0)],
            New::Unfollow {
                source,
                reader,
                key,
            } => vec![self.follow("unfollow", source.0, reader.0, key.0)],
            New::Regroup {
                index, was, now, ..
            } => {
                let line = |word: &str, it: &Grouped| {
                    let keys = it.keys.iter().map(|key| key.0).collect();
                    let group = (index.0, it.uri.as_str(), it.time_us, it.author.0, keys);
                    format!("{word} {}", self.group(group))
                };
                let now = now
                    .iter()
                    .map(|it| line(&format!("now live {}", it.live), it));
                was.iter().map(|it| line("was", it)).chain(now).collect()
            }
            New::Account { did, visible, .. } => vec![format!("account {did} {visible}")],
        }
    }
}

/// The numbers in packed bytes.
pub(crate) fn unpack(bytes: &[u8]) -> Vec<i64> {
    let chunks = bytes.chunks_exact(8);
    chunks
        .map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap()))
        .collect()
}
