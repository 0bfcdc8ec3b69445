//! `feedmill log`: the log from the command line.
//!
//! `append`, `query`, `tail` and `list` ask a running server over HTTP, as any
//! peer would. `replicate`, `conflicts` and `verify` work on a file of their own.

mod append;
mod conflicts;
mod key;
mod replica;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use blocklog::limits::Limits;
use blocklog::message::{Fault, parse_block};
use blocklog::replica::{Mode, Target};
use blocklog::store::LogStore as _;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Ending, runtime, say};
use crate::host::Cause;
use crate::pause::{Pauses, chance};
use crate::reach::fetch::{Ask, FetchError, Fetcher};
use append::ATTEMPTS_MAX;
use key::{KEY, Keeper};
use replicate::access::TOKEN;
use replicate::peer::address;
use replicate::sqlite::SqliteLog;

/// Blocks sent in one append.
const BATCH_MAX: usize = 500;
/// How long a server may take to answer, and how large its answer may be.
const TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How long `tail` waits before it asks again.
const TAIL_PAUSE: Duration = Duration::from_millis(500);

/// Blocks in and out of a log.
#[derive(Debug, Subcommand)]
pub(super) enum Log {
    /// Append blocks to a feed; prints one position per line
    ///
    /// Blocks are signed with a key that is made at first use: one for each server, or, with --file, for
    /// each replica. FEEDMILL_LOG_KEY, 64 hexadecimal digits, is another key, --actor a name without one.
    Append(append::Append),
    /// Print the actor that `append` writes as
    Actor {
        /// The server
        #[arg(long, default_value = "http://127.0.0.1:8080")]
        server: String,
        /// The file of a replica, instead of a server
        #[arg(long, conflicts_with = "server")]
        file: Option<PathBuf>,
    },
    /// Print blocks, one JSON line each
    Query {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        which: Which,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Print blocks as they come, until interrupted
    Tail {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        which: Which,
        /// End after this many
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Print the feeds of a space, one JSON line each
    List {
        #[command(flatten)]
        place: Place,
        /// Only of this namespace
        #[arg(long)]
        namespace: Option<String>,
    },
    /// Create a space; an append by somebody who may create spaces does so too
    Create {
        #[command(flatten)]
        place: Place,
    },
    /// Delete a space with everything in it
    Delete {
        #[command(flatten)]
        place: Place,
    },
    /// Drop the content of every block of a feed; positions and hashes stay
    Purge {
        #[command(flatten)]
        place: Place,
        /// The feed
        feed: String,
    },
    /// Keep a file of one's own as the replica of a space, until interrupted
    Replicate {
        #[command(flatten)]
        place: Place,
        /// The file that holds the replica
        file: PathBuf,
        /// Only these feeds
        #[arg(long)]
        feed: Vec<String>,
        /// All but these feeds
        #[arg(long, conflicts_with = "feed")]
        without: Vec<String>,
        /// From this position on
        #[arg(long, default_value_t = 0, conflicts_with_all = ["tail", "since"])]
        from: u64,
        /// Only what comes from now on
        #[arg(long, conflicts_with = "since")]
        tail: bool,
        /// Only what came at or after this time, in Unix milliseconds
        #[arg(long)]
        since: Option<u64>,
        /// End once everything is here and nothing waits to be sent
        #[arg(long)]
        once: bool,
    },
    /// List the blocks of a replica that its authority does not have and will not take as they are
    ///
    /// Ends with an error if there are any.
    Conflicts(conflicts::Conflicts),
    /// Check every hash, signature, predecessor and head of a file
    Verify {
        /// The file that holds the log
        file: PathBuf,
        /// Only this space
        #[arg(long)]
        space: Option<String>,
    },
}

/// Which space of which server.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The server
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    server: String,
    /// The space
    space: String,
}

/// Which blocks.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Only these feeds
    #[arg(long)]
    feed: Vec<String>,
    /// Only of this namespace
    #[arg(long, conflicts_with = "feed")]
    namespace: Option<String>,
    /// Only behind this position, or behind a cursor that a server gave
    #[arg(long)]
    after: Option<String>,
    /// Print the content alone, as text
    #[arg(long)]
    text: bool,
}

