//! The anchor in memory, and the one way to change it: a change is durable before it is visible.

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
    /// Serializes updates; held during the anchor's I/O. Holds the record of an update that the disk
    /// delays: it counts, and becomes visible, once the next update has finished it.
    updating: Mutex<Option<Arc<Anchor>>>,
    /// The record as it is on disk.
    record: Mutex<Arc<Anchor>>,
    /// The end of the log in the archive, if it is beyond the record's; see `archived`.
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

    /// Returns the record. An update makes another one.
    #[must_use]
    pub fn get(&self) -> Arc<Anchor> {
        Arc::clone(&self.record.lock())
    }

    /// Changes the record, which is written and synced before a reader sees it. A change that was
    /// delayed before is completed first.
    ///
    /// # Errors
    /// The record in memory is unchanged; the disk has the old or the new record. After
    /// [`Failure::Delay`] the change comes into force with the next update, whatever that update
    /// is. The caller repeats its change, which must have the same effect again.
    pub fn update(&self, change: impl FnOnce(&mut Anchor)) -> Result<Arc<Anchor>, Failure> {
        self.update_by(AnchorFile::write, change)
    }

    /// Does the same with the last update of a life, which takes one sync: see [`AnchorFile::write_last`].
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

    /// Changes the record of a running database, whose log a final failure stops.
    ///
    /// # Errors
    /// As [`update`](Self::update); [`Wal::failure`] returns whether the log has stopped.
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
    /// them. Declaring it again costs one read of the record.
    ///
    /// # Errors
    /// Those of [`update_running`](Self::update_running), after which the caller declares it again or appends no
    /// such frame; [`Error::LogFull`] if the anchor has no room beside the lives that it names.
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
