//! The names of backups.

use perdura_base::{CkptEpoch, Epoch};

const BACKUP: &str = "backup-";
const INCREMENT: &str = "increment-";

/// The identity of a backup, or of an increment. The backup's file name is made from the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupId {
    /// The end epoch of the image.
    pub end: Epoch,
    /// The checkpoint epoch of the image; 0 for a backup of kind [`Cut`](super::BackupKind::Cut).
    pub k: CkptEpoch,
}

impl BackupId {
    /// Returns the identity of a cut: a backup that holds the state at the end of epoch `end`.
    #[must_use]
    pub fn cut(end: Epoch) -> BackupId {
        BackupId {
            end,
            k: CkptEpoch(0),
        }
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> String {
        let name = format!("{BACKUP}{:020}-{:020}", self.end.0, self.k.0);
        debug_assert_eq!(
            BackupId::parse(&name),
            Some(*self),
            "a name says what it was made of"
        );
        name
    }

    /// Parses a [`name`](Self::name). Returns `None` for any other name, also for a temporary one.
    #[must_use]
    pub fn parse(name: &str) -> Option<BackupId> {
        let (end, k) = name.strip_prefix(BACKUP)?.split_once('-')?;
        let number = |part: &str| {
            let is_number = part.len() == 20 && part.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| part.parse::<u64>().ok()).flatten()
        };
        Some(BackupId {
            end: Epoch(number(end)?),
            k: CkptEpoch(number(k)?),
        })
    }

    /// Returns the name of the file of an increment.
    #[must_use]
    pub fn increment_name(&self) -> String {
        let name = self.name().replacen(BACKUP, INCREMENT, 1);
        debug_assert_eq!(
            BackupId::parse_increment(&name),
            Some(*self),
            "a name says what it was made of"
        );
        name
    }

    /// Parses an [`increment_name`](Self::increment_name). Returns `None` for any other name, also for a temporary one.
    #[must_use]
    pub fn parse_increment(name: &str) -> Option<BackupId> {
        let rest = name.strip_prefix(INCREMENT)?;
        BackupId::parse(&format!("{BACKUP}{rest}")).filter(|id| id.k > CkptEpoch(0))
    }

    /// Returns the path of the backup's file. `dir` is the archive's folder of backups.
    #[must_use]
    pub fn path(&self, dir: &str) -> String {
        format!("{dir}/{}", self.name())
    }
}
