//! `bench restart`: from the start of a process to its first exact page.
//!
//! The server is the real one, with timelines to load. The baseline is this binary too: it opens
//! the same file, reads the same page from the store, and ends. Both are started anew for each
//! round, by turns, and timed from the start of the process: waiting is what a restart costs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::deep::{self, CONFIG};
use super::folder::Folder;
use super::load::Served;
use super::meter::middle;
use super::{Ending, Report, say, scaled};
use crate::config::Config;
use crate::store;

const RECORDS: usize = 5_000_000;
/// How much smaller the other store is.
const SMALLER: usize = 10;
const ROUNDS: usize = 9;
const LIMIT: usize = 50;

/// Seconds of one store's restarts.
struct Measured {
    start_s: f64,
    open_s: f64,
    /// Until timelines answered, in the last round.
    loaded_s: f64,
}

pub(super) fn run(scale: f64) -> Result<Report, Ending> {
    let records = scaled(RECORDS, scale);
    let small = measure(records / SMALLER)?;
    let large = measure(records)?;
    let mut report = Report {
        workload: format!(
            "{records} and {} records in SQLite; a page of {LIMIT} over HTTP from a process just started, {ROUNDS} rounds, middle of each",
            records / SMALLER
        ),
        ..Report::default()
    };
    report.figure("start_ms", large.start_s * 1e3);
    report.figure("open_ms", large.open_s * 1e3);
    report.figure("small_start_ms", small.start_s * 1e3);
    report.figure("loaded_s", large.loaded_s);
    report.ratio("vs_open", large.start_s / large.open_s);
    report.ratio("growth", large.start_s / small.start_s);
    report.at_most("times the baseline", large.start_s / large.open_s, 5.0);
    report.at_most("times the small store", large.start_s / small.start_s, 2.0);
    report.notes.push(
        "every page was compared with the store's; loaded_s is when timelines answered from memory"
            .into(),
    );
    Ok(report)
}

fn measure(records: usize) -> Result<Measured, Ending> {
    let folder = Folder::new(&format!("restart-{records}"))?;
    let file = folder.join("feedmill.toml");
    let text = format!(
        "{CONFIG}[store]\nurl = \"sqlite://{}/store.db\"\n[serve]\nbind = \"127.0.0.1:0\"\n",
        folder.display()
    );
    std::fs::write(&file, &text)?;
    let config = Config::parse(&text)?;
    let store = store::open(&config)?;
    deep::fill(&*store, &mut |_, _, _| Ok(()), records)?;
    drop(store);
    let (mut starts, mut opens, mut loaded_s) = (Vec::new(), Vec::new(), 0.0);
    for round in 1..=ROUNDS {
        let (open_s, expected) = open(&file)?;
        let begun = Instant::now();
        let server = Served::start(&["serve", path(&file)?])?;
        let page = server.once(&request())?;
        starts.push(begun.elapsed().as_secs_f64());
        opens.push(open_s);
        if uris(&page)? != expected {
            return Err("the first page is not the store's".into());
        }
        if round == ROUNDS {
            while is_loading(&server)? {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            loaded_s = begun.elapsed().as_secs_f64();
        }
    }
    Ok(Measured {
        start_s: middle(starts.into_iter()),
        open_s: middle(opens.into_iter()),
        loaded_s,
    })
}

fn path(file: &Path) -> Result<&str, Ending> {
    Ok(file.to_str().ok_or("a path that is not text")?)
}

fn request() -> String {
    format!(
        "/xrpc/com.example.getFeed?feed=timeline&actor={}&limit={LIMIT}",
        deep::did(0)
    )
}

fn uris(page: &[u8]) -> Result<Vec<String>, Ending> {
    let page: Value = serde_json::from_slice(page)?;
    let records = page.get("records").and_then(Value::as_array);
    let records = records.ok_or("a page without records")?;
    let uri = |entry: &Value| Some(entry.get("uri")?.as_str()?.to_owned());
    Ok(records.iter().filter_map(uri).collect())
}

fn is_loading(server: &Served) -> Result<bool, Ending> {
    let status: Value = serde_json::from_slice(&server.once("/status")?)?;
    let loading = status.pointer("/timelines/loading");
    Ok(loading.is_some_and(|loading| !loading.is_null()))
}

/// Runs the baseline; its seconds and the page it read.
fn open(file: &Path) -> Result<(f64, Vec<String>), Ending> {
    let begun = Instant::now();
    let output = Command::new(std::env::current_exe()?)
        .args(["bench", "open", "--body", path(file)?])
        .stderr(Stdio::inherit())
        .output()?;
    let open_s = begun.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err("the baseline failed".into());
    }
    let page = String::from_utf8(output.stdout)?;
    Ok((open_s, page.lines().map(str::to_owned).collect()))
}

/// The baseline: opens the store of a configuration and prints the URIs of the page.
pub(super) fn print_page(files: &[std::path::PathBuf]) -> Result<(), Ending> {
    let config = Config::load(files.first().ok_or("name a configuration with --body")?)?;
    let store = store::attach(&config)?;
    let mut query = deep::query(store.plan())?;
    query.limit = LIMIT;
    for row in store.feed(&query)?.rows {
        say(&row.uri);
    }
    Ok(())
}
