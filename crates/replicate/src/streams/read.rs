//! Reading a stream: what there is, and what comes.
//!
//! In:    `GET` with an offset, perhaps `live=long-poll`.
//! Out:   bytes from there on, and the offset to go on with.
//! Never: a tail that was read later than the bytes before it.

use super::header;
use super::offset::{self, From};
use super::reply::{Refusal, Reply};
use super::stream::{Presence, SPACE, Stream};
use crate::log::{Log, random};
use crate::settings::{Right, Who};
use axum::http::{HeaderMap, StatusCode};
use blocklog::block::Payload;
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::store::LogStore;
use std::time::Duration;
use tokio::time::timeout;

/// Seconds per step of the cursor that keeps caches from looping.
const CURSOR_SECONDS: u64 = 20;

/// Where those steps are counted from: 9 October 2024, as the protocol says.
const CURSOR_START_SECONDS: u64 = 1_728_432_000;

/// Blocks of one answer.
const PAGE_BLOCKS_MAX: usize = 10_000;

/// Seconds for which a cache may answer with a piece without asking, and those for which it may
/// answer while it asks.
const CACHED_SECONDS_MAX: u64 = 60;
const STALE_SECONDS_MAX: u64 = 300;

/// A read stream is not touched more often than this, to spare the disk.
const TOUCH_MS_MIN: u64 = 200;

/// The parameters of a `GET`.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) path: String,
    pub(super) from: Option<From>,
    pub(super) cursor: Option<u64>,
}

/// A piece of a stream, and the stream as it was when the piece was read.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) stream: Stream,
    /// Read from behind this position.
    pub(super) after: u64,
    /// Up to and with this one.
    pub(super) next: u64,
    /// The contents, one per append.
    pub(super) contents: Vec<Vec<u8>>,
}

impl Piece {
    pub(super) fn is_at_tail(&self) -> bool {
        self.next >= self.stream.position
    }

    /// Everything was read, and nothing will follow.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_tail() && self.stream.closed
    }

    /// The bytes: of a JSON stream, one array.
    pub(super) fn bytes(&self) -> Vec<u8> {
        if self.stream.is_json() {
            let messages = self.contents.join(b",".as_slice());
            return [b"[".as_slice(), &messages, b"]"].concat();
        }
        self.contents.concat()
    }
}

/// The key under which readers of this stream wait in the hub.
pub(super) fn listening(stream: &Stream) -> String {
    format!("{SPACE}/{}", stream.id)
}

/// Read the next piece. Blocks.
pub(super) fn piece(log: &Log, path: &str, from: From) -> Result<Piece, Refusal> {
    let now_ms = log.now_ms();
    let (stream, segments) = find(log, path, now_ms)?;
    touch(log, &stream, now_ms)?;
    let after = match from {
        From::Now => stream.position,
        From::After(position) => position,
    };
    let mut piece = Piece {
        next: after,
        after,
        contents: Vec::new(),
        stream,
    };
    let mut bytes_left = log.settings().stream_page_bytes_max;
    for (feed, through) in segments {
        if piece.next >= through || bytes_left == 0 {
            continue;
        }
        let more = fill(log, &mut piece, feed, through, &mut bytes_left)?;
        if more {
            return Ok(piece);
        }
        piece.next = piece.next.max(through.min(piece.stream.position));
    }
    piece.next = piece.next.max(piece.stream.position);
    Ok(piece)
}

fn find(log: &Log, path: &str, now_ms: u64) -> Result<(Stream, Vec<(String, u64)>), Refusal> {
    log.store().reading(|connection| {
        let snapshot = connection.unchecked_transaction()?;
        let presence = Stream::look(&snapshot, path, now_ms)?;
        match presence {
            Presence::Live(stream) => {
                let segments = stream.segments(&snapshot)?;
                Ok(Ok((stream, segments)))
            }
            Presence::Absent => Ok(Err(Refusal::absent())),
            Presence::Gone => Ok(Err(Refusal::gone())),
        }
    })?
}

