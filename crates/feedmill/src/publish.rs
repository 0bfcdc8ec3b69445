//! Publishing: the outbox as a space of the log.
//!
//! In:    changes, in commit order; records and accounts as they are now.
//! Out:   one block for each new version of a record, in the feed of its collection, and one for each
//!        turn of an account, in the feed `accounts`; see [`replicate::event`].
//! Never: a version told twice; a payload left of what was deleted or is hidden.
//!
//! Another Feedmill, or a browser, that follows the space holds the same
//! records. A hidden account's blocks lose their payload and its records are
//! told anew when it is back: a block is immutable, so it cannot be hidden, only
//! emptied. The place in the outbox moves in the transaction that adds the blocks.

use std::collections::BTreeSet;

use blocklog::signature::Author;
use blocklog::store::{LogStore as _, Role};
use record::tid::Tid;
use tracing::debug;

use crate::branch::{Branch, BranchError};
use crate::clock::Clock;
use crate::store::{AccountStatus, Change, Drawn, Outbox, Standing, Version};
use replicate::event::{AccountEvent, RecordEvent};
use replicate::log::Log;
use replicate::sqlite::published::{Desk, Notice, PublishError};

/// The namespace of all published feeds.
pub const NAMESPACE: &str = "records";
/// As whom blocks are written.
const ACTOR: &str = "feedmill";
/// Records told in one transaction when there is no end of them.
const SLICE_MAX: usize = 500;

/// Draws the outbox into a space.
#[derive(Debug)]
pub struct Publisher {
    log: Log,
    space: String,
    author: Author,
    clock: Clock,
}

impl Publisher {
    /// Publishes in `space` of `log`.
    ///
    /// # Errors
    /// If the space is a replica of another log's, or the log fails.
    pub fn new(log: Log, space: &str, clock: Clock) -> Result<Self, blocklog::store::StoreError> {
        log.open_space(space, Role::Authority)?;
        let state = log.store().space(space)?;
        if state.is_none_or(|state| state.role != Role::Authority) {
            let cause = "the space to publish in is a replica of another log";
            return Err(blocklog::store::StoreError::Damaged(cause));
        }
        Ok(Self {
            log,
            space: space.to_owned(),
            author: Author::named(ACTOR),
            clock,
        })
    }

    fn publish(
        &self,
        from: Option<i64>,
        to: Option<i64>,
        notices: &[Notice],
    ) -> Result<(), PublishError> {
        let desk = Desk {
            space: &self.space,
            namespace: NAMESPACE,
            author: &self.author,
            now_us: self.clock.now_us(),
        };
        self.log.publish(&desk, from, to, notices)
    }

    /// Tells all known records of an account that is back, in slices; each is told once however
    /// often this is interrupted.
    fn revive(&self, store: &dyn Outbox, from: Option<i64>, did: &str) -> Result<(), Halt> {
        let mut after = String::new();
        loop {
            let uris = self
                .log
                .store()
                .published_of(&self.space, did, &after, SLICE_MAX)
                .map_err(keep)?;
            let Some(last) = uris.last() else {
                return Ok(());
            };
            after = last.clone();
            let asked: Vec<&str> = uris.iter().map(String::as_str).collect();
            let mut notices = Vec::with_capacity(asked.len());
            for (uri, version) in asked.iter().zip(store.versions(&asked)?) {
                notices.push(match version {
                    Some(version) => notice(version, false),
                    None => traceless(store, uri)?,
                });
            }
            self.publish(from, None, &notices)?;
        }
    }

    fn tell_account(
        &self,
        store: &dyn Outbox,
        from: Option<i64>,
        standing: &Standing,
    ) -> Result<Notice, Halt> {
        if standing.status.visible() {
            // Records first: a replica then shows all of them at once, as they are.
            self.revive(store, from, &standing.did)?;
        }
        Ok(Notice::Account {
            event: AccountEvent {
                did: standing.did.clone(),
                active: standing.status.visible(),
                status: standing.status.reason(),
                since_us: standing.since_us,
            },
            forgotten: standing.status == AccountStatus::Deleted,
        })
    }

    fn take(&self, store: &dyn Outbox, from: Option<i64>, drawn: &Drawn) -> Result<(), Halt> {
        let (uris, mut dids) = touched(&drawn.changes);
        let mut notices = Vec::with_capacity(uris.len());
        for slice in uris.chunks(SLICE_MAX) {
            let asked: Vec<&str> = slice.iter().map(|(uri, _)| *uri).collect();
            for ((uri, live), version) in slice.iter().zip(store.versions(&asked)?) {
                notices.push(match version {
                    Some(version) => notice(version, *live),
                    None => {
                        // Its account is gone, perhaps after it had been hidden for long.
                        dids.extend(split(uri).map(|(did, ..)| did));
                        traceless(store, uri)?
                    }
                });
            }
        }
        // Who is hidden is told first: what came after a deletion must not be forgotten with it.
        let mut ordered = Vec::with_capacity(notices.len() + dids.len());
        let mut visible = Vec::new();
        for did in dids {
            let Some(standing) = store.standing(did)? else {
                continue;
            };
            let list = match standing.status.visible() {
                true => &mut visible,
                false => &mut ordered,
            };
            list.push(self.tell_account(store, from, &standing)?);
        }
        ordered.append(&mut notices);
        ordered.append(&mut visible);
        Ok(self.publish(from, Some(drawn.position), &ordered)?)
    }

