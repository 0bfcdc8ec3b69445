//! Pages by the values of fields: one value found among many records, feeds
//! that end in another order than time, and children in their groups.

use serde_json::{Value, json};

use feedmill::store::AccountStatus;
use feedmill::store::batch::Item;

use crate::app::{App, Kept};
use crate::mill::Mill;

const READER: &str = "did:plc:reader";
const BUSY: &str = "did:plc:busy";
const QUIET: &str = "did:plc:quiet";
/// Records of one author; more than a page may look at.
const MANY: usize = 1500;

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.mark]
collection = "com.example.mark"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[collections.post.queryable]
lang = {}
score = { type = "range", as = "number" }
[collections.post.relations.mark]
collection = "mark"
group_by = "kind"
groups = { star = "star", flag = "flag" }
[feeds.timeline]
follow = "follow"
targets = ["post"]
[feeds.brief]
follow = "follow"
targets = ["post"]
max_items = 5
beyond = "end"
"#;

fn post(author: &'static str, number: usize, lang: &str, score: usize) -> Kept {
    let time = record::datetime::format_us(1_760_000_000_000_000 + number as i64 * 1_000_000);
    let body = json!({"lang": lang, "score": score, "createdAt": time});
    (author, "com.example.post", format!("p{number:05}"), body)
}

fn follow(subject: &str) -> Kept {
    let key = subject.replace(':', "-");
    (
        READER,
        "com.example.follow",
        key,
        json!({"subject": subject}),
    )
}

fn keys(page: &Value) -> Vec<&str> {
    let records = page["records"].as_array().into_iter().flatten();
    records
        .map(|record| record["rkey"].as_str().unwrap())
        .collect()
}

/// One author writes much, another little; what is asked for is rare with one and common elsewhere.
#[test]
fn one_value_is_found_at_once_however_many_records_stand_in_its_way() {
    let mut records = vec![follow(BUSY), follow(QUIET)];
    // The oldest of the busy one is rare, as is the only one of the quiet one.
    records.push(post(BUSY, 0, "rare", 0));
    records.push(post(QUIET, 1, "en", 0));
    records.extend((2..MANY).map(|number| post(BUSY, number, "en", 0)));
    let config = format!("{CONFIG}\n[timelines]\npage_scan_max = 600\n");
    let app = App::start_on(&config, &records);
    let check = |path: &str, expected: &[&str]| {
        let (status, page) = app.get(&format!("/xrpc/com.example.{path}"));
        assert_eq!(status, 200, "{page}");
        assert_eq!(keys(&page), expected, "{path}");
        assert_eq!(page.get("cursor"), None, "{path}: all was seen");
    };
    check("post.listRecords?lang=rare", &["p00000"]);
    // Few of the value, many of the author; then few of the author, many of the value.
    check(
        &format!("post.listRecords?actor={BUSY}&lang=rare"),
        &["p00000"],
    );
    check(
        &format!("post.listRecords?actor={QUIET}&lang=en"),
        &["p00001"],
    );
    check(&format!("post.listRecords?actor={QUIET}&lang=rare"), &[]);
    check(
        &format!("getFeed?feed=timeline&actor={READER}&lang=rare"),
        &["p00000"],
    );
    // Where both are many the page is short, and says where to go on.
    let path = format!("/xrpc/com.example.post.listRecords?actor={BUSY}&lang=en&limit=200&score=1");
    let (_, page) = app.get(&path);
    assert!(
        keys(&page).is_empty() && page.get("cursor").is_some(),
        "{page}"
    );
}

#[test]
fn pages_by_value_are_those_of_a_walk_whatever_their_size() {
    let langs = ["en", "de", "fr"];
    let mut records = vec![follow(BUSY), follow(QUIET)];
    records.extend((0..90).map(|number| {
        let author = if number % 7 == 0 { QUIET } else { BUSY };
        post(author, number, langs[number % 3], 0)
    }));
    let app = App::start_on(CONFIG, &records);
    let pages = |path: &str, limit: usize| {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let (status, page) =
                app.get(&format!("/xrpc/com.example.{path}&limit={limit}{cursor}"));
            assert_eq!(status, 200, "{page}");
            all.extend(keys(&page).iter().map(|key| (*key).to_owned()));
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    };
    let expected = |wanted: &dyn Fn(usize) -> bool| -> Vec<String> {
        let numbers = (0..90).rev().filter(|number| wanted(*number));
        numbers.map(|number| format!("p{number:05}")).collect()
    };
    for limit in [1, 4, 200] {
        let found = pages(&format!("post.listRecords?actor={QUIET}&lang=de"), limit);
        assert_eq!(found, expected(&|n| n % 7 == 0 && n % 3 == 1));
        let found = pages(
            &format!("getFeed?feed=timeline&actor={READER}&lang=fr"),
            limit,
        );
        assert_eq!(found, expected(&|n| n % 3 == 2));
    }
}

