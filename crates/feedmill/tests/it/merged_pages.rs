//! Pages of merged feeds over HTTP: of one instant, and honest about what they leave out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use feedmill::config::Config;
use feedmill::fanout::Fanout;
use feedmill::store::batch::{Batch, Commit, Item, Op};

use serde_json::Value;

use crate::desk::{Desk, listen};
use crate::merged::{AUTHORS, BASE, READERS, text};

const SECOND: i64 = 1_000_000;

const AUTHOR: &str = AUTHORS[0];
const READER: &str = READERS[0];
/// Activities on the page.
const LINKS: u64 = 40;
/// Collections that they name by turns.
const SETS: u64 = 3;

/// A reader who follows an author, of whom each link is an activity.
fn linked() -> Desk {
    let sets =
        "[collections.set]\ncollection = \"com.example.set\"\nvalidate = false\n[feeds.following]";
    let text = text("2m", "sqlite::memory:").replace("[feeds.following]", sets);
    let desk = Desk::of(Config::parse(&text).unwrap());
    let subject = format!("{{\"subject\":\"{AUTHOR}\"}}");
    desk.put(READER, "follow", "1", &subject);
    for n in 0..LINKS {
        let card = format!("at://{AUTHOR}/com.example.card/c{n}");
        let set = format!("at://{AUTHOR}/com.example.set/s{}", n % SETS);
        let time = record::datetime::format_us((BASE + n as i64 * 600) * SECOND);
        let body = serde_json::json!({"createdAt": time, "card": {"uri": card}, "collection": {"uri": set}});
        desk.put(AUTHOR, "link", &format!("l{n}"), &body.to_string());
    }
    desk
}

/// Gives every collection and the author's handle another version, in one transaction.
fn change(desk: &Desk, version: u64) {
    let rev = 1000 + version;
    let ops = (0..SETS).map(|n| {
        let (rkey, body) = (format!("s{n}"), format!("{{\"version\":{version}}}"));
        Op {
            collection: "com.example.set".into(),
            verdict: desk.check(AUTHOR, "set", &rkey, rev, &body),
            rkey,
        }
    });
    let commit = Commit {
        did: AUTHOR.into(),
        rev,
        seq: 0,
        chain: None,
        filtered: 0,
        ops: ops.collect(),
        frame: Default::default(),
        was_held: false,
        live: true,
    };
    let named = Item::Identity {
        did: AUTHOR.into(),
        handle: Some(format!("v{version}.test")),
        time_us: version as i64,
    };
    let batch = Batch {
        source: "test".into(),
        cursor: Some(7),
        now_us: desk.now_us(),
        items: vec![Item::Commit(commit), named],
    };
    desk.store.commit(batch).unwrap();
}

/// The versions that a page shows.
async fn versions(address: &str) -> BTreeSet<String> {
    let path = "/xrpc/com.example.getFollowingFeed?feed=following";
    let url = format!("{address}{path}&limit={LINKS}&actor={READER}");
    let page: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let activities = page["activities"].as_array().unwrap();
    assert_eq!(activities.len() as u64, LINKS, "{page}");
    let versions = activities.iter().flat_map(|activity| {
        let version = activity["union"][0]["value"]["version"].to_string();
        let handle = activity["user"]["handle"].as_str().unwrap();
        let handle = handle.strip_prefix('v').unwrap();
        [version, handle.strip_suffix(".test").unwrap().to_owned()]
    });
    versions.collect()
}

