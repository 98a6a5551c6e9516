//! The moments that can be restored from an archive: those that a backup and undamaged runs lead to.
//!
//! A damaged run divides the runs into *stretches*. Each backup serves moments of the stretches that it touches.

use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupHeader};
use perdura_archive::keyed::{Keyed, candidates};
use perdura_archive::manifest::Clock;
use perdura_archive::{BackupId, Manifest, Moment, RunId, Store};
use perdura_base::{Epoch, Error, Result};
use perdura_wal::Archived;

use crate::choose::{TablesSince, beginning, is_of_file};
use crate::listed::{Listed, end_of};
use crate::reach::Reach;
use crate::served::{RunMoments, Served, served};

/// Epochs that follow each other, and the moments among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first moment.
    pub first: Epoch,
    /// The last moment.
    pub last: Epoch,
    /// The wall clocks of the first and the last listed moment, microseconds since 1970.
    pub wall_us: (u64, u64),
    /// The number of listed moments. `None`: each epoch is a moment.
    pub moments: Option<usize>,
}

impl Range {
    /// Returns the mean time between two moments, microseconds. 0: each epoch is a moment.
    #[must_use]
    pub fn grain_us(&self) -> u64 {
        let Some(moments) = self.moments else {
            return 0;
        };
        let gaps = u64::try_from(moments.saturating_sub(1)).unwrap_or(u64::MAX);
        let (from, to) = self.wall_us;
        let span = to.saturating_sub(from);
        span.checked_div(gaps).unwrap_or(span)
    }
}

/// A backup, and the moments that it serves.
#[derive(Debug)]
pub struct Serving {
    /// The backup.
    pub id: BackupId,
    /// The header, or the reason why the backup cannot be read.
    pub header: Result<BackupHeader>,
    /// The moments. `None`: the runs lack records that the backup needs.
    pub served: Option<Served>,
}

/// An increment, and its header or the reason why it cannot be read.
#[derive(Debug)]
pub struct Increment {
    /// The increment.
    pub id: BackupId,
    /// The header, or the reason.
    pub header: Result<BackupHeader>,
}

/// The moments of an archive.
#[derive(Debug)]
pub struct Reachable {
    /// The moments, in ranges, ascending.
    pub ranges: Vec<Range>,
    /// The backups, in the order of the manifest.
    pub backups: Vec<Serving>,
    /// The increments, in the order of the manifest.
    pub increments: Vec<Increment>,
    /// The damage of each run that cannot be read.
    pub damaged: Vec<Error>,
    /// The last epoch of the archive.
    pub known: Epoch,
    /// The number of updates in the runs. Merging combines records, but not this count.
    pub updates: u64,
    /// The most changes of key-addressed tables that the first start after a restore to the last moment replays.
    pub frames_to_replay: u64,
    /// The time in which these changes were made, microseconds, as the clock showed it. `None`: it is not known.
    pub frames_span_us: Option<u64>,
    /// The time from the first to the last listed moment, microseconds, without the known steps of the clock. `None`: no
    /// moment is listed.
    pub span_us: Option<u64>,
}