/// Why a verb ended badly.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the server cannot be asked")]
    Server(#[from] FetchError),
    #[error("{code}: {}", in_words(.0), code = .0.code())]
    Fault(Fault),
    #[error("the server's answer is none: {0}")]
    Nonsense(&'static str),
    #[error("{KEY} is not 64 hexadecimal digits")]
    Key,
    #[error(
        "{0} does not hold a key of 64 hexadecimal digits: restore it, or remove it to make another"
    )]
    KeyDamaged(PathBuf),
    #[error("the key {0} cannot be read or made")]
    KeyFile(PathBuf, #[source] std::io::Error),
    #[error("there is no folder for a key: set HOME, {KEY}, or --actor")]
    NoFolder,
    #[error("{0} does not exist")]
    NoFile(PathBuf),
    #[error("the file gives the positions of {0} itself: append through its server")]
    Authority(String),
    #[error("{0}: the server refuses what this replica asks; what waits is kept")]
    RefusesAll(&'static str),
    #[error("{0} blocks are not at the authority: see `feedmill log conflicts {file}`", file = .1.display())]
    Aside(usize, PathBuf),
    #[error("the feed was written to by others {ATTEMPTS_MAX} times in a row")]
    Busy,
    #[error("{0} blocks are damaged")]
    Damaged(usize),
    #[error("there is nothing to verify")]
    Nothing,
}

/// A fault, with the reason of the first block where blocks were refused.
fn in_words(fault: &Fault) -> String {
    match fault {
        Fault::Refused(blocks) => match blocks.first() {
            Some(first) => format!("{} (block {})", first.message, first.index),
            None => fault.to_string(),
        },
        fault => fault.to_string(),
    }
}

impl Log {
    pub(super) fn run(self) -> Result<(), Ending> {
        crate::identity::provide_tls();
        match self {
            Self::Append(append) => runtime()?.block_on(append.run()),
            Self::Actor { server, file } => {
                let keeper = match &file {
                    Some(file) => Keeper::File(file),
                    None => Keeper::Server(&server),
                };
                say(key::author(None, &keeper)?.actor());
                Ok(())
            }
            Self::Conflicts(conflicts) => conflicts.run(),
            Self::Query {
                place,
                which,
                limit,
            } => runtime()?.block_on(follow(&place, &which, Some(limit), false)),
            Self::Tail {
                place,
                which,
                limit,
            } => runtime()?.block_on(follow(&place, &which, limit, true)),
            Self::List { place, namespace } => {
                runtime()?.block_on(list(&place, namespace.as_deref()))
            }
            Self::Create { place } => runtime()?.block_on(change(&place, "create", json!({}))),
            Self::Delete { place } => runtime()?.block_on(change(&place, "delete", json!({}))),
            Self::Purge { place, feed } => {
                runtime()?.block_on(change(&place, "purge", json!({"feedId": feed})))
            }
            Self::Replicate {
                place,
                file,
                feed,
                without,
                from,
                tail,
                since,
                once,
            } => {
                super::log("warn");
                let mode = match since {
                    Some(time_ms) => Mode::Since(time_ms),
                    None if tail => Mode::Tail,
                    None => Mode::From(from),
                };
                let targets = match feed.is_empty() {
                    true => vec![Target::Space],
                    false => feed.into_iter().map(Target::Feed).collect(),
                };
                let apart = without.into_iter().map(Target::Feed);
                let lanes = targets
                    .into_iter()
                    .map(|target| (target, mode))
                    .chain(apart.map(|target| (target, Mode::None)))
                    .collect();
                runtime()?.block_on(replica::run(&place, &file, lanes, once))
            }
            Self::Verify { file, space } => verify(&file, space.as_deref()),
        }
    }
}

impl Place {
    async fn ask(&self, kind: &str, message: &Value) -> Result<Value, Trouble> {
        let space = address(&self.server, &self.space);
        let address = format!("{space}/{kind}");
        let fetcher = Fetcher::of_operator(&[&address])?;
        let token = token();
        let mut ask = Ask::new(Cause::Command, &address).named();
        if let Some(token) = &token {
            ask = ask.bearing(token);
        }
        let ask = ask.posting(message.to_string()).within(TIMEOUT);
        let answer: Value = fetcher
            .fetch(ask.bytes_max(ANSWER_BYTES_MAX))
            .await?
            .json()?;
        match Fault::from_message(&answer) {
            Some(fault) => Err(Trouble::Fault(fault)),
            None => Ok(answer),
        }
    }
}

/// The token that the server asks for, if there is one.
fn token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

/// Print blocks up to the end, or for ever.
async fn follow(
    place: &Place,
    which: &Which,
    limit: Option<usize>,
    forever: bool,
) -> Result<(), Ending> {
    let mut cursor = match &which.after {
        None if forever => json!({"tail": true}),
        None => json!({}),
        Some(after) => match after.parse::<u64>() {
            Ok(position) => json!({"cursor": position}),
            Err(_) => json!({"cursor": after}),
        },
    };
    let mut left = limit.unwrap_or(usize::MAX);
    let mut pauses = Pauses::new(TAIL_PAUSE, Duration::from_secs(30));
    while left > 0 {
        let mut question = json!({"requestId": "query", "limit": left.min(BATCH_MAX)});
        if let Some(fields) = question.as_object_mut() {
            fields.extend(cursor.as_object().cloned().unwrap_or_default());
            if !which.feed.is_empty() {
                fields.insert("feedIds".into(), json!(which.feed));
            }
            if let Some(namespace) = &which.namespace {
                fields.insert("namespace".into(), json!(namespace));
            }
        }
        let page = match place.ask("query", &question).await {
            // The server is away, or asks us to wait: it goes on where it was.
            Err(Trouble::Server(error)) if forever => {
                super::complain(&error);
                tokio::time::sleep(pauses.next(chance())).await;
                continue;
            }
            Err(Trouble::Fault(Fault::Unavailable | Fault::RateLimited { .. })) if forever => {
                tokio::time::sleep(pauses.next(chance())).await;
                continue;
            }
            // Who waits for a space may come before its first block.
            Err(Trouble::Fault(Fault::UnknownSpace)) if forever => {
                cursor = json!({});
                tokio::time::sleep(TAIL_PAUSE).await;
                continue;
            }
            other => other?,
        };
        pauses.reset();
        let blocks = page.get("blocks").and_then(Value::as_array);
        for block in blocks.ok_or(Trouble::Nonsense("no blocks"))? {
            print(place, which, block)?;
            left = left.saturating_sub(1);
        }
        cursor = json!({"cursor": page.get("nextCursor")});
        if page.get("hasMore") != Some(&Value::Bool(true)) {
            if !forever {
                return Ok(());
            }
            tokio::time::sleep(TAIL_PAUSE).await;
        }
    }
    Ok(())
}

/// Print a block that is what its hash says.
fn print(place: &Place, which: &Which, block: &Value) -> Result<(), Trouble> {
    let held = parse_block(block, &place.space, &Limits::default()).map_err(Trouble::Fault)?;
    match (&held.block.payload, which.text) {
        (blocklog::block::Payload::Bytes(bytes), true) => say(&String::from_utf8_lossy(bytes)),
        (_, true) => {}
        (_, false) => say(&block.to_string()),
    }
    Ok(())
}

/// Create, delete or purge, and print how much was changed.
async fn change(place: &Place, kind: &str, mut message: Value) -> Result<(), Ending> {
    if let Some(fields) = message.as_object_mut() {
        fields.insert("requestId".into(), json!(kind));
    }
    let answer = place.ask(kind, &message).await?;
    let changed = answer.get("changed").ok_or(Trouble::Nonsense("no count"))?;
    say(&json!({"space": place.space, "changed": changed}).to_string());
    Ok(())
}

async fn list(place: &Place, namespace: Option<&str>) -> Result<(), Ending> {
    let mut after = Value::Null;
    loop {
        let question = json!({"requestId": "list", "namespace": namespace, "after": after});
        let page = place.ask("list", &question).await?;
        let feeds = page.get("feeds").and_then(Value::as_array);
        let feeds = feeds.ok_or(Trouble::Nonsense("no feeds"))?;
        for feed in feeds {
            say(&feed.to_string());
            after = feed.get("feedId").cloned().unwrap_or_default();
        }
        if page.get("hasMore") != Some(&Value::Bool(true)) {
            return Ok(());
        }
    }
}

fn verify(file: &std::path::Path, only: Option<&str>) -> Result<(), Ending> {
    if !file.is_file() {
        return Err(Trouble::Nothing.into());
    }
    let store = SqliteLog::open(file)?;
    let spaces: BTreeSet<String> = store
        .spaces()?
        .into_iter()
        .filter(|space| only.is_none_or(|only| only == space))
        .collect();
    if spaces.is_empty() {
        return Err(Trouble::Nothing.into());
    }
    let mut damaged = 0;
    for space in spaces {
        let found = blocklog::verify::verify(&store, &space)?;
        for (key, damage) in &found.damaged {
            let line = json!({
                "space": space, "feedId": key.feed, "sequence": key.sequence, "actorId": key.actor,
                "damage": format!("{damage:?}").to_lowercase(),
            });
            say(&line.to_string());
        }
        damaged += found.damaged.len();
        let line = json!({"space": space, "blocks": found.blocks, "damaged": found.damaged.len()});
        say(&line.to_string());
    }
    match damaged {
        0 => Ok(()),
        _ => Err(Trouble::Damaged(damaged).into()),
    }
}
