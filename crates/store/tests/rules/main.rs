//! The rules, batch by batch, on every engine.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "../world/mod.rs"]
mod world;

mod accounts;
mod case;
mod damage;
mod dead;
mod epochs;
mod naming;
mod parking;
mod reader;
mod repository;
