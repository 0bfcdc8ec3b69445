//! `{ns}.lexicons`: the lexicons of the records we keep, for code generators.
//!
//! In:    the folders of `lexicons` in the configuration, read once at start.
//! Out:   `{"lexicons": […]}` in the order of their ids.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tracing::warn;

/// Folders within folders that are looked into.
const DEPTH_MAX: usize = 16;

/// The answer; `None` if there is no lexicon.
pub(super) fn bundle(folders: &[std::path::PathBuf]) -> Option<String> {
    let mut found = BTreeMap::new();
    for folder in folders {
        if let Err(error) = gather(folder, DEPTH_MAX, &mut found) {
            // The checks refuse such a folder at start; here it is only not shown.
            warn!(folder = %folder.display(), %error, "lexicons cannot be read");
        }
    }
    let lexicons: Vec<Value> = found.into_values().collect();
    (!lexicons.is_empty()).then(|| json!({ "lexicons": lexicons }).to_string())
}

fn gather(folder: &Path, room: usize, found: &mut BTreeMap<String, Value>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && room > 0 {
            gather(&path, room - 1, found)?;
        } else if path.extension().is_some_and(|end| end == "json") {
            let lexicon: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
            if let Some(id) = lexicon.get("id").and_then(Value::as_str) {
                found.insert(id.to_owned(), lexicon.clone());
            }
        }
    }
    Ok(())
}
