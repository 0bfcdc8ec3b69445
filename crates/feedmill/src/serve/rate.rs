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
use crate::config;
use crate::metrics as names;

/// How many requests a client has, has left, when they are counted anew, and by what rule.
pub(super) const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Askers remembered.
const ASKERS_MAX: usize = 100_000;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Asker {
    Address(IpAddr),
    Account(String),
}

#[derive(Debug)]
struct Window {
    begun_s: i64,
    used: u32,
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
    address_max: u32,
    account_max: u32,
    window_s: u32,
    proxy_header: Option<HeaderName>,
    askers: Cache<Asker, Arc<Mutex<Window>>>,
}

impl Rates {
    pub(super) fn new(settings: &config::Serve) -> Self {
        let header = settings.proxy_header.as_deref();
        Self {
            address_max: settings.rate_max,
            account_max: settings.account_rate_max,
            window_s: settings.rate_s,
            proxy_header: header.and_then(|name| HeaderName::try_from(name).ok()),
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
            Asker::Address(_) => (self.address_max, "address"),
            Asker::Account(_) => (self.account_max, "account"),
        };
        if limit == 0 {
            return Ok(None);
        }
        let window_s = i64::from(self.window_s);
        let fresh = || Window {
            begun_s: now_s,
            used: 0,
        };
        let made: Result<_, std::convert::Infallible> = self
            .askers
            .get_or_insert_with(&asker, || Ok(Arc::new(Mutex::new(fresh()))));
        let Ok(window) = made;
        let mut window = window.lock();
        // A clock that was set back must not lock anybody out for longer than a window.
        if !(0..window_s).contains(&(now_s - window.begun_s)) {
            *window = fresh();
        }
        let over = window.used.saturating_add(cost) > limit;
        if !over {
            window.used += cost;
        }
        let standing = Standing {
            limit,
            remaining: limit.saturating_sub(window.used),
            reset_s: window.begun_s + window_s,
            window_s: self.window_s,
        };
        if over {
            counter!(names::LIMITED, "by" => by).increment(1);
            return Err(standing);
        }
        Ok(Some(standing))
    }

    /// The address that a request is counted under; `None` for this machine itself.
    pub(super) fn address(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let told = self.proxy_header.as_ref().and_then(|name| {
            // The last address is the one that our own proxy saw; those before it were told to him.
            let mut values = headers.get_all(name).iter();
            let last = values.next_back()?.to_str().ok()?;
            let text = last.rsplit(',').next()?.trim();
            let bare = text.parse().ok();
            bare.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
        });
        let address = told.or_else(|| peer.map(|peer| peer.ip()))?;
        (!address.to_canonical().is_loopback()).then(|| network(address.to_canonical()))
    }
}

/// One household has one IPv4 address, or a whole /64 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let kept = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(kept))
        }
    }
}

impl Standing {
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
        Rates::new(&settings)
    }

    fn left(taken: Result<Option<Standing>, Standing>) -> Result<u32, i64> {
        taken
            .map(|standing| standing.unwrap().remaining)
            .map_err(|standing| standing.reset_s)
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
        let rates = rates(|settings| settings.proxy_header = header.map(str::to_owned));
        let mut headers = HeaderMap::new();
        if let Some(told) = told {
            headers.insert("x-forwarded-for", told.parse().unwrap());
        }
        let found = rates.address(Some(peer.parse().unwrap()), &headers);
        assert_eq!(found, expected.map(|text| text.parse().unwrap()));
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
