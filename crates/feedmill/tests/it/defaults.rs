//! The documented defaults, made again from the typed configuration.
//!
//! `config/template.toml` shows each key with the default in force, and
//! `docs/configuration.md` shows that file. Here both are derived from what the
//! types say; where they differ the difference is printed, and
//! `FEEDMILL_BLESS=1` writes them as they should be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use feedmill::config::{Config, TEMPLATE};
use serde_json::Value;

/// The key that a line of TOML sets, behind one of the marks.
fn key_of<'a>(line: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let (key, rest) = line.strip_prefix(mark)?.split_once(" = ")?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    key.chars().all(word).then_some((key, rest))
}

/// A value and the comment behind it: the longest part of the line that is TOML.
fn parsed(rest: &str) -> Option<(Value, &str, &str)> {
    let ends = rest.match_indices(" #").map(|(at, _)| at);
    let mut ends: Vec<usize> = ends.chain([rest.len()]).collect();
    ends.sort_unstable();
    ends.into_iter().find_map(|end| {
        let (value, comment) = rest.split_at(end);
        let table: toml::Table = format!("x = {value}").parse().ok()?;
        let value_json = serde_json::to_value(table.get("x")?).ok()?;
        Some((value_json, value, comment))
    })
}

fn as_toml(value: &Value) -> String {
    let value: toml::Value = serde_json::from_value(value.clone()).expect("no null inside");
    value.to_string()
}

/// The table of a dotted name; of a list, its first.
fn table_at<'v>(typed: &'v Value, name: &str) -> Option<&'v Value> {
    let mut parts = name.split('.').filter(|part| !part.is_empty());
    parts.try_fold(typed, |here, part| {
        let found = here.get(part)?;
        Some(found.get(0).unwrap_or(found))
    })
}

/// The template under way.
struct Writer<'a> {
    typed: &'a Value,
    lines: Vec<String>,
    /// Dotted name of the table that lines belong to, and the keys it has shown.
    table: String,
    seen: BTreeSet<String>,
    tables: BTreeSet<String>,
}

impl Writer<'_> {
    fn typed(&self, key: &str) -> Option<&Value> {
        table_at(self.typed, &self.table)?.get(key)
    }

    fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix('[') {
            self.close();
            self.table = name
                .trim_start_matches('[')
                .split(']')
                .next()
                .unwrap()
                .to_owned();
            self.tables.insert(self.table.clone());
        }
        if let Some((key, rest)) = key_of(line, "#: ") {
            self.seen.insert(key.to_owned());
            let typed = self.typed(key).filter(|value| !value.is_null()).cloned();
            // A key that the types do not know, or that has no default, is not shown as one.
            let Some(typed) = typed else { return };
            let (shown, text, comment) = parsed(rest).unwrap_or((Value::Null, "", ""));
            if shown != typed {
                let padding = " ".repeat(text.len() - text.trim_end().len());
                self.lines
                    .push(format!("#: {key} = {}{padding}{comment}", as_toml(&typed)));
                return;
            }
        } else if let Some((key, _)) = key_of(line, "# ").or(key_of(line, "")) {
            self.seen.insert(key.to_owned());
        }
        self.lines.push(line.to_owned());
    }

    /// Adds what the table has and the text did not show, before the blank line that ends it.
    fn close(&mut self) {
        let table = table_at(self.typed, &self.table);
        let seen = std::mem::take(&mut self.seen);
        let Some(Value::Object(fields)) = table else {
            return;
        };
        // The first of a kind shows what there is; the others only what they set.
        let (kind, _) = self.table.split_once('.').unwrap_or((&self.table, ""));
        let siblings = self
            .tables
            .iter()
            .filter(|other| other.split('.').next() == Some(kind));
        if !self.table.is_empty() && siblings.count() > 1 {
            return;
        }
        let missing: Vec<String> = fields
            .iter()
            .filter(|(key, value)| !seen.contains(*key) && !value.is_null() && !is_table(value))
            .map(|(key, value)| format!("#: {key} = {}", as_toml(value)))
            .collect();
        let tail = self
            .lines
            .iter()
            .rposition(|line| !line.is_empty() && !line.starts_with("# "))
            .map_or(0, |at| at + 1);
        self.lines.splice(tail..tail, missing);
    }
}

/// Whether it has a section of its own.
fn is_table(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => items.first().is_some_and(Value::is_object),
        _ => false,
    }
}

