//! Any branch: what it keeps equals the records, whatever happens on the way.
//!
//! The branch here keeps bodies by URI and fails when it is told to; its keep
//! outlives it, as a file would.

use std::collections::BTreeMap;
use std::sync::Arc;

use feedmill::branch::{self, Branch, BranchError, Step};
use feedmill::store::{Change, Drawn, Outbox};
use parking_lot::Mutex;
use sim::rng::Rng;

use super::desk::{ALICE, BOB, Desk};

#[derive(Debug, Default)]
struct Keep {
    bodies: BTreeMap<String, String>,
    position: Option<i64>,
    rebuilds: usize,
    /// Fails this many times before it works again.
    failures: usize,
}

#[derive(Debug)]
struct Ledger(Arc<Mutex<Keep>>);

impl Branch for Ledger {
    fn name(&self) -> &'static str {
        "ledger"
    }

    fn position(&self) -> Result<Option<i64>, BranchError> {
        Ok(self.0.lock().position)
    }

    fn apply(&mut self, store: &dyn Outbox, from: i64, drawn: &Drawn) -> Result<(), BranchError> {
        let mut keep = self.0.lock();
        if keep.failures > 0 {
            keep.failures -= 1;
            return Err(BranchError::Keep("told to fail".into()));
        }
        assert_eq!(keep.position, Some(from));
        for (_, change) in &drawn.changes {
            match change {
                Change::Put { record, uri, .. } => match store.kept(&[*record])?.pop() {
                    Some(row) => drop(keep.bodies.insert(uri.clone(), row.body)),
                    None => drop(keep.bodies.remove(uri)),
                },
                Change::Delete { uri, .. } => drop(keep.bodies.remove(uri)),
                _ => {}
            }
        }
        keep.position = Some(drawn.position);
        Ok(())
    }

    fn rebuild(&mut self, store: &dyn Outbox) -> Result<i64, BranchError> {
        let mut keep = self.0.lock();
        let head = store.head()?;
        keep.bodies.clear();
        let mut after = 0;
        loop {
            let rows = store.kept_after(after, 7)?;
            let Some(last) = rows.last() else { break };
            after = last.id;
            keep.bodies
                .extend(rows.into_iter().map(|row| (row.uri, row.body)));
        }
        keep.rebuilds += 1;
        keep.position = Some(head);
        Ok(head)
    }
}

fn desk(outbox_max: u64) -> Desk {
    let config = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [store]\nurl = \"sqlite::memory:\"\noutbox_max = {outbox_max}\n"
    );
    Desk::of(feedmill::config::Config::parse(&config).unwrap())
}

fn draw(branch: &mut Ledger, store: &dyn Outbox) {
    loop {
        match branch::step(branch, store) {
            Ok(Step::Idle(_)) => return,
            Ok(Step::More) => {}
            Err(error) => assert!(matches!(error, BranchError::Keep(_)), "{error}"),
        }
    }
}

#[test]
fn a_branch_holds_what_the_store_holds_through_failures_restarts_and_gaps() {
    let mut rng = Rng::new(20261116);
    for outbox_max in [5, 1_000_000] {
        let desk = desk(outbox_max);
        let keep = Arc::new(Mutex::new(Keep::default()));
        let mut branch = Ledger(Arc::clone(&keep));
        let mut truth = BTreeMap::new();
        for step in 0..400 {
            let did = if rng.below(2) == 0 { ALICE } else { BOB };
            let rkey = rng.below(20).to_string();
            let uri = desk.uri(did, "post", &rkey);
            if rng.below(4) == 0 {
                desk.delete(did, "post", &rkey);
                truth.remove(&uri);
            } else {
                let body = format!("{{\"step\":{step}}}");
                desk.put(did, "post", &rkey, &body);
                truth.insert(uri, body);
            }
            match rng.below(12) {
                0 => keep.lock().failures = 3,
                1 => branch = Ledger(Arc::clone(&keep)), // a restart
                2..6 => {
                    draw(&mut branch, &*desk.store);
                    assert_eq!(keep.lock().bodies, truth, "after step {step}");
                }
                _ => {}
            }
        }
        draw(&mut branch, &*desk.store);
        assert_eq!(keep.lock().bodies, truth);
        let rebuilds = keep.lock().rebuilds;
        match outbox_max {
            5 => assert!(
                rebuilds > 5,
                "a short outbox must have been outrun: {rebuilds}"
            ),
            _ => assert_eq!(rebuilds, 1, "built once, then drawn"),
        }
    }
}

#[test]
fn a_branch_before_another_store_starts_anew() {
    let first = desk(1_000_000);
    for number in 0..9 {
        first.put(ALICE, "post", &number.to_string(), "{\"of\":\"the first\"}");
    }
    let keep = Arc::new(Mutex::new(Keep::default()));
    let mut branch = Ledger(Arc::clone(&keep));
    draw(&mut branch, &*first.store);
    let second = desk(1_000_000);
    second.put(BOB, "post", "x", "{\"of\":\"the second\"}");
    draw(&mut branch, &*second.store);
    let only = (
        second.uri(BOB, "post", "x"),
        "{\"of\":\"the second\"}".to_owned(),
    );
    assert_eq!(keep.lock().bodies, BTreeMap::from([only]));
    assert_eq!(keep.lock().rebuilds, 2);
}
