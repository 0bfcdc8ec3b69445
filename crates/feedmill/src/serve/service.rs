//! The service as others find it: what it offers, said in their formats.
//!
//! In:    the table of methods, and the lexicons of the records we keep.
//! Out:   `/openapi.json`; `{ns}.lexicons` and `/lexicons` for code generators;
//!        `/.well-known/contrail`, by which typed clients find us. All made
//!        once, at start.
//!
//! The digest names the bundle of lexicons in its canonical form: keys sorted,
//! no space between. Who has locked it knows whether it changed.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::error::XrpcError;
use super::methods::{self, Auth, Method, Output, Verb};
use super::params::Params;
use super::{Answer, Server};
use crate::config::Config;

/// Folders within folders that are looked into.
const DEPTH_MAX: usize = 16;
/// The fragment under which our DID names this service.
const FRAGMENT: &str = "contrail";

/// What is told of the service.
#[derive(Debug)]
pub(super) struct Service {
    openapi: String,
    /// `{"lexicons": […]}` in canonical form.
    bundle: String,
    digest: String,
    manifest: Option<String>,
}

impl Service {
    /// The service of a configuration and its table.
    pub(super) fn new(config: &Config, table: &[Method]) -> Self {
        let mut lexicons = BTreeMap::new();
        for folder in &config.lexicons {
            if let Err(error) = gather(folder, &mut lexicons) {
                // The checks refuse such a folder at start; here it is only not shown.
                warn!(folder = %folder.display(), %error, "lexicons cannot be read");
            }
        }
        lexicons.extend(methods::lexicon::documents(table));
        let lexicons: Vec<Value> = lexicons.into_values().map(sorted).collect();
        let bundle = json!({ "lexicons": lexicons }).to_string();
        let digest = Sha256::digest(bundle.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256:{digest}");
        let url = config.serve.public_url.as_deref();
        Self {
            openapi: methods::openapi::document(table, url).to_string(),
            manifest: manifest(config, table, &digest),
            bundle,
            digest,
        }
    }
}

/// The same with the keys of every object sorted, whatever the map type does.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields.into_iter().collect();
            let fields = fields.into_iter();
            Value::Object(fields.map(|(name, value)| (name, sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Reads lexicons of a folder and of those within, by name.
pub(crate) fn gather(
    folder: &FilePath,
    found: &mut BTreeMap<String, Value>,
) -> std::io::Result<()> {
    gather_within(folder, DEPTH_MAX, found)
}

fn gather_within(
    folder: &FilePath,
    room: usize,
    found: &mut BTreeMap<String, Value>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && room > 0 {
            gather_within(&path, room - 1, found)?;
        } else if path.extension().is_some_and(|end| end == "json") {
            let lexicon: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
            if let Some(id) = lexicon.get("id").and_then(Value::as_str) {
                found.insert(id.to_owned(), lexicon.clone());
            }
        }
    }
    Ok(())
}

/// The name of this service within our DID.
pub(super) fn audience(config: &Config) -> Option<String> {
    config.serve.public_url.as_ref()?;
    let did = config.service_did()?;
    Some(format!("{did}#{FRAGMENT}"))
}

fn manifest(config: &Config, table: &[Method], digest: &str) -> Option<String> {
    let endpoint = config.serve.public_url.as_deref()?.trim_end_matches('/');
    // Clients call what answers once; a subscription is opened otherwise.
    let calls = |method: &&Method| method.ours && !matches!(method.output, Output::Stream(_));
    let ours = table.iter().filter(calls);
    // What anybody may ask. A procedure is told of only where a token is needed for it.
    let mut open: Vec<&str> = ours
        .clone()
        .filter(|method| matches!(method.auth, Auth::Open | Auth::ServiceMaybe))
        .filter(|method| method.verb == Verb::Get)
        .filter_map(|method| method.nsid.as_deref())
        .collect();
    open.sort_unstable();
    let guarded: Vec<&Method> = ours.filter(|method| method.auth == Auth::Service).collect();
    let manifest = json!({
        "format": "contrail.service",
        "version": 2,
        "endpoint": endpoint,
        "namespace": config.namespace,
        "lexicons": {"url": format!("{endpoint}/lexicons/{digest}"), "digest": digest},
        "status": {"url": format!("{endpoint}/status")},
        "collections": collections(config, &open),
        "methods": open,
        "serviceAuth": service_auth(config, &guarded),
    });
    Some(manifest.to_string())
}

/// The collections, each with those of its methods that anybody may ask, by their NSIDs.
fn collections(config: &Config, open: &[&str]) -> Vec<Value> {
    let one = |(short, it): (&String, &crate::config::Collection)| {
        let nsid = |name: &str| format!("{}.{short}.{name}", config.namespace);
        let methods = it.methods.iter().map(|method| nsid(method.name()));
        let methods = methods.filter(|nsid| open.contains(&nsid.as_str()));
        let mut methods: Vec<String> = methods.collect();
        methods.sort_unstable();
        methods.dedup();
        json!({
            "alias": short,
            "nsid": it.collection,
            "methods": methods,
            "queryable": it.queryable.keys().collect::<Vec<_>>(),
            "searchable": it.searchable,
            "relations": it.relations.keys().collect::<Vec<_>>(),
            "references": it.references.keys().collect::<Vec<_>>(),
        })
    };
    config.collections.iter().map(one).collect()
}

fn service_auth(config: &Config, guarded: &[&Method]) -> Value {
    let (Some(did), Some(audience), false) =
        (config.service_did(), audience(config), guarded.is_empty())
    else {
        return Value::Null;
    };
    let mut named: Vec<(&str, &str)> = guarded
        .iter()
        .filter_map(|method| {
            let kind = match method.verb {
                Verb::Get => "query",
                _ => "procedure",
            };
            Some((method.nsid.as_deref()?, kind))
        })
        .collect();
    named.sort_unstable();
    let mut scope = format!("rpc?aud={}", audience.replace('#', "%23"));
    for (nsid, _) in &named {
        scope.push_str(&format!("&lxm={nsid}"));
    }
    let methods = named
        .iter()
        .map(|(nsid, kind)| json!({"id": nsid, "type": kind}));
    json!({
        "type": "atproto-service-auth",
        "serviceDid": did,
        "audience": audience,
        "scope": scope,
        "methods": methods.collect::<Vec<_>>(),
    })
}

/// `{ns}.lexicons`.
pub(super) fn lexicons(server: &Server, _: &Params) -> Result<Answer, XrpcError> {
    Ok(Answer::json(server.service.bundle.clone()))
}

fn json_text(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

pub(super) async fn openapi(State(server): State<Arc<Server>>) -> Response {
    json_text(server.service.openapi.clone())
}

fn nothing() -> Response {
    XrpcError::not_found("no public service here; set serve.public_url").into_response()
}

pub(super) async fn well_known(State(server): State<Arc<Server>>) -> Response {
    match &server.service.manifest {
        Some(manifest) => json_text(manifest.clone()),
        None => nothing(),
    }
}

pub(super) async fn all_lexicons(State(server): State<Arc<Server>>) -> Response {
    match &server.service.manifest {
        Some(_) => {
            let tag = format!("\"{}\"", server.service.digest);
            let mut response = json_text(server.service.bundle.clone());
            if let Ok(tag) = tag.parse() {
                response.headers_mut().insert(header::ETAG, tag);
            }
            response
        }
        None => nothing(),
    }
}

pub(super) async fn lexicons_of_digest(
    State(server): State<Arc<Server>>,
    Path(digest): Path<String>,
) -> Response {
    if server.service.manifest.is_some() && digest != server.service.digest {
        let message = format!("these lexicons are {}", server.service.digest);
        return XrpcError::not_found(message).into_response();
    }
    all_lexicons(State(server)).await
}
