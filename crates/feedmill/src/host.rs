//! Hosts of accounts, asked no faster than they like.
//!
//! In:    the address of a host, and what its answers say about pauses.
//! Out:   a permit to ask it, as soon as it has room; or how long to leave it alone.
//! Never: more than `at_once_max` requests to one host at a time; a request
//!        before the moment that the host named.
//!
//! Whoever fetches thousands of repositories is a burden that hosts defend
//! themselves against. One that says "later" (`Retry-After`, or no requests
//! remaining in its `RateLimit` window) is left alone until then, and
//! meanwhile the others are asked. As many as are asked at once may stand in
//! line, so that a host is never idle while something is wanted of it; more
//! would keep those waiting who want something of others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::{Clock, Micros};

const SECOND_US: Micros = 1_000_000;
/// Pause where a host refuses without saying for how long; and where its line is full.
const PAUSE_US: Micros = 10 * SECOND_US;
const FULL_US: Micros = SECOND_US;
/// Longest pause on a host's word.
const PAUSE_US_MAX: Micros = 3600 * SECOND_US;
/// Hosts remembered; those with nothing to remember are forgotten first.
const HOSTS_MAX: usize = 10_000;
/// Numbers from here on are moments, in seconds; smaller ones are pauses.
const MOMENTS_FROM: i64 = 1_000_000_000;

/// All hosts.
#[derive(Debug)]
pub struct Hosts {
    at_once_max: usize,
    known: Mutex<HashMap<String, Host>>,
}

#[derive(Debug)]
struct Host {
    /// Requests under way and in line.
    busy: usize,
    line: Arc<Semaphore>,
    rests_until_us: Micros,
}

/// Leave to make one request; given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    hosts: Arc<Hosts>,
    host: String,
    /// `None` while it stands in line.
    _turn: Option<OwnedSemaphorePermit>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(host) = self.hosts.known.lock().get_mut(&self.host) {
            host.busy = host.busy.saturating_sub(1);
        }
    }
}

impl Hosts {
    /// Hosts of which each is asked `at_once_max` things at a time.
    pub fn new(at_once_max: usize) -> Self {
        Self {
            at_once_max,
            known: Mutex::default(),
        }
    }

    /// Leave to ask `url`, as soon as it is our turn; or after how many microseconds to come again.
    ///
    /// # Errors
    /// If the host wants to be left alone, or its line is full.
    pub async fn ask(self: &Arc<Self>, url: &str, clock: &Clock) -> Result<Permit, Micros> {
        let (line, mut permit) = self.stand_in_line(name_of(url), clock.now_us())?;
        permit._turn = line.acquire_owned().await.ok();
        // Whoever was before us may have been told to leave it alone.
        match self.rests(&permit.host, clock.now_us()) {
            Some(pause_us) => Err(pause_us),
            None => Ok(permit),
        }
    }

    fn stand_in_line(
        self: &Arc<Self>,
        name: &str,
        now_us: Micros,
    ) -> Result<(Arc<Semaphore>, Permit), Micros> {
        if let Some(pause_us) = self.rests(name, now_us) {
            return Err(pause_us);
        }
        let mut known = self.known.lock();
        if known.len() >= HOSTS_MAX && !known.contains_key(name) {
            known.retain(|_, host| host.busy > 0 || host.rests_until_us > now_us);
        }
        let host = self.host(&mut known, name);
        if host.busy >= self.at_once_max * 2 {
            return Err(FULL_US);
        }
        host.busy += 1;
        let permit = Permit {
            hosts: Arc::clone(self),
            host: name.to_owned(),
            _turn: None,
        };
        Ok((Arc::clone(&host.line), permit))
    }

    fn host<'a>(&self, known: &'a mut HashMap<String, Host>, name: &str) -> &'a mut Host {
        known.entry(name.to_owned()).or_insert_with(|| Host {
            busy: 0,
            line: Arc::new(Semaphore::new(self.at_once_max)),
            rests_until_us: 0,
        })
    }

    /// How long a host is still to be left alone.
    fn rests(&self, name: &str, now_us: Micros) -> Option<Micros> {
        let known = self.known.lock();
        let rest_us = known.get(name)?.rests_until_us - now_us;
        (rest_us > 0).then_some(rest_us)
    }

    /// Notes what an answer says about pauses; returns the pause where it is a refusal for now.
    pub fn heard(
        &self,
        url: &str,
        status: u16,
        headers: &HeaderMap,
        now_us: Micros,
    ) -> Option<Micros> {
        let refused = matches!(status, 429 | 503);
        let asked = pause(headers, refused, now_us);
        let pause_us = asked.or(refused.then_some(PAUSE_US))?.min(PAUSE_US_MAX);
        let mut known = self.known.lock();
        let host = self.host(&mut known, name_of(url));
        host.rests_until_us = host.rests_until_us.max(now_us + pause_us);
        refused.then_some(pause_us)
    }
}

