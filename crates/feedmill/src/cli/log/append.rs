//! `feedmill log append`: blocks to a server, or into the file of a replica.
//!
//! In:    contents, a feed, who writes.
//! Out:   a position for each; or, in a replica, its sequence: its position comes later.
//! Never: two replicas that write under one actor unless they are told to.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use blocklog::chain::{Draft, Sealed, Tip, next};
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::{Answer, AppendRequest, Fault, Reply, Request, RequestId};
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, LogStore as _, Role};
use clap::Args;
use replicate::sqlite::SqliteLog;
use serde_json::{Value, json};

use super::super::{Ending, say};
use super::key::{self, Keeper};
use super::{BATCH_MAX, Place, Trouble};
use crate::clock::Clock;

/// Appends tried while others write to the same feed.
pub(super) const ATTEMPTS_MAX: usize = 20;
/// Bytes of content sent in one append, unless one block alone has more.
const BATCH_BYTES_MAX: usize = 2 << 20;

/// What is written, and by whom.
#[derive(Debug, Args)]
pub(in crate::cli) struct Append {
    #[command(flatten)]
    place: Place,
    /// Write into this file, the replica of a space, instead of asking a server; `replicate` sends it
    #[arg(long, conflicts_with = "server")]
    file: Option<PathBuf>,
    /// The feed; the actor's own where absent
    #[arg(long)]
    feed: Option<String>,
    /// Who writes, by name; a key of this replica's own where absent, made at first use
    #[arg(long)]
    actor: Option<String>,
    /// The namespace that the feed gets if it is new
    #[arg(long)]
    namespace: Option<String>,
    /// Every line of standard input is a block; without it all of it is one
    #[arg(long)]
    lines: bool,
    /// The content; standard input where absent
    data: Option<String>,
}

impl Append {
    pub(super) async fn run(self) -> Result<(), Ending> {
        let keeper = match &self.file {
            Some(file) => Keeper::File(file),
            None => Keeper::Server(&self.place.server),
        };
        let author = key::author(self.actor, &keeper)?;
        let feed = self.feed.unwrap_or_else(|| author.actor().to_owned());
        let contents = contents(self.data, self.lines)?;
        let name = FeedName {
            feed: &feed,
            namespace: self.namespace.as_deref(),
        };
        match &self.file {
            Some(file) => write(file, &self.place.space, &author, &name, contents),
            None => append(&self.place, &author, &name, &contents).await,
        }
    }
}

fn contents(data: Option<String>, lines: bool) -> std::io::Result<Vec<Vec<u8>>> {
    match data {
        Some(data) => Ok(vec![data.into_bytes()]),
        None if lines => std::io::stdin()
            .lock()
            .lines()
            .map(|line| line.map(String::into_bytes))
            .collect(),
        None => {
            let mut all = Vec::new();
            std::io::stdin().lock().read_to_end(&mut all)?;
            Ok(vec![all])
        }
    }
}

/// Write into the file of a replica. The blocks wait there until `replicate` sends them.
fn write(
    file: &Path,
    space: &str,
    author: &Author,
    name: &FeedName<'_>,
    contents: Vec<Vec<u8>>,
) -> Result<(), Ending> {
    let store = SqliteLog::open(file)?;
    let mut epoch = [0; 16];
    getrandom::fill(&mut epoch)?;
    let state = store.open(space, Role::Replica, Epoch(epoch))?;
    if state.role != Role::Replica {
        return Err(Trouble::Authority(space.to_owned()).into());
    }
    let now_ms = now_ms();
    let drafts: Vec<Draft> = contents
        .into_iter()
        .map(|data| Draft {
            timestamp_ms: now_ms,
            data,
        })
        .collect();
    let written = store.write(space, name, author, &drafts, now_ms);
    let written = written.map_err(|error| match error {
        AppendError::Refused(refused) => Ending::from(Trouble::Fault(refused.into())),
        AppendError::Store(error) => error.into(),
    })?;
    for held in written {
        let (feed, actor) = (&held.block.feed, &held.block.actor);
        let line = json!({"feedId": feed, "actorId": actor, "sequence": held.block.sequence});
        say(&line.to_string());
    }
    Ok(())
}

