//! Rates: how much one address and one account may ask.
//!
//! In:    who asks, and how much it costs.
//! Out:   what is left of the share, as the headers that clients know; or 429.
//! Never: more askers remembered than `ASKERS_MAX`; this machine itself limited,
//!        unless a proxy on it names the client.
//!
//! Counting is by windows of `rate_s` seconds, as the network's own servers
//! count. An asker who is forgotten because too many others came begins anew:
//! the limit bounds one client's greed, not a flood of clients.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use metrics::counter;
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::error::XrpcError;
use super::limits::Limits;
use crate::config::{self, network::Network};
use crate::digest::Digest;
use crate::metrics as names;

/// How many requests a client has, has left, when they are counted anew, and by what rule.
pub(super) const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// So many steps of work cost as much as one more request.
const STEPS_PER_REQUEST: u64 = 1_000_000;
/// Askers remembered.
const ASKERS_MAX: usize = 100_000;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Asker {
    Address(IpAddr),
    Account(String),
}

/// An asker in the table: the same size whatever its DID is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Known {
    Address(IpAddr),
    Account(Digest),
}

#[derive(Debug)]
struct Window {
    begun_s: i64,
    used: u32,
    /// Steps that do not make one more request yet.
    steps: u64,
}

/// What is left of an asker's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    limit: u32,
    remaining: u32,
    /// When counting begins anew.
    reset_s: i64,
    window_s: u32,
}

/// The address that a request is counted under, if any.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client(pub(super) Option<IpAddr>);

/// Counts.
#[derive(Debug)]
pub(super) struct Rates {
    limits: Arc<Limits>,
    proxy_header: Option<HeaderName>,
    /// Proxies between ours and the client.
    proxies: Vec<Network>,
    askers: Cache<Known, Arc<Mutex<Window>>>,
}

impl Rates {
    pub(super) fn new(settings: &config::Serve, limits: Arc<Limits>) -> Self {
        let header = settings.proxy_header.as_deref();
        Self {
            limits,
            proxy_header: header.and_then(|name| HeaderName::try_from(name).ok()),
            proxies: settings
                .proxies
                .iter()
                .filter_map(|text| Network::parse(text))
                .collect(),
            askers: Cache::new(ASKERS_MAX),
        }
    }

    /// Takes `cost` from an asker's share; the standing afterwards, or that it is used up.
    pub(super) fn take(
        &self,
        asker: Asker,
        cost: u32,
        now_s: i64,
    ) -> Result<Option<Standing>, Standing> {
        let (limit, by) = match &asker {
            Asker::Address(_) => (self.limits.rate_max(), "address"),
            Asker::Account(_) => (self.limits.account_rate_max(), "account"),
        };
        if limit == 0 {
            return Ok(None);
        }
        let window = self.window(&asker, now_s);
        let mut window = window.lock();
        let over = window.used.saturating_add(cost) > limit;
        if !over {
            window.used += cost;
        }
        let standing = Standing {
            limit,
            remaining: limit.saturating_sub(window.used),
            reset_s: window.begun_s + i64::from(self.limits.rate_s()),
            window_s: self.limits.rate_s(),
        };
        if over {
            counter!(names::LIMITED, "by" => by).increment(1);
            return Err(standing);
        }
        Ok(Some(standing))
    }

    /// Takes from an asker's share what an answer cost beside its request, even if that is more
    /// than is left.
    pub(super) fn charge(&self, asker: Asker, steps: u64, now_s: i64) {
        let limit = match &asker {
            Asker::Address(_) => self.limits.rate_max(),
            Asker::Account(_) => self.limits.account_rate_max(),
        };
        if limit == 0 || steps == 0 {
            return;
        }
        let window = self.window(&asker, now_s);
        let mut window = window.lock();
        let steps = window.steps.saturating_add(steps);
        let cost = u32::try_from(steps / STEPS_PER_REQUEST).unwrap_or(u32::MAX);
        window.steps = steps % STEPS_PER_REQUEST;
        window.used = window.used.saturating_add(cost);
        drop(window);
        counter!(names::CHARGED).increment(u64::from(cost));
    }

