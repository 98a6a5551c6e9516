//! Points in time as text for messages.

/// A moment given in microseconds since 1970, in UTC; `never` for zero.
#[must_use]
pub fn moment(us: u64) -> String {
    if us == 0 {
        return "never".into();
    }
    let seconds = us / 1_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a civil date, by eras of 400 years that begin on the first of March.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "never");
        assert_eq!(moment(951_782_400_000_001), "2000-02-29T00:00:00.000001Z");
        assert_eq!(moment(1_735_689_599_000_000), "2024-12-31T23:59:59.000000Z");
    }
}
