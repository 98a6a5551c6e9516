//! Tests of archives with missing or changed backups.

use std::sync::Arc;

use perdura_archive::{BackupId, Object, ObjectId};
use perdura_base::{CkptEpoch, Epoch};
use perdura_device::{Access, Disk, MemDisk};

use crate::store::{archive, create, database, log, open};

/// Archiving and merging continue if a backup is missing or has the wrong size. The opening reports the backup.
#[test]
fn a_backup_that_is_missing_or_short_is_named_and_stops_nothing() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    let log = log();
    archive(&store, &log, 10).expect("memory");
    let backups = [3, 7].map(|end| BackupId {
        end: Epoch(end),
        k: CkptEpoch(end),
    });
    for id in backups {
        let path = id.path(&store.backups_dir());
        let file = disk.create(&path, Access::Buffered).expect("memory");
        file.write_at(0, &[0; 8192]).expect("memory");
        let object = Object {
            id: ObjectId::Sweep(id),
            bytes: 8192,
            crc: 0,
        };
        store.add_backup(object).expect("memory");
    }
    let [missing, short] = backups.map(|id| id.path(&store.backups_dir()));
    disk.remove(&missing).expect("memory");
    let file = disk.open(&short, Access::Buffered).expect("a backup");
    file.set_len(4096).expect("memory");
    drop(store);
    let (store, opened) = open(&disk, database(2)).expect("its runs are whole");
    assert_eq!(opened.damaged.len(), 2, "{opened:?}");
    assert!(opened.damaged[0].contains(&missing) && opened.damaged[1].contains(&short));
    assert_eq!(store.manifest().backups().count(), 2, "nothing was changed");
    archive(&store, &log, 20).expect("it goes on");
    store.lease_merging().expect("merging as well");
}
