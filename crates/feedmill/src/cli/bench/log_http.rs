//! The HTTP part of `bench log`: durable appends of one block, 64 in flight.
//!
//! The server is the real one in a process of its own, on a log in a file. Beside it stands
//! SQLite behind the same connections: the same message is parsed, its block becomes one row
//! with the same two unique indexes, and each request commits a transaction of its own, as a
//! service without group commit does. Both commits are durable before the answer is sent. The same
//! appends to streams follow, and JetStream with `sync_interval: always`, if there is one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::folder::Folder;
use super::load::Served;
use super::{Ending, Report, nats};
use crate::serve::line::{self, Answers};

const FEEDS: u64 = 1000;
const STREAMS: u64 = 100;
const REQUESTS: f64 = 40_000.0;
const ROUNDS: usize = 5;
/// Requests in flight at once.
pub(super) const IN_FLIGHT: usize = 64;
/// Fifteen times what one transaction for each append gave.
const APPENDS_PER_CPU_S_MIN: f64 = 15.0 * 2_750.0;
const BODY_BYTES_MAX: usize = 1 << 20;

fn config(file: &Path) -> String {
    format!(
        r#"namespace = "com.example"
[store]
url = "sqlite::memory:"
[log]
file = "{}"
read = "anyone"
append = "anyone"
create = "anyone"
append_blocks_per_second_max = 1000000000
[serve]
bind = "127.0.0.1:0"
"#,
        file.display()
    )
}

/// The next append: one block of 200 bytes, of one of a thousand feeds.
fn append(made: &AtomicU64, data: &str) -> String {
    let number = made.fetch_add(1, Ordering::Relaxed);
    let (feed, sequence) = (number % FEEDS, number / FEEDS + 1);
    let block = json!({
        "feedId": format!("01H1FEED{feed:018}"), "actorId": format!("01H1ACTOR{feed:017}"),
        "sequence": sequence, "timestamp": 1_790_000_000_000_u64 + number, "data": data,
    });
    let body = json!({"requestId": number, "blocks": [block]});
    format!("/log/bench/append\ncontent-type: application/json\r\n\0{body}")
}

/// The next append to a stream: 200 bytes, to one of a hundred.
fn post(made: &AtomicU64, data: &str) -> String {
    let stream = made.fetch_add(1, Ordering::Relaxed) % STREAMS;
    format!("/v1/stream/bench/{stream}\ncontent-type: text/plain\r\n\0{data}")
}

/// Posts to streams with as many in flight; CPU-seconds of each.
fn streams(served: &Served, count: usize) -> Result<f64, Ending> {
    for stream in 0..STREAMS {
        let put = format!("PUT /v1/stream/bench/{stream}\ncontent-type: text/plain\r\n");
        served.once(&put)?;
    }
    let (made, data) = (AtomicU64::new(0), "x".repeat(200));
    let mut best_s = f64::MAX;
    for _ in 0..ROUNDS {
        let measured = served.measure_with(IN_FLIGHT, count, &|_| post(&made, &data))?;
        best_s = best_s.min(measured.cpu_s);
    }
    Ok(best_s)
}

