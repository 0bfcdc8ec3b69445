//! Cursors: opaque to clients, a position and its scope to us.
//!
//! A cursor carries the feed or collection it belongs to and the order of the
//! page, so that one from elsewhere is refused instead of silently meaning
//! something else. Of a sorted page it carries the value too.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::error::XrpcError;
use super::params::Params;
use crate::store::Position;
use crate::store::page::Rung;
use crate::store::shown::{ShownPage, push_text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    t: i64,
    u: String,
    k: String,
    /// A number or a text; `false` for a record without a value.
    #[serde(default)]
    v: Option<Value>,
}

/// The text of a position within `scope`.
pub fn write(scope: &str, position: &Position) -> String {
    write_sorted(scope, position, None)
}

/// The text of a position within `scope` and within a value.
pub fn write_sorted(scope: &str, position: &Position, rung: Option<&Rung>) -> String {
    let mut wire = String::with_capacity(position.uri.len() + scope.len() + 64);
    wire.push_str("{\"t\":");
    wire.push_str(&position.time_us.to_string());
    wire.push_str(",\"u\":");
    push_text(&mut wire, &position.uri);
    wire.push_str(",\"k\":");
    push_text(&mut wire, scope);
    if let Some(rung) = rung {
        wire.push_str(",\"v\":");
        match rung {
            Rung::Number(number) => wire.push_str(&number.to_string()),
            Rung::Text(text) => push_text(&mut wire, text),
            Rung::Missing => wire.push_str("false"),
        }
    }
    wire.push('}');
    URL_SAFE_NO_PAD.encode(wire)
}

/// The position in a cursor of `scope`.
pub fn read(scope: &str, text: &str) -> Result<Position, XrpcError> {
    read_sorted(scope, text).map(|(position, _)| position)
}

/// The position in a cursor of `scope`, and its value.
pub fn read_sorted(scope: &str, text: &str) -> Result<(Position, Option<Rung>), XrpcError> {
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
    let rung = wire.v.map(|value| match value {
        Value::String(text) => Rung::Text(text),
        value => value.as_i64().map_or(Rung::Missing, Rung::Number),
    });
    let position = Position {
        time_us: wire.t,
        uri: wire.u,
    };
    Ok((position, rung))
}

/// The cursor among the parameters, if there is one.
pub fn of(scope: &str, params: &Params) -> Result<(Option<Position>, Option<Rung>), XrpcError> {
    match params.get("cursor") {
        None => Ok((None, None)),
        Some(text) => read_sorted(scope, text).map(|(position, rung)| (Some(position), rung)),
    }
}

/// The cursor of the page after this one, if there is more.
pub fn next(scope: &str, page: &ShownPage) -> Option<String> {
    let position = page.next.as_ref()?;
    Some(write_sorted(scope, position, page.next_rung.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_the_position_it_was_made_of() {
        for uri in ["at://did:web:a.test/x.y.z/1", "at://a/b/\"\\\u{1}\u{e9}"] {
            let position = Position {
                time_us: -5,
                uri: uri.into(),
            };
            let text = write("feed:\"a", &position);
            assert_eq!(read("feed:\"a", &text).unwrap(), position);
        }
    }

    #[test]
    fn a_cursor_of_a_sorted_page_carries_its_value() {
        let position = Position {
            time_us: 1,
            uri: "at://did:web:a.test/x.y.z/1".into(),
        };
        for rung in [Rung::Number(-7), Rung::Text("7".into()), Rung::Missing] {
            let text = write_sorted("list:a:score:asc", &position, Some(&rung));
            let expected = (position.clone(), Some(rung));
            assert_eq!(read_sorted("list:a:score:asc", &text).unwrap(), expected);
            assert!(read_sorted("list:a:score:desc", &text).is_err());
        }
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
