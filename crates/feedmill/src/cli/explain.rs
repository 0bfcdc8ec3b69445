//! `feedmill explain`: why a record is, or is not, in a reader's feed.

use clap::Args;

use super::kept::Kept;
use super::{Ending, say};
use crate::store::explain::Explained;

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
        let reader = match self.reader.starts_with("did:") {
            true => self.reader.clone(),
            false => store
                .did_of(&self.reader.to_ascii_lowercase())?
                .ok_or_else(|| {
                    format!("{:?} is neither a DID nor a handle known here", self.reader)
                })?,
        };
        let feeds: Vec<String> = match &self.feed {
            Some(feed) => vec![feed.clone()],
            None => store
                .plan()
                .feeds
                .iter()
                .map(|feed| feed.name.clone())
                .collect(),
        };
        for feed in feeds {
            let answer = store.explain(&feed, &reader, &self.uri)?;
            let answer = answer.ok_or_else(|| format!("there is no feed {feed:?}"))?;
            if self.json {
                say(&serde_json::to_string(&answer)?);
            } else {
                tell(&answer);
            }
        }
        Ok(())
    }
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
