//! The acts upon cards, links, watches and mutes.
//!
//! In:    an act and an account.
//! Out:   its change: something new, an edit, or a delete.
//! Never: a link without a card to name: then nothing happens.

use crate::compose::library::{BLOCK, CARD, LINK, MUTE, SET, TOPICS, WATCH};
use crate::compose::{Draft, POST};
use crate::event::SeqEvent;
use crate::repo::Change;
use crate::traffic::Act;
use crate::world::World;

/// Collections of each person into which cards are put.
const SETS: u64 = 3;
/// Links of a card that is saved and put into collections at once.
const LINKS_MAX: u64 = 3;

impl World {
    /// The one change that an act upon the library means.
    pub(super) fn change_library(&mut self, number: usize, act: Act) -> Option<Change> {
        let (collection, undone) = match act {
            Act::Card => (CARD, 0.15),
            Act::Link => (LINK, 0.15),
            Act::Watch => (WATCH, 0.2),
            _ if self.rng.chance(0.7) => (MUTE, 0.5),
            _ => (BLOCK, 0.5),
        };
        if self.rng.chance(undone) {
            return self.erase(number, collection);
        }
        let is_edit = self.rng.chance(0.15);
        let old = self.accounts.get(number)?;
        let old = old.glance(collection, &mut self.rng).filter(|_| is_edit);
        let draft = self.draft_of_library(number, collection)?;
        Some(match old {
            Some(rkey) => self.write_at(number, rkey, draft),
            None => self.write(number, draft),
        })
    }

    fn draft_of_library(&mut self, number: usize, collection: &'static str) -> Option<Draft> {
        let now = self.clock_us;
        Some(match collection {
            CARD => self.composer.card(now),
            LINK => {
                let card = self.some_card(number)?;
                let set = self.some_set()?;
                self.composer.link(now, &card, &set)
            }
            WATCH => {
                let key = self.some_key()?;
                self.composer.naming(now, WATCH, &key)
            }
            _ => {
                // Mostly somebody whose records are in the way.
                let key = match self.rng.below(10) {
                    0 | 1 => self.some_key()?,
                    2..=6 => self.followed(number)?,
                    _ => self.someone()?,
                };
                self.composer.naming(now, collection, &key)
            }
        })
    }

    /// A card and links that put it into collections, in one commit.
    pub(super) fn save(&mut self, events: &mut Vec<SeqEvent>) {
        let Some(number) = self.writer() else { return };
        let now = self.clock_us;
        let draft = self.composer.card(now);
        let card = self.write(number, draft);
        let uri = match self.did(number) {
            Some(did) => format!("at://{did}/{}", card.path),
            None => return,
        };
        let mut changes = vec![card];
        for _ in 0..self.rng.below(LINKS_MAX + 1) {
            let Some(set) = self.some_set() else { break };
            let draft = self.composer.link(now, &uri, &set);
            changes.push(self.write(number, draft));
        }
        self.commit(number, changes, events);
    }

    /// A card of the account's own, now and then one of somebody else's.
    fn some_card(&mut self, number: usize) -> Option<String> {
        let owner = match self.rng.chance(0.85) {
            true => number,
            false => self.writer()?,
        };
        let account = self.accounts.get(owner)?;
        let rkey = account.glance(CARD, &mut self.rng)?;
        Some(format!("at://{}/{CARD}/{rkey}", account.did))
    }

    /// Anybody's collection.
    fn some_set(&mut self) -> Option<String> {
        let owner = self.writer()?;
        let number = self.rng.below(SETS);
        Some(format!("at://{}/{SET}/{number}", self.did(owner)?))
    }

    fn someone(&mut self) -> Option<String> {
        let number = match self.rng.chance(0.5) {
            true => self.writer()?,
            false => self.star()?,
        };
        Some(self.did(number)?.to_string())
    }

    /// Something that can be watched or muted.
    fn some_key(&mut self) -> Option<String> {
        match self.rng.below(10) {
            0..=3 => self.someone(),
            4..=6 => self.some_set(),
            7 | 8 => self.rng.pick(&TOPICS).map(|topic| (*topic).to_owned()),
            _ => {
                let post = self.recent()?;
                debug_assert!(post.uri.contains(POST), "only posts are remembered");
                Some(post.uri)
            }
        }
    }
}
