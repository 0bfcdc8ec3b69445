//! One streaming connection: its socket, its cable, its troubles.
//!
//! In:    where in the backlog to begin and how to tell an event.
//! Out:   messages until somebody hangs up.
//! Never: an event of the backlog skipped in silence, except by a fault that
//!        is counted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zstd::bulk::Compressor;

use crate::event::SeqEvent;
use crate::faults::{Deed, Meddler};
use crate::wire::Knife;

use super::{Mischief, Moment, Shared, set};

/// Events taken from the backlog at once.
const BATCH_MAX: usize = 64;
/// WebSocket close codes: policy violation, and going away.
pub(super) const POLICY: u16 = 1008;
const AWAY: u16 = 1001;

/// The connection is over.
#[derive(Debug)]
pub(super) struct Over;

/// How messages become WebSocket messages.
pub(super) enum Encoding {
    Binary,
    Text,
    Zstd(Compressor<'static>),
}

/// The messages of one event; none if it is not wanted.
pub(super) type Tell = Box<dyn FnMut(&SeqEvent) -> Vec<Bytes> + Send>;

/// How events are told.
pub(super) struct Talk {
    pub(super) tell: Tell,
    /// What to say to a client the backlog has left behind.
    pub(super) too_slow: Option<Bytes>,
}

/// One connection.
pub(super) struct Line {
    sink: SplitSink<WebSocket, Message>,
    knife: Knife,
    hung_up: watch::Receiver<bool>,
    reader: JoinHandle<()>,
    encoding: Encoding,
}

impl Drop for Line {
    /// The reader holds the other half of the socket and would keep it open.
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Line {
    pub(super) fn new(socket: WebSocket, knife: Knife, encoding: Encoding) -> Self {
        let (sink, mut source) = socket.split();
        let (gone, hung_up) = watch::channel(false);
        let reader = tokio::spawn(async move {
            // Clients of these streams have nothing to say; reading answers
            // their pings and notices when they leave.
            while let Some(Ok(_)) = source.next().await {}
            gone.send_replace(true);
        });
        Self {
            sink,
            knife,
            hung_up,
            reader,
            encoding,
        }
    }

    /// Sends the events numbered `from` or higher until somebody hangs up.
    pub(super) async fn stream(
        &mut self,
        shared: &Shared,
        mischief: &Mischief,
        mut meddler: Meddler,
        mut from: u64,
        mut talk: Talk,
    ) {
        let mut tip = shared.tip();
        let mut stopping = shared.stopping();
        let _open = mischief.open();
        let mut first = true;
        loop {
            tip.borrow_and_update();
            let (batch, too_slow) = {
                let state = shared.state();
                let too_slow = !first && state.backlog.lacks(from);
                (state.backlog.since(from, BATCH_MAX), too_slow)
            };
            first = false;
            if too_slow {
                return self.give_up(talk.too_slow).await;
            }
            mischief.take_orders(&mut meddler, Moment::Streaming);
            let deeds = deeds(&batch, &mut meddler, &mut talk);
            if self.perform(deeds, &mut meddler).await.is_err() {
                return;
            }
            if let Some(event) = batch.last() {
                from = event.seq + 1;
                continue;
            }
            tokio::select! {
                changed = tip.changed() => if changed.is_err() { return },
                () = set(&mut self.hung_up) => return,
                () = set(&mut stopping) => return self.close(AWAY).await,
            }
        }
    }

    async fn give_up(&mut self, last_words: Option<Bytes>) {
        if let Some(words) = last_words {
            // The client may be gone; there is nobody else to tell.
            self.send(words).await.ok();
        }
        self.close(POLICY).await;
    }

    /// Sends one message.
    pub(super) async fn send(&mut self, bytes: Bytes) -> Result<(), Over> {
        let message = match &mut self.encoding {
            Encoding::Binary => Message::Binary(bytes),
            Encoding::Text => Message::Text(bytes.try_into().map_err(|_| Over)?),
            Encoding::Zstd(compressor) => {
                let packed = compressor.compress(&bytes);
                Message::Binary(packed.map_err(|_| Over)?.into())
            }
        };
        self.sink.send(message).await.map_err(|_| Over)
    }

    /// Says goodbye.
    pub(super) async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code,
            reason: "".into(),
        };
        // Whether the client still hears it is of no matter.
        self.sink.send(Message::Close(Some(frame))).await.ok();
        self.sink.close().await.ok();
    }

    /// Does the deeds in order.
    async fn perform(&mut self, deeds: Vec<Deed>, meddler: &mut Meddler) -> Result<(), Over> {
        for deed in deeds {
            match deed {
                Deed::Send(bytes) => self.send(bytes).await?,
                Deed::Pause { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
                Deed::End => {
                    if meddler.below(2) == 0 {
                        self.close(AWAY).await;
                    }
                    self.knife.cut_after(0);
                    return Err(Over);
                }
                Deed::Tear(bytes) => {
                    // Less than half, since compression may shorten it.
                    let most = (bytes.len() as u64 / 4).max(1);
                    self.knife.cut_after(1 + meddler.below(most));
                    self.send(bytes).await.ok(); // it cannot arrive
                    return Err(Over);
                }
            }
        }
        Ok(())
    }
}

/// What the socket is to do for these events.
fn deeds(batch: &[Arc<SeqEvent>], meddler: &mut Meddler, talk: &mut Talk) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for event in batch {
        for message in (talk.tell)(event) {
            meddler.pass(event, message, &mut deeds);
            if matches!(deeds.last(), Some(Deed::End | Deed::Tear(_))) {
                return deeds;
            }
        }
    }
    meddler.flush(&mut deeds);
    deeds
}
