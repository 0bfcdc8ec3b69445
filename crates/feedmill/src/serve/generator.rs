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
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::bearer::Bearers;
use super::error::XrpcError;
use super::feed::{self, Wanted};
use super::params::Params;
use super::rate::Asker;
use super::{Server, body, cursor};
use crate::config::Config;
use crate::identity::Resolver;

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
    let page = {
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
        tokio::task::spawn_blocking(make)
            .await
            .map_err(|_| XrpcError::internal())??
    };
    let (body, rev) = page;
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
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

/// The page's URIs, and how far we have read the reader's own repository.
fn page(
    server: &Server,
    name: &str,
    reader: Option<&str>,
    limit: usize,
    after: Option<&str>,
) -> Result<(String, Option<String>), XrpcError> {
    let Some(reader) = reader else {
        return Ok(("{\"feed\":[]}".to_owned(), None));
    };
    let feed = server.plan.feed(name).ok_or_else(XrpcError::internal)?;
    let scope = format!("skeleton:{name}");
    let count = if feed.mixed { feed.targets.len() } else { 1 };
    let wanted = Wanted {
        feed,
        targets: feed.targets.iter().take(count).collect(),
        reader: reader.to_owned(),
        before: after.map(|text| cursor::read(&scope, text)).transpose()?,
        limit,
        filters: Vec::new(),
        scope,
    };
    let page = feed::page(server, &wanted)?;
    let mut out = String::from("{\"feed\":[");
    for (index, row) in page.rows.iter().enumerate() {
        out.push_str(if index > 0 {
            ",{\"post\":"
        } else {
            "{\"post\":"
        });
        body::push_string(&mut out, &row.uri);
        out.push('}');
    }
    out.push(']');
    if let Some(next) = &page.next {
        out.push_str(",\"cursor\":");
        body::push_string(&mut out, &cursor::write(&wanted.scope, next));
    }
    out.push('}');
    let account = server.store.account(reader)?;
    let rev = account.filter(|account| account.rev > 0);
    Ok((
        out,
        rev.map(|account| record::tid::Tid::from_bits(account.rev).to_string()),
    ))
}
