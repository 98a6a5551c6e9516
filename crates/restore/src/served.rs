//! The moments that one backup and the existing runs can restore.

use std::sync::Arc;

use perdura_archive::Run;
use perdura_archive::backup::{BackupHeader, BackupKind};
use perdura_base::Epoch;
use perdura_base::num::to_u64;
use perdura_wal::Archived;

/// The moments that can be restored from a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The first moment.
    pub from: Epoch,
    /// The last moment.
    pub to: Epoch,
    /// The number of moments: the epochs from `from` to `to`, minus the epochs lost in merges of runs.
    pub moments: u64,
}

/// Returns the moments that can be restored from a backup and `runs`. The runs must be consecutive, without gaps.
/// Returns `None` if no moment can be restored, because the runs lack records that the backup needs.
#[must_use]
pub fn served(header: &BackupHeader, runs: &[Arc<Run>]) -> Option<Served> {
    let end = header.id.end;
    let alone = Served {
        from: end,
        to: end,
        moments: 1,
    };
    if header.archive() == Archived::Carried {
        return Some(alone);
    }
    let held = runs.first().zip(runs.last());
    let held = held.map(|(first, last)| (first.id().epochs.begin, last.id().epochs.last()));
    let (from, to) = match (header.kind, held) {
        (BackupKind::Cut, None) => return Some(alone),
        (BackupKind::Sweep, None) => return (header.begin > end).then_some(alone),
        (BackupKind::Sweep, Some((first, last))) => {
            if header.begin < first || last < end {
                return None;
            }
            (first.min(end), last)
        }
        (BackupKind::Cut, Some((first, last))) => {
            let has_before = last >= end && first <= end;
            let has_behind = first.0 <= end.0 + 1 && last > end;
            let from = if has_before { first } else { end };
            (from, if has_behind { last } else { end })
        }
    };
    // Only the first moment, the backup's end, may lie outside the runs.
    let outside = !runs.iter().any(|run| run.id().epochs.contains(from));
    let within = runs.iter().map(|run| moments_within(run, from, to));
    Some(Served {
        from,
        to,
        moments: u64::from(outside) + within.sum::<u64>(),
    })
}

/// Counts a run's moments in the epochs `from` to `to`, inclusive.
fn moments_within(run: &Run, from: Epoch, to: Epoch) -> u64 {
    let epochs = run.id().epochs;
    let (from, to) = (from.max(epochs.begin), to.min(epochs.last()));
    if from > to {
        return 0;
    }
    if !run.header().only_listed_moments {
        return to.0 - from.0 + 1;
    }
    let listed = run.moments().list().iter().map(|moment| moment.epoch);
    let listed = listed.filter(|epoch| *epoch < epochs.last());
    let own = listed.filter(|epoch| from <= *epoch && *epoch <= to);
    to_u64(own.count()) + u64::from(to == epochs.last())
}
