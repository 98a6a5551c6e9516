//! Reports: the results of comparing an archive with its database. The page below is the only description of the
//! format.
#![doc = include_str!("../../../../docs/formats/report.md")]
//!
//! | module | one idea |
//! |---|---|
//! | `codec` | the encoding and decoding of a report |
//! | `files` | the reports of an archive: listed, read, written one I/O a step |

mod codec;
mod files;

use perdura_base::{CkptEpoch, Epoch, Uuid};

pub use files::{Reporting, newest_report, read_report, reports};

/// The number of reports of each kind that are kept.
pub const KEPT_REPORTS: usize = 16;
/// The longest text of a report, bytes; a longer one is cut.
pub const TEXT_BYTES_MAX: usize = 8192;
/// The folder of reports, below that of the database.
pub(crate) const REPORTS: &str = "reports";

/// The object that was compared with the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportKind {
    /// The digests of two images and of the records between them.
    Proof,
    /// A database that was restored.
    Drill,
}

impl ReportKind {
    /// Returns the kind's name, with which the names of its files begin.
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
    /// Nothing is proven yet: proofs begin with this image.
    Begun,
    /// Everything agrees.
    Holds,
    /// Something does not agree.
    Fails,
}

impl Outcome {
    /// Returns the outcome's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Begun => "begun",
            Outcome::Holds => "holds",
            Outcome::Fails => "fails",
        }
    }
}

/// The identity of a report, as in its file's name. Identities ascend as names do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportId {
    /// The kind.
    pub kind: ReportKind,
    /// The rank by which reports of the kind ascend. Of a proof it is the image's checkpoint epoch, then the wall
    /// clock. Of a drill it is the wall clock, then the epoch that was restored.
    pub rank: (u64, u64),
}

impl ReportId {
    /// Returns the file's name.
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

    /// Parses a [`name`](Self::name). `None`: any other name, temporary ones included.
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
    /// The image that was proven before; the image of the backup that was restored.
    pub from: CkptEpoch,
    /// The image that was proven; 0 of a drill.
    pub to: CkptEpoch,
    /// Of a proof, the image's begin; of a drill, the backup's end.
    pub begin: Epoch,
    /// Of a proof, the image's end; of a drill, the epoch that was restored.
    pub end: Epoch,
    /// The manifest whose runs were read.
    pub manifest: u64,
    /// The number of runs that were read.
    pub runs: u32,
    /// The duration, microseconds.
    pub took_us: u64,
    /// Of a proof, the image's digest for each partition, its pages bound.
    pub digests: Vec<u64>,
    /// The disagreement, or a description of the comparison.
    pub text: String,
}

impl Report {
    /// Returns its identity.
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
