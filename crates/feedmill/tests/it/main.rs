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
mod environment;
mod examples;
mod filters;
mod hostile;
mod jetstream;
mod lexicons;
mod life;
mod methods;
mod names;
mod notify;
mod oracle;
mod page;
mod paging;
mod peers;
mod photos;
mod pool;
mod private;
mod question;
mod queues;
mod reach;
mod references;
mod rim;
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
