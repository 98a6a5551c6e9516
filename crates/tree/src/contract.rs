//! The contract between the tree and its caller. In the paper, the tree is the data component (DC). The caller is the
//! transaction component (TC), which deals with keys and not with pages. The tree calls the caller only to append
//! records to the log.

use crate::pool::Progress;
use perdura_base::{Gsn, Pid, Result, TableId};
use perdura_formats::tree_record::TreeRecord;

/// An operation on a row, as it is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The table.
    pub table: TableId,
    /// The row's key.
    pub key: &'a [u8],
    /// The row before the operation. `None`: it did not exist.
    pub before: Option<&'a [u8]>,
    /// The row after the operation. `None`: it does not exist.
    pub after: Option<&'a [u8]>,
    /// The page that the row was in. Redo by page uses this hint; logical redo ignores it.
    pub pid: Pid,
}

/// The part of the log's interface that appends the tree's records. A record gets the next number while the monitor's
/// mutex is held. So the monitor's notes have the order of the numbers.
pub trait Records {
    /// Appends a record of the tree. Returns its number.
    fn record(&self, record: &TreeRecord) -> Gsn;
}

/// A log for the tree's records and for the caller's operations. Like a record, an operation gets its number while the
/// monitor's mutex is held (see [`Records`]).
pub trait Log: Records {
    /// Appends an operation. Returns its number.
    fn operation(&self, operation: &Operation<'_>) -> Gsn;
}

/// The result of a call to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the pool may have had no room"]
pub enum Answer<T> {
    /// The call is done, with this value.
    Done(T),
    /// All pages in memory are pinned or dirty. Nothing has changed, and the caller must make room by
    /// [`write_step`](crate::pool::Pool::write_step).
    NoFrame,
}

/// Repeats `call` until the pool has enough frames for it. After each call that lacks a frame, calls `step` until the
/// writer has written a batch of dirty pages. Returns `None` if no dirty page may be written.
///
/// # Errors
/// Errors of the call and of the step.
pub fn insist<T>(
    mut call: impl FnMut() -> Result<Answer<T>>,
    mut step: impl FnMut() -> Result<Progress>,
) -> Result<Option<T>> {
    loop {
        if let Answer::Done(value) = call()? {
            return Ok(Some(value));
        }
        loop {
            match step()? {
                Progress::Wrote => {}
                Progress::Cleaned => break,
                Progress::Idle => return Ok(None),
            }
        }
    }
}

/// Evaluates to the value of an [`Answer::Done`]. For [`Answer::NoFrame`], makes the calling function return `NoFrame`.
macro_rules! done {
    ($answer:expr) => {
        match $answer {
            $crate::contract::Answer::Done(value) => value,
            $crate::contract::Answer::NoFrame => return Ok($crate::contract::Answer::NoFrame),
        }
    };
}
pub(crate) use done;
