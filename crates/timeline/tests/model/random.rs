//! Numbers from a seed, and changes drawn with them.
//!
//! In:    a seed and the world so far.
//! Out:   settings, changes and choices that are the same for the same seed.
//! Never: a dependency on anything but the seed.

use super::world::{Change, Post, World};
use timeline::{FeedSpec, Settings, TargetSpec};

pub(crate) const READERS: u32 = 7;
pub(crate) const KEYS: u32 = 14;

/// A small generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// What a world has more of than plain chance would give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    Any,
    /// Equal times, and keys that are pulled: at every floor the URI decides.
    Ties,
    /// Two indexes of one feed, most records in one of them: their floors differ.
    Floors,
    /// A fan-out in the background for every record, and little time for them.
    Queues,
}

impl Theme {
    /// An amount of background work.
    pub(crate) fn work(self, random: &mut Random) -> usize {
        match self {
            Self::Queues => random.pick(&[1, 1, 1, 2, 2, 8, 10_000]),
            _ => random.pick(&[1, 2, 8, 10_000]),
        }
    }
}

/// Settings small enough that every way of answering is taken.
pub(crate) fn settings(random: &mut Random) -> (Settings, Theme) {
    let any = any_settings(random);
    let theme = random.pick(&[
        Theme::Any,
        Theme::Any,
        Theme::Ties,
        Theme::Floors,
        Theme::Queues,
    ]);
    let settings = match theme {
        Theme::Any => any,
        Theme::Ties => ties(random, any),
        Theme::Floors => floors(random, any),
        Theme::Queues => queues(random, any),
    };
    (settings, theme)
}

fn any_settings(random: &mut Random) -> Settings {
    let feeds = (0..1 + random.below(2))
        .map(|_| FeedSpec {
            targets: (0..1 + random.below(2))
                .map(|_| TargetSpec {
                    items_max: random.pick(&[1, 2, 3, 5, 9, 12, 19, 24, 40]),
                })
                .collect(),
            include_self: random.one_in(3),
        })
        .collect();
    Settings {
        feeds,
        pull_above: random.pick(&[0, 1, 2, 3, 5, 1_000]),
        scan_above: random.pick(&[1, 3, 5, 1_000, 1_000]),
        sync_threshold: random.pick(&[0, 1, 2, 1_000]),
        ttl_us: random.pick(&[60_000_000, 600_000_000, 1_000_000_000_000]),
        page_scan_max: random.pick(&[1, 3, 10_000, 10_000, 10_000]),
        window_scan_max: random.pick(&[1, 4, 10_000]),
        window_records_max: random.pick(&[5, 20, 60, 100_000, 100_000]),
        reader_bytes_max: random.pick(&[5_000, 1 << 30, 1 << 30, 1 << 30]),
        fanout_jobs_max: random.pick(&[0, 1, 3, 100]),
        removed_max: random.pick(&[1, 5, 30]),
        changes_max: random.pick(&[1, 3, 100]),
        ..Settings::default()
    }
}

/// The same with rings of few entries that are full soon, and keys that are pulled.
fn ties(random: &mut Random, mut settings: Settings) -> Settings {
    for target in settings.feeds.iter_mut().flat_map(|feed| &mut feed.targets) {
        target.items_max = random.pick(&[1, 2, 3, 5]);
    }
    Settings {
        pull_above: random.pick(&[0, 1, 1, 2]),
        scan_above: 1_000,
        ttl_us: 1_000_000_000_000,
        page_scan_max: 10_000,
        reader_bytes_max: 1 << 30,
        ..settings
    }
}

/// The same with one feed of two indexes, and a small window that they share.
fn floors(random: &mut Random, settings: Settings) -> Settings {
    let target = |items_max| TargetSpec { items_max };
    Settings {
        feeds: vec![FeedSpec {
            targets: vec![
                target(random.pick(&[1, 2, 9, 40])),
                target(random.pick(&[1, 3, 40])),
            ],
            include_self: random.one_in(3),
        }],
        page_scan_max: 10_000,
        window_records_max: random.pick(&[5, 10, 20, 60]),
        reader_bytes_max: 1 << 30,
        ..settings
    }
}

/// The same with a fan-out in the background for every record, and room for all readers: in few
/// worlds of plain chance two pushes wait together.
fn queues(random: &mut Random, settings: Settings) -> Settings {
    Settings {
        pull_above: 1_000,
        scan_above: 1_000,
        sync_threshold: 0,
        ttl_us: 1_000_000_000_000,
        reader_bytes_max: 1 << 30,
        fanout_jobs_max: random.pick(&[100, 1_000]),
        ..settings
    }
}

