//! Hearing: the next message of a host that may have nothing to say.
//!
//! In:    a socket, and how long a silence is borne.
//! Out:   its next message; an idle host answers a ping, a dead one does not.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

/// How long a host may take to accept a connection, or to answer a ping.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Why there is no next message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheard {
    #[error("silent for {0} s")]
    Silent(u64),
    #[error("closed by the host")]
    Closed,
    #[error("connection broke")]
    Broke(#[from] Box<Error>),
}

/// The next message within `silence_s`, or in answer to a ping where the silent are asked.
pub(crate) async fn hear<S>(
    socket: &mut WebSocketStream<S>,
    silence_s: u64,
    ask: bool,
) -> Result<Message, Unheard>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let silence = Duration::from_secs(silence_s);
    let mut heard = tokio::time::timeout(silence, socket.next()).await;
    if heard.is_err() && ask {
        let asked = socket.send(Message::Ping(Bytes::new())).await;
        asked.map_err(Box::new)?;
        heard = tokio::time::timeout(ANSWER_MAX, socket.next()).await;
    }
    match heard {
        Err(_) => Err(Unheard::Silent(silence_s)),
        Ok(None | Some(Ok(Message::Close(_)))) => Err(Unheard::Closed),
        Ok(Some(heard)) => Ok(heard.map_err(Box::new)?),
    }
}
