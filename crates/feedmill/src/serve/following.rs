//! `{ns}.getFollowingFeed`: a merged feed, newest activity first.
//!
//! In:    a reader; a page by number, by cursor or by an activity's id; filters.
//! Out:   `{activities, totalCount, hasMore, nextCursor}`; the count on request.
//! Never: a page that leaves out activities of the same moment; a number and a
//!        cursor at once, which could mean two things.
//!
//! An activity's id is the place of its first record, so an id keeps its
//! meaning when its group is formed anew, and any id is a cursor.

use super::body;
use super::cursor;
use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server};
use crate::fanout::Wish;
use crate::store::merged::{
    Activity, ActivityFilter, ActivityPage, ActivityQuery, Merged, Named, Opened,
    UNION_RECORDS_BYTES_MAX,
};
use crate::store::plan::FeedPlan;
use crate::store::{FeedQuery, Lens, Position, Row};

/// Activities of a page where the caller does not say, and of the largest page.
pub(super) const ACTIVITIES: usize = 20;
pub(super) const ACTIVITIES_MAX: usize = 100;

/// Which page of whose feed.
#[derive(Debug)]
struct Wanted<'a> {
    feed: &'a FeedPlan,
    merged: &'a Merged,
    query: ActivityQuery,
    /// What the reader follows is not here, so it does not become active.
    is_incomplete: bool,
}

pub(super) fn get(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let wanted = wanted(server, params)?;
    let mut page = page(server, &wanted)?;
    let scope = scope(&wanted.feed.name);
    let mut out = String::from("{\"activities\":[");
    let count = page.activities.len();
    for (index, activity) in page.activities.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_activity(
            &mut out,
            wanted.feed,
            wanted.merged,
            (activity, &page.named),
        );
        if server.is_large(&out) && index + 1 < count {
            // The rest is on the next page.
            if wanted.query.skip > 0 {
                return Err(uncountable(&wanted.query));
            }
            page.next = Some(activity.first.position());
            break;
        }
    }
    out.push_str(&format!("],\"hasMore\":{}", page.next.is_some()));
    if let Some(total) = page.total {
        out.push_str(&format!(",\"totalCount\":{total}"));
    }
    if let Some(next) = &page.next {
        out.push_str(",\"nextCursor\":");
        body::push_string(&mut out, &cursor::write(&scope, next));
    }
    out.push('}');
    Ok(Answer::json(out))
}

/// What cursors and ids of a merged feed belong to.
pub(super) fn scope(feed: &str) -> String {
    format!("activity:{feed}")
}

/// The merged feed that a request names, or the first there is.
fn feed<'a>(
    server: &'a Server,
    name: Option<&str>,
) -> Result<(&'a FeedPlan, &'a Merged), XrpcError> {
    let mut merged = server
        .plan
        .feeds
        .iter()
        .filter_map(|feed| Some((feed, feed.merged.as_ref()?)));
    let known = || {
        let feeds = server
            .plan
            .feeds
            .iter()
            .filter(|feed| feed.merged.is_some());
        let names: Vec<&str> = feeds.map(|feed| feed.name.as_str()).collect();
        names.join(", ")
    };
    match name {
        None => merged
            .next()
            .ok_or_else(|| XrpcError::declared("UnknownFeed", "no feed here is merged")),
        Some(name) => merged.find(|(feed, _)| feed.name == name).ok_or_else(|| {
            XrpcError::declared(
                "UnknownFeed",
                format!("no merged feed {name:?}; there are: {}", known()),
            )
        }),
    }
}

