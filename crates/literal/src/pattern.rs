//! Dates and timestamps in a `strftime` pattern, such as `%d.%m.%Y`.

use std::fmt::{self, Write as _};

use chrono::format::{Fixed, Item, Numeric, Parsed, StrftimeItems, parse};
use chrono::{DateTime, NaiveDate, NaiveTime};

use crate::time::Timestamp;

/// The format of the dates or timestamps of a column, as a `strftime` pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimePattern {
    text: String,
    items: Vec<Item<'static>>,
}

impl fmt::Display for TimePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TimePattern {
    /// Parses a pattern, which must determine a day.
    ///
    /// # Errors
    /// When a specifier does not exist, or a value in the pattern does not determine a day.
    pub fn new(text: &str) -> Result<TimePattern, String> {
        let items = StrftimeItems::new(text).parse_to_owned().map_err(|_| {
            format!("{text:?} is not a strftime pattern; write for example %d.%m.%Y, or %m/%d/%Y %H:%M:%S")
        })?;
        let pattern = TimePattern { text: text.to_owned(), items };
        match pattern.example().map(|example| pattern.parse(&example)) {
            Some(Ok(_)) => Ok(pattern),
            _ => Err(format!(
                "the pattern {text:?} does not determine a day; it needs a year, month and day (%Y, %m, %d), or \
                 seconds since 1970 (%s)"
            )),
        }
    }

    /// An instant as the pattern writes it.
    fn example(&self) -> Option<String> {
        let instant = DateTime::from_timestamp(1_354_357_815, 0)?.fixed_offset();
        // Patterns with specifiers for reading only cannot write.
        let items = self.items.iter().map(|item| match item {
            Item::Fixed(fixed) if is_permissive_zone(fixed) => &Item::Fixed(Fixed::TimezoneOffset),
            other => other,
        });
        let mut text = String::new();
        write!(text, "{}", instant.format_with_items(items)).ok()?;
        Some(text)
    }

    /// Whether the pattern has the offset from UTC, so that its timestamps are instants.
    pub fn has_zone(&self) -> bool {
        self.items.iter().any(|item| match item {
            Item::Numeric(Numeric::Timestamp, _) => true,
            Item::Fixed(fixed) => {
                matches!(
                    fixed,
                    Fixed::TimezoneOffset
                        | Fixed::TimezoneOffsetColon
                        | Fixed::TimezoneOffsetDoubleColon
                        | Fixed::TimezoneOffsetTripleColon
                        | Fixed::TimezoneOffsetColonZ
                        | Fixed::TimezoneOffsetZ
                        | Fixed::RFC2822
                        | Fixed::RFC3339
                ) || is_permissive_zone(fixed)
            }
            _ => false,
        })
    }

    /// Reads a text in the pattern. Without a time of day it is midnight.
    ///
    /// # Errors
    /// When the text is not in the pattern.
    pub fn parse(&self, text: &str) -> Result<Timestamp, String> {
        let mut parsed = Parsed::new();
        let failed = |reason: chrono::ParseError| format!("it does not match {:?} ({reason})", self.text);
        parse(&mut parsed, text, self.items.iter()).map_err(failed)?;
        let (microseconds, nanoseconds) = match parsed.timestamp() {
            Some(_) => {
                let instant = parsed.to_datetime_with_timezone(&chrono::Utc).map_err(failed)?;
                (instant.timestamp_micros(), instant.timestamp_subsec_nanos())
            }
            None => {
                let date = parsed.to_naive_date().map_err(failed)?;
                let has_time = parsed.hour_mod_12().is_some() || parsed.minute().is_some();
                let time = if has_time { parsed.to_naive_time().map_err(failed)? } else { NaiveTime::MIN };
                let instant = date.and_time(time).and_utc();
                let offset = i64::from(parsed.offset().unwrap_or(0)) * 1_000_000;
                (instant.timestamp_micros() - offset, instant.timestamp_subsec_nanos())
            }
        };
        Ok(Timestamp { microseconds, has_zone: self.has_zone(), is_cut: nanoseconds % 1000 != 0, month_first: false })
    }

    /// Days since 1970-01-01 of a text in the pattern.
    ///
    /// # Errors
    /// When the text is not in the pattern.
    pub fn parse_date(&self, text: &str) -> Result<i32, String> {
        let timestamp = self.parse(text)?;
        let days = DateTime::from_timestamp_micros(timestamp.microseconds)
            .map(|instant| (instant.date_naive() - NaiveDate::default()).num_days());
        days.and_then(|days| i32::try_from(days).ok()).ok_or_else(|| "the year is out of range".to_owned())
    }
}

/// `%#z` takes an offset with or without minutes.
fn is_permissive_zone(fixed: &Fixed) -> bool {
    // The library documents this name for its own use only.
    let permissive = StrftimeItems::new("%#z").next();
    matches!(permissive, Some(Item::Fixed(zone)) if zone == *fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_their_pattern_writes_them() {
        let date = |pattern: &str, text: &str| TimePattern::new(pattern).expect("a pattern").parse_date(text);
        assert_eq!(date("%d.%m.%Y", "31.12.2020"), Ok(18_627));
        assert_eq!(date("%m/%d/%y", "01/02/20"), Ok(18_263));
        assert_eq!(date("%j %Y", "366 2020"), Ok(18_627));
        for wrong in ["12.31.2020", "31.12.2020 1", "31-12-2020", "30.02.2020", ""] {
            assert!(date("%d.%m.%Y", wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_offset_or_seconds_since_1970_make_an_instant() {
        let read = |pattern: &str, text: &str| {
            let timestamp = TimePattern::new(pattern).expect("a pattern").parse(text).expect(text);
            (timestamp.microseconds, timestamp.has_zone)
        };
        assert_eq!(read("%d/%m/%Y %H:%M", "01/02/2020 03:04"), (1_580_526_240_000_000, false));
        assert_eq!(read("%d/%m/%Y %H:%M %z", "01/02/2020 03:04 +0100"), (1_580_522_640_000_000, true));
        assert_eq!(read("%d/%m/%Y %H:%M%#z", "01/02/2020 03:04+01"), (1_580_522_640_000_000, true));
        assert_eq!(read("%s", "1580522640"), (1_580_522_640_000_000, true));
        assert_eq!(read("%Y%m%d", "20200201"), (1_580_515_200_000_000, false));
        assert_eq!(read("%Y-%m-%d %I:%M %p", "2020-02-01 03:04 PM"), (1_580_569_440_000_000, false));
    }

    #[test]
    fn patterns_that_tell_no_day_are_refused() {
        for pattern in ["%H:%M", "%Q", "%m.%Y", "", "date"] {
            assert!(TimePattern::new(pattern).is_err(), "{pattern:?}");
        }
    }
}
