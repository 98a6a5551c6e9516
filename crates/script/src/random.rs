//! The random numbers of scripts. They come from the linear congruential generator of 48 bits that POSIX calls
//! `lrand48`. Redis uses this generator, too. So a script that sets the seed gets equal numbers here and in Redis.
//!
//! # Source
//! POSIX.1, `drand48`: X' = (0x5DEECE66D X + 0xB) mod 2^48. A random number is the upper 31 bits of X. A seed sets
//! the upper 32 bits of X, and the lower bits are set to 0x330E.

use std::cell::Cell;

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// The exclusive upper bound of the drawn integers.
const MAX: u32 = 0x7FFF_FFFF;

/// The generator of one run.
#[derive(Debug, Default)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    /// Restarts the generator from the lower 32 bits of a seed.
    pub(crate) fn seed(&self, seed: u64) {
        self.0.set((seed & 0xFFFF_FFFF) << 16 | 0x330E);
    }

    /// Returns the next random number. It is at least 0 and less than 1.
    pub(crate) fn next(&self) -> f64 {
        let x = self
            .0
            .get()
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(INCREMENT)
            & MASK;
        self.0.set(x);
        let drawn = u32::try_from(x >> 17).unwrap_or(0) % MAX;
        f64::from(drawn) / f64::from(MAX)
    }
}
