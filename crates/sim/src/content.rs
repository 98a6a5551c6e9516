//! Values described by a seed and a length. The bytes follow from the description. So the model stores no bytes, and a
//! comparison needs no second copy.

/// The description of a value. Two descriptions are equal exactly if the described bytes are equal.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    /// The seed of the value's bytes.
    pub seed: u64,
    /// The number of bytes in the value.
    pub len: usize,
}

/// Returns one step of splitmix64, as published. It is written here because the oracle shares no code with the
/// engine.
pub(crate) fn scramble(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        let head = |of: &Content| {
            let mut words = of.words();
            let word = u64::from_le_bytes(words.next().unwrap_or_default());
            // The first eight bytes determine the seed.
            if of.len < 8 {
                word & ((1 << (8 * of.len)) - 1)
            } else {
                word
            }
        };
        self.len == other.len && (self.seed == other.seed || head(self) == head(other))
    }
}

impl Eq for Content {}

impl Content {
    fn words(self) -> impl Iterator<Item = [u8; 8]> {
        (0..).map(move |i: u64| {
            scramble(self.seed ^ i.wrapping_mul(0xd6e8_feb8_6659_fd93)).to_le_bytes()
        })
    }

    /// Replaces the content of `out` by the value's bytes.
    pub fn fill(self, out: &mut Vec<u8>) {
        out.clear();
        out.reserve(self.len + 8);
        for word in self.words().take(self.len.div_ceil(8)) {
            out.extend_from_slice(&word);
        }
        out.truncate(self.len);
        debug_assert!(
            self.matches(out),
            "a value matches the bytes that it writes"
        );
    }

    /// Returns whether `bytes` are the bytes of this value.
    #[must_use]
    pub fn matches(self, bytes: &[u8]) -> bool {
        bytes.len() == self.len
            && bytes
                .chunks(8)
                .zip(self.words())
                .all(|(chunk, word)| chunk == &word[..chunk.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_matches_its_own_bytes_and_no_others() {
        let mut bytes = Vec::new();
        for len in [0, 1, 7, 8, 9, 100] {
            let content = Content { seed: 7, len };
            content.fill(&mut bytes);
            assert!(content.matches(&bytes));
            assert!(
                !Content {
                    seed: 7,
                    len: len + 1
                }
                .matches(&bytes)
            );
            let other = Content { seed: 9, len };
            assert_eq!(content == other, other.matches(&bytes));
            if len > 0 {
                assert!(!Content { seed: 8, len }.matches(&bytes));
                bytes[len - 1] ^= 1;
                assert!(!content.matches(&bytes));
            }
        }
    }
}
