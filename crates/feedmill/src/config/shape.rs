//! From the text of a file to settings: TOML, known keys, values of the right type.
//!
//! In:    the text.
//! Out:   the settings, and every key that is unknown or holds the wrong kind of value.
//! Never: only the first of several such keys.
//!
//! serde stops at the first error. So the key at fault is taken out of the
//! parsed document and the rest is read again, until nothing is at fault.

use std::ops::Range;

use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::Config;
use super::fault::{Fault, Place};
use super::place::line_at;

/// Faults named at once; a file with more is read again when these are gone.
const FAULTS_MAX: usize = 100;

/// Reads a file. The settings are `None` where too little is left to judge the rest by.
pub(super) fn read(text: &str) -> (Option<Config>, Vec<Fault>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return (
            None,
            errors.iter().map(|error| syntax(text, error)).collect(),
        );
    }
    let mut left = document.clone();
    let mut faults = Vec::new();
    let mut removed: Vec<Vec<String>> = Vec::new();
    let mut is_whole = true;
    while faults.len() < FAULTS_MAX {
        let error = match Config::deserialize(left.clone().into_deserializer()) {
            Ok(config) => return (is_whole.then_some(config), faults),
            Err(error) => error,
        };
        let span = error.span().unwrap_or_default();
        let path = path_of(document.get_ref(), &span).unwrap_or_default();
        // A table that lacks what was just taken out of it is not another fault.
        let follows = removed.iter().any(|key| match key.split_last() {
            Some((_, table)) => table == path,
            None => false,
        });
        if !follows {
            faults.push(Fault {
                place: Place::Line(line_at(text, span.start)),
                key: path.join("."),
                problem: error.message().to_owned(),
            });
        }
        is_whole &= is_key(document.get_ref(), &span);
        if path.is_empty() || !take_out(left.get_mut(), &span) {
            break;
        }
        removed.push(path);
    }
    (None, faults)
}

fn syntax(text: &str, error: &toml::de::Error) -> Fault {
    let span = error.span().unwrap_or_default();
    Fault {
        place: Place::Line(line_at(text, span.start)),
        key: String::new(),
        problem: format!("not TOML: {}", error.message()),
    }
}

/// The path of the key or value at these bytes; the innermost where several begin there.
fn path_of(table: &DeTable<'_>, span: &Range<usize>) -> Option<Vec<String>> {
    table.iter().find_map(|(name, value)| {
        let mut path = within(value, span);
        if path.is_none() && (name.span() == *span || value.span() == *span) {
            path = Some(Vec::new());
        }
        let mut path = path?;
        path.insert(0, name.get_ref().to_string());
        Some(path)
    })
}

fn within(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Vec<String>> {
    match value.get_ref() {
        DeValue::Table(table) => path_of(table, span),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            let here = || (item.span() == *span).then(Vec::new);
            let mut path = within(item, span).or_else(here)?;
            path.insert(0, index.to_string());
            Some(path)
        }),
        _ => None,
    }
}

/// Whether these bytes are a key, or a value that is no table: without it, its table is still there.
fn is_key(table: &DeTable<'_>, span: &Range<usize>) -> bool {
    table.iter().any(|(name, value)| {
        let plain = value.span() == *span && !value.get_ref().is_table();
        name.span() == *span || plain || is_key_within(value, span)
    })
}

fn is_key_within(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => is_key(table, span),
        DeValue::Array(items) => items.iter().any(|item| {
            let plain = item.span() == *span && !item.get_ref().is_table();
            plain || is_key_within(item, span)
        }),
        _ => false,
    }
}

/// Removes the innermost key, item or table at these bytes; whether there was one.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    if table
        .iter_mut()
        .any(|(_, value)| take_out_within(value, span))
    {
        return true;
    }
    let here = table.iter().find_map(|(name, value)| {
        let is_here = name.span() == *span || value.span() == *span;
        is_here.then(|| name.get_ref().to_string())
    });
    here.is_some_and(|name| table.remove(name.as_str()).is_some())
}

fn take_out_within(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => take_out(table, span),
        DeValue::Array(items) => {
            if items.iter_mut().any(|item| take_out_within(item, span)) {
                return true;
            }
            let before = items.len();
            let kept = items.iter().filter(|item| item.span() != *span).cloned();
            *items = kept.collect::<DeArray<'_>>();
            items.len() < before
        }
        _ => false,
    }
}
