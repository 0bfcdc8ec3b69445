//! Filters, relations, references and profiles of listRecords and getFeed.

use serde_json::{Value, json};

use crate::app::{App, Kept};

const CONFIG: &str = r#"
namespace = "com.example"
profiles = ["profile"]
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.profile]
collection = "com.example.profile"
validate = false
[collections.like]
collection = "com.example.like"
validate = false
[collections.like.references.post]
collection = "post"
field = "subject.uri"
[collections.post]
collection = "com.example.post"
validate = false
searchable = ["lang", "deep"]
[collections.post.queryable]
lang = {}
pinned = { as = "boolean" }
score = { type = "range", as = "number" }
createdAt = { type = "range", as = "time" }
"deep.mood" = {}
[collections.post.relations.like]
collection = "like"
[feeds.timeline]
follow = "follow"
targets = ["post"]
max_items = 10
"#;

const READER: &str = "did:web:reader.test";
const AUTHOR: &str = "did:web:author.test";
const OTHER: &str = "did:web:other.test";
const POSTS: i64 = 120;

/// Post `n` has score n, is in one of two languages, and shares its second with two others.
fn post(n: i64) -> Kept {
    let author = if n % 4 == 3 { OTHER } else { AUTHOR };
    let lang = if n % 2 == 0 { "en" } else { "de" };
    let time = format!("2026-01-01T00:{:02}:00Z", n / 3);
    let body = json!({"n": n, "lang": lang, "pinned": n % 10 == 0, "score": n, "createdAt": time,
        "deep": {"mood": if n % 5 == 0 { "calm" } else { "loud" }}});
    (author, "com.example.post", format!("p{n:03}"), body)
}

fn world() -> App {
    let mut records: Vec<Kept> = (0..POSTS).map(post).collect();
    records.push((
        READER,
        "com.example.follow",
        "1".into(),
        json!({"subject": AUTHOR}),
    ));
    records.push((
        AUTHOR,
        "com.example.profile",
        "self".into(),
        json!({"displayName": "A"}),
    ));
    for n in 0..7 {
        let uri = format!(
            "at://{AUTHOR}/com.example.post/p{:03}",
            if n < 6 { 100 } else { 101 }
        );
        let body = json!({"subject": {"uri": uri}, "n": n, "createdAt": format!("2026-01-01T00:00:0{n}Z")});
        records.push((OTHER, "com.example.like", format!("l{n}"), body));
    }
    App::start_on(CONFIG, &records)
}

/// All pages of a method; none may repeat or skip.
#[track_caller]
fn whole(app: &App, path: &str, limit: usize) -> Vec<i64> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let (status, page) = app.get(&format!("/xrpc/com.example.{path}&limit={limit}{cursor}"));
        assert_eq!(status, 200, "{page}");
        let records = page["records"].as_array().unwrap();
        found.extend(
            records
                .iter()
                .map(|record| record["value"]["n"].as_i64().unwrap()),
        );
        match page["cursor"].as_str() {
            Some(text) => cursor = format!("&cursor={text}"),
            None => return found,
        }
    }
}

/// What brute force gives: newest first, ties by URI.
fn expected(follows_only: bool, passes: impl Fn(i64) -> bool) -> Vec<i64> {
    let mut all: Vec<(i64, String, i64)> = (0..POSTS)
        .filter(|n| passes(*n))
        .map(|n| {
            let (did, nsid, rkey, _) = post(n);
            (n / 3, format!("at://{did}/{nsid}/{rkey}"), n)
        })
        .filter(|(_, uri, _)| !follows_only || uri.contains("author"))
        .collect();
    all.sort();
    all.into_iter().rev().map(|(_, _, n)| n).collect()
}

#[track_caller]
fn check(app: &App, filter: &str, passes: impl Fn(i64) -> bool + Copy) {
    for limit in [1, 7, 200] {
        let list = whole(app, &format!("post.listRecords?{filter}"), limit);
        assert_eq!(
            list,
            expected(false, passes),
            "listRecords {filter} by {limit}"
        );
        let feed = format!("getFeed?feed=timeline&actor={READER}&{filter}");
        assert_eq!(
            whole(app, &feed, limit),
            expected(true, passes),
            "getFeed {filter} by {limit}"
        );
    }
}

