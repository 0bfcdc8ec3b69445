//! Validates records, for a comparison with another validator.
//!
//! Arguments are folders of lexicons. Every line of standard input is
//! `{"nsid": …, "record": …}`; every line of standard output is the verdict on
//! it: `{"ok":true}`, or `{"ok":false,"stage":…,"path":[…],"expected":…,
//! "received":…,"message":…}`, in the same order.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::io::{BufRead, BufWriter, Write};
use std::path::PathBuf;

use record::json::from_json;
use record::lexicon::Catalog;
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct Line<'a> {
    nsid: &'a str,
    #[serde(borrow)]
    record: &'a RawValue,
}

fn main() -> Result<(), Box<dyn Error>> {
    let catalog = load(std::env::args_os().skip(1).map(PathBuf::from).collect())?;
    for name in catalog.missing() {
        eprintln!("no lexicon for {name}");
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        serde_json::to_writer(&mut out, &verdict(&catalog, &line?))?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

fn verdict(catalog: &Catalog, line: &str) -> serde_json::Value {
    let refused = |stage: &str, message: String| serde_json::json!({"ok": false, "stage": stage, "path": [], "message": message});
    let line: Line<'_> = match serde_json::from_str(line) {
        Ok(line) => line,
        Err(error) => return refused("line", error.to_string()),
    };
    let record = match from_json(line.record.get()) {
        Ok(record) => record,
        Err(error) => {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            return refused("json", format!("{error}: {cause}"));
        }
    };
    match catalog.validate(line.nsid, &record) {
        Ok(()) => serde_json::json!({"ok": true}),
        Err(fault) => serde_json::json!({
            "ok": false,
            "stage": "lexicon",
            "path": fault.path,
            "expected": fault.expected,
            "received": fault.received,
            "message": fault.message,
        }),
    }
}

/// All JSON files below the folders.
fn load(mut folders: Vec<PathBuf>) -> Result<Catalog, Box<dyn Error>> {
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                texts.push(std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(Catalog::parse(texts.iter().map(String::as_str))?)
}
