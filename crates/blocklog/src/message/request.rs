//! Requests: the four things one may ask of a log.
//!
//! In:    a JSON object, perhaps the kind from the path it came on.
//! Out:   a typed request; or a fault that names the field.
//! Never: a request guessed from a shape that is not one of the four.

use super::fault::{BadBlock, Fault};
use super::field::{self, Object};
use super::form;
use crate::block::Hash;
use crate::chain::Sealed;
use crate::cursor::Epoch;
use crate::limits::Limits;
use crate::page::Selection;
use serde_json::{Value, json};

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blocks.
    Query,
    /// A remembered set of feeds.
    Subscribe,
    /// New blocks.
    Append,
    /// The feeds of the space.
    List,
}

impl Kind {
    /// The kind with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self, Fault> {
        match name {
            "query" => Ok(Self::Query),
            "subscribe" => Ok(Self::Subscribe),
            "append" => Ok(Self::Append),
            "list" | "listFeeds" => Ok(Self::List),
            _ => Err(Fault::UnknownKind {
                kind: name.chars().take(64).collect(),
            }),
        }
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Subscribe => "subscribe",
            Self::Append => "append",
            Self::List => "list",
        }
    }

    /// The kind a message has by its fields. A list of feeds without a cursor is
    /// a subscription, as in the published examples.
    fn of_shape(object: &Object) -> Result<Self, Fault> {
        let has = |name: &str| field::get(object, name).is_some();
        if has("blocks") {
            Ok(Self::Append)
        } else if has("subscriptionId")
            || has("cursor")
            || has("limit")
            || has("tail")
            || has("since")
        {
            Ok(Self::Query)
        } else if has("feedIds") {
            Ok(Self::Subscribe)
        } else if object
            .keys()
            .all(|name| ["requestId", "namespace", "feedId", "after"].contains(&name.as_str()))
        {
            Ok(Self::List)
        } else {
            Err(Fault::UnknownKind {
                kind: "that has these fields".into(),
            })
        }
    }
}

/// Which blocks a query wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Named here.
    Here(Selection),
    /// Named by an earlier subscription.
    Subscription(String),
}

/// Where a query starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// At the oldest block that is kept.
    Oldest,
    /// Behind this position.
    Position(u64),
    /// At a cursor this log gave.
    Cursor(String),
    /// Behind the newest block.
    Tail,
    /// With the blocks placed at or after this time.
    Since(u64),
}

/// Returns blocks behind a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRequest {
    /// Which.
    pub wanted: Wanted,
    /// From where.
    pub from: From,
    /// How many at most.
    pub limit: Option<u64>,
    /// Go on with what is kept, where the cursor is below that.
    pub skip_gone: bool,
    /// Blocks without a position too.
    pub unpositioned: bool,
    /// What the reader expects at an integer cursor.
    pub expected: Expected,
}

/// What a reader expects at the position it reads on from, so that it notices another history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expected {
    /// Whose history it is.
    pub epoch: Option<Epoch>,
    /// The hash of the block there.
    pub hash: Option<Hash>,
}

/// Registers a set of feeds, or renews it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// Renew this one instead.
    pub renew: Option<String>,
    /// Which feeds.
    pub selection: Selection,
}

/// Adds blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendRequest {
    /// For feeds that are new.
    pub namespace: Option<String>,
    /// A cursor this log gave: without its history nothing is appended.
    pub cursor: Option<String>,
    /// The blocks, hashed for the space.
    pub blocks: Vec<Sealed>,
}

/// Lists feeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Of this namespace only.
    pub namespace: Option<String>,
    /// This feed alone.
    pub feed: Option<String>,
    /// Behind this feed id.
    pub after: Option<String>,
    /// How many at most.
    pub limit: Option<u64>,
}

/// One of the four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// See [`QueryRequest`].
    Query(QueryRequest),
    /// See [`SubscribeRequest`].
    Subscribe(SubscribeRequest),
    /// See [`AppendRequest`].
    Append(AppendRequest),
    /// See [`ListRequest`].
    List(ListRequest),
}

