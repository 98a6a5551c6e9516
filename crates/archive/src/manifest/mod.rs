//! The format of a manifest. The page below is the only description of it.
#![doc = include_str!("../../../../docs/formats/manifest.md")]
//!
//! | module | one idea |
//! |---|---|
//! | [`object`] | the files that a manifest names |
//! | `codec` | the encoding and decoding of a manifest |
//! | [`edit`] | the edits that turn a manifest into the next one |

mod codec;
pub mod edit;
pub mod object;

use perdura_base::{Epoch, Error, Pos, Result, Uuid};
use perdura_wal::Parent;
use perdura_wal::anchor::Record;

pub use edit::Edit;
pub use object::{Object, ObjectId};

use crate::backup::BackupId;
use crate::merge::Images;
use crate::name::{EpochRange, RunId};

/// The number of the first manifest.
pub const FIRST: u64 = 1;

/// The role in which a process writes manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The process that has the database open.
    Database,
    /// A process that has only the directory of the archive.
    Agent,
}

impl Role {
    /// Returns the name of the role, as used in messages, temporary file names and the name of the role's lock.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Database => "database",
            Role::Agent => "agent",
        }
    }
}

/// A writer of manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Writer {
    /// The role of the writer.
    pub role: Role,
    /// A random number that the writer drew when it opened the archive.
    pub life: u64,
}

/// The contents of the archive, as one numbered manifest lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The number of this manifest.
    pub number: u64,
    /// The database.
    pub uuid: Uuid,
    /// The process that wrote this manifest.
    pub writer: Writer,
    /// The lowest number of a manifest that is kept.
    pub oldest: u64,
    /// The checksum of the manifest before this one; 0 for the first.
    pub predecessor: u32,
    /// The database's parent.
    pub parent: Option<Parent>,
    /// True if the database was empty before the first record of the first run.
    pub is_whole: bool,
    /// The first epoch of the runs.
    pub begin: Epoch,
    /// The epoch after the last one of the runs.
    pub end: Epoch,
    /// The end of epoch `end - 1` in each stream of the log.
    pub positions: Vec<Pos>,
    /// The database's own images.
    pub images: Images,
    /// The runs, by their epochs, then the backups.
    pub objects: Vec<Object>,
    /// The database's anchor, encoded. Empty: no manifest up to this one had an anchor.
    pub anchor: Vec<u8>,
}

impl Manifest {
    /// Returns the runs, by their epochs.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        self.objects.iter().filter_map(|object| object.id.run())
    }

    /// Returns the backups, by their end epochs.
    pub fn backups(&self) -> impl Iterator<Item = BackupId> + '_ {
        self.objects.iter().filter_map(|object| object.id.backup())
    }

    /// Returns the run that contains an epoch before its last one. `None`: a run ends with the epoch, or no run
    /// contains it.
    #[must_use]
    pub fn run_around(&self, epoch: Epoch) -> Option<RunId> {
        let mut runs = self.runs();
        runs.find(|run| run.epochs.contains(epoch) && run.epochs.last() != epoch)
    }

    /// Returns the record of the database's anchor. `None`: the manifest contains no anchor.
    ///
    /// # Errors
    /// Those of [`Record::of_copy`]; [`Error::Foreign`] for an anchor of another database.
    pub fn anchor(&self) -> Result<Option<Record>> {
        if self.anchor.is_empty() {
            return Ok(None);
        }
        let file = format!("manifest {}", self.number);
        let record = Record::of_copy(&file, 0, &self.anchor)?;
        if record.history.uuid != self.uuid {
            let other = record.history.uuid;
            return Err(Error::Foreign {
                file,
                why: format!(
                    "it contains the anchor of database {other}, but belongs to {}",
                    self.uuid
                ),
            });
        }
        Ok(Some(record))
    }

    /// Returns whether the database began empty and the runs hold everything that it ever logged. Then a restore
    /// needs no backup.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.is_whole && self.begin == Epoch(1)
    }

    /// Returns the object with this identity. `None`: it is not part of the archive.
    #[must_use]
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.iter().find(|object| object.id == id)
    }

    /// Returns the epochs that the runs hold. `None`: the archive has no run.
    #[must_use]
    pub fn epochs(&self) -> Option<EpochRange> {
        EpochRange::new(self.begin, self.end)
    }

    /// Returns the last epoch that the archive holds, and its end in each stream. The database's anchor records both.
    #[must_use]
    pub fn held(&self) -> (Epoch, &[Pos]) {
        (Epoch(self.end.0.saturating_sub(1)), &self.positions)
    }

    /// Returns the runs that hold the epochs of a range, in the order of their epochs.
    ///
    /// # Errors
    /// [`Error::Usage`] if the runs do not hold the whole range. The error names the epochs that the runs hold.
    pub fn tiling(&self, epochs: EpochRange) -> Result<Vec<RunId>> {
        if epochs.begin < self.begin || self.end < epochs.end {
            return Err(Error::Usage(format!(
                "the archive contains epochs {} to {}, but not all of {} to {} (the ends \
                 exclusive)",
                self.begin, self.end, epochs.begin, epochs.end
            )));
        }
        let meets = |id: &RunId| id.epochs.begin < epochs.end && epochs.begin < id.epochs.end;
        let runs: Vec<RunId> = self.runs().filter(meets).collect();
        let (first, last) = (runs.first(), runs.last());
        assert!(
            first.is_some_and(|id| id.epochs.contains(epochs.begin))
                && last.is_some_and(|id| id.epochs.contains(epochs.last())),
            "runs tile what the archive holds"
        );
        Ok(runs)
    }

    /// Checks that the archive holds the log up to epoch `anchor`, the last archived epoch according to the anchor.
    /// The log may have been cut up to there.
    ///
    /// # Errors
    /// [`Error::ArchiveBehind`].
    pub fn check_not_behind(&self, anchor: Epoch) -> Result<()> {
        let (archived, _) = self.held();
        if archived < anchor {
            return Err(Error::ArchiveBehind { archived, anchor });
        }
        Ok(())
    }

    /// Checks that the log reaches at least as far as the archive. It must, because only durable epochs are archived.
    ///
    /// # Errors
    /// [`Error::LostLog`].
    pub fn check_not_ahead(&self, durable: Epoch) -> Result<()> {
        let (archived, _) = self.held();
        if durable < archived {
            return Err(Error::LostLog { archived, durable });
        }
        Ok(())
    }
}

/// Makes an error that names the file and the offset.
pub(crate) fn damage(
    file: &str,
    offset: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    let consequence = "The contents of the archive are not known, so nothing was changed. \
                       Restore the file from another copy of the archive, or begin a new archive \
                       in another directory.";
    Error::corrupt(file, offset, expected, found, consequence)
}
