//! The acts of the world: what each [`Act`] changes and which events tell it.
//!
//! In:    an act.
//! Out:   its events, at least one: an act that finds nothing to act upon
//!        becomes a post.
//! Never: a change to a repository without the model being told.

use std::collections::BTreeSet;

use axum::body::Bytes;
use record::event::{AccountEvent, CommitEvent, Frame, IdentityEvent, RepoOp, SyncEvent};

use crate::account::{DOMAIN, draw_key};
use crate::clock;
use crate::compose::{Draft, FOLLOW, LIKE, ODD, POST, REPOST};
use crate::event::{Body, Operation, SeqEvent};
use crate::model::Standing;
use crate::repo::{Change, Committed};
use crate::traffic::Act;
use crate::world::World;

// Cards, links, watches and mutes.
mod library;

/// Bytes of a record that no block may hold.
const OVERSIZED_BYTES: usize = 1_000_100;
/// Operations of a batch.
const BATCH_MAX: u64 = 12;

impl World {
    /// Lets `act` happen, by and to whom the seed decides.
    pub fn act(&mut self, act: Act) -> Vec<SeqEvent> {
        self.advance();
        let mut events = Vec::new();
        match act {
            Act::Join => self.join(&mut events),
            Act::Hide => self.hide(&mut events),
            Act::Restore => self.restore(&mut events),
            Act::Falter => self.falter(&mut events),
            Act::Leave => self.leave(&mut events),
            Act::Murmur => self.murmur(&mut events),
            Act::Rename => self.rename_somebody(&mut events),
            Act::Rekey => self.rekey(&mut events),
            Act::Sync => self.sync_somebody(false, &mut events),
            Act::Rewrite => self.sync_somebody(true, &mut events),
            Act::TooBig => self.too_big(&mut events),
            Act::Recreate => self.recreate(&mut events),
            Act::Batch => self.batch(&mut events),
            Act::Save => self.save(&mut events),
            Act::Empty => {
                if let Some(number) = self.writer() {
                    self.commit(number, Vec::new(), &mut events);
                }
            }
            _ => self.write_one(act, &mut events),
        }
        if events.is_empty() {
            self.write_one(Act::Post, &mut events);
        }
        events
    }

    /// Acts that are one operation of one active account.
    fn write_one(&mut self, act: Act, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        if let Some(change) = self.change(number, act) {
            self.commit(number, vec![change], events);
        }
    }

    /// The one change `act` means for the account, if it can be done.
    fn change(&mut self, number: usize, act: Act) -> Option<Change> {
        let now = self.clock_us;
        match act {
            Act::Post => {
                let draft = self.composer.post(now, None);
                Some(self.write(number, draft))
            }
            Act::Reply => {
                let parent = self.recent();
                let draft = self.composer.post(now, parent.as_ref());
                Some(self.write(number, draft))
            }
            Act::Like => self.react(number, LIKE),
            Act::Repost => self.react(number, REPOST),
            Act::Undo => {
                let collection = if self.rng.chance(0.8) { LIKE } else { REPOST };
                self.erase(number, collection)
            }
            Act::Odd => {
                let draft = self.composer.odd(now);
                Some(self.write(number, draft))
            }
            Act::Profile => {
                let name = format!("name at {now}");
                Some(self.write_profile(number, &name))
            }
            Act::Delete => self.erase(number, POST),
            Act::Edit => self.edit(number),
            Act::SpoiledEdit => {
                let rkey = self.accounts.get(number)?.glance(POST, &mut self.rng)?;
                let draft = self.composer.post(now, None);
                let draft = self.composer.spoil(draft);
                Some(self.write_at(number, rkey, draft))
            }
            Act::Spoiled => {
                let draft = self.some_draft(number)?;
                let draft = self.composer.spoil(draft);
                Some(self.write(number, draft))
            }
            Act::Oversized => {
                let draft = self.composer.post(now, None);
                let draft = self.composer.bloat(draft, OVERSIZED_BYTES);
                Some(self.write(number, draft))
            }
            Act::Card | Act::Link | Act::Watch | Act::Mute => self.change_library(number, act),
            _ => self.change_follow(number, act),
        }
    }

