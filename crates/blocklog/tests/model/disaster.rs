//! What happens to the authority: it is copied, brought back from a copy, or lost.

use super::{SPACE, Workshop, World, contents};
use blocklog::block::Hash;
use blocklog::cursor::Epoch;
use blocklog::store::{LogStore as _, Role};
use std::collections::BTreeMap;

impl<W: Workshop> World<W> {
    pub(super) fn copy(&mut self) {
        if self.weather.ranges && !self.has_begun() {
            return;
        }
        self.check_positions();
        let copy = self.workshop.copy(&self.authority);
        self.copies.push((copy, self.given.clone()));
    }

    pub(super) fn roll_back(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        let which = self.luck.below(self.copies.len() as u64) as usize;
        let (copy, given) = &self.copies[which];
        let (copy, given) = (self.workshop.copy(copy), given.clone());
        self.put_in_place(copy, given);
    }

    pub(super) fn replace(&mut self) {
        let fresh = self.workshop.fresh();
        self.epochs += 1;
        fresh
            .open(SPACE, Role::Authority, Epoch([self.epochs; 16]))
            .unwrap();
        self.copies.clear();
        self.put_in_place(fresh, BTreeMap::new());
    }

    /// Another store is the authority now. A block whose only copy was in the
    /// old one, because every replica had evicted it, is beyond anybody's help.
    pub(super) fn put_in_place(&mut self, store: W::Store, given: BTreeMap<u64, Hash>) {
        let before = contents(&self.authority);
        self.authority = store;
        let left = self.within_reach();
        self.excused.extend(before.difference(&left).cloned());
        self.given = given;
    }
}
