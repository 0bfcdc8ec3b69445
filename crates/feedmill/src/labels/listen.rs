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
use tokio_tungstenite::tungstenite::{self, Message};
use tracing::{info, warn};

use super::{Label, Labels};
use crate::config::Intake;
use crate::config::labels::LabelSource;
use crate::host::Cause;
use crate::identity::{IdentityError, Resolver};
use crate::metrics as names;
use crate::pause::{Pauses, chance};
use crate::reach::fetch::FetchError;
use crate::source::hear::{ANSWER_MAX, Unheard, hear};
use crate::source::socket;
use crate::status::health::Health;
use crate::store::StoreError;
use crate::store::attempt::Attempt;

/// Listens to one labeler.
#[derive(Debug)]
pub struct Listener {
    pub source: LabelSource,
    pub labels: Arc<Labels>,
    pub resolver: Arc<Resolver>,
    pub intake: Intake,
    pub health: Health,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the labeler cannot be found")]
    Unknown(#[from] IdentityError),
    #[error("its document names no labeler, or no key for labels")]
    Nameless,
    #[error("the labeler cannot be reached")]
    Unreachable(#[from] FetchError),
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
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut pauses = Pauses::new(
            Duration::from_millis(self.intake.reconnect_ms),
            Duration::from_millis(self.intake.reconnect_ms_max),
        );
        let attempt = self.labels.attempt(&self.source.did);
        while !*stop.borrow() {
            let ended = tokio::select! {
                ended = self.connection(&mut pauses, attempt.as_ref()) => ended,
                _ = stop.changed() => return,
            };
            let pause = pauses.next(chance());
            let Err(error) = ended;
            let error = crate::check::chain(&error);
            warn!(labeler = self.source.did, error, "labels ended");
            self.health.fails(error);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => return,
            }
        }
    }

    async fn connection(
        &mut self,
        pauses: &mut Pauses,
        attempt: Option<&Attempt>,
    ) -> Result<std::convert::Infallible, Ended> {
        let (endpoint, key) = self.place().await?;
        let cursor = self.labels.cursor(&self.source.did)?;
        // Says whether the file can be written, before anything is asked for.
        self.keep(cursor, Vec::new()).await?;
        let address = format!("{endpoint}/xrpc/com.atproto.label.subscribeLabels?cursor={cursor}")
            .replacen("http", "ws", 1);
        let bytes_max = self.intake.frame_bytes_max;
        let connecting = async {
            let named = self.source.endpoint.is_some();
            let fetcher = self.resolver.fetcher();
            let line = fetcher.connect(Cause::Label, &endpoint, named).await?;
            let shaken = socket::open(address, line, bytes_max).await;
            if let Err(tungstenite::Error::Http(answer)) = &shaken {
                fetcher.heed(&endpoint, answer.status().as_u16(), answer.headers());
            }
            Ok::<_, Ended>(shaken.map_err(Box::new)?)
        };
        let connected = tokio::time::timeout(ANSWER_MAX, connecting).await;
        let mut socket = connected.map_err(|_| Ended::Unanswered)??;
        info!(labeler = self.source.did, cursor, "listening to labels");
        self.health.works();
        loop {
            // A labeler may have nothing to say for days.
            let heard = hear(&mut socket, self.intake.silence_s_max, true).await?;
            let Message::Binary(bytes) = heard else {
                continue;
            };
            pauses.reset();
            let began = attempt.is_none_or(|attempt| attempt.begin_alone(&bytes));
            let said = match began {
                true => self.said(&bytes, key.as_ref()),
                false => self.skipped(
                    &bytes,
                    "the process ended with a message of labels again and again",
                ),
            };
            // What is read is written by the same few statements; a store that is locked is waited for without a mark.
            if let Some(attempt) = attempt {
                attempt.end();
            }
            self.take(said).await?;
        }
    }

    async fn take(&self, said: Said) -> Result<(), Ended> {
        match said {
            Said::Labels { seq, labels } => self.keep(seq, labels).await,
            Said::Error(name) => {
                if name == "FutureCursor" {
                    // Its numbers began anew, so does our reading of them.
                    self.keep(0, Vec::new()).await?;
                }
                Err(Ended::Told(name))
            }
            Said::Nothing => Ok(()),
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
        if bytes.len() > self.intake.frame_bytes_max {
            return self.skipped(
                bytes,
                "a message of labels is larger than intake.frame_bytes_max",
            );
        }
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

    /// A message that is not read: nothing of it is kept but its number, so that it does not come again.
    fn skipped(&self, bytes: &[u8], why: &str) -> Said {
        count_refused();
        let seq = number(bytes);
        warn!(labeler = self.source.did, seq, why, "labels are skipped");
        match seq {
            Some(seq) => Said::Labels {
                seq,
                labels: Vec::new(),
            },
            None => Said::Nothing,
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

/// The number of a message of which only the beginning is there; `seq` comes before `labels`.
fn number(bytes: &[u8]) -> Option<i64> {
    let (header, rest) = record::cbor::decode_first(bytes).ok()?;
    if header.get("t").and_then(Value::text) != Some("#labels") {
        return None;
    }
    let mut reader = record::cbor::Reader::new(rest);
    let mut fields = reader.map().ok()?;
    while let Some(key) = fields.key(&mut reader).ok()? {
        match key {
            "seq" => return reader.int().ok(),
            _ => reader.skip().ok()?,
        }
    }
    None
}

fn count_refused() {
    counter!(names::LABELS, "result" => "refused").increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::cbor::Writer;

    #[test]
    fn the_number_of_a_message_that_was_cut_off_is_found() {
        let mut writer = Writer::with_capacity(5000);
        writer.map(2).text("t").text("#labels").text("op").int(1);
        writer.map(2).text("seq").int(7);
        writer.text("labels").list(1).bytes(&[1; 4000]);
        let bytes = writer.into_bytes();
        for length in [1000, 100, 40] {
            assert_eq!(number(&bytes[..length]), Some(7));
        }
        assert_eq!(number(&bytes[..10]), None);
        assert_eq!(number(b"garbage"), None);
    }
}
