//! Cutting: a WebSocket message that is too large loses its end, not its connection.
//!
//! In:    the bytes that a server sends, its reply to the handshake included.
//! Out:   the same bytes, in which no message has more than `bytes_max` and one byte more.
//! Never: more than a frame's head held back; a message joined to another.
//!
//! A WebSocket library refuses a message over its limit by ending the
//! connection, without a look at it. A client that reads a stream from a cursor
//! then asks for the same message again, for ever. A message that is cut off
//! arrives one byte too large, is refused like any other, and the number at its
//! beginning says where the stream goes on.
//!
//! Text becomes binary on the way: a cut may go through a character, and who
//! reads the message checks its text anyway.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 32 << 10;
/// Bytes of the longest head of a frame that is not masked.
const HEAD_BYTES_MAX: usize = 10;
/// How a reply to a handshake ends, and how it begins where it was accepted.
const REPLY_END: &[u8] = b"\r\n\r\n";
const ACCEPTED: &[u8] = b"HTTP/1.1 101";

const OPCODE: u8 = 0x0f;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CONTROL: u8 = 8;
const MASKED: u8 = 0x80;

/// Where in the stream the next byte is.
#[derive(Debug)]
enum State {
    /// In the reply: how much of its end was seen, and whether it begins as it should.
    Reply { ended: usize, begun: usize },
    /// In the head of a frame.
    Head {
        head: [u8; HEAD_BYTES_MAX],
        have: usize,
    },
    /// In what a frame carries: so many bytes are kept, and so many behind them left out.
    Payload { kept: u64, dropped: u64 },
    /// Nothing is looked at any more: the handshake or a frame is wrong, and whoever reads says so.
    Verbatim,
}

/// Cuts the messages of one connection.
#[derive(Debug)]
pub(super) struct Cut {
    bytes_max: u64,
    state: State,
    /// Bytes of the present message that were passed on.
    passed: u64,
}

impl Cut {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: bytes_max as u64,
            state: State::Reply { ended: 0, begun: 0 },
            passed: 0,
        }
    }

    /// Appends what is left of `input` to `out`.
    pub(super) fn pass(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while let Some((&byte, rest)) = input.split_first() {
            match &mut self.state {
                State::Verbatim => {
                    out.extend_from_slice(input);
                    return;
                }
                State::Payload { kept, dropped } => {
                    let part = take(&mut input, kept);
                    out.extend_from_slice(part);
                    take(&mut input, dropped);
                    if *kept == 0 && *dropped == 0 {
                        self.state = head();
                    }
                }
                State::Reply { .. } => {
                    out.push(byte);
                    self.reply(byte);
                    input = rest;
                }
                State::Head { .. } => {
                    self.head(byte, out);
                    input = rest;
                }
            }
        }
    }

    fn reply(&mut self, byte: u8) {
        let State::Reply { ended, begun } = &mut self.state else {
            return;
        };
        if ACCEPTED.get(*begun) == Some(&byte) {
            *begun += 1;
        } else if *begun < ACCEPTED.len() {
            self.state = State::Verbatim; // refused: what follows is a text
            return;
        }
        let goes_on = REPLY_END.get(*ended) == Some(&byte);
        let begins_anew = usize::from(REPLY_END.first() == Some(&byte));
        *ended = if goes_on { *ended + 1 } else { begins_anew };
        if *ended == REPLY_END.len() {
            self.state = head();
        }
    }

    fn head(&mut self, byte: u8, out: &mut Vec<u8>) {
        let State::Head { head, have } = &mut self.state else {
            return;
        };
        if let Some(place) = head.get_mut(*have) {
            *place = byte;
            *have += 1;
        }
        let [first, second, long @ ..] = *head;
        let length = match (*have, second & !MASKED) {
            (0 | 1, _) => return,
            (4, 126) => {
                let [high, low, ..] = long;
                u64::from(u16::from_be_bytes([high, low]))
            }
            (HEAD_BYTES_MAX, 127) => u64::from_be_bytes(long),
            (_, 126 | 127) => return,
            (_, short) => u64::from(short),
        };
        if second & MASKED != 0 {
            out.extend(head.iter().take(*have));
            self.state = State::Verbatim; // servers do not mask
            return;
        }
        self.state = self.begin(first, length, out);
    }

    /// Begins a frame of this length.
    fn begin(&mut self, first: u8, length: u64, out: &mut Vec<u8>) -> State {
        let opcode = first & OPCODE;
        let (first, kept) = if opcode & CONTROL != 0 {
            (first, length)
        } else {
            if opcode != CONTINUATION {
                self.passed = 0;
            }
            // One byte too many says that there were more.
            let room = (self.bytes_max + 1).saturating_sub(self.passed);
            let kept = length.min(room);
            self.passed += kept;
            let opcode = if opcode == TEXT { BINARY } else { opcode };
            (first & !OPCODE | opcode, kept)
        };
        out.push(first);
        match kept {
            0..126 => out.push(kept as u8),
            126..65_536 => {
                out.push(126);
                out.extend((kept as u16).to_be_bytes());
            }
            _ => {
                out.push(127);
                out.extend(kept.to_be_bytes());
            }
        }
        match length {
            0 => head(),
            _ => State::Payload {
                kept,
                dropped: length - kept,
            },
        }
    }
}

