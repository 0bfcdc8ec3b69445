//! Answers: what a log says back.
//!
//! In:    the result of a request; or a message from an authority.
//! Out:   its JSON, with the request's id; or the typed answer.
//! Never: an answer that leaves out the id.

use super::RequestId;
use super::fault::Fault;
use super::field;
use super::form;
use crate::block::{Hash, Held};
use crate::chain::Tip;
use crate::cursor::Epoch;
use crate::limits::Limits;
use crate::store::FeedState;
use serde_json::{Map, Value, json};

/// Blocks, in read order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// The page.
    pub blocks: Vec<Held>,
    /// More follows at once.
    pub has_more: bool,
    /// The cursor to go on with.
    pub next_cursor: String,
    /// The position the log read from behind.
    pub after: u64,
    /// The cursor for that, where the question named none and the page holds blocks.
    pub start_cursor: Option<String>,
    /// The position up to which this page is complete.
    pub covered: u64,
    /// Whose history it is.
    pub epoch: Epoch,
    /// The log's highest position.
    pub position_max: u64,
    /// Feeds that lost blocks above `after`, and up to where.
    pub evicted: Vec<(String, u64)>,
    /// What was evicted up to this position is not remembered: pushed again, it
    /// would be taken for new.
    pub forgotten: u64,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    /// Its id.
    pub subscription_id: String,
    /// When it ends, in Unix milliseconds.
    pub expires_ms: u64,
}

/// Positions, one per block; empty if the log does not give them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// In the order of the request.
    pub positions: Vec<u64>,
    /// Whose history it is.
    pub epoch: Epoch,
}

/// Feeds, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feeds {
    /// The page.
    pub feeds: Vec<FeedState>,
    /// More follows behind the last.
    pub has_more: bool,
}

/// One of the four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a query.
    Blocks(Blocks),
    /// To a subscribe.
    Subscribed(Subscribed),
    /// To an append.
    Appended(Appended),
    /// To a list.
    Feeds(Feeds),
    /// To a create, delete or purge: how many spaces were made, or blocks went.
    Changed(u64),
}

/// Sent without a request: a subscribed feed has advanced. It carries no data
/// and may be lost; whoever gets it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    /// The space.
    pub space: String,
    /// Its highest position.
    pub position_max: u64,
}

impl Advanced {
    /// The message.
    #[must_use]
    pub fn to_message(&self) -> Value {
        json!({"type": "advanced", "spaceId": self.space, "maxPosition": self.position_max})
    }

    /// The hint in a message; `None` if it is none.
    #[must_use]
    pub fn from_message(message: &Value) -> Option<Self> {
        (message.get("type")?.as_str()? == "advanced").then_some(())?;
        Some(Self {
            space: message.get("spaceId")?.as_str()?.to_owned(),
            position_max: message.get("maxPosition")?.as_u64()?,
        })
    }
}

/// An answer or a fault, under the id of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// `None` only if the request had none that could be read.
    pub id: Option<RequestId>,
    /// What came of it.
    pub outcome: Result<Answer, Fault>,
}

impl Reply {
    /// The message.
    #[must_use]
    pub fn to_message(&self) -> Value {
        let mut fields = Map::new();
        let id = self
            .id
            .as_ref()
            .map_or(Value::Null, |id| id.value().clone());
        fields.insert("requestId".into(), id);
        match &self.outcome {
            Ok(answer) => fields.extend(answer_fields(answer)),
            Err(fault) => fields.extend(fault.to_fields()),
        }
        Value::Object(fields)
    }

    /// The reply in a message from the authority of `space`.
    ///
    /// # Errors
    /// If it is no reply.
    pub fn parse(message: &Value, space: &str, limits: &Limits) -> Result<Self, Fault> {
        let id = RequestId::of(message, limits.request_id_bytes_max);
        let outcome = match Fault::from_message(message) {
            Some(fault) => Err(fault),
            None => Ok(answer(message, space, limits)?),
        };
        Ok(Self { id, outcome })
    }
}

