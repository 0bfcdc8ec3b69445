//! Methods under a plain path: health, the operator's, and the direct API.

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter, on};

use super::shape::{Field, Shape, always, or_null, sometimes};
use super::{
    Auth, BAD_CURSOR, Method, NOT_FOUND, Output, Parameter, UNKNOWN_FEED, Verb, cursor, in_header,
    in_path, limit, needed, query, refusal,
};
use crate::config::Config;
use crate::serve::direct::{self, ACTOR_HEADER};
use crate::serve::params::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::serve::{self, Server, admin};

/// All of them.
pub(super) fn methods(config: &Config) -> Vec<Method> {
    let mut methods = vec![
        Method {
            output: Output::Other("text/html; charset=utf-8"),
            ..Method::at(Verb::Get, "/", "The operator's page", |verb| {
                on(verb, || async { serve::page::page() })
            })
        },
        health("/health"),
        health("/xrpc/_health"),
        ready(),
        status(),
        readers(),
        Method {
            output: Output::Other("text/plain; version=0.0.4"),
            ..Method::at(Verb::Get, "/metrics", "Numbers for Prometheus", |verb| {
                on(verb, serve::prometheus)
            })
        },
        Method::at(Verb::Get, "/openapi.json", "This description", |verb| {
            on(verb, serve::service::openapi)
        })
        .answers_anything(),
        Method::at(
            Verb::Get,
            "/.well-known/did.json",
            "Our DID document, if our DID is one whose document stands here",
            |verb| on(verb, serve::did_document),
        )
        .answers_anything()
        .refuses(&[NOT_FOUND]),
    ];
    methods.extend(service(config));
    methods.extend(operator());
    if config.has_direct() {
        methods.extend(direct());
    }
    methods
}

fn health(path: &str) -> Method {
    Method::at(Verb::Get, path, "The process answers", |verb| {
        on(verb, serve::health)
    })
    .answers(vec![
        always("version", Shape::text()),
        always("status", Shape::text()),
    ])
}

fn ready() -> Method {
    Method::at(
        Verb::Get,
        "/ready",
        "Whether the process is ready; 503 with every reason if it is not",
        |verb| on(verb, serve::ready),
    )
    .answers(vec![
        always("ready", Shape::Boolean),
        always("problems", Shape::List(Box::new(Shape::Unknown))),
    ])
}

fn status() -> Method {
    Method::at(
        Verb::Get,
        "/status",
        "What is wrong, counts, lag and backlog",
        |verb| on(verb, serve::status),
    )
    .answers(vec![
        always("status", Shape::text()),
        always("ready", Shape::Boolean),
        always("problems", Shape::List(Box::new(Shape::Unknown))),
        sometimes("total_records", Shape::count()),
        sometimes("collections", Shape::list_of("collection")),
        always("ingestion", Shape::Unknown),
        sometimes("backfill", Shape::Unknown),
    ])
    .naming(
        "collection",
        Shape::Object(vec![
            always("collection", Shape::format("nsid")),
            always("records", Shape::count()),
        ]),
    )
}

fn readers() -> Method {
    Method::at(
        Verb::Get,
        "/page/readers",
        "Some readers of each feed, for the page",
        |verb| on(verb, serve::readers),
    )
    .answers(vec![
        always("namespace", Shape::text()),
        always("feeds", Shape::list_of("feed")),
    ])
    .naming(
        "feed",
        Shape::Object(vec![
            always("feed", Shape::text()),
            always("readers", Shape::List(Box::new(Shape::text()))),
            sometimes("token", Shape::text()),
            sometimes("subject", Shape::text()),
            sometimes("union", Shape::text()),
        ]),
    )
}

/// How clients of the public service find it.
fn service(config: &Config) -> Vec<Method> {
    if config.serve.public_url.is_none() {
        return Vec::new();
    }
    let manifest = Method::at(
        Verb::Get,
        "/.well-known/contrail",
        "The service manifest",
        |verb| on(verb, serve::service::well_known),
    )
    .answers(vec![
        always("format", Shape::text()),
        always("version", Shape::integer()),
        always("endpoint", Shape::text()),
        always("namespace", Shape::text()),
        always("lexicons", Shape::Unknown),
        always("status", Shape::Unknown),
        always("collections", Shape::List(Box::new(Shape::Unknown))),
        always("methods", Shape::List(Box::new(Shape::text()))),
        or_null("serviceAuth", Shape::Unknown),
    ]);
    let bundle = || vec![always("lexicons", Shape::List(Box::new(Shape::Unknown)))];
    let digest = in_path("digest", Shape::text(), "as the manifest names it");
    vec![
        manifest,
        Method::at(
            Verb::Get,
            "/lexicons",
            "All lexicons, in the canonical form",
            |verb| on(verb, serve::service::all_lexicons),
        )
        .answers(bundle()),
        Method::at(
            Verb::Get,
            "/lexicons/{digest}",
            "The same, under its digest",
            |verb| on(verb, serve::service::lexicons_of_digest),
        )
        .with([digest])
        .answers(bundle())
        .refuses(&[NOT_FOUND]),
    ]
}

