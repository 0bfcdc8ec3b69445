//! Spaces from the command line and in `/status`; what a replica sends and what it does not.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::life::free_port;
use super::log_replicas::{ask, serve};
use super::peers::Demo;

const TOKEN: [(&str, &str); 1] = [("FEEDMILL_LOG_TOKEN", "secret")];

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command.arg("log").args(arguments);
    command.env("XDG_STATE_HOME", folder);
    command.env("FEEDMILL_LOG_TOKEN", "secret");
    command.env_remove("FEEDMILL_LOG_KEY");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// The first line of a verb that ends well, as JSON.
#[track_caller]
fn said(folder: &Path, arguments: &[&str]) -> Value {
    let output = run(folder, arguments);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complained}");
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap_or("null");
    serde_json::from_str(first).unwrap()
}

/// A verb ends badly, for this reason.
#[track_caller]
fn fails(output: &Output, reason: &str) {
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{complained}");
    assert!(complained.contains(reason), "{complained}");
}

#[test]
fn spaces_are_created_purged_and_deleted_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (_server, url) = serve(at, "origin", "", &TOKEN);
    let log = |verb: &str, rest: &[&str]| {
        let all: Vec<&str> = [verb, "--server", &url]
            .iter()
            .chain(rest)
            .copied()
            .collect();
        said(at, &all)
    };
    assert_eq!(log("create", &["notes"])["changed"], 1);
    assert_eq!(log("create", &["notes"])["changed"], 0, "it is there");
    log("append", &["notes", "--feed", "f", "secret words"]);
    log("append", &["notes", "--feed", "g", "other words"]);
    assert_eq!(log("purge", &["notes", "f"])["changed"], 1);
    let block = log("query", &["notes"]);
    assert!(
        block["data"].is_null() && block["purged"]["bytes"] == 12,
        "{block}"
    );
    assert_eq!(log("delete", &["notes"])["changed"], 2);
    for rest in [
        &["append", "--server", &url, "notes", "again"][..],
        &["query", "--server", &url, "notes"][..],
    ] {
        fails(&run(at, rest), "spaceDeleted");
    }
    assert_eq!(log("create", &["notes"])["changed"], 1);
    assert_eq!(
        log("append", &["notes", "again"]),
        1,
        "positions begin again"
    );
}

#[test]
fn what_a_replica_leaves_out_is_not_written_to_it_and_does_not_keep_it_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (_server, url) = serve(at, "origin", "", &TOKEN);
    let file = at.join("copy.db").to_str().unwrap().to_owned();
    let append = |feed: &str| {
        run(
            at,
            &["append", "--file", &file, "notes", "--feed", feed, "hello"],
        )
    };
    assert!(append("g").status.success(), "nothing is set yet");
    let replicate = [
        "replicate",
        "--server",
        &url,
        "notes",
        &file,
        "--without",
        "g",
        "--once",
    ];
    let line = said(at, &replicate);
    assert_eq!(
        (&line["maxPosition"], &line["waitingNotReplicated"]),
        (&json!(0), &json!(1))
    );
    fails(&append("g"), "notReplicated");
    assert!(append("f").status.success());
    assert_eq!(said(at, &replicate)["maxPosition"], 1);
}

#[test]
fn once_ends_with_the_reason_where_the_server_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (_server, url) = serve(at, "origin", "read = \"anyone\"\n", &TOKEN);
    assert!(
        run(at, &["append", "--server", &url, "notes", "theirs"])
            .status
            .success()
    );
    let file = at.join("copy.db").to_str().unwrap().to_owned();
    let replicate = ["replicate", "--server", &url, "notes", &file, "--once"];
    assert_eq!(said(at, &replicate)["maxPosition"], 1);
    assert!(
        run(at, &["append", "--file", &file, "notes", "ours"])
            .status
            .success()
    );
    let output = command(at, &replicate)
        .env_remove("FEEDMILL_LOG_TOKEN")
        .output()
        .unwrap();
    fails(&output, "unauthorized");
    assert_eq!(
        said(at, &replicate)["maxPosition"],
        2,
        "it was kept, and is sent"
    );
}

