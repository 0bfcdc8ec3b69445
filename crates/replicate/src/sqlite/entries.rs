//! Entries: what bundles will hold of the blocks of a generation, as they came.
//!
//! In:    the bytes of one block after the other.
//! Out:   the same bytes, by where they were put.
//! Never: bytes that move when more come; more of them than a generation may hold.

/// Bytes that are asked for at once.
const CHUNK_BYTES: usize = 1 << 18;

/// Chunks of one generation: 64 MiB.
const CHUNKS_MAX: usize = 256;

/// Where an entry is; nowhere, if it is to be read from its row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    chunk: u16,
    byte: u32,
    pub(super) length: u16,
}

/// Entries of one generation.
#[derive(Debug, Default)]
pub(super) struct Entries {
    chunks: Vec<Vec<u8>>,
}

impl Entries {
    /// Keep an entry, if there is room for it.
    pub(super) fn push(&mut self, entry: &[u8]) -> Spot {
        let fits = |last: &Vec<u8>| last.len() + entry.len() <= CHUNK_BYTES;
        let Ok(length) = u16::try_from(entry.len()) else {
            return Spot::default();
        };
        if length > 0 && !self.chunks.last().is_some_and(fits) {
            if self.chunks.len() == CHUNKS_MAX {
                return Spot::default();
            }
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES));
        }
        let chunk = self.chunks.len().saturating_sub(1) as u16;
        match self.chunks.last_mut() {
            Some(last) if length > 0 => {
                let byte = last.len() as u32;
                last.extend(entry);
                Spot {
                    chunk,
                    byte,
                    length,
                }
            }
            _ => Spot::default(),
        }
    }

    /// What is at a spot; nothing, if that is nowhere.
    pub(super) fn get(&self, spot: Spot) -> &[u8] {
        let (from, length) = (spot.byte as usize, usize::from(spot.length));
        let chunk = self.chunks.get(usize::from(spot.chunk));
        let bytes = chunk.and_then(|chunk| chunk.get(from..from + length));
        bytes.unwrap_or_default()
    }

    /// Forget the entry at a spot and all that came after it.
    pub(super) fn forget(&mut self, spot: Spot) {
        if spot.length == 0 {
            return;
        }
        self.chunks.truncate(usize::from(spot.chunk) + 1);
        if let Some(last) = self.chunks.last_mut() {
            last.truncate(spot.byte as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_again_and_the_last_ones_make_room_when_they_go() {
        let mut entries = Entries::default();
        let of = |at: usize| vec![at as u8; 700 + at % 300];
        let mut spots = Vec::new();
        while let spot = entries.push(&of(spots.len()))
            && spot.length > 0
        {
            spots.push(spot);
        }
        assert!(spots.len() > 64 * 1024, "{}", spots.len());
        assert_eq!(entries.push(&[1; 20]).length, 20, "a small one has room");
        for (at, spot) in spots.iter().enumerate() {
            assert_eq!(entries.get(*spot), of(at));
        }
        entries.forget(spots[5]);
        entries.forget(Spot::default());
        assert_eq!(entries.chunks.len(), 1);
        let next = entries.push(&of(5));
        assert_eq!(next.byte, spots[5].byte);
        assert_eq!(entries.get(spots[4]), of(4));
        assert_eq!(entries.get(next), of(5));
        assert_eq!(entries.get(Spot::default()), b"");
        assert_eq!(entries.push(b"").length, 0);
    }
}
