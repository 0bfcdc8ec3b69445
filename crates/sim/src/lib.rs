//! A network in a box.
