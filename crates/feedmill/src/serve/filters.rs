//! Filters as callers write them: `<field>=`, `<field>Min=`, `<field>Max=`.
//!
//! In:    the fields that a collection may be asked by, and the parameters.
//! Out:   filters for the store; or an error that says what is accepted.

use std::collections::BTreeMap;

use super::error::XrpcError;
use super::params::Params;
use crate::config::Config;
use crate::config::collection::Compared;
use crate::store::filter::{Field, Filter, Kind, Operand, Test};
use crate::store::search::Search;

/// One way to ask.
#[derive(Debug, Clone)]
struct Question {
    parameter: String,
    path: String,
    test: Test,
    kind: Option<Kind>,
}

/// Every way to ask, by collection.
#[derive(Debug, Default)]
pub(super) struct Questions {
    fields: BTreeMap<String, Vec<Question>>,
    /// The fields that a search looks in.
    searchable: BTreeMap<String, Vec<String>>,
}

impl Questions {
    pub(super) fn new(config: &Config) -> Self {
        let mut all: BTreeMap<String, Vec<Question>> = BTreeMap::new();
        for collection in config.collections.values() {
            let questions = all.entry(collection.collection.clone()).or_default();
            for (path, queryable) in &collection.queryable {
                let name = camel(path);
                let mut ask = |parameter: String, test| {
                    questions.push(Question {
                        parameter,
                        path: path.clone(),
                        test,
                        kind: queryable.compared.map(kind),
                    });
                };
                if queryable.ranged() {
                    ask(format!("{name}Min"), Test::AtLeast);
                    ask(format!("{name}Max"), Test::AtMost);
                }
                ask(name, Test::Equal);
            }
        }
        let searchable = config.collections.values();
        Self {
            fields: all,
            searchable: searchable
                .filter(|collection| !collection.searchable.is_empty())
                .map(|collection| (collection.collection.clone(), collection.searchable.clone()))
                .collect(),
        }
    }

    /// The parameters that a collection may be asked by.
    pub(super) fn parameters(&self, nsid: &str) -> Vec<&str> {
        let search = self.searchable.get(nsid).map(|_| "search");
        let questions = self.fields.get(nsid).into_iter().flatten();
        questions
            .map(|question| question.parameter.as_str())
            .chain(search)
            .collect()
    }

    /// The filters that these parameters ask for.
    pub(super) fn read(&self, nsid: &str, params: &Params) -> Result<Vec<Filter>, XrpcError> {
        let mut filters = Vec::new();
        for question in self.fields.get(nsid).into_iter().flatten() {
            let Some(text) = params.get(&question.parameter) else {
                continue;
            };
            let operand = Operand::parse(text, question.kind).ok_or_else(|| {
                XrpcError::invalid(format!(
                    "{} takes {}, not {text:?}",
                    question.parameter,
                    accepted(question.kind)
                ))
            })?;
            filters.push(Filter::Field(Field {
                path: question.path.clone(),
                test: question.test,
                operand,
            }));
        }
        if let (Some(text), Some(fields)) = (params.get("search"), self.searchable.get(nsid)) {
            let search = Search::parse(text, fields)
                .map_err(|error| XrpcError::invalid(format!("search: {error}")))?;
            filters.push(Filter::Search(search));
        }
        Ok(filters)
    }
}

fn kind(compared: Compared) -> Kind {
    match compared {
        Compared::Text => Kind::Text,
        Compared::Number => Kind::Number,
        Compared::Boolean => Kind::Boolean,
        Compared::Time => Kind::Time,
    }
}

fn accepted(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::Number) => "a whole number",
        Some(Kind::Boolean) => "true or false",
        Some(Kind::Time) => "a time such as 2026-01-01T00:00:00Z",
        Some(Kind::Text) | None => "a text",
    }
}

/// `a.b.c` as a parameter: `aBC`.
pub(super) fn camel(path: &str) -> String {
    let mut parts = path.split('.');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        name.push_str(&capital(part));
    }
    name
}

/// The same word with a capital.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
