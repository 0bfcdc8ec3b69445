//! Permits: who may use the store next.
//!
//! In:    clients that want to read, each known by its address or account.
//! Out:   one permit each, in the end; or a refusal, at once.
//! Never: more permits out than there are; more than its share to one client;
//!        more of one client waiting than `waiting_max`; a client that has
//!        used much before one that has used little.
//!
//! Of one client the first to come is the first to go. Between clients the one
//! that has used the fewest steps lately goes first, so one that asks for cheap
//! pages does not wait for all that others want: it waits for one read to end.
//! Clients that have used very much may not hold the last permit, even
//! together. This machine itself (or a proxy that names no client) has no share
//! that could be used up.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use metrics::{Gauge, counter, gauge};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::Micros;
use crate::metrics as names;

/// Steps after which a client counts as greedy, until they are forgotten.
const GREEDY_STEPS: u64 = 10_000_000;
/// What was used counts half after this long.
const HALF_US: Micros = 10_000_000;
/// Clients remembered for what they used.
const CLIENTS_MAX: usize = 10_000;

/// Who asks, as far as shares are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// This machine, or somebody behind a proxy that does not say who.
    Local,
    Address(IpAddr),
    /// An account whose address is not known.
    Account(u64),
}

/// Permits, who holds them and who waits for one.
#[derive(Debug)]
pub(super) struct Permits {
    /// The label of its metrics.
    name: &'static str,
    permits: usize,
    waiting_max: usize,
    state: Mutex<State>,
    depth: Gauge,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
    next_ticket: u64,
    /// Those that hold a permit or wait for one.
    clients: HashMap<Client, Account>,
    /// What others used, and when that was counted.
    used: HashMap<Client, (u64, Micros)>,
}

/// What is known of one client.
#[derive(Debug, Default)]
struct Account {
    running: usize,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    used: u64,
    used_us: Micros,
}

impl Account {
    /// Steps used lately.
    fn used(&self, now_us: Micros) -> u64 {
        lately((self.used, self.used_us), now_us)
    }
}

/// What is left of steps that were used some time ago.
fn lately((used, used_us): (u64, Micros), now_us: Micros) -> u64 {
    let halvings = (now_us - used_us).max(0) / HALF_US;
    used.checked_shr(halvings.min(64) as u32).unwrap_or(0)
}

/// As many of one client wait as may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crowded;

/// Leave to use the store; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Arc<Permits>,
    client: Client,
    /// What it was used for, reported before it is given back.
    steps: u64,
    now_us: Micros,
}

impl Permit {
    /// Reports what it was used for.
    pub(super) fn used(&mut self, steps: u64, now_us: Micros) {
        self.steps += steps;
        self.now_us = now_us;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.release(&self.client, self.steps, self.now_us);
    }
}

/// One who waits; whoever goes away meanwhile leaves no trace.
struct Waiting {
    permits: Arc<Permits>,
    client: Client,
    ticket: u64,
    now_us: Micros,
    granted: oneshot::Receiver<()>,
    taken: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.permits.state.lock();
        if let Some(account) = state.clients.get_mut(&self.client) {
            let queue = &mut account.waiting;
            if let Some(at) = queue.iter().position(|(ticket, _)| *ticket == self.ticket) {
                queue.remove(at);
                state.waiting -= 1;
                state.rest(&self.client);
                return;
            }
        }
        drop(state);
        // It was granted after its waiter had left.
        self.permits.release(&self.client, 0, self.now_us);
    }
}

