//! Numbers for display: counts as floats, round steps, and ratios that never divide by zero.

/// Returns a count as a float. It is exact up to 2^53.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn f64_of(count: u64) -> f64 {
    count as f64
}

/// Returns a length as a float.
#[must_use]
pub fn count_f64(count: usize) -> f64 {
    f64_of(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Returns `a / b`, or zero if `b` is not above zero.
#[must_use]
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Returns a step that divides `top` into at most `ticks` parts. The step is 1, 2 or 5 times a
/// power of ten.
#[must_use]
pub fn nice_step(top: f64, ticks: u32) -> f64 {
    if top.is_nan() || top <= 0.0 {
        return 1.0;
    }
    let least = top / f64::from(ticks);
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= least * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Rounds to four significant digits, for tables and files.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

/// Returns the median, or zero if there are no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(nice_step(600_000.0, 8), 100_000.0);
        assert_eq!(nice_step(8.0, 8), 1.0);
        assert_eq!(nice_step(24.8, 6), 5.0);
        assert_eq!(nice_step(0.0, 6), 1.0);
    }

    #[test]
    fn figures_keep_four_digits() {
        assert!((rounded(0.513_178_9) - 0.5132).abs() < 1e-12);
        assert!((rounded(123_456.0) - 123_500.0).abs() < 1e-6);
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(ratio(1.0, 0.0), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
