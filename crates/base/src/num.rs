//! Conversions between integer widths. They are lossless, because the crate builds only where `usize` is 64 bits wide.

const _: () = assert!(usize::BITS == 64, "Perdura needs a 64-bit machine");

/// Converts a length to a file offset.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub const fn to_u64(n: usize) -> u64 {
    n as u64
}

/// Converts a file offset or count to a length in memory.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub const fn to_usize(n: u64) -> usize {
    n as usize
}

/// Converts a length that a file format stores in 32 bits. The caller has already refused lengths that do not fit.
///
/// # Panics
/// If `n` does not fit, which is a bug in the caller's check.
#[must_use]
pub fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("lengths over 4 GiB are refused at the door")
}

/// Rounds `n` up to a multiple of `step`.
#[must_use]
pub const fn round_up(n: u64, step: u64) -> u64 {
    let up = n.div_ceil(step) * step;
    assert!(
        n <= up && up - n < step,
        "rounding up adds less than a step"
    );
    up
}
