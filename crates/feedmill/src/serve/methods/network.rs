//! Methods under an NSID: ours, and those by which a Bluesky client knows us.

use super::shape::{Field, Shape, always, or_null, sometimes};
use super::{
    Auth, BAD_CURSOR, Method, NOT_FOUND, Parameter, UNKNOWN_FEED, Verb, cursor, limit, needed,
    query, refusal,
};
use crate::config::Config;
use crate::config::collection::{Collection, Compared, Method as Served, Relation};
use crate::config::serve::Notify;
use crate::serve::filters::{camel, capital};
use crate::serve::generator::{DESCRIBE, POSTS, POSTS_MAX, SKELETON};
use crate::serve::graph::{DEPTH_DEFAULT, DEPTH_MAX, NODES_DEFAULT, NODES_MAX};
use crate::serve::hydration::CHILDREN_MAX;
use crate::serve::params::{LIMIT_DEFAULT, LIMIT_MAX};

/// All of them.
pub(super) fn methods(config: &Config) -> Vec<Method> {
    let ns = &config.namespace;
    let mut methods = Vec::new();
    for (short, collection) in &config.collections {
        for served in &collection.methods {
            methods.push(match served {
                Served::ListRecords => list_records(ns, short, collection),
                Served::GetRecord => get_record(ns, short, collection),
            });
        }
    }
    methods.push(get_feed(config));
    methods.extend(references(ns));
    methods.push(get_graph(ns));
    methods.push(get_profile(ns));
    methods.push(get_cursor(ns));
    methods.push(lexicons(ns));
    if config.serve.notify != Notify::Off {
        methods.push(notify(config));
    }
    for method in &mut methods {
        let name = method.nsid.as_deref().unwrap_or_default();
        let private = name
            .strip_prefix(ns.as_str())
            .and_then(|name| name.strip_prefix('.'))
            .is_some_and(|name| config.serve.private.iter().any(|private| private == name));
        if private && method.auth != Auth::Notifier {
            *method = method.clone().asked_by(Auth::Service);
        }
    }
    if config.service_did().is_some() {
        methods.extend(generator());
    }
    methods
}

/// A record as every method shows it, with what else may stand in it.
fn record(extra: Vec<Field>) -> Shape {
    let mut fields = vec![
        always("uri", Shape::format("at-uri")),
        or_null("cid", Shape::format("cid")),
        always("value", Shape::Unknown),
        always("did", Shape::format("did")),
        always("collection", Shape::format("nsid")),
        always("rkey", Shape::text()),
        always("time_us", Shape::integer()),
    ];
    fields.extend(extra);
    Shape::Object(fields)
}

fn profile() -> Shape {
    Shape::Object(vec![
        always("did", Shape::format("did")),
        or_null("handle", Shape::format("handle")),
        sometimes("uri", Shape::format("at-uri")),
        sometimes("collection", Shape::format("nsid")),
        sometimes("rkey", Shape::text()),
        sometimes("cid", Shape::format("cid")),
        sometimes("value", Shape::Unknown),
    ])
}

/// The groups in which children are counted; the nameless one is of them all.
fn groups(relation: &Relation) -> Vec<String> {
    let mut all = vec![String::new()];
    all.extend(relation.groups.keys().cloned());
    all
}

/// The shapes that a collection's records name.
fn named(method: Method, collection: &Collection) -> Method {
    let grouped = collection.relations.iter();
    let grouped = grouped.filter(|(_, relation)| !relation.groups.is_empty());
    grouped.fold(method, |method, (name, relation)| {
        let other = "other".to_owned();
        let groups = relation.groups.keys().chain([&other]);
        let lists = groups.map(|group| sometimes(group, Shape::list_of("related")));
        method.naming(&format!("{name}Groups"), Shape::Object(lists.collect()))
    })
}

/// What stands in a collection's records beside themselves.
fn extras(collection: &Collection) -> Vec<Field> {
    let mut fields = Vec::new();
    for (name, relation) in &collection.relations {
        for group in groups(relation) {
            let count = format!("{name}{}Count", capital(&group));
            fields.push(sometimes(&count, Shape::count()));
        }
        fields.push(match relation.groups.is_empty() {
            true => sometimes(name, Shape::list_of("related")),
            false => sometimes(name, Shape::Named(format!("{name}Groups"))),
        });
    }
    for name in collection.references.keys() {
        fields.push(sometimes(name, Shape::Named("related".into())));
    }
    fields
}

