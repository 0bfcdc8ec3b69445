//! Places: the one order of all pages is time, then URI, both descending.

use std::cmp::Ordering;

use decide::ids::Micros;

/// A place in the order; everything on the pages after it is strictly smaller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub time_us: Micros,
    pub uri: String,
}

impl Place {
    /// Where reading begins in an index of one collection (or, if that is empty, of several): the
    /// place may be that of a record of another collection, which the index does not have.
    pub(super) fn tail(&self, collection: &str) -> String {
        let whole = self.uri.strip_prefix("at://").unwrap_or_default();
        if collection.is_empty() {
            return whole.to_owned();
        }
        let (did, rest) = whole.split_once('/').unwrap_or((whole, ""));
        let (other, rkey) = rest.split_once('/').unwrap_or((rest, ""));
        match other.cmp(collection) {
            Ordering::Equal => [did, "/", rkey].concat(),
            // The author's records of this collection all come before the place: all are read.
            Ordering::Greater => [did, "/\u{7f}"].concat(),
            // They all come after it: none is read.
            Ordering::Less => [did, "/"].concat(),
        }
    }
}

/// The URI of an entry. The tails of an index of several collections name theirs.
pub(super) fn uri(collection: &str, tail: &str) -> String {
    match tail.split_once('/') {
        Some((did, rkey)) if !collection.is_empty() => {
            ["at://", did, "/", collection, "/", rkey].concat()
        }
        _ => ["at://", tail].concat(),
    }
}

/// The account, collection and record key of a URI.
pub fn split(uri: &str) -> Option<(&str, &str, &str)> {
    let (did, rest) = uri.strip_prefix("at://")?.split_once('/')?;
    let (collection, rkey) = rest.split_once('/')?;
    Some((did, collection, rkey))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, collection: &str, expected: &str) {
        let place = Place {
            time_us: 1,
            uri: uri.into(),
        };
        assert_eq!(place.tail(collection), expected);
    }

    #[test]
    fn a_place_is_found_in_an_index_of_another_collection() {
        check("at://did:a/x.post/1", "x.post", "did:a/1");
        check("at://did:a/x.post/1", "x.like", "did:a/\u{7f}");
        check("at://did:a/x.post/1", "x.quote", "did:a/");
        check("at://did:a/x.post/1", "", "did:a/x.post/1");
        check("", "x.post", "/");
    }

    #[test]
    fn a_uri_is_split_and_made() {
        assert_eq!(split("at://did:a/x.post/1"), Some(("did:a", "x.post", "1")));
        assert_eq!(split("did:a/x.post/1"), None);
        assert_eq!(uri("x.post", "did:a/1"), "at://did:a/x.post/1");
        assert_eq!(uri("", "did:a/x.post/1"), "at://did:a/x.post/1");
    }
}
