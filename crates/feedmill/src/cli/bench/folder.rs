//! A folder for the files of one bench, on the disk where temporary files are.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Goes, with all that is in it, when the bench does.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(bench: &str) -> std::io::Result<Self> {
        let name = format!("feedmill-bench-{bench}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is a nuisance, not a wrong figure.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
