//! The moment to restore, as an operator gives it: an epoch, a time, or a span before the archive's end.
//!
//! The archive counts in epochs; clock times are translated into epochs. Each run lists at most a thousand *moments*. A
//! moment is a closed epoch with the wall-clock time of the close. A time refers to the last listed moment up to that
//! time. If the clock was set back, moments keep the highest time so far until the clock has passed it. So a later
//! moment never has an earlier time. The archiver writes moments by this rule. Moments of a build without the rule are
//! corrected when they are read.
//!
//! # Source
//! "Single-pass restore after a media failure", section 3.2, restores to the end of the log. An earlier point in time
//! is our addition. The result is exact because the records commute.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use perdura_archive::{Moment, Run, Store};
use perdura_base::moment::{moment, parse_moment, parse_span};
use perdura_base::{Epoch, Error, Result};
use perdura_wal::Archived;

use crate::listed::Listed;

/// A moment, as an operator gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The end of this epoch.
    Epoch(Epoch),
    /// A reading of the clock, microseconds since 1970.
    Time(u64),
    /// A span before the last moment of the archive, microseconds.
    BeforeEnd(u64),
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<At, String> {
        if let Ok(epoch) = text.parse() {
            return Ok(At::Epoch(Epoch(epoch)));
        }
        let time = parse_moment(text).map(At::Time);
        let found = time.or_else(|| parse_span(text).map(At::BeforeEnd));
        found.ok_or_else(|| {
            format!(
                "'{text}' is not a moment. Give an epoch (4711), a UTC time (2026-03-01 12:00:00), or a time with its \
                 offset (2026-03-01 12:00:00+02:00). Or give the time before the archive's end (10min, 1h30m, 2d)"
            )
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Epoch(epoch) => write!(f, "epoch {epoch}"),
            At::Time(us) => f.write_str(&moment(*us)),
            At::BeforeEnd(us) => {
                let (seconds, micros) = (us / 1_000_000, us % 1_000_000);
                write!(f, "{seconds}.{micros:06} s before the archive's end")
            }
        }
    }
}

/// A summary of moments that are visited in order: the first moment, the last moment, and the last moment up to a given
/// time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    first: Option<Moment>,
    found: Option<Moment>,
    last: Option<Moment>,
}

impl Timeline {
    /// Visits the next moment.
    pub(crate) fn note(&mut self, moment: Moment, time_us: u64) {
        let before = self.last;
        debug_assert!(
            before.is_none_or(|before| before.epoch < moment.epoch),
            "moments come in the order of their epochs"
        );
        let wall_us = moment
            .wall_us
            .max(before.map_or(0, |before| before.wall_us));
        let moment = Moment { wall_us, ..moment };
        self.first.get_or_insert(moment);
        assert!(
            self.first.is_some_and(|first| first.wall_us <= wall_us),
            "time does not go back"
        );
        if wall_us <= time_us {
            self.found = Some(moment);
        }
        self.last = Some(moment);
    }

    /// Returns the last visited moment that is not later than `time_us`. Fails unless `time_us` is between the first
    /// and the last visited moment. `at` is for the error's text.
    fn at(&self, at: At, time_us: u64) -> Result<Moment> {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return Err(Error::Usage(
                "the archive lists no moments, so it knows no times. Give an epoch".into(),
            ));
        };
        assert!(first.epoch <= last.epoch, "a line has a direction");
        let found = self.found.filter(|_| time_us <= last.wall_us);
        found.ok_or_else(|| {
            Error::Usage(format!(
                "{at} is not in the archive. Its moments are from {} (epoch {}) to {} (epoch \
                 {}). Without --at the last moment is restored",
                moment(first.wall_us),
                first.epoch,
                moment(last.wall_us),
                last.epoch
            ))
        })
    }
}

/// Returns the moments that a run lists.
fn of_run(run: &Run) -> impl Iterator<Item = Moment> + '_ {
    run.moments().list().iter().copied()
}

/// Calls `each` with every moment, in order: first the moments of an archive, then the moments of the runs in `tail`.
/// Opens only one run of the archive at a time.
fn walk(store: &Store, tail: &[Arc<Run>], mut each: impl FnMut(Moment)) -> Result<()> {
    if let Some(moments) = of_backups(store)? {
        moments.into_iter().for_each(each);
        return Ok(());
    }
    for run in Listed::of_archive(store)? {
        of_run(run.open(store)?.as_ref()).for_each(&mut each);
    }
    tail.iter().flat_map(|run| of_run(run)).for_each(each);
    Ok(())
}

/// Returns the last moment that [`walk`] would visit.
fn last_of(store: &Store, tail: &[Arc<Run>]) -> Result<Option<Moment>> {
    if let Some(moments) = of_backups(store)? {
        return Ok(moments.last().copied());
    }
    let newest = tail.iter().rev().find_map(|run| of_run(run).last());
    newest.map_or_else(|| last_listed(store), |newest| Ok(Some(newest)))
}