impl Reachable {
    /// Finds the moments of an archive. Opens all runs and backups.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn of(store: &Store) -> Result<Reachable> {
        loop {
            let manifest = store.refresh()?;
            let found = Reachable::by(store, &manifest);
            // A writer may have removed files from the archive since the manifest was read.
            let is_whole = matches!(&found, Ok(found) if found.damaged.is_empty());
            if is_whole || store.refresh()?.number == manifest.number {
                return found;
            }
        }
    }

    fn by(store: &Store, manifest: &Manifest) -> Result<Reachable> {
        // The database may add runs at any time, so the end is read before the runs.
        let known = end_of(store).map_or(manifest.held().0, |end| end.epoch);
        let (stretches, damaged) = stretches(store)?;
        let since = TablesSince::of(store)?;
        let mut spans: Vec<(Epoch, Epoch)> = Vec::new();
        let mut alone: Vec<Moment> = Vec::new();
        let mut backups = Vec::new();
        for id in manifest.backups() {
            let header = header_of(store.open_backup(id))?;
            let served = header.as_ref().ok().and_then(|header| {
                let found = in_stretches(header, &stretches)?;
                since.bounded(header, found)
            });
            if let (Ok(header), Some(served)) = (&header, &served) {
                spans.push((served.from, served.to));
                let epoch = header.moment();
                let listed = stretches.iter().flatten().flat_map(|run| run.listed.list());
                let times = listed.filter(|moment| moment.epoch <= epoch && moment.wall_us > 0);
                let is_own = header.archive() != Archived::Carried;
                let time = times.max_by_key(|moment| moment.epoch).filter(|_| !is_own);
                alone.push(Moment {
                    epoch,
                    wall_us: time.map_or(header.wall_us, |moment| moment.wall_us),
                });
            }
            backups.push(Serving { id, header, served });
        }
        let mut increments = Vec::new();
        for id in manifest.increments() {
            let header = header_of(store.open_increment(id))?;
            increments.push(Increment { id, header });
        }
        if beginning(store)?.is_some()
            && let Some(first) = stretches.first()
        {
            let (from, to) = ends(first);
            let to = since.plain_end.map_or(to, |end| end.min(to));
            spans.extend((from <= to).then_some((from, to)));
        }
        let runs = || stretches.iter().flatten();
        // A merged run may keep the moment of a cut without its time.
        let all = || runs().flat_map(|run| run.listed.list());
        let listed = || all().filter(|moment| moment.wall_us > 0);
        let newest = newest_cut(store, manifest, &backups);
        let last_us = listed().next_back().map(|moment| moment.wall_us);
        let of_cut = |moment: &&Moment| {
            let cut = newest.filter(BackupHeader::is_of_one_moment);
            cut.is_some_and(|cut| moment.epoch <= cut.moment())
        };
        let cut_us = listed().rfind(of_cut).map(|moment| moment.wall_us);
        let span = last_us.zip(cut_us);
        Ok(Reachable {
            frames_to_replay: frames_to_replay(newest.as_ref(), &stretches),
            frames_span_us: span.map(|(last, cut)| last.saturating_sub(cut)),
            updates: runs().map(|run| run.updates).sum(),
            span_us: span_us(&manifest.clock, listed().next(), listed().next_back()),
            ranges: ranges(&spans, &alone, &stretches),
            backups,
            increments,
            damaged,
            known,
        })
    }

    /// Returns the last moment. `None`: nothing can be restored.
    #[must_use]
    pub fn last(&self) -> Option<Epoch> {
        self.ranges.last().map(|range| range.last)
    }
}

