//! Feed generator: our feeds in a Bluesky client.
//!
//! In:    `app.bsky.feed.getFeedSkeleton` with the reader's service-auth token.
//! Out:   the URIs of one page; who we are (`describeFeedGenerator`, `did.json`).
//! Never: a feed of a reader who did not ask for it; a token taken twice.
//!
//! A feed is offered under the URI of its `app.bsky.feed.generator` record,
//! `publish_as` in the configuration. A feed is made of follows, so who does
//! not say who he is gets an empty one.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header;
use axum::response::Response;
use record::ids::UriParts;
use serde_json::{Value, json};

use super::bearer::Bearers;
use super::error::XrpcError;
use super::feed::{self, Wanted};
use super::params::Params;
use super::{Answer, Server, body, cursor, reply};
use crate::config::Config;
use crate::config::feed::{POST, REPOST};
use crate::fanout::Uris;
use crate::identity::Resolver;
use crate::store::shown::{ShownPage, push_escaped};
use crate::store::{Lens, Position};

pub(super) const SKELETON: &str = "app.bsky.feed.getFeedSkeleton";
pub(super) const DESCRIBE: &str = "app.bsky.feed.describeFeedGenerator";

/// Why a post is in a feed whose author is not followed: somebody reposted it.
const REASON_REPOST: &str = "app.bsky.feed.defs#skeletonReasonRepost";

/// Posts of a page where the caller does not say, and of the largest page.
pub(super) const POSTS: usize = 50;
pub(super) const POSTS_MAX: usize = 100;

/// Our feeds as the network knows them.
#[derive(Debug)]
pub struct Generator {
    did: String,
    endpoint: Option<String>,
    /// The name under which typed clients ask for us.
    audience: Option<String>,
    /// URI of the published record, name of the feed.
    feeds: Vec<(String, String)>,
    /// Who asks.
    pub(super) bearers: Bearers,
}

impl Generator {
    /// The generator of a configuration; `None` if it has no DID.
    pub fn new(config: &Config, resolver: Arc<Resolver>) -> Option<Self> {
        let did = config.service_did()?;
        let feeds = config.feeds.iter();
        Some(Self {
            bearers: Bearers::new(did.clone(), resolver),
            did,
            endpoint: config.serve.public_url.clone(),
            audience: super::service::audience(config),
            feeds: feeds
                .filter_map(|(name, feed)| Some((feed.publish_as.clone()?, name.clone())))
                .collect(),
        })
    }

    /// A feed that is not ours; the answer names those that are.
    fn unknown(&self, uri: &str) -> XrpcError {
        let known: Vec<&str> = self.feeds.iter().map(|(uri, _)| uri.as_str()).collect();
        let message = match known.as_slice() {
            [] => format!("no feed {uri:?}; none is published here, see publish_as"),
            known => format!("no feed {uri:?}; there are: {}", known.join(", ")),
        };
        XrpcError::declared("UnknownFeed", message)
    }

    /// `/.well-known/did.json`, if our DID is one whose document stands here.
    pub(super) fn document(&self) -> Result<String, XrpcError> {
        let endpoint = self
            .endpoint
            .as_ref()
            .filter(|_| self.did.starts_with("did:web:"))
            .ok_or_else(|| XrpcError::not_found("no document here; set serve.public_url"))?;
        let mut services = vec![
            json!({"id": "#bsky_fg", "type": "BskyFeedGenerator", "serviceEndpoint": endpoint}),
        ];
        if let Some(audience) = &self.audience {
            services.push(
                json!({"id": audience, "type": "ContrailService", "serviceEndpoint": endpoint}),
            );
        }
        Ok(json!({
            "@context": ["https://www.w3.org/ns/did/v1"],
            "id": self.did,
            "service": services,
        })
        .to_string())
    }
}

/// `app.bsky.feed.describeFeedGenerator`: who we are and which feeds we have.
pub(super) fn describe(server: &Server, _: &Params) -> Result<Answer, XrpcError> {
    let generator = server.generator.as_ref().ok_or_else(XrpcError::internal)?;
    let feeds = generator.feeds.iter();
    let uris: Vec<_> = feeds.map(|(uri, _)| json!({ "uri": uri })).collect();
    let answer = json!({"did": generator.did, "feeds": uris});
    Ok(Answer::json(answer.to_string()))
}

