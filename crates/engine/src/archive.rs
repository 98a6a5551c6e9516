//! The archive of an open database: what the archiver needs of it, and the thread that drives it.
//!
//! ```text
//!  step: archiver ──► a run exists ──► a manifest names it ──► the log may be cut behind it (`set_archived`)
//! ```
//!
//! The archive's disk is not the database's: whatever it fails with does not stop the database. The error is shown with
//! other [`Delayed`](crate::Delayed) work, the log is kept meanwhile, and after a pause the archive is opened again and
//! archiving goes on where its last run ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use perdura_archive::quick::WORKSPACE_BYTES;
use perdura_archive::store::{Creation, Own, Publication};
use perdura_archive::{
    ArchivedRun, Archiver, ArchiverOptions, ArchiverStep, Edit, Generation,
    Images as ArchiveImages, Object, Progress, Role, Store, Writer, list_archives,
};
use perdura_base::checksum::mix64;
use perdura_base::{Epoch, Error, Pos, Result, Uuid};
use perdura_device::{Clock, Disk};
use perdura_page::RegionDigest;
use perdura_recovery::images::ImageState;
use perdura_wal::{EpochEnds, Rung};

use crate::core::Core;
use crate::delays::Work;
use crate::merging::Lent;
use crate::pace::thread_cpu_ns;
use crate::proving::Proving;
use crate::shared::Shared;
use crate::stats::ProofStats;
use crate::yielding::{Lag, Yielding, urgency_of_lag};

/// The archiver looks for durable epochs this often.
const TICK: Duration = Duration::from_millis(20);

/// An archive that is open, and the archiver that adds to it.
struct Running {
    store: Arc<Store>,
    archiver: Archiver,
    /// A run that exists, and the change that makes it part of the archive.
    naming: Option<(Publication, ArchivedRun)>,
    row: Generation,
}

/// Archives a database into the archive on a disk, one I/O a step; opening the archive is one step.
pub struct Archiving {
    disk: Arc<dyn Disk>,
    life: u64,
    openings: u64,
    row: Generation,
    workspace_bytes: usize,
    running: Option<Running>,
    lent: Lent,
    proving: Proving,
    /// Whether the proof that is under way takes the next step.
    proves: bool,
    /// What the last opening found damaged, until somebody asks.
    damaged: Option<Vec<String>>,
}

