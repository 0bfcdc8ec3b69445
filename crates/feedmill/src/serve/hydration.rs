//! Hydration: what is shown with a record beside the record itself.
//!
//! In:    rows of one page, and the parameters that ask for more.
//! Out:   records with `<relation>Count`, the newest children of each parent
//!        (`hydrate<Relation>=N`), the records they refer to
//!        (`hydrate<Reference>=true`), their labels, and the authors' profiles
//!        (`profiles=true`).
//! Never: a parent whose children are missing because another has many.

use std::sync::Arc;

use serde_json::Value;

use super::error::XrpcError;
use super::filters::capital;
use super::params::Params;
use super::profile::Profiles;
use super::{Answer, Server, body, cursor, labelers};
use crate::config::collection::Match;
use crate::labels::Subject;
use crate::local::{self, LocalId};
use crate::store::Row;
use crate::store::plan::{ReferencePlan, RelationPlan};
use crate::store::shown::{Shown, ShownPage};

/// Children shown with each parent at most.
pub(super) const CHILDREN_MAX: usize = 50;

/// Rows for which is looked up at once what belongs to them; then the answer's size is looked at.
const CHUNK: usize = 8;

/// What a request wants beside the records.
#[derive(Debug)]
pub(super) struct Hydration<'a> {
    relations: Vec<(&'a RelationPlan, usize)>,
    references: Vec<&'a ReferencePlan>,
    profiles: bool,
    /// Those whose labels are shown.
    labelers: Vec<String>,
}

/// The parameters that a collection's records are hydrated by.
pub(super) fn parameters(server: &Server, nsid: &str) -> Vec<String> {
    let relations = server.plan.relations.get(nsid).into_iter().flatten();
    let references = server.plan.references.get(nsid).into_iter().flatten();
    relations
        .map(|relation| &relation.name)
        .chain(references.map(|reference| &reference.name))
        .map(|name| format!("hydrate{}", capital(name)))
        .chain(["profiles".to_owned()])
        .collect()
}

impl<'a> Hydration<'a> {
    /// What these parameters ask for.
    pub(super) fn read(server: &'a Server, nsid: &str, params: &Params) -> Result<Self, XrpcError> {
        let mut hydration = Self {
            relations: Vec::new(),
            references: Vec::new(),
            profiles: params.flag("profiles")?,
            labelers: params.labelers.clone(),
        };
        for relation in server.plan.relations.get(nsid).into_iter().flatten() {
            let parameter = format!("hydrate{}", capital(&relation.name));
            let limit = match params.get(&parameter) {
                None => 0,
                Some(_) => params.number(&parameter, 1, CHILDREN_MAX)?,
            };
            hydration.relations.push((relation, limit));
        }
        for reference in server.plan.references.get(nsid).into_iter().flatten() {
            if params.flag(&format!("hydrate{}", capital(&reference.name)))? {
                hydration.references.push(reference);
            }
        }
        Ok(hydration)
    }

    /// `{"records": […], "cursor": …, "profiles": […]}`: the page that `make` makes of so many rows,
    /// or a shorter one where what belongs to its rows would make it too large.
    pub(super) fn fitting(
        &self,
        server: &Server,
        scope: &str,
        mut limit: usize,
        make: impl Fn(usize) -> Result<ShownPage, XrpcError>,
    ) -> Result<Answer, XrpcError> {
        loop {
            let page = make(limit)?;
            let rows: Vec<&Shown> = page.rows.iter().map(Arc::as_ref).collect();
            let (extras, profiles) = self.beside(server, &rows)?;
            if extras.len() == rows.len() {
                let next = cursor::next(scope, &page);
                return Ok(body::page(&rows, &extras, next.as_deref(), &profiles));
            }
            // Made anew, so that its cursor is that of a page of so many rows.
            limit = extras.len();
        }
    }

    /// What belongs to each row and to all of them, for as many rows as fit into an answer.
    fn beside(&self, server: &Server, rows: &[&Shown]) -> Result<(Vec<String>, String), XrpcError> {
        let mut extras: Vec<String> = Vec::with_capacity(rows.len());
        if self.is_plain() {
            extras.resize(rows.len(), String::new());
            return Ok((extras, String::new()));
        }
        let mut profiles = Profiles::default();
        let mut bytes = 0;
        for some in rows.chunks(CHUNK) {
            let own = self.extras(server, some)?;
            if self.profiles {
                let dids = some.iter().map(|row| row.did());
                profiles.add(server, dids, &self.labelers)?;
            }
            bytes += some.iter().map(|row| row.bytes()).sum::<usize>();
            bytes += own.iter().map(String::len).sum::<usize>();
            extras.extend(own);
            if bytes + profiles.bytes() >= server.limits.response_bytes_max() {
                break;
            }
        }
        let profiles = match self.profiles {
            true => format!(",\"profiles\":{}", profiles.written()),
            false => String::new(),
        };
        Ok((extras, profiles))
    }