/// Take contents of one feed up to `through`; true if the page is full.
fn fill(
    log: &Log,
    piece: &mut Piece,
    feed: String,
    through: u64,
    bytes_left: &mut usize,
) -> Result<bool, Refusal> {
    let start = Start {
        after: piece.next,
        pending: PendingStart::Excluded,
    };
    let max = PageMax {
        blocks: PAGE_BLOCKS_MAX,
        bytes: *bytes_left,
    };
    let page = log
        .store()
        .page(SPACE, &Selection::Feeds(vec![feed]), &start, max)?;
    if !page.evicted.is_empty() && piece.after > 0 {
        return Err(Refusal::gone());
    }
    for held in page.blocks {
        let position = held.position.unwrap_or(0);
        if position > through {
            return Ok(false);
        }
        if let Payload::Bytes(bytes) = held.block.payload {
            *bytes_left = bytes_left.saturating_sub(bytes.len());
            piece.contents.push(bytes);
        }
        piece.next = position;
    }
    Ok(page.has_more)
}

/// Reading renews the time of a stream that ends when it is left alone.
fn touch(log: &Log, stream: &Stream, now_ms: u64) -> Result<(), Refusal> {
    if stream.lifetime.ttl_seconds.is_none() || now_ms < stream.touched_ms + TOUCH_MS_MIN {
        return Ok(());
    }
    log.store().writing(|moment| {
        if let Some(mut held) = Stream::by_id(moment, stream.id)? {
            held.touched_ms = now_ms;
            held.update(moment)?;
        }
        Ok(())
    })
}

/// `HEAD`. Blocks.
pub(super) fn head(log: &Log, path: &str) -> Result<Reply, Refusal> {
    let (stream, _) = find(log, path, log.now_ms())?;
    let mut reply = Reply::new(StatusCode::OK)
        .with("content-type", stream.content_type.clone())
        .with("cache-control", "no-store")
        .with_offset(stream.position)
        .with_closed(stream.closed);
    if let Some(seconds) = stream.lifetime.ttl_seconds {
        reply = reply.with(header::TTL, seconds.to_string());
    }
    if let Some((_, text)) = stream.lifetime.expires {
        reply = reply.with(header::EXPIRES_AT, text);
    }
    Ok(reply)
}

/// The cursor for an answer now: always above the one the reader has.
pub(super) fn next_cursor(now_ms: u64, theirs: Option<u64>) -> u64 {
    let now = (now_ms / 1000).saturating_sub(CURSOR_START_SECONDS) / CURSOR_SECONDS;
    match theirs {
        Some(theirs) if theirs >= now => {
            let [first, second, ..] = random();
            let jitter = u64::from(u16::from_be_bytes([first, second])) % (3600 / CURSOR_SECONDS);
            theirs.saturating_add(1 + jitter)
        }
        _ => now,
    }
}

/// `GET` without `live`. Blocks.
pub(super) fn catch_up(
    log: &Log,
    question: &Question,
    headers: &HeaderMap,
) -> Result<Reply, Refusal> {
    let from = question.from.unwrap_or(From::After(0));
    let piece = piece(log, &question.path, from)?;
    let reply = answer(log, question, &piece);
    if from == From::Now {
        return Ok(reply
            .with("cache-control", "no-store")
            .with_body(piece.bytes()));
    }
    let end = if piece.is_at_end() { ":end" } else { "" };
    let etag = format!(
        "\"{}:{}:{}{end}\"",
        piece.stream.id, piece.after, piece.next
    );
    let known = header::text(headers, "if-none-match")?;
    let is_open = log.settings().who(Right::Read, SPACE) == Who::Anyone;
    let left_ms = left_ms(&piece.stream, log.now_ms());
    let reply = reply
        .with("etag", etag.clone())
        .with("cache-control", cache_control(is_open, left_ms));
    if known.is_some_and(|known| known.split(',').any(|one| one.trim() == etag)) {
        return Ok(Reply {
            status: StatusCode::NOT_MODIFIED,
            ..reply
        });
    }
    Ok(reply.with_body(piece.bytes()))
}

