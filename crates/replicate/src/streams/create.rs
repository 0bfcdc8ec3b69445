//! Creating a stream, alone or as a fork of another.
//!
//! In:    `PUT` with the stream's content type, lifetime, perhaps first bytes.
//! Out:   201 if it is new, 200 if it is there as described, 409 if otherwise.
//! Never: half a fork: source, shared part and first bytes are one transaction.

use super::append::{Content, write_content};
use super::header::{self, Lifetime};
use super::offset;
use super::reply::{Refusal, Reply};
use super::stream::{FORK_DEPTH_MAX, Fork, Presence, SPACE, Stream};
use crate::log::Log;
use crate::sqlite::{Moment, Remembered};
use axum::http::{HeaderMap, StatusCode};

/// The content type of a stream that names none.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// What a `PUT` asks for.
struct Wish<'a> {
    path: &'a str,
    content_type: Option<String>,
    lifetime: Lifetime,
    closed: bool,
    fork: Option<ForkWish>,
}

struct ForkWish {
    source_path: String,
    offset: Option<u64>,
    sub_offset: u64,
}

fn fork_wish(headers: &HeaderMap) -> Result<Option<ForkWish>, Refusal> {
    let sub_offset = header::number(headers, header::FORK_SUB_OFFSET)?;
    let offset = match header::text(headers, header::FORK_OFFSET)? {
        None => None,
        Some(text) => match offset::parameter(text) {
            Some(offset::From::After(position)) => Some(position),
            Some(offset::From::Now) => None,
            None => return Err(Refusal::bad("Stream-Fork-Offset is not an offset")),
        },
    };
    match header::text(headers, header::FORKED_FROM)? {
        Some(source) => Ok(Some(ForkWish {
            source_path: source.to_owned(),
            offset,
            sub_offset: sub_offset.unwrap_or(0),
        })),
        None if sub_offset.is_some() || offset.is_some() => {
            Err(Refusal::bad("a fork offset needs Stream-Forked-From"))
        }
        None => Ok(None),
    }
}

/// `PUT`. Blocks.
pub(super) fn put(
    log: &Log,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Reply, Refusal> {
    let wish = Wish {
        path,
        content_type: header::text(headers, "content-type")?.map(str::to_owned),
        lifetime: header::lifetime(headers)?,
        closed: header::closes(headers),
        fork: fork_wish(headers)?,
    };
    let (now_ms, streams_max) = (log.now_ms(), log.limits().space_feeds_max);
    let bytes_max = log.settings().bytes_max_of(SPACE);
    let (stream, created) = log.store().writing(|moment| {
        match Stream::enter(moment, &mut Remembered::default(), path, now_ms)? {
            Presence::Gone => Err(Refusal::conflict(
                "the stream was deleted and its forks still need it",
            )),
            Presence::Live(stream) if wish.matches(&stream) => Ok((stream, false)),
            Presence::Live(_) => Err(Refusal::conflict(
                "a stream with another configuration exists",
            )),
            Presence::Absent if Stream::are_at_least(moment, streams_max)? => {
                let told = "there are as many streams as log.space_feeds_max allows";
                Err(Refusal::status(StatusCode::FORBIDDEN, told))
            }
            Presence::Absent => {
                create(moment, &wish, body, (now_ms, bytes_max)).map(|stream| (stream, true))
            }
        }
    })?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let mut reply = Reply::new(status)
        .with("content-type", stream.content_type.clone())
        .with_offset(stream.position)
        .with_closed(stream.closed);
    if created {
        let host = header::text(headers, "host")?.unwrap_or("localhost");
        reply = reply.with("location", format!("http://{host}{path}"));
    }
    Ok(reply)
}

impl Wish<'_> {
    /// Whether an existing stream is what is wished for. What a fork's request
    /// leaves out it takes from its source, so it cannot differ.
    fn matches(&self, stream: &Stream) -> bool {
        let fork_matches = match (&self.fork, &stream.fork) {
            (None, None) => true,
            (Some(wish), Some(fork)) => {
                wish.source_path == fork.source_path
                    && wish.offset.is_none_or(|offset| offset == fork.position)
                    && wish.sub_offset == fork.sub_offset
            }
            _ => false,
        };
        let inherits = self.fork.is_some();
        let content_type = match &self.content_type {
            Some(content_type) => header::essence(content_type),
            None if inherits => header::essence(&stream.content_type),
            None => CONTENT_TYPE_DEFAULT.to_owned(),
        };
        let lifetime_matches =
            self.lifetime == stream.lifetime || (inherits && self.lifetime == Lifetime::default());
        fork_matches
            && lifetime_matches
            && content_type == header::essence(&stream.content_type)
            && self.closed == stream.closed
    }
}