/// The collections and handles of a page are of the page's own instant: while both change together,
/// no page shows one from before the change and another from after it.
#[tokio::test(flavor = "multi_thread")]
async fn collections_and_handles_of_a_page_are_of_its_own_snapshot() {
    let desk = Arc::new(linked());
    change(&desk, 1);
    let fanout = Fanout::open(&desk.config.timelines, 1, &desk.store).unwrap();
    let (fanout, _drawer) = fanout.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (desk, done) = (Arc::clone(&desk), Arc::clone(&done));
        move || {
            let mut version = 2;
            while !done.load(Ordering::SeqCst) {
                change(&desk, version);
                version += 1;
            }
            version
        }
    });
    for fanout in [None, Some(fanout)] {
        let address = listen(desk.server(fanout)).await;
        for _ in 0..150 {
            let versions = versions(&address).await;
            assert_eq!(versions.len(), 1, "{versions:?}");
        }
    }
    done.store(true, Ordering::SeqCst);
    assert!(writer.join().unwrap() > 10, "it changed while it was read");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_with_more_members_than_are_shown_says_so() {
    let desk = Desk::of(Config::parse(&text("2m", "sqlite::memory:")).unwrap());
    let (author, reader) = (AUTHOR, READER);
    desk.put(
        reader,
        "follow",
        "1",
        &format!("{{\"subject\":\"{author}\"}}"),
    );
    let address = listen(desk.server(None)).await;
    let link = |n: usize| {
        let time = record::datetime::format_us(BASE * SECOND + n as i64 * 1000);
        let body = format!(
            "{{\"createdAt\":\"{time}\",\"card\":{{\"uri\":\"at://{author}/com.example.card/c\"}}}}"
        );
        desk.put(author, "link", &format!("l{n:03}"), &body);
    };
    let shown = async || {
        let path = "/xrpc/com.example.getFollowingFeed?feed=following";
        let page = reqwest::get(format!("{address}{path}&actor={reader}")).await;
        let page: Value = page.unwrap().json().await.unwrap();
        let activity = &page["activities"][0];
        let members = activity["records"].as_array().unwrap().len();
        (members, activity["hasMoreRecords"].as_bool())
    };
    (0..500).for_each(link);
    assert_eq!(shown().await, (500, None));
    link(500);
    assert_eq!(shown().await, (500, Some(true)));
}

/// A group has all live members, whoever follows them: one that names no key is part of it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_keys_is_part_of_its_activity() {
    let desk = Desk::of(Config::parse(&text("2m", "sqlite::memory:")).unwrap());
    let set = "at://did:web:z.test/com.example.set/1";
    desk.put(READER, "follow", "1", &format!("{{\"subject\":\"{set}\"}}"));
    let link = |rkey: &str, second: i64, card: &str, collection: Option<&str>| {
        let time = record::datetime::format_us((BASE + second) * SECOND);
        let mut body = serde_json::json!({"createdAt": time, "card": {"uri": card}});
        if let Some(uri) = collection {
            body["collection"] = serde_json::json!({"uri": uri});
        }
        desk.put(AUTHOR, "link", rkey, &body.to_string());
    };
    link("alone", 0, "at://card/1", None);
    link("first", 10, "at://card/2", None);
    link("second", 20, "at://card/2", Some(set));
    let (fanout, mut drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
        .unwrap()
        .unwrap();
    let uri = |rkey: &str| format!("at://{AUTHOR}/com.example.link/{rkey}");
    for fanout in [None, Some(std::sync::Arc::clone(&fanout))] {
        let address = listen(desk.server(fanout)).await;
        let path = "/xrpc/com.example.getFollowingFeed?feed=loose";
        let page = reqwest::get(format!("{address}{path}&actor={READER}")).await;
        let page: Value = page.unwrap().json().await.unwrap();
        assert_eq!(page["activities"].as_array().unwrap().len(), 1, "{page}");
        let expected = serde_json::json!([uri("first"), uri("second")]);
        assert_eq!(page["activities"][0]["records"], expected, "{page}");
    }
    // Without the record that brought the key nobody is reached.
    desk.delete(AUTHOR, "link", "second");
    while drawer.step(desk.now_us()).unwrap() {}
    for fanout in [None, Some(fanout)] {
        let address = listen(desk.server(fanout)).await;
        let path = "/xrpc/com.example.getFollowingFeed?feed=loose";
        let page = reqwest::get(format!("{address}{path}&actor={READER}")).await;
        let page: Value = page.unwrap().json().await.unwrap();
        assert_eq!(page["activities"], serde_json::json!([]), "{page}");
    }
}
