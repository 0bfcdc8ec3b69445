//! `feedmill init` and `feedmill check-config`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Ending, say};
use crate::check;
use crate::config::{Config, Overrides, TEMPLATE};

/// Writes a commented file; never over one that is there.
pub(super) fn init(file: &Path) -> Result<(), Ending> {
    use std::io::Write as _;
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(|error| format!("cannot create {}: {error}", file.display()))?;
    out.write_all(TEMPLATE.as_bytes())?;
    say(&format!(
        "wrote {}; next: feedmill check-config {0}",
        file.display()
    ));
    Ok(())
}

/// Arguments of `check-config`: those of `run`, so that both judge the same settings.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The file to check
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
}

impl Check {
    /// Checks a file, its lexicons included, and lists every error of both.
    pub(super) fn run(self) -> Result<(), Ending> {
        let (config, faults) = Config::examine(&self.file, &self.overrides)?;
        let mut lines: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
        let lexicons = config.as_ref().map(|config| check::lexicons(config, &[]));
        if let Some(Err(error)) = lexicons {
            lines.extend(error.lines());
        }
        match (config, lines.as_slice()) {
            (Some(config), []) => {
                say(&format!(
                    "{} is good: {} collections, {} feeds, {} sources",
                    self.file.display(),
                    config.collections.len(),
                    config.feeds.len(),
                    config.sources.len()
                ));
                Ok(())
            }
            (_, [line]) => Err(line.clone().into()),
            (_, lines) => Err(format!("{} errors\n  {}", lines.len(), lines.join("\n  ")).into()),
        }
    }
}
