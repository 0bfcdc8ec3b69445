//! One life of the real binary: begun, listened to, ended or killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use feedmill::oracle;
use serde_json::Value;
use sim::network::Network;

/// How long anything in a small world may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// One life of the process. Dropping it kills it.
pub(crate) struct Life {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Life {
    /// Starts `feedmill <verb> <config>`, gone at the crash point if one is named.
    pub(crate) fn begin(verb: &str, config: &Path, crash: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        command.arg(verb).arg(config);
        if let Some(point) = crash {
            command.env("FEEDMILL_CRASH", point);
        }
        Self::of(command)
    }

    /// Starts any command, and listens to what it logs.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (heard, lines) = (
            Arc::clone(&log),
            BufReader::new(child.stderr.take().unwrap()),
        );
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                heard.lock().unwrap().push(line);
            }
        });
        Self { child, log }
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        let status = self.child.try_wait().expect("a child can be asked");
        status.is_some()
    }

    /// The lines it logged so far that hold `words`.
    pub(crate) fn said(&self, words: &str) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter()
            .filter(|line| line.contains(words))
            .cloned()
            .collect()
    }

    /// Waits until it logs `words`.
    pub(crate) async fn says(&self, words: &str) {
        let begun = Instant::now();
        while self.said(words).is_empty() {
            assert!(
                begun.elapsed() < PATIENCE,
                "it never said {words:?}, but: {:#?}",
                self.said("")
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn end(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        Command::new("kill").arg(&pid).status().expect("kill runs");
        self.child.wait().expect("it ends")
    }

    /// Ends it as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().ok();
        self.child.wait().expect("it is gone");
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // It may be over already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A place to live: a folder, a configuration that reads a network, and an address.
pub(crate) struct Home {
    pub(crate) file: PathBuf,
    pub(crate) address: String,
    /// Outlives the store in it.
    _folder: tempfile::TempDir,
}

impl Home {
    /// A home whose store lies in a folder of its own; each (old, new) is replaced in the configuration.
    pub(crate) fn new(network: &Network, changes: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("store.db");
        Self::with_store(network, folder, &store, changes)
    }

    pub(crate) fn with_store(
        network: &Network,
        folder: tempfile::TempDir,
        store: &Path,
        changes: &[(&str, &str)],
    ) -> Self {
        feedmill::identity::provide_tls();
        let address = format!("127.0.0.1:{}", free_port());
        let lexicons = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/lexicons");
        let store = format!("sqlite://{}", store.display());
        let mut text = format!(
            "lexicons = [{lexicons:?}]\n{}",
            oracle::config(network, &address, &store)
        );
        for (old, new) in changes {
            assert!(text.contains(old), "{old:?} is not in {text}");
            text = text.replacen(old, new, 1);
        }
        let file = folder.path().join("feedmill.toml");
        std::fs::write(&file, text).expect("a file");
        Self {
            file,
            address,
            _folder: folder,
        }
    }

    /// `/status`, if anybody answers who has started.
    pub(crate) async fn status(&self) -> Option<Value> {
        let answer = reqwest::get(format!("http://{}/status", self.address)).await;
        let answer = answer.ok()?.error_for_status().ok()?;
        answer.json().await.ok()
    }

    /// Waits until everything up to `seq` is durable and nobody waits for repair; `None` if a life ended.
    pub(crate) async fn settled(&self, seq: u64, lives: &mut [&mut Life]) -> Option<Value> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if lives.iter_mut().any(|life| life.is_over()) {
                return None;
            }
            if let Some(status) = self.status().await {
                let cursor = status["ingestion"]["cursors"]["sim"].as_u64().unwrap_or(0);
                let due = status["resync"]["due"].as_u64().unwrap_or(1);
                let listing = status["backfill"]["running"] == true;
                let pending = status["ingestion"]["pending"] != 0;
                if cursor >= seq && due == 0 && !pending && !listing {
                    return Some(status);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not settled in time: {:?}", self.status().await);
    }
}

/// A port that nobody has and nobody is given: below those a kernel hands out for `:0` and to
/// outgoing connections, one of which could take it while the process is down.
pub(crate) fn free_port() -> u16 {
    const LOWEST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Two test processes at once begin at different places.
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = LOWEST + begin.wrapping_add(step) % PORTS;
        let port = u16::try_from(port).expect("below 30 000");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port between {LOWEST} and {}", LOWEST + PORTS);
}

/// Invariant 2: each unit is counted as exactly one of its outcomes.
#[track_caller]
pub(crate) fn adds_up(accounting: &Value) {
    let count = |name: &str| accounting[name].as_i64().expect("a number");
    let outcomes = [
        "applied",
        "repeated",
        "superseded",
        "filtered",
        "pending",
        "parked",
        "held",
        "dead",
    ];
    let sum: i64 = outcomes.into_iter().map(count).sum();
    assert_eq!(count("received"), sum, "{accounting}");
}
