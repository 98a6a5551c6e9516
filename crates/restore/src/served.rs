//! The moments that one backup and the existing runs can restore.

use perdura_archive::backup::{BackupHeader, BackupKind};
use perdura_archive::{Moments, Run, RunId};
use perdura_base::Epoch;
use perdura_base::num::to_u64;

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
    /// True if the run carries the ordered frames of its epochs.
    pub carries_frames: bool,
    /// The listed moments.
    pub listed: Moments,
    /// The number of updates in the run.
    pub updates: u64,
    /// The number of ordered frames in the run.
    pub frames: u64,
}

impl RunMoments {
    /// Returns the moments of an open run.
    #[must_use]
    pub fn of(run: &Run) -> RunMoments {
        RunMoments {
            id: run.id(),
            only_listed: run.header().only_listed_moments,
            carries_frames: run.header().carries_frames,
            listed: run.moments().clone(),
            updates: run.counts().1,
            frames: run.frames().map_or(0, |frames| frames.count),
        }
    }
}

/// Returns the moments that can be restored from a backup and `runs`. The runs must be consecutive, without gaps.
/// Returns `None` if no moment can be restored, because the runs lack records that the backup needs.
#[must_use]
pub fn served(header: &BackupHeader, runs: &[RunMoments]) -> Option<Served> {
    let end = header.moment();
    let alone = Served {
        from: end,
        to: end,
        moments: 1,
    };
    let runs = match header.is_of_one_moment() {
        true => after(end, runs),
        false => runs,
    };
    let held = runs.first().zip(runs.last());
    let held = held.map(|(first, last)| (first.id.epochs.begin, last.id.epochs.last()));
    let (from, to) = match (header.kind, held) {
        (BackupKind::Cut, None) => return Some(alone),
        (BackupKind::Sweep, None) => return (header.begin > end).then_some(alone),
        (BackupKind::Sweep, Some((first, last))) => {
            if header.begin < first || last < end {
                return None;
            }
            let from = match header.is_of_one_moment() {
                true => end,
                false => first.min(end),
            };
            (from, last)
        }
        (BackupKind::Cut, Some((first, last))) => {
            let has_before = last >= end && first <= end;
            let has_behind = first.0 <= end.0 + 1 && last > end;
            let is_before_end = has_before && !header.is_of_one_moment();
            let from = if is_before_end { first } else { end };
            (from, if has_behind { last } else { end })
        }
    };
    assert!(from <= to, "the first moment is not after the last one");
    // Only the first moment, the backup's end, may lie outside the runs.
    let outside = !runs.iter().any(|run| run.id.epochs.contains(from));
    let within = runs.iter().map(|run| moments_within(run, from, to));
    Some(Served {
        from,
        to,
        moments: u64::from(outside) + within.sum::<u64>(),
    })
}

/// Returns the runs that lead from a backup with key-addressed tables to later moments: those that carry frames, from the
/// run with the epoch after `moment` on.
fn after(moment: Epoch, runs: &[RunMoments]) -> &[RunMoments] {
    let first = runs.partition_point(|run| run.id.epochs.last() <= moment);
    let rest = &runs[first..];
    let carry = rest.iter().take_while(|run| run.carries_frames).count();
    let follows = rest
        .first()
        .is_some_and(|run| run.id.epochs.begin.0 <= moment.0 + 1);
    match follows {
        true => &rest[..carry],
        false => &rest[..0],
    }
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
