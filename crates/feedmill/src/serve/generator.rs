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

use axum::http::{HeaderMap, HeaderName, header};
use axum::response::Response;
use serde_json::json;

use super::bearer::Bearers;
use super::error::XrpcError;
use super::feed::{self, Wanted};
use super::params::Params;
use super::rate::Asker;
use super::{Server, body, cursor, reply};
use crate::config::Config;
use crate::identity::Resolver;
use crate::store::Lens;
use crate::store::shown::ShownPage;

pub(super) const SKELETON: &str = "app.bsky.feed.getFeedSkeleton";
pub(super) const DESCRIBE: &str = "app.bsky.feed.describeFeedGenerator";

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

    /// Who we are and which feeds we have.
    pub(super) fn describe(&self) -> String {
        let uris = self.feeds.iter().map(|(uri, _)| json!({ "uri": uri }));
        json!({"did": self.did, "feeds": uris.collect::<Vec<_>>()}).to_string()
    }
}

/// `app.bsky.feed.getFeedSkeleton`.
pub(super) async fn skeleton(
    server: Arc<Server>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, XrpcError> {
    let Some(generator) = &server.generator else {
        return Err(XrpcError::no_method(SKELETON));
    };
    params.only(&["feed", "limit", "cursor"])?;
    let uri = params.need("feed")?;
    let name = generator
        .feeds
        .iter()
        .find(|(known, _)| known == uri)
        .map(|(_, name)| name.clone())
        .ok_or_else(|| XrpcError::declared("UnknownFeed", format!("no feed {uri:?} here")))?;
    let limit = limit(&params)?;
    let now_s = server.clock.now_us() / 1_000_000;
    let reader = generator.bearers.account(&headers, SKELETON, now_s).await?;
    let standing = match &reader {
        Some(did) => match server.rates.take(Asker::Account(did.clone()), 1, now_s) {
            Ok(standing) => standing,
            Err(standing) => return Ok(standing.refusal(now_s)),
        },
        None => None,
    };
    if let Some(reader) = &reader {
        // A skeleton has no place for a word about it.
        super::first_read::of_reader(&server, reader).await;
    }
    let tags = headers.get(header::IF_NONE_MATCH);
    let made = match &reader {
        Some(reader) => at_once(&server, &name, reader, limit, params.get("cursor")),
        None => None,
    };
    let (body, rev) = match made {
        Some(made) => made,
        None => {
            let server = Arc::clone(&server);
            let make = move || {
                page(
                    &server,
                    &name,
                    reader.as_deref(),
                    limit,
                    params.get("cursor"),
                )
            };
            let made = tokio::task::spawn_blocking(make).await;
            made.map_err(|_| XrpcError::internal())??
        }
    };
    let mut response = reply::json(body, tags);
    if let Some(rev) = rev.and_then(|rev| rev.parse().ok()) {
        let name = HeaderName::from_static("atproto-repo-rev");
        response.headers_mut().insert(name, rev);
    }
    if let Some(standing) = standing {
        response.extensions_mut().insert(standing);
    }
    Ok(response)
}

fn limit(params: &Params) -> Result<usize, XrpcError> {
    let Some(text) = params.get("limit") else {
        return Ok(POSTS);
    };
    let limit = text
        .parse()
        .ok()
        .filter(|limit| (1..=POSTS_MAX).contains(limit));
    limit.ok_or_else(|| {
        XrpcError::invalid(format!(
            "limit must be an integer from 1 to {POSTS_MAX}, not {text:?}"
        ))
    })
}

/// A page's JSON, and how far we have read the reader's own repository.
type Skeleton = (String, Option<String>);

fn wanted<'a>(
    server: &'a Server,
    name: &str,
    reader: &str,
    limit: usize,
    after: Option<&str>,
) -> Result<Wanted<'a>, XrpcError> {
    let feed = server.plan.feed(name).ok_or_else(XrpcError::internal)?;
    let scope = format!("skeleton:{name}");
    let count = if feed.mixed { feed.targets.len() } else { 1 };
    Ok(Wanted {
        feed,
        targets: feed.targets.iter().take(count).collect(),
        reader: reader.to_owned(),
        before: after.map(|text| cursor::read(&scope, text)).transpose()?,
        limit,
        lens: Lens::default(),
        scope,
    })
}

/// The page, if memory holds all it needs.
fn at_once(
    server: &Server,
    name: &str,
    reader: &str,
    limit: usize,
    after: Option<&str>,
) -> Option<Skeleton> {
    let rev = server.fanout.as_ref()?.rev_at_once(reader)?;
    let wanted = wanted(server, name, reader, limit, after).ok()?;
    let page = feed::page_at_once(server, &wanted)?;
    Some((write(&wanted, &page), revision(rev)))
}

fn page(
    server: &Server,
    name: &str,
    reader: Option<&str>,
    limit: usize,
    after: Option<&str>,
) -> Result<Skeleton, XrpcError> {
    let Some(reader) = reader else {
        return Ok(("{\"feed\":[]}".to_owned(), None));
    };
    let rev = match &server.fanout {
        Some(fanout) => fanout.rev(reader)?,
        None => server.store.account(reader)?.map_or(0, |known| known.rev),
    };
    let wanted = wanted(server, name, reader, limit, after)?;
    let page = feed::page(server, &wanted)?;
    Ok((write(&wanted, &page), revision(rev)))
}

/// A repository's revision as the network writes it; 0 is none.
fn revision(rev: u64) -> Option<String> {
    (rev > 0).then(|| record::tid::Tid::from_bits(rev).to_string())
}

fn write(wanted: &Wanted<'_>, page: &ShownPage) -> String {
    let mut out = String::with_capacity(page.rows.len() * 100 + 300);
    out.push_str("{\"feed\":[");
    for (index, row) in page.rows.iter().enumerate() {
        out.push_str(match index {
            0 => "{\"post\":",
            _ => ",{\"post\":",
        });
        body::push_string(&mut out, row.uri());
        out.push('}');
    }
    out.push(']');
    let next = page.next.as_ref();
    let next = next.map(|next| cursor::write(&wanted.scope, next));
    body::push_cursor(&mut out, next.as_deref());
    out.push('}');
    out
}
