//! Dates and timestamps as ISO 8601 text, by arithmetic on the proleptic Gregorian
//! calendar (days are counted in eras of 400 years that begin on the first of March).

use super::ValueError;

const MICROSECONDS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
const MICROSECONDS_PER_DAY: i64 = SECONDS_PER_DAY * MICROSECONDS_PER_SECOND;
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// Most digits of a year that is read; `i32` days reach about 5.9 million years.
const YEAR_DIGITS_MAX: usize = 7;

/// The date that lies `days` after 1970-01-01, as `YYYY-MM-DD`; years outside of 0 to 9999
/// carry a sign and at least six digits.
pub fn format_date(days: i32) -> String {
    format_civil(i64::from(days))
}

/// The instant `microseconds` after 1970-01-01T00:00:00 as `YYYY-MM-DDTHH:MM:SS`, with three
/// or six digits of a fraction where there is one, and `Z` if `utc`.
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

/// Days since 1970-01-01 of a date `YYYY-MM-DD` (a year with a sign may have up to seven digits).
pub fn parse_date(text: &str) -> Result<i32, ValueError> {
    let refuse = |reason| ValueError::new(format_args!("{text:?}"), "a date", reason);
    let mut scanner = Scanner { rest: text.as_bytes() };
    let days = scanner.date().map_err(refuse)?;
    if !scanner.rest.is_empty() {
        return Err(refuse("characters follow the date"));
    }
    i32::try_from(days).map_err(|_| refuse("the year is out of range"))
}

/// Microseconds since 1970-01-01T00:00:00 of `YYYY-MM-DD[(T| )HH:MM[:SS[.fraction]][zone]]`.
///
/// A zone is `Z` or `±HH[[:]MM]` and is refused unless `utc`; without one, a UTC timestamp
/// is taken as UTC. Digits of the fraction beyond microseconds are cut; second 60 is refused.
pub fn parse_timestamp(text: &str, utc: bool) -> Result<i64, ValueError> {
    let refuse = |reason| ValueError::new(format_args!("{text:?}"), "a timestamp", reason);
    let mut scanner = Scanner { rest: text.as_bytes() };
    let days = scanner.date().map_err(refuse)?;
    let mut microseconds = i128::from(days) * i128::from(MICROSECONDS_PER_DAY);
    if !scanner.rest.is_empty() {
        microseconds += i128::from(scanner.time().map_err(refuse)?);
        if !scanner.rest.is_empty() {
            if !utc {
                return Err(refuse("the column has no time zone; leave the zone out"));
            }
            let offset_seconds = scanner.zone().map_err(refuse)?;
            microseconds -= i128::from(offset_seconds * MICROSECONDS_PER_SECOND);
        }
    }
    i64::try_from(microseconds).map_err(|_| refuse("the year is out of range"))
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
        self.expect(b'-')?;
        let month = self.number(2)?;
        self.expect(b'-')?;
        let day = self.number(2)?;
        if !(1..=12).contains(&month) || day < 1 {
            return Err("there is no such day");
        }
        let days = days_from_civil(year, month, day);
        if civil_from_days(days) != (year, month, day) {
            return Err("there is no such day");
        }
        Ok(days)
    }

    fn time(&mut self) -> Result<i64, &'static str> {
        match self.rest.first() {
            Some(b'T' | b't' | b' ') => self.rest = &self.rest[1..],
            _ => return Err("put T or a blank between date and time"),
        }
        let hour = self.number(2)?;
        self.expect(b':')?;
        let minute = self.number(2)?;
        let mut second = 0;
        let mut fraction = 0;
        if self.rest.first() == Some(&b':') {
            self.rest = &self.rest[1..];
            second = self.number(2)?;
            if matches!(self.rest.first(), Some(b'.' | b',')) {
                self.rest = &self.rest[1..];
                fraction = self.fraction()?;
            }
        }
        if hour > 23 || minute > 59 || second > 59 {
            return Err("there is no such time of day");
        }
        Ok((hour * 3600 + minute * 60 + second) * MICROSECONDS_PER_SECOND + fraction)
    }

    fn fraction(&mut self) -> Result<i64, &'static str> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err("the fraction of the second has no digits");
        }
        let kept = digits.min(6);
        let value = self.number(kept)?;
        self.rest = &self.rest[digits - kept..];
        Ok((kept..6).fold(value, |value, _| value * 10))
    }

    /// Seconds that the zone is ahead of UTC.
    fn zone(&mut self) -> Result<i64, &'static str> {
        const REASON: &str = "write the time zone as Z or ±HH:MM";
        let sign = match self.rest.first() {
            Some(b'Z' | b'z') if self.rest.len() == 1 => return Ok(0),
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
