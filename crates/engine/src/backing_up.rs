//! Backups of an open database: a thread takes a checkpoint, pins the image, and copies the image into the archive.
//!
//! ```text
//!  checkpoint ──► pin the image ──► copy, 64 pages a step ──► the archive has the log to the image's end ──► manifest
//! ```
//!
//! An archive without a backup restores nothing. So the first backup is made without a request, and retried while it
//! fails. While the image is copied, one more checkpoint may run. The checkpoint after that one would overwrite the
//! image, so it waits for the copy. If the log runs out of room during this wait, or the database is being closed, the
//! copy is given up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use perdura_archive::backup::BackupSummary;
use perdura_archive::{Object, ObjectId, Progress, Store};
use perdura_base::{Error, Result};
use perdura_restore::backup::BackupCopy;
use perdura_wal::Archived;

use crate::archiver::AtArchive;
use crate::checkpointer::Checkpointer;
use crate::delays::Work;
use crate::ground::Ground;
use crate::increments::Increments;
use crate::stats::{BackupState, ListedBackup};

/// The thread checks for requests this often.
const TICK: Duration = Duration::from_millis(20);
/// The interval between checks for a drill's report, nanoseconds.
const LOOK_NS: u64 = 5_000_000_000;

/// The requests for backups and the outcome of the last one. `started` is the number of the last attempt. Attempts are
/// numbered from 1.
#[derive(Default)]
struct Backups {
    wanted: bool,
    started: u64,
    state: BackupState,
    outcome: Option<Result<BackupSummary>>,
}

/// Makes backups of an open database.
pub(crate) struct Backer {
    ground: Arc<Ground>,
    archive: Arc<AtArchive>,
    checkpoints: Arc<Checkpointer>,
    increments: Increments,
    /// Requests, and the outcome of the last backup. The condition variable `ended` signals the end of a backup.
    book: Mutex<Backups>,
    ended: Condvar,
}

