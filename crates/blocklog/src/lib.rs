//! What replicas agree on: a log of immutable blocks in feeds.
//!
//! A space holds feeds, a feed holds blocks. One store, the authority of the
//! space, gives every block a position; all others learn it. Blocks without a
//! position stand behind, in Lamport order.
//!
//! Pure: no clock, no socket, no file. Time and randomness are arguments, so a
//! test can replay any history from a seed.
//!
//! What this crate does not decide: how messages travel, where blocks are kept,
//! when to evict, who a caller is.

// The size of everything a stranger may hand us.
pub mod limits;

// One immutable entry of a feed, and its hash.
pub mod block;

// An actor that is a key proves what it wrote.
pub mod signature;

// The one order every reader sees.
pub mod order;

// One look at a space in that order.
pub mod page;

// Where a reader stands, and in whose history.
pub mod cursor;

// How a feed grows, and what may not be added to it.
pub mod chain;

// What becomes of a block whose key another has.
pub mod conflict;

// Who may append to which feed.
pub mod writers;

// A replica's settings and what it learns.
pub mod replica;

// What any place that keeps blocks must promise.
pub mod store;

// A log in memory.
pub mod memory;

// What peers say to each other.
pub mod message;

// The answering side.
pub mod authority;

// The asking side: replication, step by step.
pub mod sync;

// Is every block what it says it is?
pub mod verify;
