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
use sim::network::{Network, NetworkOptions};
use sim::traffic::Traffic;
use sim::world::{World, WorldOptions};

use super::{Ending, complain, say};
use crate::clock::Clock;
use crate::config::Config;
use crate::oracle::{self, Oracle};
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

    fn world(&self, accounts: usize, start_us: i64) -> World {
        World::new(WorldOptions {
            start_us,
            seed: self.seed,
            accounts: self.accounts.unwrap_or(accounts),
            traffic: Traffic::lively().and_library(),
            ..WorldOptions::default()
        })
    }

    async fn live(self) -> Result<(), Ending> {
        let options = NetworkOptions {
            clock: sim::network::Clock::Wall,
            ..NetworkOptions::default()
        };
        let mut network = Network::start(self.world(2000, Clock::Wall.now_us()), options).await?;
        let bind = format!("127.0.0.1:{}", self.port);
        let config = Config::parse(&oracle::config(&network, &bind, "sqlite::memory:"))?;
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
        say(&format!(
            "A simulated network is running, and Feedmill reads it over a WebSocket.\n
  open   http://{address}/
  try    curl 'http://{address}/xrpc/com.example.getFeed?feed=timeline&actor={reader}&limit=3'
  and    curl http://{address}/status\n"
        ));
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
        let network = Network::start(
            self.world(300, WorldOptions::default().start_us),
            NetworkOptions::default(),
        )
        .await?;
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
        let config = Config::parse(&oracle::config(network, "127.0.0.1:0", store))?;
        let start = Start {
            role: Role::All,
            clock: Clock::Wall,
            lexicons: sim::lexicons::ALL,
        };
        let since_us = Clock::Wall.now_us();
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
        let address = river.address.map(|address| address.to_string());
        let bar = self.bar(0);
        let oracle = Oracle::new(network, address.unwrap_or_default(), since_us);
        let outcome = oracle
            .every_feed(&|done, all| {
                bar.set_length(all as u64);
                bar.set_position(done as u64);
            })
            .await?;
        bar.finish_and_clear();
        if let Some(difference) = &outcome.first {
            tracing::error!(difference, "a feed differs from the model");
        }
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
            "feeds": outcome.feeds,
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
            status.lag_seconds(Clock::Wall.now_us()),
            accounting.applied,
            accounting.filtered,
            accounting.dead,
        ));
        line.tick();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
