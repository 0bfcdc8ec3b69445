//! `{ns}.notifyOfUpdate`: records that were just written, fetched now.
//!
//! In:    URIs of records, from who may notify.
//! Out:   those records as their own hosts have them, through the same checks
//!        as any other; how many were stored, how many are gone.
//! Never: a record of a collection that is not kept; a word believed without
//!        the account's own host; a redirect followed; an older version over a
//!        newer one.
//!
//! A fetched record says no revision. It takes the one that its repository had
//! before the fetch: what it holds is at least as new as that, so an older
//! event is superseded, and a newer one comes again by the stream. The
//! account's chain is left alone, or what the stream lost would never show.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use parking_lot::RwLock;
use record::cid::Cid;
use record::tid::Tid;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::debug;

use super::error::XrpcError;
use super::rate::{Asker, Client};
use super::{Answer, Server};
use crate::check::{Checker, Claim, chain};
use crate::config::Config;
use crate::config::serve::Notify;
use crate::host::Cause;
use crate::identity::Resolver;
use crate::reach::fetch::{Ask, FetchError};
use crate::store::{Batch, Item, Op, Verdict};

/// The environment variable that holds the token of who may notify.
pub const TOKEN: &str = crate::secret::NOTIFY;
/// The name under which such records are counted.
pub const SOURCE: &str = "notify";
/// URIs of one request, and how many of them are fetched at once.
const URIS_MAX: usize = 25;
const AT_ONCE_MAX: usize = 5;
/// Letters of a host's own word for an error that are handed on.
const WORD_MAX: usize = 100;
/// Records that are fetched at once, for all who notify together.
const FETCHES_MAX: usize = 32;
/// What an answer holds beside the record.
const MARGIN_BYTES: usize = 4096;
/// Time for one request to a host.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What notifications need beside the server.
#[derive(Debug)]
pub struct Notifier {
    resolver: Arc<Resolver>,
    checker: Arc<Checker>,
    token: Option<RwLock<String>>,
    /// Each is as large as one record.
    fetches: Semaphore,
    answer_bytes_max: usize,
}

/// What became of one URI.
enum Done {
    Indexed,
    Deleted,
    Failed(String),
}

/// A record's place.
struct Place {
    did: String,
    collection: String,
    rkey: String,
}

#[derive(Deserialize)]
struct Asked {
    uri: Option<String>,
    #[serde(default)]
    uris: Vec<String>,
}

impl Notifier {
    /// The notifier of a configuration; `None` where nobody may notify.
    pub fn new(
        config: &Config,
        resolver: Arc<Resolver>,
        checker: Arc<Checker>,
        token: Option<String>,
    ) -> Option<Self> {
        if config.serve.notify == Notify::Off {
            return None;
        }
        let token = match config.serve.notify {
            Notify::Token => Some(RwLock::new(token.unwrap_or_default())),
            _ => None,
        };
        Some(Self {
            resolver,
            checker,
            token,
            fetches: Semaphore::new(FETCHES_MAX),
            answer_bytes_max: answer_bytes_max(config.intake.record_bytes_max),
        })
    }

    /// Puts another token in force.
    pub fn set_token(&self, token: Option<String>) {
        if let Some(held) = &self.token {
            *held.write() = token.unwrap_or_default();
        }
    }

