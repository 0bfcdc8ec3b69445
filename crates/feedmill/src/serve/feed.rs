//! `{ns}.getFeed`: a reader's feed, newest first.

use super::cursor;
use super::error::XrpcError;
use super::filters::Asked;
use super::hydration::{self, Hydration};
use super::params::Params;
use super::{Answer, Server, body, labelers};
use crate::fanout::{Uris, Wish};
use crate::store::plan::{FeedPlan, FeedTarget};
use crate::store::shown::ShownPage;
use crate::store::{FeedQuery, Lens, Position};

/// Which page of whose feed.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) feed: &'a FeedPlan,
    /// One target, or all of a mixed feed.
    pub(super) targets: Vec<&'a FeedTarget>,
    pub(super) reader: String,
    pub(super) before: Option<Position>,
    pub(super) limit: usize,
    pub(super) lens: Lens,
    pub(super) scope: String,
    /// What the reader follows is not here, so it does not become active.
    pub(super) is_incomplete: bool,
}

pub(super) fn get(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let wanted = wanted(server, params)?;
    // Filters and hydration are those of the one collection served.
    let nsid = match wanted.targets.as_slice() {
        [target] => target.nsid.as_str(),
        _ => "",
    };
    only(server, params, nsid)
        .map_err(|error| of_another(server, params, wanted.feed, nsid).unwrap_or(error))?;
    let hydration = Hydration::read(server, nsid, params)?;
    hydration.fitting(server, &wanted.scope, wanted.limit, |limit| {
        page(
            server,
            &Wanted {
                limit,
                ..wanted.clone()
            },
        )
    })
}

/// The parameters of a plain page.
const PLAIN: [&str; 5] = ["feed", "actor", "collection", "limit", "cursor"];

/// Refuses what this page may not be asked.
fn only(server: &Server, params: &Params, nsid: &str) -> Result<(), XrpcError> {
    let own = parameters(server, nsid);
    let mut known = PLAIN.to_vec();
    known.extend(own.iter().map(String::as_str));
    known.push(labelers::PARAMETER);
    params.only(known)
}

/// What one target may be asked beside.
fn parameters(server: &Server, nsid: &str) -> Vec<String> {
    let mut all = hydration::parameters(server, nsid);
    let questions = server.questions.parameters(nsid);
    all.extend(questions.into_iter().map(str::to_owned));
    all
}

/// What is said of a parameter that another target of the feed has: how to ask that one.
fn of_another(server: &Server, params: &Params, feed: &FeedPlan, nsid: &str) -> Option<XrpcError> {
    let own = parameters(server, nsid);
    feed.targets.iter().find_map(|target| {
        let mut theirs = parameters(server, &target.nsid).into_iter();
        let name = theirs.find(|it| params.get(it).is_some() && !own.contains(it))?;
        let short = &target.short;
        Some(XrpcError::invalid(format!(
            "{name} is asked of one collection: give collection={short}"
        )))
    })
}

/// The answer, if it can be put together from memory without waiting for anybody.
/// Whatever is unusual, errors too, is left to [`get`].
pub(super) fn get_at_once(server: &Server, params: &Params) -> Option<Answer> {
    // Labels are in a file.
    if !params.labelers.is_empty() {
        return None;
    }
    params.only(PLAIN).ok()?;
    // A handle is looked up in the store.
    if let Some(actor) = params.get("actor") {
        record::ids::Did::parse(actor).ok()?;
    }
    let wanted = wanted(server, params).ok()?;
    let counted = |target: &&FeedTarget| server.plan.relations.contains_key(&target.nsid);
    // Relations are those of the one collection served.
    if let [target] = wanted.targets.as_slice()
        && counted(target)
    {
        return None;
    }
    let page = page_at_once(server, &wanted)?;
    let next = cursor::next(&wanted.scope, &page);
    Some(body::page(&page.rows, &[], next.as_deref(), ""))
}

/// The page from memory alone, if it is all there.
fn page_at_once(server: &Server, wanted: &Wanted<'_>) -> Option<ShownPage> {
    let fanout = server.fanout.as_ref()?;
    let page = fanout.page_at_once(&wish(server, wanted)?)?;
    server.meters.from_memory.increment(1);
    Some(page.cut(server.limits.response_bytes_max()))
}

