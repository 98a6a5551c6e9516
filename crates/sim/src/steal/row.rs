//! Row contents that are computed from a number. Many of the rows differ in only a few bytes, like the versions of a
//! row after partial updates. The remaining rows differ in every byte.

use crate::content::scramble;

/// The description of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row(pub u64);

impl Row {
    /// Replaces the content of `out` by the row's `len` bytes.
    pub fn fill(self, len: usize, out: &mut Vec<u8>) {
        let Row(seed) = self;
        out.clear();
        let ground = [0, 0, 0x5a, 0xff][usize::from(seed.to_le_bytes()[0] % 4)];
        out.resize(len, ground);
        let words = match seed.to_le_bytes()[1] % 8 {
            0 => len / 8,
            few => usize::from(few % 4),
        };
        for i in (0..).take(words) {
            let word = scramble(seed ^ (i << 32));
            let place = usize::try_from(scramble(word) % 4096).unwrap_or(0) % (len - 7);
            out[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
        out[..8].copy_from_slice(&seed.to_le_bytes());
    }
}