fn wanted<'a>(server: &'a Server, params: &Params) -> Result<Wanted<'a>, XrpcError> {
    let (feed, merged) = feed(server, params.get("feed"))?;
    // A filter of another merged feed is none of this one.
    let every = &server.plan.feeds;
    let filters = every.iter().filter_map(|feed| feed.merged.as_ref());
    let filters = filters.flat_map(|merged| merged.shown.filter.keys());
    for name in filters.filter(|name| params.get(name).is_some()) {
        if !merged.shown.filter.contains_key(name) {
            let message = format!("feed {:?} has no filter {name:?}", feed.name);
            return Err(XrpcError::invalid(message));
        }
    }
    let limit = params.number("limit", ACTIVITIES, ACTIVITIES_MAX)?;
    let before = before(&feed.name, params)?;
    let page = params.number("page", 1, server.page_scan_max / limit)?;
    if before.is_some() && page > 1 {
        return Err(XrpcError::invalid("give a page or a cursor, not both"));
    }
    let count = params.flag("count")?;
    let cap = feed.targets.first().map(|target| target.max_items as usize);
    let query = FeedQuery {
        reader: server.reader(feed, params)?,
        lanes: vec![(merged.lane, cap.filter(|_| feed.end))],
        follows: feed.follows.clone(),
        hides: feed.hides.clone(),
        include_self: feed.include_self,
        before,
        limit,
        lens: Lens::default(),
        scan_max: server.page_scan_max,
    };
    Ok(Wanted {
        feed,
        merged,
        query: ActivityQuery {
            feed: query,
            filter: filter(merged, params)?,
            skip: (page - 1) * limit,
            count,
        },
        is_incomplete: params.is_incomplete,
    })
}

fn before(feed: &str, params: &Params) -> Result<Option<Position>, XrpcError> {
    let text = match (params.get("cursor"), params.get("beforeActivityId")) {
        (Some(_), Some(_)) => {
            return Err(XrpcError::invalid(
                "give cursor or beforeActivityId, not both",
            ));
        }
        (one, other) => one.or(other),
    };
    text.map(|text| cursor::read(&scope(feed), text))
        .transpose()
}

fn filter(merged: &Merged, params: &Params) -> Result<ActivityFilter, XrpcError> {
    // A list as XRPC writes it, or with commas, or both.
    let mut types = params
        .all("activityTypes")
        .flat_map(|text| text.split(','))
        .filter(|text| !text.is_empty())
        .peekable();
    let first = match types.peek() {
        None => None,
        Some(_) => {
            let mut first = Vec::new();
            for wanted in types {
                let of_type = merged.types.iter().filter(|(_, name)| *name == wanted);
                let before = first.len();
                first.extend(of_type.map(|(nsid, _)| nsid.clone()));
                if first.len() == before {
                    let mut known: Vec<&str> = merged.types.values().map(String::as_str).collect();
                    known.dedup();
                    return Err(XrpcError::invalid(format!(
                        "activityTypes takes a list of {}, not {wanted:?}",
                        known.join(", ")
                    )));
                }
            }
            Some(first)
        }
    };
    let readings = merged.readings.iter();
    // A form sends the name of an empty field too: that asks for nothing.
    let through = readings.filter_map(|(name, through)| {
        let value = params.get(name).filter(|value| !value.is_empty())?;
        Some((through.clone(), value.to_owned()))
    });
    Ok(ActivityFilter {
        first,
        through: through.collect(),
    })
}

/// The page from memory if memory can answer all of it, else from the store.
fn page(server: &Server, wanted: &Wanted<'_>) -> Result<ActivityPage, XrpcError> {
    let (from, page) = match from_memory(server, wanted)? {
        Some(page) => ("memory", page),
        None => ("store", server.store.activities(&wanted.query)?),
    };
    metrics::counter!(crate::metrics::PAGES, "from" => from).increment(1);
    let query = &wanted.query;
    let is_cut = page.next.is_some() && page.activities.len() < query.feed.limit;
    if is_cut && query.skip > 0 {
        return Err(uncountable(query));
    }
    Ok(page)
}

/// A page that ends early: who counts pages would take the rest of it for the next.
fn uncountable(query: &ActivityQuery) -> XrpcError {
    XrpcError::invalid(format!(
        "page {} lies beyond the {} entries that one request looks at, or is larger than an answer may be; read page 1 and go on by nextCursor",
        query.skip / query.feed.limit.max(1) + 1,
        query.feed.scan_max
    ))
}