fn letter_filters() -> Vec<Parameter> {
    let text = |name: &str, about: &str| query(name, Shape::text(), about);
    let moment = |name: &str, about: &str| query(name, Shape::format("datetime"), about);
    vec![
        text("collection", "of this collection"),
        text("stage", "that stopped at this stage"),
        text("did", "of this account"),
        moment("since", "not older than this"),
        moment("until", "not newer than this"),
    ]
}

/// What only the operator may ask.
fn operator() -> Vec<Method> {
    let mut methods = dead_letters();
    methods.extend(replay_job());
    methods.push(
        Method::at(
            Verb::Get,
            "/admin/explain",
            "Why a record is, or is not, in a reader's feeds",
            |verb| on(verb, admin::explain),
        )
        .with([
            needed(
                "reader",
                Shape::text(),
                "the reader: a DID, a handle or an app's own id",
            ),
            needed(
                "uri",
                Shape::text(),
                "the record: its URI, or an app's own id for it",
            ),
            query("feed", Shape::text(), "only this feed"),
        ])
        .answers(vec![
            always("reader", Shape::format("did")),
            always("uri", Shape::text()),
            always("feeds", Shape::List(Box::new(Shape::Unknown))),
        ])
        .refuses(&[UNKNOWN_FEED]),
    );
    let guarded = |method: Method| method.asked_by(Auth::Operator);
    methods.into_iter().map(guarded).collect()
}

fn dead_letters() -> Vec<Method> {
    let id = || in_path("id", Shape::integer(), "the number of a dead letter");
    let refused = refusal(400, "NotReplayable", "the letter holds no record");
    vec![
        Method::at(
            Verb::Get,
            "/admin/dlq",
            "Dead letters, newest first",
            |verb| on(verb, admin::list),
        )
        .with(letter_filters())
        .with([limit(LIMIT_MAX, LIMIT_DEFAULT), cursor()])
        .answers(vec![
            always("entries", Shape::List(Box::new(Shape::Unknown))),
            always("total", Shape::count()),
            sometimes("cursor", Shape::text()),
        ])
        .refuses(&[BAD_CURSOR]),
        Method::at(Verb::Get, "/admin/dlq/{id}", "One dead letter", |verb| {
            on(verb, admin::show)
        })
        .answers_anything()
        .with([id()])
        .refuses(&[NOT_FOUND]),
        Method::at(
            Verb::Delete,
            "/admin/dlq/{id}",
            "Forgets a dead letter",
            |verb| on(verb, admin::discard),
        )
        .with([id()])
        .answers(vec![always("deleted", Shape::Boolean)])
        .refuses(&[NOT_FOUND]),
        Method::at(
            Verb::Post,
            "/admin/dlq/{id}/replay",
            "Tries a dead letter's record again",
            |verb| on(verb, admin::replay),
        )
        .with([id()])
        .answers(vec![
            always("id", Shape::text()),
            always("result", Shape::text()),
            sometimes("error", Shape::Unknown),
        ])
        .refuses(&[NOT_FOUND, refused]),
    ]
}

/// The replay of many dead letters.
fn replay_job() -> Vec<Method> {
    const PATH: &str = "/admin/dlq/replay-all";
    let running = refusal(409, "Conflict", "a replay is running");
    let shown = |method: Method| {
        method.answers(vec![
            always("state", Shape::text()),
            always("total", Shape::count()),
            always("done", Shape::count()),
            always("settled", Shape::count()),
            always("parked", Shape::count()),
            always("buried", Shape::count()),
            always("skipped", Shape::count()),
            always("startedAt", Shape::format("datetime")),
            sometimes("endedAt", Shape::format("datetime")),
            sometimes("message", Shape::text()),
        ])
    };
    let begin = "Begins to try all dead letters that match again";
    let watch = "How far the replay of many dead letters is";
    let stop = "Stops the replay of many dead letters";
    vec![
        shown(Method::at(Verb::Post, PATH, begin, |verb| {
            on(verb, admin::job::begin)
        }))
        .with(letter_filters())
        .refuses(&[running]),
        shown(Method::at(Verb::Get, PATH, watch, |verb| {
            on(verb, admin::job::watch)
        }))
        .refuses(&[NOT_FOUND]),
        shown(Method::at(Verb::Delete, PATH, stop, |verb| {
            on(verb, admin::job::stop)
        }))
        .refuses(&[NOT_FOUND]),
    ]
}

/// Records, follows and feeds of an app without AT Protocol.
fn direct() -> Vec<Method> {
    let mut methods = direct_records();
    methods.extend(direct_follows());
    let token = direct_post(
        "/tokens",
        "A token with which a reader reads",
        &[],
        |verb| on(verb, direct::mint),
    );
    methods.push(token.answers(vec![
        always("user", Shape::Any),
        always("token", Shape::text()),
        always("expires_at", Shape::format("datetime")),
    ]));
    methods.push(direct_feed());
    methods
}

