//! The scores of a stream's parts. A part is one row of a stream. A part's score is computed from its name. With
//! scores, most names are compared without reading a row.
//!
//! The order of scores agrees with the order of names, but two names may have equal scores. In that case the names'
//! rows are compared. The precision of scores is chosen for the names that streams give their rows
//! (docs/formats/stream.md): a kind, then numbers, then the id of an entry. If a number is too great for its bits in
//! the score, all these bits are ones.

/// The number of bits of a score. Floats of at least 0 and below 2 differ only in their low 62 bits. The floats sort as
/// these bits do, read as an integer.
const BITS: u32 = 62;

/// The number of bits of the kind, the first byte of a name.
const KIND_BITS: u32 = 3;

/// For each kind, the layout of the numbers that follow the kind in a name. A pair describes one number: its size in
/// the name, in bytes, and its size in the score, in bits.
const LAYOUTS: [&[(usize, u32)]; 1 << KIND_BITS] = [
    PLAIN,
    PLAIN,
    PLAIN,
    PLAIN,
    PENDING,
    CONSUMER_PENDING,
    NODE,
    PLAIN,
];
const PLAIN: &[(usize, u32)] = &[(7, 56)];
const PENDING: &[(usize, u32)] = &[(4, 7), (8, 42), (8, 10)];
const CONSUMER_PENDING: &[(usize, u32)] = &[(4, 5), (4, 6), (8, 42), (8, 6)];
const NODE: &[(usize, u32)] = &[(8, 45), (8, 14)];

const _: () = {
    let mut kind = 0;
    while kind < LAYOUTS.len() {
        let (mut at, mut bits) = (0, KIND_BITS);
        while at < LAYOUTS[kind].len() {
            let (bytes, width) = LAYOUTS[kind][at];
            assert!(bytes <= 8 && width < 64, "a number is read into 64 bits");
            (at, bits) = (at + 1, bits + width);
        }
        assert!(bits <= BITS, "a name's numbers fit its score");
        kind += 1;
    }
};

/// Several numbers packed into one number, the first in the highest bits. If a number does not fit into `width` bits,
/// this number and all later numbers become the greatest value.
struct Packed {
    bits: u64,
    left: u32,
    is_full: bool,
}

impl Packed {
    fn push(&mut self, number: u64, width: u32) {
        let most = (1 << width) - 1;
        self.is_full |= number >= most;
        self.left -= width;
        self.bits |= if self.is_full { most } else { number } << self.left;
    }
}

/// Returns the score of a name.
pub(crate) fn place_of(name: &[u8]) -> f64 {
    let mut packed = Packed {
        bits: 0,
        left: BITS,
        is_full: false,
    };
    let (kind, mut rest) = match name.split_first() {
        Some((kind, rest)) => (*kind, rest),
        None => return 0.0,
    };
    packed.push(u64::from(kind), KIND_BITS);
    let layout = LAYOUTS.get(usize::from(kind)).copied().unwrap_or(PLAIN);
    for &(bytes, width) in layout {
        let (number, behind) = rest.split_at(bytes.min(rest.len()));
        // Missing bytes count as zeros, so a name does not sort behind a longer name that begins with it.
        let mut full = [0; 8];
        full[8 - bytes..][..number.len()].copy_from_slice(number);
        packed.push(u64::from_be_bytes(full), width);
        rest = behind;
    }
    f64::from_bits(packed.bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rng: &mut fastrand::Rng) -> Vec<u8> {
        let kind = rng.u8(..8);
        let mut name = vec![if rng.u8(..20) == 0 { rng.u8(..) } else { kind }];
        for _ in 0..rng.usize(..6) {
            let number = match rng.u8(..4) {
                0 => rng.u64(..),
                1 => rng.u64(..3),
                2 => (1 << rng.u32(..64)) - rng.u64(..2),
                _ => 1_800_000_000_000 + rng.u64(..3),
            };
            match rng.bool() {
                true => name.extend_from_slice(&number.to_be_bytes()),
                false => name.extend_from_slice(&number.to_be_bytes()[4..]),
            }
        }
        name.truncate(rng.usize(..=name.len()));
        name
    }

    #[test]
    fn scores_ascend_as_names_do() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let mut names: Vec<Vec<u8>> = (0..300).map(|_| name(&mut rng)).collect();
            let few = names[..100].to_vec();
            names.extend(few.into_iter().map(|mut near| {
                if let Some(last) = near.last_mut() {
                    *last = last.wrapping_add(1);
                }
                near
            }));
            names.sort();
            for pair in names.windows(2) {
                let [low, high] = [place_of(&pair[0]), place_of(&pair[1])];
                assert!(
                    low <= high && (0.0..2.0).contains(&high),
                    "{pair:?}: {low}, {high}"
                );
            }
        }
    }

    #[test]
    fn entries_of_a_stream_and_what_is_pending_of_them_have_scores_of_their_own() {
        let id = |ms: u64, seq: u64| [ms.to_be_bytes(), seq.to_be_bytes()].concat();
        for ms in [1_u64, 1_800_000_000_000, 4_000_000_000_000] {
            for (kind, numbers) in [(6, &[][..]), (4, &[63][..]), (5, &[30, 62])] {
                let name = |ms, seq| {
                    let numbers = numbers.iter().flat_map(|n: &u32| n.to_be_bytes());
                    let mut name = vec![kind];
                    name.extend(numbers);
                    name.extend(id(ms, seq));
                    name
                };
                for seq in 0..61 {
                    let [here, next] = [seq, seq + 1].map(|seq| place_of(&name(ms, seq)));
                    assert!(here < next, "{kind} {ms}-{seq}");
                }
                assert!(place_of(&name(ms, u64::MAX)) < place_of(&name(ms + 1, 0)));
            }
        }
    }
}
