//! The kinds of values of settings. Each value has one canonical form, which CONFIG GET shows. Error texts are Redis's,
//! because clients see them.

use super::units;
use std::net::ToSocketAddrs;

/// The kind of values that a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number within bounds.
    Integer {
        /// The minimum.
        min: i64,
        /// The maximum.
        max: i64,
    },
    /// A number of bytes within bounds, with or without a unit.
    Bytes {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A time. `unit_us` is the unit of a bare number and of the shown value.
    Time {
        /// The length of the unit in microseconds.
        unit_us: u64,
        /// The minimum, in units. If it is -1, the value -1 is allowed and switches off the feature.
        min: i64,
        /// The maximum, in units.
        max: i64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// A masked text.
    Secret,
    /// A path.
    Path,
    /// An address with a port.
    Address,
}

/// A second in microseconds.
pub const SECOND_US: u64 = 1_000_000;

impl Kind {
    /// Returns a text in the canonical form.
    ///
    /// # Errors
    /// The reason why the text is not a value of this kind.
    pub fn canonical(self, text: &str) -> Result<String, String> {
        match self {
            Kind::Bool => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" => Ok("yes".into()),
                "no" | "false" => Ok("no".into()),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Integer { min, max } => {
                let number = text
                    .parse::<i64>()
                    .map_err(|_| "argument couldn't be parsed into an integer")?;
                within(number, min, max)
            }
            Kind::Bytes { min, max } => match units::bytes(text) {
                // Redis reads an empty text as zero.
                Err(_) if text.is_empty() => within(0, min, max),
                Err(_) => Err("argument must be a memory value".into()),
                Ok(number) => within(number, min, max),
            },
            Kind::Time { unit_us, min, max } => {
                if let Ok(number) = text.parse::<i64>() {
                    return within(number, min, max);
                }
                let us = units::micros(text, unit_us)
                    .map_err(|_| "argument couldn't be parsed into an integer")?;
                let number = i64::try_from(us.div_ceil(unit_us)).unwrap_or(i64::MAX);
                within(number, min, max)
            }
            Kind::Choice(words) => {
                let found = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                found.map(|word| (*word).to_owned()).ok_or_else(|| {
                    format!(
                        "argument(s) must be one of the following: {}",
                        words.join(", ")
                    )
                })
            }
            Kind::Text | Kind::Secret | Kind::Path => Ok(text.to_owned()),
            Kind::Address => {
                let mut found = text
                    .to_socket_addrs()
                    .map_err(|error| format!("'{text}': {error}; give HOST:PORT"))?;
                found
                    .next()
                    .map(|address| address.to_string())
                    .ok_or_else(|| format!("'{text}' has no address"))
            }
        }
    }

    /// Returns the placeholder of the value in help and documents.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Bool => "yes|no",
            Kind::Integer { .. } => "N",
            Kind::Bytes { .. } => "SIZE",
            Kind::Time { .. } => "TIME",
            Kind::Choice(_) => "WORD",
            Kind::Text => "TEXT",
            Kind::Secret => "SECRET",
            Kind::Path => "PATH",
            Kind::Address => "HOST:PORT",
        }
    }
}

fn within<T: PartialOrd + std::fmt::Display>(number: T, min: T, max: T) -> Result<String, String> {
    if number < min || number > max {
        return Err(format!(
            "argument must be between {min} and {max} inclusive"
        ));
    }
    Ok(number.to_string())
}

/// Stores a canonical number in a field of any width.
pub(super) fn number<T: std::str::FromStr>(field: &mut T, text: &str) -> Result<(), String> {
    *field = text
        .parse()
        .map_err(|_| String::from("argument must be a smaller number"))?;
    Ok(())
}

/// Stores `value`, the meaning of a canonical word or number. Fails if it is `None`.
pub(super) fn known<T>(field: &mut T, value: Option<T>) -> Result<(), String> {
    *field = value.ok_or("there is no such value")?;
    Ok(())
}

/// Stores a canonical `yes` or `no`.
pub(super) fn boolean(field: &mut bool, text: &str) {
    *field = text == "yes";
}

/// Returns `yes` or `no`.
pub(super) fn yes_no(value: bool) -> String {
    String::from(if value { "yes" } else { "no" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_canonical_form() {
        let any = Kind::Bytes {
            min: 0,
            max: u64::MAX,
        };
        let seconds = Kind::Time {
            unit_us: SECOND_US,
            min: 0,
            max: 100,
        };
        let some = Kind::Integer { min: 1, max: 9 };
        for (kind, text, shown) in [
            (Kind::Bool, "TRUE", "yes"),
            (any, "1mb", "1048576"),
            (any, "", "0"),
            (seconds, "60", "60"),
            (seconds, "1m", "60"),
            (seconds, "10ms", "1"),
            (some, "7", "7"),
            (Kind::Choice(&["no", "local"]), "LOCAL", "local"),
            (Kind::Address, "127.0.0.1:1", "127.0.0.1:1"),
        ] {
            assert_eq!(
                kind.canonical(text).as_deref(),
                Ok(shown),
                "{kind:?} {text}"
            );
        }
        for (kind, text) in [
            (Kind::Bool, "maybe"),
            (any, "1xb"),
            (any, "-1"),
            (seconds, "101"),
            (seconds, "-1"),
            (some, "0"),
            (some, "ten"),
            (Kind::Choice(&["no"]), "yes"),
            (Kind::Address, "nowhere"),
        ] {
            assert!(kind.canonical(text).is_err(), "{kind:?} {text}");
        }
    }
}
