//! Hosts that others named, asked no faster than they like.
//!
//! In:    the address of a host, the cause of a request, and what answers say about pauses.
//! Out:   a permit to ask, as soon as the host has room; or how long to leave it alone.
//! Never: more requests to one host at a time, or in a second, than its cause
//!        allows; a request before the moment that the host named; a pause
//!        shorter than `PAUSE_US_MIN` or longer than `PAUSE_US_MAX`, whatever
//!        the host says; more hosts remembered than `HOSTS_MAX`.
//!
//! Whoever fetches thousands of repositories is a burden that hosts defend
//! themselves against. One that says "later" (`Retry-After`, or no requests
//! remaining in its `RateLimit` window) is left alone until then, and
//! meanwhile the others are asked. As many requests as run at once may wait,
//! so that a host is never idle while something is wanted of it; more would
//! keep slots from requests to other hosts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::{Clock, Micros};

const SECOND_US: Micros = 1_000_000;
/// Pause where a host refuses without saying for how long; and where its queue is full.
const PAUSE_US: Micros = 10 * SECOND_US;
const FULL_US: Micros = SECOND_US;
/// Shortest and longest pause on a host's word.
const PAUSE_US_MIN: Micros = SECOND_US;
const PAUSE_US_MAX: Micros = 24 * 3600 * SECOND_US;
/// Hosts remembered. Hosts with nothing to remember are forgotten first, then those whose pause ends first.
const HOSTS_MAX: usize = 10_000;
/// Numbers from here on are moments, in seconds; smaller ones are pauses.
const MOMENTS_FROM: i64 = 1_000_000_000;
/// Longest wait for a rate limit that is spent inside of it; a longer one is handed back.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Why a request is made. Each cause has a rate of its own at every host, so
/// that requests which strangers provoke cannot use up what repair needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Repositories and standings of accounts whose chain broke.
    Repair,
    /// The same for accounts that somebody reads as.
    Reader,
    /// Lists of accounts.
    List,
    /// DID documents for our own work.
    Identity,
    /// DID documents of accounts that tokens name.
    Token,
    /// Handles: DNS, HTTPS and DID documents.
    Handle,
    /// Records that somebody says are new.
    Notify,
    /// Published lexicons.
    Lexicon,
    /// Connections to labelers.
    Label,
    /// Alerts posted to the operator's webhook.
    Alert,
    /// Dictionaries of packed streams.
    Dictionary,
    /// Records that the operator publishes, and logs that he asks.
    Command,
}

impl Cause {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Reader => "reader",
            Self::List => "list",
            Self::Identity => "identity",
            Self::Token => "token",
            Self::Handle => "handle",
            Self::Notify => "notify",
            Self::Lexicon => "lexicon",
            Self::Label => "label",
            Self::Alert => "alert",
            Self::Dictionary => "dictionary",
            Self::Command => "command",
        }
    }

    /// Causes with large answers share how many requests run at one host at a time, and those that
    /// readers wait for have as many of their own. The documents that they need come from a
    /// directory, which answers many at a time.
    fn group(self, load: Load) -> Group {
        match (self, load) {
            (Self::Repair | Self::List, Load::Heavy) => Group::Archives,
            (Self::Reader, Load::Heavy) => Group::Readers,
            (Self::Repair | Self::Reader | Self::List | Self::Identity, _) => Group::Documents,
            (Self::Token, _) => Group::Tokens,
            _ => Group::Others,
        }
    }

    /// Whether the operator's settings decide how much is asked for it, and no caller does.
    fn is_own_work(self) -> bool {
        matches!(self, Self::Repair | Self::Identity)
    }
}

/// What a request costs its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A document.
    Light,
    /// A repository, its status, or a page of a list.
    Heavy,
}

/// What shares the requests that run at one host at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// What repair and lists need.
    Archives,
    /// What readers wait for.
    Readers,
    Documents,
    Tokens,
    Others,
}

