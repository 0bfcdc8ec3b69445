//! Handles: domain names that name an account, such as `alice.example.com`.
//!
//! Reserved top-level domains (`.local`, `.onion`) are valid syntax; the resolver
//! decides whether it resolves them.

use super::class;

/// Bytes in a handle.
const HANDLE_BYTES_MAX: usize = 253;

/// A handle; its letter case is preserved.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(Box<str>);

super::identifier!(Handle, "handle");

impl Handle {
    /// Whether `text` is a handle.
    pub fn is_valid(text: &str) -> bool {
        let Some((_, top)) = text.rsplit_once('.') else {
            return false;
        };
        text.len() <= HANDLE_BYTES_MAX
            && !top.starts_with(|first: char| first.is_ascii_digit())
            && text
                .as_bytes()
                .split(|&byte| byte == b'.')
                .all(class::is_label)
    }
}
