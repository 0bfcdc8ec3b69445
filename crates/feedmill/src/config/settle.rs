//! `[settle]`: parked records, dead letters, and when somebody is told.

use serde::{Deserialize, Serialize};

use super::Config;
use super::fault::Found;

/// Where a record or a frame can stop: the stages of dead letters.
pub const STAGES: [&str; 9] = [
    "frame",
    "crash",
    "decode",
    "verify",
    "size",
    "lexicon",
    "rule",
    "dependency",
    "retryable",
];

/// What happens to records that cannot go on.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settle {
    /// Records parked at once; one more and the oldest is buried.
    pub parked_max: usize,
    /// Bytes of parked records; beyond them the oldest are dead letters.
    pub parked_bytes_max: u64,
    /// Days that a dead letter is kept; 0 keeps it until something else closes it.
    pub dead_days: u32,
    /// Bytes of dead letters kept; beyond them the oldest are forgotten.
    pub dead_bytes_max: u64,
    /// Dead letters above which an alert is raised; 0 raises none.
    pub dead_alert: u64,
    /// Further thresholds, each for some dead letters.
    pub alert: Vec<Threshold>,
    /// Where alerts are posted as JSON; only logged and measured where empty.
    pub alert_url: String,
    /// Seconds before the same alert is raised again.
    pub alert_pause_s: u64,
}

/// When an alert is raised for dead letters of a stage, of a collection, or of both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Threshold {
    /// Only those that stopped here.
    pub stage: Option<String>,
    /// Only those of this collection, by its NSID.
    pub collection: Option<String>,
    /// More of them than this are kept.
    pub above: Option<u64>,
    /// More of them than this were refused within an hour.
    pub per_hour: Option<u64>,
}

impl Default for Settle {
    fn default() -> Self {
        Self {
            parked_max: 100_000,
            parked_bytes_max: 256 << 20,
            dead_days: 90,
            dead_bytes_max: 256 << 20,
            dead_alert: 100,
            alert: Vec::new(),
            alert_url: String::new(),
            alert_pause_s: 3600,
        }
    }
}

impl Settle {
    pub(super) fn faults(&self, config: &Config, found: &mut Found) {
        let url = &self.alert_url;
        let web = url.starts_with("http://") || url.starts_with("https://");
        found.unless(url.is_empty() || web, "settle.alert_url", || {
            format!("{url:?} is not an http or https address")
        });
        found.unless(self.parked_max > 0, "settle.parked_max", || {
            "must be at least 1".into()
        });
        found.unless(self.parked_bytes_max > 0, "settle.parked_bytes_max", || {
            "must be at least 1".into()
        });
        found.unless(self.dead_bytes_max > 0, "settle.dead_bytes_max", || {
            "must be at least 1".into()
        });
        for (index, threshold) in self.alert.iter().enumerate() {
            if let Some((key, problem)) = threshold.fault(config) {
                found.add(format!("settle.alert.{index}{key}"), problem);
            }
        }
    }
}

impl Threshold {
    fn fault(&self, config: &Config) -> Option<(&'static str, String)> {
        if self.above.is_none() && self.per_hour.is_none() {
            let problem = "says no number: set above, per_hour or both";
            return Some(("", problem.into()));
        }
        if let Some(stage) = &self.stage
            && !STAGES.contains(&stage.as_str())
        {
            let problem = format!("{stage:?} is not one of {}", STAGES.join(", "));
            return Some((".stage", problem));
        }
        let nsid = self.collection.as_deref()?;
        (config.nsid(nsid) != Some(nsid)).then(|| {
            let problem = format!("{nsid:?} is not the NSID of a collection that is kept");
            (".collection", problem)
        })
    }
}
