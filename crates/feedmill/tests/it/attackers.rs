//! Attackers: each goes on for as long as it is let with what has once stopped, filled or slowed a Feedmill.
//!
//! All come over loopback and name their addresses as a proxy before us would, so each is a stranger with an address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use record::key::SigningKey;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bearer::token;
use crate::strangers::{Manner, did, host, listen};

/// The feed that is published, so that tokens are looked at.
pub(crate) const FEED: &str = "at://did:plc:operator/app.bsky.feed.generator/timeline";
const SKELETON: &str = "app.bsky.feed.getFeedSkeleton";
/// Between two requests of one attacker.
const BREATH: Duration = Duration::from_millis(10);
/// How long a connection is kept that is not read.
const HELD: Duration = Duration::from_secs(4);
/// Connections that say nothing.
const IDLE: usize = 1100;

/// Where they attack, and how it answered.
pub(crate) struct Field {
    pub(crate) address: String,
    /// Somebody who follows others.
    pub(crate) reader: String,
    client: reqwest::Client,
    /// Answers by attack and status; 0 where there was none.
    answers: Mutex<BTreeMap<(&'static str, u16), usize>>,
    /// Answers that were no refusals, by address.
    served: Mutex<BTreeMap<String, usize>>,
}

impl Field {
    pub(crate) fn new(address: &str, reader: &str) -> Arc<Self> {
        let client = reqwest::Client::builder();
        Arc::new(Self {
            address: address.to_owned(),
            reader: reader.replace('%', "%25"),
            client: client.timeout(Duration::from_secs(60)).build().unwrap(),
            answers: Mutex::default(),
            served: Mutex::default(),
        })
    }

    async fn ask(&self, attack: &'static str, from: &str, path: &str, token: Option<String>) {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.get(url).header("x-forwarded-for", from);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let status = match request.send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                drop(answer.bytes().await);
                status
            }
            Err(_) => 0,
        };
        *self.answers.lock().entry((attack, status)).or_default() += 1;
        if !matches!(status, 0 | 429 | 503) {
            *self.served.lock().entry(from.to_owned()).or_default() += 1;
        }
        tokio::time::sleep(BREATH).await;
    }

    /// Sends a request and reads nothing.
    async fn unread(&self, from: &str, path: &str, accept: &str) {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nx-forwarded-for: {from}\r\n\r\n"
        );
        let Ok(mut stream) = TcpStream::connect(&self.address).await else {
            return tokio::time::sleep(BREATH).await;
        };
        drop(stream.write_all(head.as_bytes()).await);
        tokio::time::sleep(HELD).await;
    }

    pub(crate) fn answers(&self) -> BTreeMap<(&'static str, u16), usize> {
        self.answers.lock().clone()
    }

    /// The most answers that one address was given.
    pub(crate) fn served_most(&self) -> usize {
        self.served.lock().values().copied().max().unwrap_or(0)
    }
}

/// The address of an attacker.
fn from(attack: u8, number: usize) -> String {
    format!("203.0.{attack}.{}", number % 250 + 1)
}

/// A DID that nobody has.
fn invented(number: u64) -> String {
    let letters = (0..12).map(|place| char::from(b'a' + (number >> (4 * place)) as u8 % 16));
    did(&letters.collect::<String>())
}

/// Begins all attacks; they end when the set is dropped.
pub(crate) fn begin(field: &Arc<Field>, hostile: &[String]) -> JoinSet<()> {
    let mut attacks = JoinSet::new();
    for number in 0..60 {
        let field = Arc::clone(field);
        attacks.spawn(async move { expensive(&field, number).await });
    }
    for number in 0..8 {
        let field = Arc::clone(field);
        attacks.spawn(async move { large(&field, number).await });
    }
    for number in 0..8 {
        let field = Arc::clone(field);
        attacks.spawn(async move { unknown(&field, number).await });
    }
    for (number, did) in hostile.iter().cloned().enumerate() {
        let field = Arc::clone(field);
        let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={did}");
        attacks.spawn(async move {
            loop {
                field
                    .ask("hostile host", &from(40, number), &path, None)
                    .await;
            }
        });
    }
    for number in 0..100 {
        let field = Arc::clone(field);
        attacks.spawn(async move { deaf(&field, number).await });
    }
    let field = Arc::clone(field);
    attacks.spawn(async move { idle(&field).await });
    attacks
}

/// Every part of a question at once, in an order that no index of time has.
async fn expensive(field: &Field, number: usize) {
    let paths = [
        "/xrpc/com.example.post.listRecords?sort=text&order=asc&search=a&langs=en&createdAtMin=2000-01-01T00:00:00Z&limit=100",
        "/xrpc/com.example.post.listRecords?search=the&langs=de&limit=100&profiles=true",
        "/xrpc/com.example.post.listRecords?sort=text&order=desc&createdAtMin=2000-01-01T00:00:00Z&limit=100",
    ];
    loop {
        let path = paths[number % paths.len()];
        field
            .ask("expensive", &from(10, number % 2), path, None)
            .await;
    }
}

