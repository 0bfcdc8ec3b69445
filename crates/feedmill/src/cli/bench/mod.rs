//! `feedmill bench`: numbers, each with its baseline beside it in the same run.
//!
//! In:    the name of a bench.
//! Out:   figures in CPU-seconds, ratios to baselines, what must be reached.
//! Never: a figure without its workload; wall time where both sides allow CPU time.
//!
//! Run with the `dist` profile: `cargo run --profile dist -- bench fanout --json`.

mod crowd;
mod decode;
mod deep;
mod fair;
mod fanout;
mod folder;
mod hostile;
mod intake;
mod load;
mod log;
mod log_http;
mod memory;
mod meter;
mod nats;
mod read;
mod redis;
mod restart;
mod sql;
mod timelines;
mod validate;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{Ending, say};

/// Which bench.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// What to measure
    name: Name,
    /// Print one JSON line instead of a table
    #[arg(long)]
    json: bool,
    /// Share of the full workload; figures are only comparable at 1
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// What the baseline of `read` serves, the file of that of `log`, the configuration of that of `restart`
    #[arg(long, hide = true)]
    body: Vec<std::path::PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Frames opened and hashed; and with every proof checked
    Decode,
    /// Raw frames to committed rows, at five million rows
    Intake,
    /// Posts held against their lexicon
    Validate,
    /// Pushes into capped timelines of a million active readers
    Fanout,
    /// The first page of a reader never seen
    Coldstart,
    /// Delete and unfollow
    Delete,
    /// A page ten thousand entries down
    Deep,
    /// How soon a small post is seen while one to 31 million runs
    Fair,
    /// Bytes of a timeline entry, and of a world of public size
    Memory,
    /// Appends and pages of the log, up to ten million blocks
    Log,
    /// Fan-out and read at one and at ten million records
    Growth,
    /// Pages over HTTP, hydrated and as skeletons
    Read,
    /// From the start of a process to its first page, at half a million and five million records
    Restart,
    /// Orders that one author chooses, beside friendly ones
    Hostile,
    /// The baseline of `read`
    #[value(hide = true)]
    Static,
    /// The baseline of appends over HTTP
    #[value(hide = true)]
    RawLog,
    /// The baseline of `restart`
    #[value(hide = true)]
    Open,
}

/// What a bench found.
#[derive(Debug, Default)]
struct Report {
    workload: String,
    figures: Map<String, Value>,
    ratios: Map<String, Value>,
    /// (what, found, bound, whether more is better)
    musts: Vec<(&'static str, f64, f64, bool)>,
    notes: Vec<String>,
}

impl Report {
    fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), json!(rounded(value)));
    }

    fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.insert(name.to_owned(), json!(rounded(value)));
    }

    fn at_least(&mut self, what: &'static str, found: f64, bound: f64) {
        self.musts.push((what, found, bound, true));
    }

    fn at_most(&mut self, what: &'static str, found: f64, bound: f64) {
        self.musts.push((what, found, bound, false));
    }
}

/// A share of the full workload, and never so little that it says nothing.
fn scaled(full: usize, scale: f64) -> usize {
    ((full as f64 * scale) as usize).max(1000)
}

/// Three significant places are more than a shared machine can promise.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let factor = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * factor).round() / factor
}

impl Bench {
    pub(super) fn run(self) -> Result<(), Ending> {
        let scale = self.scale.clamp(0.001, 1.0);
        let report = match self.name {
            Name::Decode => decode::run()?,
            Name::Intake => intake::run(scale)?,
            Name::Validate => validate::run()?,
            Name::Fanout => fanout::run(scale)?,
            Name::Coldstart => timelines::coldstart(scale)?,
            Name::Delete => timelines::delete(scale)?,
            Name::Deep => deep::run(scale)?,
            Name::Fair => fair::run(scale),
            Name::Memory => memory::run(scale)?,
            Name::Log => log::run(scale)?,
            Name::Growth => timelines::growth(scale),
            Name::Read => read::run(scale)?,
            Name::Restart => restart::run(scale)?,
            Name::Hostile => hostile::run(scale)?,
            Name::Open => return restart::print_page(&self.body),
            Name::Static => return read::serve_static(&self.body),
            Name::RawLog => return log_http::serve_raw(&self.body),
        };
        let name = self
            .name
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned());
        let met = report.musts.iter().all(|(_, found, bound, more)| {
            if *more {
                found >= bound
            } else {
                found <= bound
            }
        });
        if self.json {
            let musts: Vec<Value> = report
                .musts
                .iter()
                .map(|(what, found, bound, more)| {
                    json!({"what": what, "found": rounded(*found), "bound": bound, "is": if *more { "at least" } else { "at most" }})
                })
                .collect();
            say(&json!({
                "bench": name, "workload": report.workload, "scale": scale, "figures": report.figures,
                "ratios": report.ratios, "musts": musts, "met": met, "notes": report.notes,
            })
            .to_string());
            return Ok(());
        }
        say(&format!("{name}: {}", report.workload));
        for (name, value) in report.figures.iter().chain(&report.ratios) {
            say(&format!("  {name:32} {value}"));
        }
        for (what, found, bound, more) in &report.musts {
            let good = if *more {
                found >= bound
            } else {
                found <= bound
            };
            let word = if *more { "at least" } else { "at most" };
            say(&format!(
                "  {} {what}: {} ({word} {bound})",
                if good { "met    " } else { "NOT MET" },
                rounded(*found)
            ));
        }
        for note in &report.notes {
            say(&format!("  note: {note}"));
        }
        Ok(())
    }
}