/// Measures both sides, one after the other.
pub(super) fn run(report: &mut Report, folder: &Folder, scale: f64) -> Result<(), Ending> {
    let file = folder.join("http.toml");
    std::fs::write(&file, config(&folder.join("http-log.db")))?;
    let ours = Served::start(&["serve", &file.display().to_string()])?;
    let raw = folder.join("http-raw.db").display().to_string();
    let raw = Served::start(&["bench", "raw-log", "--body", &raw])?;
    let count = (REQUESTS * scale).max(640.0) as usize;
    let data = STANDARD.encode([7u8; 200]);
    let (ours_made, raw_made) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut ours_s, mut raw_s) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let measured = ours.measure_with(IN_FLIGHT, count, &|_| append(&ours_made, &data))?;
        ours_s = ours_s.min(measured.cpu_s);
        let measured = raw.measure_with(IN_FLIGHT, count, &|_| append(&raw_made, &data))?;
        raw_s = raw_s.min(measured.cpu_s);
    }
    let groups = commits(&ours)?;
    report.figure("http_append_per_cpu_s", 1.0 / ours_s);
    report.figure("http_sqlite_per_cpu_s", 1.0 / raw_s);
    report.figure(
        "http_appends_per_commit",
        ours_made.load(Ordering::Relaxed) as f64 / groups.max(1.0),
    );
    report.ratio("http_append_vs_sqlite", raw_s / ours_s);
    report.at_least(
        "durable appends over HTTP per CPU-second of the server, 64 in flight",
        1.0 / ours_s,
        APPENDS_PER_CPU_S_MIN,
    );
    report.figure("http_stream_per_cpu_s", 1.0 / streams(&ours, count)?);
    match nats::publishes_per_cpu_s(folder, count, ROUNDS)? {
        Some(theirs) => {
            report.figure("jetstream_per_cpu_s", theirs);
            report.ratio("http_append_vs_jetstream", 1.0 / ours_s / theirs);
        }
        None => report.notes.push(nats::MISSING.into()),
    }
    report.notes.push(
        "http: SQLite stands behind the same connections and commits each request by itself; it hashes and checks nothing".into(),
    );
    Ok(())
}

/// The server's own count of transactions that made appends durable.
fn commits(served: &Served) -> Result<f64, Ending> {
    let text = String::from_utf8(served.once("/metrics")?)?;
    let name = format!("{} ", replicate::metrics::LOG_COMMITS);
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    let count = line.and_then(|number| number.parse().ok());
    count.ok_or_else(|| "the server does not count its commits".into())
}

/// SQLite alone.
struct Raw {
    connection: Arc<Mutex<Connection>>,
}

impl Raw {
    fn open(path: &Path) -> Result<Self, Ending> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -65_536)?;
        connection.execute_batch(
            "CREATE TABLE blocks (position INTEGER PRIMARY KEY, feedId TEXT NOT NULL, sequence INTEGER NOT NULL,
                 actorId TEXT NOT NULL, timestamp INTEGER NOT NULL, data BLOB) STRICT;
             CREATE UNIQUE INDEX byPosition ON blocks (feedId, position);
             CREATE UNIQUE INDEX byKey ON blocks (feedId, sequence, actorId);",
        )?;
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
        })
    }
}

/// Insert the first block of a message; its position.
fn insert(connection: &Mutex<Connection>, message: &Value) -> Option<i64> {
    let block = message.get("blocks")?.get(0)?;
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let number = |name: &str| block.get(name).and_then(Value::as_i64);
    let data = STANDARD.decode(text("data")?).ok()?;
    let connection = connection.lock();
    let sql =
        "INSERT INTO blocks (feedId, sequence, actorId, timestamp, data) VALUES (?, ?, ?, ?, ?)";
    let values = params![
        text("feedId")?,
        number("sequence")?,
        text("actorId")?,
        number("timestamp")?,
        data
    ];
    connection.prepare_cached(sql).ok()?.execute(values).ok()?;
    Some(connection.last_insert_rowid())
}

impl Answers for Raw {
    async fn answer(&self, request: Request) -> Response {
        let Ok(bytes) = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        let connection = Arc::clone(&self.connection);
        let work = move || {
            let message: Value = serde_json::from_slice(&bytes).ok()?;
            let position = insert(&connection, &message)?;
            Some(
                json!({"requestId": message.get("requestId"), "positions": [position]}).to_string(),
            )
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Some(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            _ => StatusCode::BAD_REQUEST.into_response(),
        }
    }
}

/// Serves the baseline until it is ended.
pub(super) fn serve_raw(files: &[PathBuf]) -> Result<(), Ending> {
    let file = files
        .first()
        .ok_or("--body names the file of the baseline")?;
    let raw = Raw::open(file)?;
    super::super::runtime()?.block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        super::say(&format!("serving on http://{}/", listener.local_addr()?));
        let settings = crate::config::Serve::default();
        let (_running, stop) = tokio::sync::watch::channel(false);
        line::run(listener, raw, &settings, stop).await;
        Ok(())
    })
}