impl Group {
    /// Requests to one host at a time.
    fn at_once_max(self, archives_max: usize) -> usize {
        match self {
            Self::Archives | Self::Readers => archives_max,
            Self::Documents => 64,
            Self::Tokens => 16,
            Self::Others => 16,
        }
    }
}

/// A token bucket: so many requests at once, and so many more each second.
#[derive(Debug)]
pub(crate) struct Bucket {
    left: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn full(max: f64, now: Instant) -> Self {
        Self {
            left: max,
            filled: now,
        }
    }

    /// Takes one; or says after how long there is one. `max` at once, `each_s` more each second.
    pub(crate) fn take(&mut self, max: f64, each_s: f64, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + passed * each_s).min(max);
        self.filled = now;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let lacking = (1.0 - self.left) / each_s.max(f64::MIN_POSITIVE);
        Err(Duration::try_from_secs_f64(lacking).unwrap_or(Duration::MAX))
    }
}

/// All hosts.
#[derive(Debug)]
pub struct Hosts {
    at_once_max: usize,
    each_s_max: f64,
    /// The directory, and how often in a second it is asked for our own work.
    directory: Option<(String, f64)>,
    known: Mutex<HashMap<String, Host>>,
}

/// The requests of one group that run at a host or wait for it.
#[derive(Debug)]
struct Share {
    group: Group,
    busy: usize,
    running: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Host {
    shares: Vec<Share>,
    rates: Vec<(Cause, Bucket)>,
    rests_until_us: Micros,
}

impl Host {
    fn is_busy(&self) -> bool {
        self.shares.iter().any(|share| share.busy > 0)
    }

    fn share(&mut self, group: Group, at_once_max: usize) -> Option<&mut Share> {
        if !self.shares.iter().any(|share| share.group == group) {
            self.shares.push(Share {
                group,
                busy: 0,
                running: Arc::new(Semaphore::new(at_once_max)),
            });
        }
        self.shares.iter_mut().find(|share| share.group == group)
    }

    fn take(&mut self, cause: Cause, each_s_max: f64, now: Instant) -> Result<(), Duration> {
        if let Some((_, bucket)) = self.rates.iter_mut().find(|(known, _)| *known == cause) {
            return bucket.take(each_s_max, each_s_max, now);
        }
        let mut bucket = Bucket::full(each_s_max, now);
        let taken = bucket.take(each_s_max, each_s_max, now);
        self.rates.push((cause, bucket));
        taken
    }
}

/// Leave to make one request; given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    hosts: Arc<Hosts>,
    host: String,
    group: Group,
    /// `None` while it waits.
    running: Option<OwnedSemaphorePermit>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut known = self.hosts.known.lock();
        let host = known.get_mut(&self.host);
        let share = host.and_then(|host| host.share(self.group, 0));
        if let Some(share) = share {
            share.busy = share.busy.saturating_sub(1);
        }
    }
}

impl Hosts {
    /// Hosts of which each is asked for `at_once_max` archives at a time for repair, and for as many
    /// for readers, and for `each_s_max` things of one cause in a second.
    pub fn new(at_once_max: usize, each_s_max: u32) -> Self {
        Self {
            at_once_max,
            each_s_max: f64::from(each_s_max.max(1)),
            directory: None,
            known: Mutex::default(),
        }
    }

    /// The same, with a directory that is asked `each_s_max` times in a second for our own work.
    #[must_use]
    pub fn with_directory(mut self, url: &str, each_s_max: u32) -> Self {
        let each_s_max = f64::from(each_s_max.max(1));
        self.directory = Some((name_of(url).to_owned(), each_s_max));
        self
    }

