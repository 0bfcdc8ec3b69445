//! Filters: which records of a page are shown.
//!
//! In:    a field's path, a test, and what a caller typed.
//! Out:   whether a record passes.
//! Never: a number compared as text; a record that passes because its field is missing.
//!
//! What was typed is text; the record's own value says how it is compared:
//! numbers as numbers, booleans as themselves, times as moments whatever
//! their zone, everything else as text. A field with a declared kind takes
//! that one only.

use std::cmp::Ordering;

use record::datetime;
use record::value::Value;

use super::ladder::text_rung;
use super::page::Rung;
use super::search::Search;

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Boolean,
    Time,
}

/// What a caller typed, in every way it can be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    text: Option<String>,
    number: Option<i64>,
    boolean: Option<bool>,
    time: Option<i64>,
}

impl Operand {
    /// What `text` can mean; only as `kind`, if one is declared. `None` if it cannot be that.
    pub fn parse(text: &str, kind: Option<Kind>) -> Option<Self> {
        let may = |one| kind.is_none() || kind == Some(one);
        let operand = Self {
            text: may(Kind::Text).then(|| text.to_owned()),
            number: text.parse().ok().filter(|_| may(Kind::Number)),
            boolean: text.parse().ok().filter(|_| may(Kind::Boolean)),
            time: datetime::parse_us(text).filter(|_| may(Kind::Time)),
        };
        let means = operand.text.is_some()
            || operand.number.is_some()
            || operand.boolean.is_some()
            || operand.time.is_some();
        means.then_some(operand)
    }

    /// The rungs on which a record stands whose value equals this; `None` if no few of them do.
    pub fn rungs(&self) -> Option<Vec<Rung>> {
        let declared = self.text.is_none();
        match self.time {
            // Equal moments may be written as different texts.
            Some(_) if !declared => None,
            Some(time) => Some(vec![Rung::Number(time)]),
            None => {
                let boolean = self.boolean.map(i64::from);
                let numbers = self.number.into_iter().chain(boolean).map(Rung::Number);
                let texts = self.text.iter().map(|text| text_rung(text));
                Some(numbers.chain(texts).collect())
            }
        }
    }

    /// How a record's value compares to it; `None` if it does not.
    fn compare(&self, value: &Value<'_>) -> Option<Ordering> {
        match value {
            Value::Int(number) => Some(number.cmp(&self.number?)),
            Value::Bool(boolean) => Some(boolean.cmp(&self.boolean?)),
            Value::Text(text) => match (self.time, datetime::parse_us(text)) {
                (Some(asked), Some(time)) => Some(time.cmp(&asked)),
                _ => Some(text.as_ref().cmp(self.text.as_deref()?)),
            },
            _ => None,
        }
    }
}

/// How a value must compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    Equal,
    AtLeast,
    AtMost,
}

/// What a record must pass to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    Field(Field),
    Search(Search),
}

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Dotted path of the field.
    pub path: String,
    pub test: Test,
    pub operand: Operand,
}

impl Field {
    /// Whether a record passes. A list passes an equality if one of its items does.
    pub fn admits(&self, record: &Value<'_>) -> bool {
        match record.at(&self.path) {
            Some(Value::List(items)) => {
                self.test == Test::Equal && items.iter().any(|item| self.passes(item))
            }
            Some(value) => self.passes(value),
            None => false,
        }
    }

    fn passes(&self, value: &Value<'_>) -> bool {
        let Some(order) = self.operand.compare(value) else {
            return false;
        };
        match self.test {
            Test::Equal => order.is_eq(),
            Test::AtLeast => order.is_ge() && !matches!(value, Value::Bool(_)),
            Test::AtMost => order.is_le() && !matches!(value, Value::Bool(_)),
        }
    }
}

/// Whether a stored body passes all of them.
pub fn admit(filters: &[Filter], body: &str) -> bool {
    filters.is_empty()
        || record::json::from_json(body).is_ok_and(|record| {
            filters.iter().all(|filter| match filter {
                Filter::Field(field) => field.admits(&record),
                Filter::Search(search) => search.admits(&record),
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, test: Test, typed: &str, expected: bool) {
        const BODY: &str = r#"{"n": 100, "flag": true, "text": "b", "at": "2026-01-01T00:00:00Z",
            "langs": ["en", "de"], "deep": {"n": 5}, "digits": "100"}"#;
        let operand = Operand::parse(typed, None).unwrap();
        let filter = Filter::Field(Field {
            path: path.into(),
            test,
            operand,
        });
        assert_eq!(admit(&[filter], BODY), expected, "{path} {test:?} {typed}");
    }

    #[test]
    fn numbers_compare_as_numbers() {
        check("n", Test::Equal, "100", true);
        check("n", Test::AtMost, "20", false);
        check("n", Test::AtLeast, "20", true);
        check("n", Test::AtLeast, "100", true);
        check("n", Test::Equal, "abc", false);
        check("deep.n", Test::AtMost, "5", true);
    }

    #[test]
    fn booleans_match_themselves() {
        check("flag", Test::Equal, "true", true);
        check("flag", Test::Equal, "false", false);
        check("flag", Test::AtLeast, "false", false);
    }

    #[test]
    fn times_compare_as_moments() {
        check("at", Test::Equal, "2026-01-01T01:00:00+01:00", true);
        check("at", Test::AtLeast, "2025-12-31T23:59:59Z", true);
        check("at", Test::AtMost, "2025-12-31T23:59:59Z", false);
    }

    #[test]
    fn text_compares_as_text_and_a_list_by_its_items() {
        check("text", Test::Equal, "b", true);
        check("text", Test::AtLeast, "c", false);
        check("digits", Test::AtMost, "20", true);
        check("langs", Test::Equal, "de", true);
        check("langs", Test::Equal, "fr", false);
    }

    #[test]
    fn a_missing_field_passes_nothing() {
        for test in [Test::Equal, Test::AtLeast, Test::AtMost] {
            check("nothing", test, "", false);
        }
    }

    #[test]
    fn a_declared_kind_takes_nothing_else() {
        assert_eq!(Operand::parse("abc", Some(Kind::Number)), None);
        assert_eq!(Operand::parse("yes", Some(Kind::Boolean)), None);
        assert_eq!(Operand::parse("yesterday", Some(Kind::Time)), None);
        assert!(Operand::parse("5", Some(Kind::Text)).is_some());
    }
}
