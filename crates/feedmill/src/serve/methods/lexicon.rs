//! From the table to lexicons, for the ecosystem's code generators.
//!
//! In:    methods whose NSID is ours.
//! Out:   one lexicon document for each, by NSID.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::shape::{Dialect, Shape};
use super::{Method, Output, Parameter, Place, Verb};

/// The lexicons of our own methods.
pub fn documents(methods: &[Method]) -> BTreeMap<String, Value> {
    methods
        .iter()
        .filter(|method| method.ours)
        .filter_map(|method| Some((method.nsid.clone()?, document(method))))
        .collect()
}

fn document(method: &Method) -> Value {
    let kind = match (&method.output, method.verb) {
        (Output::Stream(_), _) => "subscription",
        (_, Verb::Get) => "query",
        _ => "procedure",
    };
    let mut main = json!({"type": kind, "description": method.about});
    if let Value::Object(main) = &mut main {
        if !method.parameters.is_empty() {
            main.insert("parameters".into(), parameters(&method.parameters));
        }
        if let Some(input) = &method.input {
            main.insert("input".into(), body(input));
        }
        match &method.output {
            Output::Json(shape) => main.insert("output".into(), body(shape)),
            Output::Other(media) => main.insert("output".into(), json!({"encoding": media})),
            Output::Stream(messages) => {
                let refs: Vec<String> = messages.iter().map(|name| format!("#{name}")).collect();
                let schema = json!({"type": "union", "refs": refs});
                main.insert("message".into(), json!({ "schema": schema }))
            }
        };
        let errors = errors(method);
        if !errors.is_empty() {
            main.insert("errors".into(), errors.into());
        }
    }
    let mut defs = Map::new();
    defs.insert("main".into(), main);
    for (name, shape) in &method.named {
        defs.insert(name.clone(), schema(shape));
    }
    json!({"lexicon": 1, "id": method.nsid, "defs": defs})
}

/// The errors that are this method's own: those that any method has need no telling.
fn errors(method: &Method) -> Vec<Value> {
    let own = method.errors.iter().filter(|error| {
        let shared = super::ALWAYS.iter().any(|always| always.name == error.name);
        !shared && error.name != super::TOO_LARGE.name
    });
    own.map(|error| json!({"name": error.name, "description": error.about}))
        .collect()
}

fn body(shape: &Shape) -> Value {
    json!({"encoding": "application/json", "schema": schema(shape)})
}

fn parameters(parameters: &[Parameter]) -> Value {
    let told = parameters
        .iter()
        .filter(|parameter| parameter.place == Place::Query);
    let required: Vec<&str> = told
        .clone()
        .filter(|parameter| parameter.required)
        .map(|parameter| parameter.name.as_str())
        .collect();
    let mut properties = Map::new();
    for parameter in told {
        let mut schema = schema(&parameter.shape);
        if let Value::Object(schema) = &mut schema {
            schema.insert("description".into(), parameter.about.clone().into());
        }
        properties.insert(parameter.name.clone(), schema);
    }
    let mut found = json!({"type": "params", "properties": properties});
    if let (false, Value::Object(found)) = (required.is_empty(), &mut found) {
        found.insert("required".into(), required.into());
    }
    found
}

/// Schemas as lexicons have them.
struct Lexicon;

impl Dialect for Lexicon {
    fn format(&self, format: &str) -> Value {
        json!({"type": "string", "format": format})
    }

    fn unknown(&self) -> Value {
        json!({"type": "unknown"})
    }

    fn any(&self) -> Value {
        self.unknown()
    }

    fn named(&self, name: &str) -> Value {
        json!({"type": "ref", "ref": format!("#{name}")})
    }

    fn nullable(&self, schema: Value) -> Value {
        schema
    }

    fn object(&self, object: &mut Map<String, Value>, nullable: Vec<&str>) {
        if !nullable.is_empty() {
            object.insert("nullable".into(), nullable.into());
        }
    }
}

fn schema(shape: &Shape) -> Value {
    shape.schema(&Lexicon)
}