    /// Leave to ask `url`, as soon as there is room; or after how many microseconds to come again.
    ///
    /// # Errors
    /// If the host wants to be left alone, its queue is full, or its rate is used up.
    pub async fn ask(
        self: &Arc<Self>,
        (cause, load): (Cause, Load),
        url: &str,
        clock: &Clock,
    ) -> Result<Permit, Micros> {
        let (running, mut permit) =
            self.wait_for(cause.group(load), name_of(url), clock.now_us())?;
        permit.running = running.acquire_owned().await.ok();
        loop {
            // Whoever was before us may have been told to leave it alone.
            if let Some(pause_us) = self.rests(&permit.host, clock.now_us()) {
                return Err(pause_us);
            }
            match self.take(cause, &permit.host) {
                Ok(()) => return Ok(permit),
                Err(wait) if wait <= WAIT_MAX => tokio::time::sleep(wait).await,
                Err(wait) => return Err(micros(wait)),
            }
        }
    }

    /// How often in a second a host is asked for a cause.
    fn each_s_max(&self, cause: Cause, host: &str) -> f64 {
        let directory = self.directory.as_ref();
        let own = directory.filter(|(name, _)| name == host && cause.is_own_work());
        own.map_or(self.each_s_max, |(_, each_s_max)| *each_s_max)
    }

    fn take(&self, cause: Cause, host: &str) -> Result<(), Duration> {
        let each_s_max = self.each_s_max(cause, host);
        let mut known = self.known.lock();
        match known.get_mut(host) {
            Some(host) => host.take(cause, each_s_max, Instant::now()),
            None => Ok(()),
        }
    }

    fn wait_for(
        self: &Arc<Self>,
        group: Group,
        name: &str,
        now_us: Micros,
    ) -> Result<(Arc<Semaphore>, Permit), Micros> {
        if let Some(pause_us) = self.rests(name, now_us) {
            return Err(pause_us);
        }
        let at_once_max = group.at_once_max(self.at_once_max);
        let mut known = self.known.lock();
        let host = host(&mut known, name, now_us);
        let share = host.share(group, at_once_max).ok_or(FULL_US)?;
        if share.busy >= at_once_max.saturating_mul(2) {
            return Err(FULL_US);
        }
        share.busy += 1;
        let permit = Permit {
            hosts: Arc::clone(self),
            host: name.to_owned(),
            group,
            running: None,
        };
        Ok((Arc::clone(&share.running), permit))
    }

    /// How long a host is still to be left alone.
    fn rests(&self, name: &str, now_us: Micros) -> Option<Micros> {
        let known = self.known.lock();
        let rest_us = known.get(name)?.rests_until_us.saturating_sub(now_us);
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
        let pause_us = asked.or(refused.then_some(PAUSE_US))?;
        let pause_us = pause_us.clamp(PAUSE_US_MIN, PAUSE_US_MAX);
        let mut known = self.known.lock();
        let host = host(&mut known, name_of(url), now_us);
        host.rests_until_us = host.rests_until_us.max(now_us.saturating_add(pause_us));
        refused.then_some(pause_us)
    }
}

/// The host of a name; one that is new may make us forget others.
fn host<'a>(known: &'a mut HashMap<String, Host>, name: &str, now_us: Micros) -> &'a mut Host {
    if known.len() >= HOSTS_MAX && !known.contains_key(name) {
        forget(known, now_us);
    }
    known.entry(name.to_owned()).or_default()
}

/// Makes room: hosts of which there is nothing to remember; where that is not half of them, the half
/// whose pauses end first. Hosts that are being asked stay.
fn forget(known: &mut HashMap<String, Host>, now_us: Micros) {
    known.retain(|_, host| host.is_busy() || host.rests_until_us > now_us);
    if known.len() < HOSTS_MAX / 2 {
        return;
    }
    let mut ends: Vec<Micros> = known.values().map(|host| host.rests_until_us).collect();
    let middle = ends.len() / 2;
    let (_, end_us, _) = ends.select_nth_unstable(middle);
    let end_us = *end_us;
    known.retain(|_, host| host.is_busy() || host.rests_until_us > end_us);
}

