//! The `datetime` string format, and time as one integer.
//!
//! In:    text such as `1985-04-12T23:20:50.123-07:00`.
//! Out:   microseconds since 1970, in UTC; the same in text.
//! Never: a correction. A date that does not exist is refused.
//!
//! The strict intersection of RFC 3339 and ISO 8601 that the lexicon requires:
//! capital `T` and `Z`, always a time zone, never `-00:00`, years 0000 to 9999
//! also after conversion to UTC. There are no leap seconds.
//!
//! The calendar is chrono's. Its reader of RFC 3339 is not used: it allows
//! `t`, `z`, a space, `-00:00` and leap seconds, and takes three times as long,
//! which every record would pay.

use chrono::{DateTime, NaiveDate, SecondsFormat};

/// Bytes in a datetime.
const DATETIME_BYTES_MAX: usize = 64;
/// Digits after the decimal point of the second.
const FRACTION_DIGITS_MAX: usize = 20;

const US_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// 0000-01-01T00:00:00Z
const EARLIEST_US: i64 = -62_167_219_200 * US_PER_SECOND;
/// 9999-12-31T23:59:59.999999Z
const LATEST_US: i64 = 253_402_300_800 * US_PER_SECOND - 1;

/// Whether `text` is a datetime.
pub fn is_valid(text: &str) -> bool {
    parse_us(text).is_some()
}

/// Microseconds since the epoch; finer fractions are truncated.
pub fn parse_us(text: &str) -> Option<i64> {
    if text.len() > DATETIME_BYTES_MAX {
        return None;
    }
    let (seconds, rest) = parse_seconds(text.as_bytes())?;
    let (fraction_us, rest) = parse_fraction(rest)?;
    let offset_minutes = parse_offset(rest)?;
    let us = (seconds - offset_minutes * 60) * US_PER_SECOND + fraction_us;
    (EARLIEST_US..=LATEST_US).contains(&us).then_some(us)
}

/// RFC 3339 in UTC, with milliseconds, or microseconds if there are any.
/// A time outside the years 0000 to 9999 becomes the nearest inside.
pub fn format_us(us: i64) -> String {
    let us = us.clamp(EARLIEST_US, LATEST_US);
    let digits = if us % 1000 == 0 {
        SecondsFormat::Millis
    } else {
        SecondsFormat::Micros
    };
    DateTime::from_timestamp_micros(us)
        .expect("chrono knows all years of four digits")
        .to_rfc3339_opts(digits, true)
}

/// `YYYY-MM-DDTHH:MM:SS` in seconds, as if in UTC, and the rest of the text.
fn parse_seconds(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<19>()?;
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        mo1,
        mo2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        mi1,
        mi2,
        b':',
        s1,
        s2,
    ] = *head
    else {
        return None;
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let date = NaiveDate::from_ymd_opt(year as i32, two(mo1, mo2)? as u32, two(d1, d2)? as u32)?;
    let (hour, minute, second) = (two(h1, h2)?, two(mi1, mi2)?, two(s1, s2)?);
    let exists = hour <= 23 && minute <= 59 && second <= 59;
    let days = i64::from(date.to_epoch_days());
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    exists.then_some((seconds, rest))
}

/// `.123` in microseconds, zero if absent, and the rest of the text.
fn parse_fraction(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let Some((b'.', digits)) = bytes.split_first() else {
        return Some((0, bytes));
    };
    let count = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if !(1..=FRACTION_DIGITS_MAX).contains(&count) {
        return None;
    }
    let (digits, rest) = digits.split_at_checked(count)?;
    let us = digits
        .iter()
        .take(6)
        .fold(0, |us, byte| us * 10 + i64::from(byte - b'0'));
    let us = us * 10i64.pow(6u32.saturating_sub(count as u32));
    Some((us, rest))
}

/// `Z` or `+07:00` in minutes.
fn parse_offset(bytes: &[u8]) -> Option<i64> {
    match *bytes {
        [b'Z'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (two(h1, h2)?, two(m1, m2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 60 + minutes;
            match sign {
                b'+' => Some(offset),
                _ if offset == 0 => None,
                _ => Some(-offset),
            }
        }
        _ => None,
    }
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens) * 10 + i64::from(ones))
}
