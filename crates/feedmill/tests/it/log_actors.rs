//! Who writes into a replica: an actor of its own, and nothing lost where it is not.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::log_measures::shows;
use super::log_replicas::{actors, ask, serve};

/// `feedmill log` with a folder for keys.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command.arg("log").args(arguments);
    command.env("XDG_STATE_HOME", folder);
    command.env("FEEDMILL_LOG_TOKEN", "secret");
    command.env_remove("FEEDMILL_LOG_KEY");
    command
}

/// The lines of a verb that ends well.
#[track_caller]
fn lines(folder: &Path, arguments: &[&str]) -> Vec<String> {
    said(command(folder, arguments).output().unwrap())
}

#[track_caller]
fn said(output: Output) -> Vec<String> {
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

fn texts(folder: &Path, url: &str, space: &str) -> Vec<String> {
    lines(folder, &["query", "--server", url, space, "--text"])
}

const TOKEN: [(&str, &str); 1] = [("FEEDMILL_LOG_TOKEN", "secret")];

#[test]
fn every_replica_writes_as_an_actor_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let actor = |arguments: &[&str]| {
        let mut all = vec!["actor"];
        all.extend(arguments);
        lines(at, &all).remove(0)
    };
    let (one, other) = (path(at, "one.db"), path(at, "other.db"));
    let mut all = vec![
        actor(&["--file", &one]),
        actor(&["--file", &other]),
        actor(&["--server", "http://127.0.0.1:1"]),
        actor(&["--server", "http://127.0.0.1:2"]),
    ];
    assert!(all.iter().all(|actor| actor.starts_with("ed25519:")));
    assert_eq!(actor(&["--file", &one]), all[0], "and keeps it");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4);
    let written = lines(at, &["append", "--file", &one, "notes", "hello"]).remove(0);
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["actorId"], actor(&["--file", &one]));
    use std::os::unix::fs::PermissionsExt as _;
    let key = std::fs::metadata(format!("{one}.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    // A damaged key is not replaced by another in silence.
    std::fs::write(format!("{one}.key"), "nonsense").unwrap();
    let output = command(at, &["actor", "--file", &one]).output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn two_replicas_that_write_offline_under_one_name_both_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let files = [path(at, "one.db"), path(at, "other.db")];
    for file in &files {
        for text in ["first", "second"] {
            let text = format!("{text} of {}", &file[file.len() - 6..]);
            let place = ["append", "--file", file, "notes", "--feed", "f"];
            let mut arguments = place.to_vec();
            arguments.extend(["--actor", "cli", text.as_str()]);
            lines(at, &arguments);
        }
    }
    let (_server, url) = serve(at, "origin", "", &TOKEN);
    for file in [&files[0], &files[1], &files[0]] {
        lines(
            at,
            &["replicate", "--server", &url, "notes", file, "--once"],
        );
        lines(at, &["conflicts", file]);
    }
    let first = ["first of one.db", "second of one.db"];
    let second = ["first of her.db", "second of her.db"];
    assert_eq!(texts(at, &url, "notes"), [first, second].concat());
    for file in &files {
        let verified = lines(at, &["verify", file]).remove(0);
        let verified: Value = serde_json::from_str(&verified).unwrap();
        assert_eq!(
            (&verified["blocks"], &verified["damaged"]),
            (&json!(4), &json!(0))
        );
    }
}

#[test]
fn a_signed_block_that_lost_its_key_is_listed_until_it_is_dealt_with() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let files = [path(at, "one.db"), path(at, "other.db")];
    for (file, text) in files.iter().zip(["mine", "lost"]) {
        let mut append = command(
            at,
            &["append", "--file", file, "notes", "--feed", "f", text],
        );
        said(
            append
                .env("FEEDMILL_LOG_KEY", "07".repeat(32))
                .output()
                .unwrap(),
        );
    }
    let (_server, url) = serve(at, "origin", "", &TOKEN);
    let once = |file: &str| {
        let arguments = ["replicate", "--server", &url, "notes", file, "--once"];
        command(at, &arguments).output().unwrap()
    };
    said(once(&files[0]));
    let output = once(&files[1]);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complained.contains("log conflicts"),
        "{complained}"
    );
    assert_eq!(texts(at, &url, "notes"), ["mine"]);

    let conflicts = |more: &[&str]| {
        let mut arguments = vec!["conflicts", files[1].as_str()];
        arguments.extend(more);
        command(at, &arguments).output().unwrap()
    };
    let output = conflicts(&[]);
    assert!(!output.status.success());
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&listed["error"], &listed["data"], &listed["isSigned"]),
        (&json!("conflict"), &json!("bG9zdA=="), &json!(true))
    );
    assert!(conflicts(&["--space", "another"]).status.success());
    assert!(conflicts(&["--forget"]).status.success());
    assert!(conflicts(&[]).status.success());
}

/// What is written into the file of a replica that runs is sent at once, and what loses is counted.
#[tokio::test]
async fn a_running_replica_sends_what_is_written_into_its_file_and_counts_what_loses() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (_first, origin) = serve(at, "first", "", &TOKEN);
    let file = path(at, "second.db");
    let append = |place: [&str; 2], who: Option<&str>, text: &str| {
        let mut all = vec!["append", place[0], place[1], "one", "--feed", "f", text];
        all.extend(who.map_or(vec![], |actor| vec!["--actor", actor]));
        let mut append = command(at, &all);
        if who.is_none() {
            append.env("FEEDMILL_LOG_KEY", "07".repeat(32));
        }
        said(append.output().unwrap());
    };
    for (place, text) in [
        (["--server", &origin], "theirs"),
        (["--file", &file], "ours"),
    ] {
        append(place, Some("twin"), text);
        append(place, None, text);
    }
    let replicas = format!(
        "[[log.replicate]]\nlog = \"{origin}/log/one\"\ntoken_env = \"FEEDMILL_LOG_TOKEN\"\n"
    );
    let (_second, replica) = serve(at, "second", &replicas, &TOKEN);
    assert_eq!(actors(&origin, "one", 3).await[2], "twin");
    assert_eq!(texts(at, &origin, "one"), ["theirs", "theirs", "ours"]);
    shows(&replica, "feedmill_log_blocks_reissued_total", 1.0).await;
    shows(&replica, "feedmill_log_blocks_aside", 1.0).await;
    append(["--file", &file], Some("late"), "more");
    assert_eq!(actors(&origin, "one", 4).await[3], "late");
    let page = ask(&origin, "one/query", &json!({"requestId": 1, "cursor": 3})).await;
    assert_eq!(page["blocks"][0]["predActorId"], "twin");
}
