//! One conformance suite for every store: SQLite in a file and in memory.
//!
//! Versions, repeats and orders of arrival are drawn at random; a naive model
//! says what must be left.

// Chains of commits: where they stand, and what their break holds up.
mod chains;

use std::collections::BTreeMap;
use std::sync::Arc;

use feedmill::config::Config;
use feedmill::store::batch::{Batch, Commit, DeadLetter, Item, Op, Put, Verdict};
use feedmill::store::plan::Plan;
use feedmill::store::{self, AccountStatus, FeedQuery, ListQuery, SharedStore};
use record::tid::Tid;
use sim::rng::Rng;

const NOW: i64 = 1_790_000_000_000_000;
const POST: &str = "app.bsky.feed.post";
const FOLLOW: &str = "app.bsky.graph.follow";

struct Bench {
    store: SharedStore,
    plan: Arc<Plan>,
    /// Keeps the folder of a store in a file.
    _folder: Option<tempfile::TempDir>,
}

fn config(url: &str) -> Config {
    Config::parse(&format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"{POST}\"\n[collections.follow]\ncollection = \"{FOLLOW}\"\n\
         [feeds.timeline]\ntargets = [\"post\"]\n[store]\nurl = \"{url}\"\nreaders = 2\n"
    ))
    .unwrap()
}

/// Runs `check` on each implementation.
fn on_each(check: impl Fn(&Bench)) {
    for file in [false, true] {
        let folder = file.then(|| tempfile::tempdir().unwrap());
        let url = match &folder {
            Some(folder) => format!("sqlite://{}/store.db", folder.path().display()),
            None => "sqlite::memory:".into(),
        };
        let config = config(&url);
        let store = store::open(&config).unwrap();
        let plan = Arc::clone(store.plan());
        check(&Bench {
            store,
            plan,
            _folder: folder,
        });
    }
}

impl Bench {
    fn put(&self, did: &str, nsid: &str, body: &str, time_us: Option<i64>) -> Verdict {
        let value = record::json::from_json(body).unwrap();
        Verdict::Put(Put {
            cid: Some(record::cid::Cid::of_raw(body.as_bytes())),
            body: body.to_owned(),
            time_us,
            seen_us: None,
            links: Vec::new(),
            derived: self.plan.derive(nsid, did, &value),
        })
    }

    fn post(&self, did: &str, text: &str, time_us: i64) -> Verdict {
        self.put(did, POST, &format!("{{\"text\":{text:?}}}"), Some(time_us))
    }

    fn commit(&self, did: &str, rev: u64, nsid: &str, rkey: &str, verdict: Verdict) -> Item {
        Item::Commit(Commit {
            did: did.into(),
            rev,
            chain: None,
            filtered: 0,
            ops: vec![Op {
                collection: nsid.into(),
                rkey: rkey.into(),
                verdict,
            }],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        })
    }

    fn apply(&self, items: Vec<Item>) -> feedmill::store::Committed {
        self.apply_at(NOW, items)
    }

    fn apply_at(&self, now_us: i64, items: Vec<Item>) -> feedmill::store::Committed {
        let batch = Batch {
            source: "test".into(),
            cursor: Some(1),
            now_us,
            items,
        };
        let committed = self.store.commit(batch).unwrap();
        assert!(committed.accounting.adds_up(), "{committed:?}");
        committed
    }

    fn follow(&self, reader: &str, rev: u64, rkey: &str, subject: &str) {
        let body = format!("{{\"subject\":{subject:?}}}");
        let put = self.put(reader, FOLLOW, &body, Some(NOW - 1));
        self.apply(vec![self.commit(reader, rev, FOLLOW, rkey, put)]);
    }

    fn feed(&self, reader: &str) -> Vec<String> {
        self.pages(reader, 3)
    }

    fn pages(&self, reader: &str, limit: usize) -> Vec<String> {
        let feed = self.plan.feed("timeline").unwrap();
        let mut query = FeedQuery {
            lens: Default::default(),
            reader: reader.into(),
            lanes: feed
                .targets
                .iter()
                .map(|target| (target.lane, None))
                .collect(),
            follows: feed.follows.clone(),
            hides: Vec::new(),
            include_self: false,
            before: None,
            limit,
            scan_max: 1000,
        };
        let mut uris = Vec::new();
        loop {
            let page = self.store.feed(&query).unwrap();
            assert!(page.rows.len() <= limit);
            uris.extend(page.rows.into_iter().map(|row| row.uri));
            match page.next {
                Some(next) => query.before = Some(next),
                None => return uris,
            }
        }
    }

