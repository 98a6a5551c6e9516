//! Scores as text, in the forms that Redis reads and writes.
//!
//! A score is written with 17 significant digits, as C's `%.17g` does. So reading the text returns the exact score, and
//! 0.1 is written as 0.10000000000000001. A score is read as C's `strtod` reads it: decimal or hexadecimal, or `inf` or
//! `infinity` in upper or lower case.

/// The number of significant digits of a score.
const DIGITS: i32 = 17;

/// Reads the score of a member: a number without any text around it. `None` for NaN, and for
/// numbers too large or too small for a float.
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    let number = read(text)?;
    let spelled = matches!(
        text.strip_prefix(b"-")
            .or(text.strip_prefix(b"+"))
            .unwrap_or(text)
            .first(),
        Some(b'i' | b'I')
    );
    let overflown = number.is_infinite() && !spelled;
    let vanished = number == 0.0 && mantissa_is_not_zero(text);
    (!number.is_nan() && !overflown && !vanished).then_some(number)
}

/// Reads a bound of a range of scores. Unlike [`parse`], it accepts blanks before the number. An
/// empty text is zero, and a number that is too large is infinite.
#[must_use]
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    // A string of C ends at its first zero byte.
    let text = text.split(|byte| *byte == 0).next().unwrap_or(text);
    if text.is_empty() {
        return Some(0.0);
    }
    let number = read(text.trim_ascii_start())?;
    (!number.is_nan()).then_some(number)
}

fn read(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if let Some(digits) = rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
        let value = hexadecimal(digits)?;
        return Some(if negative { -value } else { value });
    }
    text.parse().ok()
}

/// Reads the part of a hexadecimal float that follows `0x`.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?;
    Some(value * 2f64.powi(exponent.checked_sub(4 * places)?))
}

fn mantissa_is_not_zero(text: &[u8]) -> bool {
    let hexadecimal = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
    let exponent: &[u8] = if hexadecimal { b"pP" } else { b"eE" };
    text.iter()
        .take_while(|byte| !exponent.contains(byte))
        .any(|byte| matches!(byte, b'1'..=b'9' | b'a'..=b'f' | b'A'..=b'F'))
}

/// Appends a score.
pub fn push(out: &mut Vec<u8>, score: f64) {
    const WHOLE_MAX: f64 = 1e15;
    if score.is_infinite() {
        out.extend_from_slice(if score > 0.0 { b"inf" } else { b"-inf" });
        return;
    }
    if score.fract() == 0.0 && score.abs() < WHOLE_MAX {
        if score == 0.0 && score.is_sign_negative() {
            out.push(b'-');
        }
        #[allow(clippy::cast_possible_truncation)] // whole, and small enough
        crate::number::push_i64(out, score as i64);
        return;
    }
    // `text` has the form d.dddddddddddddddde±x. Its parts give the two forms of `%g`.
    let text = format!("{score:.16e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.trim_start_matches('-').replace('.', "");
    let digits = digits.trim_end_matches('0');
    if score.is_sign_negative() {
        out.push(b'-');
    }
    if !(-4..DIGITS).contains(&exponent) {
        out.extend_from_slice(&digits.as_bytes()[..1]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits.as_bytes()[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
        return;
    }
    let Ok(whole) = usize::try_from(exponent + 1) else {
        out.extend_from_slice(b"0.");
        out.extend((exponent + 1..0).map(|_| b'0'));
        out.extend_from_slice(digits.as_bytes());
        return;
    };
    if whole == 0 {
        out.extend_from_slice(b"0.");
    }
    for (at, digit) in digits.bytes().enumerate() {
        if at == whole && at > 0 {
            out.push(b'.');
        }
        out.push(digit);
    }
    out.extend((digits.len()..whole).map(|_| b'0'));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(score: f64) -> String {
        let mut out = Vec::new();
        push(&mut out, score);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn scores_are_written_as_c_writes_17_digits() {
        for (score, wanted) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (0.1, "0.10000000000000001"),
            (-1.5, "-1.5"),
            (3.3, "3.2999999999999998"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e300, "1.0000000000000001e+300"),
            (0.0001, "0.0001"),
            (0.00012345, "0.00012344999999999999"),
            (0.00001, "1.0000000000000001e-05"),
            (5e-324, "4.9406564584124654e-324"),
            (99_999.999, "99999.998999999996"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(score), wanted);
        }
    }

    #[test]
    fn what_is_written_reads_back_bit_by_bit() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let score = f64::from_bits(rng.u64(..));
            if !score.is_nan() {
                let back = parse(text(score).as_bytes()).expect("a score");
                assert_eq!(back.to_bits(), score.to_bits(), "{score:e}");
            }
        }
    }

    #[test]
    fn scores_are_read_as_c_reads_them() {
        for (text, wanted) in [
            ("1", 1.0),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("0x10", 16.0),
            ("-0x1.8p1", -3.0),
            ("inf", f64::INFINITY),
            ("-INFINITY", f64::NEG_INFINITY),
            ("0e99", 0.0),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(wanted), "{text}");
        }
        for text in [
            "", "nan", " 1", "1 ", "1e400", "1e-400", "0x", "x", "1_0", "--1", "1e",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        for (text, wanted) in [("", 0.0), (" 1", 1.0), ("1e400", f64::INFINITY)] {
            assert_eq!(parse_bound(text.as_bytes()), Some(wanted), "{text:?}");
        }
        assert_eq!(parse_bound(b"nan"), None);
        assert_eq!(parse_bound(b"1 "), None);
    }
}