fn hydration(collection: &Collection) -> Vec<Parameter> {
    let mut found = Vec::new();
    for name in collection.relations.keys() {
        let shape = Shape::Integer {
            least: Some(1),
            most: Some(CHILDREN_MAX as i64),
            default: None,
        };
        let about = format!("the newest records of {name} with each record, so many at most");
        found.push(query(format!("hydrate{}", capital(name)), shape, about));
    }
    for name in collection.references.keys() {
        let about = format!("the record that {name} names, with each record");
        found.push(query(
            format!("hydrate{}", capital(name)),
            Shape::Boolean,
            about,
        ));
    }
    found.push(query(
        "profiles",
        Shape::Boolean,
        "the authors' profiles beside the records",
    ));
    found
}

fn filters(collection: &Collection) -> Vec<Parameter> {
    let mut found = Vec::new();
    for (path, queryable) in &collection.queryable {
        let name = camel(path);
        let shape = match queryable.compared {
            Some(Compared::Number) => Shape::integer(),
            Some(Compared::Boolean) => Shape::Boolean,
            Some(Compared::Time) => Shape::format("datetime"),
            Some(Compared::Text) | None => Shape::text(),
        };
        if queryable.ranged() {
            let about = |word: &str| format!("{path} is at {word} this");
            found.push(query(format!("{name}Min"), shape.clone(), about("least")));
            found.push(query(format!("{name}Max"), shape.clone(), about("most")));
        }
        found.push(query(name, shape, format!("{path} equals this")));
    }
    let mut sorts: Vec<String> = collection
        .queryable
        .keys()
        .map(|path| camel(path))
        .collect();
    for (name, relation) in &collection.relations {
        for group in groups(relation) {
            let count = format!("{name}{}Count", capital(&group));
            let about = format!("{count} is at least this");
            found.push(query(format!("{count}Min"), Shape::count(), about));
            sorts.push(count);
        }
    }
    if !sorts.is_empty() {
        let orders = vec!["asc".to_owned(), "desc".to_owned()];
        found.push(query(
            "sort",
            Shape::Choice(sorts),
            "another order than by time",
        ));
        found.push(query(
            "order",
            Shape::Choice(orders),
            "which end of it first",
        ));
    }
    if !collection.searchable.is_empty() {
        let about = format!("words that {} must hold", collection.searchable.join(", "));
        found.push(query("search", Shape::text(), about));
    }
    found
}

fn page() -> Vec<Field> {
    vec![
        always("records", Shape::list_of("record")),
        sometimes("cursor", Shape::text()),
        sometimes("profiles", Shape::list_of("profile")),
    ]
}

fn list_records(ns: &str, short: &str, collection: &Collection) -> Method {
    let actor = Shape::format("at-identifier");
    let nsid = format!("{ns}.{short}.listRecords");
    let method = Method::of(Verb::Get, nsid, "Records of a collection, newest first")
        .with([
            limit(LIMIT_MAX, LIMIT_DEFAULT),
            cursor(),
            query("actor", actor.clone(), "only this account's"),
            query("did", actor, "another name of actor"),
        ])
        .with(filters(collection))
        .with(hydration(collection))
        .answers(page())
        .naming("record", record(extras(collection)))
        .naming("profile", profile())
        .naming("related", record(Vec::new()))
        .refuses(&[BAD_CURSOR]);
    named(searched(method), collection)
}

/// A method that takes a search may refuse it.
fn searched(method: Method) -> Method {
    match method.parameters.iter().any(|one| one.name == "search") {
        true => method.refuses(&[refusal(400, "InvalidSearch", "nothing can be searched so")]),
        false => method,
    }
}

fn get_record(ns: &str, short: &str, collection: &Collection) -> Method {
    let nsid = format!("{ns}.{short}.getRecord");
    let mut fields = extras(collection);
    fields.push(sometimes("profiles", Shape::list_of("profile")));
    let mut method = Method::of(Verb::Get, nsid, "One record of a collection")
        .with([needed(
            "uri",
            Shape::format("at-uri"),
            "at://<account>/<collection>/<key>; a handle may stand for the account",
        )])
        .with(hydration(collection))
        .naming("profile", profile())
        .naming("related", record(Vec::new()))
        .refuses(&[NOT_FOUND]);
    method.output = super::Output::Json(record(fields));
    named(method, collection)
}

