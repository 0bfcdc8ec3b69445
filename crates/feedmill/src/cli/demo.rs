//! `feedmill demo`: a living feed on a simulated network, in one process.
//!
//! The network is real but for its inhabitants: signed commits over a
//! WebSocket on loopback, repositories served by a host, a directory. With
//! `--once` a small world runs to its end, and every feed is compared with
//! the naive model.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sim::compose::{FOLLOW, ODD, POST};
use sim::model::Rules;
use sim::network::{Network, NetworkOptions};
use sim::world::{World, WorldOptions};

use super::{Ending, complain, say};
use crate::clock::Clock;
use crate::config::Config;
use crate::river::{River, Role, Start};

/// How long a small world may take to be read to its end.
const ONCE_MAX: Duration = Duration::from_secs(600);

/// Arguments of the demo.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Run a small world to its end, compare every feed with the model, and exit
    #[arg(long)]
    once: bool,
    /// Print one JSON line instead of prose (with --once)
    #[arg(long)]
    json: bool,
    /// Seed of the world
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Accounts in the world
    #[arg(long)]
    accounts: Option<usize>,
    /// Events to run through (with --once)
    #[arg(long, default_value_t = 3000)]
    events: usize,
    /// Events per second
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Port to serve on
    #[arg(long, env = "PORT", default_value_t = 8080)]
    port: u16,
}

/// The configuration of a demo on `network`.
pub(crate) fn config(network: &Network, bind: &str, store: &str) -> Result<Config, Ending> {
    let text = format!(
        r#"
namespace = "com.example"
[collections.follow]
collection = "{FOLLOW}"
[collections.post]
collection = "{POST}"
[collections.note]
collection = "{ODD}"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
max_items = 500
[feeds.garden]
follow = "follow"
targets = ["post", "note"]
mixed = true
include_self = true
[[source]]
name = "sim"
firehose = "{relay}"
[store]
url = "{store}"
[intake]
plc_url = "{plc}"
did_web_url = "{web}"
[serve]
bind = "{bind}"
"#,
        relay = network.relay_ws_url(),
        plc = network.plc_url,
        web = network.web_url,
    );
    Ok(Config::parse(&text)?)
}

