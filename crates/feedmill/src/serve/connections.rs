//! Open connections: how many there are, whose they are, and which are idle.
//!
//! In:    the address of a new connection.
//! Out:   a place for it; where there is none, an idle connection of the
//!        address that has most is closed for it.
//! Never: more than `connections_max`; more than `address_connections_max` of
//!        one address other than this machine; a connection closed that is
//!        being answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{counter, gauge};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics as names;

/// `Open::idle` of a connection that is being answered.
const BUSY: u64 = u64::MAX;

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    address_max: usize,
    state: Mutex<State>,
    /// Counts requests, to tell which connection has been idle for longest.
    now: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    open: HashMap<u64, Arc<Open>>,
    by_address: HashMap<IpAddr, usize>,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Open {
    id: u64,
    address: IpAddr,
    /// Since when it is idle, or [`BUSY`].
    idle: AtomicU64,
    /// Set off to close it.
    pub(super) closing: Arc<Notify>,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    pub(super) open: Arc<Open>,
}

impl Place {
    /// Something that says when it is busy and when idle.
    pub(super) fn state(&self) -> (Arc<Connections>, Arc<Open>) {
        (Arc::clone(&self.connections), Arc::clone(&self.open))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.state.lock().remove(self.open.id);
    }
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Arc<Open>> {
        let open = self.open.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&open.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&open.address);
            }
        }
        gauge!(names::HTTP_CONNECTIONS).decrement(1);
        Some(open)
    }

    fn of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    /// Closes the connection that has been idle for longest, among those of the address that has
    /// most, or of one address; whether there was one.
    fn close_idle(&mut self, only: Option<IpAddr>) -> bool {
        let idle = self.open.values().filter_map(|open| {
            let since = open.idle.load(Ordering::Relaxed);
            let wanted = only.is_none_or(|address| address == open.address);
            (wanted && since != BUSY).then_some((self.of(open.address), since, open.id))
        });
        let first = idle.max_by_key(|(count, since, _)| (*count, std::cmp::Reverse(*since)));
        let Some(open) = first.and_then(|(_, _, id)| self.remove(id)) else {
            return false;
        };
        counter!(names::LIMITED, "by" => "idle-connections").increment(1);
        open.closing.notify_one();
        true
    }
}

impl Connections {
    pub(super) fn new(max: usize, address_max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            address_max,
            state: Mutex::default(),
            now: AtomicU64::new(0),
        })
    }

    /// A place for a connection; `None` if there is none and nobody idles.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut state = self.state.lock();
        let is_ours = address.is_loopback();
        let has_most = !is_ours && state.of(address) >= self.address_max;
        let is_full = state.open.len() >= self.max;
        if (has_most && !state.close_idle(Some(address))) || (is_full && !state.close_idle(None)) {
            counter!(names::LIMITED, "by" => "connections").increment(1);
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        let open = Arc::new(Open {
            id,
            address,
            idle: AtomicU64::new(self.now.fetch_add(1, Ordering::Relaxed)),
            closing: Arc::default(),
        });
        state.open.insert(id, Arc::clone(&open));
        *state.by_address.entry(address).or_default() += 1;
        gauge!(names::HTTP_CONNECTIONS).increment(1);
        drop(state);
        Some(Place {
            connections: Arc::clone(self),
            open,
        })
    }

    /// The connection has something to answer.
    pub(super) fn busy(&self, open: &Open) {
        open.idle.store(BUSY, Ordering::Relaxed);
    }

    /// The connection has nothing to answer.
    pub(super) fn idle(&self, open: &Open) {
        let now = self.now.fetch_add(1, Ordering::Relaxed);
        open.idle.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_closed(place: &Place) -> bool {
        place.open.closing.notified().now_or_never().is_some()
    }

    #[test]
    fn the_greediest_gives_up_what_it_left_idle_for_longest() {
        let all = Connections::new(4, 100);
        let greedy: Vec<Place> = (0..3).filter_map(|_| all.admit(address(1))).collect();
        let honest = all.admit(address(2)).unwrap();
        all.busy(&greedy[0].open);
        let late = all.admit(address(3)).unwrap();
        let closed: Vec<bool> = greedy.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, false]);
        assert!(!is_closed(&honest) && !is_closed(&late));
        // What is being answered is never closed: then the next one is refused.
        for place in greedy.iter().chain([&honest, &late]) {
            all.busy(&place.open);
        }
        assert!(all.admit(address(4)).is_none());
        all.idle(&late.open);
        assert!(all.admit(address(4)).is_some() && is_closed(&late));
        drop((greedy, honest, late));
        let state = all.state.lock();
        assert_eq!((state.open.len(), state.by_address.len()), (0, 0));
    }

    #[test]
    fn one_address_has_no_more_than_its_share_but_this_machine_has() {
        let all = Connections::new(100, 2);
        let own: Vec<Place> = (0..3).filter_map(|_| all.admit(address(1))).collect();
        let closed: Vec<bool> = own.iter().map(is_closed).collect();
        assert_eq!(closed, [true, false, false]);
        let here = IpAddr::from([127, 0, 0, 1]);
        let ours: Vec<Place> = (0..9).filter_map(|_| all.admit(here)).collect();
        assert!(ours.len() == 9 && !ours.iter().any(is_closed));
    }
}
