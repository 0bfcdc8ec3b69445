//! Pages sorted by how many children name a record's author, held against a
//! model that sorts everything anew; and what one child costs.
//!
//! `FEEDMILL_SEED=n` replays one run.

use std::collections::BTreeSet;

use feedmill::config::Config;
use feedmill::store::AccountStatus;
use feedmill::store::batch::{Batch, Commit, Item, Op};
use feedmill::store::page::Rung;
use serde_json::{Value, json};
use sim::rng::Rng;

use crate::desk::Desk;
use crate::mill::Mill;
use crate::ranking::{ANSWER, COLLECTIONS, Post, READER, RELATION, Way, World, author};

fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let drawn = now.unwrap().as_micros() as u64 % 1_000_000;
    let given = std::env::var("FEEDMILL_SEED").ok();
    let seed = given.map_or(drawn, |seed| seed.parse().expect("a number"));
    println!("renown: FEEDMILL_SEED={seed}");
    seed
}

/// Few authors stand on many values, many on few: those are sought, these are walked first.
#[test]
fn pages_by_who_names_the_author_are_those_of_a_model_that_sorts_everything_anew() {
    let mut rng = Rng::new(seed());
    for (authors, acts, crowd) in [(5, 150, 0), (90, 200, 0), (60, 30, 48)] {
        let desk = Desk::new(&format!("{COLLECTIONS}{RELATION}"));
        let mut world = World::new(desk, authors);
        for subject in (0..authors).filter(|it| it % 5 != 4) {
            world.follow(subject);
        }
        // So many share one value, and write more than a short walk sees.
        for subject in 0..crowd {
            world.fan(0, subject);
            for _ in 0..4 {
                world.post(Post::draw(&mut rng, authors));
            }
        }
        for turn in 0..acts {
            world.act(&mut rng);
            if turn % 40 == 39 {
                world.check_all(3, 2_000);
            }
        }
        let ways = [(50, 70), (7, 150), (50, 2_000), (1, 2_000), (4, 9), (2, 1)];
        // Tiny pages of very many are more of the same.
        let ways = ways.iter().take(if crowd > 0 { 3 } else { 6 });
        ways.for_each(|(limit, scan_max)| world.check_all(*limit, *scan_max));
    }
}

#[test]
fn a_changed_configuration_counts_anew_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!(
        "[store]\nurl = \"sqlite://{}/s.db\"\n",
        folder.path().display()
    );
    let open = |relation: &str| {
        let text = format!("namespace = \"com.example\"\n{COLLECTIONS}{relation}{store}");
        Desk::of(Config::parse(&text).unwrap())
    };
    let mut world = World::new(open(ANSWER), 4);
    for number in 0..12 {
        let post = Post::draw(&mut Rng::new(number), 4);
        world.post(post);
    }
    world.follow(0);
    world.follow(1);
    // One names another twice, and a hidden one names somebody.
    for (from, to) in [(0, 1), (0, 1), (2, 1), (1, 2), (3, 0), (3, 2)] {
        world.fan(from, to);
    }
    world.says(3, AccountStatus::Takendown);
    let rev = world.desk.next_rev();
    let reopened = |world: World, relation: &str| {
        world.reopened(|| {
            let desk = open(relation);
            while desk.next_rev() < rev {}
            desk
        })
    };
    // These children are counted already; then they are counted anew.
    let world = reopened(world, &format!("{ANSWER}{RELATION}"));
    world.check_all(2, 2_000);
    let world = reopened(world, "");
    let mut world = reopened(world, RELATION);
    world.check_all(2, 2_000);
    world.fan(2, 0);
    world.fan(0, 2);
    world.check_all(2, 2_000);
    let mut world = reopened(world, &format!("{RELATION}count_distinct = \"did\"\n"));
    // The model knows each pair once.
    let mut pairs = BTreeSet::new();
    world.fans.retain(|_, pair| pairs.insert(*pair));
    world.check_all(2, 2_000);
}

#[test]
fn a_page_ends_though_nobody_who_is_named_has_written() {
    let mut world = World::new(Desk::new(&format!("{COLLECTIONS}{RELATION}")), 9);
    for to in 1..9 {
        (0..to).for_each(|_| world.fan(0, to));
    }
    world.post(Post::draw(&mut Rng::new(1), 1));
    let way = Way {
        descending: true,
        limit: 5,
        scan_max: 3,
    };
    let first = world.list(None, world.lens(true, None), None, way);
    assert!(first.rows.is_empty());
    assert_eq!(
        first.next_rung,
        Some(Rung::Number(5)),
        "three were looked at"
    );
    world.check_all(5, 3);
}