fn now_ms() -> u64 {
    u64::try_from(Clock::Wall.now_us() / 1000).unwrap_or(0)
}

/// Contents in batches that a server takes: not too many, and not too large together.
fn batches(contents: &[Vec<u8>]) -> Vec<&[Vec<u8>]> {
    let mut bytes = 0;
    let mut blocks = 0;
    let together = |_: &Vec<u8>, next: &Vec<u8>| {
        bytes += next.len();
        blocks += 1;
        if blocks < BATCH_MAX && bytes <= BATCH_BYTES_MAX {
            return true;
        }
        (bytes, blocks) = (next.len(), 0);
        false
    };
    contents.chunk_by(together).collect()
}

/// The block that the next one of a feed stands on.
async fn tip(place: &Place, feed: &str) -> Result<Option<Tip>, Trouble> {
    let question = json!({"requestId": "tip", "feedId": feed});
    let answer = match place.ask("list", &question).await {
        Err(Trouble::Fault(Fault::UnknownSpace)) => return Ok(None),
        other => other?,
    };
    match Reply::parse(&answer, &place.space, &Limits::default()) {
        Ok(Reply {
            outcome: Ok(Answer::Feeds(mut feeds)),
            ..
        }) => Ok(feeds.feeds.pop().and_then(|feed| feed.tip)),
        _ => Err(Trouble::Nonsense("no feeds")),
    }
}

/// The next blocks of a feed, one behind the other.
fn seal(
    place: &Place,
    author: &Author,
    feed: &str,
    mut tip: Option<Tip>,
    contents: &[Vec<u8>],
) -> Option<Vec<Sealed>> {
    let timestamp_ms = now_ms();
    let mut sealed = Vec::with_capacity(contents.len());
    for data in contents {
        let draft = Draft {
            timestamp_ms,
            data: data.clone(),
        };
        let block = next(&place.space, feed, tip.as_ref(), author, &draft)?;
        tip = Some(Tip::after(tip, &block));
        sealed.push(block);
    }
    Some(sealed)
}

async fn append(
    place: &Place,
    author: &Author,
    name: &FeedName<'_>,
    contents: &[Vec<u8>],
) -> Result<(), Ending> {
    let feed = name.feed;
    for batch in batches(contents) {
        let mut positions = None;
        for _ in 0..ATTEMPTS_MAX {
            let blocks = seal(place, author, feed, tip(place, feed).await?, batch)
                .ok_or(Trouble::Nonsense("the feed has used up its sequences"))?;
            let request = Request::Append(AppendRequest {
                namespace: name.namespace.map(str::to_owned),
                cursor: None,
                blocks,
            });
            let message = request.to_message(&RequestId::text("append"));
            match place.ask("append", &message).await {
                // Somebody took our sequence meanwhile: stand on his block.
                Err(Trouble::Fault(fault)) if fault.code() == "conflict" => {}
                other => {
                    positions = Some(other?);
                    break;
                }
            }
        }
        let answer = positions.ok_or(Trouble::Busy)?;
        let given = answer.get("positions").and_then(Value::as_array);
        for position in given.ok_or(Trouble::Nonsense("no positions"))? {
            say(&position.to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_in_blocks_and_bytes() {
        let sizes = |contents: &[Vec<u8>]| -> Vec<usize> {
            let batches = batches(contents);
            batches.iter().map(|batch| batch.len()).collect()
        };
        assert_eq!(sizes(&vec![vec![0; 1]; 1001]), [500, 500, 1]);
        assert_eq!(sizes(&vec![vec![0; 1 << 20]; 5]), [3, 2]);
        assert_eq!(sizes(&vec![vec![0; 3 << 20]; 2]), [1, 1]);
        assert_eq!(sizes(&[]), [0; 0]);
    }
}
