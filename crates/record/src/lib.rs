//! The formats of the network: identifiers, blocks, repositories, events and
//! lexicons.
//!
//! Pure: no clock, no socket, no file. All input is treated as hostile: a
//! function returns an error for bad input and never panics.

// Content identifiers.
pub mod cid;

// One value of the data model.
pub mod value;

// Identifiers: DIDs, handles, NSIDs, record keys, AT URIs.
pub mod ids;

// Times of records.
pub mod datetime;

// Language tags.
pub mod language;

// URIs of any scheme.
pub mod uri;

// JSON of the data model.
pub mod json;

// Strict DAG-CBOR.
pub mod cbor;

// Content archives.
pub mod car;

// Timestamp identifiers.
pub mod tid;

// Public and secret keys.
pub mod key;

// The Merkle search tree of a repo.
pub mod mst;

// Signed commits.
pub mod commit;

// Events of the firehose.
pub mod event;

// Lexicons: the schemas of records.
pub mod lexicon;

// Records checked against their lexicons.
pub mod validate;

// Links from records to other records and accounts.
pub mod links;