/// The next change. `serial` numbers new records, `now_us` is the present.
pub(crate) fn change(
    random: &mut Random,
    world: &World,
    (settings, theme): (&Settings, Theme),
    serial: u64,
    now_us: i64,
) -> Change {
    let feed = random.below(settings.feeds.len() as u64) as usize;
    let reader = random.below(u64::from(READERS)) as u32;
    let key = random.below(u64::from(KEYS)) as u32;
    match random.below(100) {
        0..45 => Change::Put(post(random, (settings, theme), serial, now_us)),
        45..52 => match existing(random, world) {
            Some(old) => Change::Put(edited(random, theme, old, now_us)),
            None => Change::Put(post(random, (settings, theme), serial, now_us)),
        },
        52..60 => match existing(random, world) {
            Some(old) => Change::Delete(old.id),
            None => Change::Delete(serial + 1_000_000),
        },
        60..76 => Change::Follow(feed, reader, key),
        76..88 => match world
            .follows
            .get(random.below(world.follows.len() as u64) as usize)
        {
            Some(&(feed, reader, key)) => Change::Unfollow(feed, reader, key),
            None => Change::Follow(feed, reader, key),
        },
        88..91 => Change::Account(key, true),
        91..95 => match world.hidden_accounts.first() {
            Some(&author) => Change::Account(author, false),
            None => Change::Account(key, false),
        },
        95..97 => Change::Hide(feed, reader, key),
        _ => match world
            .hides
            .get(random.below(world.hides.len() as u64) as usize)
        {
            Some(&(feed, reader, author)) => Change::Unhide(feed, reader, author),
            None => Change::Hide(feed, reader, key),
        },
    }
}

fn existing(random: &mut Random, world: &World) -> Option<Post> {
    let at = random.below(world.posts.len() as u64) as usize;
    world.posts.get(at).cloned()
}

/// Live, late, very late, in the future, and often equal to another's.
fn time(random: &mut Random, theme: Theme, now_us: i64) -> i64 {
    if theme == Theme::Ties && !random.one_in(10) {
        let recent_us = now_us / 50_000_000 * 50_000_000;
        return recent_us - random.pick(&[0, 0, 0, 50_000_000]);
    }
    match random.below(20) {
        0..10 => now_us,
        10..14 => now_us - random.below(5) as i64,
        14..17 => now_us - random.below(3_000) as i64 * 100_000,
        17 => random.pick(&[-7, 0, 1, 999_999, 1_000_000]),
        18 => now_us + random.below(4) as i64 * 1_000_000,
        _ => now_us / 50_000_000 * 50_000_000,
    }
}

fn keys(random: &mut Random, author: u32) -> Vec<u32> {
    let other = random.below(u64::from(KEYS)) as u32;
    match random.below(8) {
        0 => vec![author, other],
        1 => vec![other, author, author],
        2 => vec![other],
        3 => vec![author, other, random.below(u64::from(KEYS)) as u32],
        _ => vec![author],
    }
}

fn tid(number: u64) -> String {
    let letters = b"234567abcdefghijklmnopqrstuvwxyz";
    let digit = |place: u32| letters[(number >> (5 * place) & 31) as usize] as char;
    (0..13)
        .rev()
        .map(|place| if place == 12 { '3' } else { digit(place) })
        .collect()
}

fn post(
    random: &mut Random,
    (settings, theme): (&Settings, Theme),
    serial: u64,
    now_us: i64,
) -> Post {
    let feed = random.below(settings.feeds.len() as u64) as usize;
    let target = match theme {
        Theme::Floors => usize::from(random.one_in(6)),
        _ => random.below(settings.feeds[feed].targets.len() as u64) as usize,
    };
    let author = random.below(u64::from(KEYS)) as u32;
    // Names of different length, so that a shorter one is a prefix of a longer.
    let did = format!("did:plc:{}", "a".repeat(author as usize / 2 + 1));
    let name = match random.below(3) {
        0 => tid(serial),
        1 => format!("{serial}"),
        _ => tid(serial << 40),
    };
    Post {
        feed,
        target,
        id: serial,
        time_us: time(random, theme, now_us),
        uri: format!("at://{did}/c{feed}{target}/{name}"),
        author,
        keys: keys(random, author),
    }
}

fn edited(random: &mut Random, theme: Theme, old: Post, now_us: i64) -> Post {
    let author = old.author;
    match random.below(4) {
        0 => Post {
            time_us: time(random, theme, now_us),
            ..old
        },
        1 => Post {
            keys: keys(random, author),
            ..old
        },
        // The same again: a replay.
        2 => old,
        _ => Post {
            time_us: time(random, theme, now_us),
            keys: keys(random, author),
            ..old
        },
    }
}
