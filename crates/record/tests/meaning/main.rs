//! What records mean: identifiers, JSON, lexicons, validation, links.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod fixtures;

mod hostile;
mod json;
mod lexicon;
mod links;
mod syntax;
mod validate;
