//! The keys and values of the workload.

use perdura_base::checksum::mix64;

/// The size of every key, bytes.
pub const KEY_BYTES: usize = 16;

/// A prime larger than any count of keys. For `nth` from 0 to `keys - 1`, `nth * STRIDE % keys` gives each number below
/// `keys` once, in scattered order.
const STRIDE: u64 = 11_400_714_819_323_198_549;

/// Returns the key with the number `number`.
#[must_use]
pub fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    key
}

/// Returns the number of the key that a fill sets after `nth` other keys.
#[must_use]
pub fn nth_key(nth: u64, keys: u64) -> u64 {
    let product = u128::from(nth) * u128::from(STRIDE) % u128::from(keys);
    u64::try_from(product).expect("a number below `keys`")
}

/// Writes the value that a fill gives to a key.
pub fn fill_value(number: u64, seed: u64, value: &mut [u8]) {
    random_bytes(
        &mut fastrand::Rng::with_seed(mix64(seed) ^ mix64(!number)),
        value,
    );
}

/// Writes random bytes, eight at a time.
pub fn random_bytes(rng: &mut fastrand::Rng, out: &mut [u8]) {
    let mut chunks = out.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&rng.u64(..).to_le_bytes());
    }
    let rest = chunks.into_remainder();
    let last = rng.u64(..).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_visits_every_key_once() {
        for keys in [1, 7, 1000] {
            let mut seen: Vec<u64> = (0..keys).map(|nth| nth_key(nth, keys)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..keys).collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_have_one_length_and_values_follow_from_key_and_seed() {
        assert_eq!(&key_of(42), b"key:000000000042");
        let value = |number, seed| {
            let mut value = [0; 21];
            fill_value(number, seed, &mut value);
            value
        };
        assert_eq!(value(1, 1), value(1, 1));
        assert_ne!(value(1, 1), value(1, 2));
        assert_ne!(value(1, 1), value(2, 1));
    }
}
