//! Faults: why a request was not done, in words a program can act on.
//!
//! In:    whatever went wrong.
//! Out:   a stable code, a sentence, and the numbers the caller needs.
//! Never: an answer that must be read as prose to know what to do.

use crate::block::BlockKey;
use crate::chain::Refused;
use crate::cursor::Epoch;
use crate::message::field;
use crate::store::StoreError;
use serde_json::{Map, Value, json};

/// One refused block, as the wire names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBlock {
    /// Its place in the append.
    pub index: usize,
    /// Its key.
    pub key: BlockKey,
    /// The code of the refusal.
    pub code: String,
    /// The refusal in words.
    pub message: String,
}

/// What is wrong with one block of an append, before it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadBlock {
    /// Its place in the append.
    pub index: usize,
    /// Where.
    pub field: String,
    /// What.
    pub problem: String,
}

/// Why a request was not done. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The message is not one: fix the program that sent it.
    #[error("{field}: {problem}")]
    BadRequest {
        /// Where.
        field: String,
        /// What.
        problem: String,
    },
    /// No such kind of message.
    #[error("there is no message of kind {kind}")]
    UnknownKind {
        /// The kind that was named.
        kind: String,
    },
    /// The cursor is not one of ours.
    #[error("the cursor is not one this log made")]
    BadCursor,
    /// More than a named limit allows.
    #[error("more than {limit} allows, which is {max}")]
    TooLarge {
        /// The limit's name.
        limit: String,
        /// Its value.
        max: u64,
    },
    /// The space does not exist here.
    #[error("the space is not known here")]
    UnknownSpace,
    /// The space was deleted: only an explicit create makes it again.
    #[error("the space was deleted: create it to make it again")]
    SpaceDeleted,
    /// The subscription never was, or was forgotten: subscribe again.
    #[error("there is no such subscription")]
    UnknownSubscription,
    /// The subscription is over: subscribe again.
    #[error("the subscription expired at {expires_ms}")]
    ExpiredSubscription {
        /// When.
        expires_ms: u64,
    },
    /// This is not the log the cursor is from: start over.
    #[error("the log was replaced")]
    Replaced {
        /// The epoch of this log.
        epoch: Epoch,
        /// Its highest position.
        position_max: u64,
    },
    /// This log has lost what the cursor has seen: start over.
    #[error("the log was rolled back")]
    RolledBack {
        /// The epoch of this log.
        epoch: Epoch,
        /// Its highest position.
        position_max: u64,
    },
    /// The log does not reach the position of the cursor: it is of another log, or comes too soon.
    #[error("the cursor is above {position_max}, the highest position")]
    BeyondEnd {
        /// The epoch of this log.
        epoch: Epoch,
        /// Its highest position.
        position_max: u64,
    },
    /// What was asked for is no longer kept.
    #[error("gone, go on from {starts_at}")]
    Gone {
        /// The position above which nothing is missing: a cursor to go on with.
        starts_at: u64,
    },
    /// Some blocks cannot be accepted; none was written.
    #[error("{} of the blocks are refused", .0.len())]
    Refused(Vec<RefusedBlock>),
    /// Some blocks are not blocks: fix the program that sent them.
    #[error("block {}: {}: {}", .0.first().map_or(0, |bad| bad.index), .0.first().map_or("", |bad| &bad.field), .0.first().map_or("", |bad| &bad.problem))]
    BadBlocks(Vec<BadBlock>),
    /// The caller may not do this here.
    #[error("not allowed")]
    NotAllowed,
    /// Nobody knows the caller: show a token.
    #[error("a token is needed: Authorization: Bearer <token>")]
    Unauthorized,
    /// A page of another origin asked: list it in `log.origins`, or ask from elsewhere.
    #[error("pages of this origin may not ask; see log.origins")]
    ForeignOrigin,
    /// The body is of another kind.
    #[error("the body must be application/json or application/cbor")]
    MediaType,
    /// There is no room: delete something, or raise the limit.
    #[error("there is no room: {limit} is {max}")]
    Full {
        /// The limit's name.
        limit: String,
        /// Its value.
        max: u64,
    },
    /// Too often: wait.
    #[error("too many requests, try again in {retry_after_ms} ms")]
    RateLimited {
        /// How long.
        retry_after_ms: u64,
    },
    /// The store failed: try again.
    #[error("the log is not available now")]
    Unavailable,
    /// A peer answered with a code this version does not know.
    #[error("{code}: {message}")]
    Foreign {
        /// The code.
        code: String,
        /// The sentence.
        message: String,
    },
}

