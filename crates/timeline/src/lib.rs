//! What a reader sees.
