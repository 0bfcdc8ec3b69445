//! An intake without sockets: store, checks, and a clock that the test sets.
//!
//! Records go through the same door as those of a stream: checked by the
//! configuration, committed as one batch with a cursor.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use feedmill::check::{Checker, Claim};
use feedmill::clock::Clock;
use feedmill::config::{self, Config};
use feedmill::fanout::Fanout;
use feedmill::serve::front::Front;
use feedmill::serve::{Server, line};
use feedmill::status::Status;
use feedmill::store::batch::{Batch, Commit, DeadLetter, Item, Op, Verdict};
use feedmill::store::{self, Accounting, Committed, SharedStore};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) const ALICE: &str = "did:web:alice.test";
pub(crate) const BOB: &str = "did:web:bob.test";
const NOW: i64 = 1_790_000_000_000_000;

/// Serves until the test ends; where.
pub(crate) async fn listen(server: Server) -> String {
    feedmill::identity::provide_tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let front = Front::new(Arc::new(server), 1_000_000);
    tokio::spawn(async move {
        let (_running, stop) = watch::channel(false);
        line::run(listener, front, &config::Serve::default(), stop).await;
    });
    address
}

pub(crate) struct Desk {
    pub(crate) config: Config,
    pub(crate) store: SharedStore,
    pub(crate) checker: Arc<Checker>,
    now_us: AtomicI64,
    rev: AtomicU64,
}

impl Desk {
    /// A desk in memory. `text` holds collections and settings.
    pub(crate) fn new(text: &str) -> Self {
        let text =
            format!("namespace = \"com.example\"\n{text}\n[store]\nurl = \"sqlite::memory:\"\n");
        Self::of(Config::parse(&text).unwrap())
    }

    pub(crate) fn of(config: Config) -> Self {
        let store = store::open(&config).unwrap();
        let checker = Arc::new(Checker::new(&config, Arc::clone(store.plan()), &[]).unwrap());
        Self {
            config,
            store,
            checker,
            now_us: AtomicI64::new(NOW),
            rev: AtomicU64::new(1),
        }
    }

    /// A server over the desk's store, whose clock stands.
    pub(crate) fn server(&self, fanout: Option<Arc<Fanout>>) -> Server {
        let store = Arc::clone(&self.store);
        let plan = Arc::clone(store.plan());
        let status = Arc::new(Status::default());
        let clock = Clock::at(self.now_us());
        Server::new(&self.config, plan, store, fanout, status, clock)
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.now_us.load(Ordering::SeqCst)
    }

    pub(crate) fn next_rev(&self) -> u64 {
        self.rev.fetch_add(1, Ordering::SeqCst)
    }

    /// Lets time pass, then tries what is due.
    pub(crate) fn pass(&self, seconds: i64) -> Committed {
        self.now_us.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
        let committed = self.store.settle(self.now_us(), 1000).unwrap();
        self.accounting();
        committed
    }

    /// What the checks say of a record.
    pub(crate) fn check(
        &self,
        did: &str,
        short: &str,
        rkey: &str,
        rev: u64,
        body: &str,
    ) -> Verdict {
        let collection = self.config.nsid(short).unwrap();
        let claim = Claim {
            did,
            collection,
            rkey,
            rev,
        };
        let cid = record::cid::Cid::of_raw(body.as_bytes());
        self.checker.json(claim, Some(cid), body)
    }

    pub(crate) fn put(&self, did: &str, short: &str, rkey: &str, body: &str) -> Committed {
        self.put_at(self.next_rev(), did, short, rkey, body)
    }

    pub(crate) fn put_at(
        &self,
        rev: u64,
        did: &str,
        short: &str,
        rkey: &str,
        body: &str,
    ) -> Committed {
        let verdict = self.check(did, short, rkey, rev, body);
        self.op(rev, did, short, rkey, verdict)
    }

    pub(crate) fn delete(&self, did: &str, short: &str, rkey: &str) -> Committed {
        self.op(self.next_rev(), did, short, rkey, Verdict::Delete)
    }

    pub(crate) fn delete_at(&self, rev: u64, did: &str, short: &str, rkey: &str) -> Committed {
        self.op(rev, did, short, rkey, Verdict::Delete)
    }

    fn op(&self, rev: u64, did: &str, short: &str, rkey: &str, verdict: Verdict) -> Committed {
        let op = Op {
            collection: self.config.nsid(short).unwrap().into(),
            rkey: rkey.into(),
            verdict,
        };
        self.apply(Item::Commit(Commit {
            did: did.into(),
            rev,
            chain: None,
            filtered: 0,
            ops: vec![op],
            frame: Default::default(),
            seq: 7,
            was_held: false,
            live: true,
        }))
    }

    pub(crate) fn apply(&self, item: Item) -> Committed {
        let batch = Batch {
            source: "test".into(),
            cursor: Some(7),
            now_us: self.now_us(),
            items: vec![item],
        };
        let committed = self.store.commit(batch).unwrap();
        self.accounting();
        committed
    }

    /// The counters since the beginning, which always add up.
    pub(crate) fn accounting(&self) -> Accounting {
        let accounting = self.store.accounting(None).unwrap();
        assert!(accounting.adds_up(), "{accounting:?}");
        let waiting = self.store.waiting().unwrap();
        assert_eq!(accounting.parked, waiting.parked, "{accounting:?}");
        accounting
    }

    pub(crate) fn uri(&self, did: &str, short: &str, rkey: &str) -> String {
        format!("at://{did}/{}/{rkey}", self.config.nsid(short).unwrap())
    }

    pub(crate) fn has(&self, did: &str, short: &str, rkey: &str) -> bool {
        self.store
            .record(&self.uri(did, short, rkey))
            .unwrap()
            .is_some()
    }

    pub(crate) fn letters(&self) -> Vec<DeadLetter> {
        self.store.dead(None, 100).unwrap()
    }

    /// The one dead letter.
    #[track_caller]
    pub(crate) fn letter(&self) -> DeadLetter {
        let mut letters = self.letters();
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }
}

/// A folder of published lexicons; `None` where they are absent, and then one
/// line for the whole run.
pub(crate) fn fixtures(folder: &str) -> Option<PathBuf> {
    static ABSENT: std::sync::Once = std::sync::Once::new();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/fixtures")
        .join(folder);
    if path.is_dir() {
        return Some(path);
    }
    ABSENT.call_once(|| {
        // The macros would be captured with the output of a test that passes.
        let line = "feedmill: no published lexicons in ../shared/fixtures; testing our own only\n";
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    });
    None
}
