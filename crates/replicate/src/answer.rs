//! Answering: from a message to its reply.
//!
//! In:    a message of a caller, and the space it is about.
//! Out:   the reply.
//! Never: a store call on a thread that drives sockets; an append that is answered before it
//!        is durable.
//!
//! An append waits for the disk, and a thread for each would cost more than the append does. So a small
//! message is read where it arrives, and its append joins the group that commits next
//! (`sqlite/group.rs`). Everything else is answered on a thread that may block.

use crate::access::Caller;
use crate::charge::Charge;
use crate::log::{Log, random};
use crate::metrics as names;
use crate::settings::Right;
use crate::spaces::Ask;
use crate::spelling::Spelling;
use crate::sqlite::{Moment, Remembered, within};
use crate::streams;
use crate::threads::Making;
use blocklog::authority::Authority;
use blocklog::message::{Answer, AppendRequest, Appended, Fault, Kind, Reply, Request, RequestId};
use blocklog::store::{AppendError, StoreError};
use metrics::counter;
use serde_json::Value;
use std::sync::Arc;

/// Bytes of the largest message that is read on a thread that drives sockets.
const READ_HERE_BYTES_MAX: usize = 4096;

/// A message that was read and may be answered.
struct Admitted {
    id: Option<RequestId>,
    kind: &'static str,
    work: Result<Work, Fault>,
}

/// What is left to do.
enum Work {
    Append(AppendRequest),
    Request(Request),
    Create,
    Delete,
    Purge(Value),
}

impl Log {
    /// Answer a message, which costs its sender what `charge` takes. The path names what is asked, or the
    /// message itself.
    pub(crate) async fn reply(
        &self,
        space: &str,
        path: Option<&str>,
        (spelling, bytes): (Spelling, Vec<u8>),
        caller: Caller,
        charge: Option<&Charge>,
    ) -> (Reply, Option<Making>) {
        let mut making = None;
        let bytes_read = bytes.len();
        let charged = charge.map_or(Ok(()), |charge| charge.take(1));
        let charged = charged.map_err(|retry_after_ms| Fault::RateLimited { retry_after_ms });
        let admitted = if bytes_read <= READ_HERE_BYTES_MAX {
            self.read(space, path, (spelling, &bytes), &caller, charged)
        } else {
            let (log, space, path) = (self.clone(), space.to_owned(), path.map(str::to_owned));
            let read = move || {
                let said = (spelling, bytes.as_slice());
                log.read(&space, path.as_deref(), said, &caller, charged)
            };
            let admitted = self.preparing(read).await;
            admitted.unwrap_or_else(|| Admitted::refused(None, Fault::Unavailable))
        };
        let outcome = match admitted.work {
            Err(fault) => Err(fault),
            Ok(Work::Append(append)) => self.append(space, append, bytes_read, caller).await,
            Ok(work) => {
                making = self.make().await;
                let (log, space) = (self.clone(), space.to_owned());
                let finished = self.reading(move || log.finish(&space, work, &caller));
                finished.await.unwrap_or(Err(Fault::Unavailable))
            }
        };
        measure(admitted.kind, &outcome);
        let reply = Reply {
            id: admitted.id,
            outcome,
        };
        (reply, making)
    }

    /// Answer a message of `caller` on this thread. Blocks.
    #[must_use]
    pub fn answer(
        &self,
        space: &str,
        path: Option<&str>,
        message: &Value,
        caller: &Caller,
    ) -> Reply {
        let admitted = self.admit(space, path, message, caller);
        let work = admitted.work;
        let outcome = work.and_then(|work| self.finish(space, work, caller));
        measure(admitted.kind, &outcome);
        Reply {
            id: admitted.id,
            outcome,
        }
    }

    fn read(
        &self,
        space: &str,
        path: Option<&str>,
        (spelling, bytes): (Spelling, &[u8]),
        caller: &Caller,
        charged: Result<(), Fault>,
    ) -> Admitted {
        match (spelling.read(bytes), charged) {
            (Ok(message), Ok(())) => self.admit(space, path, &message, caller),
            (Ok(message), Err(fault)) => {
                let id = RequestId::of(&message, self.limits().request_id_bytes_max);
                Admitted::refused(id, fault)
            }
            (Err(fault), _) => Admitted::refused(None, fault),
        }
    }

