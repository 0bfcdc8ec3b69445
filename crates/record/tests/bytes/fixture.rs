//! Where the interop vectors of the AT Protocol are found.

use std::path::Path;

/// The text of one interop file; `None` only if the environment says that
/// this machine has none.
pub(crate) fn text(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/interop");
    match std::fs::read_to_string(folder.join(name)) {
        Ok(text) => Some(text),
        Err(error) if std::env::var_os("FEEDMILL_NO_FIXTURES").is_some_and(|on| on == "1") => {
            eprintln!("NOT TESTED: {name} is missing ({error}) and FEEDMILL_NO_FIXTURES is set");
            None
        }
        Err(error) => panic!("{name} is missing: {error}; set FEEDMILL_NO_FIXTURES=1 to go on"),
    }
}

/// The same as JSON.
pub(crate) fn json(name: &str) -> Option<serde_json::Value> {
    text(name).map(|text| serde_json::from_str(&text).unwrap())
}
