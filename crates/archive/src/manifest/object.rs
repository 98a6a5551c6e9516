//! The files that a manifest names.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{CkptEpoch, Epoch};

use crate::backup::BackupId;
use crate::name::{EpochRange, RunId};

/// The encoded size of an object in a manifest, in bytes.
pub(super) const OBJECT_BYTES: usize = 40;

/// The name of the folder of runs.
pub(crate) const RUNS: &str = "runs";
/// The name of the folder of backups.
pub(crate) const BACKUPS: &str = "backups";

const RUN: u8 = 0;
const SWEEP: u8 = 1;
const CUT: u8 = 2;
const INCREMENT: u8 = 3;

/// The identity of a file in the archive. Runs sort before backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// A run.
    Run(RunId),
    /// A backup that contains all changes with tags below k. k is the backup's checkpoint epoch.
    Sweep(BackupId),
    /// A backup that contains the changes of all epochs up to its end.
    Cut(BackupId),
    /// The pages of key-addressed tables that changed between a sweep and an image, or between two images.
    Increment(BackupId),
}

impl ObjectId {
    /// Returns the identity of the run. `None`: the file is another object.
    #[must_use]
    pub fn run(self) -> Option<RunId> {
        match self {
            ObjectId::Run(id) => Some(id),
            ObjectId::Sweep(_) | ObjectId::Cut(_) | ObjectId::Increment(_) => None,
        }
    }

    /// Returns the identity of the backup. `None`: the file is a run or an increment.
    #[must_use]
    pub fn backup(self) -> Option<BackupId> {
        match self {
            ObjectId::Run(_) | ObjectId::Increment(_) => None,
            ObjectId::Sweep(id) | ObjectId::Cut(id) => Some(id),
        }
    }

    /// Returns the identity of the increment. `None`: the file is another object.
    #[must_use]
    pub fn increment(self) -> Option<BackupId> {
        match self {
            ObjectId::Increment(id) => Some(id),
            ObjectId::Run(_) | ObjectId::Sweep(_) | ObjectId::Cut(_) => None,
        }
    }

    /// Returns the word for this kind of file, as users see it.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            ObjectId::Run(_) => "run",
            ObjectId::Sweep(_) => "sweep",
            ObjectId::Cut(_) => "cut",
            ObjectId::Increment(_) => "increment",
        }
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            ObjectId::Run(id) => id.name(),
            ObjectId::Sweep(id) | ObjectId::Cut(id) => id.name(),
            ObjectId::Increment(id) => id.increment_name(),
        }
    }

    /// Returns the path of the file below the folder of the database.
    #[must_use]
    pub fn path(self) -> String {
        let folder = match self {
            ObjectId::Run(_) => RUNS,
            ObjectId::Sweep(_) | ObjectId::Cut(_) | ObjectId::Increment(_) => BACKUPS,
        };
        format!("{folder}/{}", self.name())
    }
}

/// A file that a manifest names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// The identity of the file.
    pub id: ObjectId,
    /// The size of the file, bytes.
    pub bytes: u64,
    /// The CRC-32C of the file.
    pub crc: u32,
}

impl Object {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let from = out.len();
        let (kind, level, generation, first, second) = match self.id {
            ObjectId::Run(RunId {
                epochs,
                level,
                generation,
            }) => (RUN, level, generation, epochs.begin.0, epochs.end.0),
            ObjectId::Sweep(id) => (SWEEP, 0, 0, id.end.0, id.k.0),
            ObjectId::Cut(id) => (CUT, 0, 0, id.end.0, id.k.0),
            ObjectId::Increment(id) => (INCREMENT, 0, 0, id.end.0, id.k.0),
        };
        out.put_u8(kind);
        out.put_u8(level);
        out.put_u16(0);
        out.put_u32(generation);
        out.put_u64(first);
        out.put_u64(second);
        out.put_u64(self.bytes);
        out.put_u32(self.crc);
        out.put_u32(0);
        debug_assert_eq!(out.len() - from, OBJECT_BYTES, "the fields fill the entry");
    }

    /// Decodes an object. `None`: a field is out of its range.
    pub(super) fn decode(r: &mut Reader<'_>) -> Option<Object> {
        let from = r.at();
        let (kind, level) = (r.u8()?, r.u8()?);
        r.zeros(2)?;
        let generation = r.u32()?;
        let (first, second) = (r.u64()?, r.u64()?);
        let (bytes, crc) = (r.u64()?, r.u32()?);
        r.zeros(4)?;
        let backup = BackupId {
            end: Epoch(first),
            k: CkptEpoch(second),
        };
        let is_plain = level == 0 && generation == 0;
        let id = match kind {
            RUN => ObjectId::Run(RunId {
                epochs: EpochRange::new(Epoch(first), Epoch(second))?,
                level,
                generation,
            }),
            SWEEP if is_plain => ObjectId::Sweep(backup),
            CUT if is_plain && backup.k == CkptEpoch(0) => ObjectId::Cut(backup),
            INCREMENT if is_plain && backup.k > CkptEpoch(0) => ObjectId::Increment(backup),
            _ => return None,
        };
        debug_assert_eq!(r.at() - from, OBJECT_BYTES, "the entry has been read");
        Some(Object { id, bytes, crc })
    }
}
