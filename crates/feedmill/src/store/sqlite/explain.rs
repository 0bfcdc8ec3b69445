//! Why a record is, or is not, in a reader's feed: asked in one snapshot.
//!
//! The questions are asked in the order in which the river would stop the
//! record: on its way in, then by what is visible, then by who follows what.

use std::collections::HashSet;

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::apply::{DELETED, LIVE};
use super::derive::{Ids, unpack, writer};
use super::feed;
use super::names::{find_collection, find_key, hash, text_of};
use super::read::split;
use crate::store::AccountStatus;
use crate::store::explain::{Explained, Reason, Via};
use crate::store::page::{FeedQuery, Lens, Position, Row};
use crate::store::plan::{FeedPlan, LaneId, Plan, SourceId};

/// What every question needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inquiry<'a> {
    pub(super) connection: &'a Connection,
    pub(super) plan: &'a Plan,
    pub(super) ids: &'a Ids,
    pub(super) feed: &'a FeedPlan,
    pub(super) reader: &'a str,
    pub(super) uri: &'a str,
}

/// A record that is here.
struct Found {
    state: i64,
    time: i64,
    author: i64,
    body: Option<String>,
}

/// What a feed that ends shows.
struct End {
    shown: Vec<Row>,
    max_items: u32,
}

impl End {
    /// The time of the last entry, where there may be more than are shown.
    fn floor_us(&self) -> Option<i64> {
        let full = self.shown.len() >= self.max_items as usize;
        self.shown.last().filter(|_| full).map(|row| row.time_us)
    }
}

