//! `feedmill explain`: why a record is, or is not, in a reader's feed.

use clap::Args;
use record::ids::{Did, UriParts};

use super::kept::Kept;
use super::{Ending, say};
use crate::clock::Clock;
use crate::local::Names;
use crate::store::SharedStore;
use crate::store::explain::{self, Explained, Reason};
use crate::store::plan::FeedPlan;

/// Which record, whose feed.
#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    kept: Kept,
    /// The reader: a DID, a handle, or the id that an app gave (404)
    #[arg(long)]
    reader: String,
    /// The record: at://did/collection/rkey, or the id that an app gave (1050)
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
        let (store, config) = self.kept.open()?;
        let names = Names::of(&config);
        let reader = reader(&store, names, &self.reader)?;
        let mut told = false;
        for feed in feeds(&store, self.feed.as_deref())? {
            let Some(uri) = uri(&store, names, feed, &self.uri)? else {
                continue; // an app's id, and the feed shows nothing of an app's
            };
            let Some(answer) = store.explain(&feed.name, &reader, &uri)? else {
                continue; // the feed was just found in the same plan
            };
            told = true;
            let first_read = store.first_read(&reader, &feed.name, Clock::Wall.now_us())?;
            let answer = answer.given(&reader, first_read, config.has_whole_accounts());
            if self.json {
                say(&serde_json::to_string(&answer)?);
            } else {
                tell(&answer);
            }
        }
        if !told {
            return Err(nameless(&self.uri).into());
        }
        Ok(())
    }
}

/// The feeds that are asked about.
fn feeds<'a>(store: &'a SharedStore, wanted: Option<&str>) -> Result<Vec<&'a FeedPlan>, Ending> {
    let plan = store.plan();
    let Some(name) = wanted else {
        return Ok(plan.feeds.iter().collect());
    };
    match plan.feed(name) {
        Some(feed) => Ok(vec![feed]),
        None => {
            let known: Vec<&str> = plan.feeds.iter().map(|feed| feed.name.as_str()).collect();
            Err(format!("no feed {name:?}; there are: {}", known.join(", ")).into())
        }
    }
}

/// The DID of who reads: not every DID can.
fn reader(store: &SharedStore, names: Names, actor: &str) -> Result<String, Ending> {
    let did = did(store, names, actor)?;
    match names.is_account(&did) {
        true => Ok(did),
        false => Err(unnamed(names, actor).into()),
    }
}

fn unnamed(names: Names, actor: &str) -> String {
    format!("{actor:?} names nobody: {}", names.accepted())
}

/// The DID behind a DID, a handle, or an id that an app gave.
fn did(store: &SharedStore, names: Names, actor: &str) -> Result<String, Ending> {
    if Did::is_valid(actor) {
        return Ok(actor.to_owned());
    }
    if let Some(person) = names.person(actor) {
        return Ok(person);
    }
    if !names.is_handle(actor) {
        return Err(unnamed(names, actor).into());
    }
    let found = store.did_of(&actor.to_ascii_lowercase())?;
    Ok(found.ok_or_else(|| format!("{actor:?} is the handle of nobody known here"))?)
}

/// The URI of a record, with its authority resolved to a DID; or that of the record to which an app
/// gave this id, which not every feed can show.
fn uri(
    store: &SharedStore,
    names: Names,
    feed: &FeedPlan,
    text: &str,
) -> Result<Option<String>, Ending> {
    if !text.starts_with("at://") {
        return match names.record(text) {
            Some(id) => Ok(explain::meant(store, feed, &id)?),
            None => Ok(None),
        };
    }
    let parts = UriParts::parse(text).ok();
    let named = parts.and_then(|parts| Some((parts.authority, parts.collection?, parts.rkey?)));
    let (authority, collection, rkey) = named.ok_or_else(|| nameless(text))?;
    let did = did(store, names, authority)?;
    Ok(Some(format!("at://{did}/{collection}/{rkey}")))
}

fn nameless(text: &str) -> String {
    format!(
        "{text:?} names no record; give at://did/collection/rkey, or the id of a record written directly"
    )
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
