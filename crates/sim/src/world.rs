//! The world: accounts, their repositories, the clock, and what is true.
//!
//! In:    [`WorldOptions`]; then one call of [`World::step`] per act.
//! Out:   events with the very bytes a relay would send; the [`Model`].
//! Never: two different worlds from one seed; an event that the model does
//!        not know of; a look at the machine's clock.
//!
//! Seeds repeat byte for byte on one machine. The graph is drawn with
//! floating-point logarithms, which another C library may round differently.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use record::cid::Cid;
use record::tid::Tid;

use crate::account::Account;
use crate::clock::{DAY_US, HOUR_US};
use crate::compose::{Composer, Draft, FOLLOW, POST, Reference};
use crate::event::SeqEvent;
use crate::model::{Fact, Model, Standing};
use crate::repo::Change;
use crate::rng::{Rng, Wheel};
use crate::shape::{Marginals, Shape};
use crate::traffic::{Act, Traffic};

/// Posts that can be answered and liked.
const RECENT_MAX: usize = 5000;
/// Operations in one commit of the early days.
const GENESIS_OPS_MAX: usize = 150;

/// What kind of world.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    pub seed: u64,
    /// Accounts at the beginning.
    pub accounts: usize,
    /// The world's time when its live traffic begins.
    pub start_us: i64,
    /// Days of history before that.
    pub history_days: i64,
    /// Posts per account in that history, on average.
    pub history_posts: f64,
    /// Mean time between two acts.
    pub pause_us: u64,
    pub traffic: Traffic,
    /// Share of accounts of method did:web.
    pub web_share: f64,
    /// Share of accounts that sign with P-256.
    pub p256_share: f64,
    /// Share of events before which sequence numbers are skipped.
    pub gap_share: f64,
    /// Live records above which the inhabitants take back instead of writing,
    /// so that a world left running does not fill the machine.
    pub records_max: usize,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            accounts: 200,
            start_us: 1_780_000_000_000_000,
            history_days: 20,
            history_posts: 2.0,
            pause_us: 20_000,
            traffic: Traffic::default(),
            web_share: 0.05,
            p256_share: 0.1,
            gap_share: 0.02,
            records_max: 1_000_000,
        }
    }
}

/// A world.
#[derive(Debug)]
pub struct World {
    pub(crate) options: WorldOptions,
    pub(crate) rng: Rng,
    pub(crate) composer: Composer,
    pub(crate) accounts: Vec<Account>,
    pub(crate) model: Model,
    pub(crate) clock_us: i64,
    pub(crate) seq: u64,
    shape: Shape,
    by_did: HashMap<Arc<str>, usize>,
    by_handle: HashMap<String, usize>,
    writers: Wheel,
    stars: Wheel,
    acts: Wheel,
    recent: VecDeque<Reference>,
    last_tid_us: u64,
    genesis: Vec<SeqEvent>,
}

impl World {
    /// A world with its history written and its live traffic about to begin.
    pub fn new(options: WorldOptions) -> Self {
        let root = Rng::new(options.seed);
        let shape = Shape::draw(&root.split("shape"), options.accounts);
        let composer = Composer::new(root.split("composer"), options.traffic.times.clone());
        let mut world = Self {
            rng: root.split("traffic"),
            composer,
            accounts: Vec::with_capacity(options.accounts),
            model: Model::default(),
            clock_us: options.start_us - options.history_days * DAY_US,
            seq: 0,
            by_did: HashMap::new(),
            by_handle: HashMap::new(),
            writers: Wheel::new(shape.places.iter().map(|place| place.writes)),
            stars: stars(&shape),
            acts: Wheel::new(options.traffic.weights.iter().map(|(_, weight)| *weight)),
            recent: VecDeque::new(),
            last_tid_us: 0,
            genesis: Vec::new(),
            shape,
            options,
        };
        world.populate(&root);
        world.genesis = world.write_history(&root);
        world.clock_us = world.clock_us.max(world.options.start_us);
        world
    }

    fn populate(&mut self, root: &Rng) {
        let mut rng = root.split("accounts");
        for _ in 0..self.options.accounts {
            self.settle_account(&mut rng);
        }
    }

    /// Draws one more account; returns its number.
    fn settle_account(&mut self, rng: &mut Rng) -> usize {
        let number = self.accounts.len();
        let (web, p256) = (self.options.web_share, self.options.p256_share);
        let account = Account::draw(number, rng, web, p256);
        self.by_did.insert(account.did.clone(), number);
        self.by_handle.insert(account.handle.clone(), number);
        self.model.stand(&account.did, Standing::Active);
        self.accounts.push(account);
        number
    }

    /// A new account joins during the live traffic.
    pub(crate) fn newcomer(&mut self) -> usize {
        let mut rng = self.rng.split("newcomer");
        let number = self.settle_account(&mut rng);
        let mut place = Shape::draw(&rng, 1).places;
        self.shape.places.append(&mut place);
        self.writers = Wheel::new(self.shape.places.iter().map(|place| place.writes));
        self.stars = stars(&self.shape);
        self.rng.bits(); // so that the next newcomer is somebody else
        number
    }

