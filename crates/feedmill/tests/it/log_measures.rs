//! Every metric of the log moves when what it tells of happens, and `/metrics` shows it.
//!
//! What a Feedmill publishes, and how far behind its replica is, is read in
//! `replica`, where there are two of them.

use std::path::Path;
use std::time::Instant;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::life::PATIENCE;
use super::peers::Demo;

fn serve(folder: &Path) -> (Demo, String) {
    let file = folder.join("feedmill.toml");
    let text = "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
                [log]\nfile = \"log.db\"\nread = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\nkeep = { newest = 2 }\n[serve]\nbind = \"127.0.0.1:0\"\n";
    std::fs::write(&file, text).unwrap();
    let server = Demo::start(&["serve", file.to_str().unwrap()], "serving on ");
    let url = server.word("serving on ").trim_end_matches('/').to_owned();
    (server, url)
}

async fn ask(url: &str, kind: &str, message: Value) -> Value {
    let request = reqwest::Client::new().post(format!("{url}/log/s/{kind}"));
    let answer = request.json(&message).send().await.unwrap();
    answer.json().await.unwrap()
}

/// The value of a line of `/metrics`.
pub(crate) async fn measure(url: &str, line: &str) -> Option<f64> {
    let text = reqwest::get(format!("{url}/metrics")).await.unwrap();
    let text = text.text().await.unwrap();
    let found = text.lines().find_map(|it| it.strip_prefix(line))?;
    found.trim().parse().ok()
}

/// Waits until a line shows this: some are looked at only now and then.
pub(crate) async fn shows(url: &str, line: &str, expected: f64) {
    let begun = Instant::now();
    loop {
        let shown = measure(url, line).await;
        if shown == Some(expected) {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{line} is {shown:?}, not {expected}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn every_metric_of_the_log_moves() {
    feedmill::identity::provide_tls();
    let folder = tempfile::tempdir().unwrap();
    let (server, url) = serve(folder.path());
    let block = |data: &str, sequence: u64| json!({"actorId": "a", "sequence": sequence, "timestamp": 1, "data": data});
    let blocks: Vec<Value> = (1..=4).map(|sequence| block("eA==", sequence)).collect();
    ask(&url, "append", json!({"requestId": 1, "blocks": blocks})).await;
    let other = json!({"requestId": 2, "blocks": [block("b3RoZXI=", 1)]});
    assert_eq!(ask(&url, "append", other).await["error"], "conflict");
    ask(&url, "query", json!({"requestId": 3, "cursor": 1})).await;
    ask(&url, "query", json!({"requestId": 4, "cursor": "garbage"})).await;
    ask(&url, "list", json!({"requestId": 5})).await;
    shows(&url, "feedmill_log_blocks_total{by=\"peer\"}", 4.0).await;
    shows(&url, "feedmill_log_blocks_read_total", 3.0).await;
    shows(&url, "feedmill_log_conflicts_total", 1.0).await;
    let answered = [
        ("append", "ok"),
        ("append", "refused"),
        ("query", "ok"),
        ("query", "badCursor"),
        ("list", "ok"),
    ];
    for (kind, result) in answered {
        let line = format!("feedmill_log_requests_total{{kind=\"{kind}\",result=\"{result}\"}}");
        shows(&url, &line, 1.0).await;
    }

    let stream = format!("{url}/v1/stream/measured");
    let client = reqwest::Client::new();
    for request in [client.put(&stream), client.post(&stream)] {
        let answer = request
            .header("content-type", "text/plain")
            .body("x")
            .send();
        assert!(answer.await.unwrap().status().is_success());
    }
    shows(&url, "feedmill_log_blocks_total{by=\"stream\"}", 2.0).await;

    let address = format!("{}/log/s", url.replacen("http", "ws", 1));
    let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
    let subscribe = json!({"requestId": 6, "type": "subscribe"}).to_string();
    socket.send(Message::text(subscribe)).await.unwrap();
    drop(socket.next().await);
    shows(&url, "feedmill_log_connections", 1.0).await;
    shows(&url, "feedmill_log_subscriptions", 1.0).await;
    shows(&url, "feedmill_log_spaces", 2.0).await;
    shows(&url, "feedmill_log_position{space=\"s\"}", 4.0).await;
    drop(socket);
    shows(&url, "feedmill_log_connections", 0.0).await;

    // What is past its retention goes at the first look of the next process.
    server.stop();
    let (_server, url) = serve(folder.path());
    shows(&url, "feedmill_log_blocks_evicted_total", 2.0).await;
    let query = json!({"requestId": 7, "cursor": 0});
    assert_eq!(ask(&url, "query", query).await["startsAt"], 2);
}
