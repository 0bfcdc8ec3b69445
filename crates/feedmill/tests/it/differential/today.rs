//! Everything in today's store, read from its file.

use std::collections::BTreeMap;

use feedmill::store::SharedStore;
use feedmill::store::ladder::Steps;
use feedmill::store::plan::Plan;
use rusqlite::{Connection, Row};

use super::dump::{Named, unpack};

fn int(row: &Row<'_>, at: usize) -> i64 {
    row.get(at).unwrap()
}

fn text(row: &Row<'_>, at: usize) -> String {
    row.get(at).unwrap()
}

/// Today's store.
#[derive(Clone, Copy)]
pub(crate) struct Today<'a> {
    pub(crate) file: &'a Connection,
    pub(crate) named: &'a Named,
    pub(crate) plan: &'a Plan,
    pub(crate) store: &'a SharedStore,
}

type Uris = BTreeMap<i64, String>;

impl Today<'_> {
    /// A line for each row.
    fn all(&self, sql: &str, line: &mut dyn FnMut(&Row<'_>) -> String) -> Vec<String> {
        let mut statement = self.file.prepare(sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        let mut lines = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            lines.push(line(row));
        }
        lines
    }

    /// Everything.
    pub(crate) fn lines(&self) -> Vec<String> {
        let (mut lines, uris) = self.records();
        lines.extend(self.entries(&uris));
        lines.extend(self.counts(&uris));
        lines.extend(sorted_old(self.file, self.plan, &uris));
        lines.extend(self.waiting());
        lines.extend(self.accounts());
        lines.retain(|line| !line.is_empty());
        lines.sort();
        // Today's store keeps the same bytes as often as they came.
        lines.dedup_by(|a, b| a == b && a.starts_with("dead "));
        lines
    }

    fn records(&self) -> (Vec<String>, Uris) {
        let Self { named, plan, .. } = *self;
        let mut lines = Vec::new();
        let all = |sql: &str, line: &mut dyn FnMut(&Row<'_>) -> String| self.all(sql, line);
        let mut uris: BTreeMap<i64, String> = BTreeMap::new();
        let mut by_authors = Vec::new();
        let gone = "SELECT key FROM account WHERE status = 7";
        let gone: Vec<i64> = all(gone, &mut |row| int(row, 0).to_string())
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        lines.extend(all(
        "SELECT id, author, collection, rkey, rev, state, time, cid, body, links, tail FROM record",
        &mut |row| {
            let nsid = &named.collections[&int(row, 2)];
            let (author, rkey) = (named.key(int(row, 1)), text(row, 3));
            let uri = format!("at://{author}/{nsid}/{rkey}");
            uris.insert(int(row, 0), uri.clone());
            if int(row, 5) != 0 {
                return match gone.contains(&int(row, 1)) {
                    true => String::new(),
                    false => format!("gone {uri} {} {}", int(row, 4), int(row, 5)),
                };
            }
            let listing = plan.listing(nsid).map(|lane| lane.0 as i64 + 1);
            if let Some(lane) =
                listing.filter(|lane| plan.holds_all(&plan.lanes[*lane as usize - 1]))
            {
                let (time, tail) = (int(row, 6), text(row, 10));
                by_authors.push(format!("entry {lane} {author} {time} {tail} {uri}"));
                by_authors.push(format!("recent {lane} {time} {tail} {uri} [{author}]"));
            }
            let cid: Option<Vec<u8>> = row.get(7).unwrap();
            let links: Option<String> = row.get(9).unwrap();
            let links = links.filter(|links| links != "[]").unwrap_or_default();
            format!(
                "record {uri} {} {} {cid:?} {} {links}",
                int(row, 4),
                int(row, 6),
                text(row, 8)
            )
        },
    ));
        lines.extend(by_authors);
        (lines, uris)
    }

    fn entries(&self, uris: &Uris) -> Vec<String> {
        let named = self.named;
        let all = |sql: &str, line: &mut dyn FnMut(&Row<'_>) -> String| self.all(sql, line);
        let uri = |id: i64| uris[&id].as_str();
        let mut lines = Vec::new();
        lines.extend(all(
            "SELECT lane, key, time, tail, record FROM published",
            &mut |row| {
                let (lane, key) = (named.lane(int(row, 0)), named.key(int(row, 1)));
                format!(
                    "entry {lane} {key} {} {} {}",
                    int(row, 2),
                    text(row, 3),
                    uri(int(row, 4))
                )
            },
        ));
        lines.extend(all(
            "SELECT lane, time, tail, record, keys FROM recent",
            &mut |row| {
                let keys = named.list(unpack(&row.get::<_, Vec<u8>>(4).unwrap()));
                let lane = named.lane(int(row, 0));
                format!(
                    "recent {lane} {} {} {} [{keys}]",
                    int(row, 1),
                    text(row, 2),
                    uri(int(row, 3))
                )
            },
        ));
        lines.extend(all(
            "SELECT source, reader, key, record FROM follow",
            &mut |row| {
                let (reader, key) = (named.key(int(row, 1)), named.key(int(row, 2)));
                format!(
                    "follow {} {reader} {key} {}",
                    named.source(int(row, 0)),
                    uri(int(row, 3))
                )
            },
        ));
        lines
    }

    fn counts(&self, uris: &Uris) -> Vec<String> {
        let named = self.named;
        let all = |sql: &str, line: &mut dyn FnMut(&Row<'_>) -> String| self.all(sql, line);
        let uri = |id: i64| uris[&id].as_str();
        let mut lines = Vec::new();
        lines.extend(all(
            "SELECT lane, key, count FROM tally WHERE count <> 0",
            &mut |row| {
                format!(
                    "count {} {} {}",
                    named.lane(int(row, 0)),
                    named.key(int(row, 1)),
                    int(row, 2)
                )
            },
        ));
        lines.extend(all(
            "SELECT lane, key, author, count FROM voice",
            &mut |row| {
                let (key, author) = (named.key(int(row, 1)), named.key(int(row, 2)));
                format!(
                    "voice {} {key} {author} {}",
                    named.lane(int(row, 0)),
                    int(row, 3)
                )
            },
        ));
        lines.extend(all(
            "SELECT lane, author, merge, time, tail, role, keys, adds, record FROM part",
            &mut |row| {
                let keys = named.list(unpack(&row.get::<_, Vec<u8>>(6).unwrap()));
                let (lane, author) = (named.lane(int(row, 0)), named.key(int(row, 1)));
                format!(
                    "member {lane} {author} {} {} {} first {} [{keys}] {} {}",
                    text(row, 2),
                    int(row, 3),
                    text(row, 4),
                    int(row, 5) != 0,
                    text(row, 7),
                    uri(int(row, 8))
                )
            },
        ));
        lines
    }

    fn waiting(&self) -> Vec<String> {
        let named = self.named;
        let all = |sql: &str, line: &mut dyn FnMut(&Row<'_>) -> String| self.all(sql, line);
        let mut lines = Vec::new();
        lines.extend(all(
        "SELECT did, collection, rkey, rev, stage, path, expected, received, raw FROM dead d
         WHERE rkey = '' OR EXISTS (SELECT 1 FROM record r JOIN key k ON k.id = r.author JOIN collection c ON c.id = r.collection
            WHERE k.text = d.did AND c.nsid = d.collection AND r.rkey = d.rkey AND r.state = 2 AND r.rev = d.rev
                AND NOT EXISTS (SELECT 1 FROM parked p WHERE p.author = r.author AND p.collection = r.collection AND p.rkey = r.rkey AND p.rev > d.rev))",
        &mut |row| {
            let uri = match text(row, 2).is_empty() {
                true => text(row, 0),
                false => format!("at://{}/{}/{}", text(row, 0), text(row, 1), text(row, 2)),
            };
            let path: Vec<String> = serde_json::from_str(&text(row, 5)).unwrap();
            let path = path.join(".");
            format!(
                "dead {uri} {} {} {path} {} {} {}",
                int(row, 3), text(row, 4), text(row, 6), text(row, 7), text(row, 8)
            )
        },
    ));
        lines.extend(all(
            "SELECT author, collection, rkey, rev, missing, attempt, dead IS NOT NULL FROM parked",
            &mut |row| {
                let (author, nsid) = (named.key(int(row, 0)), &named.collections[&int(row, 1)]);
                format!(
                    "parked at://{author}/{nsid}/{} {} {} dead {}",
                    text(row, 2),
                    int(row, 3),
                    text(row, 4),
                    int(row, 6)
                )
            },
        ));
        lines.extend(all(
            "SELECT account, rev, units, frame FROM held",
            &mut |row| {
                let frame: Vec<u8> = row.get(3).unwrap();
                format!(
                    "held {} {} {} {frame:?}",
                    named.key(int(row, 0)),
                    int(row, 1),
                    int(row, 2)
                )
            },
        ));
        lines
    }

    fn accounts(&self) -> Vec<String> {
        let Self { named, store, .. } = *self;
        let all = |sql: &str, line: &mut dyn FnMut(&Row<'_>) -> String| self.all(sql, line);
        let mut lines = Vec::new();
        lines.extend(all(
        "SELECT key, status, status_us, snapshot, repair, handle, handle_us, covered > 0 FROM account",
        &mut |row| {
            let did = named.key(int(row, 0));
            let known = store.account(did).unwrap().unwrap();
            let handle: Option<String> = row.get(5).unwrap();
            format!(
                "account {did} {} {} rev {} snapshot {} repair {} {handle:?} {} covered {}",
                int(row, 1), int(row, 2), known.rev, int(row, 3), int(row, 4), int(row, 6), int(row, 7)
            )
        },
    ));
        lines.extend(all(
            "SELECT nsid, live FROM collection WHERE live <> 0",
            &mut |row| format!("kept {} {}", text(row, 0), int(row, 1)),
        ));
        lines.extend(all(
            "SELECT name, received, filtered, pending, parked, held FROM source WHERE name <> ''",
            &mut |row| {
                let numbers: Vec<i64> = (1..6).map(|at| int(row, at)).collect();
                match int(row, 1) {
                    0 => String::new(),
                    _ => format!("units {} {numbers:?}", text(row, 0)),
                }
            },
        ));
        lines
    }
}

fn sorted_old(file: &Connection, plan: &Plan, uris: &BTreeMap<i64, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, ladder) in plan.ladders.iter().enumerate() {
        if !matches!(ladder.steps, Steps::Field { .. } | Steps::Items { .. }) {
            continue;
        }
        let sql = "SELECT quote(r.rung), r.time, r.tail, r.record FROM rung r JOIN ladder l ON l.id = r.ladder WHERE l.spec = ?1";
        let mut statement = file.prepare(sql).unwrap();
        let rows = statement.query_map([&ladder.spec], |row| {
            let (rung, time, tail): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let uri = &uris[&row.get::<_, i64>(3)?];
            Ok(format!("sorted {} {rung} {time} {tail} {uri}", number + 1))
        });
        lines.extend(rows.unwrap().map(Result::unwrap));
    }
    lines
}