    fn list(&self) -> Vec<(String, String)> {
        let query = ListQuery {
            lens: Default::default(),
            scan_max: 100_000,
            lane: self.plan.listing(POST).unwrap(),
            did: None,
            before: None,
            limit: 10_000,
        };
        let page = self.store.list(&query).unwrap();
        page.rows
            .into_iter()
            .map(|row| (row.uri, row.body))
            .collect()
    }
}

/// One of many record keys: a time, or any other text. What the writer knows of the two is not the same.
fn rkey(is_time: bool, number: u64) -> String {
    match is_time {
        true => Tid::new(NOW as u64 + number, 1).to_string(),
        false => format!("r{number}"),
    }
}

/// Any order, any repeats: the newest version is left, deletes win ties, and
/// a second run changes nothing.
#[test]
fn newer_wins_in_any_order_of_arrival_and_again_is_the_same() {
    on_each(|bench| {
        let seed = 20_261_115;
        let mut rng = Rng::new(seed);
        for round in 0..60u64 {
            let did = format!("did:web:round{round}.test");
            let mut history: Vec<(u64, String, Option<String>)> = Vec::new();
            for version in 1..=rng.below(12) + 1 {
                let rkey = rkey(round % 2 == 0, round * 3 + rng.below(3));
                let text = rng.chance(0.7).then(|| format!("v{version}"));
                history.push((version, rkey, text));
            }
            let mut model: BTreeMap<&str, (u64, Option<&str>)> = BTreeMap::new();
            for (rev, rkey, text) in &history {
                model.insert(rkey, (*rev, text.as_deref()));
            }
            let mut arrivals: Vec<usize> = (0..history.len()).collect();
            arrivals.extend((0..history.len()).filter(|_| rng.chance(0.5)));
            for at in (1..arrivals.len()).rev() {
                arrivals.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let items = |order: &[usize]| {
                order
                    .iter()
                    .map(|at| {
                        let (rev, rkey, text) = &history[*at];
                        let verdict = match text {
                            Some(text) => bench.post(&did, text, NOW - *rev as i64),
                            None => Verdict::Delete,
                        };
                        bench.commit(&did, *rev, POST, rkey, verdict)
                    })
                    .collect::<Vec<_>>()
            };
            bench.apply(items(&arrivals));
            let live = || {
                let prefix = format!("at://{did}/");
                let mut found: Vec<_> = bench
                    .list()
                    .into_iter()
                    .filter(|(uri, _)| uri.starts_with(&prefix))
                    .collect();
                found.sort();
                found
            };
            let expected: Vec<(String, String)> = model
                .iter()
                .filter_map(|(rkey, (_, text))| {
                    Some((
                        format!("at://{did}/{POST}/{rkey}"),
                        format!("{{\"text\":{:?}}}", (*text)?),
                    ))
                })
                .collect();
            assert_eq!(live(), expected, "seed {seed} round {round}");
            let head = bench.store.head().unwrap();
            let again = bench.apply(items(&arrivals));
            assert_eq!(again.accounting.applied, 0, "seed {seed} round {round}");
            assert_eq!(
                bench.store.head().unwrap(),
                head,
                "nothing was said to those who draw"
            );
            assert_eq!(live(), expected);
        }
    });
}

#[test]
fn deletes_win_ties_whatever_comes_first() {
    on_each(|bench| {
        let orders = [(true, false), (true, true), (false, false), (false, true)];
        for (delete_first, is_time) in orders {
            let (did, rkey) = ("did:web:a.test", rkey(is_time, u64::from(delete_first)));
            let put = || bench.commit(did, 5, POST, &rkey, bench.post(did, "hello", NOW - 1));
            let delete = || bench.commit(did, 5, POST, &rkey, Verdict::Delete);
            let (first, second) = if delete_first {
                (delete(), put())
            } else {
                (put(), delete())
            };
            bench.apply(vec![first]);
            bench.apply(vec![second]);
            let uri = format!("at://{did}/{POST}/{rkey}");
            assert_eq!(bench.store.record(&uri).unwrap(), None);
        }
    });
}

/// A writer remembers what is there, until somebody else has written.
#[test]
fn what_another_writer_took_in_is_not_taken_for_new() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&format!("sqlite://{}/store.db", folder.path().display()));
    let [one, other] = [(), ()].map(|()| {
        let store = store::open(&config).unwrap();
        let plan = Arc::clone(store.plan());
        Bench {
            store,
            plan,
            _folder: None,
        }
    });
    let did = "did:web:a.test";
    let taken = |bench: &Bench, number| {
        let post = bench.post(did, "hello", NOW - 1);
        let item = bench.commit(did, 5, POST, &rkey(true, number), post);
        bench.apply(vec![item]).accounting.applied
    };
    assert_eq!((taken(&one, 1), taken(&other, 2)), (1, 1));
    assert_eq!((taken(&one, 2), taken(&other, 1)), (0, 0));
}

