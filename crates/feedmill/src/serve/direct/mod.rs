//! The direct API: an app without AT Protocol puts, deletes and lists its
//! records, follows, and reads feeds.
//!
//! In:    requests of the app, which acts for whom it names, and of readers.
//! Out:   records in the store, through the same checks as any other; pages.
//! Never: a write answered before it is durable; a record that changes hands;
//!        a record of a collection that the network fills.
//!
//! A write is answered once this process has drawn it, so that the writer's
//! next read shows it.

// Who asks.
pub mod door;
mod follow;
mod read;
mod timeline;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use record::tid::Tid;

use super::error::XrpcError;
use super::params::{Asker, Params};
use super::{Answer, Server, answer};
use crate::check::{CheckError, Checker};
use crate::clock::Micros;
use crate::config::{self, Config};
use crate::local::LocalId;
use crate::secret::Secrets;
use crate::store::{Batch, Commit, Item, Op, Plan, SharedStore, StoreError};
use door::{Caller, Door};

/// The name under which direct writes are counted.
pub const SOURCE: &str = crate::store::batch::DIRECT;
/// Header in which the app names whom it acts for.
pub const ACTOR_HEADER: &str = "x-feedmill-actor";
/// Locks that keep writes of one record apart.
const STRIPES: usize = 64;

/// Why the direct API does not start.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    #[error("checks")]
    Check(#[from] CheckError),
    #[error("store")]
    Store(#[from] StoreError),
    #[error(
        "a collection is direct, and nobody could write it: set FEEDMILL_APP_TOKEN in the environment, or direct.open = true for development"
    )]
    Locked,
}

/// What direct requests need beside the server.
#[derive(Debug)]
pub struct Direct {
    door: Door,
    checker: Checker,
    settings: config::Direct,
    collections: BTreeMap<String, Kept>,
    /// The feed at `GET /feed`.
    feed: Option<String>,
    /// Where follows go that do not say where.
    follow: Option<String>,
    /// Feeds that need a token, also over XRPC.
    guarded: BTreeSet<String>,
    revision: AtomicU64,
    stripes: Vec<Mutex<()>>,
}

/// A collection that is written directly.
#[derive(Debug)]
struct Kept {
    nsid: String,
    validate: bool,
    time: Option<String>,
    /// Where its records name what is followed, if they are follows: those have their own way in.
    subject: Option<String>,
}

impl Direct {
    /// The direct API of a configuration; `None` if no collection is direct.
    pub fn new(
        config: &Config,
        plan: &Arc<Plan>,
        store: &SharedStore,
        lexicons: &[&str],
        secrets: &Secrets,
    ) -> Result<Option<Self>, DirectError> {
        if !config.has_direct() {
            return Ok(None);
        }
        let settings = config.direct.clone();
        if !settings.open && secrets.app.is_none() {
            return Err(DirectError::Locked);
        }
        // Revisions go on after the last one, also if the clock was set back since.
        let last = store.cursor(SOURCE)?.unwrap_or_default();
        Ok(Some(Self {
            door: Door::new(secrets, &settings),
            checker: Checker::new(config, Arc::clone(plan), lexicons)?,
            collections: kept(config),
            feed: config.direct_feed().map(str::to_owned),
            follow: first_follow(config),
            guarded: guarded(config),
            settings,
            revision: AtomicU64::new(last.max(0).cast_unsigned()),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }))
    }

