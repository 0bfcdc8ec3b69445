//! The world's time, and the ways its inhabitants write it down.
//!
//! In:    microseconds since 1970.
//! Out:   datetime texts as clients write them: with and without fractions,
//!        in UTC and with an offset.
//! Never: the machine's clock; a text whose instant is not the one returned.
//!
//! The model must know the instant of a text without parsing it, so every
//! writer here returns the instant it really wrote: a text with milliseconds
//! has lost the microseconds.

use crate::rng::Rng;

/// Microseconds in a second, minute, hour and day.
pub const SECOND_US: i64 = 1_000_000;
pub const MINUTE_US: i64 = 60 * SECOND_US;
pub const HOUR_US: i64 = 60 * MINUTE_US;
pub const DAY_US: i64 = 24 * HOUR_US;

/// Year, month and day of a number of days since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    // Count in eras of 400 years that start on 1 March, so that the leap day
    // is the last day of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// `2026-11-15T20:43:53` of an instant.
fn whole_seconds(us: i64) -> String {
    let (year, month, day) = date(us.div_euclid(DAY_US));
    let rest = us.rem_euclid(DAY_US);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        rest / HOUR_US,
        rest % HOUR_US / MINUTE_US,
        rest % MINUTE_US / SECOND_US,
    )
}

/// The instant in UTC with microseconds: how servers write it.
pub fn micros(us: i64) -> String {
    format!("{}.{:06}Z", whole_seconds(us), us.rem_euclid(SECOND_US))
}

/// The instant in UTC with milliseconds: how most clients write it.
pub fn millis(us: i64) -> (String, i64) {
    let ms = us.rem_euclid(SECOND_US) / 1000;
    let text = format!("{}.{ms:03}Z", whole_seconds(us));
    (text, us.div_euclid(1000) * 1000)
}

/// The instant in one of the forms found in the wild, and what it then says.
pub fn any_form(us: i64, rng: &mut Rng) -> (String, i64) {
    match rng.below(12) {
        0 => (micros(us), us),
        1 => {
            let whole = us.div_euclid(SECOND_US) * SECOND_US;
            (format!("{}Z", whole_seconds(whole)), whole)
        }
        2 => {
            // Local time with its offset: the same instant, another text.
            let (text, instant) = millis(us + 2 * HOUR_US);
            let local = text.trim_end_matches('Z');
            (format!("{local}+02:00"), instant - 2 * HOUR_US)
        }
        3 => {
            let (text, instant) = millis(us - 3 * HOUR_US - 30 * MINUTE_US);
            let local = text.trim_end_matches('Z');
            (
                format!("{local}-03:30"),
                instant + 3 * HOUR_US + 30 * MINUTE_US,
            )
        }
        _ => millis(us),
    }
}

/// Texts that are no datetime at all.
pub const MALFORMED: [&str; 6] = [
    "yesterday",
    "",
    "2026-13-45T25:61:61Z",
    "2026-01-01",
    "2026-01-01T00:00:00",
    "1700000000",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_are_written_as_everybody_writes_them() {
        assert_eq!(micros(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(micros(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(micros(1_700_000_000_123_456), "2023-11-14T22:13:20.123456Z");
        assert_eq!(micros(-1), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn every_form_says_the_instant_it_claims() {
        let mut rng = Rng::new(1);
        for _ in 0..5000 {
            let us = 1_600_000_000_000_000 + rng.below(300_000_000_000_000) as i64;
            let (text, instant) = any_form(us, &mut rng);
            assert!((us - SECOND_US..=us).contains(&instant), "{text}");
            assert_eq!(record::datetime::parse_us(&text), Some(instant), "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_no_datetimes() {
        for text in MALFORMED {
            assert_eq!(record::datetime::parse_us(text), None, "{text}");
        }
    }
}