#[test]
fn one_of_two_follow_records_may_go_and_the_author_stays() {
    on_each(|bench| {
        let (reader, author) = ("did:web:reader.test", "did:web:author.test");
        bench.follow(reader, 1, "one", author);
        bench.follow(reader, 2, "two", author);
        bench.apply(vec![bench.commit(
            author,
            1,
            POST,
            "p",
            bench.post(author, "hi", NOW - 9),
        )]);
        assert_eq!(bench.feed(reader).len(), 1);
        bench.apply(vec![bench.commit(
            reader,
            3,
            FOLLOW,
            "one",
            Verdict::Delete,
        )]);
        assert_eq!(bench.feed(reader).len(), 1);
        bench.apply(vec![bench.commit(
            reader,
            4,
            FOLLOW,
            "two",
            Verdict::Delete,
        )]);
        assert_eq!(bench.feed(reader), Vec::<String>::new());
    });
}

#[test]
fn ties_in_time_are_never_skipped_at_any_page_size() {
    on_each(|bench| {
        let reader = "did:web:reader.test";
        let mut expected = Vec::new();
        for (number, author) in ["did:web:a", "did:web:a.b", "did:web:a-b", "did:web:ab"]
            .into_iter()
            .enumerate()
        {
            bench.follow(reader, number as u64 + 1, author, author);
            for rkey in ["1", "12", "2", "a", "A~"] {
                bench.apply(vec![bench.commit(
                    author,
                    1,
                    POST,
                    rkey,
                    bench.post(author, rkey, NOW - 5),
                )]);
                expected.push(format!("at://{author}/{POST}/{rkey}"));
            }
        }
        expected.sort();
        expected.reverse();
        for limit in [1, 2, 3, 7, 100] {
            assert_eq!(bench.pages(reader, limit), expected, "page size {limit}");
        }
    });
}

#[test]
fn a_time_after_first_sight_becomes_first_sight_and_survives_edits_not_recreation() {
    on_each(|bench| {
        let did = "did:web:a.test";
        let time = || {
            bench
                .store
                .position(&format!("at://{did}/{POST}/x"))
                .unwrap()
                .unwrap()
                .time_us
        };
        let future = |text: &str| bench.post(did, text, NOW * 2);
        bench.apply_at(NOW, vec![bench.commit(did, 1, POST, "x", future("one"))]);
        assert_eq!(time(), NOW);
        bench.apply_at(
            NOW + 10,
            vec![bench.commit(did, 2, POST, "x", future("two"))],
        );
        assert_eq!(time(), NOW, "an edit keeps first sight");
        bench.apply_at(
            NOW + 20,
            vec![bench.commit(did, 3, POST, "x", Verdict::Delete)],
        );
        assert_eq!(time(), NOW, "a tombstone keeps its place");
        bench.apply_at(
            NOW + 30,
            vec![bench.commit(did, 4, POST, "x", future("three"))],
        );
        assert_eq!(time(), NOW + 30, "a recreated record is new");
    });
}

