//! A restart for good of a database of interleaved transactions.

use std::sync::Arc;

use anyhow::{Context, Result};
use perdura::RestartReport;
use perdura_base::PartitionId;
use perdura_device::{Disk, FileDisk, SystemClock};
use perdura_heap::Heap;
use perdura_page::{PageKind, SlotClass, layout};
use perdura_recovery::{Method, Schedule};
use perdura_steal::{Steal, StealEnv, StealOptions};

use crate::offline::{Offline, Place, taken_slots, with_digest};

/// Opens the database, and leaves it with a checkpoint. What its slots hold is written nowhere but
/// in its pages, so it is restarted in memory first to see one.
pub fn restart(
    place: &Place,
    offline: Offline,
    method: &'static Method,
    schedule: &Schedule,
) -> Result<RestartReport> {
    let (seen, _) = offline.restart_by(method, schedule)?;
    let slot_bytes = class_of(&seen.heap).unwrap_or_default().bytes();
    drop(seen);
    let (scheme, streams) = (offline.anchor.scheme, offline.logs.len());
    // Its locks are shared, and stand in the way of the ones that follow.
    drop(offline);
    let open =
        |dir: &std::path::PathBuf| -> Result<Arc<dyn Disk>> { Ok(Arc::new(FileDisk::new(dir)?)) };
    let data = open(&place.data)?;
    let mut locks = vec![data.lock("LOCK")?];
    let mut logs = Vec::new();
    for stream in 0..streams {
        logs.push(match place.log_dir.get(stream).or(place.log_dir.first()) {
            None => Arc::clone(&data),
            Some(dir) => {
                let disk = open(dir)?;
                locks.push(disk.lock(&format!("LOCK.s{stream:02}"))?);
                disk
            }
        });
    }
    let mut images: Vec<_> = place.image_dir.iter().map(open).collect::<Result<_>>()?;
    if images.is_empty() {
        images.push(Arc::clone(&data));
    }
    let env = StealEnv {
        data,
        logs,
        images,
        clock: Arc::new(SystemClock::new()),
        seed: 0,
    };
    let options = StealOptions {
        schedule: *schedule,
        method: method.name,
        ..StealOptions::new(scheme, slot_bytes)
    };
    let opened = Steal::open(env, options)?.context("the anchor is gone")?;
    opened.checkpoint_now()?;
    let mut report = with_digest(opened.report().clone(), opened.digest());
    report.rows = taken_slots(opened.heap());
    Ok(report)
}

/// The class of the first page that has slots; all have the same.
fn class_of(heap: &Heap) -> Option<SlotClass> {
    (0..heap.geometry().partitions).find_map(|id| {
        let part = heap.lock(PartitionId(id));
        (0..part.pages())
            .filter_map(|local| part.page_bytes(local))
            .find(|page| layout::kind(page) == Some(PageKind::Slotted))
            .and_then(layout::class)
    })
}
