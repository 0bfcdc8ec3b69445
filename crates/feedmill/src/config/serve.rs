//! `[serve]`: the HTTP server, its limits, and who may ask for what.

use serde::{Deserialize, Serialize};

use super::fault::Found;
use super::method;
use super::network::Network;

/// The HTTP server.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Serve {
    /// Address to listen on.
    pub bind: String,
    /// Where clients reach us, if that is another address.
    pub public_url: Option<String>,
    /// Who we are; `did:web` of `public_url`'s host unless set.
    pub service_did: Option<String>,
    /// Memory for records as they are shown; 0 reads each from the store.
    pub cache_mib: usize,
    /// Requests answered at once.
    pub requests_max: usize,
    /// Requests of one client that wait for the store; further ones are refused.
    pub reads_waiting_max: usize,
    /// Records of one answer, in bytes; a page ends there, with a cursor.
    pub response_bytes_max: usize,
    /// Connections open at once; for one more, an idle one of the address that has most is closed.
    pub connections_max: usize,
    /// Connections of one address; this machine itself is not limited.
    pub address_connections_max: usize,
    /// Largest request body, in bytes.
    pub body_bytes_max: usize,
    /// Bytes of all bodies that arrive or are being answered; one more is refused.
    pub uploads_bytes_max: usize,
    /// Largest request line and headers, in bytes.
    pub header_bytes_max: usize,
    /// Seconds that headers may take to arrive, and that a connection may be idle.
    pub header_s: u64,
    /// Seconds that a client may leave our bytes unread before its connection is closed.
    pub stall_s: u64,
    /// Bytes that a client must read in a second, on average, while any wait for it.
    pub read_bytes_per_s_min: u64,
    /// Bytes of answers that wait for their readers; above it the oldest of the address that has most is closed.
    pub unsent_bytes_max: usize,
    /// Seconds a request may take.
    pub timeout_s: u64,
    /// How long the first page of a reader of whom nothing is here waits for its repository.
    pub first_read_ms: u64,
    /// Readers whose repositories are waited for; 0: nobody's is fetched because it reads.
    pub first_reads_max: usize,
    /// Readers whose repositories are fetched in a minute because somebody asks from elsewhere without showing
    /// who he is, for all such callers together; 0: none.
    pub anonymous_reads_max: u32,
    /// Readers who listen to their feeds at once.
    pub listeners_max: usize,
    /// Messages that wait for one of them; one more and it is let go.
    pub listener_events_max: usize,
    /// Bytes that wait for one of them, the message being sent included.
    pub listener_bytes_max: usize,
    /// Bytes that wait for all of them; above it the slowest are let go.
    pub listeners_bytes_max: usize,
    /// Requests of one address within `rate_s` seconds; 0: any number. This machine itself is not limited.
    pub rate_max: u32,
    /// Requests of one account within `rate_s` seconds; 0: any number.
    pub account_rate_max: u32,
    /// Seconds after which counting begins anew.
    pub rate_s: u32,
    /// The header in which a proxy before us names the client's address, last.
    pub proxy_header: Option<String>,
    /// Addresses and networks of proxies that may stand between that proxy and the client.
    pub proxies: Vec<String>,
    /// Names beside `localhost` and `public_url`'s that are answered on a loopback address.
    pub hosts: Vec<String>,
    /// Who may say that records were written: `off` (nobody), `open`, or `token`.
    pub notify: Notify,
    /// Methods that need a service-auth token, e.g. `getFeed` or `post.listRecords`.
    pub private: Vec<String>,
}

