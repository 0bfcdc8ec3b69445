//! Test vectors of our own, from `tests/vectors`.
//!
//! `make.py` computes those that need arithmetic and shares no code with the
//! crate; lexicons and records are written by hand.

use std::path::{Path, PathBuf};

use record::lexicon::Catalog;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// One file of vectors, such as `keys`.
pub(crate) fn json(name: &str) -> serde_json::Value {
    let file = folder().join(name).with_extension("json");
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// The cases of a file that is one list.
pub(crate) fn cases(name: &str) -> Vec<serde_json::Value> {
    let serde_json::Value::Array(cases) = json(name) else {
        panic!("{name} is not a list");
    };
    assert!(!cases.is_empty(), "{name} is empty");
    cases
}

/// The lexicons of a garden, which use every part of the lexicon language.
pub(crate) fn lexicons() -> Vec<(PathBuf, String)> {
    json_below(folder().join("lexicons"))
}

/// The same, linked.
pub(crate) fn catalog() -> Catalog {
    Catalog::parse(lexicons().iter().map(|(_, text)| text.as_str())).unwrap()
}

/// The bytes that `text` writes in hexadecimal.
pub(crate) fn unhex(text: &serde_json::Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The texts of all JSON files below a folder, by path.
pub(crate) fn json_below(folder: PathBuf) -> Vec<(PathBuf, String)> {
    let mut folders = vec![folder];
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
    texts
}
