//! Methods that answer with feeds: pages of records, pages of activities, and
//! a feed as it changes.

use super::handler::Handler;
use super::records::{extras, filters, hydration, named, page, profile, record, searched};
use super::shape::{Field, Shape, always, or_null, perhaps, sometimes};
use super::{
    BAD_CURSOR, DIRECT_TOKEN, Method, Output, Parameter, Refusal, UNKNOWN_FEED, Verb, cursor,
    limit, needed, query, refusal,
};
use crate::config::Config;
use crate::config::merge::Shown;
use crate::serve::feed;
use crate::serve::following::{self, ACTIVITIES, ACTIVITIES_MAX};
use crate::serve::params::{LIMIT_DEFAULT, LIMIT_MAX};

/// Which feed of whom.
fn named_feed(config: &Config) -> [Parameter; 2] {
    let names: Vec<&str> = config.feeds.keys().map(String::as_str).collect();
    let about = format!("the feed: {}", names.join(", "));
    [needed("feed", Shape::text(), &about), reader(config)]
}

/// How what is written directly is refused, where there is such.
pub(super) fn guarding(config: &Config) -> Vec<Refusal> {
    match config.has_direct() && !config.direct.open {
        true => DIRECT_TOKEN.to_vec(),
        false => Vec::new(),
    }
}

/// A word of a reader whose follows are not here yet.
fn waiting() -> Field {
    let words = ["running", "later", "failed"].map(str::to_owned).to_vec();
    sometimes("backfill", Shape::Choice(words))
}

fn reader(config: &Config) -> Parameter {
    if !config.has_direct() {
        return needed("actor", Shape::format("at-identifier"), "the reader");
    }
    let about = "the reader: a DID, a handle or an app's own id; whose token is shown unless set";
    query("actor", Shape::text(), about)
}

/// `getFeed`: it takes what any of its targets can be asked.
pub(super) fn get_feed(config: &Config, nsid: String) -> Method {
    let mut parameters: Vec<Parameter> = Vec::new();
    let mut fields: Vec<Field> = Vec::new();
    let targets = config.feeds.values().flat_map(|feed| feed.targets());
    for collection in targets.filter_map(|target| config.collections.get(&target.collection)) {
        for parameter in filters(collection).into_iter().chain(hydration(collection)) {
            if !parameters.iter().any(|known| known.name == parameter.name) {
                parameters.push(parameter);
            }
        }
        for field in extras(collection) {
            if !fields.iter().any(|known| known.name == field.name) {
                fields.push(field);
            }
        }
    }
    let method = Method::of(
        Verb::Get,
        nsid,
        "A reader's feed, newest first",
        Handler::Feed {
            read: feed::get,
            at_once: Some(feed::get_at_once),
        },
    )
    .with(named_feed(config))
    .with([
        query(
            "collection",
            Shape::text(),
            "which target of the feed, by short name or NSID; the first unless set, all of a mixed feed",
        ),
        limit(LIMIT_MAX, LIMIT_DEFAULT),
        cursor(),
    ])
    .with(parameters)
    .answers(page().into_iter().chain([waiting()]).collect())
    .naming("record", record(fields))
    .naming("profile", profile())
    .naming("related", record(Vec::new()))
    .refuses(&[UNKNOWN_FEED, BAD_CURSOR])
    .refuses(&guarding(config));
    let targets = config.feeds.values().flat_map(|feed| feed.targets());
    let mut shorts: Vec<String> = targets.map(|target| target.collection).collect();
    shorts.sort();
    shorts.dedup();
    let collections = shorts
        .iter()
        .filter_map(|short| config.collections.get(short));
    collections.fold(searched(method), named)
}

/// How the merged feeds of a configuration show their activities.
fn merged(config: &Config) -> Vec<Shown> {
    let feeds = config.feeds.values();
    feeds
        .filter(|feed| feed.window_us().is_some())
        .map(|feed| feed.activity.clone().unwrap_or_default())
        .collect()
}