    fn start_anew(&self, store: &dyn Outbox, from: Option<i64>) -> Result<i64, Halt> {
        let head = store.head()?;
        // In the order of [`Self::take`], for the same reasons.
        self.tell_accounts(store, from, false)?;
        let mut after = 0;
        loop {
            let slice = store.versions_after(after, SLICE_MAX)?;
            let Some((last, _)) = slice.last() else { break };
            after = *last;
            let notices: Vec<Notice> = slice
                .into_iter()
                .map(|(_, version)| notice(version, false))
                .collect();
            self.publish(from, None, &notices)?;
        }
        self.tell_accounts(store, from, true)?;
        self.publish(from, Some(head), &[])?;
        Ok(head)
    }

    /// Tells how every account stands that may be seen, or every other.
    fn tell_accounts(
        &self,
        store: &dyn Outbox,
        from: Option<i64>,
        visible: bool,
    ) -> Result<(), Halt> {
        let mut after = 0;
        loop {
            let slice = store.standings(after, SLICE_MAX)?;
            let Some(last) = slice.last() else {
                return Ok(());
            };
            after = last.key;
            let mut notices = Vec::with_capacity(slice.len());
            for standing in &slice {
                if standing.status.visible() == visible {
                    notices.push(self.tell_account(store, from, standing)?);
                }
            }
            self.publish(from, None, &notices)?;
        }
    }
}

impl Branch for Publisher {
    fn name(&self) -> &'static str {
        "log"
    }

    fn position(&self) -> Result<Option<i64>, BranchError> {
        let through = self.log.store().published_through(&self.space);
        through.map_err(|error| BranchError::Keep(error.to_string()))
    }

    fn apply(&mut self, store: &dyn Outbox, from: i64, drawn: &Drawn) -> Result<(), BranchError> {
        let position = drawn.position;
        // Another process may have gone on meanwhile; then it has told what we would tell.
        let from = match self.position()? {
            Some(now) if (from..position).contains(&now) => now,
            _ => return Ok(()),
        };
        match self.take(store, Some(from), drawn) {
            Err(Halt::Stale) => {
                debug!(position, "another process has published this");
                Ok(())
            }
            other => other.map_err(BranchError::from),
        }
    }

    fn rebuild(&mut self, store: &dyn Outbox) -> Result<i64, BranchError> {
        let from = self.position()?;
        match self.start_anew(store, from) {
            Err(Halt::Stale) => Ok(self.position()?.unwrap_or(0)),
            other => other.map_err(BranchError::from),
        }
    }
}

/// Why a step did not come to its end.
enum Halt {
    /// Somebody else has taken it.
    Stale,
    Branch(BranchError),
}

impl From<crate::store::StoreError> for Halt {
    fn from(error: crate::store::StoreError) -> Self {
        Self::Branch(error.into())
    }
}

impl From<PublishError> for Halt {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Stale(_) => Self::Stale,
            PublishError::Append(error) => {
                Self::Branch(BranchError::Keep(crate::check::chain(&error)))
            }
        }
    }
}

impl From<Halt> for BranchError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Stale => Self::Keep("another process publishes".into()),
            Halt::Branch(error) => error,
        }
    }
}

fn keep(error: blocklog::store::StoreError) -> Halt {
    Halt::Branch(BranchError::Keep(crate::check::chain(&error)))
}

/// URIs that changed, each once, in the order of their last change, with whether that was live;
/// and accounts that turned.
fn touched(changes: &[(i64, Change)]) -> (Vec<(&str, bool)>, BTreeSet<&str>) {
    let (mut uris, mut dids) = (Vec::new(), BTreeSet::new());
    let mut seen = BTreeSet::new();
    for (_, change) in changes.iter().rev() {
        match change {
            Change::Put { uri, live, .. } => {
                if seen.insert(uri.as_str()) {
                    uris.push((uri.as_str(), *live));
                }
            }
            Change::Delete { uri, .. } => {
                if seen.insert(uri.as_str()) {
                    uris.push((uri.as_str(), true));
                }
            }
            Change::Account { did, .. } => {
                dids.insert(did.as_str());
            }
            // They follow from records, which are told themselves.
            Change::Follow { .. } | Change::Unfollow { .. } | Change::Regroup { .. } => {}
        }
    }
    uris.reverse();
    (uris, dids)
}

/// The DID, collection and record key of a URI.
fn split(uri: &str) -> Option<(&str, &str, &str)> {
    let mut parts = uri.strip_prefix("at://")?.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

/// What to tell of a record of which the store keeps no trace: its account was deleted. Where the
/// account has come back, nobody who missed the deletion would learn of it otherwise.
fn traceless(store: &dyn Outbox, uri: &str) -> Result<Notice, Halt> {
    let gone = Notice::Traceless { uri: uri.into() };
    let Some((did, collection, rkey)) = split(uri) else {
        return Ok(gone);
    };
    let standing = store.standing(did)?;
    let Some(standing) = standing.filter(|it| it.status != AccountStatus::Deleted) else {
        return Ok(gone);
    };
    // Looked for again behind the revision: what comes after this has a higher one.
    if let Some(version) = store.versions(&[uri])?.into_iter().flatten().next() {
        return Ok(notice(version, false));
    }
    Ok(Notice::Record {
        rev: standing.rev,
        event: RecordEvent {
            did: did.into(),
            collection: collection.into(),
            rkey: rkey.into(),
            rev: Tid::from_bits(standing.rev).to_string(),
            seen_us: 0,
            live: false,
            content: None,
        },
    })
}

fn notice(version: Version, live: bool) -> Notice {
    if version.content.is_some() && !version.visible {
        return Notice::Hidden { uri: version.uri };
    }
    Notice::Record {
        rev: version.rev,
        event: RecordEvent {
            did: version.did,
            collection: version.collection,
            rkey: version.rkey,
            rev: Tid::from_bits(version.rev).to_string(),
            seen_us: version.seen_us,
            live,
            content: version.content.map(|content| (content.cid, content.body)),
        },
    }
}
