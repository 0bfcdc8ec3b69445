//! Offsets: where a reader of a stream stands.
//!
//! In:    a query parameter or a header.
//! Out:   a position of the log, and back.
//! Never: two texts for one place that compare differently.
//!
//! An offset is a position, written so that texts sort as numbers do. The second
//! half is always zero; the protocol's tests know the shape `…_…` of its start.

/// `offset=`, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// Behind this position; 0 is the beginning.
    After(u64),
    /// Behind everything there is.
    Now,
}

/// The text of a position.
pub(super) fn text(position: u64) -> String {
    format!("{position:016}_{:016}", 0)
}

/// The position of a text.
pub(super) fn position(text: &str) -> Option<u64> {
    let (first, second) = text.split_once('_')?;
    let digits = |part: &str| part.len() == 16 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(second) {
        return None;
    }
    first.parse().ok()
}

/// The parameter: an offset, or one of the two words for the ends.
pub(super) fn parameter(text: &str) -> Option<From> {
    match text {
        "-1" => Some(From::After(0)),
        "now" => Some(From::Now),
        text => position(text).map(From::After),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_reads_back_and_sorts_as_its_position() {
        assert_eq!(position(&text(42)), Some(42));
        assert!(text(9) < text(10));
        assert_eq!(parameter("-1"), Some(From::After(0)));
        assert_eq!(parameter("now"), Some(From::Now));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "1",
            "1_2",
            "-2",
            "0000000000000001",
            "000000000000000a_0000000000000000",
            "0000000000000001_",
            "a,b",
        ] {
            assert_eq!(parameter(bad), None, "{bad}");
        }
    }
}
