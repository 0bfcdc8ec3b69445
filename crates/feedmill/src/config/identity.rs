//! `[identity]`: how names of accounts are resolved, and what may be asked on the way.

use serde::{Deserialize, Serialize};

use super::fault::Found;

/// Names of accounts, and requests to hosts that others name.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Hosts that DID documents name may be on private addresses, and without TLS. Unless set, only
    /// where the plc directory itself is on this machine: a network in a box.
    pub allow_private: Option<bool>,
    /// Handles that no stream told us of are resolved by DNS and HTTPS.
    pub handles: bool,
    /// Handles that are being resolved at once; twice as many requests wait, and more are refused.
    pub handles_max: usize,
    /// Requests a second that callers cause, over all hosts together: as many for tokens, for
    /// handles and for notified records. More are refused, or wait a moment.
    pub provoked_rate_max: u32,
    /// The DNS server to ask, with its port; the system's unless set.
    pub dns_server: Option<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            allow_private: None,
            handles: true,
            handles_max: 32,
            provoked_rate_max: 50,
            dns_server: None,
        }
    }
}

impl Identity {
    pub(super) fn faults(&self, found: &mut Found) {
        found.unless(self.handles_max > 0, "identity.handles_max", || {
            "must be at least 1; set handles = false to resolve none".into()
        });
        found.unless(
            self.provoked_rate_max > 0,
            "identity.provoked_rate_max",
            || "must be at least 1".into(),
        );
        if let Some(server) = &self.dns_server {
            let is_address = server.parse::<std::net::SocketAddr>().is_ok();
            found.unless(is_address, "identity.dns_server", || {
                format!("{server:?} is not an address and port such as \"1.1.1.1:53\"")
            });
        }
    }
}
