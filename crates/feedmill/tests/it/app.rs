//! The binary, as an app and its readers meet it: over HTTP.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

pub(crate) const APP: &str = "the-app";

/// A record of the network: author, collection, key, body.
pub(crate) type Kept = (&'static str, &'static str, String, Value);

/// Puts records into a store, as a source would.
fn keep(folder: &Path, config: &str, records: &[Kept]) {
    use feedmill::store::{self, Batch, Commit, Item, Op};
    let mut config = feedmill::config::Config::parse(config).unwrap();
    config.store.url = format!("sqlite://{}", folder.join("store.db").display());
    let store = store::open(&config).unwrap();
    let checker =
        feedmill::check::Checker::new(&config, std::sync::Arc::clone(store.plan()), &[]).unwrap();
    let items = records
        .iter()
        .zip(1..)
        .map(|((did, collection, rkey, body), rev)| {
            let claim = feedmill::check::Claim {
                did,
                collection,
                rkey,
                rev,
            };
            Item::Commit(Commit {
                did: (*did).to_owned(),
                rev,
                chain: None,
                filtered: 0,
                ops: vec![Op {
                    collection: (*collection).to_owned(),
                    rkey: rkey.clone(),
                    verdict: checker.json(claim, None, &body.to_string()),
                }],
                frame: Default::default(),
                seq: 0,
                was_held: false,
                live: true,
            })
        });
    let batch = Batch {
        source: "test".into(),
        cursor: Some(1),
        now_us: 4_000_000_000_000_000,
        items: items.collect(),
    };
    let committed = store.commit(batch).unwrap();
    assert_eq!(committed.accounting.applied, records.len() as i64);
}

/// A running binary with its own store.
pub(crate) struct App {
    child: Child,
    address: String,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
    config: String,
    environment: Vec<(&'static str, String)>,
}

impl App {
    /// Starts the binary on the text of a configuration.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_on(config, &[])
    }

    /// Starts it on a store that holds these records already.
    pub(crate) fn start_on(config: &str, records: &[Kept]) -> Self {
        Self::start_in(config, records, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn start_in(
        config: &str,
        records: &[Kept],
        environment: &[(&'static str, &str)],
    ) -> Self {
        let fill = |folder: &Path| {
            if !records.is_empty() {
                keep(folder, config, records);
            }
        };
        Self::start_filled(config, environment, fill)
    }

    /// Starts it in a folder after `fill` has put a `store.db` there.
    pub(crate) fn start_filled(
        config: &str,
        environment: &[(&'static str, &str)],
        fill: impl FnOnce(&Path),
    ) -> Self {
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        feedmill::identity::provide_tls();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (child, address) = spawn(folder.path(), config, &environment);
        Self {
            child,
            address,
            client: reqwest::Client::new(),
            runtime,
            folder,
            config: config.to_owned(),
            environment,
        }
    }

    /// `http://` and where it serves.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where its configuration and store are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits for a future, on the runtime of its client.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Kills it, as a power failure would, and starts it again on the same store.
    pub(crate) fn restart(&mut self) {
        self.restart_after(|_| {});
    }

    /// The same, with something done in its folder while it is down.
    pub(crate) fn restart_after(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        meanwhile(self.folder.path());
        (self.child, self.address) = spawn(self.folder.path(), &self.config, &self.environment);
    }

    /// The same with another configuration.
    pub(crate) fn restart_with(&mut self, config: &str) {
        self.config = config.to_owned();
        self.restart();
    }

    /// One request; its status and its JSON.
    pub(crate) fn ask(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.address));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            let json = serde_json::from_str(&text)
                .unwrap_or_else(|_| panic!("{path}: not JSON: {text:?}"));
            (status, json)
        })
    }

    /// A request of the app that must succeed.
    #[track_caller]
    pub(crate) fn act(&self, method: Method, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then_some(body);
        let (status, answer) = self.ask(method, path, Some(APP), body);
        assert_eq!(status, 200, "{path}: {answer}");
        if let Some(drawn) = answer.get("drawn") {
            assert_eq!(*drawn, true, "{path}: {answer}");
        }
        answer
    }

    /// A page without a token.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, None, None)
    }

    /// A request with a tag the client has; the status, the answer's tag, and its body.
    pub(crate) fn tagged(&self, path: &str, tag: Option<&str>) -> (u16, Option<String>, String) {
        let mut request = self.client.get(format!("{}{path}", self.address));
        if let Some(tag) = tag {
            request = request.header("if-none-match", tag);
        }
        self.runtime.block_on(async {
            let response = request.send().await.unwrap();
            let tag = response.headers().get("etag").cloned();
            let tag = tag.map(|tag| tag.to_str().unwrap().to_owned());
            (
                response.status().as_u16(),
                tag,
                response.text().await.unwrap(),
            )
        })
    }

    /// A reader's token.
    pub(crate) fn token(&self, user: u64) -> String {
        let answer = self.act(Method::POST, "/tokens", json!({ "user": user }));
        answer["token"].as_str().unwrap().to_owned()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(folder: &Path, config: &str, environment: &[(&str, String)]) -> (Child, String) {
    let file = folder.join("feedmill.toml");
    std::fs::write(&file, config).unwrap();
    let store = format!("sqlite://{}", folder.join("store.db").display());
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .arg("run")
        .arg(&file)
        .args(["--port", "0", "--database-url", &store])
        .env("FEEDMILL_APP_TOKEN", APP)
        .env("RUST_LOG", "warn")
        .envs(environment.iter().map(|(name, value)| (*name, value)))
        .stderr(log)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().expect("it says where it serves").unwrap();
    let address = line.strip_prefix("serving on ").unwrap();
    let address = address.trim_end_matches('/').to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    (child, address)
}