/// Enough that nobody seeks them one by one.
#[test]
fn accounts_beyond_number_share_a_value_and_none_of_their_records_is_skipped() {
    const MANY: usize = 5_100;
    let desk = Desk::new(&format!("{COLLECTIONS}{RELATION}"));
    let did = |number: usize| format!("did:web:m{number}.test");
    let mut items = Vec::new();
    let mut expected: Vec<(i64, String)> = Vec::new();
    for number in 0..MANY {
        let body = json!({"subject": did(number)}).to_string();
        items.push(item(&desk, READER, "fan", &format!("n{number}"), &body));
        if number % 17 == 0 {
            let time = format!("2026-01-01T00:00:{:02}.000Z", number % 60);
            let body = json!({"createdAt": time}).to_string();
            items.push(item(&desk, &did(number), "post", "p", &body));
            expected.push((number as i64 % 60, desk.uri(&did(number), "post", "p")));
        }
    }
    items.push(item(&desk, "did:web:nobody.test", "post", "p", "{}"));
    let batch = Batch {
        source: "test".into(),
        cursor: Some(7),
        now_us: desk.now_us(),
        items,
    };
    desk.store.commit(batch).unwrap();
    expected.sort();
    let mut expected: Vec<String> = expected.into_iter().rev().map(|(_, uri)| uri).collect();
    expected.push(desk.uri("did:web:nobody.test", "post", "p"));
    let world = World::new(desk, 0);
    for (limit, scan_max) in [(50, 2_000), (50, 33)] {
        let way = Way {
            descending: true,
            limit,
            scan_max,
        };
        let (mut found, mut from, mut before) = (Vec::new(), None, None);
        loop {
            let page = world.list(None, world.lens(true, from), before, way);
            found.extend(page.rows.into_iter().map(|row| row.uri));
            (from, before) = (page.next_rung, page.next);
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{way:?}");
    }
}

fn item(desk: &Desk, did: &str, short: &str, rkey: &str, body: &str) -> Item {
    let rev = desk.next_rev();
    let verdict = desk.check(did, short, rkey, rev, body);
    Item::Commit(Commit {
        did: did.into(),
        rev,
        chain: None,
        filtered: 0,
        ops: vec![Op {
            collection: desk.config.nsid(short).unwrap().into(),
            rkey: rkey.into(),
            verdict,
        }],
        frame: Default::default(),
        seq: 0,
        was_held: false,
        live: true,
    })
}

/// Rows that one child writes, of an account with so many records; by its coming and by its going.
fn written(records: usize) -> (i64, i64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    let text = format!(
        "namespace = \"com.example\"\n{COLLECTIONS}{RELATION}[store]\nurl = \"sqlite://{}\"\n",
        file.display()
    );
    let mut world = World::new(Desk::of(Config::parse(&text).unwrap()), 3);
    world.fan(1, 0);
    for second in 0..records {
        world.post(Post {
            author: 0,
            about: 0,
            open: true,
            second: second as i64 % 60,
        });
    }
    let beside = rusqlite::Connection::open(&file).unwrap();
    let mut count =
        String::from("CREATE TABLE written (rows INTEGER); INSERT INTO written VALUES (0);");
    for table in [
        "record",
        "published",
        "recent",
        "tally",
        "voice",
        "rung",
        "sheet",
    ] {
        for event in ["INSERT", "DELETE", "UPDATE"] {
            count.push_str(&format!(
                "CREATE TRIGGER w_{table}_{event} AFTER {event} ON {table} BEGIN UPDATE written SET rows = rows + 1; END;"
            ));
        }
    }
    beside.execute_batch(&count).unwrap();
    let rows = || -> i64 {
        let rows = beside.query_row("SELECT rows FROM written", [], |row| row.get(0));
        rows.unwrap()
    };
    world.fan(2, 0);
    let came = rows();
    world.unfan(&mut Rng::new(1));
    (came, rows() - came)
}

#[test]
fn a_child_writes_as_many_rows_whatever_its_account_has_written() {
    let (came, goes) = written(2);
    assert!(came > 2 && goes > 2, "{came}, {goes}: nothing was counted");
    assert!(came <= 8 && goes <= 8, "{came}, {goes}");
    assert_eq!(written(200), (came, goes));
}

/// Through the door of clients: each order that is offered is served.
#[tokio::test(flavor = "multi_thread")]
async fn every_order_that_a_lexicon_offers_is_served() {
    let relation =
        format!("{RELATION}group_by = \"kind\"\ngroups = {{ true = \"true\" }}\n{ANSWER}");
    let text = format!(
        "namespace = \"com.example\"\n{COLLECTIONS}{relation}[store]\nurl = \"sqlite::memory:\"\n"
    );
    let mill = Mill::start(&text).await;
    mill.put(&author(0), "post", "few", &json!({}));
    mill.put(&author(1), "post", "most", &json!({}));
    mill.put(&author(2), "post", "none", &json!({}));
    for (rkey, kind, to) in [("1", "true", 0), ("2", "false", 1), ("3", "false", 1)] {
        let body = json!({"subject": author(to), "kind": kind});
        mill.put(READER, "fan", rkey, &body);
    }
    let (_, answer) = mill.get("/xrpc/com.example.lexicons").await;
    let mut lexicons = answer["lexicons"].as_array().unwrap().iter();
    let id = "com.example.post.listRecords";
    let lexicon = lexicons.find(|it| it["id"] == id).unwrap();
    let offered = &lexicon["defs"]["main"]["parameters"]["properties"]["sort"]["enum"];
    assert_eq!(
        *offered,
        json!(["answerCount", "fanCount", "fanTrueCount"]),
        "{lexicon}"
    );
    let keys = async |query: &str| -> Vec<String> {
        let (status, page) = mill.get(&format!("/xrpc/{id}?{query}")).await;
        assert_eq!(status, 200, "{page}");
        let records = page["records"].as_array().unwrap().iter();
        let rkey = |record: &Value| record["rkey"].as_str().unwrap().to_owned();
        records.map(rkey).collect()
    };
    for sort in offered.as_array().unwrap() {
        let query = format!("sort={}", sort.as_str().unwrap());
        assert_eq!(keys(&query).await.len(), 3, "{query}");
    }
    assert_eq!(keys("sort=fanCount").await, ["most", "few", "none"]);
    assert_eq!(keys("sort=fanTrueCount&limit=1").await, ["few"]);
    assert_eq!(keys("sort=fanCount&order=asc&limit=1").await, ["none"]);
    mill.river.stop().await;
}