    /// The acts upon follows.
    fn change_follow(&mut self, number: usize, act: Act) -> Option<Change> {
        let now = self.clock_us;
        let subject = match act {
            Act::Unfollow => return self.erase(number, FOLLOW),
            Act::TurnFollow => {
                let rkey = self.accounts.get(number)?.glance(FOLLOW, &mut self.rng)?;
                let star = self.star()?;
                let subject = self.did(star)?;
                let draft = self.composer.follow(now, &subject);
                return Some(self.write_at(number, rkey, draft));
            }
            Act::SelfFollow => self.did(number)?.to_string(),
            Act::DoubleFollow => self.followed(number)?,
            Act::Refollow => {
                let account = self.accounts.get_mut(number)?;
                account.left.pop()?
            }
            _ => {
                let star = self.star()?;
                self.did(star)?.to_string()
            }
        };
        let draft = self.composer.follow(now, &subject);
        Some(self.write(number, draft))
    }

    /// Somebody the account follows.
    fn followed(&mut self, number: usize) -> Option<String> {
        let account = self.accounts.get(number)?;
        let rkey = account.glance(FOLLOW, &mut self.rng)?;
        let uri = format!("at://{}/{FOLLOW}/{rkey}", account.did);
        let fact = self.model.record(&uri).filter(|fact| fact.sound)?;
        fact.text("subject").map(str::to_owned)
    }

    fn react(&mut self, number: usize, collection: &'static str) -> Option<Change> {
        let to = self.recent()?;
        let draft = self.composer.reaction(self.clock_us, collection, &to);
        Some(self.write(number, draft))
    }

    fn some_draft(&mut self, number: usize) -> Option<Draft> {
        let now = self.clock_us;
        if self.rng.chance(0.7) {
            return Some(self.composer.post(now, None));
        }
        let subject = self.did(number)?;
        Some(self.composer.follow(now, &subject))
    }

    /// Another text, and half the time another time, for a post.
    fn edit(&mut self, number: usize) -> Option<Change> {
        let account = self.accounts.get(number)?;
        let rkey = account.glance(POST, &mut self.rng)?;
        let uri = format!("at://{}/{POST}/{rkey}", account.did);
        let written = self.model.record(&uri).and_then(|fact| fact.created_us);
        let moment = match written {
            Some(written) if self.rng.chance(0.5) => written,
            _ => self.clock_us,
        };
        let draft = self.composer.post(moment, None);
        Some(self.write_at(number, rkey, draft))
    }

    /// Two commits: the record goes, another comes under its key.
    fn recreate(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let Some(account) = self.accounts.get(number) else {
            return;
        };
        let Some(rkey) = account.glance(POST, &mut self.rng) else {
            return;
        };
        let gone = self.erase_at(number, POST, &rkey);
        self.commit(number, vec![gone], events);
        self.advance();
        let draft = self.composer.post(self.clock_us, None);
        let back = self.write_at(number, rkey, draft);
        self.commit(number, vec![back], events);
    }

    /// Several changes of one account, each to another record.
    fn changes(&mut self, number: usize) -> Vec<Change> {
        let count = 2 + self.rng.below(BATCH_MAX - 1);
        let mut paths = BTreeSet::new();
        let mut changes = Vec::new();
        for _ in 0..count {
            let acts = [Act::Post, Act::Follow, Act::Like, Act::Odd, Act::Reply];
            let act = self.rng.pick(&acts).copied().unwrap_or(Act::Post);
            changes.extend(self.change(number, act));
        }
        paths.extend(changes.iter().map(|change| change.path.clone()));
        for collection in [POST, FOLLOW, LIKE, ODD] {
            // What this commit has just written must not be deleted in it: a
            // path is named at most once.
            let rkey = self
                .accounts
                .get(number)
                .and_then(|account| account.glance(collection, &mut self.rng));
            let Some(rkey) = rkey else { continue };
            if self.rng.chance(0.4) && paths.insert(format!("{collection}/{rkey}")) {
                if let Some(account) = self.accounts.get_mut(number) {
                    account.forget(collection, &rkey);
                }
                changes.push(self.erase_at(number, collection, &rkey));
            }
        }
        changes
    }

    fn batch(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let changes = self.changes(number);
        self.commit(number, changes, events);
    }

