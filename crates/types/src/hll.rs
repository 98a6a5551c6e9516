//! Estimates of how many different elements were added: HyperLogLogs, as strings.
//!
//! An element's hash chooses one of 16,384 *registers*. The rest of the hash begins with a run of zeros, and the
//! register keeps the length of the longest run of all its elements. The registers' values give an estimate of the
//! number of different elements, with an error of about 0.81 %, however large the number is. A sketch is a plain
//! string:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `HYLL` |
//! | 4 | 1 | form: 0 dense, 1 sparse |
//! | 5 | 3 | zero |
//! | 8 | 8 | the estimate, little endian; its highest bit is set if the estimate is outdated |
//! | 16 | | registers |
//!
//! | module | one idea |
//! |---|---|
//! | `hash` | an element's register and its run of zeros |
//! | `dense` | six bits for each register |
//! | [`sparse`] | runs of registers, while most are empty |
//! | `estimate` | from registers to a count |
//!
//! # Source
//! The strings equal Redis 7.0's strings, byte by byte. A sparse sketch becomes dense at the same element as in Redis.
//! Therefore sketches can be moved between the two servers. The estimator is from O. Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (arXiv:1702.01284).

mod dense;
mod estimate;
mod hash;
pub mod sparse;

use std::borrow::Cow;

pub use dense::{BYTES as DENSE_BYTES, GROUP_BYTES};

/// The number of registers of a sketch.
pub const REGISTERS: usize = 1 << 14;
/// Bytes before the registers.
const HEAD_BYTES: usize = 16;
const MAGIC: &[u8; 4] = b"HYLL";
/// The offset of a byte in a sketch, and a bit of that byte. The bit is set if the stored estimate is outdated.
const STALE: (usize, u8) = (15, 0x80);

/// The form of the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Six bits for each register.
    Dense,
    /// Runs of registers with equal values.
    Sparse,
}

/// The string has the head of a sketch, but not 16,384 registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sketch does not have {REGISTERS} registers")]
pub struct Damaged;

/// The bytes that changed in a sketch when a register was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// No byte has changed: the register already had this value or a greater one.
    Not,
    /// Only the [`GROUP_BYTES`] bytes at this offset may have changed. The sketch is dense.
    At(usize),
    /// Any bytes of the string may have changed.
    All,
}

/// Returns the form of a sketch; `None` if the string is not a sketch.
#[must_use]
pub fn form(bytes: &[u8]) -> Option<Form> {
    if bytes.len() < HEAD_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    match bytes[4] {
        0 if bytes.len() == DENSE_BYTES => Some(Form::Dense),
        1 => Some(Form::Sparse),
        _ => None,
    }
}

/// Returns a sketch without elements.
#[must_use]
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4] = 1;
    sparse::push_zeros(&mut bytes, REGISTERS);
    bytes
}

/// Adds an element. A sparse sketch that would become longer than `sparse_max` bytes becomes dense.
///
/// # Errors
/// [`Damaged`]: nothing was changed.
pub fn add(bytes: &mut Cow<'_, [u8]>, element: &[u8], sparse_max: u64) -> Result<Raised, Damaged> {
    let (register, run) = hash::register(element);
    raise(bytes, register, run, sparse_max)
}

/// Raises a register to `value`. A register that already has this value or a greater one stays as it is. A sparse
/// sketch becomes dense as in [`add`].
///
/// # Errors
/// As [`add`].
pub fn raise(
    bytes: &mut Cow<'_, [u8]>,
    register: usize,
    value: u8,
    sparse_max: u64,
) -> Result<Raised, Damaged> {
    debug_assert!(register < REGISTERS && value > 0 && value < 64);
    if form(bytes) == Some(Form::Sparse) {
        match sparse::raise(bytes, register, value, sparse_max)? {
            sparse::Raised::Done(false) => return Ok(Raised::Not),
            sparse::Raised::Done(true) => {}
            sparse::Raised::TooLong => {
                to_dense(bytes)?;
                dense::raise(bytes, register, value);
            }
        }
        return Ok(Raised::All);
    }
    debug_assert!(form(bytes) == Some(Form::Dense));
    Ok(dense::raise(bytes, register, value).map_or(Raised::Not, Raised::At))
}

/// Makes a sparse sketch dense and keeps the stored estimate.
///
/// # Errors
/// As [`add`].
pub fn to_dense(bytes: &mut Cow<'_, [u8]>) -> Result<(), Damaged> {
    let mut head = vec![0; DENSE_BYTES];
    head[..HEAD_BYTES].copy_from_slice(&bytes[..HEAD_BYTES]);
    head[4] = 0;
    let mut dense = Cow::Owned(head);
    sparse::visit(bytes, |register, value| {
        let _ = dense::raise(&mut dense, register, value);
    })?;
    *bytes = dense;
    Ok(())
}

/// Marks the stored estimate as outdated. Returns the offset of the changed byte as a range; `None` if the mark was
/// already there.
pub fn outdate(bytes: &mut Cow<'_, [u8]>) -> Option<std::ops::Range<usize>> {
    let (at, bit) = STALE;
    if bytes[at] & bit != 0 {
        return None;
    }
    bytes.to_mut()[at] |= bit;
    Some(at..at + 1)
}