    fn admits(&self, headers: &HeaderMap) -> Result<(), XrpcError> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let token = token.read().clone();
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(super::bearer::shown);
        match given {
            Some(given) if !token.is_empty() && super::admin::same(&token, given) => Ok(()),
            _ => Err(XrpcError::unauthorized(
                "AuthenticationRequired",
                format!("send the token in {TOKEN} as \"Authorization: Bearer <token>\""),
            )),
        }
    }

    /// What the account's own host has at a place, and at which revision of the repository.
    async fn fetch(&self, place: &Place) -> Result<(u64, Option<Value>), String> {
        let Place {
            did,
            collection,
            rkey,
        } = place;
        let host = self.resolver.host_for(did, Cause::Notify).await;
        let host = host.map_err(|error| {
            // Causes name addresses, which are not everybody's business.
            debug!(%did, cause = chain(&error), "a notified record's host is not known");
            format!("could not resolve PDS for {did}: {}", error.in_public())
        })?;
        let head = [("did", did.as_str())];
        let (status, head) = self
            .ask(&host, "com.atproto.sync.getLatestCommit", &head)
            .await?;
        let rev = head.get("rev").and_then(Value::as_str);
        let rev = rev.and_then(|rev| Tid::parse(rev).ok());
        let rev = rev.ok_or_else(|| refused(status, &head))?.bits();
        let at = [("repo", did), ("collection", collection), ("rkey", rkey)];
        let at = at.map(|(name, value)| (name, value.as_str()));
        let (status, answer) = self.ask(&host, "com.atproto.repo.getRecord", &at).await?;
        if status == 200 {
            return Ok((rev, Some(answer)));
        }
        match answer.get("error").and_then(Value::as_str) {
            Some("RecordNotFound") => Ok((rev, None)),
            _ => Err(refused(status, &answer)),
        }
    }

    async fn ask(
        &self,
        host: &str,
        method: &str,
        params: &[(&str, &str)],
    ) -> Result<(u16, Value), String> {
        let address = address(host, method, params);
        let ask = Ask::new(Cause::Notify, &address).bytes_max(self.answer_bytes_max);
        let ask = ask.without_redirects().within(TIMEOUT);
        let reply = self.resolver.fetcher().fetch(ask).await;
        let reply = reply.map_err(|error| match error {
            FetchError::TooSlow => {
                format!("PDS request timed out after {}ms", TIMEOUT.as_millis())
            }
            FetchError::TooLarge(_) => "PDS answer is too large".to_owned(),
            error => {
                debug!(
                    cause = chain(&error),
                    "a notified record could not be fetched"
                );
                format!("PDS request failed: {}", error.in_public())
            }
        })?;
        Ok((reply.status, reply.json().unwrap_or_default()))
    }

    /// What the checks say of a fetched record, in the form in which it was signed.
    fn verdict(&self, place: &Place, rev: u64, answer: &Value) -> Result<Verdict, String> {
        let claim = Claim {
            did: &place.did,
            collection: &place.collection,
            rkey: &place.rkey,
            rev,
        };
        let text = answer.get("value").unwrap_or(&Value::Null).to_string();
        let Ok(value) = record::json::from_json(&text) else {
            return Ok(self.checker.json(claim, None, &text));
        };
        let block = record::cbor::encode(&value);
        let own = Cid::of_cbor(&block);
        let told = answer.get("cid").and_then(Value::as_str);
        if told.is_some_and(|told| told != own.to_string()) {
            return Err("the record does not hash to the name it came with".to_owned());
        }
        Ok(self.checker.cbor(claim, own, &block))
    }

    async fn one(&self, server: &Arc<Server>, uri: String) -> Done {
        match self.applied(server, &uri).await {
            Ok(done) => done,
            Err(why) => Done::Failed(why),
        }
    }

    async fn applied(&self, server: &Arc<Server>, uri: &str) -> Result<Done, String> {
        let place = parse(uri).ok_or_else(|| format!("invalid AT URI: {uri}"))?;
        if !self.checker.wants(&place.collection) {
            return Err(format!("collection not tracked: {}", place.collection));
        }
        let about = |why: String| format!("{uri}: {why}");
        let _fetch = self.fetches.acquire().await;
        let (rev, answer) = self.fetch(&place).await.map_err(about)?;
        let verdict = match &answer {
            Some(answer) => self.verdict(&place, rev, answer).map_err(about)?,
            None => Verdict::Delete,
        };
        let done = match &verdict {
            Verdict::Put(_) => Done::Indexed,
            Verdict::Delete => Done::Deleted,
            Verdict::Refused(letter) => Done::Failed(about(letter.message.clone())),
        };
        let batch = Batch {
            source: SOURCE.to_owned(),
            cursor: None,
            now_us: server.clock.now_us(),
            items: vec![Item::Fetched {
                did: place.did,
                rev,
                ops: vec![Op {
                    collection: place.collection,
                    rkey: place.rkey,
                    verdict,
                }],
            }],
        };
        let store = Arc::clone(&server.store);
        let stored = tokio::task::spawn_blocking(move || store.commit(batch)).await;
        match stored {
            Ok(Ok(_)) => Ok(done),
            _ => Err(about("could not be stored now; try again".to_owned())),
        }
    }
}

/// Bytes of an answer with one record: JSON writes four letters for three bytes of a record.
fn answer_bytes_max(record_bytes_max: usize) -> usize {
    let margin = record_bytes_max.saturating_add(MARGIN_BYTES) / 2;
    record_bytes_max
        .saturating_add(margin)
        .saturating_add(MARGIN_BYTES)
}

