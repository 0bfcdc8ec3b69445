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
        match self.get("limit") {
            None => Ok(LIMIT_DEFAULT),
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                .ok_or_else(|| {
                    XrpcError::invalid(format!(
                        "limit must be an integer from 1 to {LIMIT_MAX}, not {text:?}"
                    ))
                }),
        }
    }

    /// Refuses parameters that the method does not have.
    pub fn only(&self, known: &[&str]) -> Result<(), XrpcError> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(XrpcError::invalid(format!(
                "unknown parameter {name:?}; this method takes {}",
                known.join(", ")
            ))),
            None => Ok(()),
        }
    }
}
