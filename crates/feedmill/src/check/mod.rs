//! Checking: whether a record is what its collection says it is.
//!
//! In:    a record's bytes, and where they claim to belong.
//! Out:   a [`Verdict`]: a record ready for the store, or a dead letter that
//!        says which field is at fault, what was expected and what was there.
//! Never: a panic, whatever the bytes; a record kept that was not understood.
//!
//! Everything that can be known from the record alone is worked out here,
//! once: its JSON, its time, its references, its keys.

mod rule;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use record::cid::Cid;
use record::lexicon::{Catalog, LexiconError};
use record::value::Value;
use record::{cbor, datetime, json, links};

use crate::config::Config;
use crate::store::batch::{DeadLetter, Put, Verdict};
use crate::store::plan::Plan;

/// Bytes of a faulty record kept with its dead letter.
const RAW_BYTES_MAX: usize = 100_000;

/// Why the checks cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A lexicon folder or file cannot be read.
    #[error("cannot read lexicons at {path}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A lexicon is wrong.
    #[error("lexicon {path}")]
    Wrong {
        path: PathBuf,
        #[source]
        source: LexiconError,
    },
    /// A collection is to be checked, and nothing says how.
    #[error(
        "collections.{short}: no lexicon for {nsid} in the folders of `lexicons`; add it, or set validate = false"
    )]
    Missing { short: String, nsid: String },
    /// Several of the above.
    #[error("{} errors{}", .0.len(), listed(.0))]
    Several(Vec<CheckError>),
}

fn listed(faults: &[CheckError]) -> String {
    let lines = faults.iter().map(|fault| format!("\n  {}", chain(fault)));
    lines.collect()
}

impl CheckError {
    /// Each of them with its cause, on a line of its own.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Several(faults) => faults.iter().map(|fault| chain(fault)).collect(),
            one => vec![chain(one)],
        }
    }
}

/// Checks records.
#[derive(Debug)]
pub struct Checker {
    plan: Arc<Plan>,
    catalog: Catalog,
    rules: HashMap<String, Rule>,
    record_bytes_max: usize,
}

#[derive(Debug)]
struct Rule {
    validate: bool,
    time_path: Option<String>,
    links: Vec<String>,
}

/// Where a record claims to belong.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    pub did: &'a str,
    pub collection: &'a str,
    pub rkey: &'a str,
    pub rev: u64,
}

impl Checker {
    /// The checks of a configuration; `built_in` lexicons come before those of the folders.
    pub fn new(config: &Config, plan: Arc<Plan>, built_in: &[&str]) -> Result<Self, CheckError> {
        let catalog = lexicons(config, built_in)?;
        let mut rules = HashMap::new();
        for collection in config.collections.values() {
            let nsid = &collection.collection;
            rules.insert(
                nsid.clone(),
                Rule {
                    validate: collection.validate,
                    time_path: collection.time_path().map(str::to_owned),
                    // A field by which records are looked up must be found again.
                    links: collection
                        .links
                        .iter()
                        .chain(plan.needs.fields(nsid))
                        .cloned()
                        .collect(),
                },
            );
        }
        Ok(Self {
            plan,
            catalog,
            rules,
            record_bytes_max: config.intake.record_bytes_max,
        })
    }

    /// Whether records of this collection are kept.
    pub fn wants(&self, nsid: &str) -> bool {
        self.rules.contains_key(nsid)
    }

    /// Checks a record that came as DAG-CBOR.
    pub fn cbor(&self, claim: Claim<'_>, cid: Cid, block: &[u8]) -> Verdict {
        if block.len() > self.record_bytes_max {
            return self.too_big(claim, block.len());
        }
        match cbor::decode(block) {
            Ok(value) => {
                let body = text(&value, block.len() + block.len() / 2);
                self.value(claim, Some(cid), &value, body)
            }
            Err(error) => Verdict::Refused(DeadLetter {
                stage: "decode".into(),
                cid: cid.to_string(),
                message: chain(&error),
                raw: bytes_for_inspection(block),
                ..letter(claim)
            }),
        }
    }

    /// Checks a record that came as JSON.
    pub fn json(&self, claim: Claim<'_>, cid: Option<Cid>, text: &str) -> Verdict {
        if text.len() > self.record_bytes_max.saturating_mul(2) {
            return self.too_big(claim, text.len());
        }
        match json::from_json(text) {
            Ok(value) => {
                let body = self::text(&value, text.len());
                self.value(claim, cid, &value, body)
            }
            Err(error) => Verdict::Refused(DeadLetter {
                stage: "decode".into(),
                message: chain(&error),
                raw: shortened(text.as_bytes()),
                ..letter(claim)
            }),
        }
    }

    fn too_big(&self, claim: Claim<'_>, bytes: usize) -> Verdict {
        Verdict::Refused(DeadLetter {
            stage: "size".into(),
            message: "the record is larger than the limit".into(),
            expected: format!("at most {} bytes", self.record_bytes_max),
            received: format!("{bytes} bytes"),
            ..letter(claim)
        })
    }