/// `app.bsky.feed.getFeedSkeleton`, for the reader who asks.
pub(super) async fn skeleton(
    server: Arc<Server>,
    reader: Option<String>,
    params: Params,
    request: Request,
) -> Result<Response, XrpcError> {
    let generator = server.generator.as_ref().ok_or_else(XrpcError::internal)?;
    let uri = params.need("feed")?;
    let feeds = &mut generator.feeds.iter();
    let (_, name) = feeds
        .find(|(known, _)| known == uri)
        .ok_or_else(|| generator.unknown(uri))?;
    let limit = params.number("limit", POSTS, POSTS_MAX)?;
    let before = params
        .get("cursor")
        .map(|text| cursor::read(&scope(name), text));
    let before = before.transpose()?;
    let tags = request.headers().get(header::IF_NONE_MATCH);
    let Some(reader) = reader else {
        let empty = Answer::json("{\"feed\":[]}".to_owned());
        return Ok(reply::json(empty, tags));
    };
    // A skeleton has no place for a word about it.
    let word = super::first_read::of_reader(&server, name, &reader).await;
    let mut wanted = wanted(&server, name, reader, limit, before)?;
    wanted.is_incomplete = word.is_some();
    if let Some(page) = posts_at_once(&server, &wanted) {
        let body = write(&wanted.scope, page.iter(), page.next.as_ref());
        return Ok(reply::json(Answer::json(body), tags));
    }
    let (reader, before, name) = (wanted.reader, wanted.before, name.clone());
    let read = move |server: &Server| {
        let mut wanted = self::wanted(server, &name, reader, limit, before)?;
        wanted.is_incomplete = word.is_some();
        if has_reposts(&wanted) {
            let page = feed::page(server, &wanted)?;
            return Ok(write_reposts(&wanted.scope, &page));
        }
        if let Some(page) = feed::uris(server, &wanted)? {
            return Ok(write(&wanted.scope, page.iter(), page.next.as_ref()));
        }
        let page = feed::page(server, &wanted)?;
        let uris = page.rows.iter().map(|row| row.uri());
        Ok(write(&wanted.scope, uris, page.next.as_ref()))
    };
    let body = super::blocking(Arc::clone(&server), read).await?;
    Ok(reply::json(Answer::json(body), tags))
}

/// The scope of a skeleton's cursors.
fn scope(feed: &str) -> String {
    format!("skeleton:{feed}")
}

fn wanted<'a>(
    server: &'a Server,
    name: &str,
    reader: String,
    limit: usize,
    before: Option<Position>,
) -> Result<Wanted<'a>, XrpcError> {
    let feed = server.plan.feed(name).ok_or_else(XrpcError::internal)?;
    let count = if feed.mixed { feed.targets.len() } else { 1 };
    Ok(Wanted {
        feed,
        targets: feed.targets.iter().take(count).collect(),
        reader,
        before,
        limit,
        lens: Lens::default(),
        scope: scope(name),
        is_incomplete: false,
    })
}

/// Whether reposts are among the entries: which post one shows is in its body.
fn has_reposts(wanted: &Wanted<'_>) -> bool {
    wanted.targets.iter().any(|target| target.nsid == REPOST)
}

fn posts_at_once(server: &Server, wanted: &Wanted<'_>) -> Option<Uris> {
    match has_reposts(wanted) {
        true => None,
        false => feed::uris_at_once(server, wanted),
    }
}

/// The skeleton of posts and reposts. A repost of what is not a post has nothing to show and is left out.
fn write_reposts(scope: &str, page: &ShownPage) -> String {
    let entries: Vec<Value> = page
        .rows
        .iter()
        .filter_map(|row| match row.collection() {
            REPOST => Some(json!({
                "post": reposted(row.body())?,
                "reason": {"$type": REASON_REPOST, "repost": row.uri()},
            })),
            _ => Some(json!({ "post": row.uri() })),
        })
        .collect();
    let next = page.next.as_ref();
    let answer = match next.map(|next| cursor::write(scope, next)) {
        Some(cursor) => json!({ "feed": entries, "cursor": cursor }),
        None => json!({ "feed": entries }),
    };
    answer.to_string()
}

/// The post that a repost shows again.
fn reposted(body: &str) -> Option<String> {
    let value = record::json::from_json(body).ok()?;
    let uri = value.at("subject.uri")?.text()?;
    let collection = UriParts::parse(uri).ok()?.collection;
    (collection == Some(POST)).then(|| uri.to_owned())
}

/// The skeleton of these URIs.
fn write<'a>(scope: &str, uris: impl Iterator<Item = &'a str>, next: Option<&Position>) -> String {
    let mut out = String::with_capacity(POSTS_MAX * 100);
    out.push_str("{\"feed\":[");
    let (mut before, mut end) = ("{\"post\":\"", "]");
    for uri in uris {
        out.push_str(before);
        push_escaped(&mut out, uri);
        (before, end) = ("\"},{\"post\":\"", "\"}]");
    }
    out.push_str(end);
    let next = next.map(|next| cursor::write(scope, next));
    body::push_cursor(&mut out, next.as_deref());
    out.push('}');
    out
}
