//! Plans the faults of a life.

use std::sync::Arc;

use fastrand::Rng;
use perdura_device::{FaultPlan, SimDisk, SyncFailure};

/// The faults of a life strike within about its first 150 operations.
pub(crate) const LIFE_OPS: u64 = 150;

/// Plans a fault on a randomly chosen disk. The fault strikes within about `ops_max` operations.
pub(crate) fn plan(rng: &mut Rng, disks: &[Arc<SimDisk>], ops_max: u64) {
    let cuts = if ops_max < 20 { 5 } else { 3 };
    let disk = &disks[rng.usize(0..disks.len())];
    let failure = if rng.bool() {
        SyncFailure::KeepsNew
    } else {
        SyncFailure::Reverts
    };
    let mut plan = FaultPlan::default();
    match rng.u8(0..7 + cuts).saturating_sub(cuts - 1) {
        0 => plan.cut_after_ops = Some(rng.u64(1..=ops_max)),
        1 => plan.fail_sync_at = Some((rng.u64(1..=1 + ops_max / 4), failure)),
        2 => plan.fail_write_at = Some(rng.u64(1..=1 + ops_max / 2)),
        3 => plan.fail_read_at = Some(rng.u64(1..=8)),
        4 => plan.enospc_at = Some((rng.u64(1..=4), rng.u64(1..=6))),
        5 => plan.refuse_write_at = Some((rng.u64(1..=1 + ops_max / 4), rng.u64(1..=6))),
        6 => plan.fail_name_at = Some(rng.u64(1..=6)),
        _ => {
            let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
            plan.capacity_bytes = Some(used + rng.u64(0..200_000));
        }
    }
    disk.set_plan(plan);
}

/// Makes a randomly chosen disk full for a while. While it is full, its files cannot grow.
pub(crate) fn plan_full(rng: &mut Rng, disks: &[Arc<SimDisk>]) {
    disks[rng.usize(0..disks.len())].set_plan(FaultPlan {
        enospc_at: Some((rng.u64(1..=4), rng.u64(1..=3))),
        ..FaultPlan::default()
    });
}

/// Removes all planned faults. Disks that were full have space again.
pub(crate) fn clear(disks: &[Arc<SimDisk>]) {
    disks
        .iter()
        .for_each(|disk| disk.set_plan(FaultPlan::default()));
}
