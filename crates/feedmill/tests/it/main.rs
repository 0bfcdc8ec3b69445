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
mod filters;
mod hostile;
mod jetstream;
mod life;
mod log_cli;
mod manners;
mod measures;
mod oracle;
mod page;
mod paging;
mod peers;
mod photos;
mod pool;
mod publish;
mod purge;
mod question;
mod queues;
mod references;
mod replica;
mod rules;
mod search;
mod settle;
mod skeleton;
mod store;
mod stream_faults;
mod tap;
mod tape;
mod tidy;
mod two_processes;
mod verify;