/// The host's part of an address: scheme, name and port.
fn name_of(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(from..).unwrap_or_default();
    let end = rest.find('/').map_or(url.len(), |at| from + at);
    url.get(..end).unwrap_or(url)
}

/// The pause that an answer's headers ask for.
fn pause(headers: &HeaderMap, refused: bool, now_us: Micros) -> Option<Micros> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let until = |text: &str| match text.parse::<i64>() {
        Ok(moment) if moment >= MOMENTS_FROM => Some(moment * SECOND_US - now_us),
        Ok(seconds) => Some(seconds.saturating_mul(SECOND_US)),
        Err(_) => {
            let moment = httpdate::parse_http_date(text).ok()?;
            let since = moment.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(i64::try_from(since.as_micros()).ok()? - now_us)
        }
    };
    let told = refused
        .then(|| text("retry-after").and_then(until))
        .flatten();
    let spent = text("ratelimit-remaining") == Some("0");
    let reset = spent
        .then(|| text("ratelimit-reset").and_then(until))
        .flatten();
    told.max(reset).map(|pause_us| pause_us.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const NOW: Micros = 1_790_000_000 * SECOND_US;
    const URL: &str = "https://pds.example/xrpc/com.atproto.sync.getRepo?did=did:web:a.test";

    #[track_caller]
    fn check(status: u16, headers: &[(&'static str, &str)], pause_s: Option<i64>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let hosts = Arc::new(Hosts::new(2));
        hosts.heard(URL, status, &map, NOW);
        let rests = hosts.rests("https://pds.example", NOW);
        assert_eq!(rests, pause_s.map(|seconds| seconds * SECOND_US));
    }

    #[test]
    fn a_refusal_is_followed_by_the_pause_it_names_in_any_form() {
        check(429, &[("retry-after", "7")], Some(7));
        check(503, &[("retry-after", "7")], Some(7));
        check(
            429,
            &[("retry-after", "Mon, 21 Sep 2026 14:13:29 GMT")],
            Some(9),
        );
        check(429, &[], Some(10));
        check(429, &[("retry-after", "soon")], Some(10));
        check(429, &[("retry-after", "99999")], Some(3600));
        check(200, &[("retry-after", "7")], None);
    }

    #[test]
    fn a_window_without_requests_left_is_waited_out() {
        let spent = ("ratelimit-remaining", "0");
        check(200, &[spent, ("ratelimit-reset", "1790000030")], Some(30));
        check(200, &[spent, ("ratelimit-reset", "30")], Some(30));
        check(
            200,
            &[("ratelimit-remaining", "1"), ("ratelimit-reset", "30")],
            None,
        );
        check(
            429,
            &[spent, ("ratelimit-reset", "30"), ("retry-after", "40")],
            Some(40),
        );
    }

    #[tokio::test]
    async fn one_host_is_asked_so_many_things_at_once_and_another_is_not_its_business() {
        let (hosts, clock) = (Arc::new(Hosts::new(2)), Clock::Wall);
        let first = hosts.ask(URL, &clock).await.unwrap();
        let _second = hosts.ask("https://pds.example", &clock).await.unwrap();
        assert!(hosts.ask("https://other.example/", &clock).await.is_ok());
        let mut third = Box::pin(hosts.ask(URL, &clock));
        assert!((&mut third).now_or_never().is_none(), "it stands in line");
        let mut fourth = Box::pin(hosts.ask(URL, &clock));
        assert!((&mut fourth).now_or_never().is_none());
        assert_eq!(hosts.ask(URL, &clock).await.unwrap_err(), FULL_US);
        drop(fourth);
        drop(first);
        let third = third.await.unwrap();
        let mut fifth = Box::pin(hosts.ask(URL, &clock));
        assert!((&mut fifth).now_or_never().is_none());
        // Told to leave it alone, nobody in line asks after all.
        hosts.heard(URL, 429, &HeaderMap::new(), clock.now_us());
        drop(third);
        assert!(fifth.await.is_err());
        assert_eq!(hosts.known.lock()["https://pds.example"].busy, 1);
    }
}
