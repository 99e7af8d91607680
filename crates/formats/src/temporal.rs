//! Dates and timestamps as text: ISO 8601, and month/day/year with a time as
//! spreadsheets of the United States write it.
//!
//! Dates are days, timestamps microseconds since 1970-01-01 in the proleptic
//! Gregorian calendar, as in Arrow. Leap seconds are not taken.

const SECONDS_PER_DAY: i64 = 86_400;
const MICROSECONDS_PER_SECOND: i64 = 1_000_000;

/// A timestamp as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timestamp {
    /// Since 1970-01-01T00:00:00, in UTC when a zone was given.
    pub microseconds: i64,
    /// Whether the text names an offset from UTC.
    pub has_zone: bool,
    /// Whether digits beyond the microsecond were cut off.
    pub is_cut: bool,
    /// Whether the text was month/day/year.
    pub month_first: bool,
}

/// Days since 1970-01-01 of a date that exists.
fn days_from_civil(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    // Years start in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day of a day since 1970-01-01.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// A cursor over the bytes of a short text.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// A number of `digits_min` to `digits_max` digits.
    fn number(&mut self, digits_min: usize, digits_max: usize) -> Option<u32> {
        let count = self.rest.iter().take(digits_max).take_while(|byte| byte.is_ascii_digit()).count();
        if count < digits_min {
            return None;
        }
        let value = self.rest[..count].iter().fold(0, |value, byte| value * 10 + u32::from(byte - b'0'));
        self.rest = &self.rest[count..];
        Some(value)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        let (&first, rest) = self.rest.split_first()?;
        (first == byte).then(|| self.rest = rest)
    }

    fn take_any(&mut self, bytes: &[u8]) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        bytes.contains(&first).then(|| {
            self.rest = rest;
            first
        })
    }

    fn iso_date(&mut self) -> Option<i64> {
        let year = self.number(4, 4)?;
        self.take(b'-')?;
        let month = self.number(2, 2)?;
        self.take(b'-')?;
        let day = self.number(2, 2)?;
        days_from_civil(i64::from(year), month, day)
    }

    /// Hours, minutes and, if written, seconds with a fraction: microseconds
    /// of the day, and whether digits were cut off.
    fn time(&mut self, hour_digits_min: usize) -> Option<(i64, bool)> {
        let hour = self.number(hour_digits_min, 2)?;
        self.take(b':')?;
        let minute = self.number(2, 2)?;
        let second = match self.take(b':') {
            Some(()) => self.number(2, 2)?,
            None => 0,
        };
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut fraction = 0;
        let mut is_cut = false;
        if self.rest.first().is_some_and(|byte| b".,".contains(byte)) {
            self.rest = &self.rest[1..];
            let mut digits = 0;
            while let Some(byte) = self.rest.first().filter(|byte| byte.is_ascii_digit()) {
                let digit = i64::from(byte - b'0');
                if digits < 6 {
                    fraction = fraction * 10 + digit;
                } else {
                    is_cut |= digit != 0;
                }
                digits += 1;
                self.rest = &self.rest[1..];
            }
            if digits == 0 || digits > 12 {
                return None;
            }
            for _ in digits..6 {
                fraction *= 10;
            }
        }
        let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        Some((seconds * MICROSECONDS_PER_SECOND + fraction, is_cut))
    }

    /// `Z`, ` UTC`, `+02`, `+0200`, `+02:00`: the offset in seconds.
    fn zone(&mut self) -> Option<i64> {
        if self.rest == b"Z" || self.rest == b"z" || self.rest == b" UTC" {
            self.rest = &[];
            return Some(0);
        }
        let sign = match self.take_any(b"+-")? {
            b'-' => -1,
            _ => 1,
        };
        let hour = self.number(2, 2)?;
        let minute = if self.rest.is_empty() {
            0
        } else {
            // The colon between hours and minutes may be left out.
            let _ = self.take(b':');
            self.number(2, 2)?
        };
        (hour <= 18 && minute <= 59).then(|| sign * i64::from(hour * 3600 + minute * 60))
    }
}

/// `YYYY-MM-DD`.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    let mut cursor = Cursor { rest: text.as_bytes() };
    let days = cursor.iso_date()?;
    cursor.rest.is_empty().then_some(days)?.try_into().ok()
}

/// A date and a time; see the module's head for the forms.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    if bytes.len() < 12 || bytes.len() > 48 {
        return None;
    }
    if bytes[4] == b'-' { parse_iso_timestamp(bytes) } else { parse_month_first(bytes) }
}

fn parse_iso_timestamp(bytes: &[u8]) -> Option<Timestamp> {
    let mut cursor = Cursor { rest: bytes };
    let days = cursor.iso_date()?;
    cursor.take_any(b"Tt ")?;
    let (time, is_cut) = cursor.time(2)?;
    let offset_s = if cursor.rest.is_empty() { None } else { Some(cursor.zone()?) };
    if !cursor.rest.is_empty() {
        return None;
    }
    let local = days * SECONDS_PER_DAY * MICROSECONDS_PER_SECOND + time;
    Some(Timestamp {
        microseconds: local - offset_s.unwrap_or(0) * MICROSECONDS_PER_SECOND,
        has_zone: offset_s.is_some(),
        is_cut,
        month_first: false,
    })
}

