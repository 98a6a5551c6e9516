//! Sizes and durations as people write them: `64MiB`, `10ms`.

/// Returns the bytes of a whole number with a unit. As in Redis, `k`, `m` and `g` are powers of 1000;
/// `kb`, `mb` and `gb` are powers of 1024. `KiB`, `MiB`, `GiB` and `TiB` are unambiguous names for powers of 1024.
///
/// # Errors
/// A description of what is wrong with the text.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        "t" => 1_000_000_000_000,
        "tb" | "tib" => 1 << 40,
        _ => {
            return Err(format!(
                "'{unit}' is not a unit of size. Use B, KiB, MiB, GiB or TiB"
            ));
        }
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| "the size is too large".into())
}

/// Returns the microseconds of a whole number with the unit us, ms, s, m or h. The unit of a bare number is
/// `bare_us` microseconds.
///
/// # Errors
/// A description of what is wrong with the text.
pub fn micros(text: &str, bare_us: u64) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => bare_us,
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => {
            return Err(format!(
                "'{unit}' is not a unit of time. Use us, ms, s, m or h"
            ));
        }
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| "the duration is too long".into())
}

/// Returns a duration. A bare number is seconds.
///
/// # Errors
/// A description of what is wrong with the text.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    micros(text, 1_000_000).map(std::time::Duration::from_micros)
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
    fn sizes_have_the_units_of_redis_and_binary_ones() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("64mb"), Ok(64 << 20));
        assert_eq!(bytes("1 GiB"), Ok(1 << 30));
        assert_eq!(bytes("1G"), Ok(1_000_000_000));
        assert_eq!(bytes("4096"), Ok(4096));
        for bad in ["", "MiB", "1.5GiB", "3 parsecs", "99999999999TiB", "-1"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units_and_a_meaning_without_one() {
        assert_eq!(micros("10ms", 1), Ok(10_000));
        assert_eq!(micros("60", 1_000_000), Ok(60_000_000));
        assert_eq!(micros("2m", 1), Ok(120_000_000));
        assert!(micros("soon", 1).is_err());
        assert_eq!(duration("10ms"), Ok(std::time::Duration::from_millis(10)));
    }
}
