//! The hub: who waits for a space to advance.
//!
//! In:    the news that blocks were appended.
//! Out:   a wake-up for everybody who listens to that space.
//! Never: news kept for whoever is slow: it is told that it missed some, and
//!        asks the store.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::broadcast;

/// News a slow listener may be behind before it is told that it missed some.
const NEWS_MAX: usize = 64;

/// Feeds that news name, and bytes of their names; of more, everybody who listens is told.
const FEEDS_MAX: usize = 64;
const FEEDS_BYTES_MAX: usize = 4096;

/// Blocks were appended.
#[derive(Debug, Clone)]
pub struct News {
    /// The highest position.
    pub position_max: u64,
    /// The feeds that grew; `None` where another process wrote and nobody knows, and where they
    /// are many.
    pub feeds: Option<Arc<BTreeSet<String>>>,
    /// The namespace of the append, if one was named.
    pub namespace: Option<Arc<str>>,
}

impl News {
    /// News of these feeds, or of any where they are too many to keep for who is slow.
    #[must_use]
    pub fn of(position_max: u64, feeds: BTreeSet<String>, namespace: Option<&str>) -> Self {
        let bytes: usize = feeds.iter().map(String::len).sum();
        let fits = feeds.len() <= FEEDS_MAX && bytes <= FEEDS_BYTES_MAX;
        Self {
            position_max,
            feeds: fits.then(|| Arc::new(feeds)),
            namespace: namespace.map(Arc::from),
        }
    }
}

/// Who waits for what.
#[derive(Debug, Default)]
pub struct Hub {
    spaces: Mutex<HashMap<String, broadcast::Sender<News>>>,
}

impl Hub {
    /// Listen to a space.
    pub fn listen(&self, space: &str) -> broadcast::Receiver<News> {
        let mut spaces = self.spaces.lock();
        spaces.retain(|_, sender| sender.receiver_count() > 0);
        let sender = spaces
            .entry(space.to_owned())
            .or_insert_with(|| broadcast::channel(NEWS_MAX).0);
        sender.subscribe()
    }

    /// Every space that somebody listens to.
    pub fn listened(&self) -> Vec<String> {
        let spaces = self.spaces.lock();
        let heard = spaces
            .iter()
            .filter(|(_, sender)| sender.receiver_count() > 0);
        heard.map(|(space, _)| space.clone()).collect()
    }

    /// Tell everybody who listens to `space`.
    pub fn tell(&self, space: &str, news: News) {
        if let Some(sender) = self.spaces.lock().get(space) {
            // Nobody listening any more is no fault.
            drop(sender.send(news));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_many_feeds_or_long_names_are_news_of_any() {
        let names = |count: usize, bytes: usize| -> BTreeSet<String> {
            let named = (0..count).map(|number| format!("{number:0bytes$}"));
            named.collect()
        };
        let is_named = |feeds| News::of(1, feeds, None).feeds.is_some();
        assert!(is_named(names(1, 1)) && is_named(names(FEEDS_MAX, 64)));
        assert!(!is_named(names(FEEDS_MAX + 1, 3)));
        assert!(!is_named(names(10, 512)));
    }
}