impl Demo {
    pub(super) fn run(self) -> ExitCode {
        super::log("warn");
        let result = super::runtime().map_err(Ending::from).and_then(|runtime| {
            runtime.block_on(async {
                if self.once {
                    self.once().await
                } else {
                    self.live().await.map(|()| true)
                }
            })
        });
        match result {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                complain(&*error);
                ExitCode::FAILURE
            }
        }
    }

    fn world(&self, accounts: usize) -> World {
        World::new(WorldOptions {
            seed: self.seed,
            accounts: self.accounts.unwrap_or(accounts),
            ..WorldOptions::default()
        })
    }

    async fn live(self) -> Result<(), Ending> {
        let options = NetworkOptions {
            clock: sim::network::Clock::Wall,
            ..NetworkOptions::default()
        };
        let mut network = Network::start(self.world(2000), options).await?;
        let config = config(
            &network,
            &format!("127.0.0.1:{}", self.port),
            "sqlite::memory:",
        )?;
        let start = Start {
            role: Role::All,
            clock: Clock::Wall,
            lexicons: sim::lexicons::ALL,
        };
        let river = River::start(&config, start).await?;
        let reader = network.world(|world| world.readers().first().cloned());
        let (address, reader) = (
            river
                .address
                .map(|address| address.to_string())
                .unwrap_or_default(),
            reader.unwrap_or_default(),
        );
        say("A simulated network is running, and Feedmill reads it over a WebSocket.\n");
        say(&format!("  open   http://{address}/"));
        say(&format!(
            "  try    curl 'http://{address}/xrpc/com.example.getFeed?feed=timeline&actor={reader}&limit=3'"
        ));
        say(&format!("  and    curl http://{address}/status\n"));
        network.pace(self.rate);
        let stop = super::run::until_asked_to_stop();
        tokio::select! {
            () = stop => {}
            () = watch(&river) => {}
        }
        say("\nstopping");
        river.stop().await;
        network.stop().await;
        Ok(())
    }

    async fn once(&self) -> Result<bool, Ending> {
        let network = Network::start(self.world(300), NetworkOptions::default()).await?;
        let folder = std::env::temp_dir().join(format!("feedmill-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let result = self
            .compare(&network, &format!("sqlite://{}/demo.db", folder.display()))
            .await;
        network.stop().await;
        std::fs::remove_dir_all(&folder)?;
        let (report, good) = result?;
        if self.json {
            say(&report.to_string());
        } else {
            say(&format!("{report:#}"));
            say(if good {
                "every feed equals the model"
            } else {
                "MISMATCH: some feeds differ from the model"
            });
        }
        Ok(good)
    }

    async fn compare(&self, network: &Network, store: &str) -> Result<(Value, bool), Ending> {
        let config = config(network, "127.0.0.1:0", store)?;
        // The machine's time is after everything in the world, and stands still: the model then knows first sight.
        let clock = Clock::at(network.world(World::clock_us) + 366 * 86_400 * 1_000_000);
        let start = Start {
            role: Role::All,
            clock: clock.clone(),
            lexicons: sim::lexicons::ALL,
        };
        let river = River::start(&config, start).await?;
        network.emit(self.events);
        network.settle();
        let bar = self.bar(network.last_seq());
        let begun = Instant::now();
        while !river.settled("sim", network.last_seq() as i64)? {
            if begun.elapsed() > ONCE_MAX {
                return Err("the world was not read to its end in time".into());
            }
            bar.set_position(
                river
                    .store
                    .cursor("sim")?
                    .unwrap_or(0)
                    .max(0)
                    .cast_unsigned(),
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bar.finish_and_clear();
        let check = Check {
            network,
            address: river
                .address
                .map(|address| address.to_string())
                .unwrap_or_default(),
            seen_us: clock.now_us(),
        };
        let outcome = check.every_feed(self.bar(0)).await?;
        let accounting = river.store.accounting(None)?;
        let records: i64 = river
            .store
            .counts()?
            .records
            .iter()
            .map(|(_, live)| live)
            .sum();
        river.stop().await;
        let good = outcome.mismatches == 0 && accounting.adds_up() && accounting.held == 0;
        let report = json!({
            "seed": self.seed,
            "events": network.last_seq(),
            "records": records,
            "readers": outcome.readers,
            "pages": outcome.pages,
            "entries": outcome.entries,
            "mismatches": outcome.mismatches,
            "accounting": accounting,
        });
        Ok((report, good))
    }

    fn bar(&self, length: u64) -> ProgressBar {
        if !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{elapsed} {bar:30} {pos}/{len}");
        ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
}

/// Prints numbers that move, on a terminal.
async fn watch(river: &River) {
    let style = ProgressStyle::with_template("{spinner} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let line = if std::io::stderr().is_terminal() {
        ProgressBar::new_spinner().with_style(style)
    } else {
        ProgressBar::hidden()
    };
    loop {
        let status = &river.status;
        let accounting = river.store.accounting(None).unwrap_or_default();
        line.set_message(format!(
            "{} units ({:.0}/s), lag {:.1} s, {} applied, {} filtered, {} refused",
            accounting.received,
            status.rate(Clock::Wall.now_us()),
            status.lag_seconds(),
            accounting.applied,
            accounting.filtered,
            accounting.dead,
        ));
        line.tick();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Compares served feeds with the model.
struct Check<'a> {
    network: &'a Network,
    address: String,
    seen_us: i64,
}

#[derive(Default)]
struct Outcome {
    readers: usize,
    pages: usize,
    entries: usize,
    mismatches: usize,
}

impl Check<'_> {
    async fn every_feed(&self, bar: ProgressBar) -> Result<Outcome, Ending> {
        let timeline: &[&str] = &[POST];
        let garden: &[&str] = &[POST, ODD];
        let client = reqwest::Client::new();
        let readers: Vec<String> = self.network.world(|world| {
            world
                .accounts()
                .iter()
                .map(|account| account.did.to_string())
                .collect()
        });
        bar.set_length(readers.len() as u64);
        let mut outcome = Outcome {
            readers: readers.len(),
            ..Outcome::default()
        };
        for (number, reader) in readers.iter().enumerate() {
            for (feed, targets, include_self) in
                [("timeline", timeline, false), ("garden", garden, true)]
            {
                let rules = Rules {
                    follow: FOLLOW,
                    targets,
                    include_self,
                    lexicons: true,
                };
                let expected: Vec<(i64, String)> = self.network.world(|world| {
                    let entries = world.model().feed(reader, &rules, &|_| self.seen_us);
                    entries
                        .into_iter()
                        .map(|entry| (entry.time_us, entry.uri))
                        .collect()
                });
                let limit = [1, 7, 50, 200].get(number % 4).copied().unwrap_or(50);
                let limit = if expected.len() > 40 * limit {
                    200
                } else {
                    limit
                };
                let (served, pages) = self.whole(&client, feed, reader, limit).await?;
                outcome.pages += pages;
                outcome.entries += served.len();
                if served != expected {
                    outcome.mismatches += 1;
                    tracing::error!(
                        reader,
                        feed,
                        limit,
                        served = served.len(),
                        expected = expected.len(),
                        "feed differs from the model"
                    );
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(outcome)
    }

    /// A feed paged to its end: (time, uri) of each record.
    async fn whole(
        &self,
        client: &reqwest::Client,
        feed: &str,
        reader: &str,
        limit: usize,
    ) -> Result<(Vec<(i64, String)>, usize), Ending> {
        let base = format!(
            "http://{}/xrpc/com.example.getFeed?feed={feed}&actor={}&limit={limit}",
            self.address,
            reader.replace('%', "%25")
        );
        let (mut served, mut pages, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let page: Value = client
                .get(format!("{base}{cursor}"))
                .send()
                .await?
                .error_for_status()?
                .json()
                .await?;
            pages += 1;
            for record in page
                .get("records")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let time = record
                    .get("time_us")
                    .and_then(Value::as_i64)
                    .unwrap_or_default();
                let uri = record
                    .get("uri")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                served.push((time, uri.to_owned()));
            }
            match page.get("cursor").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok((served, pages)),
            }
        }
    }
}
