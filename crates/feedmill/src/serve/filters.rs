//! Questions as callers write them: `<field>=`, `<field>Min=`, `<field>Max=`,
//! `<relation>CountMin=`, `search=`, `sort=` and `order=`.
//!
//! In:    the fields that a collection may be asked by, and the parameters.
//! Out:   what the store is asked; or an error that says what is accepted.

use std::collections::BTreeMap;

use super::error::XrpcError;
use super::params::Params;
use crate::config::Config;
use crate::config::collection::{Compared, Match};
use crate::store::filter::{Field, Filter, Kind, Operand, Test};
use crate::store::ladder::Steps;
use crate::store::page::{CountMin, Lens, Rung, Sort};
use crate::store::plan::{LadderId, LaneId, Plan};
use crate::store::search::Search;

/// One way to ask by a field.
#[derive(Debug, Clone)]
struct Question {
    parameter: String,
    path: String,
    test: Test,
    kind: Option<Kind>,
}

/// One way to ask by a number of children.
#[derive(Debug, Clone)]
struct Counting {
    parameter: String,
    lane: LaneId,
    by: Match,
}

/// One way to sort.
#[derive(Debug, Clone)]
struct Sorting {
    name: String,
    ladder: LadderId,
    descending: bool,
}

/// Every way to ask for a collection's records.
#[derive(Debug, Default)]
struct Ways {
    fields: Vec<Question>,
    counts: Vec<Counting>,
    sorts: Vec<Sorting>,
    /// The fields that a search looks in.
    searchable: Vec<String>,
}

/// Every way to ask, by collection.
#[derive(Debug, Default)]
pub(super) struct Questions(BTreeMap<String, Ways>);

/// What was asked, and how its cursors differ from those of a plain page.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) lens: Lens,
    pub(super) scope: String,
}

impl Asked {
    /// Goes on at this value of the order that was asked.
    pub(super) fn from(mut self, rung: Option<Rung>) -> Lens {
        if let Some(sort) = &mut self.lens.sort {
            sort.from = rung;
        }
        self.lens
    }
}

impl Questions {
    pub(super) fn new(config: &Config, plan: &Plan) -> Self {
        let collections = config.collections.values().map(|collection| {
            let nsid = collection.collection.as_str();
            let mut ways = Ways {
                searchable: collection.searchable.clone(),
                ..Ways::default()
            };
            for (path, queryable) in &collection.queryable {
                ways.ask(path, queryable.ranged(), queryable.compared.map(kind));
                let field = |steps: &Steps| matches!(steps, Steps::Field { path: other, .. } if other == path);
                ways.sort(camel(path), plan.ladder(nsid, field), queryable.ranged());
            }
            for relation in plan.relations.get(nsid).into_iter().flatten() {
                let whole = (String::new(), relation.lane);
                let groups = relation.groups.iter();
                let groups = groups.map(|(group, lane)| (capital(group), *lane));
                for (group, lane) in groups.chain([whole]) {
                    let name = format!("{}{group}Count", relation.name);
                    ways.counts.push(Counting {
                        parameter: format!("{name}Min"),
                        lane,
                        by: relation.by,
                    });
                    ways.sort(name, plan.count_ladder(nsid, lane, relation.by), true);
                }
            }
            (nsid.to_owned(), ways)
        });
        Self(collections.collect())
    }

    /// The parameters that a collection may be asked by.
    pub(super) fn parameters(&self, nsid: &str) -> Vec<&str> {
        let Some(ways) = self.0.get(nsid) else {
            return Vec::new();
        };
        let mut all: Vec<&str> = Vec::new();
        all.extend(ways.fields.iter().map(|it| it.parameter.as_str()));
        all.extend(ways.counts.iter().map(|it| it.parameter.as_str()));
        if !ways.searchable.is_empty() {
            all.push("search");
        }
        if !ways.sorts.is_empty() {
            all.extend(["sort", "order"]);
        }
        all
    }

    /// What these parameters ask for.
    pub(super) fn read(&self, nsid: &str, params: &Params) -> Result<Asked, XrpcError> {
        let mut asked = Asked::default();
        let Some(ways) = self.0.get(nsid) else {
            return Ok(asked);
        };
        asked.lens.filters = ways.filters(params)?;
        asked.lens.counts = ways.counts(params)?;
        if let Some((name, sort)) = ways.sorting(params)? {
            let direction = if sort.descending { "desc" } else { "asc" };
            asked.scope = format!(":{name}:{direction}");
            asked.lens.sort = Some(sort);
        }
        Ok(asked)
    }
}

impl Ways {
    fn ask(&mut self, path: &str, ranged: bool, kind: Option<Kind>) {
        let name = camel(path);
        let mut ask = |parameter: String, test| {
            self.fields.push(Question {
                parameter,
                path: path.to_owned(),
                test,
                kind,
            });
        };
        if ranged {
            ask(format!("{name}Min"), Test::AtLeast);
            ask(format!("{name}Max"), Test::AtMost);
        }
        ask(name, Test::Equal);
    }

    fn sort(&mut self, name: String, ladder: Option<LadderId>, descending: bool) {
        self.sorts.extend(ladder.map(|ladder| Sorting {
            name,
            ladder,
            descending,
        }));
    }

    fn filters(&self, params: &Params) -> Result<Vec<Filter>, XrpcError> {
        let mut filters = Vec::new();
        for question in &self.fields {
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
        if let (Some(text), false) = (params.get("search"), self.searchable.is_empty()) {
            let search = Search::parse(text, &self.searchable)
                .map_err(|error| XrpcError::declared("InvalidSearch", error.to_string()))?;
            filters.push(Filter::Search(search));
        }
        Ok(filters)
    }

    fn counts(&self, params: &Params) -> Result<Vec<CountMin>, XrpcError> {
        let asked = self.counts.iter();
        let asked = asked.filter_map(|counting| Some((counting, params.get(&counting.parameter)?)));
        asked
            .map(|(counting, text)| {
                let min = text.parse().ok().filter(|min| *min >= 0);
                let min = min.ok_or_else(|| {
                    let name = &counting.parameter;
                    XrpcError::invalid(format!("{name} takes a whole number, not {text:?}"))
                })?;
                Ok(CountMin {
                    lane: counting.lane,
                    by: counting.by,
                    min,
                })
            })
            .collect()
    }

    fn sorting(&self, params: &Params) -> Result<Option<(&str, Sort)>, XrpcError> {
        let descending = match params.get("order") {
            None => None,
            Some("asc") => Some(false),
            Some("desc") => Some(true),
            Some(other) => {
                let message = format!("order must be asc or desc, not {other:?}");
                return Err(XrpcError::invalid(message));
            }
        };
        let Some(name) = params.get("sort") else {
            return match descending {
                None => Ok(None),
                Some(_) => Err(XrpcError::invalid(
                    "order needs a sort; by time the newest come first",
                )),
            };
        };
        let sorting = self.sorts.iter().find(|sorting| sorting.name == name);
        let sorting = sorting.ok_or_else(|| {
            let known: Vec<&str> = self.sorts.iter().map(|it| it.name.as_str()).collect();
            XrpcError::invalid(format!(
                "sort must be one of {}, not {name:?}",
                known.join(", ")
            ))
        })?;
        let sort = Sort {
            ladder: sorting.ladder,
            descending: descending.unwrap_or(sorting.descending),
            from: None,
        };
        Ok(Some((&sorting.name, sort)))
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