impl From<Vec<Refused>> for Fault {
    fn from(refused: Vec<Refused>) -> Self {
        Self::Refused(
            refused
                .into_iter()
                .map(|one| RefusedBlock {
                    index: one.index,
                    key: one.key,
                    code: one.refusal.code().to_owned(),
                    message: one.refusal.to_string(),
                })
                .collect(),
        )
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UnknownSpace => Self::UnknownSpace,
            StoreError::Passing(_) | StoreError::Damaged(_) => Self::Unavailable,
        }
    }
}

impl Fault {
    /// A malformed field.
    #[must_use]
    pub fn bad(field: &str, problem: &str) -> Self {
        Self::BadRequest {
            field: field.to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// The stable code. Refused blocks give the code of the first.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(blocks) => blocks
                .first()
                .map_or("refused", |first| first.code.as_str()),
            Self::Foreign { code, .. } => code,
            other => other.class(),
        }
    }

    /// The stable code, from a list that no peer can make longer.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::BadRequest { .. } | Self::BadBlocks(_) => "badRequest",
            Self::Unauthorized => "unauthorized",
            Self::ForeignOrigin => "foreignOrigin",
            Self::MediaType => "unsupportedMediaType",
            Self::Full { .. } => "full",
            Self::UnknownKind { .. } => "unknownKind",
            Self::BadCursor => "badCursor",
            Self::TooLarge { .. } => "tooLarge",
            Self::UnknownSpace => "unknownSpace",
            Self::SpaceDeleted => "spaceDeleted",
            Self::UnknownSubscription => "unknownSubscription",
            Self::ExpiredSubscription { .. } => "expiredSubscription",
            Self::Replaced { .. } => "replaced",
            Self::RolledBack { .. } => "rolledBack",
            Self::BeyondEnd { .. } => "beyondEnd",
            Self::Gone { .. } => "gone",
            Self::Refused(_) => "refused",
            Self::NotAllowed => "notAllowed",
            Self::RateLimited { .. } => "rateLimited",
            Self::Unavailable => "unavailable",
            Self::Foreign { .. } => "foreign",
        }
    }

    /// The HTTP status that says the same.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::BadRequest { .. }
            | Self::BadBlocks(_)
            | Self::UnknownKind { .. }
            | Self::BadCursor => 400,
            Self::Unauthorized => 401,
            Self::MediaType => 415,
            Self::Full { .. } => 507,
            Self::TooLarge { .. } => 413,
            Self::UnknownSpace | Self::UnknownSubscription => 404,
            Self::SpaceDeleted | Self::ExpiredSubscription { .. } | Self::Gone { .. } => 410,
            Self::Replaced { .. } | Self::RolledBack { .. } | Self::BeyondEnd { .. } => 409,
            Self::Refused(blocks) => match blocks.first().map(|first| first.code.as_str()) {
                Some("notAllowed" | "signature") => 403,
                Some("tooLarge") => 413,
                Some("spaceBytes") => 507,
                _ => 409,
            },
            Self::NotAllowed | Self::ForeignOrigin => 403,
            Self::RateLimited { .. } => 429,
            Self::Unavailable | Self::Foreign { .. } => 503,
        }
    }

    /// The fields of the error message.
    #[must_use]
    pub fn to_fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("error".into(), json!(self.code()));
        fields.insert("message".into(), json!(self.to_string()));
        match self {
            Self::TooLarge { limit, max } | Self::Full { limit, max } => {
                fields.insert("limit".into(), json!(limit));
                fields.insert("max".into(), json!(max));
            }
            Self::BadRequest { field, .. } => {
                fields.insert("field".into(), json!(field));
            }
            Self::BadBlocks(blocks) => {
                let first = blocks.first().map(|bad| bad.field.as_str());
                fields.insert("field".into(), json!(first));
                let list = blocks.iter().map(|bad| {
                    let message = format!("{}: {}", bad.field, bad.problem);
                    json!({"index": bad.index, "error": "badRequest", "field": bad.field, "message": message})
                });
                fields.insert("blocks".into(), list.collect());
            }
            Self::ExpiredSubscription { expires_ms } => {
                fields.insert("expiresAt".into(), json!(expires_ms));
            }
            Self::Replaced {
                epoch,
                position_max,
            }
            | Self::RolledBack {
                epoch,
                position_max,
            }
            | Self::BeyondEnd {
                epoch,
                position_max,
            } => {
                fields.insert("epoch".into(), json!(epoch.to_string()));
                fields.insert("maxPosition".into(), json!(position_max));
            }
            Self::Gone { starts_at } => {
                fields.insert("startsAt".into(), json!(starts_at));
            }
            Self::RateLimited { retry_after_ms } => {
                fields.insert("retryAfterMs".into(), json!(retry_after_ms));
            }
            Self::Refused(blocks) => {
                fields.insert(
                    "blocks".into(),
                    blocks.iter().map(refused_to_json).collect(),
                );
            }
            _ => {}
        }
        fields
    }

    /// The fault in an error message; `None` if the message is no error.
    #[must_use]
    pub fn from_message(message: &Value) -> Option<Self> {
        let code = message.get("error")?.as_str()?;
        let number = |name: &str| message.get(name).and_then(Value::as_u64).unwrap_or(0);
        let epoch = || {
            message
                .get("epoch")
                .and_then(Value::as_str)
                .and_then(Epoch::from_text)
        };
        let text = message
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if code != "badRequest"
            && let Some(blocks) = message.get("blocks").and_then(Value::as_array)
        {
            return Some(Self::Refused(
                blocks.iter().filter_map(refused_from_json).collect(),
            ));
        }
        let position_max = number("maxPosition");
        let words = |name: &str| {
            let found = message.get(name).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        Some(match (code, epoch()) {
            ("replaced", Some(epoch)) => Self::Replaced {
                epoch,
                position_max,
            },
            ("rolledBack", Some(epoch)) => Self::RolledBack {
                epoch,
                position_max,
            },
            ("beyondEnd", Some(epoch)) => Self::BeyondEnd {
                epoch,
                position_max,
            },
            ("gone", _) => Self::Gone {
                starts_at: number("startsAt"),
            },
            ("rateLimited", _) => Self::RateLimited {
                retry_after_ms: number("retryAfterMs"),
            },
            ("unknownSpace", _) => Self::UnknownSpace,
            ("spaceDeleted", _) => Self::SpaceDeleted,
            ("unknownSubscription", _) => Self::UnknownSubscription,
            ("badCursor", _) => Self::BadCursor,
            ("notAllowed", _) => Self::NotAllowed,
            ("unauthorized", _) => Self::Unauthorized,
            ("full", _) => Self::Full {
                limit: words("limit"),
                max: number("max"),
            },
            ("tooLarge", _) => Self::TooLarge {
                limit: words("limit"),
                max: number("max"),
            },
            ("badRequest", _) => bad_request(message, words("field"), text),
            ("unavailable", _) => Self::Unavailable,
            _ => Self::Foreign {
                code: code.to_owned(),
                message: text.to_owned(),
            },
        })
    }
}

