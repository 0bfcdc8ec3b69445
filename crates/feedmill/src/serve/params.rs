//! Query parameters, read strictly: what cannot be understood is refused
//! with a message that says what is accepted.

use std::collections::BTreeMap;

use super::error::XrpcError;

/// Records of a page where the caller does not say.
pub const LIMIT_DEFAULT: usize = 50;
/// Records of the largest page.
pub const LIMIT_MAX: usize = 200;

/// The parameters of one request.
#[derive(Debug, Clone, Default)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Reads a query string.
    pub fn parse(query: Option<&str>) -> Result<Self, XrpcError> {
        let pairs: Vec<(String, String)> = axum::extract::Query::try_from_uri(
            &format!("/?{}", query.unwrap_or_default())
                .parse()
                .map_err(|_| XrpcError::invalid("the query string is not well formed"))?,
        )
        .map_err(|_| XrpcError::invalid("the query string is not well formed"))?
        .0;
        let mut params = BTreeMap::new();
        for (name, value) in pairs {
            if params.insert(name.clone(), value).is_some() {
                return Err(XrpcError::invalid(format!(
                    "parameter {name:?} is given twice"
                )));
            }
        }
        Ok(Self(params))
    }

    /// A parameter that may be absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
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
        let mut names = self.0.keys();
        match names.find(|name| !known.clone().any(|known| known == name.as_str())) {
            Some(name) => Err(XrpcError::invalid(format!(
                "unknown parameter {name:?}; this method takes {}",
                known.collect::<Vec<_>>().join(", ")
            ))),
            None => Ok(()),
        }
    }
}
