//! The contract between the tree and its caller (in the paper, between DC and TC). The caller is a transaction
//! component that deals with keys and not with pages. The tree calls it only to append records to the log, while a
//! leaf's latch is held.

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

/// The log, for the tree's own records. A record gets the next number while the monitor's mutex is held, so numbers
/// and notes have the same order.
pub trait Records {
    /// Appends a record of the tree. Returns its number.
    fn record(&self, record: &TreeRecord) -> Gsn;
}

/// The log, for the caller's operations too. The same rule holds.
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

/// Repeats a call until it finds frames for its pages. Takes a step of the writer after each failure. `None`: no
/// dirty page may be written.
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

/// Evaluates to the value of an [`Answer::Done`]. For [`Answer::NoFrame`], returns it from the calling function.
macro_rules! done {
    ($answer:expr) => {
        match $answer {
            $crate::contract::Answer::Done(value) => value,
            $crate::contract::Answer::NoFrame => return Ok($crate::contract::Answer::NoFrame),
        }
    };
}
pub(crate) use done;
