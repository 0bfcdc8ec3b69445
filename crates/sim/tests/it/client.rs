//! A client just big enough to ask a loopback server something.

use futures_util::{SinkExt, StreamExt};
use sim::network::Network;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// `GET base/path`, with another host name if one is given.
pub(crate) async fn get(base: &str, path: &str, host: Option<&str>) -> Answer {
    let address = base.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let host = host.unwrap_or(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let split = bytes.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..split].to_vec()).unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head,
        body: bytes[split + 4..].to_vec(),
    }
}

/// A WebSocket to somewhere.
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Closed with this code.
    Closed(u16),
    /// Broken without a word.
    Broken,
}

impl Socket {
    pub(crate) async fn open(url: &str) -> Self {
        Self::try_open(url).await.unwrap()
    }

    pub(crate) async fn try_open(url: &str) -> Result<Self, Error> {
        let (socket, _) = tokio_tungstenite::connect_async(url).await?;
        Ok(Self(socket))
    }

    pub(crate) async fn relay(network: &Network, cursor: Option<u64>) -> Self {
        let query = cursor.map_or(String::new(), |cursor| format!("?cursor={cursor}"));
        let base = network.relay_ws_url();
        Self::open(&format!(
            "{base}/xrpc/com.atproto.sync.subscribeRepos{query}"
        ))
        .await
    }

    /// The next message's bytes, text or not.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>, End> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Binary(bytes))) => return Ok(bytes.to_vec()),
                Some(Ok(Message::Text(text))) => return Ok(text.as_bytes().to_vec()),
                Some(Ok(Message::Close(frame))) => {
                    return Err(End::Closed(frame.map_or(0, |frame| frame.code.into())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(End::Broken),
            }
        }
    }

    /// The next `count` messages.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for _ in 0..count {
            messages.push(self.next().await.unwrap());
        }
        messages
    }

    /// Everything until the stream ends.
    pub(crate) async fn rest(&mut self) -> (Vec<Vec<u8>>, End) {
        let mut messages = Vec::new();
        loop {
            match self.next().await {
                Ok(message) => messages.push(message),
                Err(end) => return (messages, end),
            }
        }
    }

    pub(crate) async fn close(mut self) {
        self.0.send(Message::Close(None)).await.ok();
    }
}

/// Returns when no stream is open: a stream that lingers would take the next
/// fault ordered for itself.
pub(crate) async fn quiet(network: &Network) {
    while network.streams_open() > 0 {
        tokio::task::yield_now().await;
    }
}
