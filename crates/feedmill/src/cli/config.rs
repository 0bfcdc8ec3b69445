//! `feedmill init` and `feedmill check-config`.

use std::path::Path;

use super::{Ending, say};
use crate::config::{Config, TEMPLATE};
use crate::store::Plan;

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

/// Checks a file, its lexicons included.
pub(super) fn check(file: &Path) -> Result<(), Ending> {
    let config = Config::load(file)?;
    let plan = std::sync::Arc::new(Plan::new(&config));
    crate::check::Checker::new(&config, plan, &[])?;
    say(&format!(
        "{} is good: {} collections, {} feeds, {} sources",
        file.display(),
        config.collections.len(),
        config.feeds.len(),
        config.sources.len()
    ));
    Ok(())
}
