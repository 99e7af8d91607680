//! Dates and timestamps as text: ISO 8601, and month/day/year with a time, as spreadsheets in the
//! United States write it. The arithmetic uses the proleptic Gregorian calendar and counts days in
//! eras of 400 years that begin on the first of March. Second 60 is the first of the next minute.

const MICROSECONDS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
const MICROSECONDS_PER_DAY: i64 = SECONDS_PER_DAY * MICROSECONDS_PER_SECOND;
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// Most digits of a year in input; `i32` days reach about 5.9 million years.
const YEAR_DIGITS_MAX: usize = 7;

/// The date `days` after 1970-01-01, as `YYYY-MM-DD`. Years outside of 0 to 9999 have a sign and at
/// least six digits.
pub fn format_date(days: i32) -> String {
    format_civil(i64::from(days))
}

/// The instant `microseconds` after 1970-01-01T00:00:00 as `YYYY-MM-DDTHH:MM:SS`. A fraction has
/// three or six digits and is left out if zero. `Z` follows if `utc`.
pub fn format_timestamp(microseconds: i64, utc: bool) -> String {
    let days = microseconds.div_euclid(MICROSECONDS_PER_DAY);
    let of_day = microseconds.rem_euclid(MICROSECONDS_PER_DAY);
    let (seconds, fraction) = (of_day / MICROSECONDS_PER_SECOND, of_day % MICROSECONDS_PER_SECOND);
    let fraction = match fraction {
        0 => String::new(),
        _ if fraction % 1000 == 0 => format!(".{:03}", fraction / 1000),
        _ => format!(".{fraction:06}"),
    };
    let zone = if utc { "Z" } else { "" };
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}", format_civil(days))
}

/// A timestamp as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// Since 1970-01-01T00:00:00, in UTC when a zone was given.
    pub microseconds: i64,
    /// Whether the text names an offset from UTC.
    pub has_zone: bool,
    /// Whether digits beyond the microsecond were cut off.
    pub is_cut: bool,
    /// Whether the text was month/day/year.
    pub month_first: bool,
}

/// The kind of a text that is wholly a date or a timestamp with the year first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// A date alone.
    Date,
    /// A date with a time.
    Timestamp(Timestamp),
}

impl Time {
    /// The kind of a text, if it is wholly a date or a timestamp.
    pub fn of(text: &str) -> Option<Time> {
        // Most texts are neither, and their first bytes tell.
        if !text.as_bytes().first().is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-')) {
            return None;
        }
        if !text.contains(':') && parse_date(text).is_ok() {
            return Some(Time::Date);
        }
        parse_timestamp(text).ok().filter(|timestamp| !timestamp.month_first).map(Time::Timestamp)
    }
}

/// Days since 1970-01-01 of a date `YYYY-MM-DD` or `YYYY/MM/DD`. With hyphens, a year with a sign
/// may have up to seven digits.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_date(text: &str) -> Result<i32, &'static str> {
    let mut scanner = Scanner { rest: text.as_bytes() };
    let days = scanner.date()?;
    if !scanner.rest.is_empty() {
        return Err("characters follow the date");
    }
    i32::try_from(days).map_err(|_| "the year is out of range")
}

impl Timestamp {
    /// A notice on how the text was read, if it is worth one.
    pub fn notice(&self) -> Option<&'static str> {
        match self {
            Self { month_first: true, .. } => Some("dates with slashes are read as month/day/year"),
            Self { is_cut: true, .. } => Some("digits beyond the microsecond are cut off"),
            _ => None,
        }
    }

    /// The same for a text without a zone that is read as UTC.
    pub fn zone_notice(&self) -> Option<&'static str> {
        (!self.has_zone).then_some("times without a zone are taken as UTC")
    }
}

