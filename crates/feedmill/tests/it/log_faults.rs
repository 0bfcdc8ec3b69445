//! What a stranger may send to the log, over HTTP: every wrong thing has its
//! code, comes back under its request id, and leaves nothing behind.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::peers::Demo;

/// Processes that serve one log.
struct Served {
    _folder: tempfile::TempDir,
    urls: Vec<String>,
    _servers: Vec<Demo>,
}

fn served(processes: usize, log: &str) -> Served {
    feedmill::identity::provide_tls();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    let text = format!(
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
         [log]\nfile = \"log.db\"\nread = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n{log}\n[serve]\nbind = \"127.0.0.1:0\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let servers: Vec<Demo> = (0..processes)
        .map(|_| Demo::start(&["serve", file.to_str().unwrap()], "serving on "))
        .collect();
    Served {
        _folder: folder,
        urls: servers
            .iter()
            .map(|server| server.word("serving on ").trim_end_matches('/').to_owned())
            .collect(),
        _servers: servers,
    }
}

async fn ask(url: &str, kind: &str, message: &Value) -> (u16, Value) {
    let answer = reqwest::Client::new()
        .post(format!("{url}/log/s/{kind}"))
        .json(message)
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn block(sequence: Value) -> Value {
    json!({"actorId": "a", "sequence": sequence, "timestamp": 1, "data": "eA=="})
}

/// Every wrong number: negative, fractional, huge, or none at all.
fn wrong_numbers() -> Vec<Value> {
    vec![
        json!(-1),
        json!(-9_007_199_254_740_993_i64),
        json!(1.5),
        json!(1e300),
        json!(1u64 << 53),
        json!(u64::MAX),
        json!("7"),
        json!([1]),
        json!({}),
        json!(true),
    ]
}

fn wrong_requests() -> Vec<(&'static str, Value, &'static str)> {
    let mut wrong = Vec::new();
    for number in wrong_numbers() {
        wrong.push((
            "append",
            json!({"blocks": [block(number.clone())]}),
            "badRequest",
        ));
        let mut dated = block(json!(9));
        dated["timestamp"] = number.clone();
        wrong.push(("append", json!({"blocks": [dated]}), "badRequest"));
        wrong.push(("query", json!({"limit": number}), "badRequest"));
        wrong.push(("list", json!({"limit": number}), "badRequest"));
        wrong.push(("query", json!({"since": number}), "badRequest"));
        let code = if number.is_string() {
            "badCursor"
        } else {
            "badRequest"
        };
        wrong.push(("query", json!({"cursor": number}), code));
    }
    wrong.extend(wrong_shapes());
    wrong
}

/// Every other wrong thing.
fn wrong_shapes() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(513);
    let large = "AAAA".repeat(600);
    let other = json!({"actorId": "a", "sequence": 1, "timestamp": 1, "data": "b3RoZXI="});
    let many: Vec<Value> = (2..=6).map(|number| block(json!(number))).collect();
    vec![
        ("query", json!({"limit": 0}), "badRequest"),
        ("query", json!({"cursor": "TOK|1e2"}), "badCursor"),
        ("query", json!({"cursor": ""}), "badCursor"),
        (
            "query",
            json!({"feedIds": ["a"], "namespace": "n"}),
            "badRequest",
        ),
        (
            "query",
            json!({"subscriptionId": "none", "cursor": 0}),
            "unknownSubscription",
        ),
        ("append", json!({"blocks": []}), "badRequest"),
        ("append", json!({"blocks": [7]}), "badRequest"),
        ("append", json!({"blocks": many}), "tooLarge"),
        ("append", json!({"blocks": [other]}), "conflict"),
        (
            "append",
            json!({"namespace": "other", "blocks": [block(json!(2))]}),
            "namespace",
        ),
        (
            "append",
            json!({"namespace": "", "blocks": [block(json!(2))]}),
            "badRequest",
        ),
        (
            "append",
            json!({"namespace": long, "blocks": [block(json!(2))]}),
            "badRequest",
        ),
        (
            "append",
            json!({"namespace": "a\u{0}", "blocks": [block(json!(2))]}),
            "badRequest",
        ),
        (
            "append",
            json!({"blocks": [{"actorId": "a", "sequence": 2, "timestamp": 1, "data": large}]}),
            "tooLarge",
        ),
        ("erase", json!({}), "unknownKind"),
        ("query", json!({"type": "erase"}), "unknownKind"),
    ]
}

#[tokio::test]
async fn every_wrong_request_has_its_code_and_its_id_and_writes_nothing() {
    let served = served(1, "block_bytes_max = 1000\nbatch_blocks_max = 4");
    let url = &served.urls[0];
    let first = json!({"requestId": 0, "namespace": "n", "blocks": [block(json!(1))]});
    assert_eq!(ask(url, "append", &first).await.1["positions"], json!([1]));
    let everything = json!({"requestId": "all", "limit": 100});
    let before = ask(url, "query", &everything).await.1;
    for (number, (kind, mut message, code)) in wrong_requests().into_iter().enumerate() {
        // A `type` in the message and a path that differ: the path says how it is read.
        let id = format!("wrong {number}");
        message["requestId"] = json!(id);
        let path = match message["type"].as_str() {
            Some(named) => named.to_owned(),
            None => kind.to_owned(),
        };
        let (status, answer) = ask(url, &path, &message).await;
        assert_eq!(answer["error"], code, "{message} {answer}");
        assert_eq!(answer["requestId"], json!(id), "{answer}");
        assert!((400..500).contains(&status), "{status} {answer}");
        assert!(answer["message"].is_string(), "{answer}");
    }
    let after = ask(url, "query", &everything).await.1;
    assert_eq!(before, after, "nothing was written");
    let list = ask(url, "list", &json!({"requestId": 1})).await.1;
    assert_eq!(
        list["feeds"].as_array().unwrap().len(),
        1,
        "no feed was made"
    );
}

#[tokio::test]
async fn who_waits_at_one_process_is_told_what_another_appends() {
    let served = served(2, "");
    let [here, there] = [&served.urls[0], &served.urls[1]];
    let (status, _) = ask(here, "create", &json!({"requestId": 0})).await;
    assert_eq!(status, 200);
    let socket = format!("{}/log/s", here.replacen("http", "ws", 1));
    let (mut socket, _) = tokio_tungstenite::connect_async(socket).await.unwrap();
    let subscribe = json!({"requestId": 7, "type": "subscribe", "feedIds": ["a"]});
    socket
        .send(Message::text(subscribe.to_string()))
        .await
        .unwrap();
    let mut next = async || -> Value {
        let message = tokio::time::timeout(Duration::from_secs(60), socket.next());
        let message = message.await.expect("a message in time").unwrap().unwrap();
        match message {
            Message::Text(text) => serde_json::from_str(text.as_str()).unwrap(),
            _ => Value::Null,
        }
    };
    while next().await["requestId"] != 7 {}
    for sequence in 1..=3 {
        let append = json!({"requestId": 0, "blocks": [block(json!(sequence))]});
        let (_, answer) = ask(there, "append", &append).await;
        assert_eq!(answer["positions"], json!([sequence]));
        loop {
            let hint = next().await;
            if hint["type"] == "advanced" && hint["maxPosition"] == sequence {
                break;
            }
        }
        let (_, page) = ask(
            here,
            "query",
            &json!({"requestId": 1, "cursor": sequence - 1}),
        )
        .await;
        assert_eq!(page["blocks"][0]["position"], sequence);
    }
}

#[tokio::test]
async fn appends_at_two_processes_share_one_order() {
    let served = served(2, "");
    let writers = (0..6).map(|writer| {
        let url = served.urls[writer % 2].clone();
        tokio::spawn(async move {
            for sequence in 1..=10 {
                let actor = format!("writer {writer}");
                let one = json!({"actorId": actor, "feedId": "f", "sequence": sequence, "timestamp": 1, "data": ""});
                let (status, answer) = ask(&url, "append", &json!({"requestId": 1, "blocks": [one]})).await;
                assert_eq!(status, 200, "{answer}");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let all = json!({"requestId": 1, "limit": 1000});
    let pages = [
        ask(&served.urls[0], "query", &all).await.1,
        ask(&served.urls[1], "query", &all).await.1,
    ];
    assert_eq!(pages[0]["blocks"], pages[1]["blocks"]);
    let positions: Vec<u64> = pages[0]["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["position"].as_u64().unwrap())
        .collect();
    assert_eq!(positions, (1..=60).collect::<Vec<u64>>());
    let list = ask(
        &served.urls[1],
        "list",
        &json!({"requestId": 1, "feedId": "f"}),
    )
    .await
    .1;
    assert_eq!(list["feeds"][0]["tip"]["sequence"], 10);
    assert_eq!(list["feeds"][0]["tip"]["actorId"], "writer 5");
}
