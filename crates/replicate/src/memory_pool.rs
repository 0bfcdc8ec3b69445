//! A memory pool: bytes kept for clients, all together and for each address.
//!
//! In:    a client's address, and how many bytes are kept for it.
//! Out:   a reservation, given back when it is dropped.
//! Never: more than `bytes_max` reserved at once; more than a quarter of it by one
//!        address, so that nobody uses up what others need.
//!
//! What the pool does when it is full depends on who can make room. Of answers
//! that wait for their readers, and of connections that wait for messages, the
//! oldest one of the address that has most is closed. A reader who reads has
//! nothing old there. The body of a request cannot be closed for another one: a
//! further one is refused ([`Reservation::try_grow`]), and can be sent again.
//!
//! A connection that is closed for others counts as freed at once. It ends a
//! moment later, so memory may pass the limit for that long.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use metrics::{Counter, Gauge};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// One address has at most this part of a pool.
const SHARE: usize = 4;

/// Bytes kept for clients.
pub struct MemoryPool {
    bytes_max: usize,
    state: Mutex<State>,
    /// What is reserved.
    gauge: Gauge,
    /// How often somebody was closed or refused.
    limited: Counter,
}

#[derive(Default)]
struct State {
    next_id: u64,
    bytes: usize,
    /// `None`: this machine itself, which has no share that could be used up.
    addresses: HashMap<Option<IpAddr>, Address>,
}

/// What one address has.
#[derive(Default)]
struct Address {
    bytes: usize,
    /// By age.
    reservations: BTreeMap<u64, Reserved>,
}

struct Reserved {
    bytes: usize,
    /// Set off to close what it is for; `None` where that cannot be closed.
    closing: Option<Arc<Notify>>,
}

/// Bytes of a pool.
pub struct Reservation {
    pool: Arc<MemoryPool>,
    id: u64,
    address: Option<IpAddr>,
}

impl MemoryPool {
    /// An empty pool, which shows in `gauge` what is reserved, and in `limited` how often
    /// somebody was closed or refused.
    #[must_use]
    pub fn new(bytes_max: usize, gauge: Gauge, limited: Counter) -> Arc<Self> {
        gauge.set(0.0);
        Arc::new(Self {
            bytes_max,
            state: Mutex::default(),
            gauge,
            limited,
        })
    }

    /// Reserves bytes for what may be closed, and closes others where they do not fit. What is larger
    /// than a share counts as a share: it must not wait for ever.
    pub fn take(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        bytes: usize,
        closing: Arc<Notify>,
    ) -> Reservation {
        let bytes = bytes.min(self.share());
        let mut state = self.state.lock();
        self.make_room(&mut state, address, bytes);
        let id = state.add(address, bytes, Some(closing));
        self.gauge.set(state.bytes as f64);
        drop(state);
        self.reservation(id, address)
    }

    /// A reservation of nothing, which grows with what arrives. It is closed for others where it
    /// can be.
    pub fn open(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        closing: Option<Arc<Notify>>,
    ) -> Reservation {
        let id = self.state.lock().add(address, 0, closing);
        self.reservation(id, address)
    }

    /// Closes others until so many bytes fit; whether they do.
    fn make_room(&self, state: &mut State, address: Option<IpAddr>, bytes: usize) -> bool {
        loop {
            let has_share = address.is_some() && state.of(address) + bytes > self.share();
            let is_full = state.bytes + bytes > self.bytes_max;
            let greediest = match (has_share, is_full) {
                (true, _) => address,
                (false, true) => state.most(),
                (false, false) => return true,
            };
            if !state.close(greediest) {
                return false;
            }
            self.limited.increment(1);
        }
    }

    fn reservation(self: &Arc<Self>, id: u64, address: Option<IpAddr>) -> Reservation {
        Reservation {
            pool: Arc::clone(self),
            id,
            address,
        }
    }

    /// What one address may have.
    fn share(&self) -> usize {
        self.bytes_max.div_ceil(SHARE)
    }
}

impl Reservation {
    /// Reserves more; false where that does not fit, or where it was closed for others.
    #[must_use]
    pub fn try_grow(&self, bytes: usize) -> bool {
        let pool = &self.pool;
        let mut state = pool.state.lock();
        if !pool.make_room(&mut state, self.address, bytes) {
            pool.limited.increment(1);
            return false;
        }
        let Some(held) = state.addresses.get_mut(&self.address) else {
            return false;
        };
        let Some(own) = held.reservations.get_mut(&self.id) else {
            return false;
        };
        own.bytes += bytes;
        held.bytes += bytes;
        state.bytes += bytes;
        pool.gauge.set(state.bytes as f64);
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.remove(self.address, self.id);
        self.pool.gauge.set(state.bytes as f64);
    }
}

impl State {
    fn of(&self, address: Option<IpAddr>) -> usize {
        self.addresses.get(&address).map_or(0, |held| held.bytes)
    }

