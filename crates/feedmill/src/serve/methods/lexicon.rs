//! From the table to lexicons, for the ecosystem's code generators.
//!
//! In:    methods whose NSID is ours.
//! Out:   one lexicon document for each, by NSID.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::shape::{Field, Need, Shape};
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
    let kind = match method.verb {
        Verb::Get => "query",
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

fn schema(shape: &Shape) -> Value {
    match shape {
        Shape::Text { format: None } => json!({"type": "string"}),
        Shape::Text {
            format: Some(format),
        } => json!({"type": "string", "format": format}),
        Shape::Choice(choices) => json!({"type": "string", "enum": choices}),
        Shape::Integer {
            least,
            most,
            default,
        } => {
            let bounds = [("minimum", least), ("maximum", most), ("default", default)];
            let mut found = Map::from_iter([("type".to_owned(), json!("integer"))]);
            for (name, bound) in bounds {
                found.extend(bound.map(|bound| (name.to_owned(), bound.into())));
            }
            Value::Object(found)
        }
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Unknown | Shape::Any => json!({"type": "unknown"}),
        Shape::List(items) => json!({"type": "array", "items": schema(items)}),
        Shape::Named(name) => json!({"type": "ref", "ref": format!("#{name}")}),
        Shape::Object(fields) => object(fields),
    }
}

fn object(fields: &[Field]) -> Value {
    let names = |wanted: &dyn Fn(Need) -> bool| -> Vec<&str> {
        let found = fields.iter().filter(|field| wanted(field.need));
        found.map(|field| field.name.as_str()).collect()
    };
    let required = names(&|need| need != Need::Sometimes);
    let nullable = names(&|need| need == Need::OrNull);
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| (field.name.clone(), schema(&field.shape)))
        .collect();
    let mut found = json!({"type": "object", "properties": properties});
    if let Value::Object(found) = &mut found {
        for (name, list) in [("required", required), ("nullable", nullable)] {
            if !list.is_empty() {
                found.insert(name.into(), list.into());
            }
        }
    }
    found
}
