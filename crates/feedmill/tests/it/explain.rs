//! `explain`: for each reason a record that it keeps out, and each answer held
//! against the feed itself.

use std::process::Command;
use std::sync::Arc;

use feedmill::fanout::{Fanout, Wish};
use feedmill::serve::admin::Admin;
use feedmill::store::batch::Item;
use feedmill::store::explain::Reason;
use feedmill::store::{AccountStatus, FeedQuery, Lens};
use serde_json::{Value, json};

use crate::desk::{ALICE, BOB, Desk, listen};

const CAROL: &str = "did:web:carol.test";
const CONFIG: &str = "[collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
    [collections.mute]\ncollection = \"com.example.mute\"\nvalidate = false\n\
    [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
    requires = [\"needs\"]\n\
    [[collections.post.rule]]\nname = \"short\"\nexpect = \"!has(record.text) || size(record.text) < 9\"\nmessage = \"too long\"\n\
    [collections.link]\ncollection = \"com.example.link\"\nvalidate = false\n\
    [feeds.ends]\ntargets = [\"post\"]\nmax_items = 2\nbeyond = \"end\"\n\
    [feeds.merged]\ntargets = [{ collection = \"link\", merge = \"about\", keys = [\"set\"] }]\n\
    [feeds.own]\ntargets = [\"post\"]\ninclude_self = true\n\
    [feeds.timeline]\nhide = [\"mute\"]\n\
    targets = [{ collection = \"post\", keys = [\"author\", \"topic\"], where = \"!has(record.reply)\" }]\n\
    [[feeds.timeline.rule]]\nwhen = \"has(record.quiet)\"\nkeys = [\"topic\"]\n";

fn desk() -> Desk {
    Desk::new(CONFIG)
}

fn in_feed(desk: &Desk, feed: &str, reader: &str, uri: &str) -> bool {
    let plan = desk.store.plan().feed(feed).unwrap();
    let target = &plan.targets[0];
    let query = FeedQuery {
        reader: reader.into(),
        lanes: vec![(target.lane, plan.end.then_some(target.max_items as usize))],
        follows: plan.follows.clone(),
        hides: plan.hides.clone(),
        include_self: plan.include_self,
        before: None,
        limit: 100,
        lens: Lens::default(),
        scan_max: 1000,
    };
    let rows = desk.store.feed(&query).unwrap().rows;
    rows.iter().any(|row| row.uri == uri)
}

/// The reason, which the feed must not contradict.
#[track_caller]
fn reason(desk: &Desk, feed: &str, reader: &str, uri: &str) -> Reason {
    let answer = desk.store.explain(feed, reader, uri).unwrap().unwrap();
    let entry = answer.begins.as_deref().unwrap_or(uri);
    assert_eq!(
        answer.shown,
        in_feed(desk, feed, reader, entry),
        "{answer:?}"
    );
    assert_eq!(answer.shown, answer.reason == Reason::Shown);
    assert!(!answer.reason.sentence().is_empty());
    answer.reason
}

fn follow(desk: &Desk, rkey: &str, subject: &str) {
    desk.put(
        BOB,
        "follow",
        rkey,
        &format!("{{\"subject\":\"{subject}\"}}"),
    );
}

#[test]
fn a_record_that_is_shown_names_every_follow_that_brings_it() {
    let desk = desk();
    follow(&desk, "1", ALICE);
    follow(&desk, "2", "birds");
    follow(&desk, "3", "birds");
    desk.put(ALICE, "post", "p", r#"{"topic":"birds"}"#);
    let uri = desk.uri(ALICE, "post", "p");
    assert_eq!(reason(&desk, "timeline", BOB, &uri), Reason::Shown);
    let answer = desk.store.explain("timeline", BOB, &uri).unwrap().unwrap();
    assert_eq!(answer.keys, [ALICE, "birds"]);
    let via: Vec<&str> = answer
        .follows
        .iter()
        .map(|via| via.record.as_deref().unwrap())
        .collect();
    let follows = ["1", "2", "3"].map(|rkey| desk.uri(BOB, "follow", rkey));
    assert_eq!(via, follows);
    assert_eq!(answer.rule, None);
    // The reader's own, without a follow.
    desk.put(BOB, "post", "mine", "{}");
    let mine = desk.uri(BOB, "post", "mine");
    assert_eq!(reason(&desk, "own", BOB, &mine), Reason::Shown);
    assert_eq!(
        desk.store
            .explain("own", BOB, &mine)
            .unwrap()
            .unwrap()
            .follows[0]
            .record,
        None
    );
    assert_eq!(reason(&desk, "timeline", BOB, &mine), Reason::NotFollowed);
}

#[test]
fn a_rule_that_replaced_the_keys_is_named() {
    let desk = desk();
    follow(&desk, "1", ALICE);
    desk.put(ALICE, "post", "p", r#"{"topic":"birds","quiet":1}"#);
    let uri = desk.uri(ALICE, "post", "p");
    assert_eq!(reason(&desk, "timeline", BOB, &uri), Reason::NotFollowed);
    let answer = desk.store.explain("timeline", BOB, &uri).unwrap().unwrap();
    assert_eq!(
        (answer.keys.as_slice(), answer.rule.as_deref()),
        (["birds".to_owned()].as_slice(), Some("has(record.quiet)"))
    );
}

#[test]
fn what_never_came_waits_was_refused_or_deleted_is_told_apart() {
    let desk = desk();
    follow(&desk, "1", ALICE);
    let uri = |rkey: &str| desk.uri(ALICE, "post", rkey);
    assert_eq!(
        reason(&desk, "timeline", BOB, &uri("never")),
        Reason::NeverSeen
    );
    let missing = uri("other");
    desk.put(
        ALICE,
        "post",
        "early",
        &format!("{{\"needs\":\"{missing}\"}}"),
    );
    assert_eq!(
        reason(&desk, "timeline", BOB, &uri("early")),
        Reason::Parked { missing }
    );
    desk.put(ALICE, "post", "long", r#"{"text":"much too long"}"#);
    let dead = reason(&desk, "timeline", BOB, &uri("long"));
    let Reason::Dead {
        letter,
        stage,
        message,
    } = dead
    else {
        panic!("{dead:?}")
    };
    assert_eq!(
        (letter, stage.as_str(), message.as_str()),
        (Some(1), "rule", "too long")
    );
    desk.store.discard(desk.now_us(), 1).unwrap();
    assert!(matches!(
        reason(&desk, "timeline", BOB, &uri("long")),
        Reason::Dead { letter: None, .. }
    ));
    desk.put(ALICE, "post", "gone", "{}");
    desk.delete(ALICE, "post", "gone");
    assert_eq!(
        reason(&desk, "timeline", BOB, &uri("gone")),
        Reason::Deleted
    );
    let elsewhere = desk.uri(ALICE, "link", "x");
    assert!(matches!(
        reason(&desk, "timeline", BOB, &elsewhere),
        Reason::NotATarget { .. }
    ));
}

#[test]
fn accounts_conditions_and_mutes_are_told_apart() {
    let desk = desk();
    follow(&desk, "1", ALICE);
    follow(&desk, "2", "birds");
    desk.put(ALICE, "post", "p", r#"{"topic":"birds"}"#);
    desk.put(ALICE, "post", "r", r#"{"topic":"birds","reply":1}"#);
    let (post, reply) = (desk.uri(ALICE, "post", "p"), desk.uri(ALICE, "post", "r"));
    let condition = "!has(record.reply)".to_owned();
    assert_eq!(
        reason(&desk, "timeline", BOB, &reply),
        Reason::Filtered { condition }
    );
    // A muted key takes itself away; a muted author everything.
    let mute = |rkey: &str, subject: &str| {
        desk.put(BOB, "mute", rkey, &format!("{{\"subject\":\"{subject}\"}}"));
        desk.uri(BOB, "mute", rkey)
    };
    mute("1", "birds");
    assert_eq!(reason(&desk, "timeline", BOB, &post), Reason::Shown);
    desk.delete(BOB, "follow", "1");
    let record = desk.uri(BOB, "mute", "1");
    assert_eq!(
        reason(&desk, "timeline", BOB, &post),
        Reason::Muted {
            key: "birds".into(),
            record
        }
    );
    desk.delete(BOB, "mute", "1");
    let record = mute("2", ALICE);
    assert_eq!(
        reason(&desk, "timeline", BOB, &post),
        Reason::Muted {
            key: ALICE.into(),
            record
        }
    );
    desk.delete(BOB, "mute", "2");
    assert_eq!(reason(&desk, "timeline", BOB, &post), Reason::Shown);
    let stand = |did: &str, status, time_us| {
        desk.apply(Item::Account {
            did: did.into(),
            status,
            time_us,
        })
    };
    stand(BOB, AccountStatus::Deactivated, 1);
    assert_eq!(
        reason(&desk, "timeline", BOB, &post),
        Reason::ReaderHidden {
            status: "deactivated".into()
        }
    );
    stand(ALICE, AccountStatus::Takendown, 1);
    assert_eq!(
        reason(&desk, "timeline", BOB, &post),
        Reason::AuthorHidden {
            status: "takendown".into()
        }
    );
}

#[test]
fn the_end_of_a_feed_and_the_group_of_a_record_are_told() {
    let desk = desk();
    follow(&desk, "1", ALICE);
    follow(&desk, "2", "set:a");
    for (rkey, second) in [("a", 1), ("b", 2), ("c", 3)] {
        desk.put(
            ALICE,
            "post",
            rkey,
            &format!("{{\"createdAt\":\"2026-01-01T00:00:0{second}Z\"}}"),
        );
    }
    assert_eq!(
        reason(&desk, "ends", BOB, &desk.uri(ALICE, "post", "a")),
        Reason::BeyondEnd { max_items: 2 }
    );
    assert_eq!(
        reason(&desk, "ends", BOB, &desk.uri(ALICE, "post", "b")),
        Reason::Shown
    );
    for (rkey, minute, set) in [("x", 0, "set:b"), ("y", 1, "set:a"), ("z", 9, "set:b")] {
        let body = format!(
            "{{\"about\":\"thing\",\"set\":\"{set}\",\"createdAt\":\"2026-01-01T00:0{minute}:00Z\"}}"
        );
        desk.put(ALICE, "link", rkey, &body);
    }
    // x reaches nobody who reads; its group does, by y.
    let uri = desk.uri(ALICE, "link", "x");
    assert_eq!(reason(&desk, "merged", BOB, &uri), Reason::Shown);
    let answer = desk
        .store
        .explain("merged", BOB, &desk.uri(ALICE, "link", "y"))
        .unwrap()
        .unwrap();
    assert_eq!(
        (answer.begins.as_deref(), answer.keys.len()),
        (Some(uri.as_str()), 2)
    );
    assert_eq!(
        reason(&desk, "merged", BOB, &desk.uri(ALICE, "link", "z")),
        Reason::NotFollowed
    );
    assert_eq!(desk.store.explain("nope", BOB, &uri).unwrap(), None);
}

/// The binary beside a store in which Bob follows Alice, who posted on three days, and not Carol.
struct Cli {
    folder: tempfile::TempDir,
}

impl Cli {
    fn new() -> Self {
        Self::of("")
    }

    /// The same with sources.
    fn of(sources: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/store.db", folder.path().display());
        let text =
            format!("namespace = \"com.example\"\n{CONFIG}{sources}[store]\nurl = \"{url}\"\n");
        std::fs::write(folder.path().join("feedmill.toml"), &text).unwrap();
        let desk = Desk::of(feedmill::config::Config::parse(&text).unwrap());
        follow(&desk, "1", ALICE);
        for (rkey, day) in [("o", 1), ("p", 2), ("q", 3)] {
            let body = format!("{{\"createdAt\":\"2026-01-0{day}T00:00:00Z\"}}");
            desk.put(ALICE, "post", rkey, &body);
        }
        desk.put(CAROL, "post", "c", "{}");
        Self { folder }
    }

    /// Whether it ended well, what it said, what it complained of.
    fn run(&self, uri: &str, more: &[&str]) -> (bool, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .arg("explain")
            .arg(self.folder.path().join("feedmill.toml"))
            .args(["--reader", BOB, "--uri", uri])
            .args(more)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.success(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

const MIDDLE: &str = "at://did:web:alice.test/com.example.post/p";

#[test]
fn the_command_answers_for_every_feed_or_one() {
    let cli = Cli::new();
    let (good, said, _) = cli.run(MIDDLE, &[]);
    assert!(
        good && said.contains("timeline: shown: the reader sees it"),
        "{said}"
    );
    assert!(
        said.contains(&format!("  followed by at://{BOB}/com.example.follow/1")),
        "{said}"
    );
    assert!(
        said.contains("merged: not shown: the feed shows only records of com.example.link"),
        "{said}"
    );
    let (_, said, _) = cli.run(MIDDLE, &["--feed", "ends", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&answer["shown"], &answer["reason"]),
        (&true.into(), &"shown".into()),
        "{said}"
    );
}

#[test]
fn the_command_names_the_floor_and_a_repository_that_is_not_here() {
    let cli = Cli::new();
    // A feed that ends has a floor, any other shows all there is.
    let (_, said, _) = cli.run(MIDDLE, &["--feed", "ends"]);
    let floor = "the feed's floor is 2026-01-02T00:00:00.000Z: it ends there";
    assert!(said.contains(floor), "{said}");
    let (_, said, _) = cli.run(MIDDLE, &["--feed", "timeline"]);
    let none = "the feed has no floor: the store shows all there is";
    assert!(said.contains(none), "{said}");
    let unfollowed = format!("at://{CAROL}/com.example.post/c");
    let (_, said, _) = cli.run(&unfollowed, &["--feed", "timeline"]);
    let unread = "as far as is known: its repository was never fetched";
    assert!(said.contains(unread), "{said}");
}

#[test]
fn the_command_refuses_what_names_no_record_or_no_feed() {
    let cli = Cli::new();
    for garbage in [
        "garbage",
        "at://did:web:a.test",
        "at://did:web:a.test/com.example.post",
        "at://x y/a.b.c/d",
    ] {
        let (good, said, complained) = cli.run(garbage, &[]);
        let refused = !good && said.is_empty() && complained.contains("at://did/collection/rkey");
        assert!(refused, "{garbage}: {said}{complained}");
    }
    let (good, _, complained) = cli.run(MIDDLE, &["--feed", "nope"]);
    let known = "no feed \"nope\"; there are: ends, merged, own, timeline";
    assert!(!good && complained.contains(known), "{complained}");
}

#[test]
fn a_reader_whose_repository_is_not_here_is_told_apart_from_one_who_does_not_follow() {
    let desk = desk();
    desk.put(ALICE, "post", "p", "{}");
    let uri = desk.uri(ALICE, "post", "p");
    let told = |reader: &str| {
        let answer = desk
            .store
            .explain("timeline", reader, &uri)
            .unwrap()
            .unwrap();
        let first_read = desk.store.first_read(reader, "timeline", desk.now_us());
        let first_read = first_read.unwrap();
        answer.given(reader, first_read, false).reason
    };
    let unread = |backfill| Reason::Unread { backfill };
    assert_eq!(told(BOB), unread("never"));
    desk.apply(Item::FirstRead {
        did: BOB.to_owned(),
        feed: "timeline".to_owned(),
        waiting_max: 1,
    });
    assert_eq!(told(BOB), unread("running"));
    desk.apply(Item::GaveUp { did: BOB.into() });
    assert_eq!(told(BOB), unread("failed"));
    assert!(unread("failed").sentence().contains("could not be fetched"));
    // Who writes directly has no repository that could be fetched.
    assert_eq!(told("did:local:c404"), Reason::NotFollowed);
    // A reason that is not about follows stays.
    let elsewhere = desk.uri(ALICE, "post", "never");
    let answer = desk
        .store
        .explain("timeline", BOB, &elsewhere)
        .unwrap()
        .unwrap();
    let first_read = desk.store.first_read(BOB, "timeline", desk.now_us());
    let first_read = first_read.unwrap();
    assert_eq!(
        answer.given(BOB, first_read, false).reason,
        Reason::NeverSeen
    );
}

/// Whoever reads another's log has all of every account that one has: nothing is fetched, and a
/// page says nothing of a fetch. So `explain` does not either.
#[test]
fn where_accounts_come_whole_a_reader_who_does_not_follow_is_told_so() {
    let log = "[[source]]\nlog = \"http://127.0.0.1:9/log/river\"\n";
    let relay = "[[source]]\nfirehose = \"ws://127.0.0.1:9\"\n";
    let unfollowed = format!("at://{CAROL}/com.example.post/c");
    let told = |sources: &str| {
        let cli = Cli::of(sources);
        let (_, said, _) = cli.run(&unfollowed, &["--feed", "timeline"]);
        said
    };
    let said = told(log);
    assert!(
        said.contains("not shown: the reader follows none of its keys\n"),
        "{said}"
    );
    for partly in ["", relay, &format!("{log}{relay}")] {
        let said = told(partly);
        assert!(said.contains("was never fetched"), "{partly}: {said}");
    }
}

/// A server of a desk with timelines in memory, and its address.
async fn served(desk: &Desk, fanout: Arc<Fanout>) -> String {
    let mut server = desk.server(Some(fanout));
    server.admin = Some(Admin::new(Some("secret".into()), Arc::clone(&desk.checker)));
    listen(server).await
}

async fn ask(address: &str, query: &str, token: &str) -> (u16, Value) {
    let request = reqwest::Client::new()
        .get(format!("{address}/admin/explain{query}"))
        .header("authorization", format!("Bearer {token}"));
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap())
}

#[tokio::test]
async fn the_operator_is_told_the_same_over_http_and_where_memory_ends() {
    let desk = desk();
    follow(&desk, "1", ALICE);
    desk.put(ALICE, "post", "p", "{}");
    desk.put(ALICE, "post", "r", r#"{"reply":1}"#);
    let (fanout, mut drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
        .unwrap()
        .unwrap();
    let address = served(&desk, Arc::clone(&fanout)).await;
    let ask = async |query: &str, token: &str| ask(&address, query, token).await;
    let about = |rkey: &str| format!("?reader={BOB}&uri={}", desk.uri(ALICE, "post", rkey));
    assert_eq!(ask(&about("p"), "guess").await.0, 401);
    let (status, answer) = ask(&about("p"), "secret").await;
    assert_eq!(status, 200, "{answer}");
    let feeds = answer["feeds"].as_array().unwrap();
    assert_eq!(
        feeds.len(),
        desk.store.plan().feeds.len(),
        "every feed: {answer}"
    );
    // One feed by its name, in the words of `feedmill explain`; nobody has read it yet.
    let (_, answer) = ask(&format!("{}&feed=timeline", about("p")), "secret").await;
    let uri = desk.uri(ALICE, "post", "p");
    let explained = desk.store.explain("timeline", BOB, &uri).unwrap().unwrap();
    let mut expected = serde_json::to_value(explained).unwrap();
    assert_eq!(expected["shown"], true);
    expected["completeAboveUs"] = Value::Null;
    expected["inMemory"] = false.into();
    assert_eq!(answer["feeds"], json!([expected]), "{answer}");
    let (_, answer) = ask(&format!("{}&feed=timeline", about("r")), "secret").await;
    assert_eq!(answer["feeds"][0]["shown"], false, "{answer}");
    // An active reader is in memory, here with all there is: no number stands for that.
    let wish = Wish {
        feed: "timeline",
        target: Some(0),
        reader: BOB,
        before: None,
        limit: 10,
        now_us: desk.now_us(),
        is_incomplete: false,
    };
    assert_eq!(fanout.page(&wish).unwrap().unwrap().rows.len(), 1);
    while drawer.step(desk.now_us()).unwrap() {}
    let (_, answer) = ask(&format!("{}&feed=timeline", about("p")), "secret").await;
    let told = &answer["feeds"][0];
    let found = (&told["inMemory"], &told["completeAboveUs"]);
    assert_eq!(found, (&json!(true), &Value::Null), "{answer}");
}

#[tokio::test]
async fn over_http_bad_questions_are_refused_and_an_unread_reader_is_told() {
    let desk = desk();
    desk.put(ALICE, "post", "p", "{}");
    let (fanout, _drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
        .unwrap()
        .unwrap();
    let address = served(&desk, fanout).await;
    let good = format!("?reader={BOB}&uri={}", desk.uri(ALICE, "post", "p"));
    for (query, error, said) in [
        (format!("?reader={BOB}"), "InvalidRequest", "uri"),
        (
            format!("?reader={BOB}&uri=garbage"),
            "InvalidRequest",
            "at://",
        ),
        (
            format!("{good}&feed=nope"),
            "UnknownFeed",
            "ends, merged, own, timeline",
        ),
        (format!("{good}&colour=red"), "InvalidRequest", "colour"),
    ] {
        let (status, answer) = ask(&address, &query, "secret").await;
        assert_eq!((status, &answer["error"]), (400, &json!(error)), "{query}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(said), "{query}: {message}");
    }
    let (_, answer) = ask(&address, &format!("{good}&feed=timeline"), "secret").await;
    let told = &answer["feeds"][0];
    let expected = (&json!("unread"), &json!("never"));
    assert_eq!((&told["reason"], &told["backfill"]), expected, "{answer}");
}