#[test]
fn a_feed_that_ends_is_sorted_among_its_newest_and_pages_to_its_end() {
    let mut records = vec![follow(BUSY)];
    // The highest scores are too old to be in the feed.
    let scores = [99, 98, 97, 3, 1, 4, 1, 5];
    records.extend(
        scores
            .iter()
            .enumerate()
            .map(|(number, score)| post(BUSY, number, "en", *score)),
    );
    let app = App::start_on(CONFIG, &records);
    let check = |order: &str, expected: &[&[&str]]| {
        let mut cursor = String::new();
        for (turn, keys_expected) in expected.iter().enumerate() {
            let path = format!(
                "/xrpc/com.example.getFeed?feed=brief&actor={READER}&sort=score&order={order}&limit=2{cursor}"
            );
            let (status, page) = app.get(&path);
            assert_eq!(status, 200, "{page}");
            assert_eq!(keys(&page), *keys_expected, "{order}, page {turn}");
            let next = page["cursor"].as_str();
            assert_eq!(next.is_none(), turn + 1 == expected.len(), "{page}");
            cursor = format!("&cursor={}", next.unwrap_or_default());
        }
    };
    check(
        "desc",
        &[&["p00007", "p00005"], &["p00003", "p00006"], &["p00004"]],
    );
    check(
        "asc",
        &[&["p00006", "p00004"], &["p00003", "p00005"], &["p00007"]],
    );
}

#[test]
fn children_stand_in_their_groups_and_those_of_no_group_in_other() {
    let mut records = vec![post(BUSY, 1, "en", 0), post(BUSY, 2, "en", 0)];
    let parent = format!("at://{BUSY}/com.example.post/p00001");
    for (number, kind) in ["star", "star", "odd", "star"].iter().enumerate() {
        let time = record::datetime::format_us(1_770_000_000_000_000 + number as i64 * 1_000_000);
        let body = json!({"subject": {"uri": parent}, "kind": kind, "createdAt": time});
        records.push((QUIET, "com.example.mark", format!("m{number}"), body));
    }
    let app = App::start_on(CONFIG, &records);
    let (status, page) = app.get("/xrpc/com.example.post.listRecords?hydrateMark=2");
    assert_eq!(status, 200, "{page}");
    let (without, with) = (&page["records"][0], &page["records"][1]);
    for absent in ["mark", "markCount", "markStarCount"] {
        assert_eq!(without.get(absent), None, "{without}");
    }
    assert_eq!(
        (&with["markCount"], &with["markStarCount"]),
        (&json!(4), &json!(3))
    );
    assert_eq!(with.get("markFlagCount"), None, "none is not counted");
    let names = |group: &Value| -> Vec<String> {
        let children = group.as_array().into_iter().flatten();
        children
            .map(|child| child["rkey"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(&with["mark"]["star"]),
        ["m3", "m1"],
        "the newest two of the group"
    );
    assert_eq!(names(&with["mark"]["other"]), ["m2"]);
    assert_eq!(with["mark"].get("flag"), None);
}

/// One who marks a thing twice is counted once, until the last of his marks is gone.
#[tokio::test(flavor = "multi_thread")]
async fn authors_are_counted_once_where_that_is_asked() {
    let distinct = "groups = { star = \"star\", flag = \"flag\" }\ncount_distinct = \"did\"";
    let config = CONFIG.replace("groups = { star = \"star\", flag = \"flag\" }", distinct);
    let mill = Mill::start(&format!("{config}[store]\nurl = \"sqlite::memory:\"\n")).await;
    let parent = mill.put(BUSY, "post", "p1", &json!({"lang": "en"}));
    let other = mill.put(BUSY, "post", "p2", &json!({"lang": "en"}));
    let mark = |did: &str, rkey: &str, kind: &str, of: &str| {
        mill.put(
            did,
            "mark",
            rkey,
            &json!({"subject": {"uri": of}, "kind": kind}),
        )
    };
    mark(QUIET, "a", "star", &parent);
    mark(QUIET, "b", "star", &parent);
    mark(QUIET, "c", "flag", &parent);
    mark(READER, "d", "star", &parent);
    mark(QUIET, "e", "star", &other);
    let counts = async || {
        let path = format!("/xrpc/com.example.post.getRecord?uri={parent}");
        let (status, record) = mill.get(&path).await;
        assert_eq!(status, 200, "{record}");
        ["markCount", "markStarCount", "markFlagCount"]
            .map(|name| record[name].as_i64().unwrap_or(0))
    };
    assert_eq!(counts().await, [2, 2, 1]);
    let (_, page) = mill
        .get("/xrpc/com.example.post.listRecords?sort=markCount")
        .await;
    assert_eq!(keys(&page), ["p1", "p2"]);
    mill.delete(QUIET, "mark", "a");
    assert_eq!(counts().await, [2, 2, 1], "another of his is there");
    // An edit moves his mark to the other post.
    mark(QUIET, "b", "star", &other);
    assert_eq!(counts().await, [2, 1, 1]);
    let says = |status, time_us| {
        let did = QUIET.into();
        mill.apply(Item::Account {
            did,
            status,
            time_us,
        });
    };
    says(AccountStatus::Deactivated, 1);
    assert_eq!(counts().await, [1, 1, 0]);
    says(AccountStatus::Active, 2);
    assert_eq!(counts().await, [2, 1, 1]);
    mill.delete(QUIET, "mark", "c");
    assert_eq!(counts().await, [1, 1, 0]);
    mill.river.stop().await;
}
