//! Checksums: CRC-32C detects damaged bytes, a 64-bit XOR-linear digest proves pages, XXH3 hashes keys.

/// Returns the CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Returns the CRC-32C of two parts together. `crc` is the CRC-32C of the first part; `bytes` are the second part.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// Returns the XXH3-64 of `bytes` under `seed`. It serves as the hash of keys. The seed is fixed when a database is
/// made.
#[must_use]
pub fn hash64(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}

/// Returns a digest that is linear over XOR for inputs of one length: `digest(a ^ b) == digest(a) ^ digest(b)` and
/// `digest(zeros) == 0`.
///
/// CRC-64 is affine: it is the XOR of a linear part and a constant part. The constant part is the CRC of as many zero
/// bytes as the input has bytes. An XOR with the constant part leaves the linear part. `zeros` is the constant part:
/// the [`affine_constant`] for the length of `bytes`. The caller computes it once.
#[must_use]
pub fn linear_digest(bytes: &[u8], zeros: u64) -> u64 {
    raw_crc64(bytes) ^ zeros
}

/// Returns the CRC-64 of `len` zero bytes. It is the argument `zeros` of [`linear_digest`] for inputs of `len` bytes.
#[must_use]
pub fn affine_constant(len: usize) -> u64 {
    raw_crc64(&vec![0; len])
}

fn raw_crc64(bytes: &[u8]) -> u64 {
    let mut digest = crc64fast::Digest::new();
    digest.write(bytes);
    digest.sum64()
}

/// Mixes 64 bits by a bijection. The sum of the mixed values of a set is a checksum of the set. The sum does not depend
/// on the order of the values.
#[must_use]
pub fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_digest_is_linear_over_xor() {
        let a: Vec<u8> = (0..1000u32)
            .map(|i| i.to_le_bytes()[0].wrapping_mul(7))
            .collect();
        let b: Vec<u8> = (0..1000u32).map(|i| i.to_le_bytes()[0] ^ 0x5a).collect();
        let both: Vec<u8> = a.iter().zip(&b).map(|(x, y)| x ^ y).collect();
        let zeros = affine_constant(1000);
        assert_eq!(
            linear_digest(&both, zeros),
            linear_digest(&a, zeros) ^ linear_digest(&b, zeros)
        );
        assert_eq!(linear_digest(&vec![0; 1000], zeros), 0);
        assert_ne!(linear_digest(&a, zeros), 0);
    }
}
