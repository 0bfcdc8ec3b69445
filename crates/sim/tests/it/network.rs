//! Every server over a real socket.

use record::car::{Car, CarLimits};
use record::event::Frame;
use sim::network::{Network, NetworkOptions};
use sim::traffic::Act;
use sim::world::{World, WorldOptions};

use crate::client::{End, Socket, get};

async fn network(options: NetworkOptions) -> Network {
    let world = World::new(WorldOptions {
        seed: 31,
        accounts: 30,
        ..WorldOptions::default()
    });
    Network::start(world, options).await.unwrap()
}

fn seqs(messages: &[Vec<u8>]) -> Vec<u64> {
    messages
        .iter()
        .map(|bytes| Frame::parse(bytes).unwrap().seq().unwrap() as u64)
        .collect()
}

#[tokio::test]
async fn relay_sends_the_whole_backlog_then_what_comes() {
    let network = network(NetworkOptions::default()).await;
    let mut socket = Socket::relay(&network, Some(0)).await;
    let last = network.last_seq();
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        seen.extend(seqs(&[socket.next().await.unwrap()]));
    }
    assert!(seen.is_sorted());
    assert!(seen.len() >= 90, "history of 30 accounts");
    let emitted = network.emit(10);
    let live = seqs(&socket.take(emitted).await);
    assert_eq!(live.last(), Some(&network.last_seq()));
    assert!(live[0] > last);
    socket.close().await;
    network.stop().await;
}

#[tokio::test]
async fn cursor_is_exclusive_or_inclusive_by_option() {
    for inclusive in [false, true] {
        let network = network(NetworkOptions {
            cursor_inclusive: inclusive,
            ..NetworkOptions::default()
        })
        .await;
        let mut all = Socket::relay(&network, Some(0)).await;
        let known = seqs(&all.take(20).await);
        let mut socket = Socket::relay(&network, Some(known[9])).await;
        let first = seqs(&socket.take(1).await)[0];
        assert_eq!(first, if inclusive { known[9] } else { known[10] });
    }
}

#[tokio::test]
async fn no_cursor_means_only_what_comes() {
    let network = network(NetworkOptions::default()).await;
    let before = network.last_seq();
    let mut socket = Socket::relay(&network, None).await;
    // The handshake is over before the handler has looked at the tip.
    while network.connections() == 0 {
        tokio::task::yield_now().await;
    }
    network.emit(200);
    assert!(seqs(&socket.take(1).await)[0] > before);
}

#[tokio::test]
async fn cursor_below_the_window_is_told_and_served_from_its_start() {
    let network = network(NetworkOptions::default()).await;
    network.trim_backlog(5);
    let mut socket = Socket::relay(&network, Some(1)).await;
    let messages = socket.take(6).await;
    let Frame::Info(info) = Frame::parse(&messages[0]).unwrap() else {
        panic!("no info first")
    };
    assert_eq!(info.name, "OutdatedCursor");
    assert_eq!(seqs(&messages[1..]).last(), Some(&network.last_seq()));
}

#[tokio::test]
async fn cursor_from_the_future_is_refused_and_the_stream_closed() {
    let network = network(NetworkOptions::default()).await;
    let mut socket = Socket::relay(&network, Some(network.last_seq() + 1)).await;
    let (messages, end) = socket.rest().await;
    let Frame::Error { error, .. } = Frame::parse(&messages[0]).unwrap() else {
        panic!("no error frame")
    };
    assert_eq!(error, "FutureCursor");
    assert_eq!((messages.len(), end), (1, End::Closed(1008)));
}

#[tokio::test]
async fn garbled_cursor_is_an_error_frame() {
    let network = network(NetworkOptions::default()).await;
    let url = format!(
        "{}/xrpc/com.atproto.sync.subscribeRepos?cursor=soon",
        network.relay_ws_url()
    );
    let (messages, _) = Socket::open(&url).await.rest().await;
    let Frame::Error { error, .. } = Frame::parse(&messages[0]).unwrap() else {
        panic!("no error frame")
    };
    assert_eq!(error, "InvalidRequest");
}

