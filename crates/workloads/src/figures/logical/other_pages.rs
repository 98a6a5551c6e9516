//! Redoes one log onto pages of two sizes. Redo by keys needs no knowledge of pages (section 1.1 of the paper).
//!
//! Two databases are made from the same seed with the same rows, one in pages of 8 KiB and the other in pages of 4
//! KiB. They have the same uuid and the same lives. The log of the second database is replaced by the log of the
//! first. Then the method log0 restarts both.

use anyhow::{Context, Result, ensure};
use perdura_device::{Access, Disk};
use perdura_wal::segment::LOG_DIR;

use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::ground::Ground;
use super::history::{PAGE_BYTES, Table, without_checkpoints};
use super::method_of;
use super::restarts::counted;
use super::scale::Size;
use crate::num::{f64_of, ratio};

/// The size of the second database's pages, bytes.
const OTHER_BYTES: usize = 4096;
/// The divisor of the paper's size. It is large, because a small table is enough here.
const DIVISOR: u64 = 400;
/// The number of updates in the log.
const UPDATES: u64 = 4_000;
/// The number of pages in memory.
const FRAMES: usize = 200;

/// The results of both restarts.
pub(super) struct Ported {
    /// The number of pages of each database.
    pub pages: [u64; 2],
    /// The number of operations in the log.
    pub operations: u64,
    /// The number of operations that redo applied to the second database's pages.
    pub applied: u64,
}

/// Redoes one log onto the pages of both databases.
///
/// # Errors
/// Errors of the database; digests that differ.
pub(super) fn port(ground: &Ground, seed: u64) -> Result<Ported> {
    let size = Size { divisor: DIVISOR };
    let here = Table::new(ground, PAGE_BYTES, size, seed)?;
    let there = Table::new(ground, OTHER_BYTES, size, seed)?;
    let from = without_checkpoints(ground, &here, (FRAMES, UPDATES), seed)?;
    let mut to = without_checkpoints(ground, &there, (FRAMES, 0), seed)?;
    let moved = ground.over(&to.disk)?;
    for name in moved.list(LOG_DIR)? {
        moved.remove(&format!("{LOG_DIR}/{name}"))?;
    }
    for name in from.disk.list(LOG_DIR)? {
        copy(&*from.disk, &*moved, &format!("{LOG_DIR}/{name}"))?;
    }
    to.disk = moved;
    let log0 = method_of("log0")?;
    let (did_here, digest_here) = counted(ground, &from, log0)?;
    let (did_there, digest_there) = counted(ground, &to, log0)?;
    ensure!(
        digest_here == digest_there,
        "one log on pages of {PAGE_BYTES} bytes comes to {digest_here}, and on pages of {OTHER_BYTES} to {digest_there}"
    );
    Ok(Ported {
        pages: [here.pages, there.pages],
        operations: did_here.operations,
        applied: did_there.applied,
    })
}

/// Judges the redo of a log by keys onto pages of another size.
pub(super) fn ported(ported: &Ported) -> Claim {
    Claim::measured(
        "log0 of one log, written over pages of 8 KiB, onto pages of 4 KiB: operations applied / in the log",
        Paper::of("can be applied to disparate configurations", 1.0).within(0.0),
        Bounds(Better::More, Finding::AtLeast(1.0)),
        ratio(f64_of(ported.applied), f64_of(ported.operations)),
        &format!(
            "the digest is that of its own table, or the figure is not made; {} pages and {}",
            ported.pages[0], ported.pages[1]
        ),
    )
}

fn copy(from: &dyn Disk, to: &dyn Disk, path: &str) -> Result<()> {
    let file = from.open(path, Access::Buffered)?;
    let len = usize::try_from(file.len()?).context("a segment that fits memory")?;
    let mut bytes = vec![0; len];
    ensure!(file.read_at(0, &mut bytes)? == len, "all of {path}");
    to.create(path, Access::Buffered)?.write_at(0, &bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::*;

    #[test]
    fn an_operation_that_is_not_applied_to_other_pages_is_a_failure() {
        let of = |applied| {
            let found = Ported {
                pages: [1, 2],
                operations: 10,
                applied,
            };
            ported(&found).verdict
        };
        assert_eq!([of(10), of(9)], [Verdict::AsPaper, Verdict::Fails]);
    }
}