impl Request {
    /// The request in `message`, sent to `space`. `kind` comes from the path.
    ///
    /// # Errors
    /// If the message is not a request.
    pub fn parse(
        message: &Value,
        kind: Option<Kind>,
        space: &str,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        let object = message
            .as_object()
            .ok_or_else(|| Fault::bad("message", "is not an object"))?;
        if super::RequestId::of(message, limits.request_id_bytes_max).is_none() {
            return Err(Fault::bad(
                "requestId",
                "is missing, too long, or not a string or whole number",
            ));
        }
        let kind = match (kind, field::text(object, "type")?) {
            (Some(kind), _) => kind,
            (None, Some(name)) => Kind::named(name)?,
            (None, None) => Kind::of_shape(object)?,
        };
        match kind {
            Kind::Query => query(object, limits).map(Self::Query),
            Kind::Subscribe => subscribe(object, limits).map(Self::Subscribe),
            Kind::Append => append(object, space, limits).map(Self::Append),
            Kind::List => Ok(Self::List(ListRequest {
                namespace: field::id(object, "namespace", limits)?,
                feed: field::id(object, "feedId", limits)?,
                after: field::id(object, "after", limits)?,
                limit: limit(object)?,
            })),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Query(_) => Kind::Query,
            Self::Subscribe(_) => Kind::Subscribe,
            Self::Append(_) => Kind::Append,
            Self::List(_) => Kind::List,
        }
    }

    /// The message a peer sends for it.
    #[must_use]
    pub fn to_message(&self, id: &super::RequestId) -> Value {
        let mut message = json!({"type": self.kind().name(), "requestId": id.value()});
        let mut put = |name: &str, value: Value| {
            if let Some(object) = message.as_object_mut() {
                object.insert(name.to_owned(), value);
            }
        };
        match self {
            Self::Query(query) => write_query(query, &mut put),
            Self::Subscribe(subscribe) => {
                write_selection(&subscribe.selection, &mut put);
                if let Some(id) = &subscribe.renew {
                    put("subscriptionId", json!(id));
                }
            }
            Self::Append(append) => {
                if let Some(namespace) = &append.namespace {
                    put("namespace", json!(namespace));
                }
                if let Some(cursor) = &append.cursor {
                    put("cursor", json!(cursor));
                }
                put("blocks", append.blocks.iter().map(sealed_to_json).collect());
            }
            Self::List(list) => {
                let texts = [
                    ("namespace", &list.namespace),
                    ("feedId", &list.feed),
                    ("after", &list.after),
                ];
                for (name, value) in texts {
                    if let Some(value) = value {
                        put(name, json!(value));
                    }
                }
                if let Some(limit) = list.limit {
                    put("limit", json!(limit));
                }
            }
        }
        message
    }
}

fn sealed_to_json(sealed: &Sealed) -> Value {
    form::to_json(&crate::block::Held {
        block: sealed.block.clone(),
        hash: sealed.hash,
        position: None,
        namespace: None,
    })
}

fn write_selection(selection: &Selection, put: &mut impl FnMut(&str, Value)) {
    match selection {
        Selection::Space => {}
        Selection::Namespace(namespace) => put("namespace", json!(namespace)),
        Selection::Feeds(feeds) => put("feedIds", json!(feeds)),
    }
}

fn write_query(query: &QueryRequest, put: &mut impl FnMut(&str, Value)) {
    match &query.wanted {
        Wanted::Here(selection) => write_selection(selection, put),
        Wanted::Subscription(id) => put("subscriptionId", json!(id)),
    }
    match &query.from {
        From::Oldest => {}
        From::Position(position) => put("cursor", json!(position)),
        From::Cursor(cursor) => put("cursor", json!(cursor)),
        From::Tail => put("tail", json!(true)),
        From::Since(time_ms) => put("since", json!(time_ms)),
    }
    if let Some(limit) = query.limit {
        put("limit", json!(limit));
    }
    if query.skip_gone {
        put("skipGone", json!(true));
    }
    if query.unpositioned {
        put("unpositioned", json!(true));
    }
    if let Some(epoch) = &query.expected.epoch {
        put("epoch", json!(epoch.to_string()));
    }
    if let Some(hash) = &query.expected.hash {
        put("hash", json!(hash.to_string()));
    }
}

fn limit(object: &Object) -> Result<Option<u64>, Fault> {
    match field::integer(object, "limit")? {
        Some(0) => Err(Fault::bad("limit", "is 0")),
        limit => Ok(limit),
    }
}

