//! A network in a box: a seeded world, its servers and faults, and the naive
//! model that is the oracle.
//!
//! A module names only modules above it.

// Randomness that can be repeated.
pub mod rng;

// The world's time.
pub mod clock;

// Who follows, writes and reads how much.
pub mod shape;

// What is true.
pub mod model;

// What every reader should see.
pub mod feed;

// What the inhabitants write.
pub mod compose;

// Lexicons of what they write.
pub mod lexicons;

// What happens how often.
pub mod traffic;

// One event of the world.
pub mod event;

// One account's repository.
pub mod repo;

// One inhabitant of the world.
pub mod account;

// Accounts, repositories, clock and truth.
pub mod world;

// What each act changes, and which events tell it.
mod acts;

// Records of the caller's own making.
pub mod utter;

// The events a relay can still send again.
pub mod backlog;

// What goes wrong on demand.
pub mod faults;

// Connections that can be severed.
pub mod wire;

// The world behind its servers.
pub mod network;

// One account that says words of others.
pub mod labeler;
