//! `com.atproto.sync.subscribeRepos`: how a relay or a host is asked.

/// Where to connect to read everything after `cursor`. Zero asks for all the
/// host still has.
pub(super) fn address(url: &str, cursor: i64) -> String {
    format!(
        "{}/xrpc/com.atproto.sync.subscribeRepos?cursor={cursor}",
        url.trim_end_matches('/')
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_connection_asks_for_all_there_is() {
        assert_eq!(
            address("wss://relay.example/", 0),
            "wss://relay.example/xrpc/com.atproto.sync.subscribeRepos?cursor=0"
        );
    }
}
