//! Sizes and durations as people write them: `64MiB`, `10ms`.

use std::time::Duration;

/// Bytes: a number with B, KiB, MiB, GiB (or K, M, G, KB, MB, GB, all meaning powers of 1024).
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => {
            return Err(format!(
                "'{unit}' is no unit of size; use B, KiB, MiB, GiB or TiB"
            ));
        }
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| "the size is too large".into())
}

/// A duration: a number with us, ms, s, m or h; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let micros = match unit.to_ascii_lowercase().as_str() {
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => {
            return Err(format!(
                "'{unit}' is no unit of time; use us, ms, s, m or h"
            ));
        }
    };
    let micros = number
        .checked_mul(micros)
        .ok_or("the duration is too long")?;
    Ok(Duration::from_micros(micros))
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number
        .parse()
        .map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("64mb"), Ok(64 << 20));
        assert_eq!(bytes("1 GiB"), Ok(1 << 30));
        assert_eq!(bytes("4096"), Ok(4096));
        for bad in ["", "MiB", "1.5GiB", "3 parsecs", "99999999999TiB", "-1"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units_and_default_to_seconds() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("60"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("soon").is_err());
    }
}
