//! What replicas agree on.
