//! What the network says: ids, blocks, repositories, events and lexicons.
//!
//! Pure: no clock, no socket, no file. Every byte that comes in is hostile
//! until a function here has said otherwise, and none of them may panic.

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

// Links to anywhere.
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

// Lexicons: what records must look like.
pub mod lexicon;

// Records held against their lexicons.
pub mod validate;

// What records point at.
pub mod links;
