//! Slots: requests being answered, all together and of one address.
//!
//! In:    the address of a request.
//! Out:   a slot, or a refusal at once.
//! Never: more slots than `requests_max`; more than a quarter of them to one
//!        address, so that nobody shuts the others out by asking slowly.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::limits::Limits;

/// One address has at most this part of all slots.
const SHARE: usize = 4;

/// Slots, and who has them.
#[derive(Debug)]
pub(super) struct Slots {
    limits: Arc<Limits>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One request being answered.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    address: Option<IpAddr>,
}

impl Slots {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            taken: Mutex::default(),
        }
    }

    /// A slot; `Err` names the limit that was met. This machine itself has no share.
    pub(super) fn take(&self, address: Option<IpAddr>) -> Result<Slot<'_>, &'static str> {
        let requests_max = self.limits.requests_max();
        let mut taken = self.taken.lock();
        if taken.all >= requests_max {
            return Err("requests");
        }
        if let Some(address) = address {
            let own = taken.by_address.entry(address).or_default();
            if *own >= requests_max.div_ceil(SHARE) {
                return Err("address-requests");
            }
            *own += 1;
        }
        taken.all += 1;
        Ok(Slot {
            slots: self,
            address,
        })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        taken.all -= 1;
        let Some(address) = self.address else {
            return;
        };
        if let Some(own) = taken.by_address.get_mut(&address) {
            *own -= 1;
            if *own == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_the_slots_of_others() {
        let settings = crate::config::Serve {
            requests_max: 8,
            ..crate::config::Serve::default()
        };
        let slots = Slots::new(Arc::new(Limits::new(&settings)));
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let held = [slots.take(one), slots.take(one)];
        assert_eq!(slots.take(one).unwrap_err(), "address-requests");
        let others: Vec<_> = (0..2).map(|_| slots.take(other).unwrap()).collect();
        let own: Vec<_> = (0..4).map(|_| slots.take(None).unwrap()).collect();
        assert_eq!(slots.take(None).unwrap_err(), "requests");
        drop((held, others, own));
        assert!(slots.take(one).is_ok());
        assert!(slots.taken.lock().by_address.is_empty());
    }
}
