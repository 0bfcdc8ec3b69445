//! How numbers stand in entries: as bytes that sort as they do.

/// Bytes of a record's number in a pile.
pub(in crate::store::sqlite) const NUMBER_BYTES: usize = 6;

/// A record's number, as it stands at the end of an entry.
pub(in crate::store::sqlite) fn number_bytes(record: i64) -> [u8; NUMBER_BYTES] {
    let [_, _, number @ ..] = record.to_be_bytes();
    number
}

/// The opposite of [`number_bytes`].
pub(in crate::store::sqlite) fn number_of(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; NUMBER_BYTES] = bytes.try_into().ok()?;
    Some(
        bytes
            .iter()
            .fold(0, |all, byte| all << 8 | i64::from(*byte)),
    )
}

/// A number as bytes that sort as it does.
pub(in crate::store::sqlite) fn sorting(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}