fn create(
    moment: &Moment<'_>,
    wish: &Wish<'_>,
    body: &[u8],
    (now_ms, bytes_max): (u64, u64),
) -> Result<Stream, Refusal> {
    let (source, taken) = match &wish.fork {
        None => (None, None),
        Some(fork) => {
            let (source, position, taken) = fork_point(moment, wish, fork, now_ms)?;
            (Some((source, fork, position)), taken)
        }
    };
    let inherited = source.as_ref().map(|(source, _, _)| source);
    let lifetime = match inherited {
        Some(source) if wish.lifetime == Lifetime::default() => source.lifetime.clone(),
        _ => wish.lifetime.clone(),
    };
    let content_type = match (&wish.content_type, inherited) {
        (Some(content_type), _) => content_type.clone(),
        (None, Some(source)) => source.content_type.clone(),
        (None, None) => CONTENT_TYPE_DEFAULT.to_owned(),
    };
    let mut stream = Stream {
        id: 0,
        path: wish.path.to_owned(),
        content_type,
        lifetime,
        touched_ms: now_ms,
        position: source.as_ref().map_or(0, |(_, _, position)| *position),
        sequence: None,
        closed: wish.closed,
        deleted: false,
        fork: source.map(|(source, fork, position)| Fork {
            source: source.id,
            source_path: fork.source_path.clone(),
            position,
            sub_offset: fork.sub_offset,
        }),
    };
    let content = Content::first(&stream, body)?;
    stream.insert(moment)?;
    let known = &mut Remembered::default();
    for content in taken.into_iter().chain(content) {
        write_content(
            moment,
            known,
            &mut stream,
            "stream",
            content,
            (now_ms, bytes_max),
        )?;
    }
    stream.update(moment)?;
    Ok(stream)
}

/// The source of a fork, the position it leaves at, and the part of the next
/// append it takes along.
fn fork_point(
    moment: &Moment<'_>,
    wish: &Wish<'_>,
    fork: &ForkWish,
    now_ms: u64,
) -> Result<(Stream, u64, Option<Content>), Refusal> {
    let source = match Stream::enter(
        moment,
        &mut Remembered::default(),
        &fork.source_path,
        now_ms,
    )? {
        Presence::Absent => return Err(Refusal::absent()),
        Presence::Gone => return Err(Refusal::conflict("the source was deleted")),
        Presence::Live(source) => source,
    };
    let same_type = |content_type: &String| {
        header::essence(content_type) == header::essence(&source.content_type)
    };
    if !wish.content_type.as_ref().is_none_or(same_type) {
        return Err(Refusal::conflict(
            "a fork has the content type of its source",
        ));
    }
    let position = fork.offset.unwrap_or(source.position);
    if position > source.position {
        return Err(Refusal::bad("Stream-Fork-Offset lies beyond the stream"));
    }
    if source.segments(moment)?.len() >= FORK_DEPTH_MAX {
        return Err(Refusal::bad("forks of forks go too deep"));
    }
    let taken = match fork.sub_offset {
        0 => None,
        sub_offset => Some(Content::part_of_next(
            moment, &source, position, sub_offset,
        )?),
    };
    Ok((source, position, taken))
}
