//! `feedmill explain`: why a record is, or is not, in a reader's feed.

use clap::Args;
use record::ids::{Did, UriParts};

use super::kept::Kept;
use super::{Ending, say};
use crate::clock::Clock;
use crate::store::SharedStore;
use crate::store::explain::{Explained, Reason};

/// Which record, whose feed.
#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    kept: Kept,
    /// The reader: a DID or a handle
    #[arg(long)]
    reader: String,
    /// The record: at://did/collection/rkey
    #[arg(long)]
    uri: String,
    /// Only this feed; every feed unless set
    #[arg(long)]
    feed: Option<String>,
    /// One JSON line for each feed
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(self) -> Result<(), Ending> {
        let (store, _) = self.kept.open()?;
        let reader = did(&store, &self.reader)?;
        let uri = uri(&store, &self.uri)?;
        for feed in feeds(&store, self.feed.as_deref())? {
            let Some(answer) = store.explain(feed, &reader, &uri)? else {
                continue; // the feed was just found in the same plan
            };
            let first_read = store.first_read(&reader, feed, Clock::Wall.now_us())?;
            let answer = answer.given(&reader, first_read);
            if self.json {
                say(&serde_json::to_string(&answer)?);
            } else {
                tell(&answer);
            }
        }
        Ok(())
    }
}

/// The names of the feeds that are asked about.
fn feeds<'a>(store: &'a SharedStore, wanted: Option<&str>) -> Result<Vec<&'a str>, Ending> {
    let all = store.plan().feeds.iter().map(|feed| feed.name.as_str());
    let all: Vec<&str> = all.collect();
    let Some(name) = wanted else { return Ok(all) };
    match all.iter().find(|known| **known == name) {
        Some(known) => Ok(vec![known]),
        None => Err(format!("no feed {name:?}; there are: {}", all.join(", ")).into()),
    }
}

/// The DID behind a DID or a handle.
fn did(store: &SharedStore, actor: &str) -> Result<String, Ending> {
    if Did::is_valid(actor) {
        return Ok(actor.to_owned());
    }
    let found = store.did_of(&actor.to_ascii_lowercase())?;
    Ok(found.ok_or_else(|| format!("{actor:?} is neither a DID nor a handle known here"))?)
}

/// The URI of a record, with its authority resolved to a DID.
fn uri(store: &SharedStore, text: &str) -> Result<String, Ending> {
    let parts = UriParts::parse(text).ok();
    let named = parts.and_then(|parts| Some((parts.authority, parts.collection?, parts.rkey?)));
    let (authority, collection, rkey) =
        named.ok_or_else(|| format!("{text:?} names no record; give at://did/collection/rkey"))?;
    Ok(format!(
        "at://{}/{collection}/{rkey}",
        did(store, authority)?
    ))
}

fn tell(answer: &Explained) {
    let shown = if answer.shown { "shown" } else { "not shown" };
    say(&format!(
        "{}: {shown}: {}",
        answer.feed,
        answer.reason.sentence()
    ));
    if let Some(time_us) = answer.time_us {
        say(&format!(
            "  stands at {}",
            record::datetime::format_us(time_us)
        ));
    }
    match (answer.floor_us, &answer.reason) {
        (Some(floor_us), _) => say(&format!(
            "  the feed's floor is {}: it ends there",
            record::datetime::format_us(floor_us)
        )),
        (None, Reason::NotATarget { .. }) => {}
        (None, _) => say("  the feed has no floor: the store shows all there is"),
    }
    if let Some(begins) = &answer.begins {
        say(&format!("  in the group that begins with {begins}"));
    }
    for key in &answer.keys {
        say(&format!("  published under {key}"));
    }
    if let Some(rule) = &answer.rule {
        say(&format!("  by the rule {rule}"));
    }
    for via in &answer.follows {
        match &via.record {
            Some(record) => say(&format!("  followed by {record}")),
            None => say("  the reader's own"),
        }
    }
}
