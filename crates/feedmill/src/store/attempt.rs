//! An attempt marker: a small file that says which batch is being worked on.
//!
//! In:    the batch of a source, just before it is worked on.
//! Out:   at the next start, the batch in whose midst a process ended, if one did.
//! Never: a mark while nothing is worked on: a store that is busy, full or locked is
//!        waited for without one, so being killed then says nothing about a batch. A mark of a
//!        batch that is only tried again because of that: it was worked on once, and nothing ended.
//!
//! The mark is overwritten in place, which a full disk allows, and not synced: it
//! must outlive the process, not the power.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a mark: four numbers of eight bytes.
const MARK_BYTES: usize = 32;

/// Ends of the process with one frame or record alone before it is given up.
pub const ALONE_MAX: u64 = 3;

/// A batch that was begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// How many frames it has.
    pub frames: u64,
    /// What its first frame hashes to.
    pub first: u64,
    /// How often a batch of this one frame was begun in a row.
    pub tries: u64,
}

impl Mark {
    fn to_bytes(self, working: bool) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let words = [u64::from(working), self.frames, self.first, self.tries];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What was being worked on; `None` if nothing was, or nothing can be read.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let working = words.next()? == 1;
        let mark = Self {
            frames: words.next()?,
            first: words.next()?,
            tries: words.next()?,
        };
        (working && mark.frames > 0).then_some(mark)
    }
}

/// What a frame is known by.
pub fn hash(frame: &[u8]) -> u64 {
    xxh3_64(frame)
}

/// The marker of one source.
#[derive(Debug)]
pub struct Attempt {
    path: PathBuf,
    found: Option<Mark>,
    /// The batch that will be worked on; `None`: it is known to end no process.
    state: Mutex<(File, Option<Mark>)>,
    suspected: AtomicBool,
}

impl Attempt {
    /// Opens or makes the marker beside the store of a URL; `None` for a store in memory.
    pub fn beside(url: &str, source: &str) -> Option<Self> {
        let store = url.strip_prefix("sqlite://")?;
        let name = format!("{store}.attempt-{:016x}", hash(source.as_bytes()));
        Self::opened(&name)
    }

    /// The same for records that wait in the store itself.
    pub fn of_waiting(url: &str) -> Option<Self> {
        let store = url.strip_prefix("sqlite://")?;
        Self::opened(&format!("{store}.waiting-attempt"))
    }

    fn opened(name: &str) -> Option<Self> {
        match Self::open(Path::new(name)) {
            Ok(attempt) => Some(attempt),
            Err(error) => {
                warn!(%error, name, "no attempt marker: what ends the process would not be found");
                None
            }
        }
    }

    /// Opens or makes the marker at a path.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut bytes = Vec::new();
        std::io::Read::by_ref(&mut file)
            .take(MARK_BYTES as u64)
            .read_to_end(&mut bytes)?;
        let found = Mark::from_bytes(&bytes);
        Ok(Self {
            path: path.to_owned(),
            found,
            state: Mutex::new((file, None)),
            suspected: AtomicBool::new(false),
        })
    }

    /// The batch in whose midst the process before this one ended.
    pub fn found(&self) -> Option<Mark> {
        self.found
    }

    /// Names the batch that will be worked on; `None`: it was, and is tried again.
    pub fn name(&self, mark: Option<Mark>) {
        self.state.lock().1 = mark;
    }

    /// Whether the batches that follow may hold what ended the process before this one.
    pub fn suspect(&self, suspected: bool) {
        self.suspected.store(suspected, Ordering::Relaxed);
    }

    pub fn is_suspected(&self) -> bool {
        self.suspected.load(Ordering::Relaxed)
    }

    /// Work on the batch begins.
    pub fn begin(&self) {
        self.write(true);
    }

    /// Work on the batch ended, well or not; this process did not end with it.
    pub fn end(&self) {
        self.write(false);
    }

    /// Work on a message alone begins; false if the process ended with it `ALONE_MAX` times in a row: then it does not.
    pub fn begin_alone(&self, message: &[u8]) -> bool {
        let first = hash(message);
        let again = self
            .found
            .filter(|mark| (mark.frames, mark.first) == (1, first));
        let tries = again.map_or(0, |mark| mark.tries);
        if tries >= ALONE_MAX {
            return false;
        }
        self.name(Some(Mark {
            frames: 1,
            first,
            tries: tries + 1,
        }));
        self.begin();
        true
    }

    fn write(&self, working: bool) {
        let mut state = self.state.lock();
        let Some(mark) = state.1 else { return };
        let bytes = mark.to_bytes(working);
        let file = &mut state.0;
        let written = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&bytes));
        if let Err(error) = written {
            warn!(%error, path = %self.path.display(), "the attempt marker cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_only_if_the_work_did_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mark");
        let mark = Mark {
            frames: 7,
            first: 42,
            tries: 1,
        };
        let attempt = Attempt::open(&path).unwrap();
        assert_eq!(attempt.found(), None);
        attempt.name(Some(mark));
        assert_eq!(Attempt::open(&path).unwrap().found(), None);
        attempt.begin();
        assert_eq!(Attempt::open(&path).unwrap().found(), Some(mark));
        attempt.end();
        assert_eq!(Attempt::open(&path).unwrap().found(), None);
        attempt.name(None);
        attempt.begin();
        assert_eq!(Attempt::open(&path).unwrap().found(), None);
    }

    #[test]
    fn a_message_that_ends_the_process_three_times_in_a_row_is_not_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mark");
        let begins = |message: &[u8]| Attempt::open(&path).unwrap().begin_alone(message);
        assert!(begins(b"a") && begins(b"a"));
        assert!(begins(b"b"), "another begins anew");
        assert!(begins(b"a") && begins(b"a") && begins(b"a"));
        assert!(!begins(b"a"));
        assert!(begins(b"c"));
        let attempt = Attempt::open(&path).unwrap();
        assert!(attempt.begin_alone(b"a"));
        attempt.end();
        assert!(
            begins(b"a") && begins(b"a") && begins(b"a"),
            "it had passed"
        );
    }

    #[test]
    fn a_marker_that_cannot_be_read_says_nothing() {
        for bytes in [&b""[..], b"abc", &[255; 32], &[0; 100]] {
            assert_eq!(Mark::from_bytes(bytes), None);
        }
    }
}
