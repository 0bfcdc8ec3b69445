//! `[identity]`: how names of accounts are resolved, and what may be asked on the way.

use serde::{Deserialize, Serialize};

/// Names of accounts, and requests to hosts that others name.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// Hosts that DID documents name may be on private addresses, and without TLS. Unless set, only
    /// where the plc directory itself is on this machine: a network in a box.
    pub allow_private: Option<bool>,
    /// Handles that no stream told us of are resolved by DNS and HTTPS.
    pub handles: bool,
    /// The DNS server to ask, with its port; the system's unless set.
    pub dns_server: Option<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            allow_private: None,
            handles: true,
            dns_server: None,
        }
    }
}

impl Identity {
    pub(super) fn fault(&self) -> Option<(String, String)> {
        let server = self.dns_server.as_ref()?;
        server.parse::<std::net::SocketAddr>().is_err().then(|| {
            let problem = format!("{server:?} is not an address and port such as \"1.1.1.1:53\"");
            ("identity.dns_server".to_owned(), problem)
        })
    }
}
