//! Timestamp identifiers: the revision of a repo and the key of most records.
//!
//! In:    thirteen characters of base32-sortable, or microseconds and a clock id.
//! Out:   a [`Tid`] whose order as a number is the order of its text.
//! Never: a second text accepted for the same number.
//!
//! Crates for base 32 read bytes from the left; a TID is one number of 64 bits
//! in 13 digits, with the spare bit at the left. Through data-encoding it would
//! take twice as long.

use std::fmt;

/// 64 bits: 54 of microseconds since 1970, 10 of clock id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u64);

/// Why a text is not a TID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a tid of 13 base32-sortable characters")]
pub struct TidError;

const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
const LENGTH: usize = 13;
const CLOCK_BITS: u32 = 10;

impl Tid {
    /// The TID of a time and a clock id. Only the low 10 bits of `clock` and
    /// the low 54 of `micros` are used.
    pub fn new(micros: u64, clock: u16) -> Self {
        let clock = u64::from(clock) & ((1 << CLOCK_BITS) - 1);
        Self(micros << CLOCK_BITS | clock)
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, TidError> {
        let digits: &[u8; LENGTH] = text.as_bytes().try_into().map_err(|_| TidError)?;
        let mut bits = 0u64;
        for (at, &digit) in digits.iter().enumerate() {
            let value = match digit {
                b'2'..=b'7' => digit - b'2',
                b'a'..=b'z' => digit - b'a' + 6,
                _ => return Err(TidError),
            };
            if at == 0 && value >= 16 {
                return Err(TidError); // would be the 65th bit
            }
            bits = bits << 5 | u64::from(value);
        }
        Ok(Self(bits))
    }

    /// The TID as a number.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The TID of a number, such as one read back from a store.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> u64 {
        self.0 >> CLOCK_BITS
    }

    /// The clock id.
    pub fn clock(self) -> u16 {
        (self.0 & ((1 << CLOCK_BITS) - 1)) as u16
    }

    /// The text form as ASCII bytes.
    pub fn to_text(self) -> [u8; LENGTH] {
        let mut text = [b'2'; LENGTH];
        let mut bits = self.0;
        for digit in text.iter_mut().rev() {
            let value = (bits & 31) as usize;
            *digit = *ALPHABET.get(value).expect("five bits are below 32");
            bits >>= 5;
        }
        text
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_text();
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
