//! Increments: after a checkpoint, the pages of key-addressed tables that changed since the last archived cut.
//!
//! ```text
//!  checkpoint ──► pin the image ──► copy the changed pages ──► the archive has the log to the image's end ──► manifest
//! ```
//!
//! A restore takes these tables as of the newest cut before its moment, and replays only the ordered frames after it. So
//! increments bound the replay. No checkpoint waits for one. When the next image is complete, the copy is given up and
//! reported. The next increment is of that image, and is copied without pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use perdura_archive::backup::BackupSummary;
use perdura_archive::{Object, ObjectId, Progress, Store};
use perdura_base::{Error, Result};
use perdura_restore::backup::BackupCopy;
use perdura_restore::last_cut::LastCut;
use perdura_wal::Archived;

use crate::archiver::AtArchive;
use crate::ground::Ground;

/// The most increments of a backup. After that many, the database makes a new backup.
const INCREMENTS_MAX: usize = 1000;
/// The time between two looks at a process that makes a backup, nanoseconds.
const WAIT_NS: u64 = 1_000_000_000;
/// The longest pause between two steps of a copy.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The increments of an open database.
pub(crate) struct Increments {
    ground: Arc<Ground>,
    archive: Arc<AtArchive>,
    /// The checkpoint epoch of the last image that was copied, or left out.
    done: AtomicU64,
    /// True if the last copy was given up.
    is_late: AtomicBool,
    /// The time before which no copy is tried, because another process makes a backup.
    again_ns: AtomicU64,
}

impl Increments {
    /// Returns the increments of a database that was just opened.
    pub fn new(ground: &Arc<Ground>, archive: &Arc<AtArchive>) -> Increments {
        Increments {
            ground: Arc::clone(ground),
            archive: Arc::clone(archive),
            done: AtomicU64::new(0),
            is_late: AtomicBool::new(false),
            again_ns: AtomicU64::new(0),
        }
    }

    /// Returns the checkpoint epoch of the newest image if it is still to be copied.
    pub fn owed(&self, now_ns: u64) -> Option<u64> {
        if now_ns < self.again_ns.load(Ordering::Relaxed) {
            return None;
        }
        let store = self.archive.lent.get()?;
        let anchor = self.ground.core.anchor().get();
        let image = anchor.image(anchor.newest_image()?);
        let is_cut = image.consistent
            && anchor.archive() == Archived::Carried
            && anchor.rows_as_of(image.k) == image.k;
        debug_assert!(image.is_complete(), "the newest image is complete");
        let is_new = image.k.0 > self.done.load(Ordering::Relaxed);
        let has_base = || store.manifest().sweep_before(image.k).is_some();
        (is_cut && is_new && has_base()).then_some(image.k.0)
    }

    /// Notes that an image needs no increment any more.
    pub fn settle(&self, k: u64) {
        self.done.fetch_max(k, Ordering::Relaxed);
    }

    /// Waits for another process that makes a backup.
    pub fn wait(&self, now_ns: u64) {
        self.again_ns.store(now_ns + WAIT_NS, Ordering::Relaxed);
    }

    /// Returns whether the newest backup has as many increments as a backup may have.
    pub fn are_many(&self) -> bool {
        let store = self.archive.lent.get();
        store.is_some_and(|store| {
            let manifest = store.manifest();
            let newest = manifest.newest_sweep();
            newest.is_some_and(|sweep| manifest.increments_of(sweep).count() >= INCREMENTS_MAX)
        })
    }

    /// Copies the pages that changed until the newest image. `None`: nothing changed.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if a newer image was complete before the copy. [`Error::Locked`] if another process makes a
    /// backup.
    pub fn make(&self) -> Result<Option<BackupSummary>> {
        let store = self.archive.open()?;
        let _alone = store.lease_backups()?;
        let Some(since) = LastCut::read(&store)? else {
            return Ok(None);
        };
        let base = since.base().id;
        let Some(summary) = self.copy(&store, since)? else {
            return Ok(None);
        };
        let id = summary.header.id;
        assert_eq!(
            summary.header.continues(),
            Some(base),
            "an increment continues the sweep that it was compared with"
        );
        self.archive.ask_to(id.end);
        self.archive.await_archived(&store, id.end)?;
        let increment = Object {
            id: ObjectId::Increment(id),
            bytes: summary.bytes,
            crc: summary.crc,
        };
        store.add_increment(increment, base)?;
        Ok(Some(summary))
    }

    fn copy(&self, store: &Store, since: LastCut) -> Result<Option<BackupSummary>> {
        let core = &self.ground.core;
        let Some(pin) = core.pin_newest() else {
            return Ok(None);
        };
        let (disk, anchor) = (Arc::clone(store.disk()), Arc::clone(pin.anchor()));
        let begun =
            BackupCopy::begin_increment(core.disks(), anchor, disk, &store.backups_dir(), since)?;
        let Some(mut copy) = begun else {
            return Ok(None);
        };
        assert!(copy.is_increment(), "only changed pages are copied");
        loop {
            if self.ground.is_stopping() {
                copy.abandon()?;
                return Err(Error::Stopped("the database is being closed".into()));
            }
            // The next checkpoint overwrites the image that is copied only if a newer one is complete.
            if core.checkpoint_is_held() {
                copy.abandon()?;
                self.is_late.store(true, Ordering::Relaxed);
                let why = "a newer image was complete before the changes up to this one were copied. A restore replays more \
                           changes of key-addressed tables";
                return Err(Error::Cancelled(why.into()));
            }
            let begun_ns = self.ground.now_ns();
            if let Progress::Done(summary) = copy.step()? {
                debug_assert_eq!(pin.anchor().newest_image(), Some(pin.slot()));
                self.is_late.store(false, Ordering::Relaxed);
                return Ok(Some(summary));
            }
            if !self.is_late.load(Ordering::Relaxed) {
                // Half of the time is left to the commits.
                let took = Duration::from_nanos(self.ground.now_ns().saturating_sub(begun_ns));
                std::thread::sleep(took.min(PAUSE_MAX));
            }
        }
    }
}