fn selection(object: &Object, limits: &Limits) -> Result<Selection, Fault> {
    let namespace = field::id(object, "namespace", limits)?;
    match (field::ids(object, "feedIds", limits)?, namespace) {
        (Some(_), Some(_)) => Err(Fault::bad("feedIds", "and namespace exclude each other")),
        (Some(feeds), None) => Ok(Selection::Feeds(feeds)),
        (None, Some(namespace)) => Ok(Selection::Namespace(namespace)),
        (None, None) => Ok(Selection::Space),
    }
}

fn query(object: &Object, limits: &Limits) -> Result<QueryRequest, Fault> {
    let wanted = match field::id(object, "subscriptionId", limits)? {
        None => Wanted::Here(selection(object, limits)?),
        Some(_) if field::get(object, "feedIds").is_some() => {
            return Err(Fault::bad(
                "subscriptionId",
                "and feedIds exclude each other",
            ));
        }
        Some(id) => Wanted::Subscription(id),
    };
    let mut starts = Vec::new();
    match field::get(object, "cursor") {
        None => {}
        Some(Value::String(cursor)) => starts.push(From::Cursor(cursor.clone())),
        Some(_) => starts.extend(field::integer(object, "cursor")?.map(From::Position)),
    }
    if field::flag(object, "tail")? {
        starts.push(From::Tail);
    }
    starts.extend(field::integer(object, "since")?.map(From::Since));
    if starts.len() > 1 {
        return Err(Fault::bad("cursor", "tail and since exclude each other"));
    }
    let from = starts.pop().unwrap_or(From::Oldest);
    Ok(QueryRequest {
        wanted,
        expected: expected(object, &from)?,
        from,
        limit: limit(object)?,
        skip_gone: field::flag(object, "skipGone")?,
        unpositioned: field::flag(object, "unpositioned")?,
    })
}

/// What is expected at an integer cursor; other starts carry it in themselves, or have none.
fn expected(object: &Object, from: &From) -> Result<Expected, Fault> {
    let expected = Expected {
        epoch: match field::text(object, "epoch")? {
            None => None,
            Some(text) => {
                let epoch = Epoch::from_text(text);
                Some(epoch.ok_or_else(|| Fault::bad("epoch", "is not one"))?)
            }
        },
        hash: match field::text(object, "hash")? {
            None => None,
            Some(text) => {
                let hash = Hash::from_hex(text);
                Some(hash.ok_or_else(|| Fault::bad("hash", "is not 64 hexadecimal digits"))?)
            }
        },
    };
    let is_position = matches!(from, From::Position(_));
    if expected != Expected::default() && !is_position {
        return Err(Fault::bad("epoch", "and hash go with an integer cursor"));
    }
    Ok(expected)
}

fn subscribe(object: &Object, limits: &Limits) -> Result<SubscribeRequest, Fault> {
    Ok(SubscribeRequest {
        renew: field::id(object, "subscriptionId", limits)?,
        selection: selection(object, limits)?,
    })
}

fn append(object: &Object, space: &str, limits: &Limits) -> Result<AppendRequest, Fault> {
    let blocks = field::get(object, "blocks").ok_or_else(|| Fault::bad("blocks", "is missing"))?;
    let blocks = blocks
        .as_array()
        .ok_or_else(|| Fault::bad("blocks", "is not a list"))?;
    if blocks.is_empty() {
        return Err(Fault::bad("blocks", "is empty"));
    }
    if blocks.len() > limits.batch_blocks_max {
        return Err(Fault::TooLarge {
            limit: "batch_blocks_max".into(),
            max: limits.batch_blocks_max as u64,
        });
    }
    let mut sealed = Vec::with_capacity(blocks.len());
    let (mut bytes, mut bad) = (0, Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let held = match form::parse_block(block, space, limits) {
            Ok(held) => held,
            Err(Fault::BadRequest { field, problem }) => {
                bad.push(BadBlock {
                    index,
                    field,
                    problem,
                });
                continue;
            }
            Err(fault) => return Err(fault),
        };
        bytes += held.block.payload.size();
        sealed.push(Sealed {
            block: held.block,
            hash: held.hash,
        });
    }
    if !bad.is_empty() {
        return Err(Fault::BadBlocks(bad));
    }
    if bytes > limits.batch_bytes_max {
        return Err(Fault::TooLarge {
            limit: "batch_bytes_max".into(),
            max: limits.batch_bytes_max as u64,
        });
    }
    Ok(AppendRequest {
        namespace: field::id(object, "namespace", limits)?,
        cursor: field::text(object, "cursor")?.map(str::to_owned),
        blocks: sealed,
    })
}