/// The address of a method; DIDs, NSIDs and record keys hold nothing that a query does not.
fn address(host: &str, method: &str, params: &[(&str, &str)]) -> String {
    let mut address = format!("{host}/xrpc/{method}");
    for (index, (name, value)) in params.iter().enumerate() {
        let mark = if index == 0 { '?' } else { '&' };
        // A did:web names its port behind an escaped colon.
        let value = value.replace('%', "%25");
        address.push_str(&format!("{mark}{name}={value}"));
    }
    address
}

fn refused(status: u16, answer: &Value) -> String {
    let word = answer.get("error").and_then(Value::as_str);
    let word: String = word.unwrap_or("no reason").chars().take(WORD_MAX).collect();
    format!("PDS returned {status} ({word})")
}

/// The place that a URI names; its authority must be a DID, for a handle may change hands.
fn parse(uri: &str) -> Option<Place> {
    let mut parts = uri.strip_prefix("at://")?.split('/');
    let (did, collection, rkey) = (parts.next()?, parts.next()?, parts.next()?);
    let good = parts.next().is_none()
        && record::ids::Did::is_valid(did)
        && record::ids::Nsid::is_valid(collection)
        && record::ids::RecordKey::is_valid(rkey);
    good.then(|| Place {
        did: did.to_owned(),
        collection: collection.to_owned(),
        rkey: rkey.to_owned(),
    })
}

fn uris(body: &[u8]) -> Result<Vec<String>, XrpcError> {
    let asked: Asked = serde_json::from_slice(body).map_err(|error| {
        XrpcError::invalid(format!("the body must be {{\"uris\": […]}}: {error}"))
    })?;
    let mut uris = asked.uris;
    uris.extend(asked.uri);
    uris.sort();
    uris.dedup();
    match uris.len() {
        0 => Err(XrpcError::invalid("uri or uris required")),
        count if count > URIS_MAX => Err(XrpcError::invalid(format!(
            "max {URIS_MAX} URIs per request"
        ))),
        _ => Ok(uris),
    }
}

/// The notifier, if who sent these headers may notify; `issuer` is the account that a private method was
/// asked by.
pub(super) fn admit<'s>(
    server: &'s Server,
    issuer: Option<&str>,
    headers: &HeaderMap,
) -> Result<&'s Notifier, XrpcError> {
    let notifier = server.notifier.as_ref();
    let notifier = notifier.ok_or_else(|| XrpcError::no_method("notifyOfUpdate", &[]))?;
    match issuer {
        None => notifier.admits(headers).map(|()| notifier),
        Some(_) => Ok(notifier),
    }
}

/// Answers a notification of one who was admitted.
pub(super) async fn answer(
    server: &Arc<Server>,
    notifier: &Notifier,
    issuer: Option<&str>,
    client: Option<Client>,
    body: &[u8],
) -> Result<Response, XrpcError> {
    let uris = uris(body)?;
    if let Some(issuer) = issuer
        && uris
            .iter()
            .any(|uri| parse(uri).is_some_and(|place| place.did != issuer))
    {
        return Err(XrpcError::forbidden(
            "notified records must belong to the service-auth issuer",
        ));
    }
    // A URI costs as much as a request; the request itself is counted already.
    if let Some(Client(Some(address))) = client {
        let now_s = server.clock.now_us() / 1_000_000;
        let cost = uris.len() as u32 - 1;
        if let Err(standing) = server.rates.take(Asker::Address(address), cost, now_s) {
            return Ok(standing.refusal(now_s));
        }
    }
    let done = futures_util::stream::iter(uris)
        .map(|uri| notifier.one(server, uri))
        .buffer_unordered(AT_ONCE_MAX)
        .collect::<Vec<Done>>()
        .await;
    let (mut indexed, mut deleted, mut errors) = (0, 0, Vec::new());
    for one in done {
        match one {
            Done::Indexed => indexed += 1,
            Done::Deleted => deleted += 1,
            Done::Failed(why) => errors.push(why),
        }
    }
    let mut told = json!({"indexed": indexed, "deleted": deleted});
    if let (false, Value::Object(told)) = (errors.is_empty(), &mut told) {
        errors.sort();
        told.insert("errors".into(), errors.into());
    }
    Ok(Answer::json(told.to_string()).into_response())
}
