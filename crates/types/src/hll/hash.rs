//! The register that an element's hash chooses, and the run of zeros in the rest of the hash. The hash is MurmurHash64A
//! by Austin Appleby. It reads little-endian words.

use super::REGISTERS;

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ perdura_base::num::to_u64(bytes.len()).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> SHIFT)
}

/// Returns the register of an element, and the position of the first set bit among the hash's remaining 50 bits.
/// Positions count from 1. The position is 51 if no bit is set.
pub(super) fn register(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let index_bits = REGISTERS.trailing_zeros();
    let register = perdura_base::num::to_usize(hash) % REGISTERS;
    let rest = (hash >> index_bits) | (1 << (64 - index_bits));
    let run = u8::try_from(rest.trailing_zeros() + 1).unwrap_or(u8::MAX);
    debug_assert!((1..=51).contains(&run));
    (register, run)
}