/// Returns the stored estimate; `None` if it is outdated.
#[must_use]
pub fn known(bytes: &[u8]) -> Option<u64> {
    let (at, bit) = STALE;
    let estimate = bytes.get(8..HEAD_BYTES)?.first_chunk()?;
    (bytes[at] & bit == 0).then(|| u64::from_le_bytes(*estimate))
}

/// Returns the offset of the stored estimate in a sketch, and the bytes that store `estimate` there.
#[must_use]
pub fn remembered(estimate: u64) -> (usize, [u8; 8]) {
    (8, estimate.to_le_bytes())
}

/// Estimates the number of elements from the registers. If the estimate is infinite or too large, it is `1 << 63`, as
/// in Redis.
///
/// # Errors
/// [`Damaged`].
pub fn count(bytes: &[u8]) -> Result<u64, Damaged> {
    let histogram = match form(bytes) {
        Some(Form::Sparse) => sparse::histogram(bytes)?,
        Some(Form::Dense) | None => dense::histogram(bytes),
    };
    Ok(estimate::count(&histogram))
}

/// The union of several sketches: each register has the greatest of its values in these sketches.
#[derive(Debug, Clone)]
pub struct Union(Box<[u8; REGISTERS]>);

impl Default for Union {
    fn default() -> Self {
        Union(Box::new([0; REGISTERS]))
    }
}

impl Union {
    /// Adds a sketch to the union.
    ///
    /// # Errors
    /// [`Damaged`]: some registers of the damaged sketch may have been added.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), Damaged> {
        let mut raise = |register: usize, value: u8| {
            let kept = &mut self.0[register];
            *kept = value.max(*kept);
        };
        match form(bytes) {
            Some(Form::Sparse) => sparse::visit(bytes, raise),
            Some(Form::Dense) | None => {
                dense::values(bytes)
                    .enumerate()
                    .for_each(|(at, value)| raise(at, value));
                Ok(())
            }
        }
    }

    /// Returns the index and the value of each register that is not empty.
    pub fn values(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        let values = self.0.iter().copied().enumerate();
        values.filter(|(_, value)| *value > 0)
    }

    /// Estimates the number of elements.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut histogram = [0; 64];
        for value in self.0.iter() {
            histogram[usize::from(value & 63)] += 1;
        }
        estimate::count(&histogram)
    }
}

/// Returns the values of all registers of a sketch.
///
/// # Errors
/// [`Damaged`].
pub fn registers(bytes: &[u8]) -> Result<Vec<u8>, Damaged> {
    let mut union = Union::default();
    union.add(bytes)?;
    Ok(union.0.to_vec())
}

/// An error that [`self_test`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A register does not hold what was put there.
    #[error("Register {0} should be {1} but is {2}")]
    Register(usize, u8, u8),
    /// The sketch became dense although it has few elements.
    #[error("sparse encoding not used")]
    NotSparse,
    /// The sparse and the dense sketch of equal elements have different counts.
    #[error("dense/sparse disagree")]
    Disagree,
    /// A count differs too much from the number of elements.
    #[error("Too big error. card:{0} abserr:{1}")]
    Error(u64, u64),
}

/// Adds up to 100,000 elements to a dense and to a sparse sketch. Compares the registers of the two, their counts,
/// and the errors of the counts. `seed` chooses the elements.
///
/// # Errors
/// The first error that it finds.
pub fn self_test(seed: u64, sparse_max: u64) -> Result<(), Wrong> {
    let (mut dense, mut sparse) = (Cow::Owned(empty()), Cow::Owned(empty()));
    to_dense(&mut dense).map_err(|_| Wrong::Disagree)?;
    let mut kept = vec![0u8; REGISTERS];
    let mut checkpoint = 1;
    for n in 1..=100_000u64 {
        let element = (n ^ seed).to_le_bytes();
        let (register, run) = hash::register(&element);
        kept[register] = kept[register].max(run);
        for sketch in [&mut dense, &mut sparse] {
            raise(sketch, register, run, sparse_max).map_err(|_| Wrong::Disagree)?;
        }
        if n != checkpoint {
            continue;
        }
        checkpoint *= 10;
        if n < sparse_max / 2 && form(&sparse) != Some(Form::Sparse) {
            return Err(Wrong::NotSparse);
        }
        for (at, (value, kept)) in dense::values(&dense).zip(&kept).enumerate() {
            if value != *kept {
                return Err(Wrong::Register(at, *kept, value));
            }
        }
        let counted = count(&dense).map_err(|_| Wrong::Disagree)?;
        if count(&sparse) != Ok(counted) {
            return Err(Wrong::Disagree);
        }
        // Six times the standard error of 1.04 / 128. With ten elements, two may share a register, so an error of 1 is
        // allowed there.
        let most = if n == 10 { 1 } else { n * 6 * 104 / 12_800 + 1 };
        if counted.abs_diff(n) > most {
            return Err(Wrong::Error(n, counted.abs_diff(n)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
