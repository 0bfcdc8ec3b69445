//! Appending to a stream, once and in order.
//!
//! In:    `POST` with bytes, perhaps a producer, perhaps the wish to close.
//! Out:   the new tail; or why not, with what the producer should have sent.
//! Never: a producer's state that moves without its bytes, or the bytes without it.

use super::header::{self, Producer};
use super::reply::{Refusal, Reply};
use super::stream::{Presence, SPACE, Stream, signed};
use crate::log::Log;
use crate::metrics as names;
use crate::sqlite::{Moment, Remembered, within};
use axum::http::{HeaderMap, StatusCode};
use blocklog::chain::Draft;
use blocklog::signature::Author;
use blocklog::store::FeedName;
use metrics::counter;
use rusqlite::{OptionalExtension, params};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

/// The bytes of one block: of a JSON stream, messages with commas between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content(pub(super) Vec<u8>);

impl Content {
    /// The content of an append; it may not be empty.
    fn of(stream: &Stream, body: &[u8]) -> Result<Self, Refusal> {
        Self::first(stream, body)?.ok_or_else(|| Refusal::bad("there is nothing to append"))
    }

    /// The content a stream is created with; `None` if there is none.
    pub(super) fn first(stream: &Stream, body: &[u8]) -> Result<Option<Self>, Refusal> {
        if body.is_empty() {
            return Ok(None);
        }
        if !stream.is_json() {
            return Ok(Some(Self(body.to_vec())));
        }
        let messages = messages(body).ok_or_else(|| Refusal::bad("the body is not JSON"))?;
        Ok(Self::joined(&messages))
    }

    fn joined(messages: &[&RawValue]) -> Option<Self> {
        let texts: Vec<&str> = messages.iter().map(|message| message.get()).collect();
        (!texts.is_empty()).then(|| Self(texts.join(",").into_bytes()))
    }

    /// The first bytes, or messages, of the append that follows `position`.
    pub(super) fn part_of_next(
        moment: &Moment<'_>,
        source: &Stream,
        position: u64,
        count: u64,
    ) -> Result<Self, Refusal> {
        let beyond = || Refusal::bad("Stream-Fork-Sub-Offset lies beyond the next append");
        let count = usize::try_from(count).map_err(|_| beyond())?;
        for (feed, through) in source.segments(moment)? {
            let data = within::first_payload(moment, SPACE, &feed, position, through)?;
            let Some(data) = data else { continue };
            if !source.is_json() {
                return data
                    .get(..count)
                    .map(|part| Self(part.to_vec()))
                    .ok_or_else(beyond);
            }
            let list = [b"[".as_slice(), &data, b"]"].concat();
            let messages = messages(&list).unwrap_or_default();
            return messages
                .get(..count)
                .and_then(Self::joined)
                .ok_or_else(beyond);
        }
        Err(beyond())
    }
}

/// The messages of a body: the elements of an array, or the one value it is.
fn messages(body: &[u8]) -> Option<Vec<&RawValue>> {
    let is_array = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_array {
        return serde_json::from_slice(body).ok();
    }
    serde_json::from_slice(body)
        .ok()
        .map(|message| vec![message])
}

/// Write one block and move the tail.
pub(super) fn write_content(
    moment: &Moment<'_>,
    known: &mut Remembered,
    stream: &mut Stream,
    actor: &str,
    content: Content,
    (now_ms, bytes_max): (u64, u64),
) -> Result<(), Refusal> {
    let draft = Draft {
        timestamp_ms: now_ms,
        data: content.0,
    };
    let feed = stream.feed();
    let name = FeedName {
        feed: &feed,
        namespace: None,
    };
    let written = within::write(
        moment,
        known,
        SPACE,
        &name,
        &Author::named(actor),
        &[draft],
        (now_ms, bytes_max),
    )?;
    counter!(names::LOG_BLOCKS, "by" => "stream").increment(1);
    let position = written.last().and_then(|held| held.position);
    stream.position = position.unwrap_or(stream.position);
    Ok(())
}

/// What became of a producer's claim.
enum Claim {
    /// Go on, and remember this.
    Fresh,
    /// It was here before; the highest sequence accepted.
    Repeat(u64),
}

/// What a `POST` asks for.
struct Wish<'a> {
    producer: Option<Producer>,
    closes: bool,
    sequence: Option<&'a str>,
    content_type: Option<&'a str>,
    body: &'a [u8],
}

/// `POST`: it shares its transaction with the appends that are in flight.
pub(super) async fn post(
    log: &Log,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
) -> Result<Reply, Refusal> {
    let (now_ms, bytes) = (log.now_ms(), body.len());
    let bytes_max = log.settings().bytes_max_of(SPACE);
    let job = move |moment: &Moment<'_>, known: &mut Remembered| {
        let wish = Wish {
            producer: header::producer(&headers)?,
            closes: header::closes(&headers),
            sequence: header::text(&headers, header::SEQUENCE)?,
            content_type: header::text(&headers, "content-type")?,
            body: &body,
        };
        let mut stream = match Stream::enter(moment, known, &path, now_ms)? {
            Presence::Absent => return Err(Refusal::absent()),
            Presence::Gone => return Err(Refusal::gone()),
            Presence::Live(stream) => stream,
        };
        let reply = apply(moment, known, &mut stream, &wish, (now_ms, bytes_max))?;
        Ok((stream, reply))
    };
    let (stream, reply) = log.store().grouped(bytes, job).await?;
    log.tell(
        SPACE,
        stream.position,
        BTreeSet::from([stream.feed()]),
        None,
    );
    log.tell(
        &super::read::listening(&stream),
        stream.position,
        BTreeSet::new(),
        None,
    );
    Ok(reply)
}

