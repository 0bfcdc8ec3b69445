//! Questions that cost more than they should, or that nobody can answer.

use std::sync::Arc;
use std::time::Duration;

use record::key::SigningKey;
use serde_json::json;

use super::{Attacks, FEED, Field, JSON, from, invented, scaled};
use crate::bearer::token;

const SKELETON: &str = "app.bsky.feed.getFeedSkeleton";
/// Questions that every record is held against and none answers, in an order that no index of time has.
pub(super) const EXPENSIVE: [&str; 3] = [
    "/xrpc/com.example.big.listRecords?sort=text&order=asc&search=the+absent&limit=100",
    "/xrpc/com.example.big.listRecords?search=the&langs=de&limit=100&profiles=true",
    "/xrpc/com.example.big.listRecords?sort=text&order=desc&langs=de&createdAtMin=2000-01-01T00:00:00Z&limit=100",
];
/// Handles that are asked for at one time.
const HANDLES: usize = scaled(1_100);

pub(super) fn begin(attacks: &mut Attacks<'_>, hostile: &[String]) {
    attacks.add(60, expensive);
    attacks.add(8, large);
    attacks.add(8, invented_readers);
    attacks.add(1, slow_handles);
    attacks.add(4, garbage_tokens);
    attacks.add(4, web_tokens);
    attacks.add(2, notifications);
    attacks.add(2, foreign_pages);
    attacks.add(2, large_bodies);
    let paths: Vec<String> = hostile
        .iter()
        .map(|did| format!("/xrpc/com.example.getFeed?feed=timeline&actor={did}"))
        .collect();
    attacks.add(hostile.len(), move |field, number| {
        let paths = paths.clone();
        async move {
            loop {
                let from = from(40, number);
                for path in &paths {
                    field.ask("hostile host", &from, path).await;
                }
            }
        }
    });
}

async fn expensive(field: Arc<Field>, number: usize) {
    let path = EXPENSIVE[number % EXPENSIVE.len()];
    loop {
        field.ask("expensive", &from(10, number % 2), path).await;
    }
}

/// Pages of many large records, packed by turns.
async fn large(field: Arc<Field>, number: usize) {
    let reader = &field.reader;
    let paths = [
        format!("/xrpc/com.example.getFollowingFeed?feed=merged&actor={reader}&limit=100"),
        format!("/xrpc/com.example.getFeed?feed=garden&actor={reader}&limit=200&profiles=true"),
    ];
    loop {
        let mut request = field.get(&paths[number % paths.len()]);
        if number >= 4 {
            request = request.header("accept-encoding", "gzip");
        }
        field.send("large", &from(20, number % 2), request).await;
    }
}

/// Readers that do not exist.
async fn invented_readers(field: Arc<Field>, number: usize) {
    for round in (number as u64 * 1_000_000).. {
        let did = invented(round);
        let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={did}");
        field
            .ask("invented reader", &from(30, number % 4), &path)
            .await;
    }
}

/// Handles that nobody answers for, so many at a time that they would take every slot.
async fn slow_handles(field: Arc<Field>, _: usize) {
    let mut asked = tokio::task::JoinSet::new();
    for round in 0.. {
        while asked.len() >= HANDLES {
            drop(asked.join_next().await);
        }
        let field = Arc::clone(&field);
        asked.spawn(async move {
            let path =
                format!("/xrpc/com.example.getFeed?feed=timeline&actor=slow{round}.example.com");
            field.ask("slow handle", &from(31, round), &path).await;
            // One that is refused at once does not come back at once.
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
    }
}

/// Tokens of invented accounts, each with a signature to look at.
async fn garbage_tokens(field: Arc<Field>, number: usize) {
    let wrong = SigningKey::k256([9; 32]).unwrap();
    for round in (number as u64 * 1_000_000).. {
        let issuer = invented(round);
        shown(&field, "garbage token", &from(32, number), &wrong, issuer).await;
    }
}

/// Tokens of accounts whose documents are on hosts that never answer.
async fn web_tokens(field: Arc<Field>, number: usize) {
    let key = SigningKey::k256([9; 32]).unwrap();
    for round in 0.. {
        let issuer = format!("did:web:slow-{number}-{round}.example.com");
        shown(&field, "did:web token", &from(33, number), &key, issuer).await;
    }
}

async fn shown(field: &Field, attack: &'static str, from: &str, key: &SigningKey, issuer: String) {
    let token = token(key, SKELETON, |claims| {
        claims["iss"] = issuer.clone().into()
    });
    let path = format!("/xrpc/{SKELETON}?feed={FEED}");
    field
        .send(attack, from, field.get(&path).bearer_auth(token))
        .await;
}

/// News of records that nobody has, at hosts that nobody has.
async fn notifications(field: Arc<Field>, number: usize) {
    for round in (number as u64 * 1_000_000).. {
        let uri = |each| format!("at://{}/app.bsky.feed.post/1", invented(round * 25 + each));
        let uris: Vec<String> = (0..25).map(uri).collect();
        let request = field.post("/xrpc/com.example.notifyOfUpdate", &json!({ "uris": uris }));
        field.send("notify", &from(34, number), request).await;
    }
}

/// Pages of other origins that write to the log of whoever shows them.
async fn foreign_pages(field: Arc<Field>, number: usize) {
    loop {
        let request = field.post("/log/siege/append", &json!({"requestId": 1, "blocks": []}));
        let request = request.header("origin", "https://evil.example");
        field.send("foreign page", &from(35, number), request).await;
    }
}

/// Bodies that are as large as may be, and larger, of nothing.
async fn large_bodies(field: Arc<Field>, number: usize) {
    for round in 0.. {
        let bytes = [900_000, 3_000_000][round % 2];
        let request = field.post_bytes("/xrpc/com.example.notifyOfUpdate", JSON, vec![b'['; bytes]);
        field.send("large body", &from(36, number), request).await;
    }
}