    fn value(
        &self,
        claim: Claim<'_>,
        cid: Option<Cid>,
        value: &Value<'_>,
        body: String,
    ) -> Verdict {
        let Some(rule) = self.rules.get(claim.collection) else {
            return Verdict::Delete; // not asked for: the caller filters first
        };
        if rule.validate {
            let fault = self
                .catalog
                .validate(claim.collection, value)
                .and_then(|()| self.catalog.validate_key(claim.collection, claim.rkey));
            if let Err(fault) = fault {
                let letter = DeadLetter {
                    stage: "lexicon".into(),
                    message: fault.to_string(),
                    path: fault.path.clone(),
                    expected: fault.expected.clone(),
                    received: fault.received.clone(),
                    ..DeadLetter::default()
                };
                return refused(claim, cid, body, letter);
            }
        }
        if let Some(letter) = rule::broken(&self.plan, claim, value) {
            return refused(claim, cid, body, letter);
        }
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |path: &str, target: &str| found.push((path.to_owned(), target.to_owned()));
        self.catalog.links(claim.collection, value, &mut add);
        for path in &rule.links {
            links::along(value, path, &mut add);
        }
        found.sort_unstable();
        found.dedup();
        let time = rule
            .time_path
            .as_ref()
            .and_then(|path| value.at(path)?.text());
        Verdict::Put(Put {
            cid,
            time_us: time.and_then(datetime::parse_us),
            seen_us: None,
            links: found,
            derived: self.plan.derive(claim.collection, claim.did, value),
            body,
        })
    }
}

/// A record that was understood and is at fault. It is kept whole, so that it can be replayed.
fn refused(claim: Claim<'_>, cid: Option<Cid>, body: String, fault: DeadLetter) -> Verdict {
    Verdict::Refused(DeadLetter {
        did: claim.did.to_owned(),
        collection: claim.collection.to_owned(),
        rkey: claim.rkey.to_owned(),
        rev: claim.rev,
        cid: cid.map(|cid| cid.to_string()).unwrap_or_default(),
        raw: body,
        ..fault
    })
}

/// A record as JSON text, which will have about so many bytes.
fn text(value: &Value<'_>, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    json::to_json(value, &mut text);
    text
}

fn letter(claim: Claim<'_>) -> DeadLetter {
    DeadLetter {
        did: claim.did.to_owned(),
        collection: claim.collection.to_owned(),
        rkey: claim.rkey.to_owned(),
        rev: claim.rev,
        ..DeadLetter::default()
    }
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Bytes that are not text, as they are kept with a dead letter.
pub fn bytes_for_inspection(bytes: &[u8]) -> String {
    let kept = bytes.get(..RAW_BYTES_MAX).unwrap_or(bytes);
    base64::engine::general_purpose::STANDARD.encode(kept)
}

fn shortened(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..RAW_BYTES_MAX).unwrap_or(text)).into_owned()
}

fn parse(path: &Path, text: &str) -> Result<record::lexicon::Document, CheckError> {
    record::lexicon::Document::parse(text).map_err(|source| CheckError::Wrong {
        path: path.to_owned(),
        source,
    })
}

/// The lexicons of a configuration, or every one that is wrong or missing; `built_in` ones come before
/// those of the folders.
pub fn lexicons(config: &Config, built_in: &[&str]) -> Result<Catalog, CheckError> {
    let mut faults = Vec::new();
    let mut documents = Vec::new();
    for text in built_in {
        documents.push(parse(Path::new("(built in)"), text)?);
    }
    for dir in &config.lexicons {
        read_folder(dir, &mut documents, &mut faults);
    }
    // Without the files at fault, lexicons that others name may be missing.
    if !faults.is_empty() {
        return Err(several(faults));
    }
    let catalog = Catalog::new(documents).map_err(|source| CheckError::Wrong {
        path: "(all together)".into(),
        source,
    })?;
    let collections = config.collections.iter();
    let missing = collections.filter(|(_, it)| it.validate && !catalog.describes(&it.collection));
    faults.extend(missing.map(|(short, collection)| CheckError::Missing {
        short: short.clone(),
        nsid: collection.collection.clone(),
    }));
    match faults.is_empty() {
        true => Ok(catalog),
        false => Err(several(faults)),
    }
}

/// One fault as it is, several as a list.
fn several(mut faults: Vec<CheckError>) -> CheckError {
    match faults.len() {
        1 => faults.remove(0),
        _ => CheckError::Several(faults),
    }
}

fn read_folder(
    dir: &Path,
    documents: &mut Vec<record::lexicon::Document>,
    faults: &mut Vec<CheckError>,
) {
    let entries = std::fs::read_dir(dir).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<Result<Vec<PathBuf>, _>>()
    });
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(source) => {
            let path = dir.to_owned();
            return faults.push(CheckError::Unreadable { path, source });
        }
    };
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_folder(&path, documents, faults);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            match read_file(&path) {
                Ok(document) => documents.push(document),
                Err(fault) => faults.push(fault),
            }
        }
    }
}

fn read_file(path: &Path) -> Result<record::lexicon::Document, CheckError> {
    let text = std::fs::read_to_string(path).map_err(|source| CheckError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text)
}
