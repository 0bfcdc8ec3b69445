//! The fetcher: every request to a host that somebody else named.
//!
//! In:    an [`Ask`]: an address, its cause, and how large the answer may be.
//! Out:   the answer, whole and within its limits; or an [`Archive`] on disk.
//! Never: more bytes taken than allowed, whatever the host announces; a request
//!        that takes longer than its time, or that is slower than a minimum
//!        speed; a redirect to where the address itself might not lead; more
//!        requests than a cause has at one host, or in all.
//!
//! No other file makes HTTP requests, and a test holds that. Redirects are
//! followed here and not by the HTTP client, so that every hop is judged and
//! counted like the first address.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use metrics::counter;
pub(super) use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::net::TcpStream;

use super::archive::{Archive, Disk, Memory, Writing};
pub use super::ask::{Ask, DOCUMENT_BYTES_MAX, PAGE_BYTES_MAX, Reply};
use super::limits::{Deadline, Limits, Slots, Speed};
use super::names::NamesError;
use super::{ConnectError, Forbidden, Reach};
use crate::clock::{Clock, Micros};
use crate::config::Config;
use crate::host::{Cause, Hosts, Load, Permit, micros};
use crate::metrics as names;

/// Time for the beginning of an archive.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// How long a request waits for our own limits, and when it is worth trying again after that.
const QUEUE_MAX: Duration = Duration::from_secs(10);
const QUEUE_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no answer, by what is done about it.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Try again later.
    #[error("no answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Try again later.
    #[error("cannot ask for a name")]
    Nameless(#[from] NamesError),
    /// Leave the host alone for a good while: it keeps others waiting.
    #[error("the answer came too slowly")]
    TooSlow,
    /// The same.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// Not a failure: the host wants a pause, or as much is asked as may be.
    #[error("not before {} ms", .0.as_millis())]
    Later(Duration),
    /// It is where we do not go.
    #[error("not asked")]
    Forbidden(#[from] Forbidden),
    /// The host answered, but not with what was asked for.
    #[error("the host answered {0}")]
    Status(u16),
    #[error("the answer is not what was asked for")]
    Nonsense,
    /// Our own disk.
    #[error("cannot keep the answer on disk")]
    Disk(#[source] std::io::Error),
}

impl FetchError {
    fn result(&self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::Nameless(_) | Self::Disk(_) => "failed",
            Self::TooSlow => "slow",
            Self::TooLarge(_) => "large",
            Self::Later(_) => "later",
            Self::Forbidden(_) => "forbidden",
            Self::Status(_) | Self::Nonsense => "refused",
        }
    }

    /// What a caller is told, who must not learn our addresses or where names lead in our network.
    pub fn in_public(&self) -> &'static str {
        match self {
            Self::Unreachable(_) | Self::Nameless(_) => "the host cannot be reached",
            Self::Disk(_) => "the answer cannot be kept now; try again",
            Self::TooSlow => "the host answers too slowly",
            Self::TooLarge(_) => "the answer is too large",
            Self::Later(_) => "it is asked as often as may be; try again",
            Self::Forbidden(_) => "the host is not one that is asked",
            Self::Status(_) | Self::Nonsense => "the host did not answer what it was asked",
        }
    }
}

impl From<ConnectError> for FetchError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Forbidden(why) => Self::Forbidden(why),
            ConnectError::Failed(error) => Self::Unreachable(error.into()),
        }
    }
}

/// What came of asking for an archive.
#[derive(Debug)]
pub enum Fetched {
    Archive(Archive),
    /// Another status than success.
    Refused(u16),
}

/// Makes requests.
#[derive(Debug)]
pub struct Fetcher {
    reach: Reach,
    clock: Clock,
    hosts: Arc<Hosts>,
    /// For addresses that strangers name, and for those that the operator does.
    strangers: Client,
    named: Client,
    named_hosts: Vec<String>,
    limits: Limits,
    slots: Slots,
    memory: Arc<Memory>,
    disk: Arc<Disk>,
}