#[tokio::test]
async fn repositories_are_listed_in_pages_and_served_whole() {
    let network = network(NetworkOptions::default()).await;
    let mut dids = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/xrpc/com.atproto.sync.listRepos?limit=7{cursor}");
        let answer = get(&network.relay_url, &path, None).await.json();
        for repo in answer["repos"].as_array().unwrap() {
            assert_eq!(repo["active"], true);
            dids.push(repo["did"].as_str().unwrap().to_owned());
        }
        match answer["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(dids.len(), 30);
    let did = &dids[3];
    for base in [&network.relay_url, &network.pds_url] {
        let path = format!("/xrpc/com.atproto.sync.getRepo?did={did}");
        let answer = get(base, &path, None).await;
        assert!(answer.head.contains("application/vnd.ipld.car"));
        let car = Car::read(&answer.body, CarLimits::REPO, true).unwrap();
        let path = format!("/xrpc/com.atproto.sync.getLatestCommit?did={did}");
        let latest = get(base, &path, None).await.json();
        assert_eq!(latest["cid"], car.root().unwrap().to_string());
    }
}

#[tokio::test]
async fn hidden_repository_is_refused_by_name_and_its_status_told() {
    let network = network(NetworkOptions::default()).await;
    network.act(Act::Hide);
    let (did, status) = network.world(|world| {
        let hidden = world.accounts().iter().find(|it| it.standing.hides());
        let hidden = hidden.unwrap();
        (hidden.did.to_string(), hidden.standing.status().unwrap())
    });
    let path = format!("/xrpc/com.atproto.sync.getRepo?did={did}");
    let answer = get(&network.relay_url, &path, None).await;
    assert_eq!(answer.status, 400);
    let error = answer.json()["error"].as_str().unwrap().to_lowercase();
    assert_eq!(error, format!("repo{status}"));
    let path = format!("/xrpc/com.atproto.sync.getRepoStatus?did={did}");
    let answer = get(&network.relay_url, &path, None).await.json();
    assert_eq!(
        (&answer["active"], &answer["status"]),
        (&false.into(), &status.into())
    );
}

#[tokio::test]
async fn repositories_are_found_by_collection() {
    let network = network(NetworkOptions::default()).await;
    let path = "/xrpc/com.atproto.sync.listReposByCollection?collection=app.bsky.feed.post";
    let answer = get(&network.relay_url, path, None).await.json();
    let found = answer["repos"].as_array().unwrap().len();
    let truth = network.world(|world| {
        let posts = world.model().records();
        let authors: std::collections::BTreeSet<&str> = posts
            .filter(|(_, fact)| fact.collection == "app.bsky.feed.post")
            .map(|(_, fact)| fact.did.as_str())
            .collect();
        authors.len()
    });
    assert!(truth > 0);
    assert_eq!(found, truth);
}

#[tokio::test]
async fn records_are_listed_newest_first_in_pages_and_found_singly() {
    let network = network(NetworkOptions::default()).await;
    let (did, handle, rkeys) = network.world(|world| {
        let most = world
            .accounts()
            .iter()
            .max_by_key(|it| it.repo.collection("app.bsky.graph.follow").count())
            .unwrap();
        let rkeys: Vec<String> = most
            .repo
            .collection("app.bsky.graph.follow")
            .map(|(path, _)| path.split('/').nth(1).unwrap().to_owned())
            .collect();
        (most.did.to_string(), most.handle.clone(), rkeys)
    });
    assert!(rkeys.len() > 4, "{rkeys:?}");
    for (reverse, repo) in [(false, &did), (true, &handle)] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!(
                "/xrpc/com.atproto.repo.listRecords?repo={repo}&collection=app.bsky.graph.follow&limit=3&reverse={reverse}{cursor}"
            );
            let answer = get(&network.pds_url, &path, None).await.json();
            let records = answer["records"].as_array().unwrap();
            found.extend(
                records
                    .iter()
                    .map(|it| it["uri"].as_str().unwrap().to_owned()),
            );
            match answer["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        if !reverse {
            found.reverse();
        }
        let expected: Vec<String> = rkeys
            .iter()
            .map(|rkey| format!("at://{did}/app.bsky.graph.follow/{rkey}"))
            .collect();
        assert_eq!(found, expected);
    }
    let path = format!(
        "/xrpc/com.atproto.repo.getRecord?repo={did}&collection=app.bsky.graph.follow&rkey={}",
        rkeys[0]
    );
    let answer = get(&network.pds_url, &path, None).await.json();
    assert_eq!(answer["value"]["$type"], "app.bsky.graph.follow");
    let answer = get(&network.pds_url, &format!("{path}x"), None).await;
    assert_eq!(
        (answer.status, &answer.json()["error"]),
        (400, &"RecordNotFound".into())
    );
}

