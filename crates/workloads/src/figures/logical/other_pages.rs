//! Redoes one log onto pages of two sizes. Redo by keys needs no knowledge of pages (section 1.1 of the paper).
//!
//! Two databases are made from the same seed with the same rows, one in pages of 8 KiB and the other in pages of 4
//! KiB. They have the same uuid and the same lives. The log of the second database is replaced by that of the first,
//! and log0 restarts both.

use anyhow::{Context, Result, ensure};
use perdura_device::{Access, Disk};
use perdura_wal::segment::LOG_DIR;

use super::ground::Ground;
use super::history::{PAGE_BYTES, Table, without_checkpoints};
use super::method_of;
use super::restarts::counted;
use super::scale::Size;

/// The size of the second database's pages, bytes.
const OTHER_BYTES: usize = 4096;
/// The table has the paper's size divided by this, which is enough here.
const DIVISOR: u64 = 400;
/// The number of updates in the log.
const UPDATES: u64 = 4_000;
/// The number of pages in memory.
const FRAMES: usize = 200;

/// The results of both restarts.
pub(super) struct Ported {
    /// The numbers of pages of the two databases.
    pub pages: [u64; 2],
    /// The number of operations in the log.
    pub operations: u64,
    /// The number of these that were applied to the second database's pages.
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

fn copy(from: &dyn Disk, to: &dyn Disk, path: &str) -> Result<()> {
    let file = from.open(path, Access::Buffered)?;
    let len = usize::try_from(file.len()?).context("a segment that fits memory")?;
    let mut bytes = vec![0; len];
    ensure!(file.read_at(0, &mut bytes)? == len, "all of {path}");
    to.create(path, Access::Buffered)?.write_at(0, &bytes)?;
    Ok(())
}