impl Fetcher {
    /// The fetcher of a configuration.
    pub fn new(config: &Config, clock: Clock) -> Result<Self, FetchError> {
        let intake = &config.intake;
        let mut urls = vec![intake.plc_url.as_str(), config.settle.alert_url.as_str()];
        urls.extend(intake.did_web_url.as_deref());
        urls.extend(intake.backfill.as_deref());
        let mut urls: Vec<String> = urls.into_iter().map(str::to_owned).collect();
        for source in &config.sources {
            urls.extend(source.urls());
            let dictionary = source.dictionary.as_deref();
            urls.extend(dictionary.and_then(|path| Some(path.to_str()?.to_owned())));
        }
        Self::with(Reach::new(config), Limits::of(config), clock, &urls)
    }

    /// A fetcher for hosts that the operator names on the command line.
    pub fn of_operator(urls: &[&str]) -> Result<Self, FetchError> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        Self::with(Reach::default(), Limits::default(), Clock::Wall, &urls)
    }

    /// The same fetcher where the operator names one more host.
    pub fn naming(self, url: &str) -> Result<Self, FetchError> {
        let mut named_hosts = self.named_hosts;
        named_hosts.extend(host_of(url));
        Ok(Self {
            named: client(&self.reach, named_hosts.clone())?,
            named_hosts,
            ..self
        })
    }

    fn with(
        reach: Reach,
        limits: Limits,
        clock: Clock,
        urls: &[String],
    ) -> Result<Self, FetchError> {
        let named_hosts: Vec<String> = urls.iter().filter_map(|url| host_of(url)).collect();
        Ok(Self {
            strangers: client(&reach, Vec::new())?,
            named: client(&reach, named_hosts.clone())?,
            named_hosts,
            hosts: Arc::new(limits.hosts()),
            slots: Slots::new(limits.provoked_rate_max),
            memory: Arc::new(Memory::new(limits.repo_memory_bytes_max)),
            disk: Arc::new(Disk::new(limits.repo_disk_bytes_max)),
            reach,
            clock,
            limits,
        })
    }

    /// What may be asked.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The memory in which archives are opened.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Asks, and takes the whole answer.
    pub async fn fetch(&self, ask: Ask<'_>) -> Result<Reply, FetchError> {
        let cause = ask.cause;
        let fetched = self.reply(ask).await;
        count(cause, fetched.as_ref().map(|reply| reply.body.len() as u64));
        fetched
    }

    async fn reply(&self, ask: Ask<'_>) -> Result<Reply, FetchError> {
        let _slot = self.slots.enter(&ask).await?;
        let mut deadline = Deadline::after(ask.timeout);
        let (mut response, _permit) = self.open(&ask, &mut deadline).await?;
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        let Some(bytes_max) = ask.bytes_max else {
            return Ok(Reply { status, body });
        };
        let mut speed = Speed::new(&self.limits);
        loop {
            let next = next(&mut response, &mut speed, body.len(), bytes_max);
            match deadline.hold(next).await?? {
                Some(chunk) => body.extend_from_slice(&chunk),
                None => return Ok(Reply { status, body }),
            }
        }
    }

    /// Asks for an archive, which is written to disk as it comes.
    pub async fn archive(&self, ask: Ask<'_>) -> Result<Fetched, FetchError> {
        let cause = ask.cause;
        let fetched = self.archived(ask.heavy()).await;
        let bytes = fetched.as_ref().map(|fetched| match fetched {
            Fetched::Archive(archive) => archive.bytes(),
            Fetched::Refused(_) => 0,
        });
        count(cause, bytes);
        fetched
    }

    async fn archived(&self, ask: Ask<'_>) -> Result<Fetched, FetchError> {
        let _slot = self.slots.enter(&ask).await?;
        let mut begin = Deadline::after(BEGIN_MAX);
        let (mut response, _permit) = self.open(&ask, &mut begin).await?;
        if !response.status().is_success() {
            return Ok(Fetched::Refused(response.status().as_u16()));
        }
        let deadline = Deadline::after(self.limits.repo_time_max);
        let mut writing = Writing::begin(self.limits.folder.clone(), &self.disk).await?;
        let mut speed = Speed::new(&self.limits);
        let (mut came, bytes_max) = (0, self.limits.repo_bytes_max);
        loop {
            let next = next(&mut response, &mut speed, came, bytes_max);
            let Some(chunk) = deadline.hold(next).await?? else {
                break;
            };
            came += chunk.len();
            writing.write(&chunk).await?;
        }
        Ok(Fetched::Archive(writing.end(&self.memory).await?))
    }

    /// A connection for what is not HTTP.
    pub async fn connect(
        &self,
        cause: Cause,
        url: &str,
        is_named: bool,
    ) -> Result<TcpStream, FetchError> {
        let connected = async {
            let mut deadline = Deadline::after(BEGIN_MAX);
            let _permit = self
                .permit((cause, Load::Light), url, &mut deadline)
                .await?;
            Ok(deadline.hold(self.reach.connect(url, is_named)).await??)
        };
        let connected = connected.await;
        count(cause, connected.as_ref().map(|_| 0));
        connected
    }

    /// Heeds what a host says about pauses in an answer that came over such a connection.
    pub fn heed(&self, url: &str, status: u16, headers: &HeaderMap) {
        let now_us = self.clock.now_us();
        self.hosts.heard(url, status, headers, now_us);
    }

    /// The texts of a name in DNS, which is a host like any other.
    pub async fn texts(&self, cause: Cause, name: &str) -> Result<Vec<String>, FetchError> {
        let found = async {
            self.slots.take(cause).await?;
            let mut deadline = Deadline::after(BEGIN_MAX);
            let dns = "dns://";
            let _permit = self
                .permit((cause, Load::Light), dns, &mut deadline)
                .await?;
            Ok(self.reach.names().texts(name).await?)
        };
        let found = found.await;
        count(cause, found.as_ref().map(|_| 0));
        found
    }

    /// Leave to ask a host. Waiting for our own limits is no fault of the host's, so its deadline moves.
    async fn permit(
        &self,
        what: (Cause, Load),
        url: &str,
        deadline: &mut Deadline,
    ) -> Result<Permit, FetchError> {
        let begun = Instant::now();
        let asked = self.hosts.ask(what, url, &self.clock);
        let permit = tokio::time::timeout(QUEUE_MAX, asked).await;
        deadline.move_by(begun.elapsed());
        let permit = permit.map_err(|_| FetchError::Later(QUEUE_PAUSE))?;
        permit.map_err(later)
    }

    /// Asks, and follows redirects: every hop is judged and counted like the first.
    async fn open(
        &self,
        ask: &Ask<'_>,
        deadline: &mut Deadline,
    ) -> Result<(Response, Permit), FetchError> {
        let address = || Forbidden::Address(ask.url.to_owned());
        let mut url = Url::parse(ask.url).map_err(|_| address())?;
        for hop in 0..=ask.redirects_max {
            let (response, permit) = self.hop(ask, &url, hop == 0, deadline).await?;
            let location = response.headers().get("location");
            let Some(location) = location.filter(|_| response.status().is_redirection()) else {
                return Ok((response, permit));
            };
            if ask.redirects_max == 0 {
                return Ok((response, permit));
            }
            let to = location.to_str().ok().and_then(|to| url.join(to).ok());
            url = to.ok_or(FetchError::Nonsense)?;
        }
        Err(Forbidden::Redirects.into())
    }

    async fn hop(
        &self,
        ask: &Ask<'_>,
        url: &Url,
        is_first: bool,
        deadline: &mut Deadline,
    ) -> Result<(Response, Permit), FetchError> {
        let host = url.host_str().unwrap_or_default();
        let knows = || self.named_hosts.iter().any(|known| known == host);
        if !(ask.is_named && (is_first || knows())) {
            self.reach.judge(url)?;
        }
        let what = (ask.cause, ask.load);
        let permit = self.permit(what, url.as_str(), deadline).await?;
        let client = match ask.is_named {
            true => &self.named,
            false => &self.strangers,
        };
        let mut request = match &ask.body {
            None => client.get(url.clone()),
            Some(body) => client
                .post(url.clone())
                .header("content-type", "application/json")
                .body(body.clone()),
        };
        if let Some(host) = ask.host.filter(|_| is_first) {
            request = request.header("host", host);
        }
        if let Some(bearer) = ask.bearer.filter(|_| is_first) {
            request = request.bearer_auth(bearer);
        }
        let response = deadline.hold(request.send()).await?;
        let response = response.map_err(unreachable)?;
        match self.pause(url, response.status().as_u16(), response.headers()) {
            Some(pause_us) => Err(later(pause_us)),
            None => Ok((response, permit)),
        }
    }

    fn pause(&self, url: &Url, status: u16, headers: &HeaderMap) -> Option<Micros> {
        let now_us = self.clock.now_us();
        self.hosts.heard(url.as_str(), status, headers, now_us)
    }
}

