//! An engine full of readers, and ways to post into it.

use sim::rng::{Rng, Wheel};
use sim::shape::Shape;
use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, RecordId, Request, Settings, Target, TargetSpec,
    Timelines,
};

/// When the crowd begins to post.
const START_US: i64 = 1_700_000_000_000_000;
/// Followers of the most followed account, in worlds of a million.
const LARGEST: u32 = 920_000;
/// Between two posts: fifty a second, as on the public network.
const PAUSE_US: i64 = 20_000;

/// Settings of one feed with one target, and memory enough.
pub(super) fn settings(items_max: usize) -> Settings {
    Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max }],
            include_self: false,
        }],
        window_bytes_max: 4 << 30,
        reader_bytes_max: 20 << 30,
        ..Settings::default()
    }
}

/// A record made up, not yet published.
#[derive(Debug)]
pub(super) struct Draft {
    id: u64,
    author: u32,
    time_us: i64,
    uri: String,
}

impl Draft {
    /// The same under another id.
    pub(super) fn with_id(self, id: u64) -> Self {
        Self { id, ..self }
    }
}

/// An engine, and what it takes to make up records.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) engine: Timelines,
    pub(super) posted: u64,
    pub(super) rng: Rng,
    pub(super) now_us: i64,
}

impl Crowd {
    pub(super) fn new(settings: Settings) -> Self {
        let mut engine = Timelines::new(settings, 0);
        engine.loaded(0, 0, None);
        Self {
            engine,
            posted: 0,
            rng: Rng::new(4711),
            now_us: START_US,
        }
    }

    /// Makes a reader active and enters it into every list.
    pub(super) fn register(&mut self, reader: u32, follows: &[u32]) {
        let list = KeyList::new(follows.iter().copied().map(KeyId));
        let cold = Cold {
            follows: &list,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        self.engine.register(0, KeyId(reader), &cold, self.now_us);
        self.engine.step(self.now_us, 4_096);
    }

    /// Does all background work.
    pub(super) fn settle(&mut self) {
        while self.engine.step(self.now_us, 1 << 20) {}
    }

    /// A record now, or a little late, as records from a network are.
    pub(super) fn draft(&mut self, author: u32) -> Draft {
        self.now_us += PAUSE_US;
        self.posted += 1;
        let late_us = match self.rng.below(100) {
            0..70 => self.rng.below(300_000),
            70..99 => self.rng.below(3_000_000),
            _ => self.rng.below(60_000_000),
        };
        Draft {
            id: self.posted,
            author,
            time_us: self.now_us - late_us.cast_signed(),
            uri: format!(
                "at://did:plc:{author:024}/app.bsky.feed.post/{}",
                record::tid::Tid::new(self.now_us.cast_unsigned(), 1)
            ),
        }
    }

    /// A record of this moment, later than all before it.
    pub(super) fn draft_at_once(&mut self, author: u32) -> Draft {
        let mut draft = self.draft(author);
        draft.time_us = self.now_us;
        draft
    }

    pub(super) fn publish(&mut self, draft: &Draft) {
        let keys = [KeyId(draft.author)];
        self.engine.insert(
            0,
            0,
            NewRecord {
                id: RecordId(draft.id),
                time_us: draft.time_us,
                uri: &draft.uri,
                author: KeyId(draft.author),
                keys: &keys,
            },
        );
        self.engine.end();
    }

    /// Records as the drawer hands them over: together.
    pub(super) fn publish_all(&mut self, drafts: &[Draft]) {
        let keys: Vec<[KeyId; 1]> = drafts.iter().map(|draft| [KeyId(draft.author)]).collect();
        let records: Vec<NewRecord<'_>> = drafts
            .iter()
            .zip(&keys)
            .map(|(draft, keys)| NewRecord {
                id: RecordId(draft.id),
                time_us: draft.time_us,
                uri: &draft.uri,
                author: KeyId(draft.author),
                keys,
            })
            .collect();
        self.engine.insert_all(0, 0, &records);
        self.engine.end();
    }

    /// Carries the background fan-outs to their end.
    pub(super) fn finish_fanouts(&mut self) {
        while self.engine.stats().fanouts > 0 {
            self.engine.step(self.now_us, 65_536);
        }
    }

    pub(super) fn post(&mut self, author: u32) {
        let draft = self.draft(author);
        self.publish(&draft);
    }

    /// A wish for the newest fifty.
    pub(super) fn request(&self, reader: u32) -> Request<'static> {
        Request {
            feed: 0,
            target: Target::One(0),
            reader: KeyId(reader),
            before: None,
            limit: 50,
            now_us: self.now_us,
        }
    }
}

/// Who follows whom, in the public shape, and who writes how much.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) follows: Vec<Vec<u32>>,
    pub(super) writers: Wheel,
    pub(super) marginals: String,
}

impl Graph {
    pub(super) fn draw(accounts: usize) -> Self {
        let rng = Rng::new(1);
        let mut shape = Shape::draw(&rng, accounts);
        // The public network's largest account comes from 40 million; a world that could
        // hold it is given it, because it would hardly draw it.
        let largest = shape.places.iter_mut().max_by_key(|place| place.followers);
        if let Some(largest) = largest.filter(|_| accounts > LARGEST as usize) {
            largest.followers = largest.followers.max(LARGEST);
        }
        let mut follows = vec![Vec::new(); accounts];
        for (follower, followed) in shape.edges(&rng) {
            if let Some(list) = follows.get_mut(follower as usize) {
                list.push(followed);
            }
        }
        Self {
            follows,
            writers: Wheel::new(shape.places.iter().map(|place| place.writes)),
            marginals: shape.marginals().to_string(),
        }
    }
}
