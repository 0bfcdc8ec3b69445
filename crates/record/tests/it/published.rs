//! Test vectors and lexicons that others published, which are not part of this
//! repository.
//!
//! In:    a path below `../shared/fixtures`, beside the clone.
//! Out:   the file; `None` where that folder is absent, and then one line for
//!        the whole run.
//! Never: a failure because they are absent, since vectors of our own hold the
//!        same rules; a file that is silently missing from a folder that is there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// The folder of published files, or `None` if it is absent.
fn root() -> Option<PathBuf> {
    static ABSENT: Once = Once::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    if root.is_dir() {
        return Some(root);
    }
    ABSENT.call_once(|| {
        // The macros would be captured with the output of a test that passes.
        let line = "record: no published vectors in ../shared/fixtures; testing our own only\n";
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    });
    None
}

/// The text of one file.
pub(crate) fn text(path: &str) -> Option<String> {
    let file = root()?.join(path);
    Some(std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// The lines of one file without comments; `None` also if it is not `required`
/// and absent.
pub(crate) fn lines(path: &str, required: bool) -> Option<Vec<String>> {
    if !required && !root()?.join(path).is_file() {
        return None;
    }
    let lines: Vec<String> = text(path)?
        .split('\n')
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty(), "{path} is empty");
    Some(lines)
}

/// The cases of a file that is one JSON list; none if the folder is absent.
pub(crate) fn cases(path: &str) -> Vec<serde_json::Value> {
    let Some(text) = text(path) else {
        return Vec::new();
    };
    let cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(!cases.is_empty(), "{path} is empty");
    cases
}

/// The texts of all JSON files below a folder, by path; none if the folder of
/// published files is absent.
pub(crate) fn texts_below(folder: &str) -> Vec<(PathBuf, String)> {
    let Some(root) = root() else {
        return Vec::new();
    };
    let texts = crate::vectors::json_below(root.join(folder));
    assert!(!texts.is_empty(), "{folder} holds no JSON");
    texts
}
