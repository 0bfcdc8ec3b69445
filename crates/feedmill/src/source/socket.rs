//! A client's WebSocket whose messages are cut where they are too large.
//!
//! In:    a handshake's request, and how large a message may be.
//! Out:   an open socket; a larger message arrives with `bytes_max` and one byte more.
//! Never: a connection lost to the size of a message.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::{IntoClientRequest, uri_mode};
use tokio_tungstenite::tungstenite::error::{TlsError, UrlError};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::stream::Mode;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::cut::Cutting;

/// An open socket.
pub(crate) type Socket = WebSocketStream<Cutting<MaybeTlsStream<TcpStream>>>;

/// Connects to a host that the operator named.
pub(super) async fn connect(request: Request, bytes_max: usize) -> Result<Socket, Error> {
    let (host, mode) = place(&request)?;
    let usual = match mode {
        Mode::Plain => 80,
        Mode::Tls => 443,
    };
    let port = request.uri().port_u16().unwrap_or(usual);
    let line = TcpStream::connect((host.as_str(), port)).await?;
    open(request, line, bytes_max).await
}

/// Shakes hands over a connection, encrypted if the address says so.
pub(crate) async fn open(
    request: impl IntoClientRequest + Unpin,
    line: TcpStream,
    bytes_max: usize,
) -> Result<Socket, Error> {
    let request = request.into_client_request()?;
    let (host, mode) = place(&request)?;
    line.set_nodelay(true)?;
    let line = match mode {
        Mode::Plain => MaybeTlsStream::Plain(line),
        Mode::Tls => {
            let name = ServerName::try_from(host).map_err(|_| TlsError::InvalidDnsName)?;
            let connector = TlsConnector::from(encryption());
            MaybeTlsStream::Rustls(connector.connect(name, line).await?)
        }
    };
    // A cut message is within this; a control frame cannot be larger.
    let limit = Some(bytes_max.saturating_add(1));
    let settings = WebSocketConfig::default()
        .max_message_size(limit)
        .max_frame_size(limit);
    let line = Cutting::new(line, bytes_max);
    let shaken = tokio_tungstenite::client_async_with_config(request, line, Some(settings));
    Ok(shaken.await?.0)
}

/// The host of an address without brackets, and whether it is encrypted.
fn place(request: &Request) -> Result<(String, Mode), Error> {
    let host = request.uri().host().ok_or(UrlError::NoHostName)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), uri_mode(request.uri())?))
}

fn encryption() -> Arc<ClientConfig> {
    static ENCRYPTION: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = ENCRYPTION.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        let config = ClientConfig::builder().with_root_certificates(roots);
        Arc::new(config.with_no_client_auth())
    });
    Arc::clone(config)
}
