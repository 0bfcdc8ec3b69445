//! Group commit, killed inside a group: nothing that was acknowledged is lost, nothing is there twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use feedmill::crash;
use serde_json::{Value, json};

use super::peers::Demo;

/// Clients that append at the same time, each one block after the other.
const WRITERS: u64 = 8;
/// No server lives so long.
const APPENDS_MAX: u64 = 5000;

/// Feed, actor and sequence of a block.
type Key = (String, String, u64);

fn serve(folder: &Path, environment: &[(&str, &str)]) -> (Demo, String) {
    feedmill::identity::provide_tls();
    let file = folder.join("feedmill.toml");
    let text = "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
                [log]\nfile = \"log.db\"\nread = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n\
                append_blocks_per_second_max = 1000000\n[serve]\nbind = \"127.0.0.1:0\"\n";
    std::fs::write(&file, text).unwrap();
    let arguments = ["serve", file.to_str().unwrap()];
    let server = Demo::start_in(environment, &arguments, "serving on ");
    let url = server.word("serving on ").trim_end_matches('/').to_owned();
    (server, url)
}

async fn ask(client: &reqwest::Client, url: &str, kind: &str, message: &Value) -> Option<Value> {
    let request = client.post(format!("{url}/log/s/{kind}")).json(message);
    request.send().await.ok()?.json().await.ok()
}

/// Every third block goes into a feed that all share.
fn block(writer: u64, sequence: u64) -> (Key, Value) {
    let actor = format!("w{writer}");
    let feed = if sequence.is_multiple_of(3) {
        "all".to_owned()
    } else {
        actor.clone()
    };
    let block = json!({"feedId": feed, "actorId": actor, "sequence": sequence, "timestamp": 1, "data": "eA=="});
    ((feed, actor, sequence), block)
}

/// Appends until the server is gone; what it acknowledged, by position, and what was on its way.
async fn write(url: String, writer: u64) -> (Vec<(Key, u64)>, Key) {
    let client = reqwest::Client::new();
    let mut acknowledged = Vec::new();
    for sequence in 1..=APPENDS_MAX {
        let (key, block) = block(writer, sequence);
        let message = json!({"requestId": sequence, "blocks": [block]});
        let Some(answer) = ask(&client, &url, "append", &message).await else {
            return (acknowledged, key);
        };
        let position = answer["positions"][0].as_u64();
        acknowledged.push((key, position.unwrap_or_else(|| panic!("{answer}"))));
    }
    panic!("the server outlived {APPENDS_MAX} appends");
}

/// Every block that is there, by position.
async fn held(url: &str) -> BTreeMap<u64, Key> {
    let client = reqwest::Client::new();
    let mut found = BTreeMap::new();
    let mut question = json!({"requestId": 1, "limit": 1000});
    loop {
        let page = ask(&client, url, "query", &question).await.unwrap();
        for block in page["blocks"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"))
        {
            let text = |name: &str| block[name].as_str().unwrap().to_owned();
            let key = (
                text("feedId"),
                text("actorId"),
                block["sequence"].as_u64().unwrap(),
            );
            let before = found.insert(block["position"].as_u64().unwrap(), key);
            assert_eq!(before, None, "two blocks at one position");
        }
        if page["hasMore"] != true {
            return found;
        }
        question["cursor"] = page["nextCursor"].clone();
    }
}

async fn check(point: &str, passage: u32) {
    let folder = tempfile::tempdir().unwrap();
    let wish = format!("{point}:{passage}");
    let (_first, url) = serve(folder.path(), &[("FEEDMILL_CRASH", &wish)]);
    let writers = (1..=WRITERS).map(|writer| tokio::spawn(write(url.clone(), writer)));
    let (mut acknowledged, mut unanswered) = (Vec::new(), Vec::new());
    for writer in writers.collect::<Vec<_>>() {
        let (written, last) = writer.await.unwrap();
        acknowledged.extend(written);
        unanswered.push(last);
    }
    let (_second, url) = serve(folder.path(), &[]);
    let there = if acknowledged.is_empty() {
        BTreeMap::new() // the space itself may not have come to be
    } else {
        held(&url).await
    };
    for (key, position) in &acknowledged {
        assert_eq!(there.get(position), Some(key), "{wish}: lost");
    }
    let positions: Vec<u64> = there.keys().copied().collect();
    let expected: Vec<u64> = (1..=there.len() as u64).collect();
    assert_eq!(positions, expected, "{wish}: gaps");
    let keys: BTreeSet<&Key> = there.values().collect();
    assert_eq!(keys.len(), there.len(), "{wish}: a block is there twice");
    // What was on its way is there or not; sent again it is there once.
    let client = reqwest::Client::new();
    for (feed, actor, sequence) in unanswered {
        let writer = actor.trim_start_matches('w').parse().unwrap();
        let message = json!({"requestId": 1, "blocks": [block(writer, sequence).1]});
        let answer = ask(&client, &url, "append", &message).await.unwrap();
        let position = answer["positions"][0].as_u64().unwrap();
        let key = (feed, actor, sequence);
        match there.iter().find(|(_, held)| **held == key) {
            Some((before, _)) => assert_eq!(position, *before, "{wish}"),
            None => assert!(position > there.len() as u64, "{wish}"),
        }
    }
}

#[tokio::test]
async fn killed_inside_a_group_nothing_acknowledged_is_lost() {
    for point in crash::LOG_POINTS {
        for passage in [1, 5, 30] {
            check(point, passage).await;
        }
    }
}
