//! What the network says.
