//! The lease: at most one process ingests into a store.
//!
//! In:    the store of a configuration.
//! Out:   a lease, at once or when the process that holds it ends.
//! Never: two processes with a lease on one store; a lease that outlives its process.
//!
//! It is a lock of the operating system on a file beside the store, not a row with a time in it: the
//! system ends it with the process, however that dies, and no clock decides. Whoever waits sleeps
//! until then.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::PathBuf;

use tokio::sync::oneshot;

use crate::config;

/// The right to ingest; dropping it ends it.
#[derive(Debug)]
pub struct Lease {
    /// `None` for a store in memory, which no other process can reach.
    _lock: Option<File>,
}

/// A lease, or another process that has it.
#[derive(Debug)]
pub enum Claim {
    Held(Lease),
    Taken(Wait),
}

/// A place in the queue for a lease.
#[derive(Debug)]
pub struct Wait {
    file: File,
}

impl Lease {
    /// Takes the lease of a store if it is free.
    pub fn claim(store: &config::Store) -> io::Result<Claim> {
        let Some(path) = path(store) else {
            return Ok(Claim::Held(Self { _lock: None }));
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Self::holding(file).map(Claim::Held),
            Err(TryLockError::WouldBlock) => Ok(Claim::Taken(Wait { file })),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Notes whose it is, for people who look.
    fn holding(mut file: File) -> io::Result<Self> {
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { _lock: Some(file) })
    }
}

impl Wait {
    /// Waits until the other process ends.
    ///
    /// A thread of its own waits, which a stopping process does not wait for.
    pub async fn lease(self) -> io::Result<Lease> {
        let (sender, taken) = oneshot::channel();
        let waiting = move || {
            let locked = self.file.lock();
            // If nobody waits any more, the lock goes with the file.
            drop(sender.send(locked.map(|()| self.file)));
        };
        std::thread::Builder::new()
            .name("lease".into())
            .spawn(waiting)?;
        match taken.await {
            Ok(file) => Lease::holding(file?),
            Err(ended) => Err(io::Error::other(ended)),
        }
    }
}

fn path(store: &config::Store) -> Option<PathBuf> {
    Some(store.file()?.with_extension("ingest.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_lease_begins_when_the_first_one_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store = config::Store {
            url: format!("sqlite://{}", folder.path().join("feedmill.db").display()),
            ..config::Store::default()
        };
        let Claim::Held(first) = Lease::claim(&store).unwrap() else {
            panic!("nobody else has it");
        };
        let Claim::Taken(wait) = Lease::claim(&store).unwrap() else {
            panic!("two leases");
        };
        let second = tokio::spawn(wait.lease());
        assert!(matches!(Lease::claim(&store).unwrap(), Claim::Taken(_)));
        assert!(!second.is_finished());
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(matches!(Lease::claim(&store).unwrap(), Claim::Taken(_)));
        drop(second);
        assert!(matches!(Lease::claim(&store).unwrap(), Claim::Held(_)));
    }
}
