//! Pages, over a snapshot of any engine.
//!
//! In:    what a caller asks for, and what the answer may cost ([`budget::Budget`]).
//! Out:   rows as they are served, and where the next page begins.
//! Never: two moments in one page; a round trip for each row; a rule in an engine.
//!
//! Candidates are read in growing chunks ([`budget`]), with their records. How
//! often a page calls the snapshot, at most:
//!
//! | page | round trips |
//! |---|---|
//! | record, records, place of a record | 2 |
//! | list | 1 + 1 for each chunk (5 without a filter) |
//! | list or feed with a filter on counts | 2 more for each chunk |
//! | list or feed by a value, or sorted | 2 for each chunk instead of 1 |
//! | feed | 2 + 1 for each chunk (6 without a filter); 2 for each chunk from [`feed::SEEK_KEYS_MAX`] follows on |
//! | children of some parents | 2 + 1 for each chunk (6 at most) |
//! | referrers of a URI | 1 + 2 for each chunk; 9 at most |
//! | references of a record | 4 |
//! | merged feed | those of a feed, and 3: members, names, records named |
//! | merged feed with a filter on the subject | 3 more for each chunk |
//! | dead letters | 3 + 1 for each chunk |
//! | status | 3 |
//! | explanation | 16, and those of the feed where it ends |
//! | walk of the graph | 2, and 7 for each step away |
//!
//! A page without a filter has at most four chunks. A filter, a mute of very
//! active authors, or a feed that ends (`cap`) may need more; each further
//! chunk holds 3 200 candidates, until the budget ends.

// Where something is in the order of pages.
pub mod place;

// What a page may cost.
pub mod budget;

// Records as they are served.
pub mod row;

// Which records may be seen.
mod visibility;

// Which records a caller wants to see.
pub mod filter;

// Candidates from several indexes, in one order.
mod stream;

// A page that is being filled.
mod fill;

// Pages in the order of a value.
mod sort;

// Pages of records with one value.
mod equal;

// One record, some records, the place of a record.
pub mod record;

// The records of a collection.
pub mod list;

// A reader's feed.
pub mod feed;

// Records that name a parent: counted, and the newest of them.
pub mod children;

// References, forward and backward.
pub mod reference;

// A reader's feed of groups.
pub mod merged;

// Dead letters.
pub mod dead;

// Numbers for the operator.
pub mod status;

// The graph of references.
pub mod graph;

// Why a record is, or is not, in a feed.
pub mod explain;
