//! Methods under an NSID: ours, and those by which a Bluesky client knows us.

use super::feeds::{get_feed, get_following_feed, guarding, subscribe_feed};
use super::handler::Handler;
use super::records::{get_record, labelled, list_records, profile, record};
use super::shape::{Shape, always, or_null, sometimes};
use super::{
    Auth, BAD_CURSOR, Method, NOT_FOUND, UNKNOWN_FEED, Verb, cursor, limit, needed, query,
};
use crate::config::Config;
use crate::config::collection::Method as OfCollection;
use crate::config::method::{self, Method as OfService};
use crate::config::serve::Notify;
use crate::serve::generator::{self, DESCRIBE, POSTS, POSTS_MAX, SKELETON};
use crate::serve::graph::{self, DEPTH_DEFAULT, DEPTH_MAX, NODES_DEFAULT, NODES_MAX};
use crate::serve::params::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::serve::{health, profile as profiles, references, service};

/// All of them.
pub(super) fn methods(config: &Config) -> Vec<Method> {
    let ns = &config.namespace;
    let mut methods = Vec::new();
    for (short, collection) in &config.collections {
        for named in &collection.methods {
            let name = format!("{short}.{}", named.name());
            let nsid = format!("{ns}.{name}");
            let method = match named {
                OfCollection::ListRecords => list_records(nsid, collection),
                OfCollection::GetRecord => get_record(nsid, collection),
            };
            let method = labelled(config, method);
            methods.push(guarded(config, &name, collection.direct, method));
        }
    }
    for named in method::ALL {
        let nsid = format!("{ns}.{}", named.name());
        let method = of_service(config, named, nsid);
        methods.extend(method.map(|method| guarded(config, named.name(), false, method)));
    }
    if config.service_did().is_some() {
        methods.extend(bluesky());
    }
    methods
}

/// The row of a method of the service; `None` where a configuration does not have it.
fn of_service(config: &Config, method: OfService, nsid: String) -> Option<Method> {
    Some(match method {
        OfService::GetFeed => labelled(config, get_feed(config, nsid)),
        OfService::GetFollowingFeed => get_following_feed(config, nsid)?,
        OfService::SubscribeFeed => subscribe_feed(config, nsid)?,
        OfService::ListReferences => list_references(nsid).refuses(&guarding(config)),
        OfService::GetReferences => get_references(nsid).refuses(&guarding(config)),
        OfService::GetGraph => get_graph(nsid).refuses(&guarding(config)),
        OfService::GetProfile => labelled(config, get_profile(nsid)),
        OfService::GetCursor => get_cursor(nsid),
        OfService::Lexicons => lexicons(nsid),
        OfService::NotifyOfUpdate => notify(config, nsid)?,
    })
}

/// The same for who may ask: an account alone where it is private, the app and its readers where it
/// is direct, anybody elsewhere. Where we have a DID, a host that asks for its account may say so, and
/// is told how far we have read it.
fn guarded(config: &Config, name: &str, direct: bool, method: Method) -> Method {
    let private = config.serve.private.iter().any(|private| private == name);
    let signed = config.service_did().is_some() && method.verb == Verb::Get;
    match (private, method.auth) {
        (true, _) => method.asked_by(Auth::Service),
        (false, Auth::Open) if direct && !config.direct.open => method.asked_by(Auth::AppOrReader),
        (false, Auth::Open) if signed => method.asked_by(Auth::ServiceMaybe),
        _ => method,
    }
}

fn referred() -> super::Parameter {
    needed(
        "uri",
        Shape::text(),
        "an at:// URI, or what else is referred to",
    )
}

fn list_references(nsid: String) -> Method {
    let found = Shape::Object(vec![
        always("path", Shape::text()),
        always("record", Shape::Named("record".into())),
    ]);
    Method::of(
        Verb::Get,
        nsid,
        "Records that refer to something",
        Handler::Read(references::list),
    )
    .with([
        referred(),
        query("path", Shape::text(), "only by this field"),
        limit(LIMIT_MAX, LIMIT_DEFAULT),
        cursor(),
    ])
    .answers(vec![
        always("references", Shape::list_of("reference")),
        sometimes("cursor", Shape::text()),
    ])
    .naming("reference", found)
    .naming("record", record(Vec::new()))
    .refuses(&[BAD_CURSOR])
}

fn get_references(nsid: String) -> Method {
    let found = Shape::Object(vec![
        always("path", Shape::text()),
        always("uri", Shape::text()),
        always("exists", Shape::Boolean),
        or_null("record", Shape::Named("record".into())),
    ]);
    Method::of(
        Verb::Get,
        nsid,
        "What a record refers to",
        Handler::Read(references::get),
    )
    .with([referred(), limit(LIMIT_MAX, LIMIT_DEFAULT), cursor()])
    .answers(vec![
        always("uri", Shape::text()),
        always("references", Shape::list_of("reference")),
        sometimes("cursor", Shape::text()),
    ])
    .naming("reference", found)
    .naming("record", record(Vec::new()))
    .refuses(&[BAD_CURSOR, NOT_FOUND])
}