impl Permits {
    pub(super) fn new(name: &'static str, permits: usize, waiting_max: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            permits: permits.max(1),
            waiting_max,
            state: Mutex::default(),
            depth: gauge!(names::STORE_WAITING, "for" => name),
        })
    }

    /// Waits for a permit; refused at once if as many of this client wait as may.
    pub(super) async fn enter(
        self: &Arc<Self>,
        client: Client,
        now_us: Micros,
    ) -> Result<Permit, Crowded> {
        let mut waiting = self.queue(client, now_us)?;
        // The sender is dropped only with the queue, and that with `self`.
        drop((&mut waiting.granted).await);
        waiting.taken = true;
        Ok(Permit {
            permits: Arc::clone(self),
            client: waiting.client.clone(),
            steps: 0,
            now_us,
        })
    }

    fn queue(self: &Arc<Self>, client: Client, now_us: Micros) -> Result<Waiting, Crowded> {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        let account = state.account(&client);
        if client != Client::Local && account.waiting.len() >= self.waiting_max {
            drop(state);
            counter!(names::LIMITED, "by" => self.name).increment(1);
            return Err(Crowded);
        }
        account.waiting.push_back((ticket, grant));
        state.next_ticket += 1;
        state.waiting += 1;
        self.grant(&mut state, now_us);
        drop(state);
        Ok(Waiting {
            permits: Arc::clone(self),
            client,
            ticket,
            now_us,
            granted,
            taken: false,
        })
    }

    fn release(&self, client: &Client, steps: u64, now_us: Micros) {
        let mut state = self.state.lock();
        state.running -= 1;
        if let Some(account) = state.clients.get_mut(client) {
            account.running -= 1;
            account.used = account.used(now_us).saturating_add(steps);
            account.used_us = now_us.max(account.used_us);
        }
        state.rest(client);
        self.grant(&mut state, now_us);
    }

    /// How many permits one client may hold.
    fn share(&self, client: &Client) -> usize {
        match client {
            Client::Local => self.permits,
            Client::Address(_) | Client::Account(_) => self.permits.div_ceil(2),
        }
    }

    /// Hands out free permits, each to the client that has used least.
    fn grant(&self, state: &mut State, now_us: Micros) {
        while state.running < self.permits {
            let Some(client) = self.next(state, now_us) else {
                break;
            };
            let Some(account) = state.clients.get_mut(&client) else {
                break;
            };
            let Some((_, grant)) = account.waiting.pop_front() else {
                break;
            };
            state.waiting -= 1;
            account.running += 1;
            state.running += 1;
            // One that does not wait any more gives it back; see `Waiting`.
            grant.send(()).unwrap_or_default();
        }
        self.depth.set(state.waiting as f64);
    }

    /// The client that is served next.
    fn next(&self, state: &State, now_us: Micros) -> Option<Client> {
        let greedy = |client: &Client, account: &Account| {
            *client != Client::Local && account.used(now_us) >= GREEDY_STEPS
        };
        let held: usize = state
            .clients
            .iter()
            .filter(|(client, account)| greedy(client, account))
            .map(|(_, account)| account.running)
            .sum();
        let reserved = self.permits > 1 && held + 1 >= self.permits;
        state
            .clients
            .iter()
            .filter(|(client, account)| {
                account.running < self.share(client) && !(reserved && greedy(client, account))
            })
            .filter_map(|(client, account)| {
                let (ticket, _) = account.waiting.front()?;
                let used = match client {
                    Client::Local => 0,
                    _ => account.used(now_us),
                };
                // Small differences do not matter: who came first goes first.
                Some((used / GREEDY_STEPS.div_ceil(100), *ticket, client))
            })
            .min_by_key(|(used, ticket, _)| (*used, *ticket))
            .map(|(_, _, client)| client.clone())
    }
}

impl State {
    /// The account of a client that comes, with what it used before.
    fn account(&mut self, client: &Client) -> &mut Account {
        self.clients.entry(client.clone()).or_insert_with(|| {
            let (used, used_us) = self.used.remove(client).unwrap_or_default();
            Account {
                used,
                used_us,
                ..Account::default()
            }
        })
    }