fn from_memory(server: &Server, wanted: &Wanted<'_>) -> Result<Option<ActivityPage>, XrpcError> {
    let query = &wanted.query;
    let plain = query.filter.is_empty() && !query.count && query.skip == 0 && !wanted.feed.end;
    let Some(fanout) = server.fanout.as_ref().filter(|_| plain) else {
        return Ok(None);
    };
    let wish = Wish {
        feed: &wanted.feed.name,
        target: Some(0),
        reader: &query.feed.reader,
        before: query.feed.before.as_ref(),
        limit: query.feed.limit,
        now_us: server.clock.now_us(),
        is_incomplete: wanted.is_incomplete,
    };
    let Some(groups) = fanout.groups(&wish)? else {
        return Ok(None);
    };
    // `None` if a group changed while we looked: the store then answers at one instant.
    let page = server
        .store
        .activities_at(wanted.merged.lane, &groups.firsts)?;
    Ok(page.map(|page| {
        let is_cut = page.activities.len() < groups.firsts.len();
        let last = page.activities.last();
        let next = match is_cut {
            true => last.map(|last| last.first.position()),
            false => groups.next,
        };
        ActivityPage { next, ..page }
    }))
}

/// Appends an activity as clients know it.
pub(super) fn push_activity(
    out: &mut String,
    feed: &FeedPlan,
    merged: &Merged,
    (activity, named): (&Activity, &Named),
) {
    let first = &activity.first;
    out.push_str("{\"id\":");
    body::push_string(out, &cursor::write(&scope(&feed.name), &first.position()));
    let kind = merged.types.get(&first.collection);
    out.push_str(",\"activityType\":");
    body::push_string(out, kind.map_or("", String::as_str));
    out.push_str(",\"createdAt\":");
    body::push_string(out, &record::datetime::format_us(first.time_us));
    out.push_str(&format!(
        ",\"time_us\":{},\"user\":{{\"id\":",
        first.time_us
    ));
    body::push_string(out, &activity.author);
    out.push_str(",\"handle\":");
    match named.handles.get(&activity.author) {
        Some(handle) => body::push_string(out, handle),
        None => out.push_str("null"),
    }
    out.push('}');
    let subject = activity.subject(named);
    push_readings(out, merged, subject);
    let shown = &merged.shown;
    out.push_str(&format!(",\"{}\":", shown.subject));
    push_named(out, &activity.merge, subject);
    out.push_str(&format!(",\"{}\":[", shown.union));
    let begun = out.len();
    for (index, uri) in activity.union.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match named.records.get(uri) {
            Some(row) if out.len() - begun + row.bytes() > UNION_RECORDS_BYTES_MAX => {
                push_omitted(out, uri);
            }
            None if named.omitted.contains(uri) => push_omitted(out, uri),
            row => push_named(out, uri, row),
        }
    }
    out.push_str("],\"records\":[");
    for (index, uri) in activity.members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        body::push_string(out, uri);
    }
    out.push(']');
    if activity.is_cut {
        out.push_str(",\"hasMoreRecords\":true");
    }
    out.push('}');
}

/// What the activity can be filtered by, read where the filters read.
fn push_readings(out: &mut String, merged: &Merged, subject: Option<&Row>) {
    let opened = Opened::new(subject);
    for (name, through) in &merged.readings {
        out.push_str(&format!(",\"{name}\":"));
        match opened.read(through) {
            Some(text) => body::push_string(out, text),
            None => out.push_str("null"),
        }
    }
}

/// A record that is here and does not fit; it is read with `getRecord`.
fn push_omitted(out: &mut String, uri: &str) {
    out.push_str("{\"uri\":");
    body::push_string(out, uri);
    out.push_str(",\"exists\":true,\"omitted\":true,\"value\":null}");
}

/// A record by its URI; what is not here is shown as null with a flag.
fn push_named(out: &mut String, uri: &str, row: Option<&Row>) {
    match row {
        Some(row) => body::push_record(out, row),
        None => {
            out.push_str("{\"uri\":");
            body::push_string(out, uri);
            out.push_str(",\"exists\":false,\"value\":null}");
        }
    }
}
