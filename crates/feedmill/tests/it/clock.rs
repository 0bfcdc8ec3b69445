//! Records that were stored under a wrong clock get their right places by one command.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use feedmill::check::{Checker, Claim};
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::store::{self, Batch, Commit, Item, Op};
use record::tid::Tid;
use serde_json::json;

use crate::app::App;
use crate::retime::{AUTHOR, READER, config, orders};

const MINUTE_US: i64 = 60_000_000;
const YEAR_US: i64 = 365 * 24 * 60 * MINUTE_US;
const POSTS: i64 = 60;

/// When the clock was wrong.
const WRONG: std::ops::Range<i64> = 20..45;

fn store_url(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("store.db").display())
}

fn key(time_us: i64) -> String {
    let tid = Tid::new(time_us.cast_unsigned(), 0);
    String::from_utf8(tid.to_text().to_vec()).unwrap()
}

/// Stores a post a minute, some of them under a clock that is `error_us` off.
fn fill(folder: &Path, config: &str, begun_us: i64, error_us: i64) {
    let mut config = Config::parse(config).unwrap();
    config.store.url = store_url(folder);
    let store = store::open(&config).unwrap();
    let checker = Checker::new(&config, Arc::clone(store.plan()), &[]).unwrap();
    let put = |now_us: i64, did: &str, collection: &str, rkey: &str, body: serde_json::Value| {
        let rev = now_us.cast_unsigned();
        let claim = Claim {
            did,
            collection,
            rkey,
            rev,
        };
        let op = Op {
            collection: collection.to_owned(),
            rkey: rkey.to_owned(),
            verdict: checker.json(claim, None, &body.to_string()),
        };
        let commit = Commit {
            did: did.to_owned(),
            rev,
            chain: None,
            filtered: 0,
            ops: vec![op],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        };
        let batch = Batch {
            source: "test".into(),
            cursor: None,
            now_us,
            items: vec![Item::Commit(commit)],
        };
        assert_eq!(store.commit(batch).unwrap().accounting.applied, 1);
    };
    for (rkey, subject) in [("1", AUTHOR), ("2", "birds")] {
        let body = json!({ "subject": subject });
        put(begun_us, READER, "com.example.follow", rkey, body);
    }
    for n in 0..POSTS {
        let time_us = begun_us + n * MINUTE_US;
        let body = json!({
            "text": "some words", "topic": "birds",
            "createdAt": record::datetime::format_us(time_us),
        });
        let clock_us = time_us + if WRONG.contains(&n) { error_us } else { 0 };
        put(clock_us, AUTHOR, "com.example.post", &key(time_us), body);
    }
}

fn repair(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .args(["repair-clock"])
        .arg(folder.join("feedmill.toml"))
        .args(["--database-url", &store_url(folder)])
        .args(more)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn check(time: &str, error_us: i64) {
    let config = config(time);
    let begun_us = Clock::Wall.now_us() - (POSTS + 1) * MINUTE_US;
    let names = (0..POSTS).rev();
    let names: Vec<String> = names.map(|n| key(begun_us + n * MINUTE_US)).collect();
    let list = "/xrpc/com.example.post.listRecords?limit=100";
    let listed = |app: &App| -> Vec<(String, i64)> {
        let (_, page) = app.get(list);
        let records = page["records"].as_array().unwrap().iter();
        let entry = |record: &serde_json::Value| {
            let uri = record["uri"].as_str().unwrap();
            let name = uri.rsplit('/').next().unwrap().to_owned();
            (name, record["time_us"].as_i64().unwrap())
        };
        records.map(entry).collect()
    };
    let mut app = App::start_filled(&config, &[], |folder| {
        fill(folder, &config, begun_us, error_us);
    });
    let right: Vec<(String, i64)> = names
        .iter()
        .map(|name| {
            let time_us = Tid::parse(name).unwrap().micros();
            (name.clone(), time_us.cast_signed())
        })
        .collect();
    assert_ne!(listed(&app), right, "the clock was wrong");

    let refused = repair(app.folder(), &[]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("stop every process"), "{refused:?}");
    let wrong = listed(&app);
    app.restart_after(|folder| {
        let found = repair(folder, &["--dry-run"]);
        let way = if error_us > 0 { "ahead" } else { "behind" };
        let off = format!("by a clock that was {} s {way}", YEAR_US / 1_000_000);
        assert!(said(&found).contains("25 records"), "{found:?}");
        assert!(said(&found).contains(&off), "{found:?}");
    });
    assert_eq!(listed(&app), wrong, "a dry run changes nothing");
    app.restart_after(|folder| {
        let done = repair(folder, &[]);
        assert!(done.status.success(), "{done:?}");
        assert!(said(&done).contains("25 records"), "{done:?}");
        let again = repair(folder, &[]);
        assert!(said(&again).contains("no records"), "{again:?}");
    });
    assert_eq!(listed(&app), right);
    orders(&app, &names);
}

#[test]
fn records_stored_by_a_slow_clock_get_their_right_places_by_one_command() {
    check("\"createdAt\"", -YEAR_US);
}

#[test]
fn first_sights_of_a_slow_clock_are_repaired() {
    check("false", -YEAR_US);
}

#[test]
fn first_sights_of_a_fast_clock_are_repaired() {
    check("false", YEAR_US);
}
