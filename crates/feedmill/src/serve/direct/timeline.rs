//! `GET /feed`: a reader's feed with the post's id as its cursor.
//!
//! In:    the reader's token, or the app's with the reader's name.
//! Out:   `{"posts": […], "next_cursor": …, "has_more": …}`, ten at a time.
//! Never: a cursor that loses its place because its post was deleted; a page
//!        that cannot be read because timelines are not in memory.
//!
//! A deleted post keeps its place: its tombstone has its time. A post that
//! was never known has none, and reading begins at the top again. A mixed feed
//! shows posts of several collections, whose ids may be the same: there a post
//! says its collection, and a cursor is `collection/id`.

use serde_json::json;

use super::{Asked, Caller, Object, nobody};
use crate::config::collection::Match;
use crate::local::LocalId;
use crate::serve::error::XrpcError;
use crate::serve::feed::{self, Wanted};
use crate::serve::params::Params;
use crate::serve::{Answer, Server};
use crate::store::Lens;
use crate::store::plan::FeedTarget;
use crate::store::shown::{Shown, ShownPage};

/// Posts of a page where the reader does not say.
const POSTS: usize = 10;
/// Posts of the largest page.
const POSTS_MAX: usize = 100;
/// How often the search for posts goes on that would fill a page.
const SEARCHES_MAX: usize = 20;

/// One page.
pub(super) fn get(asked: &Asked<'_>, params: &Params) -> Result<Answer, XrpcError> {
    params.only(["cursor", "limit", "user"])?;
    let reader = reader(asked, params.get("user"))?;
    let limit = limit(params)?;
    let wanted = wanted(asked, &reader, limit)?;
    let before = match params.get("cursor") {
        Some(text) => {
            let uri = uri(asked, &wanted, text)
                .map_err(|error| XrpcError::declared("BadCursor", error.message))?;
            asked.server.store.position(&uri)?
        }
        None => None,
    };
    let targets = wanted.targets.clone();
    let page = filled(asked.server, Wanted { before, ..wanted })?;
    let posts = posts(asked.server, &targets, &page)?;
    let last = page.rows.last().map(|row| row.position());
    let next = last.or_else(|| page.next.clone());
    let next = next.and_then(|position| name(&targets, &position.uri));
    Ok(Answer::json(
        json!({
            "posts": posts,
            "next_cursor": next,
            "has_more": page.next.is_some(),
        })
        .to_string(),
    ))
}

/// A page that is full, or the last.
///
/// Elsewhere a page may end where `page_scan_max` ended the search, and its cursor says where that
/// was. An id cannot: what stood there may stand elsewhere by the time it comes back.
fn filled(server: &Server, mut wanted: Wanted<'_>) -> Result<ShownPage, XrpcError> {
    let limit = wanted.limit;
    let mut page = feed::page(server, &wanted)?;
    for _ in 0..SEARCHES_MAX {
        wanted.limit = limit.saturating_sub(page.rows.len());
        let is_large = page.bytes() >= server.limits.response_bytes_max();
        if wanted.limit == 0 || page.next.is_none() || (is_large && !page.rows.is_empty()) {
            break;
        }
        wanted.before = page.next;
        let more = feed::page(server, &wanted)?;
        page.rows.extend(more.rows);
        page.next = more.next;
    }
    Ok(page.cut(server.limits.response_bytes_max()))
}

/// Reads a first page, after which the reader's timeline is in memory.
pub(super) fn warm(asked: &Asked<'_>, reader: &LocalId) -> Result<(), XrpcError> {
    if asked.direct.feed.is_some() {
        feed::page(asked.server, &wanted(asked, reader, POSTS)?)?;
    }
    Ok(())
}

/// The record that a cursor names.
fn uri(asked: &Asked<'_>, wanted: &Wanted<'_>, cursor: &str) -> Result<String, XrpcError> {
    let (target, id) = match wanted.targets.as_slice() {
        [target] => (*target, cursor),
        targets => {
            let (short, id) = cursor.split_once('/').unwrap_or((cursor, ""));
            let target = targets.iter().find(|target| target.short == short);
            let target = target.ok_or_else(|| {
                let shorts: Vec<&str> = targets.iter().map(|target| &*target.short).collect();
                XrpcError::invalid(format!(
                    "a cursor of this feed is a collection and an id such as \"{}/1\", not {cursor:?}; it shows {}",
                    shorts.first().unwrap_or(&""),
                    shorts.join(", ")
                ))
            })?;
            (*target, id)
        }
    };
    Ok(asked.direct.id(id)?.uri(&target.nsid))
}