/// Pages of many large records.
async fn large(field: &Field, number: usize) {
    let reader = &field.reader;
    let paths = [
        format!("/xrpc/com.example.getFollowingFeed?feed=merged&actor={reader}&limit=100"),
        format!("/xrpc/com.example.getFeed?feed=garden&actor={reader}&limit=200&profiles=true"),
    ];
    loop {
        let path = &paths[number % paths.len()];
        field.ask("large", &from(20, 0), path, None).await;
    }
}

/// Readers that do not exist, handles that nobody answers for, tokens that are garbage.
async fn unknown(field: &Field, number: usize) {
    let wrong = SigningKey::k256([9; 32]).unwrap();
    let skeleton = format!("/xrpc/{SKELETON}?feed={FEED}");
    let address = from(30, number % 4);
    for round in (number as u64 * 1_000_000).. {
        let did = invented(round);
        let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={did}");
        field.ask("invented reader", &address, &path, None).await;
        let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor=slow{round}.example.com");
        field.ask("slow handle", &address, &path, None).await;
        let garbage = token(&wrong, SKELETON, |claims| {
            claims["iss"] = did.clone().into()
        });
        field
            .ask("garbage token", &address, &skeleton, Some(garbage))
            .await;
    }
}

/// Asks for events or a large page, and does not read.
async fn deaf(field: &Field, number: usize) {
    let reader = &field.reader;
    let events = format!("/xrpc/com.example.subscribeFeed?feed=garden&actor={reader}");
    let page = format!("/xrpc/com.example.getFeed?feed=garden&actor={reader}&limit=200");
    let address = from(50, number);
    loop {
        match number % 3 {
            0 => field.unread(&address, &page, "*/*").await,
            _ => field.unread(&address, &events, "text/event-stream").await,
        }
    }
}

/// Connections that say nothing, opened again when they are closed.
async fn idle(field: &Field) {
    let mut streams: Vec<TcpStream> = Vec::new();
    loop {
        streams.retain(|stream| !matches!(stream.try_read(&mut [0]), Ok(0)));
        while streams.len() < IDLE {
            match TcpStream::connect(&field.address).await {
                Ok(stream) => streams.push(stream),
                Err(_) => break,
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Hosts that mean harm, and the accounts that live there.
pub(crate) async fn hostile() -> BTreeMap<String, String> {
    let manners = [
        Manner::EndlessStatus,
        Manner::EndlessRepo,
        Manner::Trickle,
        Manner::Garbage(1 << 20),
        Manner::Later("retry-after", "0"),
        Manner::Later("retry-after", "99999999999999999999"),
    ];
    let mut accounts = BTreeMap::new();
    for (number, manner) in (1..).zip(manners) {
        let (url, _) = host(manner).await;
        accounts.insert(invented(number << 40), url);
    }
    accounts
}

/// A plc directory that knows hostile accounts beside those of another directory.
pub(crate) async fn directory(behind: &str, hostile: BTreeMap<String, String>) -> String {
    let (client, behind) = (reqwest::Client::new(), behind.to_owned());
    let answer = move |uri: Uri| {
        let did = uri.path().trim_start_matches('/').to_owned();
        let url = format!("{behind}{uri}");
        let (host, client) = (hostile.get(&did).cloned(), client.clone());
        async move {
            let Some(host) = host else {
                return forward(client.get(url)).await;
            };
            let pds = json!({"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": host});
            let key = SigningKey::k256([7; 32]).unwrap().public().to_multikey();
            let method = json!({"id": "#atproto", "type": "Multikey", "publicKeyMultibase": key});
            json!({"id": did, "alsoKnownAs": [], "service": [pds], "verificationMethod": [method]})
                .to_string()
                .into_response()
        }
    };
    listen(Router::new().fallback(answer)).await
}

/// A web in which names that begin with `slow` are never answered for.
pub(crate) async fn web(behind: &str) -> String {
    let (client, behind) = (reqwest::Client::new(), behind.to_owned());
    let answer = move |uri: Uri, headers: HeaderMap| {
        let name = headers.get("host").and_then(|host| host.to_str().ok());
        let name = name.unwrap_or_default().to_owned();
        let request = client.get(format!("{behind}{uri}")).header("host", &name);
        async move {
            if name.starts_with("slow") {
                std::future::pending::<()>().await;
            }
            forward(request).await
        }
    };
    listen(Router::new().fallback(answer)).await
}

async fn forward(request: reqwest::RequestBuilder) -> Response {
    match request.send().await {
        Ok(answer) => {
            let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
            (status, answer.bytes().await.unwrap_or_default()).into_response()
        }
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
