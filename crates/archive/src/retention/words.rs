//! The text form of a retention.

use std::fmt;

use super::{Grain, Retention};

const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Parses an age into microseconds. The text is a whole number and a unit, like `90s` or `30d`.
///
/// # Errors
/// A description of the fault in the text.
pub fn parse_age(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let wrong = || format!("'{text}' is not a duration. Write for example 90s, 15min, 12h or 30d");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = UNITS.iter().find(|(name, _)| *name == unit.trim());
    let factor = factor.ok_or_else(wrong)?.1;
    let us = number.checked_mul(factor).filter(|us| *us > 0);
    us.ok_or_else(|| format!("'{text}' is not a duration that can be kept"))
}

/// Returns a duration as text: a whole number and a unit. The unit is the largest one that divides the duration.
#[must_use]
pub fn show_age(us: u64) -> String {
    let whole = UNITS.iter().find(|(_, factor)| us.is_multiple_of(*factor));
    let (name, factor) = whole.copied().unwrap_or(("us", 1));
    format!("{}{name}", us / factor)
}

impl Retention {
    /// Parses a retention. Moments are promised below the age `keep`; `None`: at any age. An example of `grains` is
    /// `all 1h, 1s 1d, 1min`: every moment for an hour, one a second for a day, one a minute beyond. Empty `grains`
    /// promise every moment.
    ///
    /// # Errors
    /// A description of the fault in the text.
    pub fn parse(keep: Option<&str>, grains: &str) -> Result<Retention, String> {
        let keep_us = keep.map(parse_age).transpose()?;
        let mut list = Vec::new();
        for part in grains.split(',').filter(|_| !grains.trim().is_empty()) {
            let mut words = part.split_whitespace();
            let every_us = match words.next() {
                Some("all") => 0,
                Some(word) => parse_age(word)?,
                None => return Err(format!("'{grains}' has an empty part")),
            };
            let until_us = words.next().map(parse_age).transpose()?;
            if words.next().is_some() {
                return Err(format!("'{part}' is not a grain and an age, as in `1s 1d`"));
            }
            list.push(Grain { every_us, until_us });
        }
        Retention::new(keep_us, list)
    }
}

impl fmt::Display for Retention {
    /// Writes the grains in the syntax that [`parse`](Retention::parse) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, grain) in self.grains().iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let every = match grain.every_us {
                0 => "all".into(),
                us => show_age(us),
            };
            write!(f, "{comma}{every}")?;
            if let Some(until) = grain.until_us {
                write!(f, " {}", show_age(until))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_cannot_be_is_refused() {
        let text = "all 1h, 1s 1d, 1min";
        let retention = Retention::parse(Some("30d"), text).unwrap();
        assert_eq!(retention.to_string(), text);
        assert_eq!(retention.keep_us().map(show_age), Some("30d".into()));
        assert_eq!(retention.grain(0), Some(0));
        assert_eq!(retention.grain(3_600_000_000), Some(1_000_000));
        assert_eq!(retention.grain(86_400_000_000), Some(60_000_000));
        assert_eq!(retention.grain(30 * 86_400_000_000), None);
        assert_eq!(Retention::parse(None, " ").unwrap(), Retention::default());
        for wrong in [
            "1s, 1min",
            "1min 1h, 1s",
            "1s 1d, 1min 1h",
            "7s 1h, 1min",
            "all 1h,,1s",
            "1s 1h 1d",
            "often",
            "0s",
            "1y",
            "all 1h, all",
            "99999999999999999999d",
        ] {
            assert!(Retention::parse(None, wrong).is_err(), "{wrong}");
        }
    }
}