#[test]
fn filters_are_typed_and_exact_over_the_whole_feed() {
    let app = world();
    check(&app, "lang=en", |n| n % 2 == 0);
    check(&app, "pinned=true", |n| n % 10 == 0);
    check(&app, "pinned=false", |n| n % 10 != 0);
    check(&app, "score=100", |n| n == 100);
    check(&app, "scoreMax=20", |n| n <= 20);
    check(&app, "scoreMin=9&scoreMax=100&lang=de", |n| {
        (9..=100).contains(&n) && n % 2 == 1
    });
    check(&app, "createdAtMin=2026-01-01T01:10:00%2B01:00", |n| {
        n / 3 >= 10
    });
    check(&app, "deepMood=calm", |n| n % 5 == 0);
    check(&app, "lang=fr", |_| false);
    check(&app, "search=CALM%20de", |n| n % 5 == 0 && n % 2 == 1);
    check(&app, "search=%22calm%22&scoreMin=50", |n| {
        n % 5 == 0 && n >= 50
    });
}

#[test]
fn a_bad_filter_is_refused_and_says_what_is_accepted() {
    let app = world();
    let feed = format!("getFeed?feed=timeline&actor={READER}&");
    for base in ["post.listRecords?", &feed] {
        for (filter, word) in [
            ("score=many", "whole number"),
            ("scoreMin=", "whole number"),
            ("pinned=yes", "true or false"),
            ("createdAtMax=yesterday", "a time"),
            ("langMin=a", "unknown parameter"),
            ("sort=n", "one of"),
            ("sort=score&order=up", "asc or desc"),
            ("order=asc", "needs a sort"),
            ("likeCountMin=some", "whole number"),
            ("nothing=1", "unknown parameter"),
            ("hydrateLike=0", "from 1 to 50"),
            ("profiles=perhaps", "true or false"),
        ] {
            let (status, answer) = app.get(&format!("/xrpc/com.example.{base}{filter}"));
            let message = answer["message"].as_str().unwrap();
            assert_eq!(
                (status, answer["error"].as_str()),
                (400, Some("InvalidRequest")),
                "{filter}"
            );
            assert!(message.contains(word), "{filter}: {message}");
        }
    }
}

#[test]
fn a_filter_of_one_target_says_how_to_ask_that_target() {
    let mixed = "[feeds.mixed]\ntargets = [\"like\", \"post\"]\nmixed = true\n";
    let app = App::start_on(&format!("{CONFIG}{mixed}"), &[post(1)]);
    let feed = format!("/xrpc/com.example.getFeed?feed=mixed&actor={READER}");
    for asked in ["scoreMin=1", "collection=like&scoreMin=1", "likeCountMin=0"] {
        let (status, answer) = app.get(&format!("{feed}&{asked}"));
        let message = answer["message"].as_str().unwrap();
        assert!(
            status == 400 && message.contains("collection=post"),
            "{asked}: {message}"
        );
    }
    assert_eq!(
        app.get(&format!("{feed}&collection=post&scoreMin=1")).0,
        200
    );
}

#[test]
fn a_bad_search_is_refused_by_name() {
    let app = world();
    let feed = format!("getFeed?feed=timeline&actor={READER}&");
    for base in ["post.listRecords?", &feed] {
        for (search, word) in [
            ("%22calm", "not closed"),
            ("", "at least one"),
            ("%2B", "letter"),
        ] {
            let (status, answer) = app.get(&format!("/xrpc/com.example.{base}search={search}"));
            assert_eq!((status, &answer["error"]), (400, &json!("InvalidSearch")));
            assert!(
                answer["message"].as_str().unwrap().contains(word),
                "{answer}"
            );
        }
    }
}

#[test]
fn children_are_counted_and_each_parent_shows_its_own() {
    let app = world();
    let (_, page) =
        app.get("/xrpc/com.example.post.listRecords?scoreMin=100&scoreMax=102&hydrateLike=2");
    let records = page["records"].as_array().unwrap();
    let of = |n: i64| {
        records
            .iter()
            .find(|record| record["value"]["n"] == n)
            .unwrap()
    };
    assert_eq!(of(100)["likeCount"], 6);
    let likes = |n: i64| -> Vec<Value> {
        let likes = of(n)["like"].as_array().cloned().unwrap_or_default();
        likes
            .iter()
            .map(|like| like["value"]["n"].clone())
            .collect()
    };
    assert_eq!(likes(100), [5, 4]);
    assert_eq!(likes(101), [6]);
    assert!(of(102).get("likeCount").is_none() && of(102).get("like").is_none());
    let uri = format!("at://{AUTHOR}/com.example.post/p100");
    let (_, one) = app.get(&format!(
        "/xrpc/com.example.post.getRecord?uri={uri}&hydrateLike=1&profiles=true"
    ));
    assert_eq!(one["likeCount"], 6);
    assert_eq!(one["like"].as_array().unwrap().len(), 1);
    assert_eq!(one["profiles"][0]["value"]["displayName"], "A");
}