fn refused_to_json(block: &RefusedBlock) -> Value {
    json!({
        "index": block.index,
        "feedId": block.key.feed,
        "actorId": block.key.actor,
        "sequence": block.key.sequence,
        "error": block.code,
        "message": block.message,
    })
}

/// A malformed request, or the malformed blocks of an append.
fn bad_request(message: &Value, field: String, problem: &str) -> Fault {
    match message.get("blocks").and_then(Value::as_array) {
        Some(blocks) => Fault::BadBlocks(blocks.iter().filter_map(bad_from_json).collect()),
        None => Fault::BadRequest {
            field,
            problem: problem.to_owned(),
        },
    }
}

fn bad_from_json(value: &Value) -> Option<BadBlock> {
    let object = value.as_object()?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(BadBlock {
        index: usize::try_from(field::integer(object, "index").ok()??).ok()?,
        field: text("field").unwrap_or_default(),
        problem: text("message").unwrap_or_default(),
    })
}

fn refused_from_json(value: &Value) -> Option<RefusedBlock> {
    let object = value.as_object()?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(RefusedBlock {
        index: usize::try_from(field::integer(object, "index").ok()??).ok()?,
        key: BlockKey {
            feed: text("feedId")?,
            actor: text("actorId")?,
            sequence: field::integer(object, "sequence").ok()??,
        },
        code: text("error")?,
        message: text("message").unwrap_or_default(),
    })
}
