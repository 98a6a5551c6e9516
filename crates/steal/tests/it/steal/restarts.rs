//! Dry restarts after one crash, and their results.

use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_base::checksum::{hash64, mix64};
use perdura_device::SystemClock;
use perdura_heap::{Heap, MemoryAccount};
use perdura_page::{PageKind, layout};
use perdura_recovery::restart::{RestartOptions, restart};
use perdura_recovery::{METHODS, Method, Progress, RestartReport, Schedule};
use perdura_wal::Scheme;

use crate::steal::harness::Disks;

/// The result of a restart.
pub struct Found {
    /// The digest by [`perdura_steal::digest`], which ignores the places of rows.
    pub digest: String,
    /// The digest that includes the places of rows.
    pub placed: u64,
    pub report: RestartReport,
}

/// Returns the methods that read a scheme's log.
pub fn methods(scheme: Scheme) -> Vec<&'static Method> {
    let reads = |method: &&Method| method.schemes.contains(&scheme);
    METHODS.iter().filter(reads).collect()
}

/// Restarts without changing the disks. The error is the message of the failed restart.
pub fn dry_run(disks: &Disks, method: &Method, schedule: Schedule) -> Result<Found, String> {
    let restarted = restart(&RestartOptions {
        life: perdura_base::LifeId(0),
        disks: disks.env.disks.clone(),
        clock: Arc::new(SystemClock::new()),
        schedule,
        methods: method.into(),
        tree: perdura_recovery::tree::TreeMeans::default(),
        ordered: None,
        archived: None,
        mode: perdura_recovery::RestartMode::Dry,
        tail: Default::default(),
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        catalog: Arc::new(perdura::catalog::CatalogRows::default()),
        progress: Arc::new(Progress::default()),
    });
    let restarted = restarted.map_err(|error| error.to_string())?;
    let restarted = restarted.expect("there is a database");
    Ok(Found {
        digest: perdura_steal::digest(&restarted.heap),
        placed: placed(&restarted.heap),
        report: restarted.report,
    })
}

/// Hashes page, slot and row of each taken slot, and returns the sum of these hashes.
pub fn placed(heap: &Heap) -> u64 {
    let geometry = heap.geometry();
    let mut sum = 0u64;
    for id in (0..geometry.partitions).map(PartitionId) {
        let part = heap.lock(id);
        for local in 0..part.pages() {
            // The slots are read from the page itself. After a dry restart, the heap's own data about slots may
            // disagree with the pages.
            let Some(page) = part.page_bytes(local) else {
                continue;
            };
            let slotted = layout::kind(page) == Some(PageKind::Slotted);
            let Some(class) = layout::class(page).filter(|_| slotted) else {
                continue;
            };
            let number = geometry
                .page_id(id, local)
                .expect("a page there is has an id");
            for slot in layout::taken(page, class) {
                let place = u64::from(number.0) << 16 | u64::try_from(slot).expect("a slot");
                let of_row = hash64(place, layout::slot(page, class, slot));
                sum = sum.wrapping_add(mix64(of_row));
            }
        }
    }
    sum
}
