//! Batches for all engines at once, and what they hold after each.

use decide::account::Status;
use decide::accounting::Outcome;
use decide::batch::{Batch, Commit, Event, Fault, Need, Op, Order, Put, Stage, Target, Verdict};
use decide::change::Change;
use decide::derived::Derived;
use decide::ids::{Position, Rev};
use decide::rows::{Outcomes, Record};
use decide::rules::Rules;
use decide::table::Row;
use store::apply::{Applied, apply};
use store::error::StoreError;
use store::memory::Memory;
use store::port::Store;
use store::sqlite::Sqlite;
use store::work;
use tempfile::TempDir;

use crate::world;

pub(crate) const NOW: i64 = 1_000_000_000;

/// One of each engine, with the same in it.
pub(crate) struct Case {
    pub(crate) stores: Vec<Box<dyn Store>>,
    pub(crate) rules: Rules,
    pub(crate) now_us: i64,
    pub(crate) cursor: i64,
    _folder: TempDir,
}

impl Case {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::open(&folder.path().join("store.db")).unwrap();
        Self {
            stores: vec![Box::new(Memory::new()), Box::new(sqlite)],
            rules: world::rules(),
            now_us: NOW,
            cursor: 0,
            _folder: folder,
        }
    }

    /// What the engines say of a batch; they agree.
    #[track_caller]
    pub(crate) fn batch(&mut self, events: Vec<Event>, orders: Vec<Order>) -> Applied {
        self.try_batch(events, orders).unwrap()
    }

    #[track_caller]
    pub(crate) fn try_batch(
        &mut self,
        events: Vec<Event>,
        orders: Vec<Order>,
    ) -> Result<Applied, StoreError> {
        self.cursor += 1;
        let batch = Batch {
            source: if events.is_empty() { "" } else { "s" }.into(),
            cursor: (!events.is_empty()).then_some(self.cursor),
            now_us: self.now_us,
            events: events
                .into_iter()
                .map(|event| (self.cursor, event))
                .collect(),
            orders,
        };
        let mut all: Vec<_> = self
            .stores
            .iter()
            .map(|store| apply(&**store, &self.rules, &batch))
            .collect();
        let last = all.pop().unwrap()?;
        for mut one in all.into_iter().map(Result::unwrap) {
            assert!(one.loads <= 3);
            one.position = last.position;
            assert_eq!(one, last);
        }
        Ok(last)
    }

    #[track_caller]
    pub(crate) fn events(&mut self, events: Vec<Event>) -> Applied {
        self.batch(events, Vec::new())
    }

    /// Does what is due until nothing is.
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        while let Some(orders) = self.due() {
            self.batch(Vec::new(), orders);
        }
        self.check();
    }

    pub(crate) fn due(&self) -> Option<Vec<Order>> {
        let snapshot = self.stores[0].snapshot().unwrap();
        let orders = work::next(&*snapshot, &self.rules, self.now_us).unwrap();
        (!orders.is_empty()).then_some(orders)
    }

    /// The engines hold the same, and every unit has one outcome.
    #[track_caller]
    pub(crate) fn check(&self) {
        let first = self.stores[0].snapshot().unwrap();
        let first = world::everything(&*first);
        for store in &self.stores {
            assert_eq!(world::everything(&*store.snapshot().unwrap()), first);
            assert!(world::adds_up(&**store));
        }
    }

    pub(crate) fn rows<R: Row>(&self) -> Vec<R> {
        world::rows(&*self.stores[0].snapshot().unwrap())
    }

    /// The bodies of live records, in order.
    pub(crate) fn live(&self) -> Vec<String> {
        let rows = self.rows::<Record>().into_iter();
        let mut live: Vec<String> = rows.filter_map(|row| row.body).collect();
        live.sort();
        live
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> i64 {
        let name = format!("{outcome:?}").to_lowercase();
        let rows = self.rows::<Outcomes>().into_iter();
        rows.filter(|row| row.outcome == name)
            .map(|row| row.n)
            .sum()
    }

    /// Everything that was published.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let store = &self.stores[0];
        let head = store.snapshot().unwrap().position();
        let all = store.changes(Position { n: 0, ..head }, usize::MAX);
        all.unwrap().into_iter().map(|one| one.change).collect()
    }

    /// Writes rows past all rules, as damage does.
    pub(crate) fn damage<R: Row>(&self, change: impl Fn(&mut R)) {
        for store in &self.stores {
            let rows = world::rows::<R>(&*store.snapshot().unwrap());
            let mut writes = decide::writes::Writes::default();
            for mut row in rows {
                change(&mut row);
                writes.put.push((R::TABLE, row.to_values()));
            }
            store.begin().unwrap().commit(&writes).unwrap();
        }
    }
}

pub(crate) fn did(author: u8) -> String {
    world::did(author)
}

/// A plain record.
pub(crate) fn put(body: &str) -> Put {
    Put {
        cid: Some(body.as_bytes().to_vec()),
        body: format!("\"{body}\""),
        time_us: Some(1),
        seen_us: None,
        links: Vec::new(),
        derived: Derived::default(),
        needs: Vec::new(),
        satisfies: Vec::new(),
        linked: None,
    }
}

pub(crate) fn op(collection: &str, rkey: &str, put: Put) -> Op {
    Op {
        collection: collection.into(),
        rkey: rkey.into(),
        verdict: Verdict::Put(Box::new(put)),
    }
}

pub(crate) fn delete(collection: &str, rkey: &str) -> Op {
    Op {
        collection: collection.into(),
        rkey: rkey.into(),
        verdict: Verdict::Delete,
    }
}

pub(crate) fn commit(author: u8, rev: u64, ops: Vec<Op>) -> Event {
    Event::Commit(Commit {
        did: did(author),
        rev: Rev(rev),
        chain: None,
        filtered: 0,
        ops,
        frame: Vec::new(),
        live: true,
    })
}

pub(crate) fn account(author: u8, status: Status, time_us: i64) -> Event {
    Event::Account {
        did: did(author),
        status,
        time_us,
    }
}

/// A need for a live record.
pub(crate) fn needs(author: u8, collection: &str, rkey: &str) -> Need {
    Need {
        path: "parent".into(),
        target: Target::Record {
            did: did(author),
            collection: collection.into(),
            rkey: rkey.into(),
        },
    }
}

/// A need for any record of a collection that names a value.
pub(crate) fn names(collection: &str, value: &str) -> Need {
    Need {
        path: "subject".into(),
        target: Target::Naming {
            collection: collection.into(),
            path: "of".into(),
            value: value.into(),
        },
    }
}

pub(crate) fn fault(message: &str) -> Fault {
    Fault {
        stage: Stage::Rule,
        message: message.into(),
        rule: None,
        path: Vec::new(),
        expected: String::new(),
        received: String::new(),
    }
}
