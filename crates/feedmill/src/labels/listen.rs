//! `com.atproto.label.subscribeLabels`: one labeler's stream, for ever.
//!
//! In:    the labeler's address and key, and how far its stream is kept.
//! Out:   labels kept, with the stream's number in the same transaction.
//! Never: a label kept twice for one word; a frame that ends the listening.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use record::key::PublicKey;
use record::value::Value;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tracing::{info, warn};

use super::{Label, Labels};
use crate::config::Intake;
use crate::config::labels::LabelSource;
use crate::identity::{IdentityError, Resolver};
use crate::metrics as names;
use crate::pause::{Pauses, chance};
use crate::reach::ConnectError;
use crate::source::hear::{ANSWER_MAX, Unheard, hear};
use crate::store::StoreError;

/// Listens to one labeler.
#[derive(Debug)]
pub struct Listener {
    pub source: LabelSource,
    pub labels: Arc<Labels>,
    pub resolver: Arc<Resolver>,
    pub intake: Intake,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the labeler cannot be found")]
    Unknown(#[from] IdentityError),
    #[error("its document names no labeler, or no key for labels")]
    Nameless,
    #[error("the labeler cannot be reached")]
    Unreachable(#[from] ConnectError),
    #[error("no connection")]
    Refused(#[from] Box<tungstenite::Error>),
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    Unanswered,
    #[error(transparent)]
    Unheard(#[from] Unheard),
    #[error("ended by the labeler: {0}")]
    Told(String),
    #[error("labels cannot be kept")]
    Store(#[from] StoreError),
    #[error("keeping labels was cut short")]
    Cut(#[from] tokio::task::JoinError),
}

/// What one message says.
enum Said {
    Labels { seq: i64, labels: Vec<Label> },
    Error(String),
    Nothing,
}

impl Listener {
    /// Listens until `stop` is set.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut pauses = Pauses::new(
            Duration::from_millis(self.intake.reconnect_ms),
            Duration::from_millis(self.intake.reconnect_ms_max),
        );
        while !*stop.borrow() {
            let ended = tokio::select! {
                ended = self.connection(&mut pauses) => ended,
                _ = stop.changed() => return,
            };
            let pause = pauses.next(chance());
            let Err(error) = ended;
            let error = crate::check::chain(&error);
            warn!(labeler = self.source.did, error, "labels ended");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => return,
            }
        }
    }

    async fn connection(&self, pauses: &mut Pauses) -> Result<std::convert::Infallible, Ended> {
        let (endpoint, key) = self.place().await?;
        let cursor = self.labels.cursor(&self.source.did)?;
        let address = format!("{endpoint}/xrpc/com.atproto.label.subscribeLabels?cursor={cursor}")
            .replacen("http", "ws", 1);
        let bytes_max = self.intake.frame_bytes_max;
        let settings = WebSocketConfig::default()
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max));
        let connecting = async {
            let named = self.source.endpoint.is_some();
            let line = self.resolver.reach().connect(&endpoint, named).await?;
            let settings = Some(settings);
            let shaken =
                tokio_tungstenite::client_async_tls_with_config(address, line, settings, None);
            Ok::<_, Ended>(shaken.await.map_err(Box::new)?)
        };
        let connected = tokio::time::timeout(ANSWER_MAX, connecting).await;
        let (mut socket, _) = connected.map_err(|_| Ended::Unanswered)??;
        info!(labeler = self.source.did, cursor, "listening to labels");
        loop {
            // A labeler may have nothing to say for days.
            let heard = hear(&mut socket, self.intake.silence_s_max, true).await?;
            let Message::Binary(bytes) = heard else {
                continue;
            };
            pauses.reset();
            match self.said(&bytes, key.as_ref()) {
                Said::Labels { seq, labels } => self.keep(seq, labels).await?,
                Said::Error(name) if name == "FutureCursor" => {
                    // Its numbers began anew, so does our reading of them.
                    self.keep(0, Vec::new()).await?;
                    return Err(Ended::Told(name));
                }
                Said::Error(name) => return Err(Ended::Told(name)),
                Said::Nothing => {}
            }
        }
    }

    /// Where the stream is, and the key its labels are signed with, if that is asked.
    async fn place(&self) -> Result<(String, Option<PublicKey>), Ended> {
        let named = match (&self.source.endpoint, self.source.verify) {
            (Some(_), false) => None,
            _ => Some(self.resolver.labeler(&self.source.did).await?),
        };
        let endpoint = self.source.endpoint.clone();
        let endpoint = endpoint.or_else(|| named.as_ref()?.endpoint.clone());
        let key = named.and_then(|named| named.key);
        let key = key.filter(|_| self.source.verify);
        match (endpoint, &key, self.source.verify) {
            (Some(endpoint), Some(_), _) | (Some(endpoint), None, false) => {
                Ok((endpoint.trim_end_matches('/').to_owned(), key))
            }
            _ => Err(Ended::Nameless),
        }
    }

    fn said(&self, bytes: &[u8], key: Option<&PublicKey>) -> Said {
        let parsed = record::cbor::decode_first(bytes)
            .and_then(|(header, rest)| Ok((header, record::cbor::decode(rest)?)));
        let Ok((header, body)) = parsed else {
            count_refused();
            return Said::Nothing;
        };
        let op = header.get("op").and_then(Value::int);
        let kind = header.get("t").and_then(Value::text);
        match (op, kind, body.get("labels"), body.get("seq")) {
            (Some(-1), ..) => {
                let name = body.get("error").and_then(Value::text);
                Said::Error(name.unwrap_or("no reason").to_owned())
            }
            (Some(1), Some("#labels"), Some(Value::List(labels)), Some(Value::Int(seq))) => {
                let read = |value| Label::read(value, &self.source.did, key);
                let mut good = Vec::with_capacity(labels.len());
                for label in labels.iter().map(read) {
                    match label {
                        Ok(label) => good.push(label),
                        Err(error) => {
                            count_refused();
                            warn!(labeler = self.source.did, %error, seq, "a label is not kept");
                        }
                    }
                }
                Said::Labels {
                    seq: *seq,
                    labels: good,
                }
            }
            (Some(1), Some("#info"), ..) => {
                let name = body.get("name").and_then(Value::text);
                warn!(labeler = self.source.did, name, "a labeler informs");
                Said::Nothing
            }
            _ => Said::Nothing,
        }
    }

    async fn keep(&self, seq: i64, labels: Vec<Label>) -> Result<(), Ended> {
        let (kept, did) = (Arc::clone(&self.labels), self.source.did.clone());
        let count = labels.len() as u64;
        let keep = move || kept.keep(&did, seq, &labels);
        tokio::task::spawn_blocking(keep).await??;
        counter!(names::LABELS, "result" => "kept").increment(count);
        Ok(())
    }
}

fn count_refused() {
    counter!(names::LABELS, "result" => "refused").increment(1);
}
