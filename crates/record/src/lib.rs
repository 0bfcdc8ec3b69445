//! What the network says: ids, blocks, repositories, events and lexicons.
//!
//! Pure: no clock, no socket, no file. Every byte that comes in is hostile
//! until a function here has said otherwise, and none of them may panic.

/// Content identifiers.
pub mod cid;

/// One value of the data model.
pub mod value;