    /// Read a message and look whether its sender may ask this. Asks no store.
    fn admit(&self, space: &str, path: Option<&str>, message: &Value, caller: &Caller) -> Admitted {
        let id = RequestId::of(message, self.limits().request_id_bytes_max);
        if !self.limits().allows_id(space) {
            let problem = "is empty, too long, or holds control characters";
            return Admitted::refused(id, Fault::bad("spaceId", problem));
        }
        let ask = match Ask::named(path, message) {
            Ok(ask) => ask,
            Err(fault) => return Admitted::refused(id, fault),
        };
        let work = match ask {
            Ask::Message(kind) => self.admit_request(space, kind, message, caller),
            Ask::Create => Ok(Work::Create),
            Ask::Delete => Ok(Work::Delete),
            Ask::Purge => Ok(Work::Purge(message.clone())),
        };
        let kind = match (&work, ask) {
            (Ok(Work::Append(_)), _) | (_, Ask::Message(Some(Kind::Append))) => "append",
            (Ok(Work::Request(Request::Query(_))), _) | (_, Ask::Message(Some(Kind::Query))) => {
                "query"
            }
            (Ok(Work::Request(Request::Subscribe(_))), _)
            | (_, Ask::Message(Some(Kind::Subscribe))) => "subscribe",
            (Ok(Work::Request(Request::List(_))), _) | (_, Ask::Message(Some(Kind::List))) => {
                "list"
            }
            (_, Ask::Create | Ask::Delete | Ask::Purge) => "space",
            _ => "unknown",
        };
        Admitted { id, kind, work }
    }

    fn admit_request(
        &self,
        space: &str,
        kind: Option<Kind>,
        message: &Value,
        caller: &Caller,
    ) -> Result<Work, Fault> {
        let request = Request::parse(message, kind, space, self.limits())?;
        let Request::Append(append) = request else {
            self.may(Right::Read, space, caller)?;
            if matches!(request, Request::Subscribe(_)) {
                self.has_room()?;
            }
            return Ok(Work::Request(request));
        };
        self.may(Right::Append, space, caller)?;
        if self.is_own(space) {
            return Err(Fault::NotAllowed); // readers believe that this process wrote it
        }
        self.has_room()?;
        let taken = self.take(space, append.blocks.len() as u64);
        taken.map_err(|retry_after_ms| Fault::RateLimited { retry_after_ms })?;
        self.authority().check(&append)?;
        Ok(Work::Append(append))
    }

    /// Do what is left to do. Blocks.
    fn finish(&self, space: &str, work: Work, caller: &Caller) -> Result<Answer, Fault> {
        let done = self.finish_known(space, work, caller);
        done.map_err(|fault| self.or_deleted(space, fault))
    }

    /// A space that is not known may have been deleted. Blocks.
    fn or_deleted(&self, space: &str, fault: Fault) -> Fault {
        if fault != Fault::UnknownSpace {
            return fault;
        }
        match self.store().is_deleted(space) {
            Ok(true) => Fault::SpaceDeleted,
            Ok(false) => fault,
            Err(_) => Fault::Unavailable,
        }
    }

    fn finish_known(&self, space: &str, work: Work, caller: &Caller) -> Result<Answer, Fault> {
        match work {
            Work::Create => self.create_space(space, caller).map(Answer::Changed),
            Work::Delete => self.delete_space(space, caller).map(Answer::Changed),
            Work::Purge(message) => self
                .purge_feed(space, &message, caller)
                .map(Answer::Changed),
            Work::Request(request) => {
                if space == streams::SPACE {
                    streams::end_expired(self)?;
                }
                let limits = self.limits_of(space);
                let authority = Authority {
                    limits: &limits,
                    ..self.authority()
                };
                authority.answer(space, &request, self.now_ms(), &random())
            }
            Work::Append(append) => self.append_here(space, append, caller),
        }
    }

    /// Append, and wait until it is durable.
    async fn append(
        &self,
        space: &str,
        append: AppendRequest,
        bytes: usize,
        caller: Caller,
    ) -> Result<Answer, Fault> {
        let order = Order::new(self, space, append);
        if order.append.cursor.is_some() {
            let order = order.clone();
            let checked = self.preparing(move || order.check_cursor()).await;
            checked.unwrap_or(Err(Fault::Unavailable))?;
        }
        let mut appended = self.store().grouped(bytes, order.clone().job()).await;
        if let Err(AppendError::Store(StoreError::UnknownSpace)) = appended {
            let (log, space) = (self.clone(), space.to_owned());
            let created = self.preparing(move || log.create_to_append(&space, &caller));
            created.await.unwrap_or(Err(Fault::Unavailable))?;
            appended = self.store().grouped(bytes, order.clone().job()).await;
        }
        order.publish(appended)
    }