fn parse_month_first(bytes: &[u8]) -> Option<Timestamp> {
    let mut cursor = Cursor { rest: bytes };
    let month = cursor.number(1, 2)?;
    cursor.take(b'/')?;
    let day = cursor.number(1, 2)?;
    cursor.take(b'/')?;
    let year = cursor.number(4, 4)?;
    cursor.take(b' ')?;
    let days = days_from_civil(i64::from(year), month, day)?;
    let (mut time, is_cut) = cursor.time(1)?;
    if !cursor.rest.is_empty() {
        const HOUR: i64 = 3600 * MICROSECONDS_PER_SECOND;
        let hour = time / HOUR;
        if !(1..=12).contains(&hour) {
            return None;
        }
        match cursor.rest.to_ascii_uppercase().as_slice() {
            b" AM" => time -= if hour == 12 { 12 * HOUR } else { 0 },
            b" PM" => time += if hour == 12 { 0 } else { 12 * HOUR },
            _ => return None,
        }
    }
    Some(Timestamp {
        microseconds: days * SECONDS_PER_DAY * MICROSECONDS_PER_SECOND + time,
        has_zone: false,
        is_cut,
        month_first: true,
    })
}

/// `YYYY-MM-DD`; years beyond four digits carry a sign.
pub(crate) fn format_date(days: i32) -> String {
    let (year, month, day) = civil_from_days(i64::from(days));
    format!("{}-{month:02}-{day:02}", format_year(year))
}

/// `YYYY-MM-DDTHH:MM:SS[.ffffff]`, with `Z` when it is in UTC.
pub(crate) fn format_timestamp(microseconds: i64, is_utc: bool) -> String {
    let seconds = microseconds.div_euclid(MICROSECONDS_PER_SECOND);
    let fraction = microseconds.rem_euclid(MICROSECONDS_PER_SECOND);
    let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
    let time = seconds.rem_euclid(SECONDS_PER_DAY);
    let mut text =
        format!("{}-{month:02}-{day:02}T{:02}:{:02}:{:02}", format_year(year), time / 3600, time / 60 % 60, time % 60);
    if fraction % 1000 != 0 {
        text.push_str(&format!(".{fraction:06}"));
    } else if fraction != 0 {
        text.push_str(&format!(".{:03}", fraction / 1000));
    }
    if is_utc {
        text.push('Z');
    }
    text
}

fn format_year(year: i64) -> String {
    if (0..=9999).contains(&year) { format!("{year:04}") } else { format!("{year:+05}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn microseconds(text: &str) -> Option<i64> {
        parse_timestamp(text).map(|timestamp| timestamp.microseconds)
    }

    #[test]
    fn dates_round_trip_through_every_day_of_eight_centuries() {
        let first = parse_date("1600-01-01").expect("a date");
        let mut previous = String::new();
        for day in first..first + 800 * 366 {
            let text = format_date(day);
            assert_eq!(parse_date(&text), Some(day), "{text}");
            assert!(text > previous, "{text} follows {previous}");
            previous = text;
        }
        assert_eq!(parse_date("1970-01-01"), Some(0));
        assert_eq!(parse_date("2000-02-29"), Some(11_016));
    }

    #[test]
    fn dates_that_do_not_exist_are_not_dates() {
        for text in ["1900-02-29", "2021-02-29", "2021-13-01", "2021-00-10", "2021-04-31", "21-1-1"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }

    #[test]
    fn zones_are_applied() {
        assert_eq!(microseconds("1970-01-01T00:00:01Z"), Some(1_000_000));
        assert_eq!(microseconds("1970-01-01 02:00:00+02:00"), Some(0));
        assert_eq!(microseconds("1970-01-01T00:00:00.5-0130"), Some(5_400_500_000));
        assert_eq!(microseconds("1969-12-31T23:59:59.999999"), Some(-1));
        assert_eq!(microseconds("1970-01-01 00:00:00+00"), Some(0));
        assert!(!parse_timestamp("1970-01-01T00:00").expect("valid").has_zone);
    }

    #[test]
    fn month_day_year_needs_a_time_and_existing_days() {
        assert_eq!(microseconds("4/1/2014 0:11:00"), microseconds("2014-04-01T00:11:00"));
        assert_eq!(microseconds("4/1/2014 12:11 AM"), microseconds("2014-04-01T00:11:00"));
        assert_eq!(microseconds("13/1/2014 0:11:00"), None);
        assert_eq!(microseconds("4/1/2014"), None);
        assert_eq!(microseconds("4/1/2014 13:11 PM"), None);
    }

    #[test]
    fn nonsense_is_not_a_timestamp() {
        for text in [
            "2020-01-01T24:00:00",
            "2020-01-01T00:00:60",
            "2020-01-01T00:00:00.",
            "2020-01-01T00:00:00+25:00",
            "2020-01-01T00:00:00 CET",
            "2020-01-01X00:00:00",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn timestamps_are_written_as_they_are_read() {
        for text in
            ["2014-04-01T00:11:00", "1969-12-31T23:59:59.999999", "2024-02-29T12:00:00.250", "0001-01-01T00:00:00"]
        {
            let value = microseconds(text).expect("valid");
            assert_eq!(format_timestamp(value, false), text);
            assert_eq!(format_timestamp(value, true), format!("{text}Z"));
        }
        assert!(parse_timestamp("2020-01-01T00:00:00.123456789").expect("valid").is_cut);
    }
}