fn answer_fields(answer: &Answer) -> Map<String, Value> {
    let fields = match answer {
        Answer::Blocks(blocks) => {
            let mut fields = json!({
                "blocks": blocks.blocks.iter().map(form::to_json).collect::<Value>(),
                "hasMore": blocks.has_more,
                "nextCursor": blocks.next_cursor,
                "after": blocks.after,
                "covered": blocks.covered,
                "epoch": blocks.epoch.to_string(),
                "maxPosition": blocks.position_max,
            });
            if let (Some(cursor), Some(object)) = (&blocks.start_cursor, fields.as_object_mut()) {
                object.insert("startCursor".into(), json!(cursor));
            }
            if let (false, Some(object)) = (blocks.evicted.is_empty(), fields.as_object_mut()) {
                let pairs = blocks.evicted.iter();
                let list = pairs.map(|(feed, through)| json!({"feedId": feed, "through": through}));
                object.insert("evicted".into(), list.collect());
                if blocks.forgotten > 0 {
                    object.insert("forgotten".into(), json!(blocks.forgotten));
                }
            }
            fields
        }
        Answer::Subscribed(subscribed) => json!({
            "subscriptionId": subscribed.subscription_id,
            "expiresAt": subscribed.expires_ms,
        }),
        Answer::Appended(appended) => json!({
            "positions": appended.positions,
            "epoch": appended.epoch.to_string(),
        }),
        Answer::Changed(changed) => json!({"changed": changed}),
        Answer::Feeds(feeds) => {
            let list = feeds.feeds.iter().map(feed_to_json);
            json!({"feeds": list.collect::<Value>(), "hasMore": feeds.has_more})
        }
    };
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn answer(message: &Value, space: &str, limits: &Limits) -> Result<Answer, Fault> {
    let object = message
        .as_object()
        .ok_or_else(|| Fault::bad("message", "is not an object"))?;
    let epoch = || {
        let text = field::text(object, "epoch")?.and_then(Epoch::from_text);
        text.ok_or_else(|| Fault::bad("epoch", "is missing or not one"))
    };
    if let Some(changed) = field::integer(object, "changed")? {
        return Ok(Answer::Changed(changed));
    }
    if let Some(list) = object.get("blocks").and_then(Value::as_array) {
        let blocks = list
            .iter()
            .map(|block| form::parse_block(block, space, limits));
        let next_cursor = field::text(object, "nextCursor")?;
        return Ok(Answer::Blocks(Blocks {
            blocks: blocks.collect::<Result<_, _>>()?,
            has_more: field::flag(object, "hasMore")?,
            next_cursor: next_cursor
                .ok_or_else(|| Fault::bad("nextCursor", "is missing"))?
                .to_owned(),
            start_cursor: field::text(object, "startCursor")?.map(str::to_owned),
            after: field::required(object, "after")?,
            covered: field::required(object, "covered")?,
            epoch: epoch()?,
            position_max: field::required(object, "maxPosition")?,
            evicted: evicted(object)?,
            forgotten: field::integer(object, "forgotten")?.unwrap_or(0),
        }));
    }
    if let Some(list) = object.get("positions").and_then(Value::as_array) {
        let positions = list.iter().map(Value::as_u64).collect::<Option<_>>();
        return Ok(Answer::Appended(Appended {
            positions: positions
                .ok_or_else(|| Fault::bad("positions", "holds something other than numbers"))?,
            epoch: epoch()?,
        }));
    }
    if let Some(list) = object.get("feeds").and_then(Value::as_array) {
        return Ok(Answer::Feeds(Feeds {
            feeds: list.iter().filter_map(feed_from_json).collect(),
            has_more: field::flag(object, "hasMore")?,
        }));
    }
    if let Some(id) = field::text(object, "subscriptionId")? {
        return Ok(Answer::Subscribed(Subscribed {
            subscription_id: id.to_owned(),
            expires_ms: field::required(object, "expiresAt")?,
        }));
    }
    Err(Fault::bad("message", "is no answer"))
}

fn feed_to_json(feed: &FeedState) -> Value {
    let mut row = json!({"feedId": feed.feed, "maxPosition": feed.position_max});
    if let Some(fields) = row.as_object_mut() {
        if let Some(namespace) = &feed.namespace {
            fields.insert("namespace".into(), json!(namespace));
        }
        if let Some(tip) = &feed.tip {
            let hash = tip.hash.to_string();
            let tip = json!({"sequence": tip.sequence, "actorId": tip.actor, "hash": hash});
            fields.insert("tip".into(), tip);
        }
    }
    row
}

fn feed_from_json(value: &Value) -> Option<FeedState> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
    let tip = |tip: &Value| {
        Some(Tip {
            sequence: number(tip, "sequence")?,
            actor: text(tip, "actorId")?,
            hash: Hash::from_hex(&text(tip, "hash")?)?,
        })
    };
    Some(FeedState {
        feed: text(value, "feedId")?,
        namespace: text(value, "namespace"),
        tip: value.get("tip").and_then(tip),
        position_max: number(value, "maxPosition").unwrap_or(0),
        evicted_through: 0,
    })
}

fn evicted(object: &Map<String, Value>) -> Result<Vec<(String, u64)>, Fault> {
    let Some(list) = object.get("evicted").and_then(Value::as_array) else {
        return Ok(Vec::new());
    };
    let pair = |value: &Value| {
        Some((
            value.get("feedId")?.as_str()?.to_owned(),
            value.get("through")?.as_u64()?,
        ))
    };
    let pairs = list.iter().map(pair).collect::<Option<_>>();
    pairs.ok_or_else(|| Fault::bad("evicted", "is not a list of feeds and positions"))
}
