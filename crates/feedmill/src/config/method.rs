//! The methods of the service itself, by the names that follow the namespace.
//!
//! Here, because a configuration names them (`serve.private`). What each takes
//! and answers is told by `serve::methods`, whose rows are made by going
//! through [`ALL`], so neither can know a method that the other does not.

/// A method that belongs to no collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    GetFeed,
    GetFollowingFeed,
    SubscribeFeed,
    ListReferences,
    GetReferences,
    GetGraph,
    GetProfile,
    GetCursor,
    Lexicons,
    NotifyOfUpdate,
}

/// All of them.
pub const ALL: [Method; 10] = [
    Method::GetFeed,
    Method::GetFollowingFeed,
    Method::SubscribeFeed,
    Method::ListReferences,
    Method::GetReferences,
    Method::GetGraph,
    Method::GetProfile,
    Method::GetCursor,
    Method::Lexicons,
    Method::NotifyOfUpdate,
];

impl Method {
    /// As it is asked for, after the namespace.
    pub fn name(self) -> &'static str {
        match self {
            Self::GetFeed => "getFeed",
            Self::GetFollowingFeed => "getFollowingFeed",
            Self::SubscribeFeed => "subscribeFeed",
            Self::ListReferences => "listReferences",
            Self::GetReferences => "getReferences",
            Self::GetGraph => "getGraph",
            Self::GetProfile => "getProfile",
            Self::GetCursor => "getCursor",
            Self::Lexicons => "lexicons",
            Self::NotifyOfUpdate => "notifyOfUpdate",
        }
    }
}
