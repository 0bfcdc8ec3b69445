//! `feedmill repair-clock`: records that were stored under a wrong clock get their right times.
//!
//! In:    the store of a configuration, which no process uses, and a clock that is right.
//! Out:   what was found and how far the clock was off; every order made anew.
//! Never: a repair while another process ingests.

use clap::Args;

use super::kept::Kept;
use super::{Ending, say};
use crate::clock::Clock;
use crate::file;
use crate::lease::{Claim, Lease};
use crate::store::{self, skew::Stretch};

/// Which store.
#[derive(Debug, Args)]
pub(super) struct RepairClock {
    #[command(flatten)]
    kept: Kept,
    /// Only say what would be repaired
    #[arg(long)]
    dry_run: bool,
}

impl RepairClock {
    pub(super) fn run(&self) -> Result<(), Ending> {
        let config = self.kept.config()?;
        let now_us = Clock::Wall.now_us();
        if self.dry_run {
            return list(&store::repair_clock(&config, now_us, true)?);
        }
        let Claim::Held(_lease) = Lease::claim(&config.store)? else {
            return Err("a process ingests into this store; stop every process that uses it, then run this again".into());
        };
        let found = store::repair_clock(&config, now_us, false)?;
        list(&found)?;
        if !found.is_empty() {
            // The search index holds times too; the next start makes it from the records.
            if let Some(path) = config.store.search_file() {
                file::discard(&path)?;
            }
            say("repaired; the search index is built anew at the next start");
        }
        Ok(())
    }
}

fn list(found: &[Stretch]) -> Result<(), Ending> {
    if found.is_empty() {
        say("no records were stored under a wrong clock");
    }
    for stretch in found {
        let at = record::datetime::format_us;
        let way = if stretch.error_us > 0 {
            "ahead"
        } else {
            "behind"
        };
        let (from, to) = (at(stretch.from_us), at(stretch.to_us));
        let (records, off_s) = (stretch.records, stretch.error_us.abs() / 1_000_000);
        say(&format!(
            "{records} records stored from {from} to {to} by a clock that was {off_s} s {way}"
        ));
    }
    Ok(())
}
