//! Backups: made while the files are written to, put back, and compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use feedmill::backup::{self, BackupError, Kind, Progress};
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::labels::Labels;
use feedmill::search::SearchIndex;
use replicate::sqlite::SqliteLog;
use rusqlite::Connection;
use rusqlite::types::Value;
use sim::network::NetworkOptions;

use crate::bed;
use crate::desk::{ALICE, Desk};
use crate::life::{Home, Life};
use crate::two_processes::equal;

const LABELER: &str = "did:web:labeler.test";
const NOW_US: i64 = 1_790_000_000_000_000;

/// A configuration that uses every file, all of them in one folder.
fn config(folder: &Path) -> Config {
    let text = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         searchable = [\"text\"]\n[[labels.source]]\ndid = \"{LABELER}\"\n\
         [store]\nurl = \"sqlite://{}\"\n[log]\nfile = {:?}\n",
        folder.join("feedmill.db").display(),
        folder.join("log.db"),
    );
    Config::parse(&text).unwrap()
}

fn post(desk: &Desk, number: usize) {
    let body = format!(
        r#"{{"text": "{}", "createdAt": "2026-01-01T00:00:00Z"}}"#,
        "word ".repeat(400)
    );
    desk.put(ALICE, "post", &format!("p{number}"), &body);
}

/// Every row of every table that can be read plainly.
fn rows(file: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let connection = Connection::open(file).unwrap();
    let sound: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name";
    let mut names = connection.prepare(sql).unwrap();
    let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let table = |name: String| {
        let mut all = connection
            .prepare(&format!("SELECT * FROM \"{name}\""))
            .unwrap();
        let columns = all.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
        let rows = all.query_map([], row).unwrap();
        (name, rows.map(Result::unwrap).collect())
    };
    names.map(|name| table(name.unwrap())).collect()
}

struct Site {
    folder: tempfile::TempDir,
    desk: Desk,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let desk = Desk::of(config(folder.path()));
        (0..200).for_each(|number| post(&desk, number));
        SearchIndex::open(&desk.config).unwrap().unwrap();
        let labels = Labels::open(&desk.config).unwrap().unwrap();
        labels.keep(LABELER, 42, &[]).unwrap();
        SqliteLog::open(desk.config.log.file.as_ref().unwrap()).unwrap();
        Self { folder, desk }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn back_up(&self, name: &str) -> Result<backup::Manifest, BackupError> {
        backup::back_up(&self.desk.config, &self.path(name), NOW_US, &mut |_| {})
    }
}

#[test]
fn a_backup_under_load_is_of_one_moment_copies_each_page_once_and_can_be_restored() {
    let site = Site::new();
    let before = rows(&site.path("feedmill.db"));
    let mut reports: Vec<Progress> = Vec::new();
    let made = backup::back_up(
        &site.desk.config,
        &site.path("copy"),
        NOW_US,
        &mut |progress| {
            // SQLite's own backup begins again after each of these.
            post(&site.desk, 1000 + reports.len());
            reports.push(progress);
            assert!(reports.len() < 10_000, "it never ends");
        },
    )
    .unwrap();
    let kinds: Vec<Kind> = made.files.iter().map(|file| file.kind).collect();
    assert_eq!(kinds, Kind::ALL);
    for kind in Kind::ALL {
        let of_kind: Vec<&Progress> = reports.iter().filter(|it| it.kind == kind).collect();
        assert!(
            of_kind.is_sorted_by(|a, b| a.bytes < b.bytes),
            "{of_kind:?}"
        );
        let file = std::fs::metadata(site.path("copy").join(format!("{}.db", kind.name())));
        let last = of_kind.last().unwrap();
        assert_eq!((last.bytes, last.total), (file.unwrap().len(), last.bytes));
    }
    let of_store = reports.iter().filter(|it| it.kind == Kind::Store).count();
    assert!(
        of_store > 10,
        "nothing was written while the store was copied"
    );
    // The labels came first, so the store's copy holds what was written during the others.
    let written = reports
        .iter()
        .position(|it| it.kind == Kind::Store)
        .unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let restored = config(&elsewhere.path().join("not/there/yet"));
    assert_eq!(
        backup::restore(&restored, &site.path("copy"), &mut |_| {}).unwrap(),
        made
    );
    let store = rows(&elsewhere.path().join("not/there/yet/feedmill.db"));
    assert_eq!(store["record"].len(), before["record"].len() + written);
    for name in ["feedmill.search.db", "feedmill.labels.db", "log.db"] {
        let copy = rows(&elsewhere.path().join("not/there/yet").join(name));
        assert_eq!(copy, rows(&site.path(name)), "{name}");
    }
    let desk = Desk::of(restored);
    let labels = Labels::open(&desk.config).unwrap().unwrap();
    assert_eq!(labels.cursor(LABELER).unwrap(), 42);
    assert!(desk.has(ALICE, "post", "p199"));
    desk.accounting();
}