impl Backer {
    /// Returns a backer without requests.
    pub fn new(
        ground: &Arc<Ground>,
        archive: &Arc<AtArchive>,
        checkpoints: &Arc<Checkpointer>,
    ) -> Backer {
        Backer {
            ground: Arc::clone(ground),
            archive: Arc::clone(archive),
            checkpoints: Arc::clone(checkpoints),
            increments: Increments::new(ground, archive),
            book: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Runs the thread that makes backups.
    pub fn run(&self) {
        let mut look_ns = 0;
        while !self.ground.is_stopping() {
            std::thread::park_timeout(TICK);
            if self.ground.core.wal().failure().is_some() {
                continue;
            }
            let now_ns = self.ground.now_ns();
            if look_ns <= now_ns {
                self.archive.look_for_drill();
                look_ns = now_ns + LOOK_NS;
            }
            let is_needed = self.needs_backup() && self.ground.delays.is_due(Work::Backup, now_ns);
            {
                let mut book = self.book.lock();
                if !std::mem::take(&mut book.wanted) && !is_needed {
                    drop(book);
                    self.make_increment(now_ns);
                    continue;
                }
                assert_eq!(
                    book.state.ended, book.started,
                    "one backup is made at a time"
                );
                book.started += 1;
                book.state.running = true;
                (book.state.pages_done, book.state.pages) = (0, 0);
            }
            let outcome = self.make_backup();
            match &outcome {
                Err(error) if self.needs_backup() => {
                    let now_ns = self.ground.now_ns();
                    self.ground.delays.failed(Work::Backup, error, now_ns);
                }
                _ => self.ground.delays.done(Work::Backup),
            }
            self.note_backup(outcome);
            self.ended.notify_all();
        }
    }

    /// Makes the increment of the newest image, if it is owed. A failure is reported and retried.
    fn make_increment(&self, now_ns: u64) {
        let delays = &self.ground.delays;
        let Some(k) = self.increments.owed(now_ns) else {
            return;
        };
        if !delays.is_due(Work::Increment, now_ns) {
            return;
        }
        match self.increments.make() {
            Ok(made) => {
                debug_assert!(
                    made.is_none_or(|summary| summary.header.continues().is_some()),
                    "an increment continues a backup"
                );
                self.increments.settle(k);
                delays.done(Work::Increment);
            }
            Err(Error::Stopped(_)) if self.ground.is_stopping() => {}
            Err(Error::Locked { .. }) => self.increments.wait(self.ground.now_ns()),
            Err(error) => {
                if matches!(error, Error::Cancelled(_)) {
                    self.increments.settle(k);
                }
                delays.failed(Work::Increment, &error, self.ground.now_ns());
            }
        }
    }

    /// Returns whether a backup has to be made without a request. The archive is open and has no backup, or the newest
    /// one has too many increments, and the options ask for a first backup.
    fn needs_backup(&self) -> bool {
        let store = self.archive.lent.get();
        let store = store.filter(|_| self.ground.options.first_backup);
        store.is_some_and(|store| {
            let manifest = store.manifest();
            // Increments continue a sweep. Retention may leave a virtual backup alone.
            let is_keyed = self.ground.core.anchor().get().archive() == Archived::Carried;
            match is_keyed {
                true => {
                    let newest = manifest.newest_sweep();
                    newest.is_none() || self.increments.are_many()
                }
                false => manifest.backups().next().is_none(),
            }
        })
    }

    fn note_backup(&self, outcome: Result<BackupSummary>) {
        let mut book = self.book.lock();
        book.state.ended = book.started;
        let state = &mut book.state;
        state.running = false;
        state.error = outcome.as_ref().err().map(ToString::to_string);
        if let Ok(summary) = &outcome {
            state.made += 1;
            state.last = Some(summary.header.id.name());
            state.last_end_epoch = summary.header.moment().0;
            state.last_us = summary.header.wall_us;
            state.last_bytes = summary.bytes;
        }
        assert!(state.error.is_some() || state.last.is_some());
        book.outcome = Some(outcome);
    }

    /// Requests a backup. Returns the number of the attempt that will make it. An attempt that is already running does
    /// not count, because its backup may lack the newest writes.
    pub fn want(&self) -> Result<u64> {
        if !self.archive.archives {
            return Err(Error::Usage(
                "the database has no archive. Open it with one".into(),
            ));
        }
        let mut book = self.book.lock();
        assert!(book.state.ended <= book.started, "what ended was begun");
        book.wanted = true;
        Ok(book.started + 1)
    }

    /// Asks for a backup and waits for it.
    pub fn back_up(&self) -> Result<BackupSummary> {
        let number = self.want()?;
        let mut book = self.book.lock();
        while book.state.ended < number {
            self.ground.core.wal().check()?;
            if self.ground.is_stopping() {
                return Err(Error::Stopped("the database is being closed".into()));
            }
            let wait = Duration::from_millis(50);
            self.ended.wait_for(&mut book, wait);
        }
        let outcome = book.outcome.take().filter(|_| book.state.ended == number);
        outcome.unwrap_or_else(|| {
            let other = "another backup was made after this one. See the newest backup for its \
                         result";
            Err(Error::Usage(other.into()))
        })
    }

    /// Lists the backups that the archive has.
    pub fn list(&self) -> Vec<ListedBackup> {
        let manifest = self.archive.lent.get().map(|store| store.manifest());
        let objects = manifest.iter().flat_map(|manifest| &manifest.objects);
        let listed = objects.filter_map(|object| {
            let id = object.id.backup().or(object.id.increment())?;
            Some(ListedBackup {
                name: object.id.name(),
                kind: object.id.kind(),
                end_epoch: id.end.0,
                checkpoint: id.k.0,
                bytes: object.bytes,
            })
        });
        listed.collect()
    }

    /// Returns the progress of the running backup, and the outcome of the last one.
    pub fn state(&self) -> BackupState {
        self.book.lock().state.clone()
    }

    /// Takes a checkpoint and copies its image to the archive. On return the archive has the backup, and the log up to
    /// the image's end.
    fn make_backup(&self) -> Result<BackupSummary> {
        let store = self.archive.open()?;
        let _alone = store.lease_backups()?;
        self.checkpoints.checkpoint()?;
        let summary = self.copy_image(&store)?;
        let id = summary.header.id;
        self.archive.ask_to(id.end);
        self.archive.await_archived(&store, id.end)?;
        store.add_backup(Object {
            id: ObjectId::Sweep(id),
            bytes: summary.bytes,
            crc: summary.crc,
        })?;
        Ok(summary)
    }

    fn copy_image(&self, store: &Store) -> Result<BackupSummary> {
        self.checkpoints.begin_copy();
        let pin = self.ground.core.pin_newest();
        let pin = pin.ok_or_else(|| Error::Usage("there is no image yet to back up".into()))?;
        let disk = Arc::clone(store.disk());
        let anchor = Arc::clone(pin.anchor());
        let mut copy =
            BackupCopy::begin(self.ground.core.disks(), anchor, disk, &store.backups_dir())?;
        loop {
            let given_up = self.checkpoints.gives_up_copy();
            if given_up || self.ground.is_stopping() {
                copy.abandon()?;
                return Err(Error::Stopped(
                    "the backup was cancelled: the database is being closed, or the log is full \
                     and the next checkpoint needs the image that was copied. Back up again when \
                     the log has room"
                        .into(),
                ));
            }
            if let Progress::Done(summary) = copy.step()? {
                debug_assert_eq!(pin.anchor().newest_image(), Some(pin.slot()));
                return Ok(summary);
            }
            let mut book = self.book.lock();
            (book.state.pages_done, book.state.pages) = copy.progress();
        }
    }
}