    /// Many changes, of which the event says only that they were too many.
    fn too_big(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let changes = self.changes(number);
        let Some(made) = self.make(number, changes) else {
            return;
        };
        let car = self.accounts.get(number).map(|it| it.repo.bare_car());
        let bare = Committed {
            done: Vec::new(),
            car: car.unwrap_or_default(),
            ..made
        };
        self.tell_commit(number, &bare, true, events);
    }

    fn join(&mut self, events: &mut Vec<SeqEvent>) {
        let number = self.newcomer();
        self.announce(number, events);
        self.commit(number, Vec::new(), events);
        self.tell_sync(number, events);
        self.advance();
        let follow = self.change(number, Act::Follow);
        self.commit(number, follow.into_iter().collect(), events);
    }

    fn hide(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let ways = [
            Standing::Takendown,
            Standing::Suspended,
            Standing::Deactivated,
        ];
        let way = self.rng.pick(&ways).copied();
        self.stand(number, way.unwrap_or(Standing::Takendown), events);
    }

    /// Somebody out of sight, or faltering, who is not gone for good.
    fn absent(&mut self) -> Option<usize> {
        let absent: Vec<usize> = self
            .accounts
            .iter()
            .enumerate()
            .filter(|(_, account)| {
                !matches!(account.standing, Standing::Active | Standing::Deleted)
            })
            .map(|(number, _)| number)
            .collect();
        self.rng.pick(&absent).copied()
    }

    fn restore(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.absent() else {
            return;
        };
        self.stand(number, Standing::Active, events);
        self.tell_identity(number, events);
        self.tell_sync(number, events);
    }

    fn falter(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let way = match self.rng.chance(0.5) {
            true => Standing::Desynchronized,
            false => Standing::Throttled,
        };
        self.stand(number, way, events);
    }

    fn leave(&mut self, events: &mut Vec<SeqEvent>) {
        let gone = |world: &World| {
            let deleted = |it: &&crate::account::Account| it.standing == Standing::Deleted;
            world.accounts.iter().filter(deleted).count()
        };
        if gone(self) * 4 > self.accounts.len() {
            return; // a world must not die out
        }
        let Some(number) = self.writer() else { return };
        self.stand(number, Standing::Deleted, events);
        if let Some(account) = self.accounts.get_mut(number) {
            account.clear();
        }
    }

    fn murmur(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.absent() else {
            return;
        };
        let act = match self.rng.below(4) {
            0 => Act::Unfollow,
            1 => Act::Follow,
            2 => Act::Delete,
            _ => Act::Post,
        };
        if let Some(change) = self.change(number, act) {
            self.commit(number, vec![change], events);
        }
    }

    fn rename_somebody(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let web = self.accounts.get(number).is_some_and(|it| it.is_web());
        if !web {
            // The host of a did:web is its handle for good.
            let handle = format!("renamed{}-{number}.{DOMAIN}", self.seq + 1);
            self.rename(number, handle);
        }
        self.tell_identity(number, events);
    }

    /// A new key, told by an identity event; the head is signed anew with it.
    fn rekey(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let key = draw_key(&mut self.rng, self.options.p256_share);
        if let Some(account) = self.accounts.get_mut(number) {
            account.key = key;
        }
        self.tell_identity(number, events);
        self.commit(number, Vec::new(), events);
    }

    fn sync_somebody(&mut self, rewritten: bool, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        if rewritten {
            let changes = self.changes(number);
            self.make(number, changes);
        }
        self.tell_sync(number, events);
    }

    /// The account stands otherwise, and the network says so.
    fn stand(&mut self, number: usize, standing: Standing, events: &mut Vec<SeqEvent>) {
        let Some(account) = self.accounts.get_mut(number) else {
            return;
        };
        account.standing = standing;
        self.model.stand(&account.did, standing);
        self.tell_account(number, events);
    }

    // Events.

    /// Says who the account is and that it is there.
    pub(crate) fn announce(&mut self, number: usize, events: &mut Vec<SeqEvent>) {
        self.tell_identity(number, events);
        self.tell_account(number, events);
    }

    /// Commits the changes and says so.
    pub(crate) fn commit(
        &mut self,
        number: usize,
        changes: Vec<Change>,
        events: &mut Vec<SeqEvent>,
    ) {
        if let Some(made) = self.make(number, changes) {
            self.tell_commit(number, &made, false, events);
        }
    }