#[tokio::test]
async fn identities_resolve_both_ways() {
    let network = network(NetworkOptions::default()).await;
    let accounts = network.world(|world| {
        let all = world.accounts().iter();
        all.map(|it| {
            (
                it.did.to_string(),
                it.handle.clone(),
                it.key.public().to_multikey(),
            )
        })
        .collect::<Vec<_>>()
    });
    let mut webs = 0;
    for (did, handle, key) in &accounts {
        let path = format!("/xrpc/com.atproto.identity.resolveHandle?handle={handle}");
        assert_eq!(
            get(&network.pds_url, &path, None).await.json()["did"],
            **did
        );
        let file = get(&network.web_url, "/.well-known/atproto-did", Some(handle)).await;
        assert_eq!(String::from_utf8(file.body).unwrap(), *did);
        let document = match did.strip_prefix("did:web:") {
            Some(host) => {
                webs += 1;
                get(&network.web_url, "/.well-known/did.json", Some(host)).await
            }
            None => get(&network.plc_url, &format!("/{did}"), None).await,
        };
        let document = document.json();
        assert_eq!(document["id"], **did);
        assert_eq!(document["alsoKnownAs"][0], format!("at://{handle}"));
        assert_eq!(
            document["verificationMethod"][0]["publicKeyMultibase"],
            **key
        );
        assert_eq!(document["service"][0]["serviceEndpoint"], network.pds_url);
    }
    assert!(webs > 0, "some are of did:web");
    let missing = get(&network.plc_url, "/did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", None).await;
    assert_eq!(missing.status, 404);
    let path = format!("/xrpc/com.atproto.repo.describeRepo?repo={}", accounts[0].1);
    let described = get(&network.pds_url, &path, None).await.json();
    assert_eq!(described["did"], *accounts[0].0);
    assert!(!described["collections"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn paced_network_emits_by_itself_and_stops_when_told() {
    let mut network = network(NetworkOptions::default()).await;
    let mut socket = Socket::relay(&network, Some(network.last_seq())).await;
    network.pace(2000.0);
    socket.take(100).await;
    network.stop().await;
    let (_, end) = socket.rest().await;
    assert_eq!(end, End::Closed(1001));
}

#[tokio::test]
async fn client_left_behind_by_the_backlog_is_told_and_sent_away() {
    let network = network(NetworkOptions {
        backlog_events_max: 100,
        ..NetworkOptions::default()
    })
    .await;
    network.set_faults(sim::faults::Faults {
        stall_ms: 1000,
        ..sim::faults::Faults::none()
    });
    network.order(sim::faults::Fault::Stall);
    let mut socket = Socket::relay(&network, Some(0)).await;
    while network.faults_done(sim::faults::Fault::Stall) == 0 {
        tokio::task::yield_now().await;
    }
    network.emit(300);
    let (messages, end) = socket.rest().await;
    let last = Frame::parse(messages.last().unwrap()).unwrap();
    assert!(matches!(
        last,
        Frame::Error {
            error: "ConsumerTooSlow",
            ..
        }
    ));
    assert_eq!(end, End::Closed(1008));
}