#[test]
fn nothing_that_exists_is_overwritten() {
    let site = Site::new();
    site.back_up("copy").unwrap();
    let exists = |result: Result<backup::Manifest, BackupError>, path: PathBuf| match result {
        Err(BackupError::Exists(found)) => assert_eq!(found, path),
        other => panic!("{other:?}"),
    };
    exists(site.back_up("copy"), site.path("copy"));
    std::fs::create_dir(site.path("other.partial")).unwrap();
    exists(site.back_up("other"), site.path("other.partial"));
    let restore = |config: &Config| backup::restore(config, &site.path("copy"), &mut |_| {});
    exists(restore(&site.desk.config), site.path("feedmill.labels.db"));
    // A log of changes that was left behind would be applied to the restored file.
    let elsewhere = tempfile::tempdir().unwrap();
    let left = elsewhere.path().join("feedmill.db-wal");
    std::fs::write(&left, "").unwrap();
    exists(restore(&config(elsewhere.path())), left);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[test]
fn a_backup_that_is_incomplete_damaged_or_newer_is_refused_and_nothing_is_written() {
    let site = Site::new();
    let made = site.back_up("copy").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = || {
        let config = config(elsewhere.path());
        let error = backup::restore(&config, &site.path("copy"), &mut |_| {}).unwrap_err();
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        error.to_string()
    };
    let copy = site.path("copy/store.db");
    let whole = std::fs::read(&copy).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&copy, damaged).unwrap();
    assert!(refused().contains("store.db is damaged"), "{}", refused());
    std::fs::write(&copy, whole).unwrap();

    let manifest = site.path("copy/backup.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let newer = text.replace("\"format\": 1", "\"format\": 2, \"more\": 1");
    std::fs::write(&manifest, newer.replace(&made.version, "99.0")).unwrap();
    assert!(refused().contains("99.0"), "{}", refused());
    std::fs::remove_file(&manifest).unwrap();
    assert!(refused().contains("is not a backup"), "{}", refused());
}

#[test]
fn a_damaged_store_is_not_backed_up() {
    let site = Site::new();
    let file = site.path("feedmill.db");
    let Site { folder, desk } = site;
    let config = desk.config.clone();
    drop(desk); // the last connection brings all of it into the file
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let copy = folder.path().join("copy");
    let refused = backup::back_up(&config, &copy, NOW_US, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Damaged { .. }), "{refused}");
    assert!(!copy.exists() && !folder.path().join("copy.partial").exists());
}

fn run(arguments: &[&Path]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    let output = command.args(arguments).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complained}");
    String::from_utf8(output.stdout).unwrap()
}

/// A restored process reads on from the cursor of its backup, and misses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_restored_from_a_backup_of_a_running_one_shows_every_feed_as_the_model_has_it() {
    let network = bed::network(23, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let (home, folder) = (Home::new(&network, &[]), tempfile::tempdir().unwrap());
    let mut life = Life::begin("run", &home.file, None);
    network.emit(300);
    home.settled(network.last_seq(), &mut [&mut life])
        .await
        .expect("it lives");
    network.emit(500); // so that it is taken in during the backup
    let copy = folder.path().join("copy");
    let said = run(&[Path::new("backup"), &home.file, &copy]);
    assert!(
        said.contains("store") && said.contains("backup written"),
        "{said}"
    );
    life.kill();
    network.emit(100);

    let second = Home::new(&network, &[]);
    let said = run(&[Path::new("restore"), &second.file, &copy]);
    assert!(said.contains("restored"), "{said}");
    let mut life = Life::begin("run", &second.file, None);
    equal(&network, &second, since_us, &mut [&mut life]).await;
    assert!(life.end().success());
}