/// Reads `YYYY-MM-DD[(T| )HH:MM[:SS[.fraction]][zone]]`, the same with slashes in the date as GDAL
/// writes it, or `M/D/YYYY H:MM[:SS[.fraction]][ (AM|PM)]`.
///
/// A zone is `Z`, ` UTC` or `±HH[[:]MM]`. Digits of the fraction beyond microseconds are cut.
/// Second 60 is the first of the next minute, as in PostgreSQL.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_timestamp(text: &str) -> Result<Timestamp, &'static str> {
    let mut scanner = Scanner { rest: text.as_bytes() };
    let month_first = text.as_bytes().iter().take(3).any(|byte| *byte == b'/');
    let days = if month_first { scanner.month_first_date()? } else { scanner.date()? };
    let (mut time, mut is_cut, mut zone_s) = (0, false, None);
    if month_first || !scanner.rest.is_empty() {
        let hour_digits = scanner.separator(month_first)?;
        (time, is_cut) = scanner.time(hour_digits)?;
        if !scanner.rest.is_empty() {
            if month_first {
                time = scanner.half_of_day(time)?;
            } else {
                zone_s = Some(scanner.zone()?);
            }
        }
    }
    let microseconds = i128::from(days) * i128::from(MICROSECONDS_PER_DAY) + i128::from(time)
        - i128::from(zone_s.unwrap_or(0) * MICROSECONDS_PER_SECOND);
    let microseconds = i64::try_from(microseconds).map_err(|_| "the year is out of range")?;
    Ok(Timestamp { microseconds, has_zone: zone_s.is_some(), is_cut, month_first })
}

fn format_civil(days: i64) -> String {
    let (year, month, day) = civil_from_days(days);
    if (0..=9999).contains(&year) {
        format!("{year:04}-{month:02}-{day:02}")
    } else {
        format!("{year:+07}-{month:02}-{day:02}")
    }
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_DAYS;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year_from_march = year - i64::from(month <= 2);
    let era = year_from_march.div_euclid(400);
    let year_of_era = year_from_march.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - EPOCH_DAYS
}

/// Days since 1970-01-01 of an existing day.
fn existing_day(year: i64, month: i64, day: i64) -> Result<i64, &'static str> {
    let days = days_from_civil(year, month, day);
    let exists = (1..=12).contains(&month) && civil_from_days(days) == (year, month, day);
    exists.then_some(days).ok_or("there is no such day")
}

