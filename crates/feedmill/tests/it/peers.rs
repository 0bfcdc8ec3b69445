//! Unrelated implementations read what `sim` writes.
//!
//! The scripts are in `tests/peers`; their packages come from npm, installed
//! outside the clone by `tests/peers/install`, which `./check` runs.
//! `FEEDMILL_NO_PEERS=1` leaves these tests out, loudly.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// The binary, running until it is stopped or dropped.
pub(crate) struct Demo {
    child: Child,
    said: Vec<String>,
}

impl Demo {
    /// Starts the binary and reads what it says up to a line that begins with `until`.
    pub(crate) fn start(arguments: &[&str], until: &str) -> Self {
        Self::start_in(&[], arguments, until)
    }

    /// The same with more in its environment.
    pub(crate) fn start_in(environment: &[(&str, &str)], arguments: &[&str], until: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        while !said
            .last()
            .is_some_and(|line: &String| line.starts_with(until))
        {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("it ended before {until:?}: {said:?}"));
            said.push(line.unwrap());
        }
        // What it says from now on is read and dropped, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, said }
    }

    /// The word after `label`.
    pub(crate) fn word(&self, label: &str) -> String {
        let line = self.said.iter().find_map(|line| line.strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label:?} in {:?}", self.said))
            .trim()
            .to_owned()
    }

    /// Asks it to stop, as a service manager would; it must end well.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        let status = self.child.wait().unwrap();
        assert!(
            status.success(),
            "it was asked to stop and ended with {status}"
        );
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Where `tests/peers/install` puts its packages.
fn packages() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = from("FEEDMILL_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("feedmill")))
        .or_else(|| Some(from("HOME")?.join(".cache/feedmill")));
    cache.expect("HOME is set").join("peers")
}

/// Runs a script of `tests/peers` and returns the JSON line it prints; `None`
/// where peers are left out on purpose.
pub(crate) fn node(script: &str, arguments: &[&str]) -> Option<Value> {
    if std::env::var_os("FEEDMILL_NO_PEERS").is_some_and(|value| value == "1") {
        println!("\n*** FEEDMILL_NO_PEERS=1: {script} WAS NOT RUN ***\n");
        return None;
    }
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers");
    let wanted = std::fs::read(peers.join("package-lock.json")).unwrap();
    let installed = std::fs::read(packages().join("installed-lock.json")).ok();
    assert!(
        installed == Some(wanted),
        "the packages of tests/peers are not installed in {}: run tests/peers/install (needs node and npm; \
         the page also needs chromium), or set FEEDMILL_NO_PEERS=1 to leave these tests out",
        packages().display()
    );
    // Node looks for packages beside the script, so the script goes to the packages.
    let folder = tempfile::tempdir_in(packages()).unwrap();
    for entry in std::fs::read_dir(&peers).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "mjs") {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let output = Command::new("node")
        .arg(folder.path().join(script))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("node cannot be run: {error}; install nodejs 20 or newer"));
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{script}: {}\n{said}\n{complained}",
        output.status
    );
    println!("{script}: {}", said.trim());
    Some(serde_json::from_str(said.trim()).expect("the script prints one JSON line"))
}

#[test]
fn repositories_and_frames_of_sim_are_read_by_an_unrelated_implementation() {
    let sim = Demo::start(
        &[
            "sim",
            "serve",
            "--accounts",
            "200",
            "--rate",
            "300",
            "--seed",
            "7",
        ],
        "did:web ",
    );
    let (relay, pds) = (sim.word("relay "), sim.word("pds "));
    let (plc, web) = (sim.word("plc "), sim.word("did:web "));
    let Some(found) = node("network.mjs", &[&relay, &pds, &plc, &web, "40", "2000"]) else {
        return;
    };
    sim.stop();
    // The script asserts that all of it is right; here, that there was something to be right about.
    assert_eq!(found["repositories"], 40);
    assert_eq!(found["frames"], 2000);
    let more = |pointer: &str, than: i64| {
        let count = found
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or_default();
        assert!(
            count > than,
            "{pointer} is {count}, expected more than {than}: {found}"
        );
    };
    more("/records", 500);
    more("/undone", 500);
    more("/signatures/p256", 20);
    more("/signatures/secp256k1", 200);
    more("/kinds/#identity", 100);
    more("/kinds/#account", 100);
}
