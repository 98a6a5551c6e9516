//! Six bits for each register, beginning at the lowest bit of the first byte. Four registers take
//! three bytes.

use super::{HEAD_BYTES, REGISTERS};
use std::borrow::Cow;

/// Bytes of a dense sketch.
pub const BYTES: usize = HEAD_BYTES + REGISTERS / 4 * GROUP_BYTES;

/// Bytes of four registers.
pub const GROUP_BYTES: usize = 3;

/// Returns the offset of the three bytes that contain a register, and the index of the register's
/// lowest bit in these three bytes.
fn place(register: usize) -> (usize, usize) {
    debug_assert!(register < REGISTERS, "an element has one of the registers");
    (HEAD_BYTES + register / 4 * GROUP_BYTES, register % 4 * 6)
}

fn group(bytes: &[u8], at: usize) -> u32 {
    let byte = |n: usize| bytes.get(at + n).copied().map_or(0, u32::from);
    byte(0) | byte(1) << 8 | byte(2) << 16
}

/// Raises a register to a value. Returns the offset of the changed bytes; `None` if the register already had this value
/// or a greater one.
pub(super) fn raise(bytes: &mut Cow<'_, [u8]>, register: usize, value: u8) -> Option<usize> {
    let (at, shift) = place(register);
    let group = group(bytes, at);
    let old = (group >> shift) & 63;
    if old >= u32::from(value) {
        return None;
    }
    debug_assert!(value < 64, "a register has six bits");
    let group = (group & !(63 << shift)) | (u32::from(value) << shift);
    let [first, second, third, _] = group.to_le_bytes();
    bytes.to_mut()[at..at + GROUP_BYTES].copy_from_slice(&[first, second, third]);
    Some(at)
}

/// Returns the values of all registers in order.
pub(super) fn values(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let groups = (0..REGISTERS / 4).map(|n| group(bytes, HEAD_BYTES + GROUP_BYTES * n));
    groups.flat_map(|group| [0, 6, 12, 18].map(|shift| ((group >> shift) & 63).to_le_bytes()[0]))
}

/// Returns the number of registers with each value.
pub(super) fn histogram(bytes: &[u8]) -> [u64; 64] {
    let mut histogram = [0; 64];
    for value in values(bytes) {
        histogram[usize::from(value)] += 1;
    }
    histogram
}