/// Reads the parts of a date or timestamp from the front of a text.
struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn date(&mut self) -> Result<i64, &'static str> {
        let sign = match self.rest.first() {
            Some(b'-') => -1,
            Some(b'+') => 1,
            _ => 0,
        };
        if sign != 0 {
            self.rest = &self.rest[1..];
        }
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits < 4 || digits > if sign == 0 { 4 } else { YEAR_DIGITS_MAX } {
            return Err("write it as YYYY-MM-DD");
        }
        let year = self.number(digits)? * if sign < 0 { -1 } else { 1 };
        let separator = if sign == 0 && self.rest.first() == Some(&b'/') { b'/' } else { b'-' };
        self.expect(separator)?;
        let month = self.number(2)?;
        self.expect(separator)?;
        let day = self.number(2)?;
        existing_day(year, month, day)
    }

    fn month_first_date(&mut self) -> Result<i64, &'static str> {
        let month = self.number(self.digits_up_to(2))?;
        self.expect(b'/')?;
        let day = self.number(self.digits_up_to(2))?;
        self.expect(b'/')?;
        let year = self.number(4)?;
        existing_day(year, month, day)
    }

    /// Skips the separator of date and time; returns the number of digits of the hour.
    fn separator(&mut self, month_first: bool) -> Result<usize, &'static str> {
        match self.rest.first() {
            Some(b' ') if month_first => {
                self.rest = &self.rest[1..];
                Ok(self.digits_up_to(2))
            }
            Some(b'T' | b't' | b' ') if !month_first => {
                self.rest = &self.rest[1..];
                Ok(2)
            }
            _ if month_first => Err("put a blank and a time behind the date"),
            _ => Err("put T or a blank between date and time"),
        }
    }

    /// Microseconds of the day, and whether digits were cut off.
    fn time(&mut self, hour_digits: usize) -> Result<(i64, bool), &'static str> {
        let hour = self.number(hour_digits)?;
        self.expect(b':')?;
        let minute = self.number(2)?;
        let mut second = 0;
        let (mut fraction, mut is_cut) = (0, false);
        if self.rest.first() == Some(&b':') {
            self.rest = &self.rest[1..];
            second = self.number(2)?;
            if matches!(self.rest.first(), Some(b'.' | b',')) {
                self.rest = &self.rest[1..];
                (fraction, is_cut) = self.fraction()?;
            }
        }
        if hour > 23 || minute > 59 || second > 60 {
            return Err("there is no such time of day");
        }
        Ok(((hour * 3600 + minute * 60 + second) * MICROSECONDS_PER_SECOND + fraction, is_cut))
    }

    /// The time of day from a time on a twelve-hour clock.
    fn half_of_day(&mut self, time: i64) -> Result<i64, &'static str> {
        const HOUR: i64 = 3600 * MICROSECONDS_PER_SECOND;
        let hour = time / HOUR;
        if !(1..=12).contains(&hour) {
            return Err("there is no such time of day");
        }
        let since_twelve = time - if hour == 12 { 12 * HOUR } else { 0 };
        match self.rest.to_ascii_uppercase().as_slice() {
            b" AM" => Ok(since_twelve),
            b" PM" => Ok(since_twelve + 12 * HOUR),
            _ => Err("write AM or PM behind the time, or nothing"),
        }
    }

    /// Microseconds, and whether digits were cut off.
    fn fraction(&mut self) -> Result<(i64, bool), &'static str> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err("the fraction of the second has no digits");
        }
        let kept = digits.min(6);
        let value = self.number(kept)?;
        let (cut, rest) = self.rest.split_at(digits - kept);
        self.rest = rest;
        Ok(((kept..6).fold(value, |value, _| value * 10), cut.iter().any(|digit| *digit != b'0')))
    }

    /// Offset of the zone from UTC in seconds.
    fn zone(&mut self) -> Result<i64, &'static str> {
        const REASON: &str = "write the time zone as Z or ±HH:MM";
        let sign = match self.rest.first() {
            Some(b'Z' | b'z') if self.rest.len() == 1 => return Ok(0),
            Some(b' ') if self.rest == b" UTC" => return Ok(0),
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(REASON),
        };
        self.rest = &self.rest[1..];
        let hour = self.number(2).map_err(|_| REASON)?;
        if self.rest.first() == Some(&b':') {
            self.rest = &self.rest[1..];
        }
        let minute = if self.rest.is_empty() { 0 } else { self.number(2).map_err(|_| REASON)? };
        if hour > 23 || minute > 59 || !self.rest.is_empty() {
            return Err(REASON);
        }
        Ok(sign * (hour * 3600 + minute * 60))
    }

    /// Number of digits that come next, from one to `most`. If there is none, one is returned, so
    /// that reading it fails.
    fn digits_up_to(&self, most: usize) -> usize {
        self.rest.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count().max(1)
    }

    /// A number of exactly `digits` (at most seven) digits.
    fn number(&mut self, digits: usize) -> Result<i64, &'static str> {
        let Some((head, rest)) = self.rest.split_at_checked(digits) else {
            return Err("it ends too early");
        };
        if !head.iter().all(u8::is_ascii_digit) {
            return Err("a digit is missing");
        }
        self.rest = rest;
        Ok(head.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
    }

    fn expect(&mut self, byte: u8) -> Result<(), &'static str> {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                Ok(())
            }
            _ => Err("a separator is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn microseconds(text: &str) -> Option<i64> {
        parse_timestamp(text).ok().map(|timestamp| timestamp.microseconds)
    }

    #[test]
    fn dates_round_trip_through_every_day_of_eight_centuries() {
        let first = parse_date("1600-01-01").unwrap();
        let mut previous = String::new();
        for day in first..first + 800 * 366 {
            let text = format_date(day);
            assert_eq!(parse_date(&text), Ok(day), "{text}");
            assert!(text > previous, "{text} follows {previous}");
            previous = text;
        }
    }

    #[test]
    fn dates_of_any_year_are_read_as_they_are_written() {
        for day in [i32::MIN, -800_000, -719_529, 2_932_897, 100_000_000, i32::MAX] {
            assert_eq!(parse_date(&format_date(day)), Ok(day));
        }
        for microsecond in [i64::MIN, -1, 253_402_300_800_000_000, i64::MAX] {
            for utc in [false, true] {
                let read = parse_timestamp(&format_timestamp(microsecond, utc)).unwrap();
                assert_eq!((read.microseconds, read.has_zone), (microsecond, utc));
            }
        }
    }

    #[test]
    fn zones_are_applied() {
        assert_eq!(microseconds("1970-01-01T00:00:01Z"), Some(1_000_000));
        assert_eq!(microseconds("1970-01-01 02:00:00+02:00"), Some(0));
        assert_eq!(microseconds("1970-01-01T00:00:00.5-0130"), Some(5_400_500_000));
        assert_eq!(microseconds("1970-01-01 00:00:00+00"), Some(0));
        assert_eq!(microseconds("1970-01-01 00:00:00 UTC"), Some(0));
        assert!(!parse_timestamp("1970-01-01T00:00").unwrap().has_zone);
    }

    #[test]
    fn month_day_year_needs_a_time_and_existing_days() {
        for text in ["4/1/2014 0:11:00", "04/01/2014 00:11", "4/1/2014 12:11 AM"] {
            assert_eq!(microseconds(text), microseconds("2014-04-01T00:11:00"), "{text}");
            assert!(parse_timestamp(text).unwrap().month_first, "{text}");
        }
        assert_eq!(microseconds("4/1/2014 12:11 pm"), microseconds("2014-04-01T12:11:00"));
        for text in [
            "13/1/2014 0:11:00",
            "4/1/2014",
            "4/1/2014 13:11 PM",
            "4/1/2014 0:11 PM",
            "4/1/2014T0:11",
            "/1/2014 0:11",
            "4/1/14 0:11",
        ] {
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_beyond_the_microsecond_are_cut_and_noted() {
        for (text, is_cut) in [
            ("2020-01-01T00:00:00.123456789", true),
            ("2020-01-01T00:00:00.1234560000000000", false),
            ("2020-01-01T00:00:00.1", false),
        ] {
            assert_eq!(parse_timestamp(text).unwrap().is_cut, is_cut, "{text}");
        }
    }

    #[test]
    fn second_60_is_the_first_of_the_next_minute() {
        assert_eq!(microseconds("2016-12-31T23:59:60Z"), microseconds("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn dates_with_slashes_have_the_year_first_as_gdal_writes_them() {
        assert_eq!(microseconds("2020/01/01 00:00:00+00"), microseconds("2020-01-01T00:00:00Z"));
        assert_eq!(parse_date("2020/01/31"), parse_date("2020-01-31"));
    }

    #[test]
    fn a_text_is_a_time_only_as_a_whole_and_with_the_year_first() {
        assert_eq!(Time::of("2020-01-01"), Some(Time::Date));
        assert!(matches!(Time::of("2020-01-01 05:00+05:30"), Some(Time::Timestamp(time)) if time.has_zone));
        for text in ["", "4/1/2014 0:11:00", "2020-01-01 was a day", "2020", "north", "-", "20200101"] {
            assert_eq!(Time::of(text), None, "{text}");
        }
    }

    #[test]
    fn nonsense_is_not_a_timestamp() {
        for text in [
            "",
            "/",
            "2020-01-01T24:00:00",
            "2020-01-01T00:00:61",
            "2020/01-01T00:00:00",
            "+2020/01/01",
            "2020-01-01T00:00:00.",
            "2020-01-01T00:00.5",
            "2020-01-01T00:00:00+25:00",
            "2020-01-01T00:00:00 CET",
            "2020-01-01X00:00:00",
            "4/1/2014 0:11 \u{e9}",
        ] {
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
    }
}
