//! The river.