    /// Puts other secrets in force; returns why not.
    pub fn set_secrets(&self, secrets: &Secrets) -> Option<&'static str> {
        self.door.set_secrets(secrets)
    }

    fn kept(&self, short: &str) -> Result<&Kept, XrpcError> {
        self.collections.get(short).ok_or_else(|| {
            let known: Vec<&str> = self.collections.keys().map(String::as_str).collect();
            XrpcError::not_found(format!(
                "no direct collection {short:?}; there are: {}",
                known.join(", ")
            ))
        })
    }

    /// The name of the feed at `GET /feed`.
    fn home(&self) -> Result<&str, XrpcError> {
        self.feed.as_deref().ok_or_else(|| {
            XrpcError::invalid("no feed here is followed and written directly; see [direct] feed")
        })
    }

    /// The collection of follows of this short name, or the one that is meant without a name.
    fn follows(&self, short: Option<&str>) -> Result<Follows<'_>, XrpcError> {
        let known = || {
            let follows = self.collections.iter();
            let follows = follows.filter(|(_, kept)| kept.subject.is_some());
            let names: Vec<&str> = follows.map(|(short, _)| short.as_str()).collect();
            names.join(", ")
        };
        let Some(short) = short.or(self.follow.as_deref()) else {
            return Err(XrpcError::invalid(format!(
                "name the \"collection\" of the follow, one of: {}",
                known()
            )));
        };
        let kept = self.collections.get(short);
        let found = kept.and_then(|kept| {
            Some(Follows {
                nsid: &kept.nsid,
                subject: kept.subject.as_deref()?,
                first: self.follow.as_deref() == Some(short),
            })
        });
        found.ok_or_else(|| {
            XrpcError::invalid(format!(
                "{short:?} holds no direct follows; \"collection\" is one of: {}",
                known()
            ))
        })
    }

    /// Whether a feed is shown to those only who show a token of ours.
    pub(super) fn guards(&self, feed: &str) -> bool {
        self.guarded.contains(feed)
    }

    /// The same of a collection.
    pub(super) fn guards_records(&self, nsid: &str) -> bool {
        let mut collections = self.collections.values();
        !self.door.is_open() && collections.any(|kept| kept.nsid == nsid)
    }

    /// Who asks over XRPC; a token that is none of ours is left to others.
    pub(super) fn asker(&self, headers: &HeaderMap, now_us: Micros) -> Result<Asker, XrpcError> {
        self.door.holder(headers, now_us).map(asker)
    }

    /// Who asks over XRPC for what is written directly; nobody else may.
    pub(super) fn known(&self, headers: &HeaderMap, now_us: Micros) -> Result<Asker, XrpcError> {
        match asker(self.door.shown(headers, now_us)?) {
            Asker::Nobody => Err(nobody()),
            asker => Ok(asker),
        }
    }

    /// A record's id from a path or a cursor.
    fn id(&self, text: &str) -> Result<LocalId, XrpcError> {
        let id = self.settings.ids.record(text);
        id.map_err(|error| XrpcError::invalid(format!("{error}, not {text:?}")))
    }

    /// A person's id from a parameter or a header of this name.
    fn person(&self, name: &str, text: &str) -> Result<LocalId, XrpcError> {
        let id = self.settings.ids.person(text);
        id.map_err(|error| XrpcError::invalid(format!("{name}: {error}, not {text:?}")))
    }

    /// A person's id from a field of this name.
    fn person_in(&self, name: &str, value: &serde_json::Value) -> Result<LocalId, XrpcError> {
        let id = self.settings.ids.person_in(value);
        id.map_err(|error| XrpcError::invalid(format!("{name}: {error}, not {value}")))
    }

    /// The next revision; never one that was given before.
    fn next_revision(&self, now_us: Micros) -> u64 {
        let now = Tid::new(now_us.max(0).cast_unsigned(), 0).bits();
        let next = |last: u64| Some(now.max(last + 1));
        match self
            .revision
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
        {
            Ok(last) | Err(last) => now.max(last + 1),
        }
    }

    /// Keeps other writes under this name waiting.
    fn hold(&self, name: &str) -> Option<parking_lot::MutexGuard<'_, ()>> {
        let hash = xxhash_rust::xxh3::xxh3_64(name.as_bytes()) as usize;
        self.stripes.get(hash % STRIPES).map(Mutex::lock)
    }

    /// Makes operations of one repository durable; true once the timelines here show them.
    fn commit(
        &self,
        server: &Server,
        did: String,
        revision: u64,
        ops: Vec<Op>,
    ) -> Result<bool, XrpcError> {
        let batch = Batch {
            source: SOURCE.to_owned(),
            cursor: Some(revision.cast_signed()),
            now_us: server.clock.now_us(),
            items: vec![Item::Commit(Commit {
                did,
                rev: revision,
                chain: None,
                filtered: 0,
                ops,
                frame: Default::default(),
                seq: 0,
                was_held: false,
                live: true,
            })],
        };
        let committed = server.store.commit(batch)?;
        if committed.accounting.superseded > 0 {
            return Err(XrpcError::conflict("a newer write was faster; read again"));
        }
        Ok(self.drawn(server, committed.position))
    }

    fn drawn(&self, server: &Server, position: i64) -> bool {
        let Some(fanout) = &server.fanout else {
            return true; // every page comes from the store
        };
        let patience = Duration::from_millis(self.settings.wait_ms_max);
        fanout.wait_shown(position, patience)
    }
}

