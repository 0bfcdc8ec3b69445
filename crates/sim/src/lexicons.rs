//! Lexicons of the collections that the inhabitants write, as far as they
//! write them: enough for a network in a box to need no file beside it.

/// All of them, as JSON text.
pub const ALL: &[&str] = &[
    include_str!("../lexicons/follow.json"),
    include_str!("../lexicons/like.json"),
    include_str!("../lexicons/post.json"),
    include_str!("../lexicons/profile.json"),
    include_str!("../lexicons/reference.json"),
    include_str!("../lexicons/repost.json"),
];