    /// The same on a thread that may block.
    fn append_here(
        &self,
        space: &str,
        append: AppendRequest,
        caller: &Caller,
    ) -> Result<Answer, Fault> {
        let order = Order::new(self, space, append);
        order.check_cursor()?;
        let bytes = order
            .append
            .blocks
            .iter()
            .map(|sealed| sealed.block.payload.size())
            .sum();
        let mut appended = self.store().grouped_here(bytes, order.clone().job());
        if let Err(AppendError::Store(StoreError::UnknownSpace)) = appended {
            self.create_to_append(space, caller)?;
            appended = self.store().grouped_here(bytes, order.clone().job());
        }
        order.publish(appended)
    }

    /// Create a space because somebody appends to it. Who may not is answered that there is none, and
    /// one that was deleted stays so.
    fn create_to_append(&self, space: &str, caller: &Caller) -> Result<(), Fault> {
        if self.store().is_deleted(space)? {
            return Err(Fault::SpaceDeleted);
        }
        match self.create_space(space, caller) {
            Ok(_) => Ok(()),
            Err(Fault::NotAllowed | Fault::Unauthorized) => Err(Fault::UnknownSpace),
            Err(other) => Err(other),
        }
    }

    fn authority(&self) -> Authority<'_> {
        Authority {
            store: self.store().as_ref(),
            limits: self.limits(),
            writers: self.writers(),
        }
    }
}

impl Admitted {
    fn refused(id: Option<RequestId>, fault: Fault) -> Self {
        Self {
            id,
            kind: "unknown",
            work: Err(fault),
        }
    }
}

/// An append that may be done.
#[derive(Clone)]
struct Order {
    log: Log,
    space: String,
    append: Arc<AppendRequest>,
}

impl Order {
    fn new(log: &Log, space: &str, append: AppendRequest) -> Self {
        Self {
            log: log.clone(),
            space: space.to_owned(),
            append: Arc::new(append),
        }
    }

    /// Whether the history it is meant for is the present one. Blocks.
    fn check_cursor(&self) -> Result<(), Fault> {
        let cursor = self.append.cursor.as_deref();
        let Some(cursor) = cursor else { return Ok(()) };
        let checked = self.log.authority().check_cursor(&self.space, cursor);
        checked.map_err(|fault| self.log.or_deleted(&self.space, fault))
    }

    /// What it does in the transaction of its group.
    fn job(self) -> impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<Appended, AppendError> {
        move |moment, known| {
            let limits = self.log.limits_of(&self.space);
            let (append, now_ms) = (&self.append, self.log.now_ms());
            within::append(moment, known, &self.space, append, now_ms, &limits)
        }
    }

    /// Notify who listens, and answer.
    fn publish(&self, appended: Result<Appended, AppendError>) -> Result<Answer, Fault> {
        let appended = appended.map_err(|error| match error {
            AppendError::Refused(refused) => refused.into(),
            AppendError::Store(error) => Fault::from(error),
        })?;
        let blocks = self.append.blocks.iter();
        let feeds = blocks.map(|sealed| sealed.block.feed.clone()).collect();
        let position_max = appended.positions.iter().copied().max().unwrap_or(0);
        let namespace = self.append.namespace.as_deref();
        self.log.tell(&self.space, position_max, feeds, namespace);
        Ok(Answer::Appended(appended))
    }
}

/// Count an answer.
fn measure(kind: &'static str, outcome: &Result<Answer, Fault>) {
    let result = match outcome {
        Ok(Answer::Blocks(page)) => {
            counter!(names::LOG_READ).increment(page.blocks.len() as u64);
            "ok"
        }
        Ok(Answer::Appended(appended)) => {
            counter!(names::LOG_BLOCKS, "by" => "peer").increment(appended.positions.len() as u64);
            "ok"
        }
        Ok(_) => "ok",
        Err(fault) => {
            if let Fault::Refused(blocks) = fault {
                let taken = blocks.iter().filter(|block| block.code == "conflict");
                counter!(names::LOG_CONFLICTS).increment(taken.count() as u64);
            }
            fault.class()
        }
    };
    counter!(names::LOG_REQUESTS, "kind" => kind, "result" => result).increment(1);
}