fn kept(config: &Config) -> BTreeMap<String, Kept> {
    let follows = config.direct_follows();
    config
        .collections
        .iter()
        .filter(|(_, collection)| collection.direct)
        .map(|(short, collection)| {
            let follow = follows.iter().find(|follow| follow.collection == *short);
            let kept = Kept {
                nsid: collection.collection.clone(),
                validate: collection.validate,
                time: collection.time_path().map(str::to_owned),
                subject: follow.map(|follow| follow.subject.clone()),
            };
            (short.clone(), kept)
        })
        .collect()
}

/// The collection of follows that is meant where none is named: the home feed's first, or the only one.
fn first_follow(config: &Config) -> Option<String> {
    let home = config.direct_feed().and_then(|name| config.feeds.get(name));
    if let Some(feed) = home {
        return Some(feed.follows().into_iter().next()?.collection);
    }
    match config.direct_follows().as_slice() {
        [only] => Some(only.collection.clone()),
        _ => None,
    }
}

fn guarded(config: &Config) -> BTreeSet<String> {
    let feeds = config.feeds.iter();
    feeds
        .filter(|(_, feed)| !config.direct.open && config.touches_direct(feed))
        .map(|(name, _)| name.clone())
        .collect()
}

fn asker(caller: Caller) -> Asker {
    match caller {
        Caller::App => Asker::App,
        Caller::Reader(reader) => Asker::Account(reader.did()),
        Caller::Nobody => Asker::Nobody,
    }
}

/// A collection of follows, mutes or blocks.
#[derive(Debug, Clone, Copy)]
struct Follows<'a> {
    nsid: &'a str,
    subject: &'a str,
    /// It is the one that is meant without a name.
    first: bool,
}

/// One request, as its handler sees it.
#[derive(Debug)]
struct Asked<'a> {
    server: &'a Server,
    direct: &'a Direct,
    caller: Caller,
    headers: &'a HeaderMap,
}

impl Asked<'_> {
    /// Only the app may.
    fn app_only(&self) -> Result<(), XrpcError> {
        only_app(&self.caller)
    }

    /// Anybody we know may, and anybody at all where the door is open.
    fn somebody(&self) -> Result<(), XrpcError> {
        match self.caller {
            Caller::Nobody if !self.direct.door.is_open() => Err(nobody()),
            _ => Ok(()),
        }
    }

    /// Whom the app acts for, by its header.
    fn named(&self) -> Result<Option<LocalId>, XrpcError> {
        let Some(value) = self.headers.get(ACTOR_HEADER) else {
            return Ok(None);
        };
        let text = value.to_str().map_err(|_| {
            XrpcError::invalid(format!("{ACTOR_HEADER} must hold a person's id in ASCII"))
        })?;
        self.direct.person(ACTOR_HEADER, text).map(Some)
    }

    /// Whom the app acts for, by its header or by a field; both must agree.
    fn actor(&self, field: &str, body: &Object) -> Result<LocalId, XrpcError> {
        let written = body.get(field);
        let written = written.map(|value| self.direct.person_in(field, value));
        let written = written.transpose()?;
        match (self.named()?, written) {
            (Some(named), Some(written)) if named != written => Err(XrpcError::invalid(format!(
                "{ACTOR_HEADER} names {named}, the field {field:?} names {written}"
            ))),
            (Some(actor), _) | (None, Some(actor)) => Ok(actor),
            (None, None) => Err(XrpcError::invalid(format!(
                "name the actor in the field {field:?} or the header {ACTOR_HEADER}"
            ))),
        }
    }
}