    /// Whether nothing is shown beside the records.
    fn is_plain(&self) -> bool {
        let others = self.references.is_empty() && self.labelers.is_empty();
        self.relations.is_empty() && others && !self.profiles
    }

    /// One record, with what belongs to it.
    pub(super) fn one(&self, server: &Server, row: &Row) -> Result<String, XrpcError> {
        let shown = Shown::of(row);
        let rows = [&shown];
        let mut extra = self.extras(server, &rows)?.pop().unwrap_or_default();
        if self.profiles {
            let mut profiles = Profiles::default();
            profiles.add(server, [row.did.as_str()], &self.labelers)?;
            extra.push_str(&format!(",\"profiles\":{}", profiles.written()));
        }
        let mut out = String::with_capacity(shown.json().len() + extra.len() + 1);
        body::push_shown(&mut out, &shown, &extra);
        Ok(out)
    }

    /// For each row, the fields that follow its own, each with its comma.
    fn extras(&self, server: &Server, rows: &[&Shown]) -> Result<Vec<String>, XrpcError> {
        let mut extras = vec![String::new(); rows.len()];
        for (relation, limit) in &self.relations {
            let parents: Vec<String> = rows.iter().map(|row| parent(row, relation.by)).collect();
            let grouped = !relation.groups.is_empty();
            let shown = if grouped { 0 } else { *limit };
            let children = server.store.children(relation.lane, &parents, shown)?;
            for (extra, children) in extras.iter_mut().zip(&children) {
                push_count(extra, &relation.name, children.count);
                if !children.rows.is_empty() {
                    extra.push_str(&format!(",\"{}\":", relation.name));
                    push_children(extra, &children.rows);
                }
            }
            if grouped {
                push_groups(server, relation, &parents, *limit, &mut extras)?;
            }
        }
        for reference in &self.references {
            for (extra, row) in extras.iter_mut().zip(rows) {
                let Some(uri) = named(row, reference) else {
                    continue;
                };
                if let Some(found) = server.store.record(&uri)? {
                    extra.push_str(&format!(",\"{}\":", reference.name));
                    body::push_record(extra, &found);
                }
            }
        }
        for (extra, row) in extras.iter_mut().zip(rows) {
            let (uri, cid) = (row.uri(), row.cid());
            labelers::push(server, &self.labelers, &[Subject { uri, cid }], extra)?;
        }
        Ok(extras)
    }
}

fn push_count(out: &mut String, name: &str, count: i64) {
    if count > 0 {
        out.push_str(&format!(",\"{name}Count\":{count}"));
    }
}

fn push_children(out: &mut String, rows: &[Row]) {
    out.push('[');
    for (index, child) in rows.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        body::push_record(out, child);
    }
    out.push(']');
}

/// `"<relation><Group>Count"`, and `"<relation>": {"<group>": […], "other": […]}`.
fn push_groups(
    server: &Server,
    relation: &RelationPlan,
    parents: &[String],
    limit: usize,
    extras: &mut [String],
) -> Result<(), XrpcError> {
    let mut shown = vec![String::new(); extras.len()];
    let named = relation
        .groups
        .iter()
        .map(|(name, lane)| (name.as_str(), *lane));
    let other = relation.other.filter(|_| limit > 0);
    for (group, lane) in named.chain(other.map(|lane| ("other", lane))) {
        let children = server.store.children(lane, parents, limit)?;
        let each = extras.iter_mut().zip(shown.iter_mut()).zip(&children);
        for ((extra, shown), children) in each {
            if Some(lane) != relation.other {
                let name = format!("{}{}", relation.name, capital(group));
                push_count(extra, &name, children.count);
            }
            if !children.rows.is_empty() {
                let comma = if shown.is_empty() { "" } else { "," };
                shown.push_str(&format!("{comma}\"{group}\":"));
                push_children(shown, &children.rows);
            }
        }
    }
    for (extra, shown) in extras.iter_mut().zip(shown) {
        if !shown.is_empty() {
            extra.push_str(&format!(",\"{}\":{{{shown}}}", relation.name));
        }
    }
    Ok(())
}

/// How children name this record.
pub(super) fn parent(row: &Shown, by: Match) -> String {
    match by {
        Match::Did => row.did().to_owned(),
        Match::Uri if row.did() == local::REPO => {
            LocalId::of_uri(row.uri()).map_or_else(String::new, |id| id.to_string())
        }
        Match::Uri => row.uri().to_owned(),
    }
}

/// The URI that a record's field names.
fn named(row: &Shown, reference: &ReferencePlan) -> Option<String> {
    let body: Value = serde_json::from_str(row.body()).ok()?;
    let field = reference
        .field
        .split('.')
        .try_fold(&body, |value, key| value.get(key))?;
    match field.as_str() {
        Some(uri) if uri.starts_with("at://") => Some(uri.to_owned()),
        _ if row.did() == local::REPO => Some(LocalId::from_json(field).ok()?.uri(&reference.nsid)),
        _ => None,
    }
}
