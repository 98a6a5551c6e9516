//! Coordinates and distances in digits, in the forms of Redis.

/// Appends a coordinate: 17 digits after the point, without zeros at the end.
pub fn push_coordinate(out: &mut Vec<u8>, degrees: f64) {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    out.extend_from_slice(text.as_bytes());
}

/// Appends a distance with four digits after the point, rounded half to even. If the distance is too large or not a
/// number, appends `i64::MIN` divided by 10,000.
pub fn push_distance(out: &mut Vec<u8>, distance: f64) {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    let scaled = (distance * 10_000.0).round_ties_even();
    #[allow(clippy::cast_possible_truncation)] // checked
    let scaled = match scaled.abs() < TWO_63 {
        true => scaled as i64,
        false => i64::MIN,
    };
    let (sign, digits) = (if scaled < 0 { "-" } else { "" }, scaled.unsigned_abs());
    let text = format!("{sign}{}.{:04}", digits / 10_000, digits % 10_000);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: fn(&mut Vec<u8>, f64), number: f64) -> String {
        let mut out = Vec::new();
        push(&mut out, number);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers_are_written_as_redis_writes_them() {
        for (number, wanted) in [
            (13.361_389_338_970_184, "13.36138933897018433"),
            (0.0, "0"),
            (-0.0, "0"),
            (-1e-20, "0"),
            (-90.5, "-90.5"),
            (180.0, "180"),
        ] {
            assert_eq!(text(push_coordinate, number), wanted);
        }
        for (number, wanted) in [
            (166_274.151_56, "166274.1516"),
            (0.0, "0.0000"),
            (0.00001, "0.0000"),
            (0.000_25, "0.0002"),
            (0.000_35, "0.0004"),
            (12.0, "12.0000"),
            (f64::NAN, "-922337203685477.5808"),
            (f64::INFINITY, "-922337203685477.5808"),
        ] {
            assert_eq!(text(push_distance, number), wanted);
        }
    }
}
