//! Archives: fetched repositories, on disk until they are opened.
//!
//! In:    bytes as a host sends them.
//! Out:   a file that no folder names, so that it is gone when nobody holds it,
//!        also if the process dies; and its bytes in memory, one archive after
//!        another under one budget.
//! Never: more bytes of archives on disk, or of archives and what is made of
//!        them in memory, than their budgets.
//!
//! What is made of an archive is larger than the archive, and how much larger
//! its author decides. So room is held for several times its bytes, and whoever
//! opens it keeps within that room. An archive that needs more is opened alone,
//! in the whole budget.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fetch::FetchError;
use crate::metrics as names;

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of one permit of the budget: there are fewer permits than bytes.
const UNIT_BYTES: u64 = 1024;

/// Room that an archive is given, in times its bytes, and at least.
const ROOM_TIMES: u64 = 8;
const ROOM_BYTES_MIN: u64 = 4 << 20;
/// How long to wait where the disk's budget is used up.
const DISK_PAUSE: Duration = Duration::from_secs(10);

/// Disk for archives that are being written or wait to be opened.
#[derive(Debug)]
pub struct Disk {
    bytes_max: u64,
    used: AtomicU64,
}

impl Disk {
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            used: AtomicU64::new(0),
        }
    }
}

/// Bytes on disk; given back when it is dropped.
#[derive(Debug)]
struct Stored {
    disk: Arc<Disk>,
    bytes: u64,
}

impl Stored {
    /// Takes more of the budget, if there is as much.
    fn grow(&mut self, bytes: u64) -> Result<(), FetchError> {
        let used = self.disk.used.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.bytes += bytes;
        gauge!(names::REPO_BYTES, "place" => "disk").set(used as f64);
        match used <= self.disk.bytes_max {
            true => Ok(()),
            false => Err(FetchError::Later(DISK_PAUSE)),
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        let before = self.disk.used.fetch_sub(self.bytes, Ordering::SeqCst);
        let left = before.saturating_sub(self.bytes);
        gauge!(names::REPO_BYTES, "place" => "disk").set(left as f64);
    }
}

/// Memory for archives that are open.
#[derive(Debug)]
pub struct Memory {
    units: u32,
    free: Arc<Semaphore>,
    held: AtomicU64,
    most: AtomicU64,
}

impl Memory {
    pub fn new(bytes_max: usize) -> Self {
        let units = u32::try_from(bytes_max as u64 / UNIT_BYTES).unwrap_or(u32::MAX >> 3);
        let units = units.clamp(1, u32::MAX >> 3);
        Self {
            units,
            free: Arc::new(Semaphore::new(units as usize)),
            held: AtomicU64::new(0),
            most: AtomicU64::new(0),
        }
    }

    /// Waits until there is room for so many bytes.
    async fn hold(self: &Arc<Self>, bytes: u64) -> Result<Room, FetchError> {
        let wanted = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let wanted = wanted.min(self.units);
        let permit = Arc::clone(&self.free).acquire_many_owned(wanted).await;
        let bytes = u64::from(wanted) * UNIT_BYTES;
        let held = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most.fetch_max(held, Ordering::SeqCst);
        gauge!(names::REPO_BYTES, "place" => "memory").set(held as f64);
        Ok(Room {
            memory: Arc::clone(self),
            bytes,
            _permit: permit.map_err(|_| FetchError::Later(std::time::Duration::ZERO))?,
        })
    }

    /// The most bytes that were ever held at once.
    pub fn most_bytes(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }
}

/// Room in memory; given back when it is dropped.
#[derive(Debug)]
pub struct Room {
    memory: Arc<Memory>,
    bytes: u64,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    /// Bytes of the room.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Whether there is no larger one.
    pub fn is_whole(&self) -> bool {
        self.bytes >= u64::from(self.memory.units) * UNIT_BYTES
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let before = self.memory.held.fetch_sub(self.bytes, Ordering::SeqCst);
        gauge!(names::REPO_BYTES, "place" => "memory")
            .set(before.saturating_sub(self.bytes) as f64);
    }
}

/// A repository on disk.
#[derive(Debug)]
pub struct Archive {
    file: File,
    stored: Stored,
    memory: Arc<Memory>,
}

impl Archive {
    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.stored.bytes
    }

    /// Waits until there is room for it, and for what is made of it, in memory. Hold it for as long as both.
    pub async fn room(&self) -> Result<Room, FetchError> {
        let bytes = self.bytes().saturating_mul(ROOM_TIMES);
        self.memory.hold(bytes.max(ROOM_BYTES_MIN)).await
    }

    /// Waits until all memory for archives is free.
    pub async fn whole_room(&self) -> Result<Room, FetchError> {
        self.memory.hold(u64::MAX).await
    }