#[test]
fn hidden_accounts_are_unseen_until_they_come_back_and_deleted_ones_are_gone() {
    on_each(|bench| {
        let (reader, author) = ("did:web:reader.test", "did:web:author.test");
        bench.follow(reader, 1, "f", author);
        bench.apply(vec![bench.commit(
            author,
            1,
            POST,
            "p",
            bench.post(author, "hi", NOW - 9),
        )]);
        let set = |status, time_us| {
            bench.apply(vec![Item::Account {
                did: author.into(),
                status,
                time_us,
            }])
        };
        for (time, status, seen) in [
            (1, AccountStatus::Takendown, 0),
            (2, AccountStatus::Active, 1),
            (3, AccountStatus::Suspended, 0),
            (4, AccountStatus::Desynchronized, 1),
            (5, AccountStatus::Deactivated, 0),
            (6, AccountStatus::Throttled, 1),
        ] {
            set(status, time);
            assert_eq!(bench.feed(reader).len(), seen, "{status:?}");
        }
        assert_eq!(
            set(AccountStatus::Takendown, 3).accounting.superseded,
            1,
            "an older event changes nothing"
        );
        assert_eq!(bench.feed(reader).len(), 1);
        set(AccountStatus::Deleted, 7);
        set(AccountStatus::Active, 8);
        assert_eq!(
            bench.feed(reader),
            Vec::<String>::new(),
            "what was purged does not come back"
        );
        let late = bench.apply(vec![bench.commit(
            author,
            1,
            POST,
            "p",
            bench.post(author, "hi", NOW - 9),
        )]);
        assert_eq!(late.accounting.superseded, 1, "nor by replay");
    });
}

#[test]
fn a_refused_version_hides_the_one_before_it_and_is_buried_once() {
    on_each(|bench| {
        let did = "did:web:a.test";
        bench.apply(vec![bench.commit(
            did,
            1,
            POST,
            "x",
            bench.post(did, "good", NOW - 1),
        )]);
        let refused = || {
            bench.commit(
                did,
                2,
                POST,
                "x",
                Verdict::Refused(DeadLetter {
                    did: did.into(),
                    stage: "lexicon".into(),
                    ..DeadLetter::default()
                }),
            )
        };
        assert_eq!(bench.apply(vec![refused()]).accounting.dead, 1);
        assert_eq!(bench.apply(vec![refused()]).accounting.repeated, 1);
        assert_eq!(
            bench.store.record(&format!("at://{did}/{POST}/x")).unwrap(),
            None
        );
        assert_eq!(bench.store.dead(None, 10).unwrap().len(), 1);
    });
}

#[test]
fn changes_are_drawn_in_order_from_any_position() {
    on_each(|bench| {
        let did = "did:web:a.test";
        for rev in 1..=20 {
            bench.apply(vec![bench.commit(
                did,
                rev,
                POST,
                &format!("r{rev}"),
                bench.post(did, "x", NOW - 1),
            )]);
        }
        let all = bench.store.draw(0, 1000).unwrap();
        assert_eq!(all.position, bench.store.head().unwrap());
        for start in 0..all.position {
            let mut position = start;
            let mut drawn = Vec::new();
            while position < all.position {
                let some = bench.store.draw(position, 3).unwrap();
                assert!(some.position > position);
                drawn.extend(some.changes);
                position = some.position;
            }
            assert_eq!(drawn, all.changes[start as usize..]);
        }
    });
}

#[test]
fn a_changed_configuration_derives_its_rows_anew() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/store.db", folder.path().display());
    let first = config(&url);
    let did = "did:web:a.test";
    {
        let store = store::open(&first).unwrap();
        let plan = Arc::clone(store.plan());
        let bench = Bench {
            store,
            plan,
            _folder: None,
        };
        let post = bench.put(
            did,
            POST,
            "{\"about\":\"cats\",\"text\":\"hi\"}",
            Some(NOW - 1),
        );
        bench.apply(vec![bench.commit(did, 1, POST, "p", post)]);
        bench.follow("did:web:r.test", 1, "f", "cats");
        assert_eq!(bench.feed("did:web:r.test"), Vec::<String>::new());
    }
    let text = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"{POST}\"\n[collections.follow]\ncollection = \"{FOLLOW}\"\n\
         [feeds.timeline]\ntargets = [{{ collection = \"post\", keys = [\"author\", \"about\"] }}]\n[store]\nurl = \"{url}\"\n"
    );
    let second = Config::parse(&text).unwrap();
    let store = store::open(&second).unwrap();
    let plan = Arc::clone(store.plan());
    let bench = Bench {
        store,
        plan,
        _folder: None,
    };
    assert_eq!(
        bench.feed("did:web:r.test").len(),
        1,
        "the post is now published under what it is about"
    );
}
