//! The digest of a page's logged region. It is computed from the whole page, or from a record's fragments alone.
//!
//! The digest is XOR-linear: the digest of a page before a change, XOR the digest of the change, is the digest of the
//! page after the change. So the digests of two checkpoint images and of the records between the images can be compared
//! without reading a page. A record's digest is the digest of a page of zeros after the record was applied. The
//! record's few bytes are enough to compute this digest.
//!
//! A digest depends on positions within its page, but not on the page's id. Swapping two pages does not change the XOR
//! of an image's plain digests. So [`bound`] multiplies each digest by a constant of its page in GF(2^64). If two pages
//! with digests a and b and constants c and d are swapped, the sum changes by (a + b)(c + d). The change is zero only
//! if the two digests or the two pages are equal.
//!
//! # Source
//! The digest is the linear part of CRC-64/XZ ([`linear_digest`](perdura_base::checksum::linear_digest)).
//! Skipping n zero bytes is a multiplication by x^8n modulo the CRC's polynomial, as in zlib's `crc32_combine`.

use std::sync::LazyLock;

use perdura_base::PageId;
use perdura_base::checksum::{crc32c, crc32c_append, mix64};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::gf64;

use crate::diff::Fragment;
use crate::layout::{META_BYTES, PAGE_BYTES};

/// The polynomial of CRC-64/XZ, its bits reversed: bit 63 is the coefficient of x^0, as in the digest itself.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;
/// Bytes of the logged region.
const REGION_BYTES: usize = PAGE_BYTES - META_BYTES;

/// Returns the CRC-32C of a page's id and bytes, as images and backups list it.
#[must_use]
pub fn page_crc(page: PageId, bytes: &[u8]) -> u32 {
    crc32c_append(crc32c(&page.0.to_le_bytes()), bytes)
}

/// Binds a digest to its page. `digest` is the digest of the page or of changes to the page. The result is linear in
/// the digest.
#[inline]
#[must_use]
pub fn bound(page: PageId, digest: u64) -> u64 {
    if armed(Flaw::DigestUnbound) {
        return digest;
    }
    // `mix64` is a bijection that maps only 0 to 0. So the constants are distinct, and none is 0.
    let constant = mix64(u64::from(page.0) + 1);
    debug_assert!(constant != 0, "page {page} has a constant");
    gf64::multiply(digest, constant)
}

/// The calculation of digests of pages and fragments. All instances share 144 KiB of tables.
pub struct RegionDigest {
    /// A table: `bytes[i][b]` is the polynomial of byte b and i zero bytes after it, times x^64, modulo the CRC's
    /// polynomial.
    bytes: &'static [[u64; 256]; 8],
    /// A table: `powers[n]` is x^8n modulo the CRC's polynomial.
    powers: &'static [u64],
}

/// The tables. The first [`RegionDigest`] of the process fills them.
static TABLES: LazyLock<Tables> = LazyLock::new(Tables::fill);

struct Tables {
    bytes: Box<[[u64; 256]; 8]>,
    powers: Vec<u64>,
}

impl Tables {
    fn fill() -> Tables {
        let mut bytes = Box::new([[0; 256]; 8]);
        for (byte, entry) in (0u64..).zip(bytes[0].iter_mut()) {
            *entry = (0..8).fold(byte, |word, _| {
                word >> 1 ^ if word & 1 == 1 { POLYNOMIAL } else { 0 }
            });
        }
        for i in 1..bytes.len() {
            for byte in 0..256 {
                let word = bytes[i - 1][byte];
                bytes[i][byte] = word >> 8 ^ bytes[0][low_byte(word)];
            }
        }
        let mut powers = Vec::with_capacity(REGION_BYTES + 1);
        let mut power = 1u64 << 63;
        for _ in 0..=REGION_BYTES {
            powers.push(power);
            power = power >> 8 ^ bytes[0][low_byte(power)];
        }
        assert_eq!(
            powers.len(),
            REGION_BYTES + 1,
            "a power for each number of zeros"
        );
        Tables { bytes, powers }
    }
}

impl RegionDigest {
    /// Returns a digest that uses the tables of the process.
    #[must_use]
    pub fn new() -> RegionDigest {
        RegionDigest {
            bytes: &TABLES.bytes,
            powers: &TABLES.powers,
        }
    }

    /// Returns the digest of a page's logged region.
    #[must_use]
    pub fn of_page(&self, page: &[u8]) -> u64 {
        assert_eq!(page.len(), PAGE_BYTES, "a whole page");
        self.of_bytes(&page[META_BYTES..])
    }