    /// Everybody's first commits: profile, follows, some posts.
    fn write_history(&mut self, root: &Rng) -> Vec<SeqEvent> {
        let mut follows: Vec<Vec<u32>> = vec![Vec::new(); self.accounts.len()];
        for (follower, followed) in self.shape.edges(&root.split("graph")) {
            if let Some(list) = follows.get_mut(follower as usize) {
                list.push(followed);
            }
        }
        let writes: f64 = self.shape.places.iter().map(|place| place.writes).sum();
        let posts_total = self.options.history_posts * self.accounts.len() as f64;
        let pace = self.options.history_days * DAY_US / (self.accounts.len() as i64 + 1);
        let mut events = Vec::new();
        for (number, follows) in follows.into_iter().enumerate() {
            self.clock_us += pace;
            let place = self.shape.places.get(number);
            let share = place.map_or(0.0, |place| place.writes) / writes.max(f64::MIN_POSITIVE);
            let posts = (share * posts_total).round() as usize;
            self.announce(number, &mut events);
            self.write_early_days(number, &follows, posts, &mut events);
        }
        events
    }

    fn write_early_days(
        &mut self,
        number: usize,
        follows: &[u32],
        posts: usize,
        events: &mut Vec<SeqEvent>,
    ) {
        let name = self.handle(number);
        let mut changes = vec![self.write_profile(number, &name)];
        for &followed in follows {
            let Some(subject) = self.did(followed as usize) else {
                continue;
            };
            let draft = self.composer.follow(self.clock_us, &subject);
            changes.push(self.write(number, draft));
        }
        for _ in 0..posts {
            let ago = self.rng.below(2 * HOUR_US as u64) as i64;
            let draft = self.composer.post(self.clock_us - ago, None);
            changes.push(self.write(number, draft));
        }
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(GENESIS_OPS_MAX));
            self.commit(number, std::mem::replace(&mut changes, rest), events);
        }
    }

    /// The events of the world's history, once.
    pub fn take_genesis(&mut self) -> Vec<SeqEvent> {
        std::mem::take(&mut self.genesis)
    }

    /// Lets one act happen.
    pub fn step(&mut self) -> Vec<SeqEvent> {
        if self.model.len() >= self.options.records_max {
            let acts = [Act::Delete, Act::Undo, Act::Undo, Act::Unfollow];
            let act = self.rng.pick(&acts).copied().unwrap_or(Act::Delete);
            return self.act(act);
        }
        let lot = self.acts.spin(&mut self.rng);
        let weights = &self.options.traffic.weights;
        let act = lot
            .and_then(|lot| weights.get(lot))
            .map_or(Act::Post, |(act, _)| *act);
        self.act(act)
    }

    /// One empty commit of every account in sight.
    ///
    /// The chain is the only proof of loss: a lost commit shows when the next
    /// one arrives. After this, every loss so far has a next one.
    pub fn settle(&mut self) -> Vec<SeqEvent> {
        let mut events = Vec::new();
        for number in 0..self.accounts.len() {
            let hidden = self
                .accounts
                .get(number)
                .is_none_or(|account| account.standing.hides());
            if !hidden {
                self.advance();
                self.commit(number, Vec::new(), &mut events);
            }
        }
        events
    }

    /// Lets a random time pass.
    pub(crate) fn advance(&mut self) {
        let pause = -(1.0 - self.rng.unit()).ln() * self.options.pause_us as f64;
        self.clock_us += 1 + pause as i64;
    }

    /// Moves the world's clock forward to `us`; never back.
    pub fn set_clock(&mut self, us: i64) {
        self.clock_us = self.clock_us.max(us);
    }

    /// The world's time.
    pub fn clock_us(&self) -> i64 {
        self.clock_us
    }

    /// The newest sequence number given.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The seed, to print and to repeat.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// What is true.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Everybody, by number.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The account of a DID.
    pub fn account(&self, did: &str) -> Option<&Account> {
        self.accounts.get(*self.by_did.get(did)?)
    }

    /// The account of a handle.
    pub fn by_handle(&self, handle: &str) -> Option<&Account> {
        self.accounts.get(*self.by_handle.get(handle)?)
    }

    /// The achieved shape.
    pub fn marginals(&self) -> Marginals {
        self.shape.marginals()
    }

    /// The DIDs of those who read, the most eager first.
    pub fn readers(&self) -> Vec<Arc<str>> {
        let mut readers: Vec<(f64, usize)> = self
            .shape
            .places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.reads > 0.0)
            .map(|(number, place)| (place.reads, number))
            .collect();
        readers.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        readers
            .into_iter()
            .filter_map(|(_, number)| self.did(number))
            .collect()
    }

    /// How eagerly the account reads, writes and so on.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    // What follows is for the acts.

    pub(crate) fn did(&self, number: usize) -> Option<Arc<str>> {
        Some(self.accounts.get(number)?.did.clone())
    }

    fn handle(&self, number: usize) -> String {
        let account = self.accounts.get(number);
        account.map_or_else(String::new, |account| account.handle.clone())
    }

    /// Gives the account another handle.
    pub(crate) fn rename(&mut self, number: usize, handle: String) {
        if let Some(account) = self.accounts.get_mut(number) {
            self.by_handle.remove(&account.handle);
            account.handle = handle;
            self.by_handle.insert(account.handle.clone(), number);
        }
    }

    /// A TID that none before it equals or exceeds.
    pub(crate) fn next_tid(&mut self, number: usize) -> Tid {
        self.last_tid_us = (self.last_tid_us + 1).max(self.clock_us as u64);
        Tid::new(self.last_tid_us, number as u16)
    }

    /// An active account, those who write much more often than others.
    pub(crate) fn writer(&mut self) -> Option<usize> {
        self.draw_active(Draw::Writer)
    }

    /// An active account, those with many followers more often than others.
    pub(crate) fn star(&mut self) -> Option<usize> {
        self.draw_active(Draw::Star)
    }

    fn draw_active(&mut self, draw: Draw) -> Option<usize> {
        for _ in 0..20 {
            let wheel = match draw {
                Draw::Writer => &self.writers,
                Draw::Star => &self.stars,
            };
            let number = wheel.spin(&mut self.rng)?;
            let account = self.accounts.get(number)?;
            if account.standing == Standing::Active {
                return Some(number);
            }
        }
        self.accounts
            .iter()
            .position(|account| account.standing == Standing::Active)
    }

    /// A post somebody wrote lately, perhaps deleted since.
    pub(crate) fn recent(&mut self) -> Option<Reference> {
        // The newest are the most talked about.
        let share = self.rng.unit();
        let at = (share * share * self.recent.len() as f64) as usize;
        self.recent.get(at).cloned()
    }

    /// Writes a draft under a new key; the change is still to be committed.
    pub(crate) fn write(&mut self, number: usize, draft: Draft) -> Change {
        let rkey = self.next_tid(number).to_string();
        if let Some(account) = self.accounts.get_mut(number) {
            account.shelve(draft.collection, rkey.clone());
        }
        self.write_at(number, rkey, draft)
    }

    pub(crate) fn write_profile(&mut self, number: usize, name: &str) -> Change {
        let draft = self.composer.profile(self.clock_us, name);
        self.write_at(number, "self".to_owned(), draft)
    }

    /// Writes a draft under `rkey`, and tells the model what is now true.
    pub(crate) fn write_at(&mut self, number: usize, rkey: String, draft: Draft) -> Change {
        let block = record::cbor::encode(&draft.value);
        let path = format!("{}/{rkey}", draft.collection);
        let fact = Fact {
            did: self.did(number).as_deref().unwrap_or_default().to_owned(),
            collection: draft.collection.to_owned(),
            rkey,
            cid: Cid::of_cbor(&block).to_string(),
            created_us: draft.created_us,
            sound: draft.sound,
            fields: Some(draft.fields),
        };
        if fact.collection == POST && fact.sound {
            self.recent.push_front(Reference {
                uri: fact.uri(),
                cid: fact.cid.clone(),
            });
            self.recent.truncate(RECENT_MAX);
        }
        self.model.put(fact);
        Change {
            path,
            block: Some(block.into()),
        }
    }

    /// Deletes a random record of a collection; `None` if there is none.
    pub(crate) fn erase(&mut self, number: usize, collection: &str) -> Option<Change> {
        let account = self.accounts.get_mut(number)?;
        let rkey = account.unshelve(collection, &mut self.rng)?;
        Some(self.erase_at(number, collection, &rkey))
    }

    /// Deletes the record under `rkey`.
    pub(crate) fn erase_at(&mut self, number: usize, collection: &str, rkey: &str) -> Change {
        if let Some(account) = self.accounts.get_mut(number) {
            let uri = format!("at://{}/{collection}/{rkey}", account.did);
            let subject = self
                .model
                .record(&uri)
                .filter(|fact| fact.sound)
                .and_then(|fact| fact.text("subject").map(str::to_owned));
            if let (FOLLOW, Some(subject)) = (collection, subject) {
                account.leave(subject);
            }
            self.model.remove(&uri);
        }
        Change {
            path: format!("{collection}/{rkey}"),
            block: None,
        }
    }
}

/// Which wheel to spin.
#[derive(Clone, Copy)]
enum Draw {
    Writer,
    Star,
}

fn stars(shape: &Shape) -> Wheel {
    Wheel::new(
        shape
            .places
            .iter()
            .map(|place| f64::from(place.followers) + 1.0),
    )
}
