//! Pages as URIs: what a skeleton shows, from the engine alone.
//!
//! The engine knows the URI of every record it holds, so such a page needs no
//! record's body, neither from the cache nor from the store.

use timeline::{Moment, Page};

use super::{Fanout, Wish};
use crate::store::{Position, StoreError};

/// A page of URIs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uris {
    /// One after the other.
    text: String,
    ends: Vec<usize>,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<Position>,
}

impl Uris {
    fn of(moment: &Moment<'_>, page: Page) -> Self {
        let mut text = Vec::with_capacity(page.entries.len() * 80);
        let mut ends = Vec::with_capacity(page.entries.len());
        moment.push_uris(&page.entries, &mut text, &mut ends);
        let text = String::from_utf8(text).unwrap_or_default(); // it is made of texts
        Self {
            text,
            ends,
            next: page.next.map(super::place),
        }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(&0).chain(&self.ends);
        let spans = begins.zip(&self.ends);
        spans.filter_map(|(begin, end)| self.text.get(*begin..*end))
    }
}

impl Fanout {
    /// The page, if memory can answer it wholly and exactly.
    pub fn uris(&self, wish: &Wish<'_>) -> Result<Option<Uris>, StoreError> {
        self.find(wish, &Uris::of)
    }

    /// The same, if nobody has to be waited for.
    pub fn uris_at_once(&self, wish: &Wish<'_>) -> Option<Uris> {
        self.find_at_once(wish, &Uris::of)
    }
}
