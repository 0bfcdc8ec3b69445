//! `feedmill log`: the log from the command line.
//!
//! `append`, `query`, `tail` and `list` ask a running server over HTTP, as any
//! peer would. `replicate` and `verify` work on a file of their own.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blocklog::chain::{Draft, Sealed, Tip, next};
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::{Answer, AppendRequest, Fault, Reply, Request, RequestId, parse_block};
use blocklog::replica::{Mode, Target};
use blocklog::signature::Author;
use blocklog::store::{LogStore as _, ReplicaStore as _};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Ending, runtime, say};
use crate::clock::Clock;
use crate::replicate::log::Log as LocalLog;
use crate::replicate::peer::{Peer, PeerSettings, address};
use crate::replicate::settings::LogSettings;
use crate::replicate::sqlite::SqliteLog;

/// The environment variable that holds the key blocks are signed with.
const KEY: &str = "FEEDMILL_LOG_KEY";
/// Appends tried while others write to the same feed.
const ATTEMPTS_MAX: usize = 20;
/// Blocks sent in one append.
const BATCH_MAX: usize = 500;
/// How long `tail` waits before it asks again.
const TAIL_PAUSE: Duration = Duration::from_millis(500);

/// Blocks in and out of a log.
#[derive(Debug, Subcommand)]
pub(super) enum Log {
    /// Append blocks to a feed; prints one position per line
    ///
    /// FEEDMILL_LOG_KEY, 64 hexadecimal digits, signs them as the actor that is that key.
    Append {
        #[command(flatten)]
        place: Place,
        /// The feed; the actor's own where absent
        #[arg(long)]
        feed: Option<String>,
        /// Who writes
        #[arg(long, default_value = "cli")]
        actor: String,
        /// The namespace that the feed gets if it is new
        #[arg(long)]
        namespace: Option<String>,
        /// Every line of standard input is a block; without it all of it is one
        #[arg(long)]
        lines: bool,
        /// The content; standard input where absent
        data: Option<String>,
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
    Server(#[from] reqwest::Error),
    #[error("{code}: {}", in_words(.0), code = .0.code())]
    Fault(Fault),
    #[error("the server's answer is none: {0}")]
    Nonsense(&'static str),
    #[error("{KEY} is not 64 hexadecimal digits")]
    Key,
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
            Self::Append {
                place,
                feed,
                actor,
                namespace,
                lines,
                data,
            } => {
                let author = author(actor)?;
                let feed = feed.unwrap_or_else(|| author.actor().to_owned());
                let contents = contents(data, lines)?;
                let work = append(&place, &author, &feed, namespace.as_deref(), &contents);
                runtime()?.block_on(work)
            }
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
                runtime()?.block_on(replicate(&place, &file, lanes, once))
            }
            Self::Verify { file, space } => verify(&file, space.as_deref()),
        }
    }
}

impl Place {
    async fn ask(&self, kind: &str, message: &Value) -> Result<Value, Trouble> {
        let space = address(&self.server, &self.space);
        let answer = reqwest::Client::new()
            .post(format!("{space}/{kind}"))
            .json(message)
            .send()
            .await?;
        let answer: Value = answer.json().await?;
        match Fault::from_message(&answer) {
            Some(fault) => Err(Trouble::Fault(fault)),
            None => Ok(answer),
        }
    }
}

fn author(actor: String) -> Result<Author, Trouble> {
    match std::env::var(KEY) {
        Err(_) => Ok(Author::named(actor)),
        Ok(digits) => blocklog::block::Hash::from_hex(digits.trim())
            .map(|secret| Author::keyed(secret.bytes()))
            .ok_or(Trouble::Key),
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
    let timestamp_ms = u64::try_from(Clock::Wall.now_us() / 1000).unwrap_or(0);
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
    feed: &str,
    namespace: Option<&str>,
    contents: &[Vec<u8>],
) -> Result<(), Ending> {
    for batch in contents.chunks(BATCH_MAX) {
        let mut positions = None;
        for _ in 0..ATTEMPTS_MAX {
            let blocks = seal(place, author, feed, tip(place, feed).await?, batch)
                .ok_or(Trouble::Nonsense("the feed has used up its sequences"))?;
            let request = Request::Append(AppendRequest {
                namespace: namespace.map(str::to_owned),
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
            // Who waits for a space may come before its first block.
            Err(Trouble::Fault(Fault::UnknownSpace)) if forever => {
                cursor = json!({});
                tokio::time::sleep(TAIL_PAUSE).await;
                continue;
            }
            other => other?,
        };
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

async fn replicate(
    place: &Place,
    file: &std::path::Path,
    lanes: Vec<(Target, Mode)>,
    once: bool,
) -> Result<(), Ending> {
    let store = Arc::new(SqliteLog::open(file)?);
    let log = LocalLog::new(Arc::clone(&store), LogSettings::default(), Clock::Wall);
    let url = place.server.replacen("http", "ws", 1);
    let settings = PeerSettings {
        url,
        space: place.space.clone(),
        lanes,
    };
    let peer = Peer::new(log, settings)?;
    let (sender, stop) = tokio::sync::watch::channel(false);
    let running = tokio::spawn(peer.run(stop));
    if once {
        while !is_whole(place, &store).await? {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    } else {
        tokio::signal::ctrl_c().await?;
    }
    sender.send_replace(true);
    running.await?;
    let state = store.space(&place.space)?;
    let position_max = state.map_or(0, |state| state.position_max);
    say(&json!({"space": place.space, "maxPosition": position_max}).to_string());
    Ok(())
}

/// Whether everything the server had a moment ago is here, and nothing waits to be sent.
async fn is_whole(place: &Place, store: &SqliteLog) -> Result<bool, Ending> {
    let question = json!({"requestId": "end", "tail": true});
    let answer = place.ask("query", &question).await?;
    let there = answer.get("maxPosition").and_then(Value::as_u64);
    let epoch = answer.get("epoch").and_then(Value::as_str);
    let upstream = store.upstream(&place.space)?;
    if upstream.healing || upstream.epoch != epoch.and_then(Epoch::from_text) {
        return Ok(false); // what is here is of another history
    }
    let lanes = store.lanes(&place.space)?;
    let pulled = lanes.iter().filter(|lane| lane.mode != Mode::None);
    let here = pulled.map(|lane| lane.after).min().unwrap_or(0);
    let max = blocklog::page::PageMax {
        blocks: 1,
        bytes: 1,
    };
    let waits = store.pending(&place.space, None, &[], max)?;
    let resolved = lanes.iter().all(|lane| lane.resolved);
    Ok(resolved && waits.is_empty() && there.is_some_and(|there| here >= there))
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
