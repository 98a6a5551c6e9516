//! An estimate of how long a restore takes, from the last drill.

use perdura_base::Epoch;

use crate::backup::BackupId;
use crate::manifest::{Manifest, Object};
use crate::report::{Report, ReportKind};

/// Returns the bytes that a restore to the epochs up to `last` reads: a backup, and the runs with later epochs.
fn bytes_of(manifest: &Manifest, backup: Option<BackupId>, last: Epoch) -> u64 {
    let begin = backup.map_or(Epoch(0), |id| id.end);
    let of_backup = |object: &&Object| backup.is_some() && object.id.backup() == backup;
    let of_runs = |object: &&Object| {
        let run = object.id.run();
        run.is_some_and(|run| begin < run.epochs.end && run.epochs.begin <= last)
    };
    let objects = || manifest.objects.iter();
    let some = objects().filter(of_backup).chain(objects().filter(of_runs));
    some.map(|object| object.bytes).sum()
}

/// Returns the expected time of a restore of the archive's last moment, microseconds: the time of the drill, scaled by
/// the bytes to read. The drill used one thread, so the estimate is high. `None`: the drill's backup is gone, or the
/// report is of another kind.
#[must_use]
pub fn restore_us(manifest: &Manifest, drill: &Report) -> Option<u64> {
    let of_drill = |id: &BackupId| id.k == drill.from && id.end == drill.begin;
    let then = manifest.backups().find(of_drill)?;
    if drill.kind != ReportKind::Drill {
        return None;
    }
    let newest = manifest.backups().max_by_key(|id| id.end);
    let bytes = u128::from(bytes_of(manifest, newest, manifest.held().0));
    let before = u128::from(bytes_of(manifest, Some(then), drill.end));
    let scaled = (bytes * u128::from(drill.took_us)).checked_div(before)?;
    u64::try_from(scaled).ok()
}