fn get_feed(config: &Config) -> Method {
    let names: Vec<String> = config.feeds.keys().cloned().collect();
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
    let about = format!("the feed: {}", names.join(", "));
    let method = Method::of(
        Verb::Get,
        format!("{}.getFeed", config.namespace),
        "A reader's feed, newest first",
    )
    .with([
        needed("feed", Shape::text(), &about),
        needed("actor", Shape::format("at-identifier"), "the reader"),
        query(
            "collection",
            Shape::text(),
            "which target of the feed, by short name or NSID; the first unless set, all of a mixed feed",
        ),
        limit(LIMIT_MAX, LIMIT_DEFAULT),
        cursor(),
    ])
    .with(parameters)
    .answers(page())
    .naming("record", record(fields))
    .naming("profile", profile())
    .naming("related", record(Vec::new()))
    .refuses(&[UNKNOWN_FEED, BAD_CURSOR]);
    let targets = config.feeds.values().flat_map(|feed| feed.targets());
    let mut shorts: Vec<String> = targets.map(|target| target.collection).collect();
    shorts.sort();
    shorts.dedup();
    let collections = shorts
        .iter()
        .filter_map(|short| config.collections.get(short));
    collections.fold(searched(method), named)
}

fn references(ns: &str) -> [Method; 2] {
    let uri = || {
        needed(
            "uri",
            Shape::text(),
            "an at:// URI, or what else is referred to",
        )
    };
    let found = Shape::Object(vec![
        always("path", Shape::text()),
        always("record", Shape::Named("record".into())),
    ]);
    let list = Method::of(
        Verb::Get,
        format!("{ns}.listReferences"),
        "Records that refer to something",
    )
    .with([
        uri(),
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
    .refuses(&[BAD_CURSOR]);
    let found = Shape::Object(vec![
        always("path", Shape::text()),
        always("uri", Shape::text()),
        always("exists", Shape::Boolean),
        or_null("record", Shape::Named("record".into())),
    ]);
    let get = Method::of(
        Verb::Get,
        format!("{ns}.getReferences"),
        "What a record refers to",
    )
    .with([uri(), limit(LIMIT_MAX, LIMIT_DEFAULT), cursor()])
    .answers(vec![
        always("uri", Shape::text()),
        always("references", Shape::list_of("reference")),
        sometimes("cursor", Shape::text()),
    ])
    .naming("reference", found)
    .naming("record", record(Vec::new()))
    .refuses(&[BAD_CURSOR, NOT_FOUND]);
    [list, get]
}

fn get_graph(ns: &str) -> Method {
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
        format!("{ns}.getGraph"),
        "A walk over references from one record",
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

fn get_profile(ns: &str) -> Method {
    Method::of(
        Verb::Get,
        format!("{ns}.getProfile"),
        "The profiles of an account",
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

fn get_cursor(ns: &str) -> Method {
    Method::of(
        Verb::Get,
        format!("{ns}.getCursor"),
        "How far the records served have come; empty before the first",
    )
    .answers(vec![
        sometimes("time_us", Shape::integer()),
        sometimes("date", Shape::format("datetime")),
        sometimes("seconds_ago", Shape::count()),
    ])
}

fn lexicons(ns: &str) -> Method {
    Method::of(
        Verb::Get,
        format!("{ns}.lexicons"),
        "The lexicons of our methods and of the records we keep",
    )
    .answers(vec![always(
        "lexicons",
        Shape::List(Box::new(Shape::Unknown)),
    )])
}

fn notify(config: &Config) -> Method {
    let auth = match config.serve.notify {
        Notify::Token => Auth::Notifier,
        _ => Auth::Open,
    };
    let uri = || Shape::format("at-uri");
    Method::of(
        Verb::Post,
        format!("{}.notifyOfUpdate", config.namespace),
        "Records that were just written or deleted, to be fetched from their own host now",
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
    .asked_by(auth)
}

/// Methods whose lexicons are Bluesky's.
fn generator() -> [Method; 2] {
    let foreign = |method: Method| Method {
        ours: false,
        ..method
    };
    let skeleton = Method::of(
        Verb::Get,
        SKELETON.to_owned(),
        "A page of a feed as post URIs, for the reader whose token is shown",
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
        Shape::Object(vec![always("post", Shape::format("at-uri"))]),
    )
    .refuses(&[UNKNOWN_FEED, BAD_CURSOR])
    .asked_by(Auth::ServiceMaybe);
    let describe = Method::of(
        Verb::Get,
        DESCRIBE.to_owned(),
        "Who we are and which feeds we have",
    )
    .answers(vec![
        always("did", Shape::format("did")),
        always("feeds", Shape::list_of("feed")),
    ])
    .naming(
        "feed",
        Shape::Object(vec![always("uri", Shape::format("at-uri"))]),
    )
    .refuses(&[refusal(501, "MethodNotImplemented", "no feed is published")]);
    [foreign(skeleton), foreign(describe)]
}