fn get_graph(nsid: String) -> Method {
    let number = |name: &str, most: usize, default: usize, about: &str| {
        let shape = Shape::Integer {
            least: Some(1),
            most: Some(most as i64),
            default: Some(default as i64),
        };
        query(name, shape, about)
    };
    let directions = ["out", "in", "both"].map(str::to_owned).to_vec();
    let node = vec![
        always("uri", Shape::text()),
        always("depth", Shape::count()),
        always("exists", Shape::Boolean),
    ];
    let edge = ["from", "path", "to"].map(|name| always(name, Shape::text()));
    Method::of(
        Verb::Get,
        nsid,
        "A walk over references from one record",
        Handler::Read(graph::get),
    )
    .with([
        needed("uri", Shape::text(), "where the walk begins"),
        query(
            "direction",
            Shape::Choice(directions),
            "along references, against them, or both",
        ),
        query("path", Shape::text(), "only by this field"),
        number(
            "depth",
            DEPTH_MAX,
            DEPTH_DEFAULT,
            "steps from the beginning",
        ),
        number("limit", NODES_MAX, NODES_DEFAULT, "nodes of the answer"),
    ])
    .answers(vec![
        always("uri", Shape::text()),
        always("nodes", Shape::list_of("node")),
        always("edges", Shape::list_of("edge")),
        always("truncated", Shape::Boolean),
    ])
    .naming("node", Shape::Object(node))
    .naming("edge", Shape::Object(edge.to_vec()))
}

fn get_profile(nsid: String) -> Method {
    Method::of(
        Verb::Get,
        nsid,
        "The profiles of an account",
        Handler::Read(profiles::get),
    )
    .with([needed(
        "actor",
        Shape::format("at-identifier"),
        "the account",
    )])
    .answers(vec![always("profiles", Shape::list_of("profile"))])
    .naming("profile", profile())
    .refuses(&[NOT_FOUND])
}

fn get_cursor(nsid: String) -> Method {
    Method::of(
        Verb::Get,
        nsid,
        "How far the records served have come; empty before the first",
        Handler::Read(health::cursor),
    )
    .answers(vec![
        sometimes("time_us", Shape::integer()),
        sometimes("date", Shape::format("datetime")),
        sometimes("seconds_ago", Shape::count()),
    ])
}

fn lexicons(nsid: String) -> Method {
    Method::of(
        Verb::Get,
        nsid,
        "The lexicons of our methods and of the records we keep",
        Handler::Read(service::lexicons),
    )
    .answers(vec![always(
        "lexicons",
        Shape::List(Box::new(Shape::Unknown)),
    )])
}

fn notify(config: &Config, nsid: String) -> Option<Method> {
    let auth = match config.serve.notify {
        Notify::Off => return None,
        Notify::Token => Auth::Notifier,
        Notify::Open => Auth::Open,
    };
    let uri = || Shape::format("at-uri");
    let method = Method::of(
        Verb::Post,
        nsid,
        "Records that were just written or deleted, to be fetched from their own host now",
        Handler::Notify,
    )
    .takes(Shape::Object(vec![
        sometimes("uri", uri()),
        sometimes("uris", Shape::List(Box::new(uri()))),
    ]))
    .answers(vec![
        always("indexed", Shape::count()),
        always("deleted", Shape::count()),
        sometimes("errors", Shape::List(Box::new(Shape::text()))),
    ])
    .asked_by(auth);
    Some(method)
}

/// Methods whose lexicons are Bluesky's.
fn bluesky() -> [Method; 2] {
    let foreign = |method: Method| Method {
        ours: false,
        ..method
    };
    let skeleton = Method::of(
        Verb::Get,
        SKELETON.to_owned(),
        "A page of a feed as post URIs, for the reader whose token is shown",
        Handler::Skeleton,
    )
    .with([
        needed("feed", Shape::format("at-uri"), "the published feed"),
        limit(POSTS_MAX, POSTS),
        cursor(),
    ])
    .answers(vec![
        always("feed", Shape::list_of("post")),
        sometimes("cursor", Shape::text()),
    ])
    .naming(
        "post",
        Shape::Object(vec![
            always("post", Shape::format("at-uri")),
            sometimes("reason", Shape::Unknown),
        ]),
    )
    .refuses(&[UNKNOWN_FEED, BAD_CURSOR])
    .asked_by(Auth::ServiceMaybe);
    let describe = Method::of(
        Verb::Get,
        DESCRIBE.to_owned(),
        "Who we are and which feeds we have",
        Handler::Read(generator::describe),
    )
    .answers(vec![
        always("did", Shape::format("did")),
        always("feeds", Shape::list_of("feed")),
    ])
    .naming(
        "feed",
        Shape::Object(vec![always("uri", Shape::format("at-uri"))]),
    );
    [foreign(skeleton), foreign(describe)]
}
