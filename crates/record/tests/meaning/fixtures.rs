//! The shared fixtures, which are not part of this repository.
//!
//! A missing folder fails the test, loudly. Only `FEEDMILL_NO_FIXTURES=1`
//! lets it pass without having tested anything, and then it says so.

use std::path::{Path, PathBuf};

/// The text of one fixture. `None` if fixtures are switched off, or if the
/// file is absent and not `required`.
pub(crate) fn text(path: &str, required: bool) -> Option<String> {
    let root = root()?;
    match std::fs::read_to_string(root.join(path)) {
        Ok(text) => Some(text),
        Err(error) if required => panic!("fixture {path}: {error}"),
        Err(_) => None,
    }
}

/// The folder of fixtures, or `None` if they are switched off.
pub(crate) fn root() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    if root.is_dir() {
        return Some(root);
    }
    if std::env::var_os("FEEDMILL_NO_FIXTURES").is_some_and(|value| value == "1") {
        eprintln!("NOTHING TESTED: {} is missing", root.display());
        return None;
    }
    panic!(
        "fixtures are missing at {}; set FEEDMILL_NO_FIXTURES=1 to pass without them",
        root.display()
    );
}

/// The cases of a fixture that is one JSON list.
pub(crate) fn cases(path: &str) -> Option<Vec<serde_json::Value>> {
    let cases: Vec<serde_json::Value> = serde_json::from_str(&text(path, true)?).unwrap();
    assert!(!cases.is_empty(), "{path} is empty");
    Some(cases)
}

/// The texts of all JSON files below a folder, by path.
pub(crate) fn texts_below(folder: &str) -> Option<Vec<(PathBuf, String)>> {
    let mut folders = vec![root()?.join(folder)];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                texts.push((path, text));
            }
        }
    }
    assert!(!texts.is_empty(), "{folder} holds no JSON");
    Some(texts)
}
