//! The river: streams of records in, feeds out.
//!
//! Water runs one way: a module names only modules above it in this list.

// The clock, as an argument.
pub mod clock;

// Named crash points.
pub mod crash;

// Every metric by name.
pub mod metrics;

// Everything that can be wrong, by name.
pub mod condition;

// How long to wait before connecting again.
pub mod pause;

// What an answer cost SQLite.
#[cfg(test)]
mod effort;

// Tokens of the environment.
pub mod secret;

// What texts of any length are known by.
pub mod digest;

// SQLite files, and what is beside them.
pub mod file;

// How large what SQLite writes ahead may be.
pub mod wal;

// CEL over one record.
pub mod expression;

// Configuration.
pub mod config;

// Hosts that others named, asked no faster than they like.
pub mod host;

// Every file, copied and put back.
pub mod backup;

// At most one process ingests into a store.
pub mod lease;

// To whom this process talks.
pub mod reach;

// Ids that an app without AT Protocol gives.
pub mod local;

// Where checked records come to rest.
pub mod store;

// Whether a record is what its collection says it is.
pub mod check;

// From a frame's bytes to checked work.
pub mod decode;

// Dead letters, shown and tried again.
pub mod dead;

// What the process is doing and what is wrong with it.
pub mod status;

// What only the store and the disk know, measured each second.
pub mod monitor;

// The ingesting process reports into its store.
pub mod heartbeat;

// Where streams come from.
pub mod source;

// Frames in, transactions out.
pub mod intake;

// Parked records and alerts, in their time.
pub mod tend;

// Where an account lives, and with which key it signs.
pub mod identity;

// Signatures, before frames are opened.
pub mod notary;

// Repairing an account whose chain broke.
pub mod resync;

// Accounts that a stream will never mention.
pub mod backfill;

// What is drawn from the outbox behind a cursor of its own.
pub mod branch;

// The outbox as a space of the log.
pub mod publish;

// Words, drawn from the outbox.
pub mod search;

// Timelines in memory, drawn from the outbox.
pub mod fanout;

// What labelers say of records and accounts.
pub mod labels;

// Changes, told to connected readers as they happen.
pub mod live;

// The API over HTTP.
pub mod serve;

// The wiring.
pub mod river;

// Served feeds held against the simulator's naive model.
pub mod oracle;

// The command line.
pub mod cli;
