//! The moments that one backup and the existing runs can restore.

use perdura_archive::backup::{BackupHeader, BackupKind};
use perdura_archive::{Moments, Run, RunId};
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

/// The moments of a run. The run's file need not be open.
#[derive(Debug, Clone)]
pub struct RunMoments {
    /// The run.
    pub id: RunId,
    /// True if only the listed epochs and the last one are moments. Otherwise each epoch is a moment.
    pub only_listed: bool,
    /// The listed moments.
    pub listed: Moments,
    /// The number of updates in the run.
    pub updates: u64,
}

impl RunMoments {
    /// Returns the moments of an open run.
    #[must_use]
    pub fn of(run: &Run) -> RunMoments {
        RunMoments {
            id: run.id(),
            only_listed: run.header().only_listed_moments,
            listed: run.moments().clone(),
            updates: run.counts().1,
        }
    }
}

/// Returns the moments that can be restored from a backup and `runs`. The runs must be consecutive, without gaps.
/// Returns `None` if no moment can be restored, because the runs lack records that the backup needs.
#[must_use]
pub fn served(header: &BackupHeader, runs: &[RunMoments]) -> Option<Served> {
    let end = header.id.end;
    let alone = Served {
        from: header.moment(),
        to: header.moment(),
        moments: 1,
    };
    if header.archive() == Archived::Carried {
        return Some(alone);
    }
    let held = runs.first().zip(runs.last());
    let held = held.map(|(first, last)| (first.id.epochs.begin, last.id.epochs.last()));
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
    let outside = !runs.iter().any(|run| run.id.epochs.contains(from));
    let within = runs.iter().map(|run| moments_within(run, from, to));
    Some(Served {
        from,
        to,
        moments: u64::from(outside) + within.sum::<u64>(),
    })
}

/// Counts a run's moments in the epochs `from` to `to`, inclusive.
fn moments_within(run: &RunMoments, from: Epoch, to: Epoch) -> u64 {
    let epochs = run.id.epochs;
    let (from, to) = (from.max(epochs.begin), to.min(epochs.last()));
    if from > to {
        return 0;
    }
    if !run.only_listed {
        return to.0 - from.0 + 1;
    }
    let listed = run.listed.list().iter().map(|moment| moment.epoch);
    let listed = listed.filter(|epoch| *epoch < epochs.last());
    let own = listed.filter(|epoch| from <= *epoch && *epoch <= to);
    to_u64(own.count()) + u64::from(to == epochs.last())
}