#[test]
fn an_answer_that_the_client_has_is_not_sent_again() {
    let app = world();
    let feed = format!("/xrpc/com.example.getFeed?feed=timeline&actor={READER}");
    for path in ["/xrpc/com.example.post.listRecords", &feed] {
        let (first, tag, body) = app.tagged(path, None);
        assert_eq!(first, 200);
        assert!(!body.is_empty());
        let tag = tag.expect("a tag");
        assert_eq!(app.tagged(path, Some(&tag)).0, 304, "{path}");
        assert_eq!(app.tagged(path, Some("W/\"0\"")).0, 200, "{path}");
    }
}

#[test]
fn references_and_profiles_stand_beside_the_records() {
    let app = world();
    let (_, page) =
        app.get("/xrpc/com.example.like.listRecords?hydratePost=true&profiles=true&limit=1");
    assert_eq!(page["records"][0]["post"]["value"]["n"], 101);
    assert_eq!(page["profiles"], json!([{"did": OTHER, "handle": null}]));
    let (status, profile) = app.get(&format!("/xrpc/com.example.getProfile?actor={AUTHOR}"));
    assert_eq!(
        (status, &profile["profiles"][0]["rkey"]),
        (200, &json!("self")),
        "{profile}"
    );
    let (status, _) = app.get("/xrpc/com.example.getProfile?actor=did:web:nobody.test");
    assert_eq!(status, 404);
    assert_eq!(app.get("/xrpc/com.example.getCursor"), (200, json!({})));
}

#[test]
fn lexicons_are_given_out_to_code_generators() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    for (file, id) in [
        ("b.json", "com.example.b"),
        ("deep/a.json", "com.example.a"),
    ] {
        let text = json!({"lexicon": 1, "id": id, "defs": {"main": {"type": "token"}}}).to_string();
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let app = App::start(&format!("lexicons = [{:?}]\n{CONFIG}", folder.path()));
    let (status, answer) = app.get("/xrpc/com.example.lexicons");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["lexicons"][0]["id"], "com.example.a");
    assert_eq!(answer["lexicons"][1]["id"], "com.example.b");
}

#[test]
fn help_names_the_variables_that_override_the_file() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .args(["run", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for name in [
        "PORT",
        "DATABASE_URL",
        "RELAY_URL",
        "JETSTREAM_URL",
        "PLC_URL",
        "PUBLIC_URL",
        "FEEDMILL_APP_TOKEN",
        "FEEDMILL_SECRET",
    ] {
        assert!(help.contains(name), "{name} is not in:\n{help}");
    }
}

/// Of a great many others nothing is looked at: the bound on looking is far below their number.
#[test]
fn an_equality_finds_the_few_among_the_many() {
    use super::desk::{ALICE, Desk};
    use feedmill::store::filter::{Field, Filter, Operand, Test};
    use feedmill::store::{Lens, ListQuery};
    let desk = Desk::new(
        "[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.post.queryable]\nlang = {}\ntags = {}\nn = { as = \"number\" }\nat = {}\n",
    );
    for n in 0..40 {
        let rare = if n < 3 { "rare" } else { "common" };
        let body = json!({"lang": rare, "tags": ["x", rare, rare], "n": n / 2, "at": "2026-01-01T00:00:00Z",
            "createdAt": format!("2026-01-01T00:00:{n:02}Z")});
        desk.put(ALICE, "post", &format!("p{n:02}"), &body.to_string());
    }
    let find = |path: &str, text: &str| -> (Vec<String>, bool) {
        let equal = Filter::Field(Field {
            path: path.into(),
            test: Test::Equal,
            operand: Operand::parse(text, None).unwrap(),
        });
        let query = ListQuery {
            lane: desk.store.plan().listing("com.example.post").unwrap(),
            did: None,
            before: None,
            limit: 2,
            lens: Lens {
                filters: vec![equal],
                ..Lens::default()
            },
            scan_max: 4,
        };
        let page = desk.store.list(&query).unwrap();
        let keys = page.rows.into_iter().map(|row| row.rkey).collect();
        (keys, page.next.is_some())
    };
    let keys = |keys: [&str; 2]| keys.map(str::to_owned).to_vec();
    assert_eq!(find("lang", "rare"), (keys(["p02", "p01"]), true));
    assert_eq!(find("tags", "rare"), (keys(["p02", "p01"]), true));
    assert_eq!(find("n", "0"), (keys(["p01", "p00"]), false));
    assert_eq!(find("n", "text"), (Vec::new(), false));
    // A moment may be written in many ways, so it is looked for among all.
    assert_eq!(find("at", "2026-01-01T01:00:00+01:00").0.len(), 2);
}
