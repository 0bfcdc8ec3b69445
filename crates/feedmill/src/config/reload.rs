//! What changed between two configurations, by key.
//!
//! In:    the configuration in force, and the file as it is now.
//! Out:   the dotted keys whose values differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Config;

/// The keys whose values differ, in order.
pub fn changed(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (leaves(old), leaves(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = keys
        .into_iter()
        .filter(|key| old.get(*key) != new.get(*key));
    differing.cloned().collect()
}

/// Every value that is no table, under its dotted key.
fn leaves(config: &Config) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    // It was read from text, so it can be written as text.
    let value = serde_json::to_value(config).unwrap_or_default();
    gather(String::new(), value, &mut leaves);
    leaves
}

fn gather(key: String, value: Value, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) => {
            for (name, value) in table {
                let key = match key.is_empty() {
                    true => name,
                    false => format!("{key}.{name}"),
                };
                gather(key, value, leaves);
            }
        }
        Value::Null => {} // as if it were not there
        value => drop(leaves.insert(key, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_by_its_key() {
        let config = |text: &str| {
            let text = format!(
                "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n{text}"
            );
            Config::parse(&text).unwrap()
        };
        let old = config("[serve]\nrate_max = 7\n");
        assert!(changed(&old, &old.clone()).is_empty());
        let new = config("searchable = [\"text\"]\n[serve]\nrate_max = 8\n[store]\nreaders = 2\n");
        let keys = [
            "collections.post.searchable",
            "serve.rate_max",
            "store.readers",
        ];
        assert_eq!(changed(&old, &new), keys);
    }
}