#[test]
fn what_was_refused_can_be_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (_server, url) = serve(at, "origin", "block_bytes_max = 4\n", &TOKEN);
    let file = at.join("copy.db").to_str().unwrap().to_owned();
    for text in ["too long", "ok"] {
        let append = [
            "append", "--file", &file, "notes", "--feed", "f", "--actor", "ada", text,
        ];
        assert!(run(at, &append).status.success());
    }
    let replicate = ["replicate", "--server", &url, "notes", &file, "--once"];
    fails(&run(at, &replicate), "log conflicts");
    let conflicts = |more: &[&str]| {
        let all: Vec<&str> = ["conflicts", &file].iter().chain(more).copied().collect();
        run(at, &all)
    };
    fails(&conflicts(&["--forget"]), "1 blocks");
    let dropped = conflicts(&["--discard"]);
    assert!(dropped.status.success(), "{dropped:?}");
    assert!(
        String::from_utf8_lossy(&dropped.stdout).contains("tooLarge"),
        "it is printed first"
    );
    assert!(conflicts(&[]).status.success());
    // Its sequence stays used: what comes next has another.
    let next = said(
        at,
        &[
            "append", "--file", &file, "notes", "--feed", "f", "--actor", "ada", "end",
        ],
    );
    assert_eq!(next["sequence"], 3);
    assert_eq!(said(at, &replicate)["maxPosition"], 2);
}

#[test]
fn tail_goes_on_where_it_was_when_the_server_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = at.join("feedmill.toml");
    let bind = format!("127.0.0.1:{}", free_port());
    let text = format!(
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n[log]\nfile = \"log.db\"\n[serve]\nbind = \"{bind}\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let start = || Demo::start_in(&TOKEN, &["serve", file.to_str().unwrap()], "serving on ");
    let url = format!("http://{bind}");
    let append = |text: &str| {
        said(
            at,
            &["append", "--server", &url, "live", "--feed", "f", text],
        )
    };
    let server = start();
    append("one");
    let tail = [
        "tail", "--server", &url, "live", "--text", "--after", "0", "--limit", "3",
    ];
    let mut tail = command(at, &tail)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut complaints = BufReader::new(tail.stderr.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    server.stop();
    complaints.next().unwrap().unwrap(); // it has noticed
    let server = start();
    append("two");
    assert_eq!(lines.next().unwrap().unwrap(), "two", "and nothing twice");
    append("three");
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    assert!(tail.wait().unwrap().success());
    server.stop();
}

#[tokio::test]
async fn status_shows_the_spaces_that_anybody_may_read_and_counts_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (_first, origin) = serve(folder.path(), "first", "", &TOKEN);
    let block = json!({"actorId": "ada", "sequence": 1, "timestamp": 1, "data": "eA=="});
    let append = json!({"requestId": 1, "blocks": [block]});
    ask(&origin, "shared/append", &append).await;
    let log = format!(
        "read = \"anyone\"\n[log.spaces.secret]\nread = \"token\"\n[[log.replicate]]\nlog = \"{origin}/log/shared\"\ntoken_env = \"FEEDMILL_LOG_TOKEN\"\n"
    );
    let (_second, url) = serve(folder.path(), "second", &log, &TOKEN);
    for space in ["notes", "secret"] {
        let answer = ask(&url, &format!("{space}/append"), &append).await;
        assert_eq!(answer["positions"], json!([1]), "{answer}");
    }
    super::log_replicas::actors(&url, "shared", 1).await;
    let status: Value = reqwest::get(format!("{url}/status"))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let space = |name: &str, role: &str| json!({"space": name, "role": role, "position": 1, "feeds": 1, "bytes": 129});
    let expected = json!({
        "spaces": [space("notes", "authority"), space("shared", "replica")], "others": 1, "aside": 0,
    });
    assert_eq!(status["log"], expected);
}
