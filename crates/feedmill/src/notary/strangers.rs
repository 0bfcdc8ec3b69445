//! Frames that wait for hosts of strangers: accounts of did:web have their keys at hosts that they name themselves.
//!
//! In:    each frame that would wait for such a host, and each that waits no longer.
//! Out:   whether it may wait.
//! Never: so many frames or bytes that others have no room: all strangers together have half of it, one host a sixteenth.

use std::collections::HashMap;

/// Parts of the room that one host, and that all strangers have.
const HOST_PART: usize = 16;
const ALL_PART: usize = 2;

/// What waits.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    frames: usize,
    bytes: usize,
}

impl Load {
    /// Whether one more fits into a part of the room; one alone always does.
    fn fits(self, bytes: usize, (frames_max, bytes_max): (usize, usize), part: usize) -> bool {
        let frames = self.frames < (frames_max / part).max(1);
        let bytes = self.bytes.saturating_add(bytes) <= bytes_max / part;
        frames && (bytes || self.frames == 0)
    }

    fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: usize) {
        self.frames = self.frames.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Strangers' share of the room.
#[derive(Debug)]
pub(super) struct Strangers {
    /// Frames and bytes of everybody.
    room: (usize, usize),
    all: Load,
    hosts: HashMap<String, Load>,
}

impl Strangers {
    pub(super) fn within(frames_max: usize, bytes_max: usize) -> Self {
        Self {
            room: (frames_max, bytes_max),
            all: Load::default(),
            hosts: HashMap::new(),
        }
    }

    /// Whether a frame of an account may wait. It always may where the operator's directory has the key.
    pub(super) fn has_room(&self, did: &str, bytes: usize) -> bool {
        let Some(host) = host(did) else { return true };
        let own = self.hosts.get(&host).copied().unwrap_or_default();
        own.fits(bytes, self.room, HOST_PART) && self.all.fits(bytes, self.room, ALL_PART)
    }

    /// A frame of an account waits.
    pub(super) fn add(&mut self, did: &str, bytes: usize) {
        if let Some(host) = host(did) {
            self.hosts.entry(host).or_default().add(bytes);
            self.all.add(bytes);
        }
    }

    /// A frame of an account waits no longer.
    pub(super) fn take(&mut self, did: &str, bytes: usize) {
        let Some(host) = host(did) else { return };
        self.all.take(bytes);
        if let Some(load) = self.hosts.get_mut(&host) {
            load.take(bytes);
            if load.frames == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

/// The host that an account names itself; `None` where the operator's directory is asked.
pub(super) fn host(did: &str) -> Option<String> {
    let rest = did.strip_prefix("did:web:")?;
    let host = rest.split([':', '%']).next().unwrap_or(rest);
    Some(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_has_a_sixteenth_and_all_have_half() {
        let mut strangers = Strangers::within(160, 16_000);
        for _ in 0..10 {
            assert!(strangers.has_room("did:web:slow.test", 10));
            strangers.add("did:web:slow.test", 10);
        }
        assert!(!strangers.has_room("did:web:SLOW.test:path", 10));
        assert!(!strangers.has_room("did:web:slow.test%3A8080", 10));
        assert!(strangers.has_room("did:web:other.test", 10));
        assert!(!strangers.has_room("did:web:slow.test", 0));
        for number in 0..70 {
            strangers.add(&format!("did:web:h{number}.test"), 10);
        }
        assert!(!strangers.has_room("did:web:one.more.test", 10));
        assert!(strangers.has_room("did:plc:somebody", 10));
        strangers.take("did:web:slow.test", 10);
        assert!(strangers.has_room("did:web:one.more.test", 10));
    }

    #[test]
    fn bytes_count_as_frames_do_and_one_large_frame_fits() {
        let mut strangers = Strangers::within(1000, 16_000);
        assert!(strangers.has_room("did:web:a.test", 5000));
        strangers.add("did:web:a.test", 5000);
        assert!(!strangers.has_room("did:web:a.test", 1));
        assert!(strangers.has_room("did:web:b.test", 1000));
        assert!(!strangers.has_room("did:web:b.test", 5000));
        strangers.take("did:web:a.test", 5000);
        assert!(strangers.hosts.is_empty());
    }
}
