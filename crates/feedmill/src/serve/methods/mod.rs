//! The table of methods: everything that can be asked over HTTP, said once.
//!
//! In:    a configuration.
//! Out:   for each method its name, parameters, answer, errors, who may ask,
//!        and what answers it; from it the routes, the names that requests are
//!        counted under, the lexicons for code generators, the OpenAPI document
//!        and the table in docs/api.md.
//! Never: a method described and not served, or served and not described: there
//!        is no other list.
//!
//! The log has a protocol of its own (docs/protocol.md) and is not in here.

// Methods that answer with feeds.
mod feeds;
// What answers a method.
pub(super) mod handler;
// Methods under an NSID.
mod network;
// Methods under a plain path.
mod plain;
// Methods that answer with records.
mod records;

// From the table to lexicons.
pub mod lexicon;
// From the table to a page of documentation.
pub mod markdown;
// From the table to an OpenAPI document.
pub mod openapi;
// What parameters and bodies look like.
pub mod shape;

use axum::routing::{MethodFilter, MethodRouter};
use std::sync::Arc;

use crate::config::Config;
use crate::serve::Server;
use handler::Handler;
use shape::{Field, Shape};

/// How a method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    /// As HTTP spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// As routes are told apart.
    pub(super) fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// Where a parameter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Query,
    Path,
    Header,
}

/// One parameter.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: String,
    pub place: Place,
    pub shape: Shape,
    pub required: bool,
    pub about: String,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Anybody.
    Open,
    /// A service-auth token says who asks; without one the answer is for nobody.
    ServiceMaybe,
    /// A service-auth token must say who asks.
    Service,
    /// The secret that the operator gave to those who may notify.
    Notifier,
    /// The operator's token.
    Operator,
    /// The app's token.
    App,
    /// The app's or a reader's token; nobody's where the direct API is open.
    AppOrReader,
}

/// One way in which a method refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub name: &'static str,
    pub about: &'static str,
}

