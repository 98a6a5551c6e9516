//! Carry-less multiplication and the field GF(2^64), in plain integer arithmetic.
//!
//! A word represents a polynomial over GF(2): bit i is the coefficient of x^i. Addition is XOR. So a product is linear
//! in each factor, which XOR-linear digests need.
//!
//! In the *field*, products are taken modulo x^64 + x^4 + x^3 + x + 1, which is irreducible. So the product of two
//! factors that are not zero is not zero.
//!
//! Processors have instructions for the carry-less product (`PCLMULQDQ`, `PMULL`), but calling them needs unsafe code.
//! Here each factor is split into four words. Each word keeps every fourth bit of the factor and is zero elsewhere. In
//! the integer product of two such words, at most sixteen ones are added in one bit position. In the lower half, the
//! carries reach only bits outside the mask.
//!
//! # Source
//! T. Pornin, BearSSL, `ghash_ctmul64`: multiplication "with holes".

/// Every fourth bit, from bit 0 on.
const HOLES: u64 = 0x1111_1111_1111_1111;

/// Returns the lower 64 bits of the carry-less product.
#[inline]
fn product_low(a: u64, b: u64) -> u64 {
    let part = |word: u64, i: u32| word & (HOLES << i);
    let (a0, a1, a2, a3) = (part(a, 0), part(a, 1), part(a, 2), part(a, 3));
    let (b0, b1, b2, b3) = (part(b, 0), part(b, 1), part(b, 2), part(b, 3));
    let mul = u64::wrapping_mul;
    let z0 = mul(a0, b0) ^ mul(a1, b3) ^ mul(a2, b2) ^ mul(a3, b1);
    let z1 = mul(a0, b1) ^ mul(a1, b0) ^ mul(a2, b3) ^ mul(a3, b2);
    let z2 = mul(a0, b2) ^ mul(a1, b1) ^ mul(a2, b0) ^ mul(a3, b3);
    let z3 = mul(a0, b3) ^ mul(a1, b2) ^ mul(a2, b1) ^ mul(a3, b0);
    part(z0, 0) | part(z1, 1) | part(z2, 2) | part(z3, 3)
}

/// Returns the carry-less product of two words: the higher and the lower 64 bits. The highest bit is always zero.
#[inline]
#[must_use]
pub fn carryless(a: u64, b: u64) -> (u64, u64) {
    // The product of the reversed factors has the coefficients of x^126 to x^63 in its lower half, in this order.
    // Reversing this half and shifting it by one bit gives the upper half.
    let high = product_low(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1;
    debug_assert!(
        high >> 63 == 0,
        "two degrees of at most 63 add up to at most 126"
    );
    (high, product_low(a, b))
}

/// Returns the product of two elements of the field.
#[inline]
#[must_use]
pub fn multiply(a: u64, b: u64) -> u64 {
    let (high, low) = carryless(a, b);
    // x^64 = x^4 + x^3 + x + 1. So the upper half is folded into the lower half. Folding moves at most four bits above
    // bit 63 again, and these are folded once more.
    let fold = |word: u64| word ^ word << 1 ^ word << 3 ^ word << 4;
    let above = high >> 63 ^ high >> 61 ^ high >> 60;
    debug_assert!(above < 16, "degree 3 at most is left above bit 63");
    let product = low ^ fold(high) ^ fold(above);
    debug_assert!(
        (product == 0) == (a == 0 || b == 0),
        "a field has no divisors of zero: {a:#x} times {b:#x}"
    );
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::mix64;

    /// Computes the product of [`carryless`] bit by bit.
    fn carryless_slow(a: u64, b: u64) -> u128 {
        (0..64)
            .filter(|bit| b >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ u128::from(a) << bit)
    }

    /// Computes [`multiply`] bit by bit: one step of Horner's scheme for each coefficient.
    fn multiply_slow(a: u64, b: u64) -> u64 {
        (0..64).rev().fold(0, |sum: u64, bit| {
            let carry = if sum >> 63 == 1 { 0b1_1011 } else { 0 };
            let add = if b >> bit & 1 == 1 { a } else { 0 };
            sum << 1 ^ carry ^ add
        })
    }

    fn words() -> Vec<u64> {
        let edges = [0, 1, 2, 3, HOLES, !HOLES, u64::MAX, 1 << 63, u64::MAX >> 1];
        edges.into_iter().chain((1..200).map(mix64)).collect()
    }

    #[test]
    fn products_are_those_taken_bit_by_bit() {
        for a in words() {
            for b in words() {
                let (high, low) = carryless(a, b);
                let want = carryless_slow(a, b);
                assert_eq!(
                    u128::from(high) << 64 | u128::from(low),
                    want,
                    "{a:#x} {b:#x}"
                );
                assert_eq!(multiply(a, b), multiply_slow(a, b), "{a:#x} {b:#x}");
            }
        }
    }

    #[test]
    fn the_product_is_linear_has_a_one_and_commutes() {
        for (a, b) in words().into_iter().zip(words().into_iter().rev()) {
            for c in [3, mix64(a ^ 77), u64::MAX] {
                assert_eq!(multiply(a ^ b, c), multiply(a, c) ^ multiply(b, c));
                assert_eq!(multiply(multiply(a, b), c), multiply(a, multiply(b, c)));
            }
            assert_eq!(multiply(a, b), multiply(b, a));
            assert_eq!(multiply(a, 1), a);
        }
    }

    /// By Fermat, a^(2^64) = a for all elements a of a field with 2^64 elements. The prime factors of 2^64 - 1 are 3,
    /// 5, 17, 257, 641, 65537 and 6700417. So an element a has full order if a^((2^64 - 1) / p) differs from 1 for each
    /// of these primes p. An element of full order exists only if the modulus is irreducible.
    #[test]
    fn the_modulus_is_irreducible() {
        let power = |base: u64, mut exponent: u64| {
            let (mut result, mut square) = (1, base);
            while exponent > 0 {
                if exponent & 1 == 1 {
                    result = multiply(result, square);
                }
                square = multiply(square, square);
                exponent >>= 1;
            }
            result
        };
        let full = |base: u64| {
            let primes = [3, 5, 17, 257, 641, 65_537, 6_700_417];
            primes.iter().all(|p| power(base, u64::MAX / p) != 1) && power(base, u64::MAX) == 1
        };
        assert!((2..100).any(full), "an element generates all others");
    }
}