/// Who may call `notifyOfUpdate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Notify {
    /// The method is not served.
    Off,
    /// Anybody, within the rate limits.
    Open,
    /// Who shows `FEEDMILL_NOTIFY_TOKEN`.
    Token,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:8080".into(),
            public_url: None,
            service_did: None,
            cache_mib: 64,
            requests_max: 1024,
            reads_waiting_max: 64,
            response_bytes_max: 2_000_000,
            connections_max: 10_000,
            address_connections_max: 1_000,
            body_bytes_max: 1_000_000,
            uploads_bytes_max: 128_000_000,
            header_bytes_max: 32_768,
            header_s: 30,
            stall_s: 30,
            read_bytes_per_s_min: 8_000,
            unsent_bytes_max: 64_000_000,
            timeout_s: 30,
            first_read_ms: 2000,
            first_reads_max: 1000,
            anonymous_reads_max: 30,
            listeners_max: 10_000,
            listener_events_max: 1000,
            listener_bytes_max: 4_000_000,
            listeners_bytes_max: 64_000_000,
            rate_max: 3000,
            account_rate_max: 3000,
            rate_s: 300,
            proxy_header: None,
            proxies: Vec::new(),
            hosts: Vec::new(),
            notify: Notify::Off,
            private: Vec::new(),
        }
    }
}

/// Fewest bytes that the HTTP stack reads headers into.
const HEADER_BYTES_MIN: usize = 8192;

impl Serve {
    pub(super) fn faults(&self, found: &mut Found) {
        let is_address = self.bind.parse::<std::net::SocketAddr>().is_ok();
        found.unless(is_address, "serve.bind", || {
            let example = "is not an address and port such as \"127.0.0.1:8080\"";
            format!("{:?} {example}", self.bind)
        });
        if let Some(did) = &self.service_did {
            found.unless(record::ids::Did::is_valid(did), "serve.service_did", || {
                format!("{did:?} is not a DID")
            });
        }
        if let Some(url) = &self.public_url {
            let web = url.starts_with("https://") || url.starts_with("http://");
            found.unless(web, "serve.public_url", || {
                format!("{url:?} is not an http or https address")
            });
        }
        if let Some(name) = &self.proxy_header {
            let is_name = axum::http::HeaderName::try_from(name.as_str()).is_ok();
            found.unless(is_name, "serve.proxy_header", || {
                format!("{name:?} is not the name of a header")
            });
        }
        for text in &self.proxies {
            found.unless(Network::parse(text).is_some(), "serve.proxies", || {
                format!("{text:?} is not an address or a network such as \"10.0.0.0/8\"")
            });
        }
        let enough = self.header_bytes_max >= HEADER_BYTES_MIN;
        found.unless(enough, "serve.header_bytes_max", || {
            format!("must be at least {HEADER_BYTES_MIN}")
        });
        let zero = [
            ("requests_max", self.requests_max as u64),
            ("reads_waiting_max", self.reads_waiting_max as u64),
            ("response_bytes_max", self.response_bytes_max as u64),
            ("connections_max", self.connections_max as u64),
            (
                "address_connections_max",
                self.address_connections_max as u64,
            ),
            ("header_s", self.header_s),
            ("stall_s", self.stall_s),
            ("read_bytes_per_s_min", self.read_bytes_per_s_min),
            ("uploads_bytes_max", self.uploads_bytes_max as u64),
            ("unsent_bytes_max", self.unsent_bytes_max as u64),
            ("timeout_s", self.timeout_s),
            ("listener_events_max", self.listener_events_max as u64),
            ("listener_bytes_max", self.listener_bytes_max as u64),
            ("listeners_bytes_max", self.listeners_bytes_max as u64),
            ("rate_s", u64::from(self.rate_s)),
        ];
        for (key, value) in zero {
            found.unless(value > 0, format!("serve.{key}"), || {
                "must be at least 1".into()
            });
        }
    }

    /// Private methods that nothing is called, or that nobody could have a token for.
    pub(super) fn private_faults(&self, config: &super::Config, found: &mut Found) {
        let known = |name: &str| {
            method::ALL.iter().any(|ours| ours.name() == name)
                || name.split_once('.').is_some_and(|(short, named)| {
                    let collection = config.collections.get(short);
                    collection.is_some_and(|it| it.methods.iter().any(|one| one.name() == named))
                })
        };
        for name in &self.private {
            found.unless(known(name), "serve.private", || {
                format!("{name:?} is not a method such as \"getFeed\" or \"post.listRecords\"")
            });
        }
        let named = self.private.is_empty() || config.service_did().is_some();
        found.unless(named, "serve.private", || {
            "tokens must be for somebody: set serve.public_url or serve.service_did".into()
        });
    }
}
