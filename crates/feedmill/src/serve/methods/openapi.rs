//! From the table to an OpenAPI document, served at `/openapi.json`.
//!
//! In:    the table, and where clients reach us.
//! Out:   every method with every parameter, answer and error.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::shape::{Dialect, Shape};
use super::{Auth, Method, Output, Parameter, Place, Refusal};

/// The document.
pub fn document(methods: &[Method], public_url: Option<&str>) -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    let mut schemas = Map::new();
    for method in methods {
        let operation = operation(method);
        let verb = method.verb.name().to_ascii_lowercase();
        let path = paths.entry(method.path.clone()).or_default();
        path.insert(verb, operation);
        for (name, shape) in &method.named {
            schemas.insert(component(method, name), schema(method, shape));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Feedmill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Streams of records in, feeds out. Errors are {\"error\": name, \"message\": text}.",
        },
        "servers": [{"url": public_url.unwrap_or("/")}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": schemes()},
    })
}

fn schemes() -> Value {
    let bearer = |about: &str| json!({"type": "http", "scheme": "bearer", "description": about});
    json!({
        "service": bearer("a service-auth token (JWT) of the account's host, for this service and this method"),
        "notifier": bearer("the token in FEEDMILL_NOTIFY_TOKEN"),
        "operator": bearer("the token in FEEDMILL_ADMIN_TOKEN"),
        "app": bearer("the token in FEEDMILL_APP_TOKEN"),
        "reader": bearer("a reader's token from POST /tokens"),
    })
}

fn security(auth: Auth) -> Option<Value> {
    match auth {
        Auth::Open => None,
        Auth::ServiceMaybe => Some(json!([{}, {"service": []}])),
        Auth::Service => Some(json!([{"service": []}])),
        Auth::Notifier => Some(json!([{"notifier": []}])),
        Auth::Operator => Some(json!([{"operator": []}])),
        Auth::App => Some(json!([{"app": []}])),
        Auth::AppOrReader => Some(json!([{"app": []}, {"reader": []}, {}])),
    }
}

fn component(method: &Method, name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '_'
        }
    };
    let owner: String = method.name().chars().map(plain).collect();
    format!("{owner}.{name}")
}

fn operation(method: &Method) -> Value {
    let mut responses = Map::new();
    let content = match &method.output {
        Output::Json(shape) => json!({"application/json": {"schema": schema(method, shape)}}),
        Output::Other(media) => json!({*media: {}}),
        Output::Stream(_) => {
            let about = "a WebSocket, where one was asked for";
            responses.insert("101".into(), json!({"description": about}));
            json!({"text/event-stream": {}})
        }
    };
    responses.insert(
        "200".into(),
        json!({"description": method.about, "content": content}),
    );
    for (status, errors) in by_status(&method.errors) {
        responses.insert(status.to_string(), refused(&errors));
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let id: String = method.name().chars().map(plain).collect();
    let mut found = json!({
        "operationId": id,
        "summary": method.about,
        "responses": responses,
    });
    if let Value::Object(found) = &mut found {
        if !method.parameters.is_empty() {
            let all = method.parameters.iter().map(|one| parameter(method, one));
            found.insert("parameters".into(), all.collect());
        }
        if let Some(input) = &method.input {
            let content = json!({"application/json": {"schema": schema(method, input)}});
            found.insert(
                "requestBody".into(),
                json!({"required": true, "content": content}),
            );
        }
        if let Some(security) = security(method.auth) {
            found.insert("security".into(), security);
        }
    }
    found
}

fn by_status(errors: &[Refusal]) -> BTreeMap<u16, Vec<Refusal>> {
    let mut found: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
    for error in errors {
        let names = found.entry(error.status).or_default();
        if !names.iter().any(|known| known.name == error.name) {
            names.push(*error);
        }
    }
    found
}

fn refused(errors: &[Refusal]) -> Value {
    let about: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", error.name, error.about))
        .collect();
    let names: Vec<&str> = errors.iter().map(|error| error.name).collect();
    let schema = json!({
        "type": "object",
        "required": ["error", "message"],
        "properties": {"error": {"type": "string", "enum": names}, "message": {"type": "string"}},
    });
    json!({"description": about.join("; "), "content": {"application/json": {"schema": schema}}})
}

fn parameter(method: &Method, parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Query => "query",
        Place::Path => "path",
        Place::Header => "header",
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "description": parameter.about,
        "schema": schema(method, &parameter.shape),
    })
}

/// Schemas as OpenAPI has them; names belong to their method.
struct OpenApi<'a>(&'a Method);

impl Dialect for OpenApi<'_> {
    fn format(&self, format: &str) -> Value {
        match format {
            // Only this one has the same name and meaning here.
            "datetime" => json!({"type": "string", "format": "date-time"}),
            format => json!({"type": "string", "description": format}),
        }
    }

    fn unknown(&self) -> Value {
        json!({"type": "object"})
    }

    fn any(&self) -> Value {
        json!({})
    }

    fn named(&self, name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{}", component(self.0, name))})
    }

    fn nullable(&self, schema: Value) -> Value {
        json!({"anyOf": [schema, {"type": "null"}]})
    }

    fn object(&self, _: &mut Map<String, Value>, _: Vec<&str>) {}
}

fn schema(method: &Method, shape: &Shape) -> Value {
    shape.schema(&OpenApi(method))
}