/// How long caches may keep a piece of a stream that lives so long: no copy outlives its stream, and
/// only what everybody may read is kept for everybody.
fn cache_control(is_open: bool, left_ms: u64) -> String {
    let left = left_ms / 1000;
    if left == 0 {
        return "no-store".to_owned();
    }
    let age = left.min(CACHED_SECONDS_MAX);
    let stale = (left - age).min(STALE_SECONDS_MAX);
    let who = if is_open { "public" } else { "private" };
    format!("{who}, max-age={age}, stale-while-revalidate={stale}")
}

/// How long a stream that was just read lives, unless it is touched again.
fn left_ms(stream: &Stream, now_ms: u64) -> u64 {
    let idle = stream.lifetime.ttl_seconds.map(|seconds| {
        let whole = seconds.saturating_mul(1000);
        whole.saturating_sub(TOUCH_MS_MIN)
    });
    let expires = stream.lifetime.expires.as_ref();
    let dated = expires.map(|(at_ms, _)| at_ms.saturating_sub(now_ms));
    idle.into_iter().chain(dated).min().unwrap_or(u64::MAX)
}

/// What every answer with content says of itself.
fn answer(log: &Log, question: &Question, piece: &Piece) -> Reply {
    let reply = Reply::new(StatusCode::OK)
        .with("content-type", piece.stream.content_type.clone())
        .with(
            header::CURSOR,
            next_cursor(log.now_ms(), question.cursor).to_string(),
        )
        .with_offset(piece.next)
        .with_closed(piece.is_at_end());
    if piece.is_at_tail() {
        reply.with(header::UP_TO_DATE, "true")
    } else {
        reply
    }
}

/// `GET` with `live=long-poll`: wait for something to say.
pub(super) async fn long_poll(log: Log, question: Question) -> Result<Reply, Refusal> {
    let from = question.from.unwrap_or(From::After(0));
    let mut piece = read(&log, &question.path, from).await?;
    let wait = Duration::from_secs(log.settings().long_poll_seconds_max);
    let after = piece.next;
    let mut news = log.hub().listen(&listening(&piece.stream));
    let wake = async {
        loop {
            // Look again after listening has begun: what came in between is not told.
            piece = read(
                &log,
                &question.path,
                if piece.contents.is_empty() {
                    From::After(after)
                } else {
                    from
                },
            )
            .await?;
            if !piece.contents.is_empty() || piece.is_at_end() {
                return Ok::<_, Refusal>(());
            }
            drop(news.recv().await);
        }
    };
    if let Ok(woken) = timeout(wait, wake).await {
        woken?;
    }
    let reply = answer(&log, &question, &piece).with("cache-control", "no-store");
    if piece.contents.is_empty() {
        return Ok(Reply {
            status: StatusCode::NO_CONTENT,
            ..reply
        });
    }
    Ok(reply.with_body(piece.bytes()))
}

/// Read a piece on a thread that may wait for the disk.
pub(super) async fn read(log: &Log, path: &str, from: From) -> Result<Piece, Refusal> {
    let (reader, path) = (log.clone(), path.to_owned());
    super::blocking(log, move || piece(&reader, &path, from)).await
}

/// What a query string says.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pub(super) from: Option<From>,
    pub(super) cursor: Option<u64>,
    pub(super) live: Option<String>,
}

impl Parameters {
    /// Read a query string; the offset may stand in it once.
    pub(super) fn parse(query: &str) -> Result<Self, Refusal> {
        let mut parameters = Self::default();
        for (name, value) in pairs(query)? {
            match name.as_str() {
                "offset" if parameters.from.is_some() => {
                    return Err(Refusal::bad("offset is given twice"));
                }
                "offset" => {
                    let read = offset::parameter(&value);
                    parameters.from =
                        Some(read.ok_or_else(|| Refusal::bad("offset is malformed"))?);
                }
                "cursor" => parameters.cursor = value.parse().ok(),
                "live" => parameters.live = Some(value),
                _ => {}
            }
        }
        Ok(parameters)
    }
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let malformed = || Refusal::bad("the query string is malformed");
    let uri = format!("/?{query}").parse().map_err(|_| malformed())?;
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri);
    pairs.map(|pairs| pairs.0).map_err(|_| malformed())
}