/// The next piece of an answer; `None` at its end.
async fn next(
    response: &mut Response,
    speed: &mut Speed,
    came: usize,
    bytes_max: usize,
) -> Result<Option<bytes::Bytes>, FetchError> {
    let too_large = || FetchError::TooLarge(bytes_max);
    // What is announced as too large need not be begun.
    let announced = response.content_length().unwrap_or(0);
    if came == 0 && announced > bytes_max as u64 {
        return Err(too_large());
    }
    let chunk = tokio::time::timeout(speed.patience(), response.chunk()).await;
    let chunk = chunk.map_err(|_| FetchError::TooSlow)?;
    let Some(chunk) = chunk.map_err(unreachable)? else {
        return Ok(None);
    };
    if came.saturating_add(chunk.len()) > bytes_max {
        return Err(too_large());
    }
    match speed.is_enough(chunk.len(), Instant::now()) {
        true => Ok(Some(chunk)),
        false => Err(FetchError::TooSlow),
    }
}

/// Why the HTTP client has no answer; what we forbade ourselves is no fault of the host's.
fn unreachable(error: reqwest::Error) -> FetchError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(one) = cause {
        if let Some(why) = one.downcast_ref::<Forbidden>() {
            return FetchError::Forbidden(why.clone());
        }
        cause = one.source();
    }
    FetchError::Unreachable(error.without_url().into())
}