    /// Returns the digest of a page of zeros after these fragments were applied.
    #[inline]
    #[must_use]
    pub fn of_fragments<'a>(&self, fragments: impl Iterator<Item = Fragment<'a>>) -> u64 {
        let mut digest = 0;
        for fragment in fragments {
            let end = fragment.offset + fragment.bytes.len();
            assert!(
                fragment.offset >= META_BYTES && end <= PAGE_BYTES,
                "a fragment from {} to {end} lies in the logged region",
                fragment.offset
            );
            digest ^= self.times(self.of_bytes(fragment.bytes), self.powers[PAGE_BYTES - end]);
        }
        digest
    }

    /// Reads the bytes as a polynomial. Returns this polynomial times x^64, modulo the CRC's polynomial.
    #[inline]
    fn of_bytes(&self, bytes: &[u8]) -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut sum = 0;
        for word in words {
            sum = self.times_x64(sum ^ u64::from_le_bytes(*word));
        }
        for byte in rest {
            sum = sum >> 8 ^ self.bytes[0][low_byte(sum ^ u64::from(*byte))];
        }
        sum
    }

    /// Returns a word times x^64.
    #[inline]
    fn times_x64(&self, word: u64) -> u64 {
        let lanes = word.to_le_bytes();
        let tables = self.bytes.iter().rev();
        lanes
            .iter()
            .zip(tables)
            .fold(0, |sum, (lane, table)| sum ^ table[usize::from(*lane)])
    }

    /// Returns the product of two polynomials modulo the CRC's polynomial. Each polynomial is a word with reversed
    /// bits: bit 63 is the coefficient of x^0.
    #[inline]
    fn times(&self, a: u64, b: u64) -> u64 {
        let (high, low) = gf64::carryless(a, b);
        // Reversed factors give the reversed product, one bit too low. The shift corrects that.
        let (high, low) = (high << 1 | low >> 63, low << 1);
        high ^ self.times_x64(low)
    }
}

impl Default for RegionDigest {
    fn default() -> Self {
        Self::new()
    }
}

fn low_byte(word: u64) -> usize {
    usize::from(word.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use perdura_base::checksum::{affine_constant, linear_digest};
    use proptest::prelude::*;

    use super::*;
    use crate::diff::{FragmentWriter, Fragments};

    fn page(seed: u64, changes: usize) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut page = vec![0; PAGE_BYTES];
        for _ in 0..changes {
            let at = rng.usize(META_BYTES..PAGE_BYTES);
            let len = rng.usize(1..200).min(PAGE_BYTES - at);
            rng.fill(&mut page[at..at + len]);
        }
        page
    }

    #[test]
    fn the_digest_of_a_page_is_the_linear_part_of_its_crc() {
        let digest = RegionDigest::new();
        let zeros = affine_constant(REGION_BYTES);
        for seed in 0..50 {
            let page = page(seed, 40);
            let want = linear_digest(&page[META_BYTES..], zeros);
            assert_eq!(digest.of_page(&page), want, "seed {seed}");
        }
    }

    #[test]
    fn the_digest_of_fragments_is_that_of_the_page_they_make() {
        let digest = RegionDigest::new();
        for seed in 0..200 {
            let changed = page(seed, 1 + seed.trailing_zeros() as usize);
            let mut out = Vec::new();
            let mut writer = FragmentWriter::new(&mut out);
            writer.range(META_BYTES, &vec![0; REGION_BYTES], &changed[META_BYTES..]);
            let count = u64::from(writer.count());
            let got = digest.of_fragments(Fragments::new(&out, count));
            assert_eq!(got, digest.of_page(&changed), "seed {seed}");
        }
        let edges: &[(usize, usize)] = &[(16, 1), (16_383, 1), (16, REGION_BYTES), (16_376, 8)];
        for (offset, len) in edges.iter().copied() {
            let bytes = vec![0xa5; len];
            let mut page = vec![0; PAGE_BYTES];
            page[offset..offset + len].copy_from_slice(&bytes);
            let fragment = Fragment {
                offset,
                bytes: &bytes,
            };
            let got = digest.of_fragments(std::iter::once(fragment));
            assert_eq!(got, digest.of_page(&page), "{len} bytes at {offset}");
        }
    }

    #[cfg(feature = "flaws")]
    #[test]
    fn the_seeded_bug_is_caught_by_two_swapped_pages() {
        let sum = |a, b| bound(PageId(7), a) ^ bound(PageId(8), b);
        assert_ne!(sum(3, 5), sum(5, 3));
        perdura_base::flaw::arm(Some(Flaw::DigestUnbound));
        let (one, other) = (sum(3, 5), sum(5, 3));
        perdura_base::flaw::arm(None);
        assert_eq!(one, other, "unbound, the swap cannot be seen");
    }

    proptest! {
        #[test]
        fn bound_digests_are_linear_over_xor(page in any::<u32>(), a in any::<u64>(), b in any::<u64>()) {
            let page = PageId(page);
            prop_assert_eq!(bound(page, a ^ b), bound(page, a) ^ bound(page, b));
            prop_assert_eq!(bound(page, 0), 0);
        }

        #[test]
        fn two_swapped_pages_change_the_sum(
            pages in any::<[u32; 2]>(), a in any::<u64>(), b in any::<u64>(),
        ) {
            let [first, second] = pages.map(PageId);
            prop_assume!(first != second && a != b);
            let before = bound(first, a) ^ bound(second, b);
            let swapped = bound(first, b) ^ bound(second, a);
            prop_assert_ne!(before, swapped);
        }
    }
}
