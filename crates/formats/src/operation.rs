#![doc = include_str!("../../../docs/formats/operation.md")]

use perdura_base::cursor::{Reader, Writer};
pub use perdura_base::fields::Malformed;
use perdura_base::fields::{Fields, malformed, put_bytes};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid, TableId, TxnId};

const CHANGE: u8 = 1;
const COMPENSATION: u8 = 2;
const COMMIT: u8 = 3;
const ABORT: u8 = 4;

const BEFORE: u8 = 1;
const AFTER: u8 = 2;

/// The change of a row by an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowChange<'a> {
    /// The table.
    pub table: TableId,
    /// The tree's page that had the row when the operation was logged.
    pub pid: Pid,
    /// The row's key.
    pub key: &'a [u8],
    /// The row before the change; `None` if there was no row. In a compensation this is always `None`.
    pub before: Option<&'a [u8]>,
    /// The row after the change; `None` if the row is deleted.
    pub after: Option<&'a [u8]>,
}

/// An operation of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act<'a> {
    /// A change.
    Change(RowChange<'a>),
    /// A change that undoes an earlier change of the transaction.
    Compensation {
        /// The sequence number of the transaction's change that is to be undone next; 0 if no change is left.
        undo_next: Gsn,
        /// The change of the row.
        row: RowChange<'a>,
    },
    /// The transaction commits.
    Commit,
    /// The rollback of the transaction ends.
    Abort,
}

impl<'a> Act<'a> {
    /// Returns the operation's change of a row; `None` if it changes no row.
    #[must_use]
    pub fn row(&self) -> Option<&RowChange<'a>> {
        match self {
            Act::Change(row) | Act::Compensation { row, .. } => Some(row),
            Act::Commit | Act::Abort => None,
        }
    }
}

/// The operations of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationFrame<'a> {
    /// The sequence number of the first operation. The later operations have the next numbers, without a gap.
    pub first: Gsn,
    /// The operations, each with its transaction.
    pub acts: Vec<(TxnId, Act<'a>)>,
}

/// Appends a frame of these operations. `first` is the sequence number of the first operation.
///
/// # Panics
/// If `acts` is empty, if `first` is 0, or if an operation contradicts itself. An example is a change with no row
/// before and no row after.
pub fn encode(out: &mut Vec<u8>, first: Gsn, acts: &[(TxnId, Act<'_>)]) {
    assert!(
        first > Gsn(0) && !acts.is_empty(),
        "a frame has operations, with numbers"
    );
    out.put_varint(first.0);
    out.put_varint(to_u64(acts.len()));
    for ((txn, act), gsn) in acts.iter().zip(first.0..) {
        let (kind, undo_next) = match act {
            Act::Change(row) => {
                let has = row.before.is_some() || row.after.is_some();
                assert!(has, "a row that was not there is not removed");
                (CHANGE, None)
            }
            Act::Compensation { undo_next, row } => {
                assert!(undo_next.0 < gsn && row.before.is_none());
                (COMPENSATION, Some(undo_next))
            }
            Act::Commit => (COMMIT, None),
            Act::Abort => (ABORT, None),
        };
        out.put_u8(kind);
        out.put_varint(txn.0);
        if let Some(undo_next) = undo_next {
            out.put_varint(undo_next.0);
        }
        if let Some(row) = act.row() {
            put_row(out, row);
        }
    }
}

fn put_row(out: &mut Vec<u8>, row: &RowChange<'_>) {
    out.put_varint(u64::from(row.table.0));
    out.put_varint(u64::from(row.pid.0));
    let bit = |bytes: Option<&[u8]>, bit| bytes.map_or(0, |_| bit);
    out.put_u8(bit(row.before, BEFORE) | bit(row.after, AFTER));
    put_bytes(out, row.key);
    for bytes in row.before.iter().chain(&row.after) {
        put_bytes(out, bytes);
    }
}

/// Reads a frame's payload.
///
/// # Errors
/// Returns the position of the first wrong byte, and the expected content.
pub fn decode(payload: &[u8]) -> Result<OperationFrame<'_>, Malformed> {
    let mut r = Fields::new(payload);
    let first = r.take("a number of at least 1", |r| {
        r.varint().filter(|first| *first > 0).map(Gsn)
    })?;
    let count = r.take("a count of operations that follow", |r| {
        let count = r.varint_usize()?;
        // An operation has two bytes at least.
        let fits = (1..=r.remaining() / 2).contains(&count);
        let numbered = first.0.checked_add(to_u64(count)).is_some();
        (fits && numbered).then_some(count)
    })?;
    let mut acts = Vec::with_capacity(count);
    for gsn in (first.0..).take(count) {
        acts.push(act(&mut r, Gsn(gsn))?);
    }
    match r.reader.remaining() {
        0 => Ok(OperationFrame { first, acts }),
        _ => Err(malformed(r.reader.at(), "the frame's end")),
    }
}

fn act<'a>(r: &mut Fields<'a>, gsn: Gsn) -> Result<(TxnId, Act<'a>), Malformed> {
    let kind = r.take("the kind of an operation", |r| {
        r.u8().filter(|kind| (CHANGE..=ABORT).contains(kind))
    })?;
    let txn = TxnId(r.take("a transaction", Reader::varint)?);
    let act = match kind {
        CHANGE => Act::Change(row(r, &[BEFORE, AFTER, BEFORE | AFTER])?),
        COMPENSATION => Act::Compensation {
            undo_next: r.take("a number below the operation's", |r| {
                r.varint().map(Gsn).filter(|next| *next < gsn)
            })?,
            row: row(r, &[0, AFTER])?,
        },
        COMMIT => Act::Commit,
        _ => Act::Abort,
    };
    Ok((txn, act))
}

fn row<'a>(r: &mut Fields<'a>, has: &'static [u8]) -> Result<RowChange<'a>, Malformed> {
    let table = TableId(r.varint_u32("a table")?);
    let pid = Pid(r.varint_u32("a page")?);
    let has = r.take("which rows follow", |r| {
        r.u8().filter(|found| has.contains(found))
    })?;
    let key = r.bytes("a key")?;
    let mut side = |bit, what| match has & bit {
        0 => Ok(None),
        _ => r.bytes(what).map(Some),
    };
    Ok(RowChange {
        table,
        pid,
        key,
        before: side(BEFORE, "the row before")?,
        after: side(AFTER, "the row now")?,
    })
}
