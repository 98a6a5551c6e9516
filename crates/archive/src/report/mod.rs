//! Reports: the results of comparing an archive with its database. The page below is the only description of the
//! format.
#![doc = include_str!("../../../../docs/formats/report.md")]
//!
//! | module | one idea |
//! |---|---|
//! | `codec` | the encoding and decoding of a report |
//! | `files` | listing, reading and writing reports |

mod codec;
mod files;

use perdura_base::{CkptEpoch, Epoch, Uuid};

pub use files::{Reporting, newest_report, read_report, reports};

/// The number of reports of each kind that the archive keeps.
pub const KEPT_REPORTS: usize = 16;
/// The maximum length of a report's text, bytes. A longer text is truncated.
pub const TEXT_BYTES_MAX: usize = 8192;
/// The folder of reports, inside the folder of the database.
pub(crate) const REPORTS: &str = "reports";

/// The kind of comparison that a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportKind {
    /// The XOR of two images' digests was compared with the digest of the records between the images.
    Proof,
    /// A database restored from the archive was compared with the original.
    Drill,
}

impl ReportKind {
    /// Returns the name of the kind. A report's file name begins with the kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReportKind::Proof => "proof",
            ReportKind::Drill => "drill",
        }
    }
}

/// The result of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No comparison yet: a first image was recorded. The next proof begins with this image.
    Begun,
    /// The comparison found no difference.
    Holds,
    /// The comparison found a difference.
    Fails,
}

impl Outcome {
    /// Returns the name of the outcome.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Begun => "begun",
            Outcome::Holds => "holds",
            Outcome::Fails => "fails",
        }
    }
}

/// The identity of a report. The report's file name is made from the identity, and file names sort as identities do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportId {
    /// The kind.
    pub kind: ReportKind,
    /// The sort key within the reports of one kind. For a proof: the checkpoint epoch of the proven image, then the
    /// wall clock. For a drill: the wall clock, then the restored epoch.
    pub rank: (u64, u64),
}

impl ReportId {
    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> String {
        let (first, second) = self.rank;
        let name = format!("{}-{first:020}-{second:020}", self.kind.name());
        debug_assert_eq!(
            ReportId::parse(&name),
            Some(*self),
            "a name says what it is of"
        );
        name
    }

    /// Parses a [`name`](Self::name). Returns `None` for any other name, also for a temporary one.
    #[must_use]
    pub fn parse(name: &str) -> Option<ReportId> {
        let kinds = [ReportKind::Proof, ReportKind::Drill];
        let (kind, rest) = name.split_once('-')?;
        let kind = kinds.into_iter().find(|one| one.name() == kind)?;
        let (first, second) = rest.split_once('-')?;
        let number = |part: &str| {
            let is_number = part.len() == 20 && part.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| part.parse::<u64>().ok()).flatten()
        };
        Some(ReportId {
            kind,
            rank: (number(first)?, number(second)?),
        })
    }
}

/// A replay of changes of key-addressed tables at a restart. Both figures are 0 if none is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replay {
    /// The number of changes.
    pub changes: u64,
    /// The duration, microseconds.
    pub took_us: u64,
}

impl Replay {
    /// Returns the expected duration of a replay of `changes`, microseconds. `None`: no replay is known, or the duration
    /// has more than 64 bits.
    #[must_use]
    pub fn expected_us(&self, changes: u64) -> Option<u64> {
        let us = u128::from(changes) * u128::from(self.took_us);
        u64::try_from(us.checked_div(u128::from(self.changes))?).ok()
    }
}

/// A report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The kind.
    pub kind: ReportKind,
    /// The result.
    pub outcome: Outcome,
    /// The database.
    pub uuid: Uuid,
    /// The time of the report, microseconds since 1970.
    pub wall_us: u64,
    /// For a proof, the checkpoint epoch of the previous proof's image. For a drill, the checkpoint epoch of the
    /// restored backup.
    pub from: CkptEpoch,
    /// For a proof, the checkpoint epoch of the image that was proven; 0 for a drill.
    pub to: CkptEpoch,
    /// For a proof, the begin epoch of the proven image. For a drill, the end epoch of the backup.
    pub begin: Epoch,
    /// For a proof, the end epoch of the proven image. For a drill, the restored epoch.
    pub end: Epoch,
    /// The number of the manifest that named the runs.
    pub manifest: u64,
    /// The number of runs that were read.
    pub runs: u32,
    /// The duration of the comparison, microseconds.
    pub took_us: u64,
    /// For a proof, the last long replay at a restart of the database. For a drill, 0.
    pub replay: Replay,
    /// For a proof, the digest of the image in each partition. Each page's digest includes the page's id. For a drill,
    /// empty.
    pub digests: Vec<u64>,
    /// A description of the difference. If no difference was found, a description of the comparison.
    pub text: String,
}

impl Report {
    /// Returns the identity of the report.
    #[must_use]
    pub fn id(&self) -> ReportId {
        let rank = match self.kind {
            ReportKind::Proof => (self.to.0, self.wall_us),
            ReportKind::Drill => (self.wall_us, self.end.0),
        };
        ReportId {
            kind: self.kind,
            rank,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_expected_to_take_as_long_for_each_change_as_the_last_one() {
        let replay = Replay {
            changes: 75_000,
            took_us: 2_000_000,
        };
        assert_eq!(replay.expected_us(150_000), Some(4_000_000));
        assert_eq!(replay.expected_us(0), Some(0));
        assert_eq!(replay.expected_us(u64::MAX), None);
        assert_eq!(Replay::default().expected_us(5), None);
    }

    #[test]
    fn names_say_which_report_a_file_is() {
        let id = |kind, first, second| ReportId {
            kind,
            rank: (first, second),
        };
        let ids = [
            id(ReportKind::Proof, 9, 70),
            id(ReportKind::Proof, 10, 5),
            id(ReportKind::Drill, 3, u64::MAX),
        ];
        for id in ids {
            assert_eq!(ReportId::parse(&id.name()), Some(id));
            assert_eq!(ReportId::parse(&format!("{}.tmp", id.name())), None);
        }
        assert!(ids[0].name() < ids[1].name(), "names ascend by number");
        let drill = "drill-00000000000000000003-00000000000000000004";
        assert!(ReportId::parse(drill).is_some());
        for odd in ["drill", "drill-3-4", "trial-", &drill[1..], &drill[..46]] {
            assert_eq!(ReportId::parse(odd), None, "{odd}");
        }
    }
}
