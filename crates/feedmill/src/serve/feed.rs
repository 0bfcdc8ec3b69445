//! `{ns}.getFeed`: a reader's feed, newest first.

use super::cursor;
use super::error::XrpcError;
use super::hydration::Hydration;
use super::params::Params;
use super::{Answer, Server};
use crate::fanout::Wish;
use crate::store::filter::Filter;
use crate::store::plan::{FeedPlan, FeedTarget};
use crate::store::{FeedQuery, Page, Position};

/// Which page of whose feed.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) feed: &'a FeedPlan,
    /// One target, or all of a mixed feed.
    pub(super) targets: Vec<&'a FeedTarget>,
    pub(super) reader: String,
    pub(super) before: Option<Position>,
    pub(super) limit: usize,
    pub(super) filters: Vec<Filter>,
    pub(super) scope: String,
}

pub(super) fn get(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let wanted = wanted(server, params)?;
    // Filters and hydration are those of the one collection served.
    let nsid = match wanted.targets.as_slice() {
        [target] => target.nsid.as_str(),
        _ => "",
    };
    server.only(
        params,
        nsid,
        &["feed", "actor", "collection", "limit", "cursor"],
    )?;
    let wanted = Wanted {
        filters: server.questions.read(nsid, params)?,
        ..wanted
    };
    let hydration = Hydration::read(server, nsid, params)?;
    let page = page(server, &wanted)?;
    let next = page
        .next
        .as_ref()
        .map(|position| cursor::write(&wanted.scope, position));
    let body = hydration.page(server, &page.rows, next.as_deref())?;
    Ok(Answer::json(body))
}

fn wanted<'a>(server: &'a Server, params: &Params) -> Result<Wanted<'a>, XrpcError> {
    let name = params.need("feed")?;
    let feed = server.plan.feed(name).ok_or_else(|| {
        let known: Vec<&str> = server
            .plan
            .feeds
            .iter()
            .map(|feed| feed.name.as_str())
            .collect();
        XrpcError::declared(
            "UnknownFeed",
            format!("no feed {name:?}; there are: {}", known.join(", ")),
        )
    })?;
    if feed.merged.is_some() {
        let message = format!(
            "feed {name:?} is merged; ask {}.getFollowingFeed",
            server.namespace
        );
        return Err(XrpcError::invalid(message));
    }
    let targets = targets(feed, params.get("collection"))?;
    let scope = match (
        feed.mixed && params.get("collection").is_none(),
        targets.first(),
    ) {
        (false, Some(target)) => format!("feed:{name}:{}", target.short),
        _ => format!("feed:{name}"),
    };
    Ok(Wanted {
        feed,
        targets,
        reader: server.actor(params.need("actor")?)?,
        before: params
            .get("cursor")
            .map(|text| cursor::read(&scope, text))
            .transpose()?,
        limit: params.limit()?,
        filters: Vec::new(),
        scope,
    })
}

fn targets<'a>(
    feed: &'a FeedPlan,
    collection: Option<&str>,
) -> Result<Vec<&'a FeedTarget>, XrpcError> {
    match collection {
        None if feed.mixed => Ok(feed.targets.iter().collect()),
        None => Ok(feed.targets.first().into_iter().collect()),
        Some(name) => match feed
            .targets
            .iter()
            .find(|target| target.short == name || target.nsid == name)
        {
            Some(target) => Ok(vec![target]),
            None => {
                let known: Vec<&str> = feed
                    .targets
                    .iter()
                    .map(|target| target.short.as_str())
                    .collect();
                Err(XrpcError::invalid(format!(
                    "{name:?} is not a target of this feed; it has: {}",
                    known.join(", ")
                )))
            }
        },
    }
}

/// The page from memory if memory can answer all of it, else from the store.
pub(super) fn page(server: &Server, wanted: &Wanted<'_>) -> Result<Page, XrpcError> {
    let page = match from_memory(server, wanted)? {
        Some(page) => Ok(("memory", page)),
        None => from_store(server, wanted).map(|page| ("store", page)),
    };
    let (from, page) = page?;
    metrics::counter!(crate::metrics::PAGES, "from" => from).increment(1);
    Ok(page)
}

fn from_memory(server: &Server, wanted: &Wanted<'_>) -> Result<Option<Page>, XrpcError> {
    // Memory holds no bodies: what is filtered by them comes from the store.
    let able = !wanted.feed.end && wanted.filters.is_empty();
    let Some(fanout) = server.fanout.as_ref().filter(|_| able) else {
        return Ok(None);
    };
    let Some(reader) = server.store.key(&wanted.reader)? else {
        return Ok(Some(Page::default())); // nobody ever named this reader
    };
    let one = |target: &&FeedTarget| {
        wanted
            .feed
            .targets
            .iter()
            .position(|other| other == *target)
    };
    let target = match wanted.targets.as_slice() {
        [target] => match one(target) {
            Some(target) => Some(target),
            None => return Ok(None),
        },
        _ => None,
    };
    let wish = Wish {
        feed: &wanted.feed.name,
        target,
        reader,
        before: wanted.before.as_ref(),
        limit: wanted.limit,
        now_us: server.clock.now_us(),
    };
    let Some(ids) = fanout.page(&wish)? else {
        return Ok(None);
    };
    let numbers: Vec<i64> = ids.records.iter().map(|(id, _)| *id).collect();
    let rows = server.store.rows(&numbers)?;
    let shown = rows.iter().map(|row| (row.id, row.time_us));
    if !shown.eq(ids.records.iter().copied()) {
        return Ok(None); // some went or moved while we looked: the store answers at one instant
    }
    Ok(Some(Page {
        rows,
        next: ids.next,
    }))
}

fn from_store(server: &Server, wanted: &Wanted<'_>) -> Result<Page, XrpcError> {
    let query = FeedQuery {
        reader: wanted.reader.clone(),
        lanes: wanted
            .targets
            .iter()
            .map(|target| {
                (
                    target.lane,
                    wanted.feed.end.then_some(target.max_items as usize),
                )
            })
            .collect(),
        follows: wanted.feed.follows.clone(),
        hides: wanted.feed.hides.clone(),
        include_self: wanted.feed.include_self,
        before: wanted.before.clone(),
        limit: wanted.limit,
        filters: wanted.filters.clone(),
        scan_max: server.page_scan_max,
    };
    Ok(server.store.feed(&query)?)
}
