//! The names of runs.
//!
//! A run's name contains the epochs that the run covers, so the names in a folder show whether an epoch is missing.
//! While a file is being written, its name ends in `.tmp`. A restart removes temporary files.

use perdura_base::Epoch;

/// The suffix of the name of a run that is being written.
pub const TEMPORARY: &str = ".tmp";

/// A range of epochs, from `begin` inclusive to `end` exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochRange {
    /// The first epoch.
    pub begin: Epoch,
    /// The epoch after the last one.
    pub end: Epoch,
}

impl EpochRange {
    /// Returns the range from `begin` inclusive to `end` exclusive. `None`: the range would be empty.
    #[must_use]
    pub fn new(begin: Epoch, end: Epoch) -> Option<EpochRange> {
        (begin < end).then_some(EpochRange { begin, end })
    }

    /// Returns whether an epoch is in the range.
    #[must_use]
    pub fn contains(&self, epoch: Epoch) -> bool {
        self.begin <= epoch && epoch < self.end
    }

    /// Returns the last epoch of the range.
    #[must_use]
    pub fn last(&self) -> Epoch {
        debug_assert!(self.begin < self.end, "a range has an epoch");
        Epoch(self.end.0 - 1)
    }
}

/// The identity of a run. The run's file name is made from the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The epochs that the run covers.
    pub epochs: EpochRange,
    /// The level. A run made from the log has level 0. A merged run has one more than the highest level of its inputs.
    pub level: u8,
    /// A number that distinguishes runs of the same epochs and the same level. Among these runs only the run with the
    /// highest generation is valid.
    pub generation: u32,
}

impl RunId {
    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> String {
        let EpochRange { begin, end } = self.epochs;
        let name = format!(
            "run-{begin:020}-{end:020}-{:03}-{:010}",
            self.level,
            self.generation,
            begin = begin.0,
            end = end.0,
        );
        debug_assert_eq!(
            RunId::parse(&name),
            Some(*self),
            "a name says what it was made of"
        );
        name
    }

    /// Parses a [`name`](Self::name). Returns `None` for any other name, also for a temporary one.
    #[must_use]
    pub fn parse(name: &str) -> Option<RunId> {
        let mut parts = name.strip_prefix("run-")?.split('-');
        let mut number = |digits: usize| {
            let part = parts.next()?;
            let is_number = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| part.parse::<u64>().ok()).flatten()
        };
        let (begin, end) = (Epoch(number(20)?), Epoch(number(20)?));
        let id = RunId {
            epochs: EpochRange::new(begin, end)?,
            level: number(3)?.try_into().ok()?,
            generation: number(10)?.try_into().ok()?,
        };
        parts.next().is_none().then_some(id)
    }

    /// Returns the path of the run's file. `dir` is a folder of the archive; empty for the root of the disk.
    #[must_use]
    pub fn path(&self, dir: &str) -> String {
        if dir.is_empty() {
            self.name()
        } else {
            format!("{dir}/{}", self.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_sort_by_range() {
        let id = |begin, end, level, generation| RunId {
            epochs: EpochRange::new(Epoch(begin), Epoch(end)).expect("a range"),
            level,
            generation,
        };
        let mut names = Vec::new();
        for id in [
            id(1, 9, 0, 0),
            id(9, 10, 255, u32::MAX),
            id(10, u64::MAX, 3, 1),
        ] {
            assert_eq!(RunId::parse(&id.name()), Some(id));
            names.push(id.name());
        }
        assert!(names.is_sorted());
        assert_eq!(
            names[0],
            "run-00000000000000000001-00000000000000000009-000-0000000000"
        );
    }

    #[test]
    fn other_names_are_no_runs() {
        let good = "run-00000000000000000001-00000000000000000009-000-0000000000";
        assert!(RunId::parse(good).is_some());
        for bad in [
            String::new(),
            format!("{good}{TEMPORARY}"),
            format!("{good}-1"),
            good.replace("run", "ran"),
            good.replace("0009", "0001"),
            good.replace("-000-", "-256-"),
            good.replace("-000-", "-+00-"),
            good.replacen('0', "", 1),
            good.replace("00000000000000000009", "99999999999999999999"),
        ] {
            assert_eq!(RunId::parse(&bad), None, "{bad}");
        }
    }
}
