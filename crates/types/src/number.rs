//! Integers as Redis reads and writes them.

/// Reads an integer in the only form that Redis writes: no sign but `-`, no leading zeros, no spaces. `None` for any
/// other text.
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude
            .checked_mul(10)?
            .checked_add(u64::from(byte - b'0'))?;
    }
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Reads an unsigned integer as C does: digits, perhaps with leading zeros, perhaps after blanks and a `+`.
#[must_use]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    let digit = |value: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let begin = text.iter().position(|byte| !is_blank(byte))?;
    let digits = text[begin..].strip_prefix(b"+").unwrap_or(&text[begin..]);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0, digit)
}

/// Appends an unsigned integer in decimal.
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let from = unsigned_digits(&mut digits, value);
    out.extend_from_slice(&digits[from..]);
}

/// Appends an integer in decimal.
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; 20];
    let from = push_digits(&mut digits, value);
    out.extend_from_slice(&digits[from..]);
}

/// Writes an integer in decimal at the end of `digits`, which is long enough for any `i64`. Returns the index of the
/// first byte of the text.
pub(crate) fn push_digits(digits: &mut [u8; 20], value: i64) -> usize {
    let mut at = unsigned_digits(digits, value.unsigned_abs());
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    at
}

fn unsigned_digits(digits: &mut [u8; 20], mut value: u64) -> usize {
    let mut at = digits.len();
    while value >= 100 {
        let [pair, ..] = (value % 100).to_le_bytes();
        value /= 100;
        at -= 2;
        digits[at] = b'0' + pair / 10;
        digits[at + 1] = b'0' + pair % 10;
    }
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10).to_le_bytes()[0];
        value /= 10;
        if value == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for good in [
            "0",
            "1",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
        ] {
            let value = parse_i64(good.as_bytes()).expect(good);
            let mut out = Vec::new();
            push_i64(&mut out, value);
            assert_eq!(out, good.as_bytes());
        }
        for bad in [
            "",
            "-",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "9223372036854775808",
            "1.0",
            "x",
        ] {
            assert_eq!(parse_i64(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