    /// Reads all of it; needs [`Archive::room`] first. Blocks.
    pub fn read(&mut self, _room: &Room) -> Result<Vec<u8>, FetchError> {
        let mut read = || {
            self.file.rewind()?;
            let bytes = self.stored.bytes;
            let mut all = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            (&mut self.file).take(bytes).read_to_end(&mut all)?;
            Ok(all)
        };
        read().map_err(FetchError::Disk)
    }
}

/// An archive that is being written.
#[derive(Debug)]
pub(super) struct Writing {
    file: Option<File>,
    gathered: Vec<u8>,
    stored: Stored,
}

impl Writing {
    /// Begins a file in a folder.
    pub(super) async fn begin(folder: PathBuf, disk: &Arc<Disk>) -> Result<Self, FetchError> {
        let file = blocking(move || tempfile::tempfile_in(folder)).await?;
        Ok(Self {
            file: Some(file),
            gathered: Vec::new(),
            stored: Stored {
                disk: Arc::clone(disk),
                bytes: 0,
            },
        })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.stored.grow(bytes.len() as u64)?;
        self.gathered.extend_from_slice(bytes);
        match self.gathered.len() >= WRITE_BYTES {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<(), FetchError> {
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        let mut gathered = std::mem::take(&mut self.gathered);
        let written = blocking(move || {
            file.write_all(&gathered)?;
            gathered.clear();
            Ok((file, gathered))
        });
        let (file, gathered) = written.await?;
        (self.file, self.gathered) = (Some(file), gathered);
        Ok(())
    }

    pub(super) async fn end(mut self, memory: &Arc<Memory>) -> Result<Archive, FetchError> {
        self.flush().await?;
        let gone = || FetchError::Disk(std::io::ErrorKind::NotFound.into());
        Ok(Archive {
            file: self.file.ok_or_else(gone)?,
            stored: self.stored,
            memory: Arc::clone(memory),
        })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, FetchError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| Err(std::io::ErrorKind::Interrupted.into()));
    done.map_err(FetchError::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(disk: &Arc<Disk>, bytes: &[u8]) -> Result<Writing, FetchError> {
        let folder = tempfile::tempdir().unwrap();
        let mut writing = Writing::begin(folder.path().to_owned(), disk).await?;
        for piece in bytes.chunks(700_000) {
            writing.write(piece).await?;
        }
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "no folder names the file");
        Ok(writing)
    }

    async fn archive(memory: &Arc<Memory>, bytes: &[u8]) -> Archive {
        let disk = Arc::new(Disk::new(u64::MAX));
        written(&disk, bytes)
            .await
            .unwrap()
            .end(memory)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn what_is_written_in_pieces_is_read_whole_and_more_than_once() {
        let memory = Arc::new(Memory::new(4 << 20));
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let mut archive = archive(&memory, &bytes).await;
        // With what is made of it, it takes the whole budget.
        let room = archive.room().await.unwrap();
        assert!(room.is_whole());
        assert_eq!(room.bytes(), 4 << 20);
        assert_eq!(archive.read(&room).unwrap(), bytes);
        assert_eq!(archive.read(&room).unwrap(), bytes);
        drop(room);
        assert_eq!(memory.free.available_permits(), memory.units as usize);
    }

    #[tokio::test]
    async fn archives_on_disk_stay_within_the_budget_and_give_it_back() {
        let disk = Arc::new(Disk::new(2_000_000));
        let first = written(&disk, &[7; 1_500_000]).await.unwrap();
        let full = written(&disk, &[7; 1_500_000]).await;
        assert!(matches!(full, Err(FetchError::Later(_))));
        let memory = Arc::new(Memory::new(1 << 20));
        let archive = first.end(&memory).await.unwrap();
        assert_eq!(disk.used.load(Ordering::SeqCst), 1_500_000);
        drop(archive);
        assert_eq!(disk.used.load(Ordering::SeqCst), 0);
        assert!(written(&disk, &[7; 1_500_000]).await.is_ok());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn eight_archives_at_once_stay_within_the_budget() {
        let memory = Arc::new(Memory::new(14 << 20));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut archive = archive(&memory, &vec![7; 800_000]).await;
            tasks.spawn(async move {
                let room = archive.room().await.unwrap();
                assert!(!room.is_whole());
                let opened = tokio::task::spawn_blocking(move || {
                    let read = archive.read(&room).unwrap().len();
                    drop(room);
                    read
                });
                opened.await.unwrap()
            });
        }
        while let Some(done) = tasks.join_next().await {
            assert_eq!(done.unwrap(), 800_000);
        }
        assert!(memory.most_bytes() >= 8 * 800_000);
        assert!(memory.most_bytes() <= 14 << 20, "{}", memory.most_bytes());
    }
}
