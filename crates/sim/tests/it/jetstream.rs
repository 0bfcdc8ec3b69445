//! Jetstream in both versions over a real socket.

use serde_json::Value;
use sim::event::Body;
use sim::faults::Fault;
use sim::network::{Network, NetworkOptions};
use sim::traffic::{Act, Traffic};
use sim::world::{World, WorldOptions};
use tokio_tungstenite::tungstenite::Error;

use crate::client::{Socket, get, quiet};

const V2: &str = "/xrpc/network.bsky.jetstream.subscribeEvents";

fn world() -> World {
    World::new(WorldOptions {
        seed: 51,
        accounts: 20,
        traffic: Traffic::wild(),
        ..WorldOptions::default()
    })
}

/// A network with 300 events of traffic after its history.
async fn network() -> (Network, usize) {
    let network = Network::start(world(), NetworkOptions::default()).await;
    let network = network.unwrap();
    let emitted = network.emit(300);
    (network, emitted)
}

/// Messages that the same world tells in total: (version 1, version 2).
fn counts(emitted: usize) -> (usize, usize) {
    let mut world = world();
    let mut events = world.take_genesis();
    let end = events.len() + emitted;
    while events.len() < end {
        events.extend(world.step());
    }
    let ops = |event: &sim::event::SeqEvent| match &event.body {
        Body::Commit { ops, .. } => (ops.len(), ops.len()),
        Body::Sync { .. } => (0, 1),
        Body::Identity { .. } | Body::Account { .. } => (1, 1),
    };
    events
        .iter()
        .map(ops)
        .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

async fn open(network: &Network, path: &str) -> Socket {
    Socket::open(&format!("{}{path}", network.jetstream_ws_url())).await
}

async fn take(socket: &mut Socket, count: usize) -> Vec<Value> {
    let messages = socket.take(count).await;
    let parse = |bytes: &Vec<u8>| serde_json::from_slice(bytes).unwrap();
    messages.iter().map(parse).collect()
}

/// The status and error of a refused subscription.
async fn refusal(network: &Network, path: &str) -> (u16, String) {
    let url = format!("{}{path}", network.jetstream_ws_url());
    let Err(Error::Http(response)) = Socket::try_open(&url).await else {
        panic!("{path} was not refused")
    };
    let body: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    let error = body["error"].as_str().unwrap().to_owned();
    (response.status().as_u16(), error)
}

#[tokio::test]
async fn version_1_tells_every_operation_from_a_time_on() {
    let (network, emitted) = network().await;
    let mut socket = open(&network, "/subscribe?cursor=1").await;
    let messages = take(&mut socket, counts(emitted).0).await;
    let times: Vec<i64> = messages
        .iter()
        .map(|it| it["time_us"].as_i64().unwrap())
        .collect();
    assert!(times.is_sorted());
    for kind in ["commit", "identity", "account"] {
        assert!(messages.iter().any(|it| it["kind"] == kind), "{kind}");
    }
    assert!(messages.iter().all(|it| it["kind"] != "sync"));
    let create = messages
        .iter()
        .find(|it| it["commit"]["operation"] == "create");
    let commit = &create.unwrap()["commit"];
    assert_eq!(commit["record"]["$type"], commit["collection"]);
    assert!(commit["cid"].as_str().unwrap().starts_with("bafyrei"));
    let delete = messages
        .iter()
        .find(|it| it["commit"]["operation"] == "delete");
    assert!(delete.unwrap()["commit"].get("record").is_none());
    let middle = times[times.len() / 2];
    let mut socket = open(&network, &format!("/subscribe?cursor={middle}")).await;
    assert_eq!(take(&mut socket, 1).await[0]["time_us"], middle);
}

#[tokio::test]
async fn version_1_filters_collections_by_name_and_prefix_but_not_accounts() {
    let (network, _) = network().await;
    for (wanted, prefix) in [
        ("app.bsky.feed.post", "app.bsky.feed.post"),
        ("app.bsky.graph.*", "app.bsky.graph."),
    ] {
        let path = format!("/subscribe?cursor=1&wantedCollections={wanted}");
        let mut socket = open(&network, &path).await;
        let messages = take(&mut socket, 80).await;
        for message in &messages {
            if message["kind"] == "commit" {
                let collection = message["commit"]["collection"].as_str().unwrap();
                assert!(collection.starts_with(prefix), "{collection}");
            }
        }
        assert!(messages.iter().any(|it| it["kind"] == "commit"));
        assert!(messages.iter().any(|it| it["kind"] == "identity"));
    }
    let did = network.world(|world| world.accounts()[0].did.to_string());
    let path = format!("/subscribe?cursor=1&wantedDids={did}");
    let mut socket = open(&network, &path).await;
    for message in take(&mut socket, 3).await {
        assert_eq!(message["did"], *did);
    }
    for bad in ["wantedCollections=not", "wantedDids=nobody", "cursor=soon"] {
        let (status, error) = refusal(&network, &format!("/subscribe?{bad}")).await;
        assert_eq!((status, error.as_str()), (400, "InvalidRequest"), "{bad}");
    }
}

#[tokio::test]
async fn compressed_messages_need_the_dictionary_that_is_served() {
    let (network, _) = network().await;
    let path = "/xrpc/network.bsky.jetstream.getZstdDictionary";
    let answer = get(&network.jetstream_url, path, None).await;
    assert_eq!(answer.body, network.dictionary());
    let head = answer.head.to_lowercase();
    let id = head.split("x-zstd-dictionary-id: ").nth(1).unwrap();
    let id = id.lines().next().unwrap().to_owned();
    let other = get(&network.jetstream_url, &format!("{path}?id=7"), None).await;
    assert_eq!(other.json()["error"], "DictionaryNotFound");
    let mut plain = open(&network, "/subscribe?cursor=1").await;
    let mut packed = open(&network, "/subscribe?cursor=1&compress=true").await;
    let (plain, packed) = (plain.take(50).await, packed.take(50).await);
    let mut unpack = zstd::bulk::Decompressor::with_dictionary(&answer.body).unwrap();
    for (plain, packed) in plain.iter().zip(&packed) {
        assert_eq!(*plain, unpack.decompress(packed, 1 << 20).unwrap());
        assert!(zstd::bulk::decompress(packed, 1 << 20).is_err());
    }
    let bytes = |list: &[Vec<u8>]| list.iter().map(Vec::len).sum::<usize>();
    assert!(bytes(&packed) * 10 < bytes(&plain) * 7);
    let mut v2 = open(&network, &format!("{V2}?cursor=0&zstdDictionary={id}")).await;
    let message = unpack
        .decompress(&v2.next().await.unwrap(), 1 << 20)
        .unwrap();
    let message: Value = serde_json::from_slice(&message).unwrap();
    assert_eq!(message["$type"], "message");
    let (status, error) = refusal(&network, &format!("{V2}?zstdDictionary=7")).await;
    assert_eq!((status, error.as_str()), (400, "UnknownZstdDictionary"));
}

#[tokio::test]
async fn version_2_numbers_every_message_and_resumes_inclusively() {
    let (network, emitted) = network().await;
    let mut socket = open(&network, &format!("{V2}?cursor=0")).await;
    let messages = take(&mut socket, counts(emitted).1).await;
    let seqs: Vec<u64> = messages
        .iter()
        .map(|it| it["payload"]["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "strictly growing");
    for kind in ["commit", "identity", "account", "sync"] {
        let name = format!("network.bsky.jetstream.subscribeEvents#{kind}");
        let told = messages.iter().find(|it| it["payload"]["$type"] == *name);
        let payload = &told.unwrap()["payload"];
        if kind != "commit" {
            assert_eq!(payload[kind]["did"], payload["did"]);
        }
    }
    for at in [0, 1, 50, seqs.len() - 1] {
        let path = format!("{V2}?cursor={}", seqs[at]);
        let mut socket = open(&network, &path).await;
        assert_eq!(take(&mut socket, 1).await[0], messages[at]);
    }
}

#[tokio::test]
async fn version_2_refuses_what_it_cannot_mean() {
    let (network, _) = network().await;
    for bad in [
        "wantedCollections=app.bsky.feed.post",
        "compress=true",
        "kinds=commits",
        "kinds=identity&collections=app.bsky.feed.post",
        "collections=x",
        "cursor=-1",
    ] {
        let (status, error) = refusal(&network, &format!("{V2}?{bad}")).await;
        assert_eq!((status, error.as_str()), (400, "InvalidRequest"), "{bad}");
    }
    network.trim_backlog(10);
    let (status, error) = refusal(&network, &format!("{V2}?cursor=256")).await;
    assert_eq!((status, error.as_str()), (400, "CursorTooOld"));
    let mut socket = open(&network, &format!("{V2}?cursor=1000000000000001")).await;
    assert_eq!(
        take(&mut socket, 1).await[0]["payload"]["name"],
        "OutdatedCursor"
    );
    let mut socket = open(&network, &format!("{V2}?cursor=999999999999999")).await;
    assert_eq!(
        take(&mut socket, 1).await[0]["payload"]["name"],
        "FutureCursor"
    );
}

#[tokio::test]
async fn version_2_filters_are_all_met_at_once() {
    let (network, _) = network().await;
    let path = format!("{V2}?cursor=0&kinds=commit&collections=app.bsky.feed.*");
    let mut socket = open(&network, &path).await;
    for message in take(&mut socket, 60).await {
        let collection = message["payload"]["collection"].as_str().unwrap();
        assert!(collection.starts_with("app.bsky.feed."), "{collection}");
    }
    let mut socket = open(&network, &format!("{V2}?cursor=0&kinds=account")).await;
    for message in take(&mut socket, 20).await {
        assert!(message["payload"]["account"]["active"].is_boolean());
    }
}

#[tokio::test]
async fn corrupted_message_is_no_json_and_garbage_loses_nothing() {
    let (network, _) = network().await;
    let mut healthy = open(&network, &format!("{V2}?cursor=0&kinds=commit")).await;
    let truth = healthy.take(2).await;
    drop(healthy);
    quiet(&network).await;
    network.order_on_jetstream(Fault::Corrupt);
    let mut socket = open(&network, &format!("{V2}?cursor=0&kinds=commit")).await;
    let found = socket.take(2).await;
    assert!(serde_json::from_slice::<Value>(&found[0]).is_err());
    assert_eq!(found[1], truth[1]);
    drop(socket);
    quiet(&network).await;
    network.order_on_jetstream(Fault::Garbage);
    network.order_on_jetstream(Fault::Unknown);
    let mut socket = open(&network, &format!("{V2}?cursor=0&kinds=commit")).await;
    let found = socket.take(4).await;
    assert!(serde_json::from_slice::<Value>(&found[0]).is_err());
    let unknown: Value = serde_json::from_slice(&found[1]).unwrap();
    assert_eq!(unknown["kind"], "mystery");
    assert_eq!(found[2..], truth);
    assert_eq!(network.jetstream_faults_done(Fault::Corrupt), 1);
}

#[tokio::test]
async fn live_messages_follow_the_acts() {
    let (network, _) = network().await;
    let mut socket = open(&network, &format!("{V2}?cursor=999999999999999")).await;
    socket.take(1).await; // the notice says that the subscription stands
    network.act(Act::Post);
    let message = &take(&mut socket, 1).await[0]["payload"];
    assert_eq!(message["collection"], "app.bsky.feed.post");
}