fn later(pause_us: Micros) -> FetchError {
    FetchError::Later(Duration::from_micros(pause_us.max(0).unsigned_abs()))
}

/// Counts a request; `bytes`: of its answer.
fn count(cause: Cause, bytes: Result<u64, &FetchError>) {
    let result = match bytes {
        Ok(_) => "ok",
        Err(error) => error.result(),
    };
    counter!(names::FETCHES, "cause" => cause.name(), "result" => result).increment(1);
    if let Ok(bytes) = bytes {
        counter!(names::FETCH_BYTES, "cause" => cause.name()).increment(bytes);
    }
}

fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(url.host_str()?.to_owned())
}

/// A client that connects to public addresses only, and to hosts that the operator named.
fn client(reach: &Reach, named: Vec<String>) -> Result<Client, FetchError> {
    super::provide_tls();
    let guard = Guard {
        reach: reach.clone(),
        named,
    };
    let built = Client::builder()
        .redirect(Policy::none())
        .dns_resolver(Arc::new(guard))
        .build();
    built.map_err(unreachable)
}

/// Judges names as they are resolved; hosts that the operator named pass.
struct Guard {
    reach: Reach,
    named: Vec<String>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach.clone();
        let host = name.as_str().to_owned();
        let named = self.named.contains(&host);
        Box::pin(async move {
            let good = reach
                .good(&host, named)
                .await
                .map_err(|error| match error {
                    super::ConnectError::Forbidden(why) => {
                        Box::<dyn std::error::Error + Send + Sync>::from(why)
                    }
                    super::ConnectError::Failed(error) => Box::from(error),
                })?;
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}

/// A pause as callers that count microseconds know it.
pub fn pause_us(pause: Duration) -> Micros {
    micros(pause)
}
