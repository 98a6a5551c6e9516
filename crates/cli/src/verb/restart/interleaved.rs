//! The restart of a database of interleaved transactions. It writes the result to the disks.

use anyhow::{Context, Result};
use perdura::RestartReport;
use perdura_base::PartitionId;
use perdura_heap::Heap;
use perdura_page::{PageKind, SlotClass, layout};
use perdura_recovery::{Method, Schedule};
use perdura_steal::{Steal, StealOptions};

use super::to_write;
use crate::in_memory::Pool;
use crate::offline::{Directories, Offline, taken_slots, with_digest};

/// Opens the database and closes it with a checkpoint. Opening needs the size class of the slots, which is recorded
/// only in the pages. So the function first restarts in memory, and reads the class from one of the resulting pages.
pub fn restart(
    directories: &Directories,
    offline: Offline,
    method: &str,
    schedule: &Schedule,
    pool: &Pool,
) -> Result<RestartReport> {
    let (methods, _) = offline.way(method, None)?;
    let (seen, _) = offline.restart_by(&methods, schedule, pool)?;
    let slot_bytes = class_of(&seen.heap).unwrap_or_default().bytes();
    drop(seen);
    let scheme = offline.anchor.scheme;
    let (env, _locks) = to_write(directories, offline)?;
    let options = StealOptions {
        schedule: *schedule,
        method: Method::by_name(method).map_or("auto", |method| method.name),
        ..StealOptions::new(scheme, slot_bytes)
    };
    let opened = Steal::open(env, options)?.context("the anchor is gone")?;
    opened.close()?;
    let mut report = with_digest(opened.report().clone(), opened.digest());
    report.rows = taken_slots(opened.heap());
    Ok(report)
}

/// Returns the size class of the first page with slots. All pages with slots have one common class.
fn class_of(heap: &Heap) -> Option<SlotClass> {
    (0..heap.geometry().partitions).find_map(|id| {
        let part = heap.lock(PartitionId(id));
        (0..part.pages())
            .filter_map(|local| part.page_bytes(local))
            .find(|page| layout::kind(page) == Some(PageKind::Slotted))
            .and_then(layout::class)
    })
}
