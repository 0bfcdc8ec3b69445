//! `feedmill status`: how a process is, in plain words.
//!
//! In:    the configuration, which names the addresses and the store.
//! Out:   every problem with what to do about it, then the numbers; exit code 0
//!        only if nothing is wrong.
//! Never: a process that does not answer taken for one that is well.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{Ending, say};
use crate::clock::Clock;
use crate::config::{Config, Overrides};
use crate::host::Cause;
use crate::reach::fetch::{Ask, FetchError, Fetcher};
use crate::status::Status as Process;
use crate::store::{self, Writing};

/// How long a process may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The status of a process that has not started, or is on standby.
const UNAVAILABLE: u16 = 503;
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Whom to ask.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// Configuration file of the process
    file: PathBuf,
    /// Ask this address instead of those in the file, e.g. 127.0.0.1:8080
    #[arg(long)]
    address: Option<SocketAddr>,
    #[command(flatten)]
    overrides: Overrides,
    /// One JSON object, as `/status` answers it
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self) -> Result<ExitCode, Ending> {
        super::log("warn");
        let config = Config::load_with(&self.file, &self.overrides)?;
        let addresses = match self.address {
            Some(address) => vec![address],
            None => [&config.serve.bind, &config.intake.bind]
                .into_iter()
                .filter_map(|bind| bind.parse().ok())
                .map(reachable)
                .collect(),
        };
        let answer = super::runtime()?.block_on(find(&config, &addresses));
        match self.json {
            true => say(&answer.to_string()),
            false => say(words(&answer).trim_end()),
        }
        let problems = answer.get("problems").and_then(Value::as_array);
        let well = answer.get("ready") == Some(&Value::Bool(true));
        Ok(match well && problems.is_some_and(Vec::is_empty) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

/// Where a process that listens on `address` is asked on this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: IpAddr = match address.is_ipv4() {
            true => std::net::Ipv4Addr::LOCALHOST.into(),
            false => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    address
}

async fn ask_one(address: SocketAddr) -> Result<Value, FetchError> {
    let url = format!("http://{address}/status");
    let fetcher = Fetcher::of_operator(&[&url])?;
    let ask = Ask::new(Cause::Command, &url).named().without_redirects();
    let ask = ask.within(TIMEOUT).bytes_max(ANSWER_BYTES_MAX);
    match fetcher.fetch(ask).await {
        Err(FetchError::Status(UNAVAILABLE) | FetchError::Later(_)) => early(address).await,
        reply => reply?.json(),
    }
}

/// What a process says that has not started yet, or is on standby.
async fn early(address: SocketAddr) -> Result<Value, FetchError> {
    let url = format!("http://{address}/health");
    let fetcher = Fetcher::of_operator(&[&url])?;
    let ask = Ask::new(Cause::Command, &url).named().without_redirects();
    let reply = fetcher.fetch(ask.within(TIMEOUT).bytes_max(ANSWER_BYTES_MAX));
    let Value::Object(mut fields) = reply.await?.json()? else {
        return Err(FetchError::Nonsense);
    };
    let detail = fields.remove("detail");
    let code = fields.get("status");
    let problem = json!({"code": code, "blocking": true, "detail": detail});
    fields.insert("ready".into(), json!(false));
    fields.insert("problems".into(), json!([problem]));
    Ok(Value::Object(fields))
}

/// `/status` of the first address that answers, or why none did.
async fn ask(addresses: &[SocketAddr]) -> Result<Value, String> {
    crate::identity::provide_tls();
    let mut tried = Vec::new();
    for address in addresses {
        match ask_one(*address).await {
            Ok(Value::Object(mut fields)) if fields.contains_key("status") => {
                fields.insert("address".into(), json!(address.to_string()));
                return Ok(Value::Object(fields));
            }
            Ok(_) => tried.push(format!("{address} is another program")),
            Err(error) => tried.push(format!("{address}: {}", crate::check::chain(&error))),
        }
    }
    Err(tried.join("; "))
}

/// The answer of a process, or what the store says of the one that last ingested into it.
async fn find(config: &Config, addresses: &[SocketAddr]) -> Value {
    let mut tried = match ask(addresses).await {
        Ok(answer) => return answer,
        Err(tried) => tried,
    };
    let process = Process::new(Clock::Wall);
    let mut more = serde_json::Map::new();
    match store::last_heartbeat(config) {
        Ok(Some((at_us, report))) => {
            process.set_ingester(at_us, &report);
            let at = record::datetime::format_us(at_us);
            more.insert("last_report".into(), json!(at));
        }
        Ok(None) => process.expect_ingester(),
        Err(error) => drop(more.insert("store_error".into(), json!(error.to_string()))),
    }
    // It may answer where the file does not say.
    let said = process.ingester().and_then(|it| it.said?.address);
    if let Some(address) = said.and_then(|address| address.parse().ok())
        && !addresses.contains(&address)
    {
        match ask(&[address]).await {
            Ok(answer) => return answer,
            Err(also) => tried = format!("{tried}; {also}"),
        }
    }
    let now_us = Clock::Wall.now_us();
    let problems = process.problems(now_us, &Writing::default());
    let shown: Vec<_> = problems.iter().map(|one| one.shown(now_us)).collect();
    more.insert("status".into(), json!("no answer"));
    more.insert("ready".into(), json!(false));
    more.insert("tried".into(), json!(tried));
    more.insert("problems".into(), json!(shown));
    let ingestion = process.ingestion(now_us).shown(now_us);
    more.insert("ingestion".into(), ingestion);
    Value::Object(more)
}

/// The answer as a person reads it.
fn words(answer: &Value) -> String {
    let mut text = String::new();
    // Writing into a text does not fail.
    let (Ok(()) | Err(std::fmt::Error)) = write_words(&mut text, answer);
    text
}

fn write_words(text: &mut String, answer: &Value) -> std::fmt::Result {
    let word = |name: &str| answer.get(name).and_then(Value::as_str);
    match (word("address"), answer.get("ready")) {
        (Some(address), Some(Value::Bool(true))) => writeln!(text, "ready ({address})")?,
        (Some(address), _) => writeln!(text, "NOT READY ({address})")?,
        (None, _) => {
            writeln!(text, "NO PROCESS ANSWERS")?;
            writeln!(text, "  {}", word("tried").unwrap_or_default())?;
            match word("last_report") {
                Some(at) => writeln!(text, "  the ingesting process last reported at {at}")?,
                None => writeln!(text, "  the store holds no report of an ingesting process")?,
            }
        }
    }
    if let Some(error) = word("store_error") {
        writeln!(text, "the store does not answer: {error}")?;
    }
    if let Some(detail) = word("detail") {
        writeln!(text, "  {detail}")?;
    }
    let problems = answer.get("problems").and_then(Value::as_array);
    for problem in problems.into_iter().flatten() {
        write_problem(text, problem)?;
    }
    if problems.is_some_and(Vec::is_empty) && word("address").is_some() {
        writeln!(text, "nothing is wrong")?;
    }
    if let Some(loading) = answer.pointer("/timelines/loading")
        && let Some(percent) = loading.get("percent")
    {
        writeln!(
            text,
            "timelines are loaded to {percent} %; pages come from the store meanwhile"
        )?;
    }
    write_sources(text, answer.get("ingestion").unwrap_or(&Value::Null))?;
    for (name, field) in [
        ("records", "total_records"),
        ("accounts", "accounts"),
        ("dead letters", "dead_letters"),
        ("frames held", "held"),
    ] {
        if let Some(count) = answer.get(field).and_then(Value::as_i64) {
            writeln!(text, "{name}: {count}")?;
        }
    }
    Ok(())
}

fn write_problem(text: &mut String, problem: &Value) -> std::fmt::Result {
    let word = |name: &str| problem.get(name).and_then(Value::as_str);
    let kind = match problem.get("blocking") {
        Some(Value::Bool(false)) => "warning",
        _ => "problem",
    };
    let (code, detail) = (word("code").unwrap_or("?"), word("detail").unwrap_or("?"));
    writeln!(text, "{kind}: {code}: {detail}")?;
    if let Some(since) = word("since") {
        let seconds = problem.get("seconds").and_then(Value::as_i64);
        writeln!(text, "  since {since} ({} s)", seconds.unwrap_or(0))?;
    }
    match word("advice") {
        Some(advice) => writeln!(text, "  {advice}"),
        None => Ok(()),
    }
}

fn write_sources(text: &mut String, ingestion: &Value) -> std::fmt::Result {
    let streams = ingestion.get("streams").and_then(Value::as_array);
    for source in streams.into_iter().flatten() {
        let word = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or("?");
        let connected = match source.get("connected") {
            Some(Value::Bool(true)) => "connected",
            _ => "NOT CONNECTED",
        };
        let lag = source.get("lag_seconds").and_then(Value::as_f64);
        writeln!(
            text,
            "source {} ({}): {connected} since {}, {:.1} s behind",
            word("name"),
            word("kind"),
            word("since"),
            lag.unwrap_or(0.0)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: crate::clock::Micros = 1_790_000_000_000_000;

    #[test]
    fn every_condition_is_named_in_words_with_what_to_do() {
        for condition in crate::condition::Condition::ALL {
            let problem = crate::condition::Problem {
                condition: *condition,
                since_us: NOW - 5_000_000,
                detail: "the detail".into(),
            };
            let answer = json!({
                "status": "not ready", "ready": false, "address": "127.0.0.1:1",
                "problems": [problem.shown(NOW)],
            });
            let text = words(&answer);
            assert!(text.starts_with("NOT READY (127.0.0.1:1)\n"), "{text}");
            let named = format!(": {}: the detail\n", condition.code());
            assert!(text.contains(&named), "{text}");
            assert!(text.contains("(5 s)\n"), "{text}");
            assert!(text.contains(condition.advice()), "{text}");
        }
    }

    #[test]
    fn a_process_that_listens_everywhere_is_asked_on_this_machine() {
        let asked = |bind: &str| reachable(bind.parse().unwrap()).to_string();
        assert_eq!(asked("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(asked("[::]:80"), "[::1]:80");
        assert_eq!(asked("192.0.2.1:80"), "192.0.2.1:80");
    }
}
