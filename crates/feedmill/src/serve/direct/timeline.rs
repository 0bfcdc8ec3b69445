//! `GET /feed`: a reader's feed with the post's id as its cursor.
//!
//! In:    the reader's token, or the app's with the reader's name.
//! Out:   `{"posts": […], "next_cursor": …, "has_more": …}`, ten at a time.
//! Never: a cursor that loses its place because its post was deleted; a page
//!        that cannot be read because timelines are not in memory.
//!
//! A deleted post keeps its place: its tombstone has its time. A post that
//! was never known has none, and reading begins at the top again.

use serde_json::json;

use super::{Asked, Caller, Object, nobody};
use crate::config::collection::Match;
use crate::local::LocalId;
use crate::serve::error::XrpcError;
use crate::serve::feed::{self, Wanted};
use crate::serve::params::Params;
use crate::serve::{Answer, Server};
use crate::store::shown::ShownPage;
use crate::store::{Lens, Position};

/// Posts of a page where the reader does not say.
const POSTS: usize = 10;
/// Posts of the largest page.
const POSTS_MAX: usize = 100;

/// One page.
pub(super) fn get(asked: &Asked<'_>, params: &Params) -> Result<Answer, XrpcError> {
    params.only(["cursor", "limit", "user"])?;
    let reader = reader(asked, params.get("user"))?;
    let limit = limit(params)?;
    let wanted = wanted(asked, &reader, limit)?;
    let before = match (params.get("cursor"), wanted.targets.first()) {
        (Some(text), Some(target)) => {
            let id = asked
                .direct
                .id(text)
                .map_err(|error| XrpcError::declared("BadCursor", error.message))?;
            asked.server.store.position(&id.uri(&target.nsid))?
        }
        _ => None,
    };
    let page = feed::page(asked.server, &Wanted { before, ..wanted })?;
    let posts = posts(asked.server, &page)?;
    let last = page.rows.last().map(|row| row.position());
    // A page cut short by `page_scan_max` goes on from where the search stopped.
    let next: Option<Position> = match &page.next {
        Some(next) => Some(next.clone()),
        None => last,
    };
    let next = next.and_then(|position| LocalId::of_uri(&position.uri));
    Ok(Answer::json(
        json!({
            "posts": posts,
            "next_cursor": next.map(|id| id.to_string()),
            "has_more": page.next.is_some(),
        })
        .to_string(),
    ))
}

/// Reads a first page, after which the reader's timeline is in memory.
pub(super) fn warm(asked: &Asked<'_>, reader: &LocalId) -> Result<(), XrpcError> {
    feed::page(asked.server, &wanted(asked, reader, POSTS)?)?;
    Ok(())
}

fn reader(asked: &Asked<'_>, user: Option<&str>) -> Result<LocalId, XrpcError> {
    if user.is_some() && !asked.direct.door.is_open() {
        return Err(XrpcError::invalid(
            "the reader is known by a token; ?user= is for development (direct.open = true)",
        ));
    }
    let named = user
        .map(LocalId::parse)
        .transpose()
        .map_err(|error| XrpcError::invalid(format!("user: {error}")))?;
    match (&asked.caller, named) {
        (Caller::Reader(reader), None) => Ok(reader.clone()),
        (Caller::Reader(reader), Some(named)) if *reader == named => Ok(named),
        (Caller::Reader(_), Some(_)) => Err(XrpcError::forbidden("the token is another reader's")),
        (_, Some(named)) => Ok(named),
        (Caller::App, None) => asked.named()?.ok_or_else(|| {
            XrpcError::invalid(format!(
                "name the reader in the header {}",
                super::ACTOR_HEADER
            ))
        }),
        (Caller::Nobody, None) => Err(nobody()),
    }
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

fn wanted<'a>(asked: &Asked<'a>, reader: &LocalId, limit: usize) -> Result<Wanted<'a>, XrpcError> {
    let name = &asked.direct.home()?.name;
    let feed = asked
        .server
        .plan
        .feed(name)
        .ok_or_else(XrpcError::internal)?;
    Ok(Wanted {
        feed,
        targets: feed.targets.first().into_iter().collect(),
        reader: reader.did(),
        before: None,
        limit,
        lens: Lens::default(),
        scope: String::new(),
    })
}

/// Posts as they were put, with their relations counted: `like` becomes `like_count`.
fn posts(server: &Server, page: &ShownPage) -> Result<Vec<Object>, XrpcError> {
    let mut posts: Vec<Object> = page
        .rows
        .iter()
        .map(|row| serde_json::from_str(row.body()).unwrap_or_default())
        .collect();
    let Some(first) = page.rows.first() else {
        return Ok(posts);
    };
    let relations = server.plan.relations.get(first.collection());
    for relation in relations.into_iter().flatten() {
        let parents: Vec<String> = page
            .rows
            .iter()
            .map(|row| match relation.by {
                Match::Uri => {
                    LocalId::of_uri(row.uri()).map_or_else(String::new, |id| id.to_string())
                }
                Match::Did => row.did().to_owned(),
            })
            .collect();
        let children = server.store.children(relation.lane, &parents, 0)?;
        for (post, children) in posts.iter_mut().zip(children) {
            post.insert(format!("{}_count", relation.name), children.count.into());
        }
    }
    Ok(posts)
}
