//! Ladders: orders other than that of time.
//!
//! In:    a field that may be sorted by, or children that are counted; records.
//! Out:   the rung on which a record, or its author, stands.
//! Never: a number sorted as text; a record without a rung: one that lacks the
//!        field stands on the last.

use record::datetime;
use record::value::Value;

use super::page::Rung;
use super::plan::LaneId;
use crate::config::collection::Compared;

/// Bytes of a text by which it is sorted; texts that begin alike stand together.
const TEXT_BYTES_MAX: usize = 256;

/// What decides a rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Steps {
    /// A field of the record.
    Field {
        path: String,
        compared: Option<Compared>,
    },
    /// The items of a field that holds a list; a record stands on a rung for each, and is not sorted by them.
    Items {
        path: String,
        compared: Option<Compared>,
    },
    /// How many children stand under the record in a lane.
    Count { lane: LaneId, children: String },
    /// How many children stand under an account in a lane; accounts stand on it, each for all that it wrote.
    Renown { lane: LaneId, children: String },
}

/// One order of a collection's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    /// The text of all that decides its rows.
    pub spec: String,
    /// Whose records stand on it; empty where accounts do.
    pub nsid: String,
    pub steps: Steps,
}

impl Ladder {
    /// `timed` is the part of the spec that says which time orders records with equal values.
    pub(super) fn new(nsid: &str, steps: Steps, timed: &str) -> Self {
        let mut spec = match &steps {
            Steps::Field { path, compared } => match compared {
                Some(compared) => format!("{nsid} by {path} as {compared:?}"),
                None => format!("{nsid} by {path}"),
            },
            Steps::Items { path, compared } => match compared {
                Some(compared) => format!("{nsid} by items of {path} as {compared:?}"),
                None => format!("{nsid} by items of {path}"),
            },
            Steps::Count { children, .. } => format!("{nsid} by how many of {children}"),
            Steps::Renown { children, .. } => format!("accounts by how many of {children}"),
        };
        spec.push_str(timed);
        Self {
            spec,
            nsid: nsid.to_owned(),
            steps,
        }
    }

    /// Where a record stands by its field: on one rung, or on those of its items; on none of a ladder of counts.
    pub fn rungs(&self, record: &Value<'_>) -> Vec<Rung> {
        match &self.steps {
            Steps::Field { path, compared } => vec![rung(record.at(path), *compared)],
            Steps::Items { path, compared } => match record.at(path) {
                Some(Value::List(items)) => {
                    let mut rungs: Vec<Rung> = items
                        .iter()
                        .map(|item| rung(Some(item), *compared))
                        .filter(|rung| *rung != Rung::Missing)
                        .collect();
                    rungs.sort();
                    rungs.dedup();
                    rungs
                }
                _ => Vec::new(),
            },
            Steps::Count { .. } | Steps::Renown { .. } => Vec::new(),
        }
    }
}

/// The rung of a text that was asked for.
pub fn text_rung(text: &str) -> Rung {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Rung::Text(text.get(..end).unwrap_or_default().to_owned())
}

fn rung(value: Option<&Value<'_>>, compared: Option<Compared>) -> Rung {
    match (value, compared) {
        (Some(Value::Int(number)), None | Some(Compared::Number)) => Rung::Number(*number),
        (Some(Value::Bool(boolean)), None | Some(Compared::Boolean)) => {
            Rung::Number(i64::from(*boolean))
        }
        (Some(Value::Text(text)), Some(Compared::Time)) => {
            datetime::parse_us(text).map_or(Rung::Missing, Rung::Number)
        }
        (Some(Value::Text(text)), None | Some(Compared::Text)) => text_rung(text),
        _ => Rung::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, compared: Option<Compared>, expected: Rung) {
        const BODY: &str =
            r#"{"n": 5, "flag": true, "text": "b", "at": "1970-01-01T00:00:01Z", "list": [1]}"#;
        let record = record::json::from_json(BODY).unwrap();
        assert_eq!(rung(record.at(path), compared), expected, "{path}");
    }

    #[test]
    fn a_record_stands_by_what_its_field_holds_and_last_without_it() {
        check("n", None, Rung::Number(5));
        check("flag", None, Rung::Number(1));
        check("text", None, Rung::Text("b".into()));
        check("at", Some(Compared::Time), Rung::Number(1_000_000));
        check("text", Some(Compared::Time), Rung::Missing);
        check("n", Some(Compared::Text), Rung::Missing);
        check("list", None, Rung::Missing);
        check("nothing", None, Rung::Missing);
        assert!(Rung::Number(i64::MAX) < Rung::Text(String::new()));
    }
}