/// What the app asks with a JSON object, in which it names for whom.
fn direct_post(
    path: &str,
    about: &'static str,
    takes: &[Field],
    route: fn(MethodFilter) -> MethodRouter<Arc<Server>>,
) -> Method {
    let mut fields = vec![sometimes("user", Shape::Any)];
    fields.extend_from_slice(takes);
    let refused = refusal(
        400,
        "InvalidRecord",
        "the record does not fit its lexicon or rules",
    );
    let conflict = refusal(409, "Conflict", "somebody else was faster");
    Method::at(Verb::Post, path, about, route)
        .takes(Shape::Object(fields))
        .with([actor_header()])
        .asked_by(Auth::App)
        .refuses(&[refused, conflict])
}

fn direct_follows() -> [Method; 3] {
    let changed = || {
        vec![
            always("user", Shape::Any),
            always("following", Shape::Boolean),
            always("drawn", Shape::Boolean),
        ]
    };
    let place = || sometimes("collection", Shape::text());
    let one = [
        sometimes("follows", Shape::Any),
        sometimes("key", Shape::text()),
        place(),
    ];
    let many = [
        always("follows", Shape::List(Box::new(Shape::Any))),
        place(),
    ];
    let about = "A person follows, mutes or blocks another, or a key, as the collection has it";
    [
        direct_post("/follow", about, &one, |verb| on(verb, direct::follow_one)).answers(changed()),
        direct_post("/unfollow", "The same, undone", &one, |verb| {
            on(verb, direct::unfollow)
        })
        .answers(changed()),
        direct_post(
            "/follow-many",
            "A first sign-in: many follows at once",
            &many,
            |verb| on(verb, direct::follow_many),
        )
        .answers(vec![
            always("user", Shape::Any),
            always("followed", Shape::count()),
            always("drawn", Shape::Boolean),
        ])
        .refuses(&[refusal(400, "FollowCount", "too few or too many")]),
    ]
}

fn direct_feed() -> Method {
    Method::at(
        Verb::Get,
        "/feed",
        "A reader's feed; the cursor is a post's id",
        |verb| on(verb, direct::feed),
    )
    .with([
        query(
            "cursor",
            Shape::text(),
            "the id of the last post had; of a mixed feed `collection/id`",
        ),
        limit(100, 10),
        query(
            "user",
            Shape::text(),
            "the reader, where the direct API is open",
        ),
        actor_header(),
    ])
    .answers(vec![
        always("posts", Shape::List(Box::new(Shape::Unknown))),
        or_null("next_cursor", Shape::text()),
        always("has_more", Shape::Boolean),
    ])
    .asked_by(Auth::AppOrReader)
    .refuses(&[BAD_CURSOR])
}

fn actor_header() -> Parameter {
    in_header(ACTOR_HEADER, "the id of the person for whom the app asks")
}

fn direct_records() -> Vec<Method> {
    let collection = || in_path("collection", Shape::text(), "a collection's short name");
    let id = || in_path("id", Shape::text(), "a record's id");
    let conflict = refusal(409, "Conflict", "somebody else was faster");
    let refused = refusal(
        400,
        "InvalidRecord",
        "the record does not fit its lexicon or rules",
    );
    vec![
        Method::at(
            Verb::Get,
            "/records/{collection}",
            "Records, newest first",
            |verb| on(verb, direct::list_records),
        )
        .with([
            collection(),
            query("actor", Shape::text(), "only this person's"),
            limit(LIMIT_MAX, LIMIT_DEFAULT),
            cursor(),
        ])
        .answers(vec![
            always("records", Shape::List(Box::new(Shape::Unknown))),
            sometimes("cursor", Shape::text()),
        ])
        .asked_by(Auth::AppOrReader)
        .refuses(&[BAD_CURSOR, NOT_FOUND]),
        Method::at(
            Verb::Get,
            "/records/{collection}/{id}",
            "One record as it was put",
            |verb| on(verb, direct::get_record),
        )
        .answers_anything()
        .with([collection(), id()])
        .asked_by(Auth::AppOrReader)
        .refuses(&[NOT_FOUND]),
        Method::at(
            Verb::Put,
            "/records/{collection}/{id}",
            "Puts a record",
            |verb| on(verb, direct::put_record),
        )
        .takes(Shape::Unknown)
        .answers_anything()
        .with([collection(), id(), actor_header()])
        .asked_by(Auth::App)
        .refuses(&[NOT_FOUND, conflict, refused]),
        Method::at(
            Verb::Delete,
            "/records/{collection}/{id}",
            "Deletes a record",
            |verb| on(verb, direct::delete_record),
        )
        .answers_anything()
        .with([collection(), id(), actor_header()])
        .asked_by(Auth::App)
        .refuses(&[NOT_FOUND, conflict]),
    ]
}
