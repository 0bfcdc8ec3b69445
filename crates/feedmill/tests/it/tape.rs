//! A tape: the frames of a simulated network, changed at one place and played
//! by a relay of our own, while hosts and directory stay the network's.
//!
//! So every fault of a stream can be made on purpose, byte by byte, and the
//! feeds must still become what the network's model says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt as _, StreamExt as _};
use record::event::{Frame, peek};
use sim::network::Network;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// Every frame that the network's relay has sent, in its order.
pub(crate) async fn record(network: &Network) -> Vec<Bytes> {
    let url = format!(
        "{}/xrpc/com.atproto.sync.subscribeRepos?cursor=0",
        network.relay_ws_url()
    );
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let last = network.last_seq() as i64;
    let mut frames: Vec<Bytes> = Vec::new();
    while frames.last().is_none_or(|frame| seq(frame) < Some(last)) {
        if let Message::Binary(frame) = socket.next().await.unwrap().unwrap() {
            frames.push(frame);
        }
    }
    frames
}

pub(crate) fn seq(frame: &[u8]) -> Option<i64> {
    peek(frame).ok()?.seq
}

pub(crate) fn did(frame: &[u8]) -> Option<String> {
    Some(peek(frame).ok()?.did?.to_owned())
}

/// The places of commits that hold operations on posts, the only collection that each reader sees.
pub(crate) fn posts(frames: &[Bytes]) -> Vec<usize> {
    let tells = |frame: &Bytes| match Frame::parse(frame) {
        Ok(Frame::Commit(event)) => event
            .ops
            .iter()
            .any(|op| op.path.starts_with(sim::compose::POST)),
        _ => false,
    };
    (0..frames.len()).filter(|at| tells(&frames[*at])).collect()
}

/// A relay that plays a tape to whoever asks, from behind the cursor.
pub(crate) struct Player {
    pub(crate) url: String,
    address: SocketAddr,
    /// The cursors that clients asked for.
    pub(crate) asked: Arc<Mutex<Vec<i64>>>,
    task: JoinHandle<()>,
}

impl Player {
    pub(crate) async fn start(tape: Vec<Bytes>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), tape).await
    }

    async fn start_at(address: SocketAddr, tape: Vec<Bytes>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(serve(listener, tape.into(), Arc::clone(&asked)));
        Self {
            url: format!("ws://{address}"),
            address,
            asked,
            task,
        }
    }

    /// Ends every connection and starts again at the same address, with this tape.
    pub(crate) async fn restart(self, tape: Vec<Bytes>) -> Self {
        let address = self.address;
        self.stop().await;
        Self::start_at(address, tape).await
    }

    pub(crate) async fn stop(self) {
        self.task.abort();
        // It was aborted: its end is no news.
        drop(self.task.await);
    }
}

async fn serve(listener: TcpListener, tape: Arc<[Bytes]>, asked: Arc<Mutex<Vec<i64>>>) {
    // Connections end with the task that holds them.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tape, asked) = (Arc::clone(&tape), Arc::clone(&asked));
        connections.spawn(async move {
            let mut cursor = 0;
            #[allow(clippy::result_large_err)]
            let look = |request: &Request, response: Response| {
                let query = request.uri().query().unwrap_or_default();
                cursor = query.trim_start_matches("cursor=").parse().unwrap_or(0);
                asked.lock().unwrap().push(cursor);
                Ok(response)
            };
            let accepted = tokio_tungstenite::accept_hdr_async(stream, look).await;
            let Ok(mut socket) = accepted else { return };
            for frame in tape.iter() {
                // A frame without a number is sent to everybody.
                if seq(frame).is_none_or(|seq| seq > cursor)
                    && socket.send(Message::Binary(frame.clone())).await.is_err()
                {
                    return;
                }
            }
            while socket.next().await.is_some_and(|message| message.is_ok()) {}
        });
    }
}
