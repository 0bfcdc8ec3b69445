//! Attackers: each goes on for as long as it is let with what has once stopped, filled or slowed a Feedmill.
//!
//! All come over loopback and name their addresses as a proxy before us would, so each is a stranger with an address.

// Connections that cost something to keep.
mod connections;
// Hosts that mean harm, and the directory that names them.
mod hosts;
// The log.
mod log;
// What a stream of strangers brings.
mod records;
// Questions.
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::strangers::did;

pub(crate) use hosts::{directory, hostile, web};
pub(crate) use records::Relay;

/// The feed that is published, so that tokens are looked at.
pub(crate) const FEED: &str = "at://did:plc:operator/app.bsky.feed.generator/timeline";
/// Where records of attackers are kept.
pub(crate) const HOSTILE: &str = "com.example.hostile";
pub(crate) const WAITING: &str = "com.example.waiting";
pub(crate) const BIG: &str = "com.example.big";
const JSON: &str = "application/json";
/// Between two requests of one attacker.
const BREATH: Duration = Duration::from_millis(10);

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
    /// Connections that were opened beside those of requests.
    opened: AtomicUsize,
    /// Bytes of bodies that were sent.
    bytes: AtomicUsize,
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
            opened: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        })
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("http://{}{path}", self.address))
    }

    /// A request with a body.
    fn post_bytes(&self, path: &str, kind: &str, body: Vec<u8>) -> reqwest::RequestBuilder {
        self.bytes.fetch_add(body.len(), Ordering::Relaxed);
        let request = self.client.post(format!("http://{}{path}", self.address));
        request.header("content-type", kind).body(body)
    }

    fn post(&self, path: &str, message: &Value) -> reqwest::RequestBuilder {
        self.post_bytes(path, JSON, message.to_string().into_bytes())
    }

    /// Sends a request from an address, takes the whole answer and notes how it ended.
    async fn send(&self, attack: &'static str, from: &str, request: reqwest::RequestBuilder) {
        let status = match request.header("x-forwarded-for", from).send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                drop(answer.bytes().await);
                status
            }
            Err(_) => 0,
        };
        self.note(attack, from, status);
        tokio::time::sleep(BREATH).await;
    }

    async fn ask(&self, attack: &'static str, from: &str, path: &str) {
        self.send(attack, from, self.get(path)).await;
    }

    fn note(&self, attack: &'static str, from: &str, status: u16) {
        *self.answers.lock().entry((attack, status)).or_default() += 1;
        if !matches!(status, 0 | 403 | 429 | 503) {
            *self.served.lock().entry(from.to_owned()).or_default() += 1;
        }
    }

    /// A connection over which these bytes were sent.
    async fn open(&self, head: &str) -> Option<TcpStream> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        stream.write_all(head.as_bytes()).await.ok()?;
        Some(stream)
    }

    pub(crate) fn answers(&self) -> BTreeMap<(&'static str, u16), usize> {
        self.answers.lock().clone()
    }

    /// Answers of any kind, and connections opened beside them.
    pub(crate) fn count(&self) -> usize {
        self.answers.lock().values().sum::<usize>() + self.opened.load(Ordering::Relaxed)
    }

    /// Bytes of bodies that were sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many addresses were answered, and the most answers that one of them was given.
    pub(crate) fn served(&self) -> (usize, usize) {
        let served = self.served.lock();
        (served.len(), served.values().copied().max().unwrap_or(0))
    }

    /// So many cheap requests, to measure what one costs.
    pub(crate) async fn cheap(self: &Arc<Self>, count: usize) {
        const AT_ONCE: usize = 20;
        let mut asking = JoinSet::new();
        for number in 0..AT_ONCE {
            let field = Arc::clone(self);
            asking.spawn(async move {
                for _ in 0..count / AT_ONCE {
                    let from = from(1, number);
                    field.ask("measured", &from, "/.well-known/nothing").await;
                }
            });
        }
        drop(asking.join_all().await);
    }

    /// A dear one.
    pub(crate) async fn dear(&self) {
        self.ask("measured", &from(2, 0), requests::EXPENSIVE[0])
            .await;
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

/// So many of something; fewer where the server is not optimized.
const fn scaled(count: usize) -> usize {
    match cfg!(debug_assertions) {
        true => count.div_ceil(20),
        false => count,
    }
}

/// Attacks under way; they end when this is dropped.
struct Attacks<'a> {
    field: &'a Arc<Field>,
    running: JoinSet<()>,
}

impl Attacks<'_> {
    /// Begins `count` of one kind, or as many as an unoptimized server deserves.
    fn add<F>(&mut self, count: usize, attack: impl Fn(Arc<Field>, usize) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        for number in 0..scaled(count) {
            self.running.spawn(attack(Arc::clone(self.field), number));
        }
    }
}

/// Begins all attacks; they end when the set is dropped.
pub(crate) fn begin(field: &Arc<Field>, hostile: &[String]) -> JoinSet<()> {
    let mut attacks = Attacks {
        field,
        running: JoinSet::new(),
    };
    requests::begin(&mut attacks, hostile);
    connections::begin(&mut attacks);
    log::begin(&mut attacks);
    attacks.running
}
