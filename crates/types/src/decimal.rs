//! Addition of decimal fractions, for `INCRBYFLOAT`.
//!
//! `INCRBYFLOAT` adds decimals, not binary fractions: 0.1 + 0.2 is 0.3. Redis adds 80-bit floats and prints 17 digits
//! of the sum. The rounding errors of these floats show in long sums and differ between machines. Here the two operands
//! are rounded to whole multiples of 10^-17 and added exactly. Numbers that are too large are added as 64-bit floats.

use std::borrow::Cow;

/// The number of digits that are kept after the decimal point.
const SCALE: u32 = 17;
/// Scaled decimals are below this bound, so that the sum of two fits an `i128`.
const SCALED_MAX: i128 = i128::MAX / 4;

/// The reason why a float operation was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum FloatError {
    /// An operand is no number.
    Invalid,
    /// The sum is not finite.
    Infinite,
}

/// Returns the sum of two decimals, in the form Redis stores: no exponent, no trailing zeros.
///
/// # Errors
/// [`FloatError::Invalid`] if an operand is not a number; [`FloatError::Infinite`] if the sum is not finite.
pub fn add_decimals(a: &[u8], b: &[u8]) -> Result<Vec<u8>, FloatError> {
    let (a, b) = (decimal(a), decimal(b));
    let (x, y) = (parse_float(&a)?, parse_float(&b)?);
    if let (Some(p), Some(q)) = (parse_scaled(&a), parse_scaled(&b)) {
        return Ok(print_scaled(p + q));
    }
    let sum = x + y;
    if !sum.is_finite() {
        return Err(FloatError::Infinite);
    }
    Ok(trim_fraction(format!("{sum:.17}")).into_bytes())
}

/// Converts a hexadecimal number in C's notation to decimal. Returns any other text unchanged.
fn decimal(text: &[u8]) -> Cow<'_, [u8]> {
    let hexadecimal = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
    match hexadecimal.then(|| crate::score::parse(text)).flatten() {
        Some(value) => Cow::Owned(value.to_string().into_bytes()),
        None => Cow::Borrowed(text),
    }
}

fn parse_float(text: &[u8]) -> Result<f64, FloatError> {
    let text = std::str::from_utf8(text).map_err(|_| FloatError::Invalid)?;
    if text.is_empty() || text.starts_with(char::is_whitespace) {
        return Err(FloatError::Invalid);
    }
    let value: f64 = text.parse().map_err(|_| FloatError::Invalid)?;
    // A number in digits that is too large for a float is refused. `inf` in letters is a number, as
    // in Redis.
    let overflown = value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit());
    if value.is_nan() || overflown {
        Err(FloatError::Invalid)
    } else {
        Ok(value)
    }
}

/// Rounds a number to a whole multiple of 10^-17, and returns the multiplier. `None`: the multiplier is too large, or
/// the number is not written in digits.
fn parse_scaled(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.as_bytes() {
        [b'-', ..] => (true, &mantissa[1..]),
        [b'+', ..] => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (mut value, mut places) = (0i128, -i64::from(exponent));
    for digit in whole.bytes() {
        value = append(value, digit)?;
    }
    for digit in fraction.bytes() {
        // Digits this far after the point do not affect the rounding.
        if value < SCALED_MAX / 10 {
            value = append(value, digit)?;
            places += 1;
        }
    }
    let shift = i64::from(SCALE) - places;
    let unit = u32::try_from(shift.unsigned_abs())
        .ok()
        .and_then(|shift| 10i128.checked_pow(shift));
    value = match unit {
        Some(unit) if shift >= 0 => value.checked_mul(unit)?,
        Some(unit) => value / unit + i128::from(value % unit >= unit - unit / 2),
        // 10^|shift| does not fit. A negative shift divides by it, which leaves 0. A positive shift
        // multiplies, which overflows unless the value is 0.
        None if shift < 0 || value == 0 => 0,
        None => return None,
    };
    (value < SCALED_MAX).then_some(if negative { -value } else { value })
}

fn append(value: i128, digit: u8) -> Option<i128> {
    let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
    value.checked_mul(10)?.checked_add(digit)
}

fn print_scaled(value: i128) -> Vec<u8> {
    let unit = 10u128.pow(SCALE);
    let magnitude = value.unsigned_abs();
    let sign = if value < 0 { "-" } else { "" };
    let width = usize::try_from(SCALE).unwrap_or(17);
    trim_fraction(format!(
        "{sign}{}.{:0width$}",
        magnitude / unit,
        magnitude % unit
    ))
    .into_bytes()
}

fn trim_fraction(mut text: String) -> String {
    if text.contains('.') {
        let kept = text.trim_end_matches('0').trim_end_matches('.').len();
        text.truncate(kept);
    }
    if text == "-0" {
        text.remove(0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_add_as_people_expect() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-1.5", "1", "-0.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("123456789.123456789", "1e-20", "123456789.123456789"),
            ("16109402.022021046", "5e-324", "16109402.022021046"),
            ("0.00000000000000000500001", "0", "0.00000000000000001"),
            (
                "3.14159265358979323846264338327950288419716939937510",
                "0",
                "3.14159265358979324",
            ),
            ("0e99", "1", "1"),
            ("0x10", "-0X0.8", "15.5"),
        ] {
            let got = add_decimals(a.as_bytes(), b.as_bytes()).expect(a);
            assert_eq!(String::from_utf8_lossy(&got), sum, "{a} + {b}");
        }
        assert_eq!(add_decimals(b"abc", b"1"), Err(FloatError::Invalid));
        assert_eq!(add_decimals(b" 1", b"1"), Err(FloatError::Invalid));
        assert_eq!(
            add_decimals(b"1.7e308", b"1.7e308"),
            Err(FloatError::Infinite)
        );
        assert_eq!(add_decimals(b"inf", b"1"), Err(FloatError::Infinite));
        assert_eq!(add_decimals(b"1e999", b"1"), Err(FloatError::Invalid));
    }
}
