//! The archiving of an open database: it opens the archive, adds runs, and continues while the archive is away.
//!
//! ```text
//!  step: archiver ──► a run exists ──► a manifest names it ──► the log up to its end may be cut (`set_archived`)
//! ```
//!
//! A failure of the archive's disk does not stop the database. The error is listed with other
//! [`Delayed`](crate::Delayed) work, and after a pause the archive is opened again. If that fails, new runs are written
//! to the [`backlog`] until the archive is back. Without a backlog no runs are made, and the log is kept.
//!
//! | module | one idea |
//! |---|---|
//! | [`backlog`] | runs wait on the log's disk while the archive is away |
//! | `of_core` | the functions of [`Core`] that an archive's writer calls |
//! | `running` | the store that the archiver adds to, and its steps |

pub mod backlog;
mod of_core;
mod running;

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::quick::WORKSPACE_BYTES;
use perdura_archive::store::{Creation, Own};
use perdura_archive::{
    Archiver, ArchiverOptions, ArchiverStep, Edit, Generation, Role, RunTarget, Store, Writer,
    list_archives,
};
use perdura_base::checksum::mix64;
use perdura_base::{Epoch, Error, Result, Uuid};
use perdura_device::Disk;
use perdura_page::RegionDigest;
use perdura_recovery::Anchor;
use perdura_wal::{Archived, EpochEnds, Rung};

use crate::core::Core;
use crate::lent::Lent;
use crate::proving::{ProofStats, Proving};

use backlog::{Backlog, BacklogOptions, BacklogStats, Opener, Turn};
use running::{Running, end_of};

/// The archiving of a database onto a disk. Each step does one I/O, except for the step that opens the archive.
pub struct Archiving {
    disk: Arc<dyn Disk>,
    life: u64,
    openings: u64,
    row: Generation,
    workspace_bytes: usize,
    running: Option<Running>,
    lent: Lent,
    proving: Proving,
    /// True if the standing proof took the last step. While the proof and the archiver both have work, their steps
    /// alternate.
    proves: bool,
    /// The damage that the last opening found, until [`Archiving::take_damaged`] takes the
    /// list.
    damaged: Option<Vec<String>>,
    /// The options of the backlog. `None`: while the archive is away, no runs are made and the log is kept.
    backlog: Option<BacklogOptions>,
    /// True if the archive was away at the last attempt to find it.
    is_away: bool,
    /// True if the next step checks whether the archive is back.
    looks: bool,
    /// The archive's last error, until [`Archiving::take_trouble`] takes it.
    trouble: Option<Error>,
    /// Count of runs moved from the backlog into the archive.
    drained: u64,
}