/// Returns the last moment that the runs of an archive list.
pub(crate) fn last_listed(store: &Store) -> Result<Option<Moment>> {
    let mut runs = Listed::of_archive(store)?.into_iter().rev();
    let last = runs.find_map(|run| {
        let run = run.open(store);
        run.map(|run| of_run(&run).last()).transpose()
    });
    last.transpose()
}

/// Returns the moments of a database that has moments only at its backups. Returns `None` if the runs of the database
/// have moments too.
fn of_backups(store: &Store) -> Result<Option<Vec<Moment>>> {
    let manifest = store.manifest();
    let mut moments: Vec<Moment> = Vec::new();
    let mut is_ordered = false;
    for id in manifest.backups() {
        // A backup that cannot be opened gives no moment. The restore reports the backup later, when it chooses one.
        let Ok(backup) = store.open_backup(id) else {
            continue;
        };
        let header = backup.header();
        is_ordered |= header.archive() == Archived::Carried;
        let (epoch, wall_us) = (id.end, header.wall_us);
        if moments.last().is_none_or(|last| last.epoch < epoch) {
            moments.push(Moment { epoch, wall_us });
        }
    }
    Ok(is_ordered.then_some(moments))
}

impl At {
    /// Returns the epoch of `self`. A time is looked up in the moments of an archive and of the runs in
    /// `tail`. These runs follow the archive's runs.
    ///
    /// # Errors
    /// [`Error::Usage`] for a time that is not between the first and the last moment; the error names these moments.
    /// The errors of opening a run.
    pub fn resolve(self, store: &Store, tail: &[Arc<Run>]) -> Result<Epoch> {
        let time_us = match self {
            At::Epoch(epoch) => return Ok(epoch),
            At::Time(us) => us,
            At::BeforeEnd(us) => {
                let last = last_of(store, tail)?;
                // A time before the first moment is refused below. The error names the first and the last moment.
                last.map_or(0, |last| last.wall_us).saturating_sub(us)
            }
        };
        let mut line = Timeline::default();
        walk(store, tail, |moment| line.note(moment, time_us))?;
        let found = line.at(self, time_us)?;
        assert!(found.wall_us <= time_us, "what came later is not restored");
        Ok(found.epoch)
    }
}

/// Returns an epoch's approximate closing time: the time of the last moment up to `epoch` that `runs` list. Returns
/// `None` if `runs` list no moment up to `epoch`.
pub(crate) fn wall_of(runs: &[Arc<Run>], epoch: Epoch) -> Option<u64> {
    let moments = runs.iter().flat_map(|run| run.moments().list());
    let up_to = moments.filter(|moment| moment.epoch <= epoch);
    up_to.map(|moment| moment.wall_us).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(moments: &[(u64, u64)], time_us: u64) -> Timeline {
        let mut line = Timeline::default();
        for (epoch, wall_us) in moments {
            let (epoch, wall_us) = (Epoch(*epoch), *wall_us);
            line.note(Moment { epoch, wall_us }, time_us);
        }
        line
    }

    #[test]
    fn moments_are_epochs_times_and_spans() {
        assert_eq!("4711".parse(), Ok(At::Epoch(Epoch(4711))));
        assert_eq!("1h30m".parse(), Ok(At::BeforeEnd(5_400_000_000)));
        assert_eq!("1970-01-01 00:00:01".parse(), Ok(At::Time(1_000_000)));
        let refused = "yesterday".parse::<At>().unwrap_err();
        assert!(refused.contains("'yesterday' is not a moment"), "{refused}");
    }

    #[test]
    fn a_time_is_the_last_moment_that_is_not_behind_it() {
        let moments = [(3, 100), (5, 200), (9, 200), (12, 300)];
        for (time, epoch) in [(100, 3), (199, 3), (200, 9), (299, 9), (300, 12)] {
            let found = line(&moments, time).at(At::Time(time), time).unwrap();
            assert_eq!(found.epoch, Epoch(epoch), "{time}");
        }
        for time in [0, 99, 301, u64::MAX] {
            let refused = line(&moments, time).at(At::Time(1), time).unwrap_err();
            let refused = refused.to_string();
            assert!(
                refused.contains("(epoch 3)") && refused.contains("(epoch 12)"),
                "{refused}"
            );
        }
        let none = line(&[], 5).at(At::Time(5), 5).unwrap_err();
        assert!(none.to_string().contains("lists no moments"), "{none}");
    }

    #[test]
    fn a_clock_that_was_set_back_has_stood_still() {
        let moments = [(3, 100), (5, 500), (9, 200), (12, 400), (15, 600)];
        for (time, epoch) in [
            (100, 3),
            (250, 3),
            (499, 3),
            (500, 12),
            (599, 12),
            (600, 15),
        ] {
            let found = line(&moments, time).at(At::Time(time), time).unwrap();
            assert_eq!(found.epoch, Epoch(epoch), "{time}");
        }
    }
}
