//! Functions that write and convert numbers as C does.

/// Appends an integer.
pub(crate) fn push_integer(out: &mut Vec<u8>, n: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a number as C's `%.{digits}g` writes it: with `digits` significant digits, without zeros at the end. The
/// exponent is written if it is below -4 or at least `digits`.
pub(crate) fn push_general(out: &mut Vec<u8>, n: f64, digits: usize) {
    debug_assert!(digits > 0);
    if n.is_nan() {
        let text: &[u8] = if n.is_sign_negative() {
            b"-nan"
        } else {
            b"nan"
        };
        return out.extend_from_slice(text);
    }
    if n.is_infinite() {
        return out.extend_from_slice(if n > 0.0 { b"inf" } else { b"-inf" });
    }
    if n.is_sign_negative() {
        out.push(b'-');
    }
    let text = format!("{:.*e}", digits - 1, n.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let figures: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let kept = figures
        .iter()
        .rposition(|b| *b != b'0')
        .map_or(1, |last| last + 1);
    let figures = &figures[..kept];
    let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
    if exponent < -4 || (exponent >= 0 && places >= digits) {
        out.push(figures[0]);
        if kept > 1 {
            out.push(b'.');
            out.extend_from_slice(&figures[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        return out.extend_from_slice(format!("e{sign}{places:02}").as_bytes());
    }
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', places - 1));
        return out.extend_from_slice(figures);
    }
    let whole = places + 1;
    if kept <= whole {
        out.extend_from_slice(figures);
        out.extend(std::iter::repeat_n(b'0', whole - kept));
    } else {
        out.extend_from_slice(&figures[..whole]);
        out.push(b'.');
        out.extend_from_slice(&figures[whole..]);
    }
}

/// Converts a double to an integer as C does on the processors that Redis runs on. The fraction is dropped. A double
/// that is out of range becomes the least integer.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
pub(crate) fn truncate(n: f64) -> i64 {
    // 2^63: every double below it fits into 64 bits.
    let bound = -crate::to_lua::as_double(i64::MIN);
    if n >= -bound && n < bound {
        n as i64
    } else {
        i64::MIN
    }
}

/// Returns the integer that is equal to `n`, or `None` if `n` is not an integer.
pub(crate) fn whole(n: f64) -> Option<i64> {
    let cut = truncate(n);
    (crate::to_lua::as_double(cut).to_bits() == (n + 0.0).to_bits()).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(n: f64, digits: usize) -> String {
        let mut out = Vec::new();
        push_general(&mut out, n, digits);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let cases = [
            (0.1, 17, "0.10000000000000001"),
            (1e15, 17, "1000000000000000"),
            (12_345_678_901_234_567.0, 17, "12345678901234568"),
            (12_345_678_901_234_567.0, 14, "1.2345678901235e+16"),
            (1.5, 14, "1.5"),
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1e20, 14, "1e+20"),
            (0.00001, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (100.0, 14, "100"),
            (-2.25e-7, 17, "-2.2499999999999999e-07"),
            (f64::INFINITY, 14, "inf"),
            (99_999_999_999_999.5, 14, "1e+14"),
        ];
        for (n, digits, text) in cases {
            assert_eq!(general(n, digits), text);
        }
    }

    #[test]
    fn integers_are_cut_off() {
        assert_eq!(truncate(3.99), 3);
        assert_eq!(truncate(-1.7), -1);
        assert_eq!(truncate(1e300), i64::MIN);
        assert_eq!(truncate(f64::NAN), i64::MIN);
        assert_eq!(whole(2.5), None);
        assert_eq!(whole(-2.0), Some(-2));
        let mut text = Vec::new();
        push_integer(&mut text, i64::MIN);
        assert_eq!(text, b"-9223372036854775808");
    }
}