/// What a cursor calls a record.
fn name(targets: &[&FeedTarget], uri: &str) -> Option<String> {
    let id = LocalId::of_uri(uri)?;
    match targets {
        [_] => Some(id.to_string()),
        _ => {
            let target = targets.iter().find(|target| id.uri(&target.nsid) == uri)?;
            Some(format!("{}/{id}", target.short))
        }
    }
}

fn reader(asked: &Asked<'_>, user: Option<&str>) -> Result<LocalId, XrpcError> {
    if user.is_some() && !asked.direct.door.is_open() {
        return Err(XrpcError::invalid(
            "the reader is known by a token; ?user= is for development (direct.open = true)",
        ));
    }
    let named = user.map(|user| asked.direct.person("user", user));
    let named = named.transpose()?;
    match (&asked.caller, named) {
        (Caller::Reader(reader), None) => Ok(reader.clone()),
        (Caller::Reader(reader), Some(named)) if *reader == named => Ok(named),
        (Caller::Reader(_), Some(_)) => Err(XrpcError::forbidden("the token is another reader's")),
        (_, Some(named)) => Ok(named),
        (Caller::App, None) => asked.named()?.ok_or_else(|| {
            let or = if asked.direct.door.is_open() {
                ", or with ?user="
            } else {
                ""
            };
            XrpcError::invalid(format!(
                "name the reader in the header {}{or}",
                super::ACTOR_HEADER
            ))
        }),
        (Caller::Nobody, None) if asked.direct.door.is_open() => Err(XrpcError::unauthorized(
            "AuthenticationRequired",
            "name the reader with ?user=, or send \"Authorization: Bearer <token>\"",
        )),
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
    let name = asked.direct.home()?;
    let feed = asked
        .server
        .plan
        .feed(name)
        .ok_or_else(XrpcError::internal)?;
    Ok(Wanted {
        feed,
        targets: feed::targets(feed, None)?,
        reader: reader.did(),
        before: None,
        limit,
        lens: Lens::default(),
        scope: String::new(),
        is_incomplete: false,
    })
}

/// Posts as they were put, with their relations counted: `like` becomes `like_count`.
fn posts(
    server: &Server,
    targets: &[&FeedTarget],
    page: &ShownPage,
) -> Result<Vec<Object>, XrpcError> {
    let mut posts: Vec<Object> = page
        .rows
        .iter()
        .map(|row| serde_json::from_str(row.body()).unwrap_or_default())
        .collect();
    for target in targets {
        let mut own: Vec<(&Shown, &mut Object)> = page
            .rows
            .iter()
            .zip(&mut posts)
            .map(|(row, post)| (row.as_ref(), post))
            .filter(|(row, _)| row.collection() == target.nsid)
            .collect();
        if targets.len() > 1 {
            for (_, post) in &mut own {
                post.insert("collection".to_owned(), target.short.clone().into());
            }
        }
        if !own.is_empty() {
            count(server, &target.nsid, &mut own)?;
        }
    }
    Ok(posts)
}

/// Counts the relations of posts of one collection.
fn count(
    server: &Server,
    nsid: &str,
    posts: &mut [(&Shown, &mut Object)],
) -> Result<(), XrpcError> {
    let relations = server.plan.relations.get(nsid);
    for relation in relations.into_iter().flatten() {
        let parents: Vec<String> = posts
            .iter()
            .map(|(row, _)| match relation.by {
                Match::Uri => {
                    LocalId::of_uri(row.uri()).map_or_else(String::new, |id| id.to_string())
                }
                Match::Did => row.did().to_owned(),
            })
            .collect();
        let children = server.store.children(relation.lane, &parents, 0)?;
        for ((_, post), children) in posts.iter_mut().zip(children) {
            post.insert(format!("{}_count", relation.name), children.count.into());
        }
    }
    Ok(())
}
