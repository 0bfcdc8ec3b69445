//! Names of lexicons and collections, such as `app.bsky.feed.post`.

use super::class;

/// Bytes in an NSID: a domain name, a dot and a name. The published vectors
/// limit only the sum, not the domain name alone.
const NSID_BYTES_MAX: usize = 253 + 1 + NAME_BYTES_MAX;
/// Bytes of the name at the end.
const NAME_BYTES_MAX: usize = 63;

/// A namespaced identifier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nsid(Box<str>);

super::identifier!(Nsid, "nsid");

impl Nsid {
    /// Whether `text` is an NSID.
    pub fn is_valid(text: &str) -> bool {
        let Some((authority, name)) = text.rsplit_once('.') else {
            return false;
        };
        text.len() <= NSID_BYTES_MAX
            && authority.contains('.')
            && !authority.starts_with(|first: char| first.is_ascii_digit())
            && authority
                .as_bytes()
                .split(|&byte| byte == b'.')
                .all(class::is_label)
            && name.len() <= NAME_BYTES_MAX
            && name.starts_with(|first: char| first.is_ascii_alphabetic())
            && class::all(name.as_bytes(), class::ALPHA | class::DIGIT)
    }

    /// The last part: `post` of `app.bsky.feed.post`.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('.').map_or("", |(_, name)| name)
    }
}
