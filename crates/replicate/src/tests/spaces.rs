//! Spaces that are deleted: what comes after them, and what must not come back.

use super::peers::{replicate, report};
use super::*;
use blocklog::store::LogStore as _;

#[tokio::test]
async fn a_space_that_is_made_again_has_nothing_of_the_one_before() {
    let server = serve(LogSettings::open()).await;
    let ask = json!({"requestId": 1});
    let blocks: Vec<Value> = (1..=3).map(|sequence| block("01H1", sequence)).collect();
    let three = json!({"requestId": 1, "blocks": blocks});
    assert_eq!(server.ask("append", &three).await.0, 200);
    assert_eq!(server.ask("delete", &ask).await.1["changed"], 3);
    assert_eq!(server.ask("create", &ask).await.1["changed"], 1);
    // Positions begin again; the blocks before them are still in the tail.
    let (status, answer) = server.append(1).await;
    assert_eq!((status, &answer["positions"]), (200, &json!([1])));
    server.append(7).await;
    let query = json!({"requestId": 1, "feedIds": ["01H1"]});
    let (_, page) = server.ask("query", &query).await;
    let sequences = |page: &Value| -> Vec<u64> {
        let blocks = page["blocks"].as_array().unwrap().iter();
        blocks
            .map(|one| one["sequence"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(sequences(&page), [1, 7], "{page}");
    let purge = json!({"requestId": 1, "feedId": "01H1"});
    assert_eq!(server.ask("purge", &purge).await.1["changed"], 2);
    let (_, page) = server.ask("query", &query).await;
    let blocks = page["blocks"].as_array().unwrap();
    assert!(blocks.iter().all(|one| one["data"].is_null()), "{page}");
}

#[tokio::test]
async fn a_deleted_space_is_made_again_by_create_alone() {
    let server = serve(LogSettings::open()).await;
    let ask = json!({"requestId": 1});
    server.append(1).await;
    let (_, page) = server.ask("query", &ask).await;
    server.ask("delete", &ask).await;
    let append = json!({"requestId": 1, "blocks": [block("a", 1)]});
    let mut with_cursor = append.clone();
    with_cursor["cursor"] = page["nextCursor"].clone();
    for (kind, message) in [
        ("query", &ask),
        ("subscribe", &ask),
        ("list", &ask),
        ("delete", &ask),
        ("append", &append),
        ("append", &with_cursor),
    ] {
        let (status, answer) = server.ask(kind, message).await;
        let error = answer["error"].as_str();
        assert_eq!((status, error), (410, Some("spaceDeleted")), "{kind}");
    }
    let url = format!("ws://{}/log/space", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    socket
        .send(Message::text(append.to_string()))
        .await
        .unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert!(
        answer.to_text().unwrap().contains("spaceDeleted"),
        "{answer}"
    );
    assert_eq!(server.log.store().spaces().unwrap(), Vec::<String>::new());
    assert_eq!(server.ask("create", &ask).await.1["changed"], 1);
    assert_eq!(server.ask("append", &append).await.0, 200);
}

#[tokio::test]
async fn a_replica_does_not_bring_a_deleted_space_back() {
    let (authority, replica) = (
        serve(LogSettings::open()).await,
        serve(LogSettings::open()).await,
    );
    authority.append(1).await;
    let running = replicate(&authority, &replica, "space");
    until("the history is here", async || {
        running.reports.now().pulled == 1
    })
    .await;
    authority.ask("delete", &json!({"requestId": 1})).await;
    replica.append(2).await;
    until("it is refused", async || {
        report(&running).refused == Some("spaceDeleted")
    })
    .await;
    assert!(authority.log.store().space("space").unwrap().is_none());
    // Whoever wants it again says so, and then it is given what the replica has.
    authority.ask("create", &json!({"requestId": 1})).await;
    until("both blocks are back", async || {
        let (_, page) = authority.ask("query", &json!({"requestId": 1})).await;
        page["blocks"].as_array().is_some_and(|all| all.len() == 2)
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_server_that_lost_its_file_is_given_everything_back() {
    let (lost, replica) = (
        serve(LogSettings::open()).await,
        serve(LogSettings::open()).await,
    );
    lost.append(1).await;
    let running = replicate(&lost, &replica, "space");
    until("the history is here", async || {
        running.reports.now().pulled == 1
    })
    .await;
    running.stop().await;
    let another = serve(LogSettings::open()).await;
    let running = replicate(&another, &replica, "space");
    until("it is there", async || {
        let (_, page) = another.ask("query", &json!({"requestId": 1})).await;
        page["blocks"].as_array().is_some_and(|all| all.len() == 1)
    })
    .await;
    running.stop().await;
}
