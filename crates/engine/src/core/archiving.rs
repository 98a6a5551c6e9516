//! The functions of an open database for its archive. Some tell how far the archive holds the log. Others pin images
//! that are copied into the archive or compared with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use perdura_base::{CkptEpoch, Result};
use perdura_device::Disk;
use perdura_recovery::checkpoint::Pin;
use perdura_recovery::{SweepDigest, TimelineName};
use perdura_wal::{EpochEnds, EpochSource};

use super::Core;

impl Core {
    /// Returns a source of the log's durable epochs after `from`. The source passes only whole epochs; see
    /// [`EpochSource::open`].
    ///
    /// # Errors
    /// As [`EpochSource::open`].
    pub fn log_source(&self, from: &EpochEnds) -> Result<EpochSource> {
        let disks: Vec<Arc<dyn Disk>> = self.disks().logs.clone();
        EpochSource::open(&disks, &self.anchor.get(), from)
    }

    /// Notes that the archive durably holds the log up to `end`. No checkpoint cuts the log beyond `end`. The first
    /// call records in the anchor that the database is archived. Later calls cost no I/O.
    ///
    /// # Errors
    /// [`Error::LostLog`](perdura_base::Error::LostLog) if `end` is ahead of the durable end.
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if `end` is before the `end` that an earlier call passed. The
    /// first call also returns the errors of the anchor's update. After such an error, archiving has not begun.
    pub fn set_archived(&self, end: &EpochEnds) -> Result<()> {
        self.checkpoints.set_archived(end)?;
        assert!(
            self.archived()
                .is_some_and(|archived| archived.epoch >= end.epoch),
            "the log is kept for the archive"
        );
        Ok(())
    }

    /// Returns the end of the log in the archive. `None`: the database is not archived.
    #[must_use]
    pub fn archived(&self) -> Option<EpochEnds> {
        self.anchor.archived()
    }

    /// Notes the checkpoint epoch of the oldest backup in the archive. A dropped table stays in the catalog until this
    /// backup reflects the drop.
    pub fn note_backup(&self, oldest: CkptEpoch) {
        self.oldest_backup.store(oldest.0, Ordering::Relaxed);
    }

    /// Returns the lowest checkpoint epoch that a restore may begin with: that of the oldest backup. `None`: the database
    /// is not archived. 0: no backup is known yet.
    pub(super) fn oldest_backup(&self) -> Option<CkptEpoch> {
        let oldest = CkptEpoch(self.oldest_backup.load(Ordering::Relaxed));
        self.archived().map(|_| oldest)
    }

    /// Returns the digest of the newest image, for the standing proof. `None` while the digest is not known.
    #[must_use]
    pub fn newest_digest(&self) -> Option<Arc<SweepDigest>> {
        self.checkpoints.newest_digest()
    }

    /// Ends archiving. From the next checkpoint on, only the log that images need is kept.
    ///
    /// # Errors
    /// The errors of updating the anchor. After an error, repeat the call.
    pub fn end_archive(&self, next: Option<&TimelineName>) -> Result<()> {
        self.anchor.end_archive(&self.wal, next)
    }

    /// Pins the newest image: no checkpoint overwrites it until the pin is dropped. `None` before the first image.
    #[must_use]
    pub fn pin_newest(&self) -> Option<Pin> {
        self.checkpoints.pin_newest()
    }

    /// Returns whether the image that the next checkpoint has to overwrite is pinned. That checkpoint cannot begin
    /// until the pin is dropped.
    #[must_use]
    pub fn checkpoint_is_held(&self) -> bool {
        self.checkpoints.is_held()
    }
}
