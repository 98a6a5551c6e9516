//! The format of a manifest. The page below is the only description of it.
#![doc = include_str!("../../../../docs/formats/manifest.md")]
//!
//! | module | one idea |
//! |---|---|
//! | [`object`] | the files that a manifest names |
//! | [`clock`] | the database's clock, as its archive saw it |
//! | `codec` | the encoding and decoding of a manifest |
//! | [`edit`] | the edits that turn a manifest into the next one |

pub mod clock;
mod codec;
pub mod edit;
pub mod object;

use perdura_base::cursor::Reader;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, Pos, Result, Uuid};
use perdura_wal::anchor::{Record, Tag};
use perdura_wal::lineage::SECTION;
use perdura_wal::{Lineage, Parent};

pub use clock::{Clock, Step};
pub use edit::Edit;
pub use object::{Object, ObjectId};

use crate::backup::BackupId;
use crate::merge::Images;
use crate::name::{EpochRange, RunId};

/// The number of the first manifest of an archive.
pub const FIRST: u64 = 1;

/// Returns whether two runs of equal ranges both count, which is a seeded bug.
pub(crate) fn reads_both_of_equal_ranges() -> bool {
    armed(Flaw::EqualRangesBothRead)
}

/// The role of a process that writes manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The process that has the database open.
    Database,
    /// A process that has access only to the directory of the archive.
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
    /// A random number that the writer chose when it opened the archive.
    pub life: u64,
}

/// The contents of the archive according to one manifest. Manifests are numbered consecutively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The sequence number of this manifest.
    pub number: u64,
    /// The database.
    pub uuid: Uuid,
    /// The process that wrote this manifest.
    pub writer: Writer,
    /// The number of the oldest kept manifest.
    pub oldest: u64,
    /// The checksum of the previous manifest; 0 for the first manifest.
    pub predecessor: u32,
    /// The parent: this database was restored from the parent.
    pub parent: Option<Parent>,
    /// True if the database had no image and no parent when its archive began, and no epochs were skipped.
    pub is_whole: bool,
    /// The first epoch that the runs hold.
    pub begin: Epoch,
    /// The epoch after the last archived epoch.
    pub end: Epoch,
    /// For each stream of the log, the position at which epoch `end - 1` ends.
    pub positions: Vec<Pos>,
    /// The database's own images.
    pub images: Images,
    /// The runs, ordered by their epochs, then the backups, then the increments.
    pub objects: Vec<Object>,
    /// The database's anchor, encoded. Empty: no manifest so far had an anchor.
    pub anchor: Vec<u8>,
    /// The database's clock.
    pub clock: Clock,
}

