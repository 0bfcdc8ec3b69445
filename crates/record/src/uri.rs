//! The `uri` string format: anything with a scheme.
//!
//! Looser than RFC 3986 on purpose in one point: letters outside ASCII are
//! accepted, because real links contain them and browsers open them. White
//! space and control characters are not.

/// Bytes in a URI.
const URI_BYTES_MAX: usize = 8 * 1024;
/// Bytes in its scheme.
const SCHEME_BYTES_MAX: usize = 80;

/// Whether `text` is a URI with a scheme and something after it.
pub fn is_valid(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    text.len() <= URI_BYTES_MAX
        && scheme.len() <= SCHEME_BYTES_MAX
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
        && !rest.is_empty()
        && !has_space_or_control(rest)
}

fn has_space_or_control(text: &str) -> bool {
    if text.is_ascii() {
        text.bytes().any(|byte| !byte.is_ascii_graphic())
    } else {
        text.chars()
            .any(|char| char.is_whitespace() || char.is_control())
    }
}
