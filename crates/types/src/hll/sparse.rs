//! A sketch as runs of registers with equal values, used while most registers are empty.
//!
//! | byte | run |
//! |---|---|
//! | `00nnnnnn` | n + 1 empty registers |
//! | `01nnnnnn nnnnnnnn` | n + 1 empty registers |
//! | `1vvvvvnn` | n + 1 registers of value v + 1 |
//!
//! Raising a register divides its run into up to three runs. Then neighbouring runs with equal values are joined,
//! except runs of empty registers. If a string ends after the first byte of a two-byte run, the second byte is taken to
//! be zero.

use super::{Damaged, HEAD_BYTES, REGISTERS, outdate};
use std::borrow::Cow;

/// The greatest value of a run.
const VALUE_MAX: u8 = 32;
/// The maximum number of registers in a run whose registers are not empty.
const VALUES_MAX: usize = 4;
/// The maximum number of empty registers in a one-byte run.
const ZEROS_MAX: usize = 64;
/// The maximum number of steps in one call of [`join`]. Each step joins two runs or proceeds to the next run.
const JOINED_MAX: usize = 5;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The value of its registers.
    pub value: u8,
    /// The number of its registers.
    pub len: usize,
    /// Its offset in the string.
    at: usize,
    /// True if the run takes two bytes.
    pub wide: bool,
}

impl Run {
    fn bytes(&self) -> usize {
        if self.wide { 2 } else { 1 }
    }
}

fn run(bytes: &[u8], at: usize) -> Option<Run> {
    let byte = *bytes.get(at)?;
    let low = usize::from(byte & 0x3f);
    let (value, len, wide) = match byte >> 6 {
        0 => (0, low + 1, false),
        1 => {
            let next = bytes.get(at + 1).copied().unwrap_or(0);
            (0, (low << 8 | usize::from(next)) + 1, true)
        }
        _ => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1, false),
    };
    debug_assert!(
        value <= VALUE_MAX && len > 0,
        "a run has registers of a value that fits"
    );
    Some(Run {
        value,
        len,
        at,
        wide,
    })
}

/// Returns the runs of a sparse sketch.
pub fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> + '_ {
    let mut at = HEAD_BYTES;
    std::iter::from_fn(move || {
        let run = run(bytes, at)?;
        at += run.bytes();
        Some(run)
    })
}

/// Appends a run of `len` empty registers; nothing if `len` is zero.
pub(super) fn push_zeros(bytes: &mut Vec<u8>, len: usize) {
    debug_assert!(len <= REGISTERS);
    let Some(n) = len.checked_sub(1) else {
        return;
    };
    let [low, high, ..] = n.to_le_bytes();
    match len <= ZEROS_MAX {
        true => bytes.push(low),
        false => bytes.extend([0x40 | high, low]),
    }
}

/// Returns the byte that encodes `len` registers with the value `value`.
fn values(value: u8, len: usize) -> u8 {
    debug_assert!((1..=VALUE_MAX).contains(&value) && (1..=VALUES_MAX).contains(&len));
    0x80 | (value - 1) << 2 | (len - 1).to_le_bytes()[0]
}

/// Calls `each` with the index and the value of every register that is not empty.
pub(super) fn visit(bytes: &[u8], mut each: impl FnMut(usize, u8)) -> Result<(), Damaged> {
    let mut first = 0;
    for run in runs(bytes) {
        let end = first + run.len;
        if end > REGISTERS {
            return Err(Damaged);
        }
        if run.value > 0 {
            (first..end).for_each(|register| each(register, run.value));
        }
        first = end;
    }
    (first == REGISTERS).then_some(()).ok_or(Damaged)
}

/// Returns the number of registers with each value.
pub(super) fn histogram(bytes: &[u8]) -> Result<[u64; 64], Damaged> {
    let mut histogram = [0; 64];
    let mut registers = 0;
    for run in runs(bytes) {
        registers += run.len;
        histogram[usize::from(run.value)] += perdura_base::num::to_u64(run.len);
    }
    (registers == REGISTERS).then_some(histogram).ok_or(Damaged)
}

/// The result of raising a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raised {
    /// The register now has at least the wanted value. The flag is true if this call raised the register.
    Done(bool),
    /// The sketch has to become dense first. Nothing was changed.
    TooLong,
}

/// Raises a register to a value.
pub(super) fn raise(
    bytes: &mut Cow<'_, [u8]>,
    register: usize,
    value: u8,
    sparse_max: u64,
) -> Result<Raised, Damaged> {
    debug_assert!(register < REGISTERS, "an element has one of the registers");
    if value > VALUE_MAX {
        return Ok(Raised::TooLong);
    }
    let (mut first, mut before) = (0, HEAD_BYTES);
    let found = runs(bytes).find(|run| {
        let here = register < first + run.len;
        if !here {
            first += run.len;
            before = run.at;
        }
        here
    });
    let run = found.ok_or(Damaged)?;
    if run.value >= value {
        return Ok(Raised::Done(false));
    }
    let (left, right) = (register - first, first + run.len - 1 - register);
    debug_assert_eq!(
        left + 1 + right,
        run.len,
        "the run is divided and loses no register"
    );
    let mut parts = Vec::with_capacity(5);
    let push = |parts: &mut Vec<u8>, len: usize| match run.value {
        0 => push_zeros(parts, len),
        value if len > 0 => parts.push(values(value, len)),
        _ => {}
    };
    push(&mut parts, left);
    parts.push(values(value, 1));
    push(&mut parts, right);
    let len = bytes.len() + parts.len() - run.bytes();
    let grows = parts.len() > run.bytes();
    if grows && perdura_base::num::to_u64(len) > sparse_max {
        return Ok(Raised::TooLong);
    }
    let string = bytes.to_mut();
    let end = (run.at + run.bytes()).min(string.len());
    string.splice(run.at..end, parts);
    string.truncate(len);
    join(string, before);
    let _ = outdate(bytes);
    Ok(Raised::Done(true))
}

/// Joins neighbouring runs with equal values. The first run to be joined is at offset `at`. Runs of empty registers are
/// not joined.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    debug_assert!(at >= HEAD_BYTES, "runs begin behind the head");
    for _ in 0..JOINED_MAX {
        let Some(here) = run(bytes, at) else {
            return;
        };
        let next = run(bytes, at + here.bytes());
        match next {
            Some(next)
                if here.value > 0
                    && here.value == next.value
                    && here.len + next.len <= VALUES_MAX =>
            {
                bytes[next.at] = values(here.value, here.len + next.len);
                bytes.remove(at);
            }
            _ => at += here.bytes(),
        }
    }
}
