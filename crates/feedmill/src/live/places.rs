//! Places: how many readers listen, from one address and as readers of whom nothing is here.
//!
//! In:    from where a reader listens, and whether anything of it is here.
//! Out:   a place, or the limit that was met.
//! Never: more places than there are; more than a quarter of them for one address other than this
//!        machine; more than a small part of them for readers of whom nothing is here: anybody can
//!        invent as many of those as he likes.

use std::collections::HashMap;
use std::net::IpAddr;

/// One address has at most this part of all places.
const ADDRESS_PART: usize = 4;
/// Readers of whom nothing is here have at most this part of them, all together.
const UNKNOWN_PART: usize = 64;

/// Who listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    /// `None`: this machine.
    pub(super) address: Option<IpAddr>,
    /// Nothing of the reader is here.
    pub(super) is_unknown: bool,
}

#[derive(Debug)]
pub(super) struct Places {
    max: usize,
    holders: HashMap<u64, Holder>,
    by_address: HashMap<IpAddr, usize>,
    unknown: usize,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            holders: HashMap::new(),
            by_address: HashMap::new(),
            unknown: 0,
        }
    }

    /// Takes a place for a listener; `Err` names the limit that was met.
    pub(super) fn take(&mut self, id: u64, holder: Holder) -> Result<(), &'static str> {
        let own = |address| self.by_address.get(&address).copied().unwrap_or(0);
        let own = holder.address.map_or(0, own);
        if self.holders.len() >= self.max {
            return Err("listeners");
        }
        if own >= self.max.div_ceil(ADDRESS_PART) {
            return Err("address-listeners");
        }
        if holder.is_unknown && self.unknown >= self.max.div_ceil(UNKNOWN_PART) {
            return Err("unknown-listeners");
        }
        if let Some(address) = holder.address {
            *self.by_address.entry(address).or_default() += 1;
        }
        self.unknown += usize::from(holder.is_unknown);
        self.holders.insert(id, holder);
        Ok(())
    }

    /// Gives a listener's place back, if it has one.
    pub(super) fn give_back(&mut self, id: u64) {
        let Some(holder) = self.holders.remove(&id) else {
            return;
        };
        self.unknown -= usize::from(holder.is_unknown);
        let Some(address) = holder.address else {
            return;
        };
        if let Some(own) = self.by_address.get_mut(&address) {
            *own -= 1;
            if *own == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(last: u8, is_unknown: bool) -> Holder {
        let address = (last > 0).then(|| IpAddr::from([10, 0, 0, last]));
        Holder {
            address,
            is_unknown,
        }
    }

    #[test]
    fn one_address_has_a_quarter_of_all_places_and_this_machine_all_of_them() {
        let mut places = Places::new(8);
        let taken = |places: &mut Places, id, last| places.take(id, holder(last, false));
        assert!(taken(&mut places, 1, 1).is_ok() && taken(&mut places, 2, 1).is_ok());
        assert_eq!(taken(&mut places, 3, 1), Err("address-listeners"));
        for id in 4..10 {
            assert_eq!(taken(&mut places, id, 0), Ok(()));
        }
        assert_eq!(taken(&mut places, 10, 2), Err("listeners"));
        for id in 0..20 {
            places.give_back(id);
        }
        assert!(places.holders.is_empty() && places.by_address.is_empty());
        assert_eq!(taken(&mut places, 11, 1), Ok(()));
    }

    #[test]
    fn readers_of_whom_nothing_is_here_share_a_few_places_whatever_their_addresses() {
        let mut places = Places::new(128);
        let unknown: Vec<_> = (1..=100)
            .map(|last| places.take(u64::from(last), holder(last, true)))
            .collect();
        let refused = unknown.iter().filter(|taken| taken.is_err()).count();
        assert_eq!((refused, unknown[2]), (98, Err("unknown-listeners")));
        assert_eq!(
            places.take(200, holder(1, false)),
            Ok(()),
            "others are let in"
        );
        (0..=200).for_each(|id| places.give_back(id));
        assert_eq!(places.unknown, 0);
    }
}
