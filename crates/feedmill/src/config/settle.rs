//! `[settle]`: parked records, dead letters, and when somebody is told.

use serde::{Deserialize, Serialize};

/// What happens to records that cannot go on.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settle {
    /// Records parked at once; one more and the oldest is buried.
    pub parked_max: usize,
    /// Dead letters above which an alert is raised; 0 raises none.
    pub dead_alert: u64,
    /// Where alerts are posted as JSON; only logged and measured where empty.
    pub alert_url: String,
    /// Seconds before the same alert is raised again.
    pub alert_pause_s: u64,
}

impl Default for Settle {
    fn default() -> Self {
        Self {
            parked_max: 100_000,
            dead_alert: 100,
            alert_url: String::new(),
            alert_pause_s: 3600,
        }
    }
}

impl Settle {
    pub(super) fn fault(&self) -> Option<(String, String)> {
        let web = self.alert_url.starts_with("http://") || self.alert_url.starts_with("https://");
        if !self.alert_url.is_empty() && !web {
            return Some((
                "settle.alert_url".into(),
                format!("{:?} is not an http or https address", self.alert_url),
            ));
        }
        (self.parked_max == 0).then(|| ("settle.parked_max".into(), "must be at least 1".into()))
    }
}