impl Archiving {
    /// Archiving onto a disk. The first step opens the archive there, or makes it. `life` is a random number: each
    /// opening of the archive, in this process or another one, has its own.
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
        }
    }

    /// The same by another row of run generation. [`Generation::Unsorted`] is for measuring: the archive does not get what
    /// it writes, and what the log has lost by then is lost.
    #[must_use]
    pub fn by(self, row: Generation) -> Archiving {
        Archiving { row, ..self }
    }

    /// Has a run cut when its records take about so many bytes, instead of [`WORKSPACE_BYTES`].
    #[must_use]
    pub fn with_workspace(mut self, bytes: usize) -> Archiving {
        self.workspace_bytes = bytes;
        self
    }

    /// Where the archive of a database ends, durably; `None` if it has none here. Changes nothing.
    ///
    /// # Errors
    /// The disk's; [`Error::Corrupt`] for a manifest that is missing or damaged.
    pub fn end_of(&self, database: &Uuid) -> Result<Option<EpochEnds>> {
        if !list_archives(self.disk.as_ref())?.contains(database) {
            return Ok(None);
        }
        let store = Store::read_only(Arc::clone(&self.disk), database)?;
        store.make_durable()?;
        Ok(Some(end_of(&store)))
    }

    /// Asks for runs up to this epoch; see [`Archiver::cut_at`]. Before the archive is open, it has no effect.
    pub fn cut_at(&mut self, epoch: Epoch) {
        if let Some(running) = &mut self.running {
            running.archiver.cut_at(epoch);
        }
    }

    /// Backups that are missing or of another size, each with what is wrong, if the archive was opened since this was called.
    pub fn take_damaged(&mut self) -> Option<Vec<String>> {
        self.damaged.take()
    }

    /// The archive while it is open, for others.
    #[must_use]
    pub fn lent(&self) -> Lent {
        self.lent.clone()
    }

    /// Whether the archive is open and has all that it knows of.
    #[must_use]
    pub fn has_all(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.naming.is_none() && !running.archiver.is_collecting())
    }

    /// Takes one step. A run that it returns is part of the archive, and the log may be cut behind it.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::create`], [`Archiver::step`], [`Publication::step`] and [`Core::set_archived`];
    /// [`Error::Usage`] if the database is archived and there is no archive. The next step opens the archive again.
    pub fn step(&mut self, core: &Core) -> Result<ArchiverStep> {
        let Some(mut running) = self.running.take() else {
            let running = self.open(core)?;
            self.lent.set(Some(Arc::clone(&running.store)));
            self.running = Some(running);
            return Ok(ArchiverStep::Working);
        };
        // While the archiver has work, it and the proof take steps in turn.
        self.proves = !self.proves && self.proving.is_busy() && self.row.makes_runs();
        if self.proves && self.proving.step(core, &running.store) {
            self.running = Some(running);
            return Ok(ArchiverStep::Working);
        }
        let mut step = running.step(core, &self.proving);
        // A proof begins when there is nothing else to do, or when a run has been added: under load the archiver is never idle.
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
            // Whoever else has it lets go of it, and with it of the lock, before it is opened again.
            self.lent.set(None);
        }
        step
    }

    /// What is known of the standing proof.
    #[must_use]
    pub fn proof_stats(&self) -> ProofStats {
        self.proving.stats()
    }

    fn open(&mut self, core: &Core) -> Result<Running> {
        let store = self.open_store(core)?;
        let end = end_of(&store);
        let mut source = core.log_source(&end)?;
        if core.archived().is_none() {
            // Once it is declared, the log is kept from there on: it must reach back so far.
            source.step(&core.wal().durable_end(Rung::Disk), |_, _| Ok(()))?;
            source = core.log_source(&end)?;
        }
        core.set_archived(&end)?;
        let options = ArchiverOptions {
            row: self.row,
            workspace_bytes: self.workspace_bytes,
            ..ArchiverOptions::new(*store.uuid(), core.heap().geometry().chunks())
        };
        let archiver = Archiver::new(
            source,
            Arc::clone(&self.disk),
            &store.runs_dir(),
            options,
            Arc::new(RegionDigest::new()),
            last_moment(&store)?,
        );
        assert_eq!(
            archiver.begin(),
            store.manifest().end,
            "the next run begins where the archive ends"
        );
        Ok(Running {
            store,
            archiver,
            naming: None,
            row: self.row,
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
        if list_archives(disk.as_ref())?.contains(&uuid) {
            let role = Role::Database;
            let own = Own {
                images: &images,
                anchor: &anchor,
            };
            let writer = Writer { role, life };
            let (store, opened) = Store::open(disk, &uuid, writer, Some(own))?;
            self.damaged = Some(opened.damaged);
            return Ok(store);
        }
        if let Some(archived) = core.archived() {
            return Err(Error::Usage(format!(
                "{} has no archive of database {uuid}, which is archived up to epoch {}: give the directory that has \
                 it; the log is kept meanwhile",
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

impl Running {
    fn step(&mut self, core: &Core, proving: &Proving) -> Result<ArchiverStep> {
        if let Some((mut publication, run)) = self.naming.take() {
            let Progress::Done(_) = publication.step()? else {
                self.naming = Some((publication, run));
                return Ok(ArchiverStep::Working);
            };
            assert_eq!(
                end_of(&self.store),
                run.end,
                "the log is cut only behind what a durable manifest names"
            );
            core.set_archived(&run.end)?;
            return Ok(ArchiverStep::Run(run));
        }
        let durable = core.wal().durable_end(Rung::Disk);
        let now_ns = core.clock().mono_ns();
        let step = self.archiver.step(&durable, now_ns)?;
        let ArchiverStep::Run(run) = step else {
            return Ok(step);
        };
        if !self.row.makes_runs() {
            core.set_archived(&run.end)?;
            return Ok(ArchiverStep::Run(run));
        }
        let mut images = core.images_for_archive();
        proving.add_images(&mut images);
        // Noted behind the run's last frame: an ordered frame in it is of a family that the anchor declares.
        self.store.note_anchor(core.anchor_for_archive());
        let edit = Edit::AddRun {
            run: Object::of(&run.summary),
            ends: run.end.ends.clone(),
            images: Some(images),
        };
        self.naming = Some((self.store.publish(edit), run));
        Ok(ArchiverStep::Working)
    }
}

/// Where the runs of an archive end, or where the first one will begin.
fn end_of(store: &Store) -> EpochEnds {
    let manifest = store.manifest();
    assert!(manifest.end > Epoch(0), "epochs count from 1");
    EpochEnds {
        epoch: Epoch(manifest.end.0 - 1),
        ends: manifest.positions.clone(),
    }
}

/// The latest moment of the runs of an archive; 0 if none has one.
fn last_moment(store: &Store) -> Result<u64> {
    let runs: Vec<_> = store.manifest().runs().collect();
    for id in runs.into_iter().rev() {
        if let Some(moment) = store.open_run(id)?.moments().list().last() {
            return Ok(moment.wall_us);
        }
    }
    Ok(0)
}

impl Core {
    /// Where an archive of this database begins: with the lowest epoch of the newest image, or with the log's begin if there
    /// is no image.
    ///
    /// # Errors
    /// [`Error::Usage`] if an older build made the newest image: the next checkpoint makes one that knows its lowest
    /// epoch.
    pub fn archive_start(&self) -> Result<EpochEnds> {
        let anchor = self.anchor().get();
        let Some(slot) = anchor.newest_image() else {
            return Ok(EpochEnds {
                epoch: Epoch(0),
                ends: vec![Pos(0); usize::from(anchor.streams)],
            });
        };
        let image = anchor.image(slot);
        let begin = image.begin_epoch.ok_or_else(|| {
            Error::Usage(
                "the newest image was made by an older build, and no archive can begin with it: take a checkpoint".into(),
            )
        })?;
        assert!(begin > Epoch(0), "epochs count from 1");
        Ok(EpochEnds {
            epoch: Epoch(begin.0 - 1),
            ends: image.cover.begin.clone(),
        })
    }

    /// The anchor's record, for the archive's manifests.
    #[must_use]
    pub fn anchor_for_archive(&self) -> Vec<u8> {
        self.anchor().get().to_record().encode()
    }

    /// The checkpoint epochs of the images that exist or are being built.
    #[must_use]
    pub fn images_for_archive(&self) -> ArchiveImages {
        let anchor = self.anchor().get();
        let mut images = ArchiveImages::default();
        for image in anchor.images.iter() {
            match image.state() {
                ImageState::Empty => {}
                ImageState::Building => images.building = Some(image.k),
                ImageState::Complete => images.retained.push(image.k),
            }
        }
        assert!(
            images
                .building
                .is_none_or(|k| !images.retained.contains(&k)),
            "an image is whole or being built"
        );
        images
    }
}

impl Shared {
    /// The archiver's thread.
    pub fn archiver(&self) {
        let (mut yielding, mut lag) = (Yielding::default(), Lag::default());
        while !self.is_stopping() {
            let before_ns = thread_cpu_ns();
            let is_idle = self.archive_step();
            let now_ns = self.clock.mono_ns();
            let durable = self.core.wal().durable(Rung::Disk);
            let archived = self.core.archived().map_or(Epoch(0), |end| end.epoch);
            let lag_ns = lag.note(now_ns, durable, archived);
            self.caught_up_ns.store(now_ns - lag_ns, Ordering::Relaxed);
            if is_idle {
                std::thread::park_timeout(TICK);
                continue;
            }
            let urgency = match self.core.wal().is_short() {
                true => 1000,
                false => urgency_of_lag(lag_ns),
            };
            let used_ns = thread_cpu_ns().saturating_sub(before_ns);
            let pause_ns = yielding.pause_ns(now_ns, used_ns, urgency);
            if pause_ns > 0 {
                std::thread::sleep(Duration::from_nanos(pause_ns));
            }
        }
    }

    /// Asks for runs up to this epoch.
    pub fn archive_to(&self, epoch: Epoch) {
        self.archive_to.fetch_max(epoch.0, Ordering::SeqCst);
    }

    /// Takes a step. Whether nothing is to be done for a while.
    fn archive_step(&self) -> bool {
        let wal = self.core.wal();
        let now_ns = self.clock.mono_ns();
        if wal.failure().is_some() || !self.delays.is_due(Work::Archive, now_ns) {
            return true;
        }
        let mut archiving = self.archiving.lock();
        let Some(archiving) = archiving.as_mut() else {
            return true;
        };
        if wal.is_short() {
            // What the archive has, the next checkpoint cuts off.
            archiving.cut_at(wal.durable(Rung::Disk));
        }
        archiving.cut_at(Epoch(self.archive_to.load(Ordering::SeqCst)));
        let step = archiving.step(&self.core);
        self.archived.lock().proof = archiving.proof_stats();
        if let Some(damaged) = archiving.take_damaged() {
            match &damaged[..] {
                [] => self.delays.done(Work::Backups),
                _ => {
                    let error = Error::Usage(damaged.join("; "));
                    self.delays.failed(Work::Backups, &error, now_ns);
                }
            }
        }
        match step {
            Ok(ArchiverStep::Working) => false,
            Ok(ArchiverStep::Run(run)) => {
                self.delays.done(Work::Archive);
                self.archived.lock().add(&run);
                false
            }
            Ok(ArchiverStep::Idle) => {
                if archiving.has_all() {
                    self.delays.done(Work::Archive);
                }
                true
            }
            Err(error) => {
                self.delays.failed(Work::Archive, &error, now_ns);
                true
            }
        }
    }

    /// The archive, once the archiver has opened it.
    pub fn open_archive(&self) -> Result<Arc<Store>> {
        loop {
            if !self.archives {
                return Err(Error::Usage(
                    "the database has no archive: open it with one".into(),
                ));
            }
            if let Some(store) = self.lent.get() {
                return Ok(store);
            }
            self.fail_if_delayed()?;
            std::thread::sleep(TICK);
        }
    }

    /// Waits until the archive holds the log up to an epoch.
    pub fn await_archived(&self, epoch: Epoch) -> Result<()> {
        while self.core.archived().is_none_or(|end| end.epoch < epoch) {
            self.fail_if_delayed()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn fail_if_delayed(&self) -> Result<()> {
        if self.is_stopping() {
            return Err(Error::Stopped("the database is being closed".into()));
        }
        match self.delays.why(Work::Archive) {
            Some(why) => Err(Error::Usage(format!(
                "the archive cannot be written: {why}"
            ))),
            None => Ok(()),
        }
    }

    /// When the threads have ended: archives everything that is durable, unless the archive fails. What it then lacks is kept
    /// in the log.
    pub fn archive_rest(&self) {
        assert!(self.is_stopping(), "nobody else archives");
        self.archive_to(self.core.wal().durable(Rung::Disk));
        while !self.archive_step() {}
    }
}
