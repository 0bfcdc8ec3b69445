//! `feedmill log` against a running server: what a person types, and what comes back.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::peers::Demo;

/// A server with a log, and the folder it lives in.
struct Served {
    folder: tempfile::TempDir,
    url: String,
    _server: Demo,
}

fn served() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    let text = "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
                [log]\nfile = \"log.db\"\nread = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n[serve]\nbind = \"127.0.0.1:0\"\n";
    std::fs::write(&file, text).unwrap();
    let server = Demo::start(&["serve", file.to_str().unwrap()], "serving on ");
    let url = server.word("serving on ").trim_end_matches('/').to_owned();
    Served {
        folder,
        url,
        _server: server,
    }
}

impl Served {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        let (verb, rest) = arguments.split_first().unwrap();
        command.args(["log", verb]);
        let is_local = ["verify", "conflicts"].contains(verb) || rest.contains(&"--file");
        if !is_local {
            command.args(["--server", &self.url]);
        }
        command.args(rest).env_remove("FEEDMILL_LOG_KEY");
        command.env("XDG_STATE_HOME", self.folder.path());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The lines of a verb that ends well.
    #[track_caller]
    fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.output(arguments);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complained}");
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines().map(str::to_owned).collect()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn what_is_appended_is_listed_and_read_back() {
    let served = served();
    assert_eq!(
        served.lines(&["append", "notes", "--feed", "f", "--namespace", "n", "one"]),
        ["1"]
    );
    assert_eq!(
        served.lines(&["append", "notes", "--feed", "f", "two"]),
        ["2"]
    );
    let mut child = served
        .command(&["append", "notes", "--feed", "g", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\nc\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\n4\n5\n");
    let text = |arguments: &[&str]| {
        let mut all = vec!["query", "notes", "--text"];
        all.extend(arguments);
        served.lines(&all)
    };
    assert_eq!(text(&[]), ["one", "two", "a", "b", "c"]);
    assert_eq!(text(&["--feed", "g", "--limit", "2"]), ["a", "b"]);
    assert_eq!(text(&["--after", "4"]), ["c"]);
    let blocks = served.lines(&["query", "notes", "--feed", "f"]);
    let second: Value = serde_json::from_str(&blocks[1]).unwrap();
    assert_eq!(
        (&second["sequence"], &second["predSequence"]),
        (&2.into(), &1.into())
    );
    let feeds = served.lines(&["list", "notes"]);
    assert_eq!(feeds.len(), 2);
    assert!(feeds[0].contains("\"feedId\":\"f\"") && feeds[0].contains("\"namespace\":\"n\""));
    assert_eq!(
        served.lines(&["list", "notes", "--namespace", "n"]).len(),
        1
    );
}

#[test]
fn many_who_append_to_one_feed_at_once_lose_nothing() {
    let served = served();
    let children: Vec<_> = (0..6)
        .map(|number| {
            let text = format!("block {number}");
            served
                .command(&["append", "busy", "--feed", "f", &text])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let mut told = served.lines(&["query", "busy", "--text"]);
    told.sort();
    let expected: Vec<String> = (0..6).map(|number| format!("block {number}")).collect();
    assert_eq!(told, expected);
}

#[test]
fn a_key_signs_and_a_file_is_replicated_and_verified() {
    let served = served();
    let key = "07".repeat(32);
    let output = served
        .command(&["append", "signed", "mine"])
        .env("FEEDMILL_LOG_KEY", &key)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    served.lines(&["append", "signed", "--feed", "f", "another"]);
    let block = served.lines(&["query", "signed", "--limit", "1"]).remove(0);
    assert!(block.contains("\"signature\""), "{block}");
    let copy = served.path("copy.db");
    let said = served.lines(&["replicate", "signed", &copy, "--once"]);
    assert_eq!(said, ["{\"maxPosition\":2,\"space\":\"signed\"}"]);
    let said = served.lines(&["verify", &copy]);
    assert_eq!(said, ["{\"blocks\":2,\"damaged\":0,\"space\":\"signed\"}"]);
    let file = rusqlite::Connection::open(&copy).unwrap();
    file.execute("UPDATE blocks SET data = x'00' WHERE position = 2", [])
        .unwrap();
    let output = served.output(&["verify", &copy]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"damage\":\"hash\""), "{said}");
}

#[test]
fn a_replica_leaves_out_what_it_is_told_to_whatever_the_space_is_called() {
    let (served, space) = (served(), "odd / name? 100%");
    served.lines(&["append", space, "--feed", "f", "one"]);
    served.lines(&["append", space, "--feed", "g", "two"]);
    let blocks = |name: &str, arguments: &[&str]| {
        let file = served.path(name);
        let mut all = vec!["replicate", space, &file, "--once"];
        all.extend(arguments);
        served.lines(&all);
        let said = served.lines(&["verify", &file]).remove(0);
        let said: Value = serde_json::from_str(&said).unwrap();
        said["blocks"].as_u64().unwrap()
    };
    assert_eq!(blocks("all.db", &[]), 2);
    assert_eq!(blocks("without.db", &["--without", "g"]), 1);
    assert_eq!(blocks("from.db", &["--from", "2"]), 1);
    assert_eq!(blocks("since.db", &["--since", "0"]), 2);
    assert_eq!(blocks("later.db", &["--since", "9007199254740991"]), 0);
}

#[test]
fn tail_prints_what_comes_after_it_began() {
    let served = served();
    served.lines(&["append", "live", "--feed", "f", "before"]);
    let mut tail = served
        .command(&["tail", "live", "--text", "--after", "1", "--limit", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    served.lines(&["append", "live", "--feed", "f", "first"]);
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    served.lines(&["append", "live", "--feed", "f", "second"]);
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    assert!(tail.wait().unwrap().success());
}

/// As `feedmill log tail … | head -1` does it.
#[test]
fn tail_ends_quietly_when_nobody_listens_any_more() {
    let served = served();
    for text in ["one", "two", "three"] {
        served.lines(&["append", "live", "--feed", "f", text]);
    }
    let mut tail = served
        .command(&["tail", "live", "--text", "--after", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(tail.stdout.take());
    let ended = tail.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}

/// As with `> file` on a disk that is full: what could not be written was not said.
#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let served = served();
    served.lines(&["append", "notes", "--feed", "f", "one"]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ended = served
        .command(&["query", "notes", "--text"])
        .stdout(full.expect("Linux has a full device"))
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{complained}");
    assert!(complained.contains("space"), "{complained}");
}

#[test]
fn what_cannot_be_done_is_said_with_its_code() {
    let served = served();
    let output = served.output(&["query", "nowhere"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unknownSpace"), "{said}");
    let output = served.output(&["verify", &served.path("no such file")]);
    assert!(!output.status.success());
}