    /// Puts a client aside that holds nothing and waits for nothing.
    fn rest(&mut self, client: &Client) {
        let is_idle = |account: &Account| account.running == 0 && account.waiting.is_empty();
        if !self.clients.get(client).is_some_and(is_idle) {
            return;
        }
        let Some(account) = self.clients.remove(client) else {
            return;
        };
        if account.used == 0 || *client == Client::Local {
            return;
        }
        if self.used.len() >= CLIENTS_MAX {
            let now_us = account.used_us;
            self.used
                .retain(|_, used| lately(*used, now_us) >= GREEDY_STEPS);
        }
        if self.used.len() < CLIENTS_MAX {
            self.used
                .insert(client.clone(), (account.used, account.used_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::Address(IpAddr::from([10, 0, 0, last]))
    }

    /// Queues without waiting; whether it was granted at once.
    fn queue(permits: &Arc<Permits>, who: u8) -> (Waiting, bool) {
        let mut waiting = permits.queue(client(who), 0).unwrap();
        let granted = waiting.granted.try_recv().is_ok();
        (waiting, granted)
    }

    /// Ends what was granted, having used some steps.
    fn end(mut waiting: Waiting, steps: u64) {
        waiting.taken = true;
        waiting.permits.release(&waiting.client, steps, 0);
    }

    #[test]
    fn one_client_holds_no_more_than_half_and_others_go_past_its_queue() {
        let permits = Permits::new("reads", 4, 8);
        let greedy: Vec<_> = (0..8).map(|_| queue(&permits, 1)).collect();
        assert_eq!(greedy.iter().filter(|(_, granted)| *granted).count(), 2);
        let (_one, one) = queue(&permits, 2);
        let (_two, two) = queue(&permits, 3);
        assert!(one && two, "their shares are free");
        let (mut late, granted) = queue(&permits, 4);
        assert!(!granted, "all four are out");
        // The queue of the first client began earlier, but it holds its share.
        let mut greedy = greedy.into_iter();
        end(greedy.next().unwrap().0, 100_000);
        assert!(late.granted.try_recv().is_ok());
    }

    #[test]
    fn more_than_may_wait_are_refused_at_once() {
        let permits = Permits::new("reads", 2, 3);
        let held: Vec<_> = (0..4).map(|_| queue(&permits, 1)).collect();
        assert!(permits.queue(client(1), 0).is_err());
        assert!(permits.queue(client(2), 0).is_ok(), "another is not");
        drop(held);
        assert!(permits.queue(client(1), 0).is_ok());
        let state = permits.state.lock();
        assert_eq!((state.running, state.waiting), (0, 0));
    }

    #[test]
    fn those_who_used_much_do_not_get_the_last_permit() {
        let permits = Permits::new("reads", 2, 8);
        for who in 1..=3 {
            end(queue(&permits, who).0, GREEDY_STEPS);
        }
        let (first, granted) = queue(&permits, 1);
        assert!(granted);
        let (second, granted) = queue(&permits, 2);
        assert!(!granted, "the last is kept for others");
        let (cheap, granted) = queue(&permits, 9);
        assert!(granted);
        drop((first, second, cheap));
        // After a while it is forgotten.
        let later = permits.queue(client(2), 100 * HALF_US).unwrap();
        let mut other = permits.queue(client(3), 100 * HALF_US).unwrap();
        assert!(other.granted.try_recv().is_ok());
        drop((later, other));
        assert_eq!(permits.state.lock().running, 0);
    }

    #[test]
    fn who_leaves_while_waiting_leaves_nothing_behind() {
        let permits = Permits::new("reads", 1, 8);
        let (held, _) = queue(&permits, 1);
        let (waits, _) = queue(&permits, 2);
        let (mut last, _) = queue(&permits, 3);
        drop(waits);
        end(held, 0);
        assert!(last.granted.try_recv().is_ok());
        drop(last); // it was granted, and nobody took it
        assert_eq!(permits.state.lock().running, 0);
    }

    #[test]
    fn many_clients_do_not_make_it_remember_more_than_it_may() {
        let permits = Permits::new("reads", 1, 8);
        for n in 0..CLIENTS_MAX as u32 * 2 {
            let address = IpAddr::from((n + (10 << 24)).to_be_bytes());
            end(
                permits.queue(Client::Address(address), 0).unwrap(),
                GREEDY_STEPS,
            );
        }
        let state = permits.state.lock();
        assert_eq!((state.clients.len(), state.used.len()), (0, CLIENTS_MAX));
    }
}
