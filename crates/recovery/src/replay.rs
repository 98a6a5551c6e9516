//! Log to memory: every record of every stream against the rule, in any order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use perdura_base::{Epoch, Error, Result};
use perdura_store::{Heap, decode_group};
use perdura_wal::{BlockRef, Frame, FrameKind, StreamScan};

use crate::load::{LoadedImage, run_threads};
use crate::method::{Apply, Method};
use crate::report::Progress;
use crate::rule::{Gate, gate};

/// About how many bytes of log a player takes at once.
const UNIT_BYTES: u64 = 1 << 20;

/// What replay did.
#[derive(Debug, Clone, Default)]
pub struct ReplayStats {
    /// Transactions seen.
    pub groups: u64,
    /// Records seen.
    pub seen: u64,
    /// Records applied.
    pub applied: u64,
    /// Records skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Bytes of frames read.
    pub bytes: u64,
}

impl ReplayStats {
    fn merge(&mut self, other: ReplayStats) {
        self.groups += other.groups;
        self.seen += other.seen;
        self.applied += other.applied;
        self.bytes += other.bytes;
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
    }
}

/// Plays the scanned streams onto a loaded image, up to epoch `target`.
///
/// # Errors
/// [`Error::Corrupt`] if a frame whose checksum holds does not parse, or names an impossible page.
pub fn replay(
    heap: &Heap,
    scans: &[StreamScan],
    image: &LoadedImage,
    method: &Method,
    target: Epoch,
    threads: usize,
    progress: &Progress,
) -> Result<ReplayStats> {
    assert!(
        !method.source.merged,
        "an order-free scheme plays each stream for itself"
    );
    let units: Vec<(&StreamScan, std::ops::Range<usize>)> = scans
        .iter()
        .flat_map(|scan| {
            scan.units(UNIT_BYTES)
                .into_iter()
                .map(move |unit| (scan, unit))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(ReplayStats::default());
    run_threads(threads, || {
        let mut stats = ReplayStats::default();
        while let Some((scan, unit)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            let bytes = scan.read_unit(unit.clone(), method.source.direction, |frame, block| {
                play(heap, image, method, target, scan, frame, block, &mut stats)
            })?;
            stats.bytes += bytes;
            progress.add_done(bytes);
        }
        total.lock().merge(stats);
        Ok(())
    })?;
    Ok(total.into_inner())
}

#[allow(clippy::too_many_arguments)]
fn play(
    heap: &Heap,
    image: &LoadedImage,
    method: &Method,
    target: Epoch,
    scan: &StreamScan,
    frame: Frame<'_>,
    block: &BlockRef,
    stats: &mut ReplayStats,
) -> Result<()> {
    match frame.kind {
        FrameKind::Group => {}
        FrameKind::BeginCheckpoint
        | FrameKind::EndCheckpoint
        | FrameKind::Restart
        | FrameKind::Beacon
        | FrameKind::Record => return Ok(()),
    }
    let Some(group) = decode_group(frame.payload) else {
        return Err(Error::corrupt(
            format!("log stream {}", scan.stream),
            block.pos.0,
            "a group of page records",
            "bytes that are none",
            "The checksums hold, so this is a bug in the writer. Keep a copy and report it.",
        ));
    };
    stats.groups += 1;
    for record in group.records() {
        stats.seen += 1;
        match gate(record.tag, image.base_of(record.page), block.epoch, target) {
            Gate::Skip(why) => *stats.skipped.entry(why.name()).or_default() += 1,
            Gate::Apply => match method.apply {
                Apply::XorPage => {
                    let partition = heap.geometry().partition_of_page(record.page);
                    heap.lock(partition).apply(&record)?;
                    stats.applied += 1;
                }
            },
        }
    }
    Ok(())
}
