//! Points in time and spans of time, in the form that people write.

/// Formats microseconds since 1970 as a UTC time. Returns `never` for zero.
#[must_use]
pub fn moment(us: u64) -> String {
    if us == 0 {
        return "never".into();
    }
    let seconds = us / 1_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Converts days to a civil date. An era has 400 years and begins on the first of March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    assert!(
        (1..=12).contains(&month) && (1..=31).contains(&day) && year >= 1970,
        "day {days} since 1970 is {year}-{month}-{day}"
    );
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let micros = us % 1_000_000;
    assert_eq!(
        (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros,
        us,
        "the parts make up the moment"
    );
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Returns the days from 1970-01-01 to a civil date. Returns `None` for an invalid date or a date before 1970.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let in_month = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if year < 1970 || day == 0 || day > in_month {
        return None;
    }
    // A shifted year begins on the first of March, so that a leap day is the last day of its year.
    let shifted = if month <= 2 { year - 1 } else { year };
    let month_index = (month + 9) % 12;
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    assert!(day_of_year < 366, "day {day_of_year} of a year");
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year;
    days.checked_sub(719_468)
}

/// Removes a number of exactly `len` digits from the front of `text`.
fn digits(text: &mut &str, len: usize) -> Option<u64> {
    let (number, rest) = text.split_at_checked(len)?;
    *text = rest;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}

/// Takes the first character off `text` if it is one of `these`. Returns the character, or `None`.
fn one_of(text: &mut &str, these: &[char]) -> Option<char> {
    let found = text.chars().next().filter(|c| these.contains(c))?;
    *text = &text[found.len_utf8()..];
    Some(found)
}

/// Parses an RFC 3339 time and returns its microseconds since 1970: the inverse of [`moment`]. A space is accepted
/// instead of the `T`. Without an offset the moment is in UTC. Digits after the microseconds are ignored.
#[must_use]
pub fn parse_moment(text: &str) -> Option<u64> {
    let mut rest = text;
    let year = digits(&mut rest, 4)?;
    one_of(&mut rest, &['-'])?;
    let month = digits(&mut rest, 2)?;
    one_of(&mut rest, &['-'])?;
    let day = digits(&mut rest, 2)?;
    one_of(&mut rest, &['T', 't', ' '])?;
    let hour = digits(&mut rest, 2)?;
    one_of(&mut rest, &[':'])?;
    let minute = digits(&mut rest, 2)?;
    one_of(&mut rest, &[':'])?;
    let second = digits(&mut rest, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = 0;
    if one_of(&mut rest, &['.']).is_some() {
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let fraction = rest.get(..len.min(6)).filter(|shown| !shown.is_empty())?;
        micros = format!("{fraction:0<6}").parse().ok()?;
        rest = &rest[len..];
    }
    let local = (days_since_1970(year, month, day)? * 24 + hour) * 60 + minute;
    let minutes = match one_of(&mut rest, &['Z', 'z', '+', '-']) {
        None | Some('Z' | 'z') => local,
        Some(sign) => {
            let hours = digits(&mut rest, 2).filter(|hours| *hours <= 23)?;
            one_of(&mut rest, &[':'])?;
            let offset = hours * 60 + digits(&mut rest, 2).filter(|minutes| *minutes <= 59)?;
            match sign {
                '+' => local.checked_sub(offset)?,
                _ => local + offset,
            }
        }
    };
    let us = (minutes * 60 + second) * 1_000_000 + micros;
    assert!(micros < 1_000_000, "{micros} microseconds are a fraction");
    assert_eq!(us / 60_000_000, minutes, "a second is within its minute");
    rest.is_empty().then_some(us)
}

/// Parses a span of time, such as `1h30m` or `2d`, and returns the microseconds. The units are `d`, `h`, `min` or `m`,
/// `s`, `ms` and `us`. Each unit occurs at most once, larger units first.
#[must_use]
pub fn parse_span(text: &str) -> Option<u64> {
    const DAY: u64 = 86_400_000_000;
    let (mut rest, mut sum, mut last) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..len].parse().ok()?;
        rest = &rest[len..];
        let len = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match &rest[..len] {
            "d" => DAY,
            "h" => DAY / 24,
            "m" | "min" => 60_000_000,
            "s" => 1_000_000,
            "ms" => 1_000,
            "us" => 1,
            _ => return None,
        };
        rest = &rest[len..];
        if unit >= last {
            return None;
        }
        assert!(unit > 0, "a unit is a span");
        last = unit;
        sum = sum.checked_add(number.checked_mul(unit)?)?;
    }
    (last < u64::MAX).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_it_is_written() {
        let mut us = 1;
        while us < 250_000_000_000_000_000 {
            let text = moment(us);
            assert_eq!(parse_moment(&text), Some(us), "{text}");
            let plain = text.replace('T', " ").replace('Z', "");
            assert_eq!(parse_moment(&plain), Some(us));
            us = us / 100 * 101 + 7_919;
        }
        for day in 0..200_000 {
            let us = day * 86_400_000_000 + 86_399_999_999;
            assert_eq!(parse_moment(&moment(us)), Some(us));
        }
    }

    #[test]
    fn offsets_and_fractions_are_read_and_what_no_clock_shows_is_not() {
        let noon = parse_moment("2026-03-01 12:00:00");
        assert_eq!(noon, Some(1_772_366_400_000_000));
        for same in [
            "2026-03-01T12:00:00Z",
            "2026-03-01t12:00:00.0z",
            "2026-03-01T14:30:00+02:30",
            "2026-03-01 11:00:00-01:00",
        ] {
            assert_eq!(parse_moment(same), noon, "{same}");
        }
        let after = |us: u64| noon.map(|noon| noon + us);
        assert_eq!(parse_moment("2026-03-01 12:00:00.25"), after(250_000));
        assert_eq!(parse_moment("2026-03-01 12:00:00.1234567"), after(123_456));
        for bad in [
            "",
            "2026-03-01",
            "2026-03-01 12:00",
            "2026-02-29 12:00:00",
            "2026-13-01 12:00:00",
            "2026-00-01 12:00:00",
            "2026-03-00 12:00:00",
            "2026-03-01 24:00:00",
            "2026-03-01 12:60:00",
            "2026-03-01 12:00:60",
            "2026-03-01 12:00:00.",
            "2026-03-01 12:00:00 UTC",
            "2026-03-01 12:00:00+1:00",
            "2026-03-01 12:00:00+24:00",
            "2026-03-01 12:00:00Zulu",
            "1969-12-31 23:59:59",
            "1970-01-01 00:00:00+01:00",
            "+026-03-01 12:00:00",
            "2026-03-01 1é:00:00",
        ] {
            assert_eq!(parse_moment(bad), None, "{bad}");
        }
    }

    #[test]
    fn spans_have_units_from_the_largest_down() {
        let minute = 60_000_000;
        for (text, us) in [
            ("10min", 10 * minute),
            ("10m", 10 * minute),
            ("1h30m", 90 * minute),
            ("2d", 2 * 1440 * minute),
            ("1d1s", 1440 * minute + 1_000_000),
            ("0s", 0),
            ("1ms5us", 1_005),
        ] {
            assert_eq!(parse_span(text), Some(us), "{text}");
        }
        let bad = ["", "5", "h", "1h1h", "5m1h", "1.5h", "-1s", "1 h", "1w"];
        for bad in bad.into_iter().chain(["99999999999999d"]) {
            assert_eq!(parse_span(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "never");
        assert_eq!(moment(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(moment(1_735_689_599_000_000), "2024-12-31T23:59:59.000000Z");
    }
}
