//! A served river whose records the test writes itself, as a source would:
//! checked by the configuration, committed to the store that is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedmill::check::{Checker, Claim};
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::river::{River, Role, Start};
use feedmill::store::batch::{Batch, Commit, Item, Op, Verdict};
use serde_json::Value;

pub(crate) struct Mill {
    pub(crate) river: River,
    pub(crate) config: Config,
    checker: Checker,
    client: reqwest::Client,
    rev: AtomicU64,
}

impl Mill {
    /// Serves the text of a configuration.
    pub(crate) async fn start(text: &str) -> Self {
        feedmill::identity::provide_tls();
        let is_own = text.contains("[store]");
        assert!(is_own, "a test must not write into the folder it runs in");
        let mut config = Config::parse(text).unwrap();
        config.serve.bind = "127.0.0.1:0".into();
        let start = Start {
            role: Role::Serve,
            clock: Clock::Wall,
            lexicons: &[],
        };
        let river = River::start(&config, start).await.unwrap();
        let checker = Checker::new(&config, Arc::clone(&river.plan), &[]).unwrap();
        Self {
            river,
            config,
            checker,
            client: reqwest::Client::new(),
            rev: AtomicU64::new(1),
        }
    }

    /// Puts a record, which must be sound, and returns its URI.
    pub(crate) fn put(&self, did: &str, short: &str, rkey: &str, body: &Value) -> String {
        self.write(did, short, rkey, body, true)
    }

    /// Puts a record that is fetched from the past.
    pub(crate) fn backfill(&self, did: &str, short: &str, rkey: &str, body: &Value) -> String {
        self.write(did, short, rkey, body, false)
    }

    fn write(&self, did: &str, short: &str, rkey: &str, body: &Value, live: bool) -> String {
        let collection = self.config.nsid(short).unwrap();
        let rev = self.rev.fetch_add(1, Ordering::SeqCst);
        let claim = Claim {
            did,
            collection,
            rkey,
            rev,
        };
        let mut body = body.clone();
        body["$type"] = collection.into();
        let verdict = self.checker.json(claim, None, &body.to_string());
        assert!(matches!(verdict, Verdict::Put(_)), "{verdict:?}");
        self.op(did, short, rkey, rev, verdict, live)
    }

    pub(crate) fn delete(&self, did: &str, short: &str, rkey: &str) -> String {
        let rev = self.rev.fetch_add(1, Ordering::SeqCst);
        self.op(did, short, rkey, rev, Verdict::Delete, true)
    }

    /// Sends an operation with the revision it has, once more or for the first time; `None` deletes.
    pub(crate) fn deliver(
        &self,
        rev: u64,
        did: &str,
        short: &str,
        rkey: &str,
        body: Option<&Value>,
    ) {
        let verdict = match body {
            Some(body) => {
                let claim = Claim {
                    did,
                    collection: self.config.nsid(short).unwrap(),
                    rkey,
                    rev,
                };
                self.checker.json(claim, None, &body.to_string())
            }
            None => Verdict::Delete,
        };
        self.op(did, short, rkey, rev, verdict, true);
    }

    fn op(
        &self,
        did: &str,
        short: &str,
        rkey: &str,
        rev: u64,
        verdict: Verdict,
        live: bool,
    ) -> String {
        let collection = self.config.nsid(short).unwrap();
        self.apply(Item::Commit(Commit {
            did: did.into(),
            rev,
            chain: None,
            filtered: 0,
            ops: vec![Op {
                collection: collection.into(),
                rkey: rkey.into(),
                verdict,
            }],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live,
        }));
        format!("at://{did}/{collection}/{rkey}")
    }

    pub(crate) fn apply(&self, item: Item) {
        let batch = Batch {
            source: "test".into(),
            cursor: Some(1),
            now_us: Clock::Wall.now_us(),
            items: vec![item],
        };
        let committed = self.river.store.commit(batch).unwrap();
        assert!(committed.accounting.adds_up(), "{committed:?}");
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        self.river.address.unwrap().to_string()
    }

    /// One question: its status and its JSON.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let request = self.client.get(format!("http://{}{path}", self.address()));
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text:?}"));
        (status, json)
    }
}
