//! The command line: one verb, one file.

mod backup;
mod bench;
mod config;
mod dead;
mod demo;
mod explain;
mod kept;
mod lexicons;
mod log;
mod publish;
mod repair;
mod run;
mod simulate;
mod status;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Streams of records in, feeds out.
#[derive(Debug, Parser)]
#[command(name = "feedmill", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a living feed on a simulated network; nothing to install or configure
    Demo(demo::Demo),
    /// Read the sources and serve the feeds
    Run(run::Run),
    /// Read the sources into the store, serving nothing
    Ingest(run::Run),
    /// Serve the feeds from the store, reading nothing
    Serve(run::Run),
    /// Write a commented configuration file
    Init {
        /// Where to write it
        #[arg(default_value = "feedmill.toml")]
        file: PathBuf,
    },
    /// Check a configuration file, with the environment as `run` reads it, and list every error
    CheckConfig(config::Check),
    /// Say how a running process is and what is wrong; exit code 1 if anything is
    Status(status::Status),
    /// Copy the store, search index, labels and log into a new folder, also while a server runs
    Backup(backup::Backup),
    /// Put the files of a backup back; existing files are never overwritten
    Restore(backup::Backup),
    /// Give records that were stored under a wrong clock their right times
    RepairClock(repair::RepairClock),
    /// Dead letters: list, show, replay, discard
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Say why a record is, or is not, in a reader's feed
    Explain(explain::Explain),
    /// The log: append, query, tail, list, replicate, conflicts, verify
    #[command(subcommand)]
    Log(log::Log),
    /// Lexicons of our methods, for code generators
    #[command(subcommand)]
    Lexicons(lexicons::Lexicons),
    /// Write the record by which Bluesky clients find a feed
    PublishFeed(publish::Publish),
    /// Delete that record
    UnpublishFeed(publish::Unpublish),
    /// Simulated networks
    #[command(subcommand)]
    Sim(simulate::Sim),
    /// Measure, each figure with its baseline beside it
    Bench(bench::Bench),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.verb {
        Verb::Demo(demo) => return demo.run(),
        Verb::Run(run) => run.run(crate::river::Role::All),
        Verb::Ingest(run) => run.run(crate::river::Role::Ingest),
        Verb::Serve(run) => run.run(crate::river::Role::Serve),
        Verb::Status(status) => match status.run() {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Verb::Init { file } => config::init(&file),
        Verb::CheckConfig(check) => check.run(),
        Verb::Backup(backup) => backup.back_up(),
        Verb::Restore(backup) => backup.restore(),
        Verb::RepairClock(repair) => repair.run(),
        Verb::Dead(dead) => dead.run(),
        Verb::Explain(explain) => explain.run(),
        Verb::Log(log) => log.run(),
        Verb::Lexicons(lexicons) => lexicons.run(),
        Verb::PublishFeed(publish) => publish.run(),
        Verb::UnpublishFeed(unpublish) => unpublish.run(),
        Verb::Sim(sim) => sim.run(),
        Verb::Bench(bench) => bench.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::FAILURE
        }
    }
}

/// Errors that end the program.
pub(crate) type Ending = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn complain(error: &dyn std::error::Error) {
    #[allow(clippy::print_stderr)]
    {
        eprintln!("feedmill: {}", crate::check::chain(error));
    }
}

/// Speaks to the person at the terminal; if nobody listens any more (`| head`), that is the end.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    match writeln!(std::io::stdout().lock(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            complain(&error);
            std::process::exit(1);
        }
    }
}

/// Replaces what is logged.
type Relog = Box<dyn Fn(tracing_subscriber::EnvFilter) -> bool + Send + Sync>;

static RELOG: std::sync::OnceLock<Relog> = std::sync::OnceLock::new();

/// Logs to standard error; `RUST_LOG` chooses what.
pub(crate) fn log(default: &str) {
    let filter =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| default.into());
    let plain = std::env::var("FEEDMILL_LOG_JSON").is_err();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second call, as in tests, keeps the first.
    if plain {
        let builder = builder.with_filter_reloading();
        let handle = builder.reload_handle();
        if builder.try_init().is_ok() {
            drop(RELOG.set(Box::new(move |filter| handle.reload(filter).is_ok())));
        }
    } else {
        let builder = builder.json().with_filter_reloading();
        let handle = builder.reload_handle();
        if builder.try_init().is_ok() {
            drop(RELOG.set(Box::new(move |filter| handle.reload(filter).is_ok())));
        }
    }
}

/// Logs from now on what a configuration says; false if `RUST_LOG` decides it.
pub(crate) fn relog(logging: &str) -> bool {
    let chosen = std::env::var_os("RUST_LOG").is_some();
    !chosen && RELOG.get().is_some_and(|relog| relog(logging.into()))
}

/// Says how many threads answer sockets, as everywhere where tokio is used.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// The threads of the rim: one less than there are processors, because the writer, the drawer
/// and those who read from the store need one too. One thread too many is woken again and again
/// to find that another has the work already, which costs a tenth of a read.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if std::env::var_os(WORKER_THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        threads.worker_threads(processors.saturating_sub(1).max(1));
    }
    threads.enable_all().build()
}
