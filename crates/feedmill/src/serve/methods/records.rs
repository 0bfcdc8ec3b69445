//! Methods that answer with the records of a collection, and what a record
//! looks like wherever one is shown.

use super::handler::Handler;
use super::shape::{Field, Shape, always, or_null, sometimes};
use super::{
    BAD_CURSOR, Method, NOT_FOUND, Output, Parameter, Verb, cursor, in_header, limit, needed,
    query, refusal,
};
use crate::config::Config;
use crate::config::collection::{Collection, Compared, Relation};
use crate::serve::filters::{camel, capital};
use crate::serve::hydration::CHILDREN_MAX;
use crate::serve::params::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::serve::{labelers, records};

/// A record as every method shows it, with what else may stand in it.
pub(super) fn record(extra: Vec<Field>) -> Shape {
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

pub(super) fn profile() -> Shape {
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
pub(super) fn named(method: Method, collection: &Collection) -> Method {
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
pub(super) fn extras(collection: &Collection) -> Vec<Field> {
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

pub(super) fn hydration(collection: &Collection) -> Vec<Parameter> {
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

pub(super) fn filters(collection: &Collection) -> Vec<Parameter> {
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

pub(super) fn page() -> Vec<Field> {
    vec![
        always("records", Shape::list_of("record")),
        sometimes("cursor", Shape::text()),
        sometimes("profiles", Shape::list_of("profile")),
    ]
}

pub(super) fn list_records(nsid: String, collection: &Collection) -> Method {
    let actor = Shape::format("at-identifier");
    let handler = Handler::ReadOf(collection.collection.clone(), records::list);
    let about = "Records of a collection, newest first";
    let method = Method::of(Verb::Get, nsid, about, handler)
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
pub(super) fn searched(method: Method) -> Method {
    match method.parameters.iter().any(|one| one.name == "search") {
        true => method.refuses(&[refusal(400, "InvalidSearch", "nothing can be searched so")]),
        false => method,
    }
}

pub(super) fn get_record(nsid: String, collection: &Collection) -> Method {
    let handler = Handler::ReadOf(collection.collection.clone(), records::get);
    let mut fields = extras(collection);
    fields.push(sometimes("profiles", Shape::list_of("profile")));
    let mut method = Method::of(Verb::Get, nsid, "One record of a collection", handler)
        .with([needed(
            "uri",
            Shape::format("at-uri"),
            "at://<account>/<collection>/<key>; a handle may stand for the account",
        )])
        .with(hydration(collection))
        .naming("profile", profile())
        .naming("related", record(Vec::new()))
        .refuses(&[NOT_FOUND]);
    method.output = Output::Json(record(fields));
    named(method, collection)
}

/// The same with labels, where labelers are listened to.
pub(super) fn labelled(config: &Config, mut method: Method) -> Method {
    if config.labels.sources.is_empty() {
        return method;
    }
    let labels = || sometimes("labels", Shape::list_of("label"));
    let is_shown = |name: &str| ["record", "profile"].contains(&name);
    for (_, shape) in method.named.iter_mut().filter(|(name, _)| is_shown(name)) {
        if let Shape::Object(fields) = shape {
            fields.push(labels());
        }
    }
    // One record alone is the answer itself.
    if let Output::Json(Shape::Object(fields)) = &mut method.output
        && fields.iter().any(|field| field.name == "rkey")
    {
        fields.push(labels());
    }
    let label = vec![
        always("src", Shape::format("did")),
        always("uri", Shape::text()),
        always("val", Shape::text()),
        always("cts", Shape::format("datetime")),
        sometimes("cid", Shape::format("cid")),
        sometimes("exp", Shape::format("datetime")),
    ];
    let about = "whose labels are shown, with commas; the usual ones unless set";
    method.naming("label", Shape::Object(label)).with([
        query(labelers::PARAMETER, Shape::text(), about),
        in_header(labelers::ACCEPT, about),
    ])
}
