//! Charges: what a request costs beyond asking, and who pays for it.
//!
//! In:    the engine's steps, bytes answered, signatures checked.
//! Out:   the same in steps, taken from the shares of the caller's address and account.
//! Never: work that is not counted because its caller went away; a remainder that is forgotten:
//!        many small costs are as dear as one large one.
//!
//! A step of the engine is the unit. What else costs the processor is measured against it: 16 bytes
//! made and sent take about as long, a byte packed too, and a signature as long as ten thousand.

use super::Server;
use super::caller::Caller;
use super::rate::Asker;

/// Bytes that cost a step to make and to send.
const BYTES_PER_STEP: u64 = 16;
/// So many times as much where they are packed.
const PACKED_FACTOR: u64 = 16;
/// What it costs to hold a token against a key.
pub(super) const SIGNATURE_STEPS: u64 = 10_000;

/// What an answer of so many bytes costs, in steps.
pub(super) fn answered(bytes: u64, is_packed: bool) -> u64 {
    bytes / BYTES_PER_STEP * if is_packed { PACKED_FACTOR } else { 1 }
}

/// What a request costs beside reads of the store; taken from its caller's shares when it is over, or left.
#[derive(Debug)]
pub(super) struct Bill<'a> {
    server: &'a Server,
    caller: &'a Caller,
}

impl<'a> Bill<'a> {
    pub(super) fn of(server: &'a Server, caller: &'a Caller) -> Self {
        Self { server, caller }
    }
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        self.server.charge(self.caller, self.caller.spent());
    }
}

impl Server {
    /// Takes what some work cost from the shares of a caller.
    pub(super) fn charge(&self, caller: &Caller, steps: u64) {
        let now_s = self.clock.now_us() / 1_000_000;
        for asker in askers(caller) {
            self.rates.charge(asker, steps, now_s);
        }
    }
}

fn askers(caller: &Caller) -> impl Iterator<Item = Asker> {
    let address = caller.address.map(Asker::Address);
    let account = caller.account().map(|did| Asker::Account(did.to_owned()));
    address.into_iter().chain(account)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::status::Status;
    use crate::store;

    const TEXT: &str = "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
        [serve]\nrate_max = 4\nrate_s = 3600\n";

    #[tokio::test]
    async fn a_hundred_signatures_cost_one_more_request_also_of_one_who_leaves() {
        let config = Config::parse(TEXT).unwrap();
        let store = store::open(&config).unwrap();
        let (plan, status) = (Arc::clone(store.plan()), Arc::new(Status::default()));
        let server = Server::new(&config, plan, store, None, status, Clock::Wall);
        let address = IpAddr::from([10, 0, 0, 1]);
        let timeout = Duration::from_secs(600);
        for _ in 0..100 {
            let caller = Arc::new(Caller::new(Some(address), false, timeout));
            let bill = Bill::of(&server, &caller);
            let checking = Arc::clone(&caller).scope(async {
                Caller::cost(SIGNATURE_STEPS);
                std::future::pending::<()>().await;
            });
            let mut checking = Box::pin(checking);
            assert!((&mut checking).now_or_never().is_none());
            drop((checking, bill));
        }
        let now_s = server.clock.now_us() / 1_000_000;
        let take = || server.rates.take(Asker::Address(address), 1, now_s).is_ok();
        assert_eq!([take(), take(), take(), take()], [true, true, true, false]);
    }
}
