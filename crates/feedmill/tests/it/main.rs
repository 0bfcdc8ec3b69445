//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod app;
mod backfill;
mod bad_input;
mod bed;
mod branches;
mod cautions;
mod dead;
mod defaults;
mod desk;
mod direct;
mod disk_full;
mod examples;
mod explain;
mod filters;
mod first_read;
mod hostile;
mod jetstream;
mod life;
mod merged;
mod mill;
mod oracle;
mod page;
mod paging;
mod peers;
mod photos;
mod pool;
mod question;
mod queues;
mod reach;
mod references;
mod rules;
mod search;
mod semble;
mod settle;
mod skeleton;
mod store;
mod stream_faults;
mod subscribe;
mod tap;
mod tape;
mod tidy;
mod two_processes;
mod verify;