    /// Commits the changes and says nothing.
    fn make(&mut self, number: usize, changes: Vec<Change>) -> Option<Committed> {
        let rev = self.next_tid(number);
        let account = self.accounts.get_mut(number)?;
        Some(
            account
                .repo
                .commit(&account.did, &account.key, rev, changes),
        )
    }

    fn next_seq(&mut self) -> u64 {
        let gap = match self.rng.chance(self.options.gap_share) {
            true => self.rng.below(50),
            false => 0,
        };
        self.seq += 1 + gap;
        self.seq
    }

    fn tell_commit(
        &mut self,
        number: usize,
        made: &Committed,
        too_big: bool,
        events: &mut Vec<SeqEvent>,
    ) {
        let Some(did) = self.did(number) else { return };
        let seq = self.next_seq();
        let ops = made.done.iter().map(|done| RepoOp {
            action: done.action,
            path: &done.path,
            cid: done.cid,
            prev: done.prev,
        });
        let frame = Frame::Commit(CommitEvent {
            seq: seq as i64,
            repo: &did,
            commit: made.commit,
            rev: made.rev,
            since: made.since,
            blocks: &made.car,
            ops: ops.collect(),
            prev_data: made.prev_data,
            time: &clock::micros(self.clock_us),
            too_big,
            rebase: false,
        })
        .to_bytes();
        let start = frame
            .windows(made.car.len().max(1))
            .position(|window| window == made.car)
            .unwrap_or_default();
        let body = Body::Commit {
            rev: made.rev.to_string(),
            ops: made
                .done
                .iter()
                .map(|done| self.operation(&did, done))
                .collect(),
            too_big,
            blocks: start..start + made.car.len(),
        };
        self.tell(did, seq, frame, body, events);
    }

    fn operation(&self, did: &str, done: &crate::repo::Done) -> Operation {
        let (collection, rkey) = done.path.split_once('/').unwrap_or_default();
        let uri = format!("at://{did}/{}", done.path);
        Operation {
            action: done.action,
            collection: collection.to_owned(),
            rkey: rkey.to_owned(),
            record: done.cid.zip(done.block.clone()),
            sound: self.model.record(&uri).is_none_or(|fact| fact.sound),
        }
    }

    fn tell_sync(&mut self, number: usize, events: &mut Vec<SeqEvent>) {
        let Some(account) = self.accounts.get(number) else {
            return;
        };
        let did = account.did.clone();
        let Some(head) = account.repo.head() else {
            return;
        };
        let (rev, blocks) = (head.rev, account.repo.head_car());
        let seq = self.next_seq();
        let frame = Frame::Sync(SyncEvent {
            seq: seq as i64,
            did: &did,
            rev,
            blocks: &blocks,
            time: &clock::micros(self.clock_us),
        })
        .to_bytes();
        let rev = rev.to_string();
        self.tell(did, seq, frame, Body::Sync { rev }, events);
    }

    fn tell_identity(&mut self, number: usize, events: &mut Vec<SeqEvent>) {
        let Some(account) = self.accounts.get(number) else {
            return;
        };
        let (did, handle) = (account.did.clone(), account.handle.clone());
        let seq = self.next_seq();
        let frame = Frame::Identity(IdentityEvent {
            seq: seq as i64,
            did: &did,
            handle: Some(&handle),
            time: &clock::micros(self.clock_us),
        })
        .to_bytes();
        self.tell(did, seq, frame, Body::Identity { handle }, events);
    }

    fn tell_account(&mut self, number: usize, events: &mut Vec<SeqEvent>) {
        let Some(account) = self.accounts.get(number) else {
            return;
        };
        let (did, standing) = (account.did.clone(), account.standing);
        let seq = self.next_seq();
        let frame = Frame::Account(AccountEvent {
            seq: seq as i64,
            did: &did,
            active: standing == Standing::Active,
            status: standing.status(),
            time: &clock::micros(self.clock_us),
        })
        .to_bytes();
        self.tell(did, seq, frame, Body::Account { standing }, events);
    }

    fn tell(
        &mut self,
        did: std::sync::Arc<str>,
        seq: u64,
        frame: Vec<u8>,
        body: Body,
        events: &mut Vec<SeqEvent>,
    ) {
        events.push(SeqEvent {
            seq,
            time_us: self.clock_us,
            did,
            frame: Bytes::from(frame),
            body,
        });
    }
}