fn head() -> State {
    State::Head {
        head: [0; HEAD_BYTES_MAX],
        have: 0,
    }
}

/// Takes up to `left` bytes from the beginning of `input`.
fn take<'a>(input: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let count = usize::try_from(*left).unwrap_or(usize::MAX);
    let (part, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    *left -= part.len() as u64;
    part
}

/// A connection whose messages are cut.
#[derive(Debug)]
pub(crate) struct Cutting<S> {
    inner: S,
    cut: Cut,
    chunk: Box<[u8]>,
    /// What is to be read next, from `at` on.
    ready: Vec<u8>,
    at: usize,
}

impl<S> Cutting<S> {
    pub(super) fn new(inner: S, bytes_max: usize) -> Self {
        Self {
            inner,
            cut: Cut::new(bytes_max),
            chunk: vec![0; CHUNK_BYTES].into(),
            ready: Vec::with_capacity(CHUNK_BYTES),
            at: 0,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cutting<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        while this.at == this.ready.len() {
            this.ready.clear();
            this.at = 0;
            let mut chunk = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(())); // the end
            }
            this.cut.pass(chunk.filled(), &mut this.ready);
        }
        let left = this.ready.get(this.at..).unwrap_or_default();
        let part = left.get(..buffer.remaining()).unwrap_or(left);
        buffer.put_slice(part);
        this.at += part.len();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cutting<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIN: u8 = 0x80;
    const REPLY: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";

    /// A frame as a server sends it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..126 => bytes.push(length as u8),
            length @ 126..65_536 => {
                bytes.push(126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(payload);
        bytes
    }

    /// What is left of these bytes behind an accepted handshake, however they are split.
    #[track_caller]
    fn check(bytes_max: usize, sent: &[Vec<u8>], expected: &[Vec<u8>]) {
        let sent = [REPLY, &sent.concat()].concat();
        let expected = [REPLY, &expected.concat()].concat();
        for step in [1, 2, 3, 7, 100, sent.len()] {
            let (mut cut, mut out) = (Cut::new(bytes_max), Vec::new());
            for part in sent.chunks(step) {
                cut.pass(part, &mut out);
            }
            assert!(out == expected, "in steps of {step}");
        }
    }

    #[test]
    fn messages_within_the_limit_pass_and_text_becomes_binary() {
        let sizes = [0, 1, 125, 126, 200, 65_535, 65_536, 70_000];
        let sent: Vec<_> = sizes
            .iter()
            .map(|size| frame(FIN | BINARY, &vec![7; *size]))
            .collect();
        check(70_000, &sent, &sent);
        check(
            9,
            &[frame(FIN | TEXT, b"text")],
            &[frame(FIN | BINARY, b"text")],
        );
    }

    #[test]
    fn a_message_over_the_limit_is_one_byte_too_large_and_the_next_one_is_whole() {
        let next = frame(FIN | BINARY, b"next");
        for size in [101, 500, 65_536, 300_000] {
            let large = frame(FIN | BINARY, &vec![7; size]);
            let left = frame(FIN | BINARY, &[7; 101]);
            check(100, &[large, next.clone()], &[left, next.clone()]);
        }
    }

    #[test]
    fn parts_of_one_message_are_counted_together_and_a_ping_between_them_is_left_alone() {
        let ping = frame(FIN | 9, b"ping");
        let next = frame(FIN | BINARY, &[1; 100]);
        let sent = [
            frame(BINARY, &[7; 60]),
            ping.clone(),
            frame(CONTINUATION, &[8; 60]),
            frame(CONTINUATION, &[9; 60]),
            frame(FIN | CONTINUATION, &[9; 60]),
            next.clone(),
        ];
        let left = [
            frame(BINARY, &[7; 60]),
            ping,
            frame(CONTINUATION, &[8; 41]),
            frame(CONTINUATION, &[]),
            frame(FIN | CONTINUATION, &[]),
            next,
        ];
        check(100, &sent, &left);
    }

    #[test]
    fn a_refusal_keeps_its_text_whatever_that_is() {
        let refusal = [
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            frame(FIN | TEXT, &[7; 500]),
        ];
        let (mut cut, mut out) = (Cut::new(10), Vec::new());
        cut.pass(&refusal.concat(), &mut out);
        assert_eq!(out, refusal.concat());
    }
}
