//! A HyperLogLog in the model: its registers. The code follows Redis's description of the two encodings.

use std::collections::BTreeMap;

use crate::model::Bytes;

const REGISTERS: u64 = 16384;

/// The registers that are not zero: each register's value, by its index.
pub type Sketch = BTreeMap<u64, u8>;

/// Returns the MurmurHash64A of a text.
fn murmur(text: &[u8]) -> u64 {
    let m = 0xc6a4_a793_5bd1_e995_u64;
    let mut h = 0xadc8_3b19 ^ (text.len() as u64).wrapping_mul(m);
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        let mut k = u64::from_le_bytes(chunk.try_into().unwrap()).wrapping_mul(m);
        k = (k ^ (k >> 47)).wrapping_mul(m);
        h = (h ^ k).wrapping_mul(m);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        let k = tail
            .iter()
            .rev()
            .fold(0, |k, byte| k << 8 | u64::from(*byte));
        h = (h ^ k).wrapping_mul(m);
    }
    h = (h ^ (h >> 47)).wrapping_mul(m);
    h ^ (h >> 47)
}

/// Adds an element. Returns whether a register changed.
pub fn add(sketch: &mut Sketch, element: &[u8]) -> bool {
    let hash = murmur(element);
    let zeros = u8::try_from(((hash / REGISTERS) | (1 << 50)).trailing_zeros()).unwrap();
    raise(sketch, hash % REGISTERS, zeros + 1)
}

/// Raises a register to at least `value`. Returns whether the register changed.
pub fn raise(sketch: &mut Sketch, register: u64, value: u8) -> bool {
    let held = sketch.entry(register).or_default();
    let rises = value > *held;
    *held = value.max(*held);
    rises
}

/// Returns the registers that a key's value encodes.
pub fn read(bytes: &Bytes) -> Sketch {
    assert_eq!(bytes[..4], *b"HYLL");
    let body = &bytes[16..];
    let values = if bytes[4] == 0 {
        dense(body)
    } else {
        sparse(body)
    };
    assert_eq!(values.len() as u64, REGISTERS);
    let values = (0..).zip(values);
    values.filter(|(_, value)| *value > 0).collect()
}

/// Reads the dense encoding: six bits for each register, beginning with the lowest bit.
fn dense(body: &[u8]) -> Vec<u8> {
    let bit = |at: usize| body[at / 8] >> (at % 8) & 1;
    let register = |at| (0..6).map(|n| bit(6 * at + n) << n).sum();
    (0..body.len() * 8 / 6).map(register).collect()
}

/// Reads the sparse encoding, which consists of runs. `00xxxxxx` and `01xxxxxx yyyyyyyy` are runs of zeros,
/// `1vvvvvxx` is a run of one value.
fn sparse(body: &[u8]) -> Vec<u8> {
    let (mut values, mut bytes) = (Vec::new(), body.iter());
    while let Some(&byte) = bytes.next() {
        let (value, run) = match byte >> 6 {
            0 => (0, usize::from(byte) + 1),
            1 => {
                let low = usize::from(*bytes.next().unwrap());
                (0, (usize::from(byte & 63) << 8 | low) + 1)
            }
            _ => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1),
        };
        values.extend(std::iter::repeat_n(value, run));
    }
    values
}
