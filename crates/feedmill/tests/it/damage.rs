//! Damaged files and files of a newer version: what can be made anew is, and the rest says what to do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use feedmill::branch::{self, Step};
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::labels::{Label, Labels, Subject};
use feedmill::river::{River, Role, Start};
use feedmill::search::{SearchBranch, SearchIndex};
use feedmill::store::search::Search;
use feedmill::store::{self, StoreError};
use replicate::sqlite::SqliteLog;
use rusqlite::Connection;

use crate::desk::{ALICE, Desk};
use crate::life::Life;

const LABELER: &str = "did:web:labeler.test";
const POST: &str = "com.example.post";
const PAGE: usize = 4096;

struct Site {
    folder: tempfile::TempDir,
    config: Config,
    /// The same, as a file.
    file: PathBuf,
}

impl Site {
    /// A store with some posts that can be searched.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("feedmill.db");
        let text = format!(
            "namespace = \"com.example\"\n[collections.post]\ncollection = \"{POST}\"\nvalidate = false\n\
             searchable = [\"text\"]\n[[labels.source]]\ndid = \"{LABELER}\"\nendpoint = \"http://127.0.0.1:1\"\nverify = false\n\
             [store]\nurl = \"sqlite://{}\"\n[serve]\nbind = \"127.0.0.1:0\"\n",
            store.display()
        );
        let file = folder.path().join("feedmill.toml");
        std::fs::write(&file, &text).unwrap();
        let config = Config::parse(&text).unwrap();
        let desk = Desk::of(config.clone());
        for number in 0..50 {
            let body =
                format!(r#"{{"text": "mill {number}", "createdAt": "2026-01-01T00:00:00Z"}}"#);
            desk.put(ALICE, "post", &format!("p{number}"), &body);
        }
        Self {
            folder,
            config,
            file,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the program, which ends with a complaint.
    fn complaint(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        let output = command.arg("run").arg(&self.file).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Overwrites pages of a file that nobody has open.
fn damage(path: &Path, pages: std::ops::Range<usize>) {
    let mut bytes = std::fs::read(path).unwrap();
    let end = bytes.len().min(pages.end * PAGE);
    bytes[pages.start * PAGE..end].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
}

fn draw(branch: &mut SearchBranch, desk: &Desk) {
    while branch::step(branch, &*desk.store).unwrap() == Step::More {}
}

/// Whether the index itself answers.
fn answers(index: &Arc<SearchIndex>) -> bool {
    let search = Search::parse("mill", &["text".to_owned()]).unwrap();
    let found = index.candidates(POST, &search, None).unwrap();
    found.is_some_and(|found| !found.next().unwrap().found.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_search_index_is_built_anew_and_a_line_says_so() {
    let site = Site::new();
    let file = site.path("feedmill.search.db");
    std::fs::write(
        &file,
        "not a database, but something else that is long enough".repeat(100),
    )
    .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command.arg("serve").arg(&site.file);
    let life = Life::of(command);
    life.says("the search index was damaged; it is built anew from the records")
        .await;
    life.says("built from the records").await;
    assert!(life.end().success());
    let index = SearchIndex::open(&site.config).unwrap().unwrap();
    assert!(answers(&index));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_says_that_a_damaged_file_of_labels_was_made_anew() {
    let site = Site::new();
    let file = site.path("feedmill.labels.db");
    std::fs::write(
        &file,
        "not a database, but something else that is long enough".repeat(100),
    )
    .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command.arg("serve").arg(&site.file);
    let life = Life::of(command);
    life.says("the file of labels was damaged; the labelers' streams are read again")
        .await;
    assert!(life.end().success());
}

#[test]
fn a_search_index_found_damaged_while_it_is_used_is_built_anew() {
    let site = Site::new();
    let desk = Desk::of(site.config.clone());
    let file = site.path("feedmill.search.db");
    let open = || SearchIndex::open(&site.config).unwrap().unwrap();
    let index = open();
    draw(&mut SearchBranch::new(Arc::clone(&index)), &desk);
    assert!(answers(&index));
    drop(index);
    // The first pages name the tables; the rest is not looked at until it is needed.
    damage(&file, 2..usize::MAX / PAGE);
    let index = open();
    let mut branch = SearchBranch::new(Arc::clone(&index));
    let search = Search::parse("mill", &["text".to_owned()]).unwrap();
    // Whoever meets it first; the store answers from then on, until it is built.
    let found = index.candidates(POST, &search, None).unwrap();
    assert!(found.is_none_or(|found| found.next().is_err()));
    assert!(index.candidates(POST, &search, None).unwrap().is_none());
    draw(&mut branch, &desk);
    assert!(answers(&index));
    let sound: String = Connection::open(&file)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
}

fn label(number: usize) -> Label {
    Label {
        uri: format!("at://{ALICE}/{POST}/p{number}"),
        cid: None,
        word: "spam".into(),
        negated: false,
        made_us: 1,
        ends_us: None,
        json: format!("{{\"val\":\"spam\",\"pad\":\"{}\"}}", "x".repeat(500)),
    }
}

#[test]
fn a_damaged_file_of_labels_is_read_again_from_the_beginning_of_the_streams() {
    let site = Site::new();
    let file = site.path("feedmill.labels.db");
    let open = || Labels::open(&site.config).unwrap().unwrap();
    let labels: Vec<Label> = (0..200).map(label).collect();
    let first = open();
    first.keep(LABELER, 42, &labels).unwrap();
    drop(first);
    std::fs::write(
        &file,
        "not a database, but something else that is long enough".repeat(100),
    )
    .unwrap();
    let anew = open();
    assert_eq!(anew.cursor(LABELER).unwrap(), 0);
    anew.keep(LABELER, 42, &labels).unwrap();
    drop(anew);

    // Found only when somebody asks; the stream that is being read must begin again then.
    damage(&file, 4..usize::MAX / PAGE);
    let anew = open();
    assert_eq!(anew.cursor(LABELER).unwrap(), 42);
    let uri = label(7).uri;
    let subject = Subject {
        uri: &uri,
        cid: None,
    };
    let of = || anew.of(subject, &[LABELER.to_owned()], 2);
    assert!(of().is_err());
    assert!(of().unwrap().is_empty());
    assert!(
        anew.keep(LABELER, 43, &labels).is_err(),
        "what came before 43 is lost"
    );
    assert_eq!(anew.cursor(LABELER).unwrap(), 0);
    anew.keep(LABELER, 1, &labels).unwrap();
    assert_eq!(of().unwrap().len(), 1);
}

#[test]
fn a_damaged_store_says_what_to_do() {
    let site = Site::new();
    let file = site.path("feedmill.db");
    let desk = Desk::of(site.config.clone());
    drop(desk); // the last connection brings all of it into the file
    let whole = std::fs::read(&file).unwrap();
    damage(&file, 0..1);
    let said = site.complaint();
    assert!(
        said.contains("damaged") && said.contains("feedmill restore"),
        "{said}"
    );
    // Found only when somebody reads there.
    std::fs::write(&file, &whole).unwrap();
    let connection = Connection::open(&file).unwrap();
    let root = |name: &str| -> usize {
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let page = connection.query_row(sql, [name], |row| row.get::<_, i64>(0));
        usize::try_from(page.unwrap()).unwrap()
    };
    let page = root("record_by_hash") - 1;
    drop(connection);
    damage(&file, page..page + 1);
    let store = store::open(&site.config).unwrap();
    let uri = format!("at://{ALICE}/{POST}/p1");
    match store.record(&uri) {
        Err(StoreError::Broken(cause)) => assert!(cause.contains("feedmill restore"), "{cause}"),
        other => panic!("{other:?}"),
    }
    drop(store);
    // Where nobody writes, whoever reads makes it known.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(damage_is_a_reason_not_to_be_ready(&site.config, &uri));
}

async fn damage_is_a_reason_not_to_be_ready(config: &Config, uri: &str) {
    feedmill::identity::provide_tls();
    let start = Start {
        role: Role::Serve,
        clock: Clock::Wall,
        lexicons: &[],
    };
    let river = River::start(config, start).await.unwrap();
    let address = river.address.unwrap();
    let ask = async |path: &str| {
        let answer = reqwest::get(format!("http://{address}{path}")).await;
        let answer = answer.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let record = format!("/xrpc/com.example.post.getRecord?uri={uri}");
    let (status, answer) = ask(&record).await;
    assert_eq!(status, 500, "{answer}");
    let (status, answer) = ask("/ready").await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("\"code\":\"store_damaged\""), "{answer}");
    assert!(answer.contains("feedmill restore"), "{answer}");
    river.stop().await;
}

#[test]
fn files_of_a_newer_version_are_refused_and_left_as_they_are() {
    let site = Site::new();
    drop(Labels::open(&site.config).unwrap());
    let log = site.path("log.db");
    drop(SqliteLog::open(&log).unwrap());
    let files = ["feedmill.db", "feedmill.labels.db", "log.db"].map(|name| site.path(name));
    for file in &files {
        let connection = Connection::open(file).unwrap();
        connection
            .pragma_update(None, "user_version", 9999)
            .unwrap();
    }
    let before = files.each_ref().map(|file| std::fs::read(file).unwrap());
    let newer = "newer version of feedmill";
    let said = site.complaint();
    assert!(said.contains(newer), "{said}");
    for refused in [
        store::open(&site.config).unwrap_err().to_string(),
        store::attach(&site.config).unwrap_err().to_string(),
        Labels::open(&site.config).unwrap_err().to_string(),
        SqliteLog::open(&log).unwrap_err().to_string(),
    ] {
        assert!(refused.contains(newer), "{refused}");
    }
    assert!(before == files.map(|file| std::fs::read(file).unwrap()));
}