impl Inquiry<'_> {
    /// The answer.
    pub(super) fn explain(&self) -> Result<Explained, Error> {
        let mut answer = Explained {
            feed: self.feed.name.clone(),
            shown: false,
            reason: Reason::NeverSeen,
            time_us: None,
            floor_us: None,
            keys: Vec::new(),
            rule: None,
            begins: None,
            follows: Vec::new(),
        };
        answer.reason = self.reason(&mut answer)?;
        answer.shown = answer.reason == Reason::Shown;
        Ok(answer)
    }

    fn reason(&self, answer: &mut Explained) -> Result<Reason, Error> {
        let (did, nsid, rkey) = split(self.uri).unwrap_or_default();
        let Some(lane) = self.lane(nsid) else {
            let targets = self.feed.targets.iter();
            let targets = targets.flat_map(|target| self.plan.collections_of(target.lane));
            let targets = targets.map(str::to_owned).collect();
            return Ok(Reason::NotATarget { targets });
        };
        let end = self.end(lane)?;
        answer.floor_us = end.as_ref().and_then(End::floor_us);
        let found = self.find(did, nsid, rkey)?;
        let Some(found) = found.filter(|found| found.state == LIVE || found.state == DELETED)
        else {
            return self.stopped(did, nsid, rkey);
        };
        answer.time_us = Some(found.time);
        if found.state == DELETED {
            return match self.stopped(did, nsid, rkey)? {
                // A newer version may be on its way, or have been refused.
                waiting @ (Reason::Parked { .. } | Reason::Pending) => Ok(waiting),
                _ => Ok(Reason::Deleted),
            };
        }
        if let Some(status) = self.hidden(Some(found.author))? {
            return Ok(Reason::AuthorHidden { status });
        }
        let reader = find_key(self.connection, self.reader)?;
        if let Some(status) = self.hidden(reader)? {
            return Ok(Reason::ReaderHidden { status });
        }
        let body = found.body.as_deref().unwrap_or("null");
        let judged = record::json::from_json(body)
            .ok()
            .and_then(|value| self.plan.judge(lane, nsid, did, &value));
        let Some(judged) = judged else {
            return Ok(Reason::NotFollowed);
        };
        if let Some(condition) = judged.fails {
            return Ok(Reason::Filtered { condition });
        }
        answer.rule = judged.rule;
        answer.keys = judged.keys;
        if self.feed.merged.is_some() {
            self.group(lane, did, nsid, rkey, &found, answer)?;
        }
        let author = writer(self.connection, self.plan, (self.uri, body), found.author)?;
        self.followed(end.as_ref(), reader, author, answer)
    }

    /// The lane in which the feed shows records of a collection.
    fn lane(&self, nsid: &str) -> Option<LaneId> {
        let lanes = self.feed.targets.iter().map(|target| target.lane);
        let mut lanes = lanes.filter(|lane| self.plan.collections_of(*lane).contains(&nsid));
        lanes.next()
    }

    fn find(&self, did: &str, nsid: &str, rkey: &str) -> Result<Option<Found>, Error> {
        let (Some(author), Some(collection)) = (
            find_key(self.connection, did)?,
            find_collection(self.connection, nsid)?,
        ) else {
            return Ok(None);
        };
        self.connection
            .prepare_cached(
                "SELECT state, time, body FROM record WHERE hash = ?1 AND author = ?2 AND collection = ?3 AND rkey = ?4",
            )?
            .query_row(params![hash(self.uri), author, collection, rkey], |row| {
                Ok(Found {
                    state: row.get(0)?,
                    time: row.get(1)?,
                    author,
                    body: row.get(2)?,
                })
            })
            .optional()
    }

    /// Where a record that is not here stopped on its way.
    fn stopped(&self, did: &str, nsid: &str, rkey: &str) -> Result<Reason, Error> {
        let missing: Option<String> = self
            .connection
            .prepare_cached("SELECT missing FROM parked WHERE hash = ?1 AND rkey = ?2 AND dead IS NULL ORDER BY rev DESC LIMIT 1")?
            .query_row(params![hash(self.uri), rkey], |row| row.get(0))
            .optional()?;
        if let Some(missing) = missing {
            return Ok(Reason::Parked { missing });
        }
        let waits: bool = self
            .connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM pending p JOIN key k ON k.id = p.author JOIN collection c ON c.id = p.collection
                 WHERE k.hash = ?1 AND k.text = ?2 AND c.nsid = ?3 AND p.rkey = ?4)",
            )?
            .query_row(params![hash(did), did, nsid, rkey], |row| row.get(0))?;
        if waits {
            return Ok(Reason::Pending);
        }
        let letter = self
            .connection
            .prepare_cached("SELECT id, stage, message FROM dead WHERE did = ?1 AND collection = ?2 AND rkey = ?3 ORDER BY id DESC LIMIT 1")?
            .query_row(params![did, nsid, rkey], |row| {
                Ok(Reason::Dead {
                    letter: Some(row.get(0)?),
                    stage: row.get(1)?,
                    message: row.get(2)?,
                })
            })
            .optional()?;
        if let Some(letter) = letter {
            return Ok(letter);
        }
        let refused = self
            .find(did, nsid, rkey)?
            .is_some_and(|found| found.state != DELETED);
        Ok(match refused {
            true => Reason::Dead {
                letter: None,
                stage: String::new(),
                message: String::new(),
            },
            false => Reason::NeverSeen,
        })
    }

    /// The status of an account, if it hides everything of theirs.
    fn hidden(&self, account: Option<i64>) -> Result<Option<String>, Error> {
        let status: Option<i64> = self
            .connection
            .prepare_cached("SELECT status FROM account WHERE key = ?1")?
            .query_row([account], |row| row.get(0))
            .optional()?;
        let status = AccountStatus::from_code(status.unwrap_or_default());
        Ok((!status.visible()).then(|| format!("{status:?}").to_lowercase()))
    }

    /// The group of a record: where it begins, and the keys of all its members.
    fn group(
        &self,
        lane: LaneId,
        did: &str,
        nsid: &str,
        rkey: &str,
        found: &Found,
        answer: &mut Explained,
    ) -> Result<(), Error> {
        let body = found.body.as_deref().unwrap_or("null");
        let derived = super::derive::of_body(self.plan, nsid, did, body);
        let part = derived.parts.into_iter().find(|part| part.lane == lane);
        let (Some(part), Some(number)) = (part, self.ids.lanes.get(lane.0)) else {
            return Ok(());
        };
        let author = find_key(self.connection, &part.author)?;
        let merge = part.merge.as_deref().unwrap_or(self.uri);
        let tail = format!("{did}/{nsid}/{rkey}");
        let begins: Option<(i64, String)> = self
            .connection
            .prepare_cached(
                "SELECT time, tail FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3 AND (time, tail) <= (?4, ?5)
                 AND role > 0 ORDER BY time DESC, tail DESC LIMIT 1",
            )?
            .query_row(params![number, author, merge, found.time, tail], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((time, tail)) = begins else {
            return Ok(());
        };
        let mut statement = self.connection.prepare_cached(
            "SELECT role, keys FROM part WHERE lane = ?1 AND author = ?2 AND merge = ?3 AND (time, tail) >= (?4, ?5)
             ORDER BY time, tail",
        )?;
        let mut rows = statement.query(params![number, author, merge, time, tail])?;
        let (mut keys, mut known): (Vec<i64>, HashSet<i64>) = (Vec::new(), HashSet::new());
        while let Some(row) = rows.next()? {
            if row.get::<_, bool>(0)? && !known.is_empty() {
                break;
            }
            keys.extend(unpack(row.get_ref(1)?.as_blob()?).filter(|key| known.insert(*key)));
        }
        answer.begins = Some(format!("at://{tail}"));
        let own: HashSet<String> = answer.keys.iter().cloned().collect();
        for key in keys {
            let text = text_of(self.connection, key)?;
            if !own.contains(&text) {
                answer.keys.push(text);
            }
        }
        Ok(())
    }

    /// The records of these sources by which the reader names a key.
    fn named(&self, sources: &[SourceId], reader: i64, key: i64) -> Result<Vec<String>, Error> {
        let mut uris = Vec::new();
        for source in sources
            .iter()
            .filter_map(|source| self.ids.sources.get(source.0))
        {
            let mut statement = self.connection.prepare_cached(
                "SELECT c.nsid, r.rkey FROM follow f JOIN record r ON r.id = f.record JOIN collection c ON c.id = r.collection
                 WHERE f.source = ?1 AND f.reader = ?2 AND f.key = ?3",
            )?;
            let found = statement.query_map(params![source, reader, key], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            for row in found {
                let (nsid, rkey) = row?;
                uris.push(format!("at://{}/{nsid}/{rkey}", self.reader));
            }
        }
        Ok(uris)
    }

    /// Whether one of its keys is followed, and nothing hides it.
    fn followed(
        &self,
        end: Option<&End>,
        reader: Option<i64>,
        author: i64,
        answer: &mut Explained,
    ) -> Result<Reason, Error> {
        let Some(reader) = reader else {
            return Ok(Reason::NotFollowed);
        };
        let author_text = text_of(self.connection, author)?;
        let mut muted = self.mute(reader, author, &author_text)?;
        for text in answer.keys.clone() {
            let Some(key) = find_key(self.connection, &text)? else {
                continue;
            };
            let mut via: Vec<Option<String>> = Vec::new();
            if self.feed.include_self && key == reader {
                via.push(None);
            }
            via.extend(
                self.named(&self.feed.follows, reader, key)?
                    .into_iter()
                    .map(Some),
            );
            if via.is_empty() {
                continue;
            }
            match self.mute(reader, key, &text)? {
                Some(mute) => muted = muted.or(Some(mute)),
                None => answer.follows.extend(via.into_iter().map(|record| Via {
                    key: text.clone(),
                    record,
                })),
            }
        }
        // A hidden author is hidden whoever is followed; a hidden key only takes itself away.
        let author_muted = matches!(&muted, Some(Reason::Muted { key, .. }) if *key == author_text);
        if author_muted || answer.follows.is_empty() {
            return Ok(muted.unwrap_or(Reason::NotFollowed));
        }
        let uri = answer.begins.as_deref().unwrap_or(self.uri);
        Ok(match end {
            Some(end) if !end.shown.iter().any(|row| row.uri == uri) => Reason::BeyondEnd {
                max_items: end.max_items,
            },
            _ => Reason::Shown,
        })
    }

    fn mute(&self, reader: i64, key: i64, text: &str) -> Result<Option<Reason>, Error> {
        let records = self.named(&self.feed.hides, reader, key)?;
        Ok(records.into_iter().next().map(|record| Reason::Muted {
            key: text.to_owned(),
            record,
        }))
    }

    /// All that the feed shows of a lane, where it ends.
    fn end(&self, lane: LaneId) -> Result<Option<End>, Error> {
        let mut targets = self.feed.targets.iter();
        let target = targets.find(|target| target.lane == lane);
        let Some(target) = target.filter(|_| self.feed.end) else {
            return Ok(None);
        };
        let max = target.max_items as usize;
        let query = FeedQuery {
            reader: self.reader.to_owned(),
            lanes: vec![(lane, Some(max))],
            follows: self.feed.follows.clone(),
            hides: self.feed.hides.clone(),
            include_self: self.feed.include_self,
            before: None::<Position>,
            limit: max,
            lens: Lens::default(),
            scan_max: usize::MAX,
        };
        let page = feed::feed(self.connection, self.plan, self.ids, &query)?;
        Ok(Some(End {
            shown: page.rows,
            max_items: target.max_items,
        }))
    }
}