/// `getFollowingFeed`; `None` where no feed is merged.
pub(super) fn get_following_feed(config: &Config, nsid: String) -> Option<Method> {
    let shown = merged(config);
    if shown.is_empty() {
        return None;
    }
    let mut filters: Vec<&String> = shown.iter().flat_map(|one| one.filter.keys()).collect();
    filters.sort();
    filters.dedup();
    let filters = filters.into_iter().map(|name| {
        let about = format!("only activities whose {name} is this");
        query(name.as_str(), Shape::text(), about)
    });
    let handler = Handler::Feed {
        read: following::get,
        at_once: None,
    };
    let about = "A reader's merged feed, newest activity first";
    let whole = |name: &str, about: &str| {
        let shape = Shape::Integer {
            least: Some(1),
            most: None,
            default: Some(1),
        };
        query(name, shape, about)
    };
    let method = Method::of(Verb::Get, nsid, about, handler)
        .with([
            query(
                "feed",
                Shape::text(),
                "the merged feed; the first unless set",
            ),
            reader(config),
            limit(ACTIVITIES_MAX, ACTIVITIES),
            cursor(),
            whole("page", "the page by its number, instead of a cursor"),
            query(
                "beforeActivityId",
                Shape::text(),
                "the id of an activity, instead of a cursor",
            ),
            query(
                "activityTypes",
                Shape::List(Box::new(Shape::text())),
                "only activities of these types",
            ),
            query("count", Shape::Boolean, "count them all"),
        ])
        .with(filters)
        .answers(vec![
            always("activities", Shape::list_of("activity")),
            always("hasMore", Shape::Boolean),
            sometimes("totalCount", Shape::count()),
            sometimes("nextCursor", Shape::text()),
            waiting(),
        ])
        .refuses(&[UNKNOWN_FEED, BAD_CURSOR])
        .refuses(&guarding(config));
    Some(showing_activities(method, &shown))
}

/// The shapes of an activity.
fn showing_activities(method: Method, shown: &[Shown]) -> Method {
    let user = vec![
        always("id", Shape::format("did")),
        or_null("handle", Shape::format("handle")),
    ];
    let mut fields = vec![
        always("id", Shape::text()),
        always("activityType", Shape::text()),
        always("createdAt", Shape::format("datetime")),
        always("time_us", Shape::integer()),
        always("user", Shape::Named("user".into())),
        always("records", Shape::List(Box::new(Shape::format("at-uri")))),
        sometimes("hasMoreRecords", Shape::Boolean),
    ];
    // Each merged feed has names of its own, so any of them may be absent.
    let mut own: Vec<Field> = Vec::new();
    for one in shown {
        let read = one.filter.keys().map(|name| perhaps(name, Shape::text()));
        own.extend(read);
        own.push(sometimes(&one.subject, Shape::Named("named".into())));
        own.push(sometimes(&one.union, Shape::list_of("named")));
    }
    for field in own {
        if !fields.iter().any(|known| known.name == field.name) {
            fields.push(field);
        }
    }
    // A record that is not here is shown by its URI and that it does not exist.
    let referred = vec![
        always("uri", Shape::text()),
        perhaps("cid", Shape::format("cid")),
        or_null("value", Shape::Unknown),
        sometimes("did", Shape::format("did")),
        sometimes("collection", Shape::format("nsid")),
        sometimes("rkey", Shape::text()),
        sometimes("time_us", Shape::integer()),
        sometimes("exists", Shape::Boolean),
        sometimes("omitted", Shape::Boolean),
    ];
    method
        .naming("activity", Shape::Object(fields))
        .naming("user", Shape::Object(user))
        .naming("named", Shape::Object(referred))
}

/// `subscribeFeed`; `None` where there is no feed.
pub(super) fn subscribe_feed(config: &Config, nsid: String) -> Option<Method> {
    if config.feeds.is_empty() {
        return None;
    }
    let message = |fields: Vec<Field>| {
        let mut all = vec![
            always("type", Shape::text()),
            always("cursor", Shape::text()),
        ];
        all.extend(fields);
        Shape::Object(all)
    };
    let word = || {
        message(vec![
            always("name", Shape::text()),
            always("message", Shape::text()),
        ])
    };
    let shown = merged(config);
    let mut entry = vec![sometimes("record", Shape::Named("record".into()))];
    if !shown.is_empty() {
        entry.push(sometimes("activity", Shape::Named("activity".into())));
    }
    let about = "A reader's feed as it changes: JSON messages over WebSocket, or as server-sent events with Accept: text/event-stream";
    let method = Method {
        output: Output::Stream(vec!["start", "entry", "removal", "changed", "info", "end"]),
        ..Method::of(Verb::Get, nsid, about, Handler::Subscribe)
    }
    .with(named_feed(config))
    .with([query(
        "cursor",
        Shape::text(),
        "of the last message had; none begins now",
    )])
    .naming("start", message(Vec::new()))
    .naming("entry", message(entry))
    .naming(
        "removal",
        message(vec![
            sometimes("uri", Shape::format("at-uri")),
            sometimes("id", Shape::text()),
        ]),
    )
    .naming("changed", message(Vec::new()))
    .naming("info", word())
    .naming("end", word())
    .naming("record", record(Vec::new()))
    .refuses(&[
        UNKNOWN_FEED,
        BAD_CURSOR,
        refusal(400, "FutureCursor", "the cursor lies ahead of everything"),
    ])
    .refuses(&guarding(config));
    Some(match shown.is_empty() {
        true => method,
        false => showing_activities(method, &shown),
    })
}