/// Returns the header of a file. Fails if its disk fails. A damaged file is no failure.
fn header_of(opened: Result<Arc<Backup>>) -> Result<Result<BackupHeader>> {
    match opened {
        Ok(backup) => Ok(Ok(*backup.header())),
        Err(error) if is_of_file(&error) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// Returns the header of the newest backup or increment that a restore to the last moment begins with.
fn newest_cut(store: &Store, manifest: &Manifest, backups: &[Serving]) -> Option<BackupHeader> {
    let usable = backups.iter().filter(|backup| backup.served.is_some());
    let headers = usable.filter_map(|backup| backup.header.as_ref().ok());
    let cuts = headers.map(|base| {
        let increments = candidates(manifest, base.id, Epoch(u64::MAX));
        let mut whole = increments.into_iter().filter_map(|id| {
            let opened = Keyed::open(|id| store.open_increment(id), manifest, base, id);
            opened.ok().map(|keyed| *keyed.header())
        });
        whole.next().unwrap_or(*base)
    });
    cuts.max_by_key(BackupHeader::moment)
}

/// Returns the number of ordered frames in the runs after a cut. A run may begin before the cut, so a restore may need
/// fewer. Without a cut, the whole log is needed.
fn frames_to_replay(newest: Option<&BackupHeader>, stretches: &[Stretch]) -> u64 {
    let runs = || stretches.last().into_iter().flatten();
    let ids: Vec<RunId> = runs().map(|run| run.id).collect();
    let reach = newest.map(|header| Reach::of(header, &ids, None));
    let is_needed = |run: &&RunMoments| match &reach {
        Some(reach) => reach.as_ref().is_ok_and(|reach| reach.needs(run.id)),
        None => true,
    };
    debug_assert!(
        runs().all(|run| run.carries_frames || run.frames == 0),
        "a run with frames says so"
    );
    runs().filter(is_needed).map(|run| run.frames).sum()
}

/// Returns the time between two moments, microseconds, without the known steps of the clock between them.
fn span_us(clock: &Clock, first: Option<&Moment>, last: Option<&Moment>) -> Option<u64> {
    let (first, last) = first.zip(last)?;
    let steps = clock.steps.iter();
    let between = steps.filter(|step| first.epoch < step.epoch && step.epoch <= last.epoch);
    let jumped: i128 = between
        .map(|step| i128::from(step.to_us) - i128::from(step.from_us))
        .sum();
    let shown = i128::from(last.wall_us) - i128::from(first.wall_us);
    Some(u64::try_from(shown - jumped).unwrap_or(0))
}

/// Undamaged runs that follow each other.
type Stretch = Vec<RunMoments>;

/// Opens the runs of an archive, one after another. Returns the stretches between damaged runs, and the damage.
fn stretches(store: &Store) -> Result<(Vec<Stretch>, Vec<Error>)> {
    let (mut stretches, mut damaged) = (vec![Vec::new()], Vec::new());
    for run in Listed::of_archive(store)? {
        match run.open(store) {
            Ok(run) => {
                // The run is closed again, because an archive may have more runs than a process may open files.
                if let Some(stretch) = stretches.last_mut() {
                    stretch.push(RunMoments::of(&run));
                }
            }
            Err(error @ (Error::Corrupt(_) | Error::Foreign { .. })) => {
                damaged.push(error);
                stretches.push(Vec::new());
            }
            Err(error) => return Err(error),
        }
    }
    stretches.retain(|stretch| !stretch.is_empty());
    assert!(
        stretches.len() <= damaged.len() + 1,
        "damaged runs divide the runs"
    );
    Ok((stretches, damaged))
}

/// Returns the first and the last epoch of a stretch.
fn ends(stretch: &[RunMoments]) -> (Epoch, Epoch) {
    let ends = stretch.first().zip(stretch.last());
    let (first, last) = ends.expect("a stretch has a run");
    (first.id.epochs.begin, last.id.epochs.last())
}

/// Returns the moments that a backup serves in the stretch with the most of them.
fn in_stretches(header: &BackupHeader, stretches: &[Stretch]) -> Option<Served> {
    let found = stretches
        .iter()
        .filter_map(|stretch| served(header, stretch));
    let best = found.max_by_key(|served| served.moments);
    best.or_else(|| served(header, &[]))
}

impl TablesSince {
    /// Returns the moments of a backup without those whose changes may be in no run.
    fn bounded(&self, header: &BackupHeader, served: Served) -> Option<Served> {
        let Some(end) = self.plain_end else {
            return Some(served);
        };
        if header.archive() == Archived::Carried || served.to <= end {
            return Some(served);
        }
        assert!(end < served.to, "the runs lead beyond");
        (served.from <= end).then(|| Served {
            from: served.from,
            to: end,
            moments: served.moments.saturating_sub(served.to.0 - end.0).max(1),
        })
    }
}

/// Returns the moments of `stretches` that are in one of `spans`, and the moments of backups that are in no run.
fn ranges(spans: &[(Epoch, Epoch)], alone: &[Moment], stretches: &[Stretch]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for run in stretches.iter().flatten() {
        let epochs = run.id.epochs;
        let mut within: Vec<(Epoch, Epoch)> = spans
            .iter()
            .map(|(from, to)| (epochs.begin.max(*from), epochs.last().min(*to)))
            .filter(|(from, to)| from <= to)
            .collect();
        within.sort_unstable();
        for (from, to) in united(within) {
            assert!(
                epochs.contains(from) && epochs.contains(to),
                "they are the run's"
            );
            if let Some(range) = piece(run, from, to) {
                join(&mut ranges, range);
            }
        }
    }
    let is_in_run = |epoch: Epoch| {
        let mut runs = stretches.iter().flatten();
        runs.any(|run| run.id.epochs.contains(epoch))
    };
    for moment in alone.iter().filter(|moment| !is_in_run(moment.epoch)) {
        ranges.push(Range {
            first: moment.epoch,
            last: moment.epoch,
            wall_us: (moment.wall_us, moment.wall_us),
            moments: None,
        });
    }
    ranges.sort_by_key(|range| range.first);
    assert!(
        ranges.iter().all(|range| range.first <= range.last),
        "a range begins before it ends"
    );
    ranges.dedup_by_key(|range| range.first);
    ranges
}

/// Joins spans that overlap or follow each other. They are sorted.
fn united(spans: Vec<(Epoch, Epoch)>) -> Vec<(Epoch, Epoch)> {
    let mut united: Vec<(Epoch, Epoch)> = Vec::new();
    for (from, to) in spans {
        match united.last_mut() {
            Some(last) if from.0 <= last.1.0.saturating_add(1) => last.1 = last.1.max(to),
            _ => united.push((from, to)),
        }
    }
    united
}

/// Returns the moments of a run between two epochs. `None`: it has none there.
fn piece(run: &RunMoments, from: Epoch, to: Epoch) -> Option<Range> {
    let is_combined = run.only_listed;
    let listed = run.listed.list().iter();
    let own: Vec<&Moment> = listed
        .filter(|moment| from <= moment.epoch && moment.epoch <= to)
        .collect();
    let mut timed = own.iter().map(|moment| moment.wall_us).filter(|us| *us > 0);
    let first_us = timed.next().unwrap_or(0);
    let wall_us = (first_us, timed.next_back().unwrap_or(first_us));
    if !is_combined {
        return Some(Range {
            first: from,
            last: to,
            wall_us,
            moments: None,
        });
    }
    let end = run.id.epochs.last();
    let mut epochs: Vec<Epoch> = own.iter().map(|moment| moment.epoch).collect();
    if to == end && epochs.last() != Some(&end) {
        epochs.push(end);
    }
    let (first, last) = epochs.first().zip(epochs.last())?;
    assert!(from <= *first && *last <= to, "moments within the piece");
    Some(Range {
        first: *first,
        last: *last,
        wall_us,
        moments: Some(epochs.len()),
    })
}

/// Adds a range. It continues the last one if both have each epoch.
fn join(ranges: &mut Vec<Range>, range: Range) {
    match ranges.last_mut() {
        Some(last)
            if last.moments.is_none()
                && range.moments.is_none()
                && last.last.0.saturating_add(1) == range.first.0 =>
        {
            last.last = range.last;
            last.wall_us.1 = last.wall_us.1.max(range.wall_us.1);
        }
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use perdura_archive::manifest::clock::Step;

    use super::*;

    #[test]
    fn the_time_between_two_moments_has_no_step_of_the_clock() {
        let at = |epoch, wall_us| Moment {
            epoch: Epoch(epoch),
            wall_us,
        };
        let step = |epoch, from_us, to_us| Step {
            epoch: Epoch(epoch),
            from_us,
            to_us,
        };
        let clock = Clock {
            seen_us: 900,
            steps: vec![
                step(2, 100, 5_000),
                step(5, 5_200, 300),
                step(9, 900, 80_000),
            ],
        };
        let span = |first: Moment, last: Moment| span_us(&clock, Some(&first), Some(&last));
        assert_eq!(span(at(1, 0), at(8, 900)), Some(900), "there and back");
        assert_eq!(span(at(1, 0), at(4, 5_200)), Some(300), "there");
        assert_eq!(span(at(5, 300), at(8, 900)), Some(600), "no step between");
        assert_eq!(span_us(&clock, None, None), None);
    }
}