pub(crate) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// The host's part of an address: scheme, name and port.
fn name_of(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(from..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']);
    let end = end.map_or(url.len(), |at| from + at);
    url.get(..end).unwrap_or(url)
}

/// The pause that an answer's headers ask for; it may be of any length, also below zero.
fn pause(headers: &HeaderMap, refused: bool, now_us: Micros) -> Option<Micros> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let told = refused.then(|| text("retry-after").and_then(|text| until(text, now_us)));
    let spent = text("ratelimit-remaining") == Some("0");
    let reset = spent.then(|| text("ratelimit-reset").and_then(|text| until(text, now_us)));
    told.flatten().max(reset.flatten())
}

/// How long it is until what a header says: seconds, a moment in seconds, or a date.
fn until(text: &str, now_us: Micros) -> Option<Micros> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        // What does not fit is longer than any pause.
        let number = text.parse::<i64>().unwrap_or(i64::MAX);
        let time_us = number.saturating_mul(SECOND_US);
        return Some(match number >= MOMENTS_FROM {
            true => time_us.saturating_sub(now_us),
            false => time_us,
        });
    }
    let moment = httpdate::parse_http_date(text).ok()?;
    let since = moment.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(micros(since).saturating_sub(now_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const NOW: Micros = 1_790_000_000 * SECOND_US;
    const URL: &str = "https://pds.example/xrpc/com.atproto.sync.getRepo?did=did:web:a.test";
    const DAY: Option<i64> = Some(86_400);

    #[track_caller]
    fn check(status: u16, headers: &[(&'static str, &str)], pause_s: Option<i64>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let hosts = Arc::new(Hosts::new(2, 100));
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
        check(200, &[("retry-after", "7")], None);
    }

    #[test]
    fn a_pause_is_a_second_at_least_and_a_day_at_most() {
        let past = "Mon, 21 Sep 2020 14:13:29 GMT";
        for short in ["0", "1789999999", past] {
            check(429, &[("retry-after", short)], Some(1));
        }
        let long = "Tue, 21 Sep 9999 14:13:29 GMT";
        let most = u64::MAX.to_string();
        for endless in ["99999", "999999999", &most, "9223372036854775807", long] {
            check(429, &[("retry-after", endless)], DAY);
        }
        let spent = ("ratelimit-remaining", "0");
        check(200, &[spent, ("ratelimit-reset", "1789999999")], Some(1));
        check(200, &[spent, ("ratelimit-reset", "0")], Some(1));
        check(200, &[spent, ("ratelimit-reset", &most)], DAY);
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

    #[test]
    fn the_number_of_hosts_remembered_is_bounded_even_if_all_of_them_ask_for_a_day() {
        let hosts = Hosts::new(2, 100);
        let mut map = HeaderMap::new();
        map.insert("retry-after", "86400".parse().unwrap());
        for number in 0..HOSTS_MAX as i64 * 3 {
            let url = format!("https://{number}.example/");
            hosts.heard(&url, 429, &map, NOW + number);
            assert!(hosts.known.lock().len() <= HOSTS_MAX);
        }
    }

    #[test]
    fn a_bucket_gives_its_share_and_then_says_when_there_is_more() {
        let now = Instant::now();
        let mut bucket = Bucket::full(2.0, now);
        assert_eq!(bucket.take(2.0, 2.0, now), Ok(()));
        assert_eq!(bucket.take(2.0, 2.0, now), Ok(()));
        let half = Duration::from_millis(500);
        assert_eq!(bucket.take(2.0, 2.0, now), Err(half));
        assert_eq!(bucket.take(2.0, 2.0, now + half), Ok(()));
        // A second of rest is no more than a full bucket.
        let later = now + Duration::from_secs(100);
        assert_eq!(bucket.take(2.0, 2.0, later), Ok(()));
        assert_eq!(bucket.take(2.0, 2.0, later), Ok(()));
        assert!(bucket.take(2.0, 2.0, later).is_err());
    }

    #[test]
    fn the_directory_is_asked_more_often_for_our_own_work_and_not_for_callers() {
        let hosts = Hosts::new(2, 1).with_directory("https://plc.example/", 3);
        let rate = |cause, host| hosts.each_s_max(cause, host);
        for (cause, each_s) in [
            (Cause::Identity, 3.0),
            (Cause::Repair, 3.0),
            (Cause::Reader, 1.0),
            (Cause::Token, 1.0),
            (Cause::Handle, 1.0),
        ] {
            assert_eq!(rate(cause, "https://plc.example"), each_s, "{cause:?}");
            assert_eq!(rate(cause, "https://pds.example"), 1.0, "{cause:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_does_not_wait_for_the_repairs_at_the_same_host() {
        let (hosts, clock) = (Arc::new(Hosts::new(2, 100)), Clock::Wall);
        let ask = |cause| hosts.ask((cause, Load::Heavy), URL, &clock);
        let repairs = [ask(Cause::Repair).await, ask(Cause::List).await];
        assert!(repairs.iter().all(Result::is_ok));
        let mut waiting = [Box::pin(ask(Cause::Repair)), Box::pin(ask(Cause::Repair))];
        for repair in &mut waiting {
            assert!(repair.as_mut().now_or_never().is_none(), "it waits");
        }
        let first = ask(Cause::Reader).now_or_never();
        let second = ask(Cause::Reader).now_or_never();
        assert!(first.unwrap().is_ok() && second.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_host_is_asked_no_more_than_its_rate_however_many_ask() {
        const RATE: u32 = 40;
        let (hosts, clock) = (Arc::new(Hosts::new(2, RATE)), Clock::Wall);
        let ask = |cause| hosts.ask((cause, Load::Light), URL, &clock);
        let begun = Instant::now();
        let mut asked = 0;
        for _ in 0..2 * RATE {
            drop(ask(Cause::Notify).await.unwrap());
            asked += 1;
            let allowed = f64::from(RATE) * (1.0 + begun.elapsed().as_secs_f64());
            assert!(f64::from(asked) <= allowed, "{asked} of {allowed}");
        }
        assert!(
            ask(Cause::Handle).now_or_never().unwrap().is_ok(),
            "another cause"
        );
    }

    #[tokio::test]
    async fn one_host_is_asked_so_many_things_at_once_and_another_is_not_its_business() {
        let (hosts, clock) = (Arc::new(Hosts::new(2, 100)), Clock::Wall);
        let ask = |url| hosts.ask((Cause::Repair, Load::Heavy), url, &clock);
        let first = ask(URL).await.unwrap();
        let _second = ask("https://pds.example").await.unwrap();
        assert!(ask("https://other.example/").await.is_ok());
        let mut third = Box::pin(ask(URL));
        assert!((&mut third).now_or_never().is_none(), "it waits");
        let mut fourth = Box::pin(ask(URL));
        assert!((&mut fourth).now_or_never().is_none());
        assert_eq!(ask(URL).await.unwrap_err(), FULL_US);
        // Documents of the same host do not wait for its archives, whatever they are needed for.
        for cause in [Cause::Identity, Cause::Repair, Cause::Reader] {
            let document = hosts.ask((cause, Load::Light), URL, &clock);
            drop(document.await.unwrap());
        }
        drop(fourth);
        drop(first);
        let third = third.await.unwrap();
        let mut fifth = Box::pin(ask(URL));
        assert!((&mut fifth).now_or_never().is_none());
        // Told to leave it alone, nobody who waits asks after all.
        hosts.heard(URL, 429, &HeaderMap::new(), clock.now_us());
        drop(third);
        assert!(fifth.await.is_err());
        let known = hosts.known.lock();
        assert_eq!(known["https://pds.example"].shares[0].busy, 1);
    }
}
