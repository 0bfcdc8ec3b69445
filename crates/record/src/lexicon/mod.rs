//! Lexicons: the schemas of records.
//!
//! In:    lexicon documents of every type, as JSON.
//! Out:   a [`Catalog`] for the validator and the search for links.
//! Never: a lookup by name while a record is walked; names are resolved once,
//!        when the catalog is built.
//!
//! A document is first parsed as written ([`Document`]) and refused if it breaks
//! the lexicon language. Then all documents are linked. A reference to a
//! definition that was not loaded is not an error: an operator loads the
//! lexicons of one app, and those refer to the lexicons of others. Any value is
//! accepted there, and [`Catalog::missing`] lists the reference, so that a
//! spelling mistake can be noticed.

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

/// Why lexicons are refused. The author of the document must change it.
#[derive(Debug, thiserror::Error)]
pub enum LexiconError {
    /// The text is not a value of the data model.
    #[error("lexicon document is not readable")]
    Unreadable(#[from] JsonError),

    /// The document breaks the lexicon language.
    #[error("lexicon {id}: {path} {reason}")]
    Invalid {
        id: String,
        path: String,
        reason: &'static str,
    },

    /// Two documents have the same name and different contents.
    #[error("lexicon {0} was given twice, with different contents")]
    Conflict(String),

    /// A field refers to a definition that describes no values.
    #[error("lexicon {home} refers to {target}, which is not a type of field")]
    NotAField { home: String, target: String },
}