/// The template as the types would have it.
fn derived(typed: &Value) -> String {
    let mut writer = Writer {
        typed,
        lines: Vec::new(),
        table: String::new(),
        seen: BTreeSet::new(),
        tables: BTreeSet::new(),
    };
    for line in TEMPLATE.lines() {
        writer.line(line);
    }
    writer.close();
    let sections = typed.as_object().unwrap().iter();
    for (name, _) in sections.filter(|(_, value)| value.is_object() && is_table(value)) {
        let shown = |table: &String| table == name || table.starts_with(&format!("{name}."));
        if !writer.tables.iter().any(shown) {
            writer.lines.extend([String::new(), format!("[{name}]")]);
            writer.table.clone_from(name);
            writer.tables.insert(name.clone());
            writer.close();
        }
    }
    writer.lines.join("\n") + "\n"
}

fn difference(is: &str, should: &str) -> String {
    let (left, right): (Vec<&str>, Vec<&str>) = (is.lines().collect(), should.lines().collect());
    let gone = left.iter().filter(|line| !right.contains(line));
    let new = right.iter().filter(|line| !left.contains(line));
    let gone = gone.map(|line| format!("- {line}\n"));
    gone.chain(new.map(|line| format!("+ {line}\n"))).collect()
}

/// Holds a file against what it should be, or makes it so.
fn hold(path: &Path, is: &str, should: &str) -> Result<(), String> {
    if is == should {
        return Ok(());
    }
    if std::env::var_os("FEEDMILL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path, should).unwrap();
        return Ok(());
    }
    Err(format!("{}:\n{}", path.display(), difference(is, should)))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn typed() -> Value {
    serde_json::to_value(Config::parse(TEMPLATE).unwrap()).unwrap()
}

#[test]
fn the_documented_defaults_are_those_of_the_types() {
    let template = derived(&typed());
    let page = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let (before, rest) = page.split_once("```toml\n").unwrap();
    let (_, after) = rest.split_once("\n```").unwrap();
    let faults: Vec<String> = [
        hold(
            &root().join("crates/feedmill/src/config/template.toml"),
            TEMPLATE,
            &template,
        ),
        hold(
            &root().join("docs/configuration.md"),
            &page,
            &format!("{before}```toml\n{template}```{after}"),
        ),
    ]
    .into_iter()
    .filter_map(Result::err)
    .collect();
    assert!(
        faults.is_empty(),
        "defaults are documented as they are not; FEEDMILL_BLESS=1 writes them:\n{}",
        faults.join("\n")
    );
}

/// What has no default is shown as a comment, or in the page's table.
#[test]
fn every_key_without_a_default_is_documented_too() {
    let page = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let mut silent = Vec::new();
    for (section, value) in typed().as_object().unwrap() {
        let tables: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) if matches!(&**section, "collections" | "feeds") => {
                fields.values().collect()
            }
            other => vec![other],
        };
        for (key, _) in tables
            .iter()
            .filter_map(|table| table.as_object())
            .flatten()
            .filter(|(_, value)| value.is_null())
        {
            let shown = TEMPLATE.lines().any(|line| {
                key_of(line, "# ")
                    .or(key_of(line, ""))
                    .is_some_and(|(name, _)| name == key)
            });
            let told = page.lines().any(|line| {
                line.starts_with(&format!("| `{section}.{key}`"))
                    || (line.starts_with(&format!("| `{section}.<"))
                        && line.contains(&format!(".{key}`")))
            });
            if !shown && !told {
                silent.push(format!("{section}.{key}"));
            }
        }
    }
    assert!(
        silent.is_empty(),
        "in neither template.toml nor docs/configuration.md: {silent:?}"
    );
}

#[test]
fn a_default_that_changed_in_the_types_shows_in_the_template() {
    let mut changed = typed();
    changed["intake"]["batch_max"] = 77.into();
    changed["serve"]["new_limit_max"] = 5.into();
    changed["serve"]["bind"] = Value::Null;
    let lines = difference(TEMPLATE, &derived(&changed));
    assert!(
        lines.contains("- #: batch_max = 10000 ") && lines.contains("+ #: batch_max = 77 "),
        "{lines}"
    );
    assert!(lines.contains("+ #: new_limit_max = 5"), "{lines}");
    assert!(lines.contains("- #: bind"), "{lines}");
}
