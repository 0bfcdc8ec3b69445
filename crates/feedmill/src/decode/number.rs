//! The number of a JSON message that cannot be read whole.
//!
//! In:    a message, or its beginning.
//! Out:   its numbers, as far as they come before what cannot be read.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// The numbers of a message of Jetstream or Tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    seq: Option<i64>,
    time_us: Option<i64>,
    pub(super) id: Option<i64>,
}

impl Found {
    pub(super) fn of(message: &[u8]) -> Self {
        let mut found = Self::default();
        let mut json = serde_json::Deserializer::from_slice(message);
        // What was found before an error counts.
        drop(json.deserialize_map(Look(&mut found)));
        found
    }

    /// A Jetstream's number.
    pub(super) fn place(&self) -> Option<i64> {
        self.seq.or(self.time_us)
    }
}

struct Look<'a>(&'a mut Found);

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut next = map.next_key::<String>()?;
        while let Some(key) = next {
            let number: Option<i64> = match key.as_str() {
                "seq" | "time_us" | "id" => map.next_value()?,
                // Version 2 of Jetstream has its messages in an envelope.
                "payload" => {
                    map.next_value_seed(Look(&mut *self.0))?;
                    None
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    None
                }
            };
            // A number at which the message was cut off may have had more digits.
            next = map.next_key()?;
            match key.as_str() {
                "seq" => self.0.seq = number,
                "time_us" => self.0.time_us = number,
                "id" => self.0.id = number,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &str, place: Option<i64>, id: Option<i64>) {
        let numbers = Found::of(message.as_bytes());
        assert_eq!((numbers.place(), numbers.id), (place, id));
    }

    #[test]
    fn numbers_before_the_end_are_found_wherever_that_is() {
        check(
            r#"{"did":"x","time_us":7,"commit":{"record":{"t":"aaa"#,
            Some(7),
            None,
        );
        check(
            r#"{"payload":{"seq":8,"time_us":7,"commit":{"#,
            Some(8),
            None,
        );
        check(
            r#"{"id":9,"type":"record","record":{"id":1,"text":"é"#,
            None,
            Some(9),
        );
        check(r#"{"commit":{"time_us":3,"record":"#, None, None);
        check(r#"{"time_us":12"#, None, None);
        check("[1,2]", None, None);
        check("", None, None);
    }

    #[test]
    fn nested_envelopes_end() {
        let deep = "{\"payload\":".repeat(100_000);
        check(&deep, None, None);
    }
}