    /// The window of an asker, begun anew if its time is over.
    fn window(&self, asker: &Asker, now_s: i64) -> Arc<Mutex<Window>> {
        let fresh = || Window {
            begun_s: now_s,
            used: 0,
            steps: 0,
        };
        let known = match asker {
            Asker::Address(address) => Known::Address(*address),
            Asker::Account(did) => Known::Account(Digest::of(did)),
        };
        let made: Result<_, std::convert::Infallible> = self
            .askers
            .get_or_insert_with(&known, || Ok(Arc::new(Mutex::new(fresh()))));
        let Ok(window) = made;
        {
            let mut window = window.lock();
            // A clock that was set back must not lock anybody out for longer than a window.
            if !(0..i64::from(self.limits.rate_s())).contains(&(now_s - window.begun_s)) {
                *window = fresh();
            }
        }
        window
    }

    /// The address that a request is counted under; `None` for this machine itself.
    pub(super) fn address(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let is_proxy = |address| self.proxies.iter().any(|network| network.contains(address));
        let is_ours = |peer: SocketAddr| {
            let address = peer.ip().to_canonical();
            self.proxies.is_empty() || address.is_loopback() || is_proxy(address)
        };
        let header = self
            .proxy_header
            .as_ref()
            .filter(|_| peer.is_none_or(is_ours));
        let told = header.and_then(|name| {
            // The last address is the one that our own proxy saw. Where that is a proxy of ours too,
            // the one before it is what that saw; everything further left the client may have written.
            let values = headers.get_all(name).iter().rev();
            let texts = values.flat_map(|value| value.to_str().unwrap_or("").rsplit(','));
            let mut seen = None;
            for text in texts {
                let Some(address) = address_of(text.trim()) else {
                    break;
                };
                seen = Some(address);
                if !is_proxy(address) {
                    break;
                }
            }
            seen
        });
        let address = told.or_else(|| peer.map(|peer| peer.ip()))?;
        (!address.to_canonical().is_loopback()).then(|| network(address.to_canonical()))
    }
}

/// An address, perhaps with a port behind it.
fn address_of(text: &str) -> Option<IpAddr> {
    let bare = text.parse().ok();
    bare.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
}

/// One household has one IPv4 address, or a whole /64 of IPv6.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let kept = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(kept))
        }
    }
}

impl Standing {
    /// Milliseconds until counting begins anew.
    pub(super) fn wait_ms(self, now_s: i64) -> u64 {
        u64::try_from(self.reset_s - now_s).unwrap_or(0).max(1) * 1000
    }

    /// The answer to one who asked too much.
    pub(super) fn refusal(self, now_s: i64) -> Response {
        let error = XrpcError {
            status: StatusCode::TOO_MANY_REQUESTS,
            name: "RateLimitExceeded",
            message: "rate limit exceeded; Retry-After says when to come back".to_owned(),
        };
        let mut response = error.into_response();
        let wait_s = (self.reset_s - now_s).max(1);
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
        self.write(response.headers_mut());
        response
    }

