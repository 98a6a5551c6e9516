//! The estimate of the number of elements, from the registers.
//!
//! # Source
//! O. Ertl, arXiv:1702.01284, section 4: the improved raw estimator, algorithm 6.

use super::REGISTERS;

/// Count of a hash's bits that do not choose a register.
const RUN_BITS: usize = 50;
/// 1 / (2 ln 2), with as many digits as in Redis.
#[allow(clippy::excessive_precision)]
const ALPHA: f64 = 0.721_347_520_444_481_703_680;

/// Returns the estimate for a histogram of register values. An estimate that is infinite or too large becomes
/// `1 << 63`, as in C: these are the bits of the least integer.
pub(super) fn count(histogram: &[u64; 64]) -> u64 {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_precision_loss)] // at most 16,384
    let with = |value: usize| histogram[value] as f64;
    let registers = f64::from(u32::try_from(REGISTERS).unwrap_or(u32::MAX));
    let mut z = registers * tau((registers - with(RUN_BITS + 1)) / registers);
    for value in (1..=RUN_BITS).rev() {
        z = (z + with(value)) * 0.5;
    }
    z += registers * sigma(with(0) / registers);
    let estimate = (ALPHA * registers * registers / z).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
    match (0.0..TWO_63).contains(&estimate) {
        true => estimate as u64,
        false => 1 << 63,
    }
}

/// Returns the correction for empty registers.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    debug_assert!((0.0..1.0).contains(&x), "a part of the registers is empty");
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

/// Returns the correction for registers at their greatest value.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}
