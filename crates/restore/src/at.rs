//! The moment to restore, as an operator gives it: an epoch, a time, an age, or a span before the archive's end.
//!
//! The archive counts in epochs; clock times are translated into epochs. Each run lists at most a thousand *moments*. A
//! moment is a closed epoch with the wall-clock time of the close. A time refers to the last listed moment up to that
//! time ([`Timeline`]).
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

use crate::listed::Listed;
use crate::timeline::Timeline;

/// A moment, as an operator gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The end of this epoch.
    Epoch(Epoch),
    /// A reading of the clock, microseconds since 1970.
    Time(u64),
    /// A span before now, microseconds.
    Ago(u64),
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
        let ago = || parse_span(text).map(At::Ago);
        let before = || text.strip_prefix("end-").and_then(parse_span);
        let found = time.or_else(ago).or_else(|| before().map(At::BeforeEnd));
        found.ok_or_else(|| {
            format!(
                "'{text}' is not a moment. Give an epoch (4711), a UTC time (2026-03-01 12:00:00), or a time with its \
                 offset (2026-03-01 12:00:00+02:00). Or give an age (10min, 1h30m, 2d), or the time before the \
                 archive's end (end-10min)"
            )
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |us: &u64| format!("{}.{:06} s", us / 1_000_000, us % 1_000_000);
        match self {
            At::Epoch(epoch) => write!(f, "epoch {epoch}"),
            At::Time(us) => f.write_str(&moment(*us)),
            At::Ago(us) => write!(f, "{} ago", seconds(us)),
            At::BeforeEnd(us) => write!(f, "{} before the archive's end", seconds(us)),
        }
    }
}

/// A moment that was found in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The epoch to restore.
    pub epoch: Epoch,
    /// The time that was asked for, microseconds since 1970. `None`: an epoch was asked for.
    pub asked_us: Option<u64>,
}

/// Returns the moments that a run lists with their times. A merged run may keep the moment of a cut without its time.
fn of_run(run: &Run) -> impl Iterator<Item = Moment> + '_ {
    let listed = run.moments().list().iter().copied();
    listed.filter(|moment| moment.wall_us > 0)
}

/// Visits every moment, in order: first the moments of an archive, then the moments of the runs in `tail`. A run that
/// is damaged or missing is a hole. Opens only one run of the archive at a time.
fn walk(store: &Store, tail: &[Arc<Run>], line: &mut Timeline) -> Result<()> {
    let mut seen_us = Some(store.manifest().clock.seen_us);
    for run in Listed::of_archive(store)? {
        // The manifest vouches for its runs only. The clock may have been set back before a later run.
        if !matches!(run, Listed::Archived(..))
            && let Some(seen_us) = seen_us.take()
        {
            line.vouch(seen_us);
        }
        match run.open(store) {
            Ok(opened) => of_run(&opened).for_each(|moment| line.note(moment)),
            Err(Error::Corrupt(_)) => line.note_hole(run.id()),
            Err(error) => return Err(error),
        }
    }
    if let Some(seen_us) = seen_us {
        line.vouch(seen_us);
    }
    let after = tail.iter().flat_map(|run| of_run(run));
    after.for_each(|moment| line.note(moment));
    Ok(())
}

/// Returns the last moment of an archive and of the runs in `tail`.
fn last_of(store: &Store, tail: &[Arc<Run>]) -> Result<Option<Moment>> {
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

impl At {
    /// Returns the moment of `self`. A time is looked up in the moments of an archive and of the runs in `tail`. These
    /// runs follow the archive's runs. `now_us` is the wall clock, microseconds since 1970.
    ///
    /// # Errors
    /// [`Error::Usage`] for a time that is not between the first and the last moment; the error names these moments.
    /// Also for a time that the clock showed twice, and for one next to a run that cannot be read. The errors of the disk.
    pub fn resolve(self, store: &Store, tail: &[Arc<Run>], now_us: u64) -> Result<Chosen> {
        // Only one run is open at a time, and a merge may replace the runs in the meantime.
        store.with_newest(|_| self.resolve_by(store, tail, now_us))
    }

    /// Returns the moment as [`resolve`](Self::resolve), by the newest manifest that was read.
    fn resolve_by(self, store: &Store, tail: &[Arc<Run>], now_us: u64) -> Result<Chosen> {
        let time_us = match self {
            At::Epoch(epoch) => {
                return Ok(Chosen {
                    epoch,
                    asked_us: None,
                });
            }
            At::Time(us) => us,
            At::Ago(us) => now_us.saturating_sub(us),
            At::BeforeEnd(us) => {
                let last = last_of(store, tail)?;
                // A time before the first moment is refused below. The error names the first and the last moment.
                last.map_or(0, |last| last.wall_us).saturating_sub(us)
            }
        };
        let mut line = Timeline::new(time_us);
        walk(store, tail, &mut line)?;
        let asked = match self {
            At::Time(us) if us > now_us => format!("{self}, which is in the future,"),
            At::Time(_) => self.to_string(),
            _ => format!("{self} ({})", moment(time_us)),
        };
        let found = line.at(&asked)?;
        Ok(Chosen {
            epoch: found.epoch,
            asked_us: Some(time_us),
        })
    }
}

/// Returns the time of the last moment up to `epoch` that `runs` list. A damaged run hinders nothing. `None`: they list
/// none, or the run cannot be read.
pub(crate) fn time_of(store: &Store, runs: &[Listed], epoch: Epoch) -> Option<u64> {
    let mut newest_first = runs.iter().rev();
    let run = newest_first.find(|run| run.id().epochs.begin <= epoch)?;
    wall_of(&[run.open(store).ok()?], epoch)
}

/// Returns an epoch's approximate closing time: the time of the last moment up to `epoch` that `runs` list. Returns
/// `None` if `runs` list no moment up to `epoch`.
pub(crate) fn wall_of(runs: &[Arc<Run>], epoch: Epoch) -> Option<u64> {
    let newest_first = runs
        .iter()
        .rev()
        .flat_map(|run| run.moments().list().iter().rev());
    let mut up_to = newest_first.filter(|moment| moment.epoch <= epoch && moment.wall_us > 0);
    up_to.next().map(|moment| moment.wall_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_epochs_times_and_spans() {
        assert_eq!("4711".parse(), Ok(At::Epoch(Epoch(4711))));
        assert_eq!("1h30m".parse(), Ok(At::Ago(5_400_000_000)));
        assert_eq!("end-1h30m".parse(), Ok(At::BeforeEnd(5_400_000_000)));
        assert_eq!("1970-01-01 00:00:01".parse(), Ok(At::Time(1_000_000)));
        for text in ["yesterday", "end-", "end-yesterday"] {
            let refused = text.parse::<At>().unwrap_err();
            assert!(
                refused.contains(&format!("'{text}' is not a moment")),
                "{refused}"
            );
        }
    }
}