/// What a method answers.
#[derive(Debug, Clone)]
pub enum Output {
    Json(Shape),
    /// Something else, of this media type.
    Other(&'static str),
    /// Messages without an end, each one of the method's named shapes.
    Stream(Vec<&'static str>),
}

/// One method.
#[derive(Debug, Clone)]
pub struct Method {
    pub verb: Verb,
    /// With `{name}` for parameters in it.
    pub path: String,
    /// The NSID, for methods that have one.
    pub nsid: Option<String>,
    /// The NSID is ours, so its lexicon is ours to write.
    pub ours: bool,
    pub about: &'static str,
    pub parameters: Vec<Parameter>,
    pub input: Option<Shape>,
    pub output: Output,
    /// Shapes that the answer names.
    pub named: Vec<(String, Shape)>,
    pub errors: Vec<Refusal>,
    pub auth: Auth,
    pub(super) handler: Handler,
}

/// Everything that a configuration's server answers.
pub fn table(config: &Config) -> Vec<Method> {
    let mut methods = network::methods(config);
    methods.extend(plain::methods(config));
    methods
}

const fn refusal(status: u16, name: &'static str, about: &'static str) -> Refusal {
    Refusal {
        status,
        name,
        about,
    }
}

const BAD_CURSOR: Refusal = refusal(
    400,
    "BadCursor",
    "the cursor is not one of ours, or belongs to another feed or list",
);
const NOT_FOUND: Refusal = refusal(404, "RecordNotFound", "there is no such thing");
const FORBIDDEN: Refusal = refusal(403, "Forbidden", "known, and not allowed");
const REQUIRED: Refusal = refusal(401, "AuthenticationRequired", "say who asks");
const UNKNOWN_FEED: Refusal = refusal(400, "UnknownFeed", "no feed of this name");

/// Every method may refuse so.
const ALWAYS: [Refusal; 5] = [
    refusal(
        400,
        "InvalidRequest",
        "a parameter or the body is wrong; the message says what is accepted",
    ),
    refusal(
        429,
        "RateLimitExceeded",
        "too many requests; Retry-After says when to come back",
    ),
    refusal(500, "InternalServerError", "our fault"),
    refusal(
        503,
        "NotEnoughResources",
        "too busy, or the store cannot answer now; try again",
    ),
    refusal(504, "UpstreamTimeout", "it took too long"),
];

/// A body can be too much.
const TOO_LARGE: Refusal = refusal(
    413,
    "PayloadTooLarge",
    "the body is larger than serve.body_bytes_max",
);

/// What is wrong with a token of the direct API.
const DIRECT_TOKEN: [Refusal; 4] = [
    REQUIRED,
    refusal(401, "InvalidToken", "the token is not one of ours"),
    refusal(401, "ExpiredToken", "the token has ended"),
    FORBIDDEN,
];

/// What is wrong with a service-auth token.
const TOKEN: [Refusal; 8] = [
    refusal(
        401,
        "BadJwt",
        "not a token, of the wrong algorithm, of the wrong time, or used before",
    ),
    refusal(401, "BadJwtType", "a token for another purpose"),
    refusal(401, "JwtExpired", "the token has ended"),
    refusal(401, "BadJwtAudience", "the token is for another service"),
    refusal(
        401,
        "BadJwtLexiconMethod",
        "the token is for another method",
    ),
    refusal(
        401,
        "BadJwtIss",
        "the issuer is no account whose document can be read",
    ),
    refusal(
        401,
        "BadJwtSignature",
        "the token is not signed with the issuer's key",
    ),
    refusal(
        429,
        "RateLimitExceeded",
        "too many requests of this account",
    ),
];

impl Method {
    fn new(verb: Verb, path: String, about: &'static str, handler: Handler) -> Self {
        let mut errors = ALWAYS.to_vec();
        if matches!(verb, Verb::Post | Verb::Put) {
            errors.push(TOO_LARGE);
        }
        Self {
            verb,
            path,
            nsid: None,
            ours: false,
            about,
            parameters: Vec::new(),
            input: None,
            output: Output::Json(Shape::Object(Vec::new())),
            named: Vec::new(),
            errors,
            auth: Auth::Open,
            handler,
        }
    }

    /// A method under an NSID of ours.
    fn of(verb: Verb, nsid: String, about: &'static str, handler: Handler) -> Self {
        let path = format!("/xrpc/{nsid}");
        Self {
            nsid: Some(nsid),
            ours: true,
            ..Self::new(verb, path, about, handler)
        }
    }

    /// A method under a path of its own.
    fn at(
        verb: Verb,
        path: &str,
        about: &'static str,
        route: fn(MethodFilter) -> MethodRouter<Arc<Server>>,
    ) -> Self {
        Self::new(verb, path.to_owned(), about, Handler::Route(route))
    }

    fn with(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    fn answers(mut self, fields: Vec<Field>) -> Self {
        self.output = Output::Json(Shape::Object(fields));
        self
    }

    fn answers_anything(mut self) -> Self {
        self.output = Output::Json(Shape::Unknown);
        self
    }

    fn naming(mut self, name: &str, shape: Shape) -> Self {
        self.named.push((name.to_owned(), shape));
        self
    }

    fn refuses(mut self, errors: &[Refusal]) -> Self {
        for error in errors {
            if !self.errors.contains(error) {
                self.errors.push(*error);
            }
        }
        self
    }

    fn takes(mut self, input: Shape) -> Self {
        self.input = Some(input);
        self
    }

    /// Who may ask, and how the others are refused.
    fn asked_by(mut self, auth: Auth) -> Self {
        self.auth = auth;
        match auth {
            Auth::Open => {}
            Auth::ServiceMaybe => self.errors.extend(TOKEN),
            Auth::Service => {
                self.errors.extend(TOKEN);
                self.errors.extend([REQUIRED, FORBIDDEN]);
            }
            Auth::Notifier => self.errors.push(REQUIRED),
            Auth::Operator => self.errors.push(refusal(
                401,
                "AuthRequired",
                "the operator's token is needed",
            )),
            Auth::App | Auth::AppOrReader => self.errors.extend(DIRECT_TOKEN),
        }
        self
    }

    /// The name by which it is spoken of.
    pub fn name(&self) -> String {
        match &self.nsid {
            Some(nsid) => nsid.clone(),
            None => format!("{} {}", self.verb.name(), self.path),
        }
    }
}

fn query(name: impl Into<String>, shape: Shape, about: impl Into<String>) -> Parameter {
    Parameter {
        name: name.into(),
        place: Place::Query,
        shape,
        required: false,
        about: about.into(),
    }
}

fn needed(name: &str, shape: Shape, about: &str) -> Parameter {
    Parameter {
        required: true,
        ..query(name, shape, about)
    }
}

fn in_path(name: &str, shape: Shape, about: &str) -> Parameter {
    Parameter {
        place: Place::Path,
        ..needed(name, shape, about)
    }
}

fn in_header(name: &str, about: &str) -> Parameter {
    Parameter {
        place: Place::Header,
        ..query(name, Shape::text(), about)
    }
}

fn limit(most: usize, default: usize) -> Parameter {
    let shape = Shape::Integer {
        least: Some(1),
        most: Some(most as i64),
        default: Some(default as i64),
    };
    query("limit", shape, "entries of the page")
}

fn cursor() -> Parameter {
    query(
        "cursor",
        Shape::text(),
        "where the page before ended; none begins at the newest",
    )
}
