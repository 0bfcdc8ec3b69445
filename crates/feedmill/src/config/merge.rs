//! `merge`, `union`, `window` and `[feeds.<name>.activity]`: several records
//! of one author about one thing, shown as one entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Collection;
use super::fault::Found;

/// How a merged feed shows its activities, and by what they may be filtered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shown {
    /// The field under which the record that the merge key names is shown.
    pub subject: String,
    /// The field under which the records of the union are shown.
    pub union: String,
    /// Filters by name, read through the merge key's record.
    pub filter: BTreeMap<String, Reading>,
}

/// Where a filter of a merged feed reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Dotted path within the record that the merge key names.
    pub path: String,
    /// Short name of the one collection whose records have the field; any unless set.
    pub of: Option<String>,
    /// What a record without the field counts as.
    pub absent: Option<String>,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            subject: "subject".into(),
            union: "union".into(),
            filter: BTreeMap::new(),
        }
    }
}

/// Fields of an activity that are ours.
const FIELDS: [&str; 8] = [
    "id",
    "activityType",
    "createdAt",
    "time_us",
    "user",
    "records",
    "hasMoreRecords",
    "actorId",
];
/// Parameters of `getFollowingFeed` that are ours.
const PARAMETERS: [&str; 8] = [
    "feed",
    "actor",
    "limit",
    "cursor",
    "page",
    "beforeActivityId",
    "activityTypes",
    "count",
];

impl Shown {
    /// What makes no sense, with the key within the feed.
    pub(super) fn faults(&self, collections: &BTreeMap<String, Collection>, found: &mut Found) {
        let word = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let taken = |name: &str| FIELDS.contains(&name) || self.filter.contains_key(name);
        for (key, name) in [("subject", &self.subject), ("union", &self.union)] {
            found.unless(word(name) && !taken(name), format!("activity.{key}"), || {
                format!(
                    "{name:?} cannot name a field: take letters and digits, none of {}, and no filter's name",
                    FIELDS.join(", ")
                )
            });
        }
        found.unless(self.subject != self.union, "activity.union", || {
            "must differ from subject".into()
        });
        for (name, reading) in &self.filter {
            let is_ours = PARAMETERS.contains(&name.as_str()) || FIELDS.contains(&name.as_str());
            found.unless(
                word(name) && !is_ours,
                format!("activity.filter.{name}"),
                || {
                    format!(
                        "cannot name a filter: take letters and digits, and none of {}",
                        PARAMETERS.join(", ")
                    )
                },
            );
            reading.faults(&format!("activity.filter.{name}"), collections, found);
        }
    }
}

impl Reading {
    fn faults(&self, key: &str, collections: &BTreeMap<String, Collection>, found: &mut Found) {
        found.unless(!self.path.is_empty(), format!("{key}.path"), || {
            "names no field".into()
        });
        if let Some(short) = &self.of {
            found.unless(collections.contains_key(short), format!("{key}.of"), || {
                let known: Vec<&str> = collections.keys().map(String::as_str).collect();
                let known = known.join(", ");
                format!("{short:?} is not a collection's short name ({known})")
            });
        }
    }
}

/// A span of time as it is written: `90s`, `2m`, `1h`.
pub(super) fn span_us(text: &str) -> Option<i64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let number: u32 = number.parse().ok()?;
    i64::from(number).checked_mul(seconds * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit() {
        assert_eq!(span_us("2m"), Some(120_000_000));
        assert_eq!(span_us("90s"), Some(90_000_000));
        assert_eq!(span_us("1h"), Some(3_600_000_000));
        for wrong in ["", "m", "2", "2d", "-2m", "1.5m", "2 m", "é"] {
            assert_eq!(span_us(wrong), None, "{wrong}");
        }
    }
}