impl Manifest {
    /// Returns the runs, ordered by their epochs.
    pub fn runs(&self) -> impl Iterator<Item = RunId> + '_ {
        self.objects.iter().filter_map(|object| object.id.run())
    }

    /// Returns the backups, ordered by their end epochs.
    pub fn backups(&self) -> impl Iterator<Item = BackupId> + '_ {
        self.objects.iter().filter_map(|object| object.id.backup())
    }

    /// Returns the increments, ordered by their end epochs.
    pub fn increments(&self) -> impl Iterator<Item = BackupId> + '_ {
        let ids = self.objects.iter();
        ids.filter_map(|object| object.id.increment())
    }

    /// Returns the increments that continue a sweep, ordered by their end epochs. Other backups have none.
    pub fn increments_of(&self, sweep: BackupId) -> impl Iterator<Item = BackupId> + '_ {
        let later = self.sweeps().map(|id| id.k).filter(|k| *k > sweep.k);
        let next = later.min().unwrap_or(CkptEpoch(u64::MAX));
        let is_sweep = self.object(ObjectId::Sweep(sweep)).is_some();
        let continues = move |id: &BackupId| is_sweep && sweep.k < id.k && id.k <= next;
        self.increments().filter(continues)
    }

    /// Returns the sweep that an image can continue as an increment: the newest one before the image `k`.
    #[must_use]
    pub fn sweep_before(&self, k: CkptEpoch) -> Option<BackupId> {
        self.sweeps().filter(|id| id.k < k).max_by_key(|id| id.k)
    }

    /// Returns the sweep that new increments continue.
    #[must_use]
    pub fn newest_sweep(&self) -> Option<BackupId> {
        self.sweeps().max_by_key(|id| id.k)
    }

    /// Returns whether an increment is of a later image than a sweep that is not in the archive. The increment continues
    /// another sweep. If the sweep joined, it would seem to be the one.
    #[must_use]
    pub(crate) fn has_later_increment(&self, sweep: BackupId) -> bool {
        self.increments().any(|id| id.k > sweep.k)
    }

    fn sweeps(&self) -> impl Iterator<Item = BackupId> + '_ {
        self.objects.iter().filter_map(|object| match object.id {
            ObjectId::Sweep(id) => Some(id),
            ObjectId::Run(_) | ObjectId::Cut(_) | ObjectId::Increment(_) => None,
        })
    }

    /// Returns the run that contains `epoch` and the next epoch. `None`: a run ends with `epoch`, or no run contains
    /// `epoch`.
    #[must_use]
    pub fn run_around(&self, epoch: Epoch) -> Option<RunId> {
        let mut runs = self.runs();
        runs.find(|run| run.epochs.contains(epoch) && run.epochs.last() != epoch)
    }

    /// Returns the decoded anchor of the database. `None`: the manifest contains no anchor.
    ///
    /// # Errors
    /// Errors of [`Record::of_copy`]; [`Error::Foreign`] for an anchor of another database.
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

    /// Returns the lives of the database at the archive's last epoch, as the anchor in this manifest lists them. A
    /// database of an older build has none.
    ///
    /// # Errors
    /// Those of [`anchor`](Self::anchor); [`Error::Corrupt`] for a list of a form that no build writes.
    pub fn lineage(&self) -> Result<Lineage> {
        Ok(self.database_lineage()?.at(self.held().0))
    }

    /// Returns all lives of the database that the anchor in this manifest lists.
    pub(crate) fn database_lineage(&self) -> Result<Lineage> {
        let Some(record) = self.anchor()? else {
            return Ok(Lineage::default());
        };
        let Some(section) = record.sections.get(Tag(SECTION)) else {
            return Ok(Lineage::default());
        };
        let found = Lineage::decode(&mut Reader::new(&section.bytes));
        found.ok_or_else(|| {
            let file = format!("the anchor in manifest {}", self.number);
            damage(&file, 0, "the lives of the database", "other bytes")
        })
    }

    /// Returns whether the database began empty and the runs hold everything that was ever logged in it. Then a restore
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

    /// Returns the last archived epoch, and that epoch's end in each stream. The database's anchor records the epoch
    /// and the ends.
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

    /// Checks that the archive holds the log up to epoch `anchor`. The database's anchor records this epoch as the last
    /// archived one, so the log up to it may have been deleted.
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

    /// Checks that the log is durable at least up to the archive's end. If it is not, the log has lost epochs, because
    /// only durable epochs are archived.
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

/// Makes an error for a damaged manifest. The error names the file and the offset.
pub(crate) fn damage(
    file: &str,
    offset: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    let consequence = "Nothing was changed. `perdura archive rebuild` makes a new manifest of the archive's files.";
    Error::corrupt(file, offset, expected, found, consequence)
}

/// Makes an error for a run or backup that does not match the manifest. The error names the file and the offset.
pub(crate) fn object_damage(
    file: &str,
    offset: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Error {
    let consequence = "Nothing was changed. Restore the file from another copy of the archive, or make a new backup. Moments \
                       that do not need this file can be restored.";
    Error::corrupt(file, offset, expected, found, consequence)
}