    fn add(&mut self, address: Option<IpAddr>, bytes: usize, closing: Option<Arc<Notify>>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.bytes += bytes;
        let held = self.addresses.entry(address).or_default();
        held.bytes += bytes;
        held.reservations.insert(id, Reserved { bytes, closing });
        id
    }

    fn remove(&mut self, address: Option<IpAddr>, id: u64) -> Option<Reserved> {
        let held = self.addresses.get_mut(&address)?;
        let removed = held.reservations.remove(&id)?;
        held.bytes -= removed.bytes;
        self.bytes -= removed.bytes;
        if held.reservations.is_empty() {
            self.addresses.remove(&address);
        }
        Some(removed)
    }

    /// The address that has most, among those of which something can be closed.
    fn most(&self) -> Option<IpAddr> {
        let can_close = |held: &Address| {
            let mut reservations = held.reservations.values();
            reservations.any(|one| one.closing.is_some())
        };
        let held = self.addresses.iter().filter(|(_, held)| can_close(held));
        let most = held.max_by_key(|(_, held)| held.bytes);
        most.and_then(|(address, _)| *address)
    }

    /// Closes the oldest of an address that can be closed; whether there was one.
    fn close(&mut self, address: Option<IpAddr>) -> bool {
        let held = self.addresses.get(&address);
        let mut reservations = held.into_iter().flat_map(|held| &held.reservations);
        let oldest = reservations.find(|(_, one)| one.closing.is_some());
        let oldest = oldest.map(|(id, _)| *id);
        let closed = oldest.and_then(|id| self.remove(address, id));
        let Some(closing) = closed.and_then(|closed| closed.closing) else {
            return false;
        };
        closing.notify_one();
        true
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryPool of {} bytes", self.bytes_max)
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation {} of {:?}", self.id, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const ONE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    const TWO: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    fn pool(bytes_max: usize) -> Arc<MemoryPool> {
        MemoryPool::new(bytes_max, Gauge::noop(), Counter::noop())
    }

    fn take(
        pool: &Arc<MemoryPool>,
        address: Option<IpAddr>,
        bytes: usize,
    ) -> (Reservation, Arc<Notify>) {
        let closing = Arc::new(Notify::new());
        (pool.take(address, bytes, Arc::clone(&closing)), closing)
    }

    fn is_closed(taken: &(Reservation, Arc<Notify>)) -> bool {
        taken.1.notified().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_of_the_address_that_has_most_is_closed_for_others() {
        let pool = pool(100);
        let other = take(&pool, ONE, 20);
        let here: Vec<_> = (0..4).map(|_| take(&pool, None, 20)).collect();
        let next = take(&pool, TWO, 20);
        let closed: Vec<bool> = here.iter().map(is_closed).collect();
        assert_eq!(closed, [true, false, false, false]);
        assert!(!is_closed(&other) && !is_closed(&next));
        assert_eq!(pool.state.lock().bytes, 100);
        drop((other, here, next));
        let state = pool.state.lock();
        assert_eq!((state.bytes, state.addresses.len()), (0, 0));
    }

    #[test]
    fn one_address_closes_its_own_where_it_has_its_share() {
        let pool = pool(100);
        let own: Vec<_> = (0..3).map(|_| take(&pool, ONE, 10)).collect();
        let closed: Vec<bool> = own.iter().map(is_closed).collect();
        assert_eq!(closed, [true, false, false]);
        let large = take(&pool, TWO, 1000);
        assert_eq!(pool.state.lock().bytes, 20 + 25, "it counts as a share");
        assert!(!is_closed(&large));
    }

    #[test]
    fn what_arrives_closes_connections_that_wait_and_the_closed_one_does_not_grow() {
        let pool = pool(100);
        let (idle, busy) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let first = pool.open(None, Some(Arc::clone(&idle)));
        let second = pool.open(TWO, Some(Arc::clone(&busy)));
        assert!(first.try_grow(90) && second.try_grow(20));
        assert!(idle.notified().now_or_never().is_some());
        assert!(!first.try_grow(1), "it is closed");
        assert!(!second.try_grow(20), "it is itself the greediest");
        assert!(busy.notified().now_or_never().is_some());
        drop((first, second));
        assert_eq!(pool.state.lock().bytes, 0);
    }

    #[test]
    fn what_arrives_is_refused_where_it_does_not_fit() {
        let pool = pool(100);
        let open = |address| pool.open(address, None);
        let (one, two, here) = (open(ONE), open(TWO), open(None));
        assert!(one.try_grow(20) && !one.try_grow(20) && one.try_grow(5));
        assert!(two.try_grow(20), "another has a share of its own");
        assert!(here.try_grow(50) && !here.try_grow(20));
        drop(one);
        assert!(here.try_grow(20));
        drop((two, here));
        assert_eq!(pool.state.lock().bytes, 0);
    }
}
