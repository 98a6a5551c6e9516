//! The anchor in memory. All changes go through [`AnchorCell::update`], so a change is durable before readers see it.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Error, Result};
use perdura_wal::anchor::{AnchorFile, Record};
use perdura_wal::{EpochEnds, Failure, Wal};

use crate::anchor::Anchor;
use crate::families::Family;

/// The anchor of an open database.
pub struct AnchorCell {
    file: AnchorFile,
    /// The lock of updates; held during the anchor's I/O. Contains the record of an update if its write failed or was
    /// delayed. The next update finishes that write, and then the record becomes visible.
    updating: Mutex<Option<Arc<Anchor>>>,
    /// The record as it is on disk.
    record: Mutex<Arc<Anchor>>,
    /// The end of the part of the log that the archive holds; see the module `archived`. `None`: this process has noted
    /// no end.
    archive: Mutex<Option<EpochEnds>>,
}

impl AnchorCell {
    /// Returns a cell over an open file and the record read from it.
    #[must_use]
    pub fn new(file: AnchorFile, record: Anchor) -> Self {
        AnchorCell {
            file,
            updating: Mutex::new(None),
            record: Mutex::new(Arc::new(record)),
            archive: Mutex::new(None),
        }
    }

    /// Returns the archive's progress, which is in memory only.
    pub(crate) fn archive_progress(&self) -> &Mutex<Option<EpochEnds>> {
        &self.archive
    }

    /// Returns the current record. It never changes: an update makes a new record.
    #[must_use]
    pub fn get(&self) -> Arc<Anchor> {
        Arc::clone(&self.record.lock())
    }

    /// Changes the record: the new record is written and synced before a reader sees it. An earlier delayed change is
    /// completed first.
    ///
    /// # Errors
    /// After an error the record in memory is unchanged, and the disk has the old or the new record. After
    /// [`Failure::Delay`], the next update makes this change too, before its own. The caller also repeats its change.
    /// So making a change twice must have the same effect as making it once.
    pub fn update(&self, change: impl FnOnce(&mut Anchor)) -> Result<Arc<Anchor>, Failure> {
        self.update_by(AnchorFile::write, change)
    }

    /// As [`update`](Self::update), for the last update of a life. It takes one sync: see [`AnchorFile::write_last`].
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn update_last(&self, change: impl FnOnce(&mut Anchor)) -> Result<Arc<Anchor>, Failure> {
        self.update_by(AnchorFile::write_last, change)
    }

    fn update_by(
        &self,
        write: fn(&AnchorFile, &Record) -> Result<(), Failure>,
        change: impl FnOnce(&mut Anchor),
    ) -> Result<Arc<Anchor>, Failure> {
        let mut unfinished = self.updating.lock();
        if let Some(delayed) = unfinished.take() {
            let finished = self.file.finish();
            if finished.is_err() {
                *unfinished = Some(delayed);
                finished?;
            } else {
                *self.record.lock() = delayed;
            }
        }
        let mut next = Anchor::clone(&self.get());
        let before = (next.uuid, next.seq, next.incarnation, next.vouched.epoch);
        change(&mut next);
        let after = (next.uuid, next.seq, next.incarnation, next.vouched.epoch);
        assert_eq!(
            (before.0, before.1),
            (after.0, after.1),
            "an update keeps the database's identity, and its number is given here"
        );
        assert!(
            before.2 <= after.2 && before.3 <= after.3,
            "lives and what is vouched for only grow"
        );
        next.seq += 1;
        let next = Arc::new(next);
        if let Err(failure) = write(&self.file, &next.to_record()) {
            *unfinished = Some(next);
            return Err(failure);
        }
        *self.record.lock() = Arc::clone(&next);
        Ok(next)
    }

    /// Changes the record of a running database. A failure that is final stops the log.
    ///
    /// # Errors
    /// As [`update`](Self::update); [`Wal::failure`] says whether the failure has stopped the log.
    pub fn update_running(
        &self,
        wal: &Wal,
        change: impl FnOnce(&mut Anchor),
    ) -> Result<Arc<Anchor>> {
        self.update(change).map_err(|failure| {
            if let Failure::Final(error) = &failure {
                wal.stop("anchor", error);
            }
            failure.into()
        })
    }
}

impl AnchorCell {
    /// Declares a family of ordered frames: when this returns, a restart after any crash knows that the log may hold
    /// frames of the family. Declaring a family again costs one read of the record.
    ///
    /// # Errors
    /// The errors of [`update_running`](Self::update_running). After such an error the caller declares the family
    /// again, or appends no frames of the family. [`Error::LogFull`] if the anchor's chain links leave no room for the
    /// declaration.
    pub fn declare(&self, wal: &Wal, family: Family) -> Result<()> {
        let mut next = self.get().as_ref().clone();
        if !next.declare(family) {
            return Ok(());
        }
        if next.chain.len() > next.chain_max() {
            return Err(Error::LogFull(format!(
                "the anchor lists {} restarts since the oldest checkpoint and has no room to \
                 declare {}. Take a checkpoint first",
                next.chain.len(),
                family.name()
            )));
        }
        let declared = self.update_running(wal, |anchor| {
            anchor.declare(family);
        });
        declared.map(drop)
    }
}