    pub(super) fn write(self, headers: &mut HeaderMap) {
        headers.insert(LIMIT, HeaderValue::from(self.limit));
        headers.insert(REMAINING, HeaderValue::from(self.remaining));
        headers.insert(RESET, HeaderValue::from(self.reset_s));
        let policy = format!("{};w={}", self.limit, self.window_s);
        if let Ok(policy) = HeaderValue::try_from(policy) {
            headers.insert(POLICY, policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(changes: impl Fn(&mut config::Serve)) -> Rates {
        let mut settings = config::Serve {
            rate_max: 3,
            account_rate_max: 2,
            rate_s: 10,
            ..config::Serve::default()
        };
        changes(&mut settings);
        Rates::new(&settings, Arc::new(Limits::new(&settings)))
    }

    fn left(taken: Result<Option<Standing>, Standing>) -> Result<u32, i64> {
        taken
            .map(|standing| standing.unwrap().remaining)
            .map_err(|standing| standing.reset_s)
    }

    #[test]
    fn what_an_answer_cost_is_taken_from_the_share_even_if_it_is_more() {
        let rates = rates(|_| {});
        let anna = || Asker::Address("1.1.1.1".parse().unwrap());
        assert_eq!(left(rates.take(anna(), 1, 100)), Ok(2));
        rates.charge(anna(), 70 * STEPS_PER_REQUEST, 101);
        assert_eq!(left(rates.take(anna(), 1, 102)), Err(110));
        assert_eq!(left(rates.take(anna(), 1, 110)), Ok(2), "not for ever");
    }

    #[test]
    fn many_small_costs_are_charged_as_one_large_one_is() {
        let rates = rates(|_| {});
        let anna = || Asker::Address("1.1.1.1".parse().unwrap());
        for _ in 0..3 {
            rates.charge(anna(), STEPS_PER_REQUEST / 2, 100);
        }
        assert_eq!(left(rates.take(anna(), 1, 102)), Ok(1));
        rates.charge(anna(), STEPS_PER_REQUEST / 2, 100);
        assert_eq!(left(rates.take(anna(), 1, 102)), Err(110));
    }

    #[test]
    fn a_share_is_used_up_and_comes_back_with_the_next_window() {
        let rates = rates(|_| {});
        let anna = || Asker::Address("1.1.1.1".parse().unwrap());
        assert_eq!(left(rates.take(anna(), 1, 100)), Ok(2));
        assert_eq!(left(rates.take(anna(), 2, 105)), Ok(0));
        assert_eq!(left(rates.take(anna(), 1, 109)), Err(110));
        assert_eq!(
            left(rates.take(Asker::Address("1.1.1.2".parse().unwrap()), 1, 109)),
            Ok(2)
        );
        assert_eq!(
            left(rates.take(Asker::Account("did:plc:a".into()), 1, 109)),
            Ok(1)
        );
        assert_eq!(left(rates.take(anna(), 1, 110)), Ok(2));
        assert_eq!(
            left(rates.take(anna(), 3, 50)),
            Ok(0),
            "the clock was set back"
        );
        assert_eq!(left(rates.take(anna(), 4, 50)), Err(60));
    }

    #[test]
    fn the_number_of_askers_remembered_is_bounded() {
        let rates = rates(|_| {});
        for number in 0..150_000u32 {
            let address = IpAddr::V4(number.into());
            assert!(rates.take(Asker::Address(address), 1, 0).is_ok());
        }
        assert!(rates.askers.len() <= ASKERS_MAX);
    }

    #[track_caller]
    fn address(header: Option<&str>, peer: &str, told: Option<&str>, expected: Option<&str>) {
        behind(&[], header, peer, told, expected);
    }

    #[track_caller]
    fn behind(
        proxies: &[&str],
        header: Option<&str>,
        peer: &str,
        told: Option<&str>,
        expected: Option<&str>,
    ) {
        let rates = rates(|settings| {
            settings.proxy_header = header.map(str::to_owned);
            settings.proxies = proxies.iter().map(|text| (*text).to_owned()).collect();
        });
        let mut headers = HeaderMap::new();
        if let Some(told) = told {
            headers.insert("x-forwarded-for", told.parse().unwrap());
        }
        let found = rates.address(Some(peer.parse().unwrap()), &headers);
        assert_eq!(found, expected.map(|text| text.parse().unwrap()));
    }

    #[test]
    fn behind_two_proxies_the_client_is_the_last_address_that_is_neither() {
        let check = |peer: &str, told: &str, expected: Option<&str>| {
            let proxies = ["10.0.0.0/8"];
            behind(
                &proxies,
                Some("x-forwarded-for"),
                peer,
                Some(told),
                expected,
            );
        };
        check("10.0.0.1:1", "9.9.9.9, 10.0.0.2", Some("9.9.9.9"));
        check(
            "127.0.0.1:1",
            "8.8.8.8, 9.9.9.9, 10.0.0.3, 10.0.0.2",
            Some("9.9.9.9"),
        );
        check("10.0.0.1:1", "10.0.0.3, 10.0.0.2", Some("10.0.0.3"));
        check("10.0.0.1:1", "nonsense, 10.0.0.2", Some("10.0.0.2"));
        check("7.7.7.7:1", "9.9.9.9", Some("7.7.7.7"));
    }

    #[test]
    fn the_address_is_the_peers_or_the_last_that_a_trusted_proxy_names() {
        let header = Some("x-forwarded-for");
        address(None, "9.9.9.9:1", None, Some("9.9.9.9"));
        address(None, "9.9.9.9:1", Some("1.1.1.1"), Some("9.9.9.9"));
        address(
            header,
            "127.0.0.1:1",
            Some("8.8.8.8, 1.1.1.1"),
            Some("1.1.1.1"),
        );
        address(header, "127.0.0.1:1", Some("1.1.1.1:5000"), Some("1.1.1.1"));
        address(header, "127.0.0.1:1", Some("nonsense"), None);
        address(None, "127.0.0.1:1", None, None);
        address(None, "[::1]:1", None, None);
        address(None, "[::ffff:9.9.9.9]:1", None, Some("9.9.9.9"));
        address(
            None,
            "[2606:4700:1:2:3:4:5:6]:1",
            None,
            Some("2606:4700:1:2::"),
        );
    }
}