fn apply(
    moment: &Moment<'_>,
    known: &mut Remembered,
    stream: &mut Stream,
    wish: &Wish<'_>,
    (now_ms, bytes_max): (u64, u64),
) -> Result<Reply, Refusal> {
    let content = content_of(stream, wish)?;
    let appends = content.is_some();
    if let Some(producer) = &wish.producer
        && let Claim::Repeat(highest) = claim(moment, stream, producer)?
    {
        return Ok(done(
            stream,
            StatusCode::NO_CONTENT,
            Some((producer, highest)),
        ));
    }
    if stream.closed && (appends || wish.producer.is_some()) {
        return Err(closed(stream));
    }
    if let Some(sequence) = wish.sequence {
        if stream
            .sequence
            .as_deref()
            .is_some_and(|last| sequence <= last)
        {
            return Err(Refusal::conflict("Stream-Seq does not grow"));
        }
        stream.sequence = Some(sequence.to_owned());
    }
    if let Some(content) = content {
        // Not the bare id: it might be the name of a key, and nobody signs here.
        let actor = match &wish.producer {
            Some(producer) => format!("producer:{}", producer.id),
            None => "stream".to_owned(),
        };
        write_content(moment, known, stream, &actor, content, (now_ms, bytes_max))?;
    }
    stream.closed |= wish.closes;
    stream.touched_ms = now_ms;
    stream.update(moment)?;
    let Some(producer) = &wish.producer else {
        return Ok(done(stream, StatusCode::NO_CONTENT, None));
    };
    remember(moment, stream, producer)?;
    let status = if appends {
        StatusCode::OK
    } else {
        StatusCode::NO_CONTENT
    };
    Ok(done(stream, status, Some((producer, producer.sequence))))
}

/// The content of the request; `None` if it only closes.
fn content_of(stream: &Stream, wish: &Wish<'_>) -> Result<Option<Content>, Refusal> {
    if wish.body.is_empty() && wish.closes {
        return Ok(None);
    }
    if wish.body.is_empty() {
        return Err(Refusal::bad("there is nothing to append"));
    }
    let content_type = wish
        .content_type
        .ok_or_else(|| Refusal::bad("Content-Type is missing"))?;
    if header::essence(content_type) != header::essence(&stream.content_type) {
        return Err(Refusal::conflict("the stream has another content type"));
    }
    Content::of(stream, wish.body).map(Some)
}

/// Judge a producer by what is remembered of it.
fn claim(moment: &Moment<'_>, stream: &Stream, producer: &Producer) -> Result<Claim, Refusal> {
    let sql = "SELECT epoch, sequence FROM producers WHERE streamId = ?1 AND producerId = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let known = moment
        .query_row(sql, params![stream.id, producer.id], read)
        .optional()?;
    let Some((epoch, last)) = known else {
        return if producer.sequence == 0 {
            Ok(Claim::Fresh)
        } else {
            Err(gap(producer, 0))
        };
    };
    let (epoch, last) = (epoch.max(0) as u64, last.max(0) as u64);
    if producer.epoch < epoch {
        let reply =
            Reply::new(StatusCode::FORBIDDEN).with(header::PRODUCER_EPOCH, epoch.to_string());
        return Err(Refusal::Answer(Box::new(reply)));
    }
    if producer.epoch > epoch {
        return if producer.sequence == 0 {
            Ok(Claim::Fresh)
        } else {
            Err(Refusal::bad("a new epoch starts with sequence 0"))
        };
    }
    match producer.sequence {
        sequence if sequence <= last => Ok(Claim::Repeat(last)),
        sequence if sequence == last + 1 => Ok(Claim::Fresh),
        _ => Err(gap(producer, last + 1)),
    }
}

fn gap(producer: &Producer, expected: u64) -> Refusal {
    let reply = Reply::new(StatusCode::CONFLICT)
        .with(header::PRODUCER_EXPECTED, expected.to_string())
        .with(header::PRODUCER_RECEIVED, producer.sequence.to_string());
    Refusal::Answer(Box::new(reply))
}

fn closed(stream: &Stream) -> Refusal {
    let reply = Reply::new(StatusCode::CONFLICT)
        .with_offset(stream.position)
        .with_closed(true);
    Refusal::Answer(Box::new(reply))
}

fn remember(moment: &Moment<'_>, stream: &Stream, producer: &Producer) -> Result<(), Refusal> {
    let sql = "INSERT OR REPLACE INTO producers (streamId, producerId, epoch, sequence) VALUES (?1, ?2, ?3, ?4)";
    let values = params![
        stream.id,
        producer.id,
        signed(producer.epoch),
        signed(producer.sequence)
    ];
    moment.execute(sql, values)?;
    Ok(())
}

fn done(stream: &Stream, status: StatusCode, producer: Option<(&Producer, u64)>) -> Reply {
    let reply = Reply::new(status)
        .with_offset(stream.position)
        .with_closed(stream.closed);
    match producer {
        None => reply,
        Some((producer, highest)) => reply
            .with(header::PRODUCER_EPOCH, producer.epoch.to_string())
            .with(header::PRODUCER_SEQUENCE, highest.to_string()),
    }
}
