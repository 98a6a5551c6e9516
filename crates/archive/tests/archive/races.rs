//! Several writers publish manifests, and then the power fails. Any subset of their last operations may have become
//! durable.

use std::sync::Arc;

use perdura_archive::{Edit, Store};
use perdura_device::{CrashProfile, Disk, FaultPlan, SimDisk};

use crate::common::UUID;
use crate::store::{HOME, agent, create, open};

/// Returns the number of published manifests.
fn named(disk: &SimDisk) -> usize {
    let names = disk.life().list(HOME).expect("the archive");
    let is_whole = |name: &&String| name.starts_with("manifest-") && !name.ends_with(".tmp");
    names.iter().filter(is_whole).count()
}

/// Takes the steps of a publication until the manifest's file has its final name. The manifest is not durable yet.
fn publish_name(disk: &SimDisk, store: &Arc<Store>) {
    let before = named(disk);
    let mut publication = store.publish(Edit::Open);
    while named(disk) == before {
        publication.step().expect("the disk works");
    }
}

/// Crashes once for each subset of the pending operations. The operations of the subset become durable, and the others
/// are lost. Checks the archive after each crash. Returns the number of subsets.
fn whole_after_any_cut(disk: &Arc<SimDisk>) -> u64 {
    let (before, pending) = (disk.snapshot(), disk.pending_ops());
    assert!(pending <= 12, "{pending} operations");
    for keep in 0..1 << pending {
        disk.restore(&before);
        disk.crash_keeping(keep);
        let found = Store::read_only(disk.life(), &UUID).map(drop);
        found.unwrap_or_else(|error| panic!("of {pending} operations {keep:b}: {error}"));
    }
    disk.restore(&before);
    1 << pending
}

/// The simulator found an archive that lacked the manifest just before the newest one. One writer had published the
/// missing manifest without syncing the folder. Another writer had then published the newest manifest.
#[test]
fn a_manifest_follows_only_what_is_durable() {
    let disk = SimDisk::new(1);
    let shared: Arc<dyn Disk> = disk.life();
    let database = create(&shared).expect("a new archive");
    let (helper, _) = open(&shared, agent(2)).expect("an agent");
    publish_name(&disk, &helper);
    publish_name(&disk, &database);
    assert!(whole_after_any_cut(&disk) > 2);
}

#[test]
fn an_opening_follows_only_what_is_durable() {
    for cut in 1.. {
        let disk = SimDisk::new(1);
        let shared: Arc<dyn Disk> = disk.life();
        let database = create(&shared).expect("a new archive");
        publish_name(&disk, &database);
        drop((database, shared));
        disk.crash(CrashProfile::Killed, 1);
        disk.set_plan(FaultPlan {
            cut_after_ops: Some(cut),
            ..FaultPlan::default()
        });
        let shared: Arc<dyn Disk> = disk.life();
        let opened = open(&shared, agent(2)).map(drop);
        whole_after_any_cut(&disk);
        if opened.is_ok() {
            assert!(cut > 5, "{cut} operations");
            break;
        }
    }
}
