//! The naive model: lists of everything, searched from end to end.
//!
//! In:    the same changes the engine is given.
//! Out:   every page, by filtering and sorting all records.
//! Never: a line shared with the engine; a shortcut.

use std::collections::BTreeSet;

/// A record as the model keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) feed: usize,
    pub(crate) target: usize,
    pub(crate) id: u64,
    pub(crate) time_us: i64,
    pub(crate) uri: String,
    pub(crate) author: u32,
    pub(crate) keys: Vec<u32>,
}

/// One change, for the model and for the engine.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Put(Post),
    Delete(u64),
    Account(u32, bool),
    Follow(usize, u32, u32),
    Unfollow(usize, u32, u32),
    Hide(usize, u32, u32),
    Unhide(usize, u32, u32),
}

/// All there is, at one position of the outbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) position: u64,
    pub(crate) posts: Vec<Post>,
    pub(crate) follows: Vec<(usize, u32, u32)>,
    pub(crate) hides: Vec<(usize, u32, u32)>,
    pub(crate) hidden_accounts: BTreeSet<u32>,
    pub(crate) include_self: Vec<bool>,
}

fn drop_first<T: PartialEq>(list: &mut Vec<T>, item: &T) {
    if let Some(at) = list.iter().position(|one| one == item) {
        list.remove(at);
    }
}

impl World {
    pub(crate) fn apply(&mut self, change: &Change) {
        self.position += 1;
        match change {
            Change::Put(post) => {
                self.posts.retain(|old| {
                    (old.feed, old.target, old.id) != (post.feed, post.target, post.id)
                });
                self.posts.push(post.clone());
            }
            Change::Delete(id) => self.posts.retain(|post| post.id != *id),
            Change::Account(author, true) => {
                self.hidden_accounts.insert(*author);
            }
            Change::Account(author, false) => {
                self.hidden_accounts.remove(author);
            }
            Change::Follow(feed, reader, key) => self.follows.push((*feed, *reader, *key)),
            Change::Unfollow(feed, reader, key) => {
                drop_first(&mut self.follows, &(*feed, *reader, *key));
            }
            Change::Hide(feed, reader, author) => self.hides.push((*feed, *reader, *author)),
            Change::Unhide(feed, reader, author) => {
                drop_first(&mut self.hides, &(*feed, *reader, *author));
            }
        }
    }

    pub(crate) fn follows_of(&self, feed: usize, reader: u32) -> Vec<u32> {
        let mine = self
            .follows
            .iter()
            .filter(|(f, r, _)| *f == feed && *r == reader);
        mine.map(|(_, _, key)| *key).collect()
    }

    pub(crate) fn hides_of(&self, feed: usize, reader: u32) -> Vec<u32> {
        let mine = self
            .hides
            .iter()
            .filter(|(f, r, _)| *f == feed && *r == reader);
        mine.map(|(_, _, author)| *author).collect()
    }

    /// Whether a follow (or being oneself) brings the post to the reader.
    pub(crate) fn reaches(&self, post: &Post, feed: usize, reader: u32) -> bool {
        post.feed == feed && post.keys.iter().any(|key| self.brings(feed, reader, *key))
    }

    fn brings(&self, feed: usize, reader: u32, key: u32) -> bool {
        self.follows.contains(&(feed, reader, key)) || (self.include_self[feed] && key == reader)
    }

    /// Whether it comes by a key that the reader does not hide.
    fn comes_openly(&self, post: &Post, feed: usize, reader: u32) -> bool {
        let hides = |key: u32| self.hides.contains(&(feed, reader, key));
        let mut keys = post.keys.iter();
        keys.any(|key| self.brings(feed, reader, *key) && !hides(*key))
    }

    /// All the reader sees, newest first. `target` `None` is a mixed page.
    pub(crate) fn feed(&self, feed: usize, target: Option<usize>, reader: u32) -> Vec<&Post> {
        let mut seen: Vec<&Post> = self
            .posts
            .iter()
            .filter(|post| target.is_none_or(|target| post.target == target))
            .filter(|post| self.reaches(post, feed, reader))
            .filter(|post| self.comes_openly(post, feed, reader))
            .filter(|post| !self.hidden_accounts.contains(&post.author))
            .filter(|post| !self.hides.contains(&(feed, reader, post.author)))
            .collect();
        seen.sort_by(|one, other| (other.time_us, &other.uri).cmp(&(one.time_us, &one.uri)));
        seen
    }
}
