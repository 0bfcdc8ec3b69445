//! Query parameters, read strictly: what cannot be understood is refused
//! with a message that says what is accepted.

use super::error::XrpcError;

/// Records of a page where the caller does not say.
pub const LIMIT_DEFAULT: usize = 50;
/// Records of the largest page.
pub const LIMIT_MAX: usize = 200;

/// The parameters of one request.
#[derive(Debug, Clone, Default)]
pub struct Params {
    given: Vec<(String, String)>,
    /// The labelers whose labels are shown.
    pub(super) labelers: Vec<String>,
    pub(super) asker: Asker,
    /// The account whose service-auth token was shown, whether or not the method needs one.
    pub(super) account: Option<String>,
    /// The request comes from another machine.
    pub(super) is_from_elsewhere: bool,
    /// What the reader follows is not here: it does not become active by this request.
    pub(super) is_incomplete: bool,
}

/// Who asks, as far as that matters for what is answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Asker {
    /// Nobody said, or nobody had to.
    #[default]
    Nobody,
    /// Whoever this account is: it reads its own feeds.
    Account(String),
    /// The app of the direct API: it reads for whom it names.
    App,
}

impl Params {
    /// Reads a query string.
    pub fn parse(query: Option<&str>) -> Result<Self, XrpcError> {
        Self::with_lists(query, |_| false)
    }

    /// Reads a query string in which lists may come several times, as XRPC writes them.
    pub fn with_lists(
        query: Option<&str>,
        is_list: impl Fn(&str) -> bool,
    ) -> Result<Self, XrpcError> {
        let mut params: Vec<(String, String)> = Vec::new();
        let pairs = query.unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (mut name, value) = (decoded(name)?, decoded(value)?);
            // Many clients write the name of a list with brackets.
            if let Some(list) = name.strip_suffix("[]").filter(|list| is_list(list)) {
                name = list.to_owned();
            }
            if params.iter().any(|(known, _)| *known == name) && !is_list(&name) {
                return Err(XrpcError::invalid(format!(
                    "parameter {name:?} is given twice"
                )));
            }
            params.push((name, value));
        }
        Ok(Self {
            given: params,
            ..Self::default()
        })
    }

    /// Whether nothing says that who asks may read as this account: no token of its own or of an app, and
    /// not this machine.
    pub(super) fn is_anonymous_as(&self, did: &str) -> bool {
        self.is_from_elsewhere
            && self.asker == Asker::Nobody
            && self.account.as_deref() != Some(did)
    }

    /// A parameter that may be absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.given.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Every value of a list.
    pub fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let found = self.given.iter().filter(move |(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A parameter that must be there.
    pub fn need(&self, name: &str) -> Result<&str, XrpcError> {
        match self.get(name) {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(XrpcError::invalid(format!(
                "Params must have the property {name:?}"
            ))),
        }
    }

    /// The page size.
    pub fn limit(&self) -> Result<usize, XrpcError> {
        self.number("limit", LIMIT_DEFAULT, LIMIT_MAX)
    }

    /// A number from one to `max`.
    pub fn number(&self, name: &str, default: usize, max: usize) -> Result<usize, XrpcError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|it| (1..=max).contains(it));
        number.ok_or_else(|| {
            XrpcError::invalid(format!(
                "{name} must be an integer from 1 to {max}, not {text:?}"
            ))
        })
    }

    /// Yes or no; absent is no.
    pub fn flag(&self, name: &str) -> Result<bool, XrpcError> {
        match self.get(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(text) => Err(XrpcError::invalid(format!(
                "{name} must be true or false, not {text:?}"
            ))),
        }
    }

    /// Refuses parameters that the method does not have.
    pub fn only<'a, K>(&self, known: K) -> Result<(), XrpcError>
    where
        K: IntoIterator<Item = &'a str, IntoIter: Clone>,
    {
        let known = known.into_iter();
        let mut names = self.given.iter().map(|(name, _)| name);
        match names.find(|name| !known.clone().any(|known| known == name.as_str())) {
            Some(name) => Err(XrpcError::invalid(format!(
                "unknown parameter {name:?}; this method takes {}",
                known.collect::<Vec<_>>().join(", ")
            ))),
            None => Ok(()),
        }
    }
}

/// The text behind `%41` and `+`.
fn decoded(text: &str) -> Result<String, XrpcError> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Ok(text.to_owned());
    }
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(malformed()),
            },
            byte => byte,
        });
    }
    String::from_utf8(found).map_err(|_| malformed())
}

fn malformed() -> XrpcError {
    XrpcError::invalid("the query string is not well formed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Option<&[(&str, &str)]>) {
        let found = Params::parse(Some(query)).ok().map(|params| params.given);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let expected = expected.map(|pairs| pairs.iter().map(owned).collect::<Vec<_>>());
        assert_eq!(found, expected, "{query}");
    }

    #[test]
    fn a_query_string_is_read_as_forms_write_it() {
        check("", Some(&[]));
        check("a=1&b=", Some(&[("a", "1"), ("b", "")]));
        check("a&&b=c=d", Some(&[("a", ""), ("b", "c=d")]));
        check("at%3A//x=%C3%A9+%2b", Some(&[("at://x", "\u{e9} +")]));
    }

    #[test]
    fn a_list_may_come_several_times_and_nothing_else_may() {
        let params = Params::with_lists(Some("a=1&b=2&a=3"), |name| name == "a").unwrap();
        assert!(params.all("a").eq(["1", "3"]) && params.all("c").next().is_none());
        assert!(Params::with_lists(Some("a=1&b=2&b=3"), |name| name == "a").is_err());
        let params = Params::with_lists(Some("a[]=1&a=2&b[]=3"), |name| name == "a").unwrap();
        assert!(params.all("a").eq(["1", "2"]) && params.get("b[]") == Some("3"));
    }

    #[test]
    fn what_is_no_text_or_comes_twice_is_refused() {
        for query in ["a=%", "a=%4", "a=%zz", "a=%ff", "%c3=1", "a=1&%61=2"] {
            check(query, None);
        }
    }
}
