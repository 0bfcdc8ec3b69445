//! What becomes true.
//!
//! In:    a [`Batch`](batch::Batch) of events, and the rows it touches ([`Loaded`](wants::Loaded)).
//! Out:   the rows to write ([`Writes`](writes::Writes)), or the rows that must be read first
//!        ([`Wants`](wants::Wants)).
//! Never: a clock, a file, a statement of SQL, or an answer that depends on the engine.
//!
//! ```text
//! batch ─▶ wants ─▶ load ─▶ decide ─▶ writes ─▶ commit
//!            ▲                 │
//!            └── needs more ───┘
//! ```
//!
//! A store engine loads and writes sets of rows; every rule of the product is
//! in this crate. A module names only modules above it in this list.

// Numbers and revisions.
pub mod ids;

// What a column can hold.
pub mod value;

// Tables as data.
#[macro_use]
pub mod table;

// Hosting status, and what is due for an account.
pub mod account;

// One outcome for each unit.
pub mod accounting;

// What became of things that were asked for.
pub mod fate;

// What a record derives: entries, follows, groups, sorts.
pub mod derived;

// What comes in.
pub mod batch;

// What consumers are told.
pub mod change;

// Whose work is done first.
pub mod queue;

// What the configuration says.
pub mod rules;

// What must be read.
pub mod wants;

// Which version of a record wins.
pub mod version;

// Operations in numbers.
pub mod content;

// The names in a batch.
pub mod names;

// The tables.
pub mod rows;

// What the columns of a record's row say.
mod stored;

// What is written.
pub mod writes;

// Whether a commit follows the one before.
pub mod chain;

// Which records of one author about one subject are merged.
pub mod group;

// When a parked record is tried again.
pub mod retry;

// A transaction in the making.
mod world;

// Rows derived from a record, added and removed.
mod place;

// Dead letters.
pub mod dead;

// Records that wait for another one.
mod park;

// One operation.
mod apply;

// A batch in the making.
mod step;

// Operations that wait in queues.
mod pending;

// Commits: their chain and their operations.
mod commit;

// Accounts: their status, their handle, their repair.
mod status;

// A repository that was fetched whole.
mod repository;

// Dead letters tried again, discarded, forgotten.
mod replay;

// Readers, fetches, and what the process says of itself.
pub mod reader;

// Work on all records of an account, in slices.
pub mod job;

// A batch.
pub mod decide;
