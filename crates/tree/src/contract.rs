//! The contract between the tree and its callers, a transaction component that knows keys and no pages: the paper's
//! contract of TC and DC. The tree asks its caller only to append records to the log, and it asks under a leaf's latch.

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
    /// The row before, if there was one.
    pub before: Option<&'a [u8]>,
    /// The row now, if there is one.
    pub after: Option<&'a [u8]>,
    /// The page that it was in. A hint for redo by page; logical redo ignores it.
    pub pid: Pid,
}

/// The log for the tree's own records. A record gets the next number while the monitor's mutex is held, so numbers and
/// notes have one order.
pub trait Records {
    /// Appends a record of the tree.
    fn record(&self, record: &TreeRecord) -> Gsn;
}

/// The log for a caller's operations too, under the same rule.
pub trait Log: Records {
    /// Appends an operation.
    fn operation(&self, operation: &Operation<'_>) -> Gsn;
}

/// The result of a call of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the pool may have had no room"]
pub enum Answer<T> {
    /// The call has ended, with this value.
    Done(T),
    /// All pages in memory are pinned or dirty. Nothing has happened, and
    /// [`write_step`](crate::pool::Pool::write_step) has to make room.
    NoFrame,
}

/// Repeats a call until its pages find frames, with steps of the writer in between. `None`: no dirty page may be
/// written.
///
/// # Errors
/// Those of the call and of the step.
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

/// Continues with the value of an [`Answer::Done`], or returns [`Answer::NoFrame`].
macro_rules! done {
    ($answer:expr) => {
        match $answer {
            $crate::contract::Answer::Done(value) => value,
            $crate::contract::Answer::NoFrame => return Ok($crate::contract::Answer::NoFrame),
        }
    };
}
pub(crate) use done;
