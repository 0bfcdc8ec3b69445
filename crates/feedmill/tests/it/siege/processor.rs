//! What attackers may cost the processor: what they are charged, and no more.
//!
//! Before the attack it is measured what one of each thing costs that is counted: a request, a unit that is charged (a
//! million steps), a turn of the hostile relay, a comparison of every honest page. During the attack the same things are
//! counted. Their number times their cost is what the server may use; whatever it uses beyond that is work that nobody is
//! charged for, and a fault. Units are bounded in their turn by what the rates of all addresses allow, so the whole is
//! bounded by the rates. `SLACK` allows for a cache that is colder and a store that is larger than when it was measured.

use std::sync::Arc;
use std::time::Duration;

use crate::attackers::{Field, Relay};
use crate::budgets::metric;

/// So much more than was measured may be used, in a long siege and in a short one, which measures less.
const SLACK_LONG: f64 = 3.0;
const SLACK_SHORT: f64 = 12.0;
/// Requests by which a cheap one is measured, and at most how many dear ones, charged so many units.
const CHEAP: usize = if cfg!(debug_assertions) { 300 } else { 3_000 };
const DEAR: usize = 400;
const UNITS: f64 = 3.0;
/// Turns of the relay that are measured.
const TURNS: usize = if cfg!(debug_assertions) { 14 } else { 60 };
/// Seconds that a byte may cost that is sent to us.
const BYTE_S: f64 = if cfg!(debug_assertions) { 1e-6 } else { 4e-8 };

const CHARGED: &str = "feedmill_http_charged_total";

/// Seconds of the processor that a process used.
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    let ticks = rest.split_whitespace().skip(11).take(2);
    ticks.map(|it| it.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// What one of each costs, in seconds of the processor.
#[derive(Debug)]
pub(super) struct Costs {
    request_s: f64,
    unit_s: f64,
    turn_s: f64,
    honest_s: f64,
}

impl Costs {
    /// Measures one after the other; `round` compares honest pages, and returns how often.
    pub(super) async fn measure(
        field: &Arc<Field>,
        relay: &Relay,
        pid: u32,
        mut round: impl AsyncFnMut() -> usize,
    ) -> Self {
        let begun = cpu_s(pid);
        let mut attempts = round().await;
        attempts += round().await;
        let honest_s = (cpu_s(pid) - begun) / attempts as f64;

        let begun = cpu_s(pid);
        Field::cheap(field, CHEAP).await;
        let request_s = (cpu_s(pid) - begun) / CHEAP as f64;

        let (begun, charged) = (cpu_s(pid), metric(&field.address, CHARGED).await);
        let (mut asked, mut units) = (0, 0.0);
        while units < UNITS && asked < DEAR {
            field.dear().await;
            asked += 1;
            units = metric(&field.address, CHARGED).await - charged;
        }
        assert!(units > 0.0, "nobody is charged for an expensive question");
        let unit_s = (cpu_s(pid) - begun) / units;

        let begun = cpu_s(pid);
        relay.begin();
        while relay.sent() < TURNS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // What was sent last is not worked on yet.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let turn_s = (cpu_s(pid) - begun) / TURNS as f64;
        Self {
            request_s,
            unit_s,
            turn_s,
            honest_s,
        }
    }
}

/// What was counted and used in a while.
#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    cpu_s: f64,
    requests: usize,
    bytes: usize,
    units: f64,
    turns: usize,
}

impl Counted {
    async fn now(field: &Field, relay: &Relay, pid: u32) -> Self {
        Self {
            cpu_s: cpu_s(pid),
            requests: field.count(),
            bytes: field.bytes(),
            units: metric(&field.address, CHARGED).await,
            turns: relay.sent(),
        }
    }
}

/// A while under attack.
pub(super) struct Bill<'a> {
    field: &'a Field,
    relay: &'a Relay,
    pid: u32,
    begun: Counted,
}

impl<'a> Bill<'a> {
    pub(super) async fn begin(field: &'a Field, relay: &'a Relay, pid: u32) -> Self {
        Self {
            begun: Counted::now(field, relay, pid).await,
            field,
            relay,
            pid,
        }
    }

    /// What was used in so many honest comparisons and requests of a monitor, and what for.
    pub(super) async fn end(self, costs: &Costs, honest: usize, monitored: usize) -> Paid {
        let now = Counted::now(self.field, self.relay, self.pid).await;
        let requests = now.requests - self.begun.requests + monitored;
        let bytes = now.bytes - self.begun.bytes;
        let (units, turns) = (now.units - self.begun.units, now.turns - self.begun.turns);
        let parts = [
            ("requests", requests as f64, costs.request_s),
            ("bytes sent to us", bytes as f64, BYTE_S),
            ("units charged", units, costs.unit_s),
            ("turns of the relay", turns as f64, costs.turn_s),
        ];
        Paid {
            used_s: now.cpu_s - self.begun.cpu_s,
            honest_s: honest as f64 * costs.honest_s,
            units,
            paid: parts.map(|(name, count, each_s)| (name, count, count * each_s)),
        }
    }
}

/// What was used, and what it was used for.
#[derive(Debug)]
pub(super) struct Paid {
    used_s: f64,
    honest_s: f64,
    units: f64,
    /// Name, number, seconds.
    paid: [(&'static str, f64, f64); 4],
}

impl Paid {
    /// Nobody worked for attackers without their being charged, nor charged them more than their rates allow.
    pub(super) fn check(&self, units_max: u64, is_long: bool) {
        assert!(
            self.units <= units_max as f64,
            "{self:?}: {units_max} units"
        );
        let slack = if is_long { SLACK_LONG } else { SLACK_SHORT };
        let paid_s: f64 = self.paid.iter().map(|(_, _, seconds)| seconds).sum();
        let allowed_s = slack * (paid_s + self.honest_s);
        assert!(
            self.used_s <= allowed_s,
            "{:.1} s of the processor, {allowed_s:.1} s are charged: {self:?}",
            self.used_s
        );
    }
}
