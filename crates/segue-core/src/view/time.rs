//! Timestamps.

use std::borrow::Cow;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::fmt::temporal::DateTimePrinter;
use schemars::JsonSchema;
use serde::Serialize;

/// A time in milliseconds since 1970; formatted as RFC 3339 only when serialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// RFC 3339 in UTC, from milliseconds since 1970. Years have four digits: what is later than the last of
/// them is its last moment.
pub fn rfc3339(millis: u64) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
    let since = SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    PRINTER.datetime_to_string(&EPOCH.saturating_add(since)) + "Z"
}

/// Milliseconds since 1970, from RFC 3339; `None` if it is invalid, or before 1970.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_at_checked("2000-01-01T00:00:00".len())?;
    // The calendar is jiff's, the notation is not: jiff reads more than RFC 3339 allows.
    let is_rfc3339 = seconds.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        10 => matches!(byte, b'T' | b't' | b' '),
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    // A leap second is the last moment of its minute.
    let local: DateTime = is_rfc3339.then(|| seconds.parse().ok())??;
    let (millis, zone) = split_fraction(rest)?;
    let utc = local.duration_since(EPOCH).as_secs() - zone_seconds(zone)?;
    Some(u64::try_from(utc).ok()? * 1000 + millis)
}

/// The milliseconds of a fraction, and what follows it.
fn split_fraction(text: &str) -> Option<(u64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let millis = format!("{digits:0<3}").get(..3)?.parse().ok()?;
    (!digits.is_empty()).then_some((millis, rest))
}

/// The offset of a time zone in seconds.
fn zone_seconds(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, zone) = match (zone.strip_prefix('+'), zone.strip_prefix('-')) {
        (Some(zone), _) => (1, zone),
        (_, Some(zone)) => (-1, zone),
        _ => return None,
    };
    let (hours, minutes) = zone.split_once(':').filter(|(h, m)| h.len() == 2 && m.len() == 2)?;
    let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::{parse_rfc3339, rfc3339};
    use proptest::prelude::*;

    /// The last moment of the year 9999.
    const LAST_MS: u64 = 253_402_300_799_999;

    proptest! {
        #[test]
        fn what_is_written_is_read(millis in 0..=LAST_MS) {
            let text = rfc3339(millis);
            prop_assert_eq!(text.len(), "2000-02-29T00:00:00.123Z".len());
            prop_assert_eq!(parse_rfc3339(&text), Some(millis));
        }

        #[test]
        fn later_is_written_later(one in 0..=LAST_MS, other in 0..=LAST_MS) {
            prop_assert_eq!(one.cmp(&other), rfc3339(one).cmp(&rfc3339(other)));
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(rfc3339(1_794_700_799_999), "2026-11-14T23:59:59.999Z");
        assert_eq!(rfc3339(LAST_MS), "9999-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(LAST_MS + 1), rfc3339(LAST_MS));
        assert_eq!(rfc3339(u64::MAX), rfc3339(LAST_MS));
    }

    #[test]
    fn times_are_read_in_every_zone() {
        for millis in [0, 951_782_400_123, 1_794_700_799_999] {
            assert_eq!(parse_rfc3339(&rfc3339(millis)), Some(millis));
        }
        for same in
            ["2000-02-29T00:00:00Z", "2000-02-29t02:30:00.000+02:30", "2000-02-28 19:00:00-05:00"]
        {
            assert_eq!(parse_rfc3339(same), Some(951_782_400_000), "{same}");
        }
        for (text, millis) in [
            ("2016-12-31T23:59:60Z", 1_483_228_799_000),
            ("2000-02-29T00:00:00.1234567890123Z", 951_782_400_123),
            ("2000-02-29T00:00:00.5z", 951_782_400_500),
            ("9999-12-31T23:59:59-23:59", LAST_MS - 999 + 86_340_000),
            ("1969-12-31T23:59:59-00:01", 59_000),
        ] {
            assert_eq!(parse_rfc3339(text), Some(millis), "{text}");
        }
        for wrong in [
            "",
            "20000229T000000Z",
            "2000-02-29T00:00:00,5Z",
            "2000-02-29T00:00:00+0200",
            "2000-02-29T00:00:00+02:00:00",
            "2000-02-29T00:00:00+24:00",
            "2000-02-29T00:00:00Z[UTC]",
            "2000-02-29T00:00:61Z",
            "+002000-02-29T00:00:00Z",
            "0000-02-29T00:00:00Z",
            "2000-02-30T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "2000-02-29T24:00:00Z",
            "2000-02-29T00:00:00",
            "2000-02-29T00:00:00.Z",
            "2000-02-29",
            "1969-12-31T23:59:59Z",
            "2000-02-29T00:00:00+2:00",
            "2000-02-2éT00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
    }
}