impl Archiving {
    /// Returns an `Archiving` that writes to this disk. Its first step opens the archive there, or makes it. `life` is
    /// a random number for this opening of the archive. Every opening in any process needs a different number.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, life: u64) -> Archiving {
        Archiving {
            disk,
            life,
            openings: 0,
            row: Generation::default(),
            workspace_bytes: WORKSPACE_BYTES,
            running: None,
            lent: Lent::default(),
            damaged: None,
            proving: Proving::new(),
            proves: false,
            backlog: None,
            is_away: false,
            looks: false,
            trouble: None,
            drained: 0,
        }
    }

    /// Makes runs wait in the backlog while the archive is away.
    #[must_use]
    pub fn with_backlog(mut self, options: BacklogOptions) -> Archiving {
        self.backlog = Some(options);
        self
    }

    /// Sets the method of run generation. [`Generation::Unsorted`] is for measuring only: its output does not enter the
    /// archive, so records are lost when the log is cut.
    #[must_use]
    pub fn by(self, row: Generation) -> Archiving {
        Archiving { row, ..self }
    }

    /// Sets the approximate size, in bytes, of the records in a run. The default is [`WORKSPACE_BYTES`].
    #[must_use]
    pub fn with_workspace(mut self, bytes: usize) -> Archiving {
        self.workspace_bytes = bytes;
        self
    }

    /// Returns the durable end of a database's archive, or of the backlog that continues the archive. `None`: the
    /// database has no archive and no backlog. `logs` are the disks of the log's streams. Changes nothing.
    ///
    /// # Errors
    /// The errors of the disks; [`Error::Corrupt`] for a manifest that is missing or damaged.
    pub fn end_of(&self, database: &Uuid, logs: &[Arc<dyn Disk>]) -> Result<Option<EpochEnds>> {
        let archived = self.archive_end(database);
        let Some(waiting) = perdura_archive::backlog::find(logs, database)? else {
            return archived;
        };
        if waiting.manifest().runs().next().is_none() {
            return archived;
        }
        waiting.make_durable()?;
        let (begin, end) = (waiting.manifest().begin, end_of(&waiting));
        assert!(begin <= end.epoch, "its runs have epochs");
        Ok(Some(match archived {
            Ok(Some(archived)) if archived.epoch >= end.epoch => archived,
            // Epochs between the archive and the backlog are missing, so the backlog does not
            // continue the archive.
            Ok(Some(archived)) if archived.epoch.0 + 1 < begin.0 => archived,
            _ => end,
        }))
    }

    /// Fails if the archive has epochs of a history that the database with this anchor does not have.
    ///
    /// # Errors
    /// [`Error::OtherHistory`]; the errors of the disk; [`Error::Corrupt`] if every manifest is damaged.
    pub fn check_history(&self, anchor: &Anchor) -> Result<()> {
        if !list_archives(self.disk.as_ref())?.contains(&anchor.uuid) {
            return Ok(());
        }
        let store = Store::read_only(Arc::clone(&self.disk), &anchor.uuid)?;
        store.check_history(&anchor.lineage)
    }

    fn archive_end(&self, database: &Uuid) -> Result<Option<EpochEnds>> {
        if !list_archives(self.disk.as_ref())?.contains(database) {
            return Ok(None);
        }
        let store = Store::read_only(Arc::clone(&self.disk), database)?;
        store.make_durable()?;
        Ok(Some(end_of(&store)))
    }

    /// Asks the archiver for runs up to this epoch; see [`Archiver::cut_at`]. The archiver ends the run that contains
    /// the epoch early: once it has read the epoch. The call has no effect before the archive is open.
    pub fn cut_at(&mut self, epoch: Epoch) {
        if let Some(running) = &mut self.running {
            running.archiver.cut_at(epoch);
        }
    }

    /// Takes the list of damaged manifests, and of objects that are missing or have the wrong size. `None` if the archive
    /// was not opened since the last call.
    pub fn take_damaged(&mut self) -> Option<Vec<String>> {
        self.damaged.take()
    }

    /// Returns a shared cell that holds the archive while it is open, for users other than the
    /// archiver.
    #[must_use]
    pub fn lent(&self) -> Lent {
        self.lent.clone()
    }

    /// Returns whether the archive is open and holds every epoch that the archiver has read.
    #[must_use]
    pub fn has_all(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.naming.is_none() && !running.archiver.is_collecting())
    }

    /// Returns whether the archive is known to be away. While it is, archived epochs wait in the backlog.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Makes the next step check whether an archive that is away is back.
    pub fn look_for_archive(&mut self) {
        self.looks = true;
    }

    /// Takes the archive's last error. `None`: no error occurred since the last call. Despite the error, runs are still
    /// written into the backlog.
    pub fn take_trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// Stops moving runs into the archive, because the database is being closed. The remaining runs
    /// stay in the backlog.
    pub fn end_draining(&mut self) {
        self.looks = false;
        if let Some(backlog) = self.running.as_mut().and_then(|r| r.backlog.as_mut())
            && !backlog.is_waiting()
        {
            backlog.end_draining();
            self.is_away = true;
        }
    }

    /// Returns the durable end of the archive, without the runs in the backlog. `None` while the archive is not open.
    #[must_use]
    pub fn held(&self) -> Option<EpochEnds> {
        let running = self.running.as_ref()?;
        match &running.backlog {
            Some(backlog) => backlog.archive_end(),
            None => Some(end_of(&running.store)),
        }
    }

    /// Returns figures of the runs and the log that wait for the archive.
    #[must_use]
    pub fn backlog_stats(&self, core: &Core) -> BacklogStats {
        let backlog = self.running.as_ref().and_then(|r| r.backlog.as_ref());
        let stats = backlog.map(|backlog| backlog.stats(core));
        BacklogStats {
            drained_runs: self.drained,
            ..stats.unwrap_or(BacklogStats {
                state: if self.is_away { "waiting" } else { "none" },
                ..BacklogStats::default()
            })
        }
    }

    /// Takes one step. If it returns a run, that run is part of the archive or waits in the backlog, and the log may be
    /// cut up to the run's end.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::create`], [`Archiver::step`] and [`Core::set_archived`]; errors of publishing a
    /// manifest. [`Error::Usage`] if the database is archived and the archive is missing. The next step opens the archive again.
    /// With a backlog, [`take_trouble`](Self::take_trouble) returns the archive's errors, and runs go to the backlog.
    pub fn step(&mut self, core: &Core) -> Result<ArchiverStep> {
        let Some(running) = self.running.take() else {
            let running = self.open(core)?;
            self.run_on(running);
            return Ok(ArchiverStep::Working);
        };
        match running.backlog {
            Some(_) => self.step_away(core, running),
            None => self.step_at_archive(core, running),
        }
    }

    /// Continues with the archive or the backlog that a step has opened.
    fn run_on(&mut self, running: Running) {
        assert!(self.running.is_none(), "one archiver is at work");
        let is_archive = running.backlog.is_none();
        let waits = running.backlog.as_ref().is_some_and(Backlog::is_waiting);
        self.is_away = waits;
        self.lent
            .set(is_archive.then(|| Arc::clone(&running.store)));
        self.running = Some(running);
    }

    fn step_at_archive(&mut self, core: &Core, mut running: Running) -> Result<ArchiverStep> {
        assert!(!self.is_away, "the archive is open");
        core.wal().hold_growth(false);
        // The archiver and the proof take steps in turn while both have work.
        self.proves = !self.proves && self.proving.is_busy() && self.row.makes_runs();
        if self.proves && self.proving.step(core, &running.store) {
            self.running = Some(running);
            return Ok(ArchiverStep::Working);
        }
        let mut step = running.step(core, &self.proving);
        // A proof may begin when the archiver is idle. Under load it is never idle, so a proof may also begin after a
        // new run.
        let is_time = matches!(step, Ok(ArchiverStep::Idle | ArchiverStep::Run(_)));
        if is_time
            && self.row.makes_runs()
            && self.proving.step(core, &running.store)
            && matches!(step, Ok(ArchiverStep::Idle))
        {
            step = Ok(ArchiverStep::Working);
        }
        if step.is_ok() {
            self.running = Some(running);
        } else {
            // The archive is opened again only after its other users have dropped it and so released its lock.
            self.lent.set(None);
        }
        step
    }

    /// Takes a step while a backlog is in use. Two kinds of steps alternate. The archiver writes runs into the backlog.
    /// The backlog merges runs, or moves runs into the archive.
    fn step_away(&mut self, core: &Core, mut running: Running) -> Result<ArchiverStep> {
        let Some(backlog) = &mut running.backlog else {
            unreachable!("it was opened with a backlog");
        };
        backlog.bound(core);
        if backlog.is_waiting() && std::mem::take(&mut self.looks) {
            let found = self.open_store(core);
            match found.and_then(|store| backlog.drain_into(store)) {
                Ok(()) => self.is_away = false,
                Err(error) => self.trouble = Some(error),
            }
            self.running = Some(running);
            return Ok(ArchiverStep::Working);
        }
        running.turns = !running.turns;
        if running.turns {
            let proving = &self.proving;
            let images = || {
                let mut images = core.images_for_archive();
                proving.add_images(&mut images);
                images
            };
            let turn = backlog.turn(core, images);
            self.drained += std::mem::take(&mut backlog.drained);
            match turn? {
                Turn::Nothing => {}
                Turn::Worked => {
                    self.running = Some(running);
                    return Ok(ArchiverStep::Working);
                }
                Turn::Failed(error) => {
                    self.trouble = Some(error);
                    self.is_away = true;
                    self.running = Some(running);
                    return Ok(ArchiverStep::Working);
                }
                Turn::Drained(archive) if running.naming.is_none() => {
                    drop(running);
                    let running = self.archive_into(core, archive, None)?;
                    self.run_on(running);
                    return Ok(ArchiverStep::Working);
                }
                // The archiver is still adding a run to the backlog. That run will be drained too.
                Turn::Drained(_) => {}
            }
        }
        let goes_on = backlog.is_busy();
        let has_room = backlog.has_room(self.workspace_bytes);
        let step = match running.naming.is_some() || running.archiver.is_writing() || has_room {
            true => running.step(core, &self.proving)?,
            false => ArchiverStep::Idle,
        };
        self.running = Some(running);
        Ok(match step {
            ArchiverStep::Idle if goes_on => ArchiverStep::Working,
            step => step,
        })
    }

    /// Returns figures of the standing proof.
    #[must_use]
    pub fn proof_stats(&self) -> ProofStats {
        self.proving.stats()
    }

    /// Opens the archive, and also the backlog if runs wait there. If the archive is away, opens only the backlog.
    fn open(&mut self, core: &Core) -> Result<Running> {
        match self.open_store(core) {
            Ok(store) => match self.open_at(core, store) {
                // This may be an older copy of the archive, and the current one may come back.
                Err(error @ Error::ArchiveBehind { .. }) => self.open_without(core, error),
                opened => opened,
            },
            // The archive is locked, so it is not away: another process, or another user in this process, has it open.
            Err(error @ Error::Locked { .. }) => Err(error),
            Err(error) => self.open_without(core, error),
        }
    }

    /// Continues the opening with an archive that was found.
    fn open_at(&mut self, core: &Core, store: Arc<Store>) -> Result<Running> {
        let uuid = *store.uuid();
        let waits = |backlog: &Arc<Store>| backlog.manifest().runs().next().is_some();
        let found = perdura_archive::backlog::find(&core.disks().logs, &uuid)?;
        let backlog = match found.is_some_and(|found| waits(&found)) {
            true => Some(self.backlog_from(core, &end_of(&store))?),
            false => None,
        };
        let Some(backlog) = backlog.filter(waits) else {
            let known = core.archived().map_or(Epoch(0), |end| end.epoch);
            store.manifest().check_not_behind(known)?;
            return self.archive_into(core, store, None);
        };
        let options = self.backlog.clone().unwrap_or_default();
        let mut moving = Backlog::new(Arc::clone(&backlog), options);
        moving.drain_into(store)?;
        self.archive_into(core, backlog, Some(moving))
    }

    /// Continues the opening without the archive, which is away.
    fn open_without(&mut self, core: &Core, error: Error) -> Result<Running> {
        let options = self.backlog.clone().filter(|_| self.row.makes_runs());
        let (Some(options), Some(from)) = (options, core.archived()) else {
            return Err(error);
        };
        self.trouble = Some(error);
        self.is_away = true;
        let store = self.backlog_from(core, &from)?;
        let backlog = Backlog::new(Arc::clone(&store), options);
        self.archive_into(core, store, Some(backlog))
    }

    /// Opens or makes the backlog that continues the archive, and notes its damage.
    fn backlog_from(&mut self, core: &Core, from: &EpochEnds) -> Result<Arc<Store>> {
        let (store, damaged) = self.opener(core).open_or_make(from)?;
        if !damaged.is_empty() {
            self.damaged.get_or_insert_default().extend(damaged);
        }
        Ok(store)
    }

    fn opener<'a>(&mut self, core: &'a Core) -> Opener<'a> {
        let mut images = core.images_for_archive();
        self.proving.add_images(&mut images);
        let life = mix64(self.life.wrapping_add(self.openings));
        self.openings += 1;
        Opener { core, life, images }
    }

    /// Prepares an archiver that adds runs to a store. The first run begins at the store's end.
    fn archive_into(
        &self,
        core: &Core,
        store: Arc<Store>,
        backlog: Option<Backlog>,
    ) -> Result<Running> {
        if core.archived().is_none() {
            // `set_archived` makes the log keep everything from the archive's end on, so the log must still reach back
            // to it.
            match check_log_from(core, &end_of(&store)) {
                // A crash came between the creation of the archive and its note in the anchor. Until this life, no
                // checkpoint kept the log for the archive, which is still empty.
                Err(Error::Truncated { .. }) if store.manifest().objects.is_empty() => {
                    store.publish(Edit::Skip(core.archive_start()?)).run()?;
                    check_log_from(core, &end_of(&store))?;
                }
                checked => checked?,
            }
        }
        let end = end_of(&store);
        let source = core.log_source(&end)?;
        core.set_archived(&end)?;
        let options = ArchiverOptions {
            row: self.row,
            workspace_bytes: self.workspace_bytes,
            carries_frames: core.anchor().get().archive() == Archived::Carried,
            ..ArchiverOptions::new(*store.uuid(), core.heap().geometry().chunks())
        };
        let target = RunTarget {
            disk: Arc::clone(store.disk()),
            dir: store.runs_dir(),
            digest: Arc::new(RegionDigest::new()),
        };
        let archiver = Archiver::new(source, target, options);
        assert_eq!(
            archiver.begin(),
            store.manifest().end,
            "the next run begins where the archive ends"
        );
        Ok(Running {
            store,
            archiver,
            naming: None,
            noting: None,
            noted_ns: None,
            row: self.row,
            backlog,
            turns: false,
            cut_rows: BTreeMap::new(),
        })
    }

    fn open_store(&mut self, core: &Core) -> Result<Arc<Store>> {
        let uuid = core.anchor().get().uuid;
        let anchor = core.anchor_for_archive();
        let disk = Arc::clone(&self.disk);
        let partitions = core.heap().geometry().partitions;
        self.proving.resume(disk.as_ref(), &uuid, partitions)?;
        let mut images = core.images_for_archive();
        self.proving.add_images(&mut images);
        let life = mix64(self.life.wrapping_add(self.openings));
        self.openings += 1;
        let found = match list_archives(disk.as_ref()) {
            // The directory does not exist: the archive is new or away.
            Err(error) if error.is_not_found() => Vec::new(),
            found => found?,
        };
        if found.contains(&uuid) {
            let role = Role::Database;
            let own = Own {
                images: &images,
                anchor: &anchor,
            };
            let writer = Writer { role, life };
            let (store, opened) = Store::open(disk, &uuid, writer, Some(own))?;
            self.damaged.get_or_insert_default().extend(opened.damaged);
            return Ok(store);
        }
        if let Some(archived) = core.archived() {
            return Err(Error::Usage(format!(
                "{} has no archive of database {uuid}, which is archived up to epoch {}. Give \
                 the directory that has it. The log is kept until then",
                disk.name(),
                archived.epoch
            )));
        }
        let start = core.archive_start()?;
        let found = core.anchor().get();
        let creation = Creation {
            uuid,
            life,
            begin: Epoch(start.epoch.0 + 1),
            positions: start.ends,
            images,
            parent: found.parent,
            is_whole: found.newest_image().is_none() && found.parent.is_none(),
            anchor,
        };
        Store::create(disk, creation)
    }
}

/// Fails if the log does not reach back to a position of an archive.
fn check_log_from(core: &Core, end: &EpochEnds) -> Result<()> {
    let mut source = core.log_source(end)?;
    source.step(&core.wal().durable_end(Rung::Disk), |_, _| Ok(()))?;
    Ok(())
}
