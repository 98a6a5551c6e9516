//! The names of backups.

use perdura_base::{CkptEpoch, Epoch};

/// The identity of a backup, as in its file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupId {
    /// The image's end epoch.
    pub end: Epoch,
    /// Its checkpoint epoch; 0 of a cut.
    pub k: CkptEpoch,
}

impl BackupId {
    /// Returns the identity of the backup that is the state of an epoch.
    #[must_use]
    pub fn cut(end: Epoch) -> BackupId {
        BackupId {
            end,
            k: CkptEpoch(0),
        }
    }

    /// Returns the file's name.
    #[must_use]
    pub fn name(&self) -> String {
        let name = format!("backup-{:020}-{:020}", self.end.0, self.k.0);
        debug_assert_eq!(
            BackupId::parse(&name),
            Some(*self),
            "a name says what it was made of"
        );
        name
    }

    /// Parses a [`name`](Self::name). `None`: any other name, temporary ones included.
    #[must_use]
    pub fn parse(name: &str) -> Option<BackupId> {
        let (end, k) = name.strip_prefix("backup-")?.split_once('-')?;
        let number = |part: &str| {
            let is_number = part.len() == 20 && part.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| part.parse::<u64>().ok()).flatten()
        };
        Some(BackupId {
            end: Epoch(number(end)?),
            k: CkptEpoch(number(k)?),
        })
    }

    /// Returns the path of a backup's file in a folder of the archive.
    #[must_use]
    pub fn path(&self, dir: &str) -> String {
        format!("{dir}/{}", self.name())
    }
}
