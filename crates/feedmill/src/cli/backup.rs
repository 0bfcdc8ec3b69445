//! `feedmill backup` and `feedmill restore`.

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::kept::Kept;
use super::{Ending, say};
use crate::backup::{self, Kind, Manifest, Progress};
use crate::clock::Clock;

/// Which files, and where the backup is.
#[derive(Debug, Args)]
pub(super) struct Backup {
    #[command(flatten)]
    kept: Kept,
    /// The folder of the backup; `backup` creates it, `restore` reads it
    folder: PathBuf,
}

impl Backup {
    /// Copies every file of the configuration, while a server may be running.
    pub(super) fn back_up(&self) -> Result<(), Ending> {
        let config = self.kept.config()?;
        let mut bars = Bars::default();
        let now_us = Clock::Wall.now_us();
        let made = backup::back_up(&config, &self.folder, now_us, &mut |it| bars.show(it))?;
        bars.end();
        list(&made);
        say(&format!("backup written to {}", self.folder.display()));
        Ok(())
    }

    /// Puts the files back, where none are.
    pub(super) fn restore(&self) -> Result<(), Ending> {
        let config = self.kept.config()?;
        let mut bars = Bars::default();
        let restored = backup::restore(&config, &self.folder, &mut |it| bars.show(it))?;
        bars.end();
        list(&restored);
        say(&format!("restored the backup of {}", restored.made));
        Ok(())
    }
}

fn list(manifest: &Manifest) {
    for file in &manifest.files {
        say(&format!("{:8} {:>14} bytes", file.kind.name(), file.bytes));
    }
}

/// A bar on the terminal for the file at hand; nothing where there is no terminal.
#[derive(Default)]
struct Bars {
    bar: Option<(Kind, ProgressBar)>,
}

impl Bars {
    fn show(&mut self, progress: Progress) {
        if self
            .bar
            .as_ref()
            .is_none_or(|(kind, _)| *kind != progress.kind)
        {
            self.end();
            let bar = ProgressBar::new(progress.total);
            let form = "{prefix:8} {wide_bar} {bytes} of {total_bytes}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style);
            }
            bar.set_prefix(progress.kind.name());
            self.bar = Some((progress.kind, bar));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_position(progress.bytes);
        }
    }

    fn end(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