/// The feed of a name.
pub(super) fn named<'a>(server: &'a Server, name: &str) -> Result<&'a FeedPlan, XrpcError> {
    server.plan.feed(name).ok_or_else(|| {
        let feeds = server.plan.feeds.iter();
        let known: Vec<&str> = feeds.map(|feed| feed.name.as_str()).collect();
        let message = format!("no feed {name:?}; there are: {}", known.join(", "));
        XrpcError::declared("UnknownFeed", message)
    })
}

/// The URIs of a page from memory, if memory can answer all of it.
pub(super) fn uris(server: &Server, wanted: &Wanted<'_>) -> Result<Option<Uris>, XrpcError> {
    let (Some(fanout), Some(wish)) = (&server.fanout, wish(server, wanted)) else {
        return Ok(None);
    };
    let found = fanout.uris(&wish)?;
    if found.is_some() {
        server.meters.from_memory.increment(1);
    }
    Ok(found)
}

/// The same, if nobody has to be waited for.
pub(super) fn uris_at_once(server: &Server, wanted: &Wanted<'_>) -> Option<Uris> {
    let fanout = server.fanout.as_ref()?;
    let page = fanout.uris_at_once(&wish(server, wanted)?)?;
    server.meters.from_memory.increment(1);
    Some(page)
}

fn wanted<'a>(server: &'a Server, params: &Params) -> Result<Wanted<'a>, XrpcError> {
    let feed = named(server, params.need("feed")?)?;
    let name = &feed.name;
    if feed.merged.is_some() {
        let message = format!(
            "feed {name:?} is merged; ask {}.getFollowingFeed",
            server.namespace
        );
        return Err(XrpcError::invalid(message));
    }
    let targets = targets(feed, params.get("collection"))?;
    let asked = match targets.as_slice() {
        [target] => server.questions.read(&target.nsid, params)?,
        _ => Asked::default(),
    };
    let scope = match (
        feed.mixed && params.get("collection").is_none(),
        targets.first(),
    ) {
        (false, Some(target)) => ["feed:", name, ":", &target.short, &asked.scope].concat(),
        _ => ["feed:", name].concat(),
    };
    let reader = server.reader(feed, params)?;
    let (before, rung) = cursor::of(&scope, params)?;
    Ok(Wanted {
        feed,
        targets,
        reader,
        before,
        limit: params.limit()?,
        lens: asked.from(rung),
        scope,
        is_incomplete: params.is_incomplete,
    })
}

/// What a page of a feed shows: the target that is named; else all of a mixed feed, or the first.
pub(super) fn targets<'a>(
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
pub(super) fn page(server: &Server, wanted: &Wanted<'_>) -> Result<ShownPage, XrpcError> {
    if let Some(fanout) = &server.fanout
        && let Some(wish) = wish(server, wanted)
        && let Some(page) = fanout.page(&wish)?
    {
        server.meters.from_memory.increment(1);
        return Ok(page.cut(server.limits.response_bytes_max()));
    }
    let page = from_store(server, wanted)?;
    server.meters.from_store.increment(1);
    Ok(page)
}

/// What memory is asked; `None` if it cannot know.
fn wish<'a>(server: &Server, wanted: &'a Wanted<'_>) -> Option<Wish<'a>> {
    // Timelines hold no bodies: what is filtered by them comes from the store.
    if wanted.feed.end || !wanted.lens.is_plain() {
        return None;
    }
    let target = match wanted.targets.as_slice() {
        [target] => {
            let targets = &mut wanted.feed.targets.iter();
            Some(targets.position(|other| other == *target)?)
        }
        _ => None,
    };
    Some(Wish {
        feed: &wanted.feed.name,
        target,
        reader: &wanted.reader,
        before: wanted.before.as_ref(),
        limit: wanted.limit,
        now_us: server.clock.now_us(),
        is_incomplete: wanted.is_incomplete,
    })
}

fn from_store(server: &Server, wanted: &Wanted<'_>) -> Result<ShownPage, XrpcError> {
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
        lens: match wanted.targets.as_slice() {
            [target] => {
                let lens = wanted.lens.clone();
                server.focus(&target.nsid, lens, wanted.before.as_ref())?
            }
            _ => Lens::default(),
        },
        scan_max: server.page_scan_max,
    };
    Ok(server.store.feed(&query)?.into())
}
