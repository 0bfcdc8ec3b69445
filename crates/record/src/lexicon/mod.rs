//! Lexicons: what a record of a collection must look like.
//!
//! In:    lexicon JSON documents, all kinds of them.
//! Out:   a [`Catalog`] that the validator and the finder of links walk.
//! Never: a lookup by name while a record is walked; names are resolved once,
//!        when the catalog is built.
//!
//! A document is first read as written ([`Document`]) and refused if it breaks
//! the lexicon language. Then all documents are linked together. A reference
//! to a definition that nobody loaded is not an error: an operator loads the
//! lexicons of one app, and those point into the lexicons of others. What
//! stands there is accepted as it is, and [`Catalog::missing`] names it, so
//! that a typing error can be seen.

mod catalog;
mod compile;
mod document;
mod format;
mod method;
mod parse;

pub use catalog::Catalog;
pub(crate) use catalog::{Field, Node, NodeId, Union};
pub use document::{
    BlobRule, BooleanRule, Bounds, Def, Document, IntegerRule, KeyType, Property, Reference,
    Schema, TextRule,
};
pub use format::Format;

use crate::json::JsonError;

/// Why lexicons cannot be used. All of it is for the author of the document.
#[derive(Debug, thiserror::Error)]
pub enum LexiconError {
    /// The text is not even a value of the data model.
    #[error("lexicon document is not readable")]
    Unreadable(#[from] JsonError),

    /// The document breaks the lexicon language.
    #[error("lexicon {id}: {path} {reason}")]
    Invalid {
        id: String,
        path: String,
        reason: &'static str,
    },

    /// Two documents have one name and say different things.
    #[error("lexicon {0} was given twice, with different contents")]
    Conflict(String),

    /// A field points at something that describes no values.
    #[error("lexicon {home} refers to {target}, which is no type of field")]
    NotAField { home: String, target: String },
}
