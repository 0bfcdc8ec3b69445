//! Cursors: opaque to clients, a position and its scope to us.
//!
//! A cursor carries the feed or collection it belongs to, so that one from
//! elsewhere is refused instead of silently meaning something else.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::error::XrpcError;
use crate::store::Position;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    t: i64,
    u: String,
    k: String,
}

/// The text of a position within `scope`.
pub fn write(scope: &str, position: &Position) -> String {
    let wire = Wire {
        t: position.time_us,
        u: position.uri.clone(),
        k: scope.to_owned(),
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
}

/// The position in a cursor of `scope`.
pub fn read(scope: &str, text: &str) -> Result<Position, XrpcError> {
    let bad = |message| XrpcError::declared("BadCursor", message);
    let wire: Wire = URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| {
            bad(
                "the cursor is not one of ours; leave it out to begin at the newest record"
                    .to_owned(),
            )
        })?;
    if wire.k != scope {
        return Err(bad(format!(
            "the cursor belongs to {:?}, not to {scope:?}",
            wire.k
        )));
    }
    Ok(Position {
        time_us: wire.t,
        uri: wire.u,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_the_position_it_was_made_of() {
        let position = Position {
            time_us: -5,
            uri: "at://did:web:a.test/x.y.z/1".into(),
        };
        assert_eq!(
            read("feed:a", &write("feed:a", &position)).unwrap(),
            position
        );
    }

    #[test]
    fn a_cursor_of_another_feed_is_refused_by_name() {
        let position = Position {
            time_us: 1,
            uri: String::new(),
        };
        let error = read("feed:b", &write("feed:a", &position)).unwrap_err();
        assert_eq!(error.name, "BadCursor");
        assert!(error.message.contains("feed:a"), "{}", error.message);
    }

    #[test]
    fn garbage_is_refused() {
        for text in ["", "%", "e30", "bm90IGpzb24", "\u{1F600}"] {
            assert_eq!(read("feed:a", text).unwrap_err().name, "BadCursor");
        }
    }
}