fn only_app(caller: &Caller) -> Result<(), XrpcError> {
    match caller {
        Caller::App => Ok(()),
        Caller::Reader(_) => Err(XrpcError::forbidden("only the app's token may do this")),
        Caller::Nobody => Err(nobody()),
    }
}

pub(super) fn nobody() -> XrpcError {
    XrpcError::unauthorized(
        "AuthenticationRequired",
        "send \"Authorization: Bearer <token>\"",
    )
}

/// A JSON object as it was sent.
type Object = serde_json::Map<String, serde_json::Value>;

fn object(body: &[u8]) -> Result<Object, XrpcError> {
    serde_json::from_slice(body)
        .map_err(|error| XrpcError::invalid(format!("the body must be a JSON object: {error}")))
}

/// Runs a handler of the direct API on a thread that may block.
async fn run<F>(server: Arc<Server>, head: Parts, make: F) -> Response
where
    F: FnOnce(&Asked<'_>) -> Result<Answer, XrpcError> + Send + 'static,
{
    answer(server, move |server| {
        let direct = server
            .direct
            .as_ref()
            .ok_or_else(|| XrpcError::no_method("direct", &[]))?;
        let asked = Asked {
            server,
            direct,
            caller: direct
                .door
                .caller((&head.method, &head.headers), server.clock.now_us())?,
            headers: &head.headers,
        };
        make(&asked)
    })
    .await
}

type Shared = State<Arc<Server>>;

/// The app, known by its token before the body of its request is read.
pub(super) struct App;

impl FromRequestParts<Arc<Server>> for App {
    type Rejection = XrpcError;

    async fn from_request_parts(
        parts: &mut Parts,
        server: &Arc<Server>,
    ) -> Result<Self, XrpcError> {
        let direct = server.direct.as_ref();
        let direct = direct.ok_or_else(|| XrpcError::no_method("direct", &[]))?;
        let now_us = server.clock.now_us();
        let caller = direct
            .door
            .caller((&parts.method, &parts.headers), now_us)?;
        only_app(&caller).map(|()| Self)
    }
}

pub(super) async fn put_record(
    State(server): Shared,
    Path((short, id)): Path<(String, String)>,
    _: App,
    head: Parts,
    body: Bytes,
) -> Response {
    run(server, head, move |asked| {
        write::put(asked, &short, &id, &body)
    })
    .await
}

pub(super) async fn delete_record(
    State(server): Shared,
    Path((short, id)): Path<(String, String)>,
    head: Parts,
) -> Response {
    run(server, head, move |asked| write::delete(asked, &short, &id)).await
}

pub(super) async fn get_record(
    State(server): Shared,
    Path((short, id)): Path<(String, String)>,
    head: Parts,
) -> Response {
    run(server, head, move |asked| read::one(asked, &short, &id)).await
}

pub(super) async fn list_records(
    State(server): Shared,
    Path(short): Path<String>,
    RawQuery(query): RawQuery,
    head: Parts,
) -> Response {
    match Params::parse(query.as_deref()) {
        Ok(params) => {
            run(server, head, move |asked| {
                read::list(asked, &short, &params)
            })
            .await
        }
        Err(error) => error.into_response(),
    }
}

pub(super) async fn follow_one(
    State(server): Shared,
    _: App,
    head: Parts,
    body: Bytes,
) -> Response {
    run(server, head, move |asked| follow::follow(asked, &body)).await
}

pub(super) async fn unfollow(State(server): Shared, _: App, head: Parts, body: Bytes) -> Response {
    run(server, head, move |asked| follow::unfollow(asked, &body)).await
}

pub(super) async fn follow_many(
    State(server): Shared,
    _: App,
    head: Parts,
    body: Bytes,
) -> Response {
    run(server, head, move |asked| follow::many(asked, &body)).await
}

pub(super) async fn mint(State(server): Shared, _: App, head: Parts, body: Bytes) -> Response {
    run(server, head, move |asked| follow::token(asked, &body)).await
}

pub(super) async fn feed(
    State(server): Shared,
    RawQuery(query): RawQuery,
    head: Parts,
) -> Response {
    match Params::parse(query.as_deref()) {
        Ok(params) => run(server, head, move |asked| timeline::get(asked, &params)).await,
        Err(error) => error.into_response(),
    }
}
