//! A database with archive, log and data on three disks. Tests of restores use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura::archive::backlog::BacklogOptions;
use perdura::{Archiving, Core, CoreOptions, Disks, Env, Error, Progress, Rung};
use perdura_archive::backup::BackupSummary;
use perdura_archive::{ArchiverStep, BackupId, Object, ObjectId, Store};
use perdura_base::{Epoch, StreamId, Uuid};
use perdura_device::{Clock, CrashProfile, Disk, FaultPlan, ManualClock, SimDisk};
use perdura_restore::backup::BackupCopy;
use perdura_restore::last_cut::LastCut;
use perdura_restore::virtual_backup::VirtualBackup;
use perdura_restore::{
    At, Deadlines, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
};

use crate::core_steps::{get, small};

pub const STREAMS: usize = 2;
pub const KEYS: usize = 30;

/// The wall clock when a world begins.
const BEGIN_US: u64 = 1_700_000_000_000_000;

/// A change, and the clock's time when it was acknowledged.
pub struct Change {
    pub epoch: Epoch,
    pub wall_us: u64,
    key: usize,
    value: Option<Vec<u8>>,
}

pub struct World {
    pub data: Arc<SimDisk>,
    pub log: Arc<SimDisk>,
    pub archive: Arc<SimDisk>,
    pub clock: Arc<ManualClock>,
    core: Option<Core>,
    archiving: Archiving,
    /// True if the archive's disk is away.
    pub is_away: bool,
    pub uuid: Uuid,
    seed: u64,
    options: CoreOptions,
    pub changes: Vec<Change>,
    /// The state at the beginning of the changes.
    state: BTreeMap<usize, Vec<u8>>,
}

fn key(number: usize) -> String {
    format!("key{number}")
}

/// Returns the values that a database has.
pub fn values(core: &Core) -> BTreeMap<usize, Vec<u8>> {
    let all = (0..KEYS).filter_map(|number| Some((number, get(core, &key(number))?)));
    all.collect()
}

/// Returns an archiver that writes onto a disk. While that disk is away, the archiver writes to a backlog.
fn archiving(archive: &Arc<SimDisk>, life: u64) -> Archiving {
    Archiving::new(archive.life(), life).with_backlog(BacklogOptions::default())
}

/// Opens the database on a data disk and a log disk.
pub fn open_on(
    data: &Arc<SimDisk>,
    log: &Arc<SimDisk>,
    clock: &Arc<ManualClock>,
    (seed, options): (u64, CoreOptions),
) -> Result<Core, Error> {
    let env = Env {
        disks: disks_on(data, log),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        seed,
        nodes: None,
        accept_loss: false,
    };
    Core::open(env, options, Arc::new(Progress::default()))
}

fn disks_on(data: &Arc<SimDisk>, log: &Arc<SimDisk>) -> Disks {
    let data: Arc<dyn Disk> = data.life();
    Disks {
        images: vec![Arc::clone(&data)],
        logs: vec![log.life(); STREAMS],
        data,
    }
}

impl World {
    /// Returns a new database, archived into a new archive.
    pub fn new(seed: u64) -> World {
        let clock = Arc::new(ManualClock::at(BEGIN_US));
        let (data, log) = (SimDisk::new(seed), SimDisk::new(seed + 1));
        World::over((data, log, SimDisk::new(seed + 2)), clock, seed)
    }

    /// Returns a new database that opens with these options in each of its lives.
    pub fn with(seed: u64, options: CoreOptions) -> World {
        let clock = Arc::new(ManualClock::at(BEGIN_US));
        let (data, log) = (SimDisk::new(seed), SimDisk::new(seed + 1));
        let disks = (data, log, SimDisk::new(seed + 2));
        World::opened(disks, clock, (seed, options))
    }

    /// Returns a world with its database on the first two disks, and the archive on the last disk.
    pub fn over(
        (data, log, archive): (Arc<SimDisk>, Arc<SimDisk>, Arc<SimDisk>),
        clock: Arc<ManualClock>,
        seed: u64,
    ) -> World {
        World::opened((data, log, archive), clock, (seed, small()))
    }

    fn opened(
        (data, log, archive): (Arc<SimDisk>, Arc<SimDisk>, Arc<SimDisk>),
        clock: Arc<ManualClock>,
        (seed, options): (u64, CoreOptions),
    ) -> World {
        let core = open_on(&data, &log, &clock, (seed, options.clone())).expect("it opens");
        let mut world = World {
            archiving: archiving(&archive, 1),
            is_away: false,
            uuid: core.anchor().get().uuid,
            state: values(&core),
            seed,
            options,
            core: Some(core),
            changes: Vec::new(),
            data,
            log,
            archive,
            clock,
        };
        world.archive();
        world
    }

    fn open(&self) -> Core {
        let options = (self.seed, self.options.clone());
        open_on(&self.data, &self.log, &self.clock, options).expect("it opens again")
    }

    pub fn core(&self) -> &Core {
        self.core.as_ref().expect("it is open")
    }

    /// Changes a key. Nothing is acknowledged before the next [`flush`](Self::flush).
    pub fn set(&mut self, number: usize, value: Option<Vec<u8>>) {
        self.clock.advance_us(10_000);
        let (core, name) = (self.core(), key(number));
        let parts = [core.partition_of(name.as_bytes())].into_iter().collect();
        let done = core.transact(&parts, |tx| match &value {
            Some(value) => {
                tx.put(core.database(0), name.as_bytes(), value, None)?;
                Ok::<_, Error>(true)
            }
            None => tx.delete(core.database(0), name.as_bytes()),
        });
        let (is_there, ticket) = done.expect("a change");
        let epoch = ticket.epoch;
        // The ticket of a write without a change names an older epoch.
        if is_there && epoch > Epoch(0) {
            let change = Change {
                epoch,
                wall_us: u64::MAX,
                key: number,
                value,
            };
            self.changes.push(change);
        }
    }

    /// Makes a change drawn at random.
    pub fn set_any(&mut self, rng: &mut fastrand::Rng) {
        let len = [10, 100, 3000, 20_000][rng.usize(..4)];
        let value = (rng.u8(..5) > 0).then(|| vec![rng.u8(..); len]);
        self.set(rng.usize(..KEYS), value);
    }

    /// Makes all changes durable, and so acknowledges them.
    pub fn flush(&mut self) {
        self.clock.advance_us(10_000);
        self.core().flush_all().expect("a flush");
        let now = self.clock.wall_us();
        let open = self.changes.iter_mut().rev();
        open.take_while(|change| change.wall_us == u64::MAX)
            .for_each(|change| change.wall_us = now);
    }

    /// Archives everything that is durable. While the archive is away, this writes to the backlog.
    pub fn archive(&mut self) {
        let durable = self.core().wal().durable(Rung::Disk);
        self.archiving.look_for_archive();
        loop {
            self.archiving.cut_at(durable);
            if self.archive_step() == ArchiverStep::Idle && self.archiving.has_all() {
                return;
            }
        }
    }

    /// Takes a step of archiving.
    pub fn archive_step(&mut self) -> ArchiverStep {
        let core = self.core.as_ref().expect("it is open");
        let step = self.archiving.step(core);
        let trouble = self.archiving.take_trouble();
        assert!(trouble.is_none() || self.is_away, "{trouble:?}");
        match step {
            Ok(step) => step,
            Err(_) if self.is_away => ArchiverStep::Working,
            Err(error) => panic!("the archive's disk is whole: {error}"),
        }
    }

    /// Makes the archive's disk go away.
    pub fn leave(&mut self) {
        let cut_after_ops = Some(1);
        let none = FaultPlan::default();
        self.archive.set_plan(FaultPlan {
            cut_after_ops,
            ..none
        });
        self.is_away = true;
    }

    /// Brings the archive's disk back, in the state after a crash of the archive's machine.
    pub fn come_back(&mut self, profile: CrashProfile, seed: u64) {
        self.archiving = Archiving::new(self.archive.life(), 1);
        self.archive.crash(profile, seed);
        self.archive.set_plan(FaultPlan::default());
        self.archiving = archiving(&self.archive, seed | 1);
        self.is_away = false;
    }

    /// Takes a checkpoint and copies it to the archive.
    pub fn back_up(&mut self) {
        self.core().checkpoint_now().expect("an image");
        self.archive();
        let core = self.core.as_ref().expect("it is open");
        let store = self.archiving.lent().get().expect("it is open");
        let _alone = store.lease_backups().expect("nobody else makes backups");
        let (anchor, disk) = (core.anchor().get(), Arc::clone(store.disk()));
        let disks = disks_on(&self.data, &self.log);
        let copy = BackupCopy::begin(&disks, anchor, disk, &store.backups_dir());
        let summary = copy.and_then(BackupCopy::run).expect("a backup");
        let backup = Object {
            id: ObjectId::Sweep(summary.header.id),
            bytes: summary.bytes,
            crc: summary.crc,
        };
        store.add_backup(backup).expect("it is named");
    }

    /// Takes a checkpoint and adds an increment of it to the archive. Returns whether there was anything to add.
    pub fn add_increment(&mut self) -> bool {
        self.core().checkpoint_now().expect("an image");
        self.archive();
        self.copy_increment()
    }

    /// Returns the archive of the open database.
    pub fn store_to_write(&self) -> Arc<Store> {
        self.archiving.lent().get().expect("it is open")
    }

    /// Begins an increment of the newest image. `None`: the image has no changes. Also returns the backup that the
    /// increment continues.
    pub fn begin_increment(&self) -> Option<(BackupCopy, BackupId)> {
        let core = self.core.as_ref().expect("it is open");
        let store = self.store_to_write();
        let _alone = store.lease_backups().expect("nobody else makes backups");
        let since = LastCut::read(&store).expect("memory")?;
        let base = since.base().id;
        let (anchor, disk) = (core.anchor().get(), Arc::clone(store.disk()));
        let disks = disks_on(&self.data, &self.log);
        let copy = BackupCopy::begin_increment(&disks, anchor, disk, &store.backups_dir(), since);
        Some((copy.expect("memory")?, base))
    }

    /// Writes an increment of the newest image, which no manifest names.
    pub fn write_increment(&self) -> Option<(BackupSummary, BackupId)> {
        let (copy, base) = self.begin_increment()?;
        Some((copy.run().expect("an increment"), base))
    }

    /// Adds an increment of the newest image to the archive, if the image has changes.
    fn copy_increment(&mut self) -> bool {
        let Some((summary, base)) = self.write_increment() else {
            return false;
        };
        let store = self.store_to_write();
        let increment = Object {
            id: ObjectId::Increment(summary.header.id),
            bytes: summary.bytes,
            crc: summary.crc,
        };
        store.add_increment(increment, base).expect("it is named");
        true
    }

    /// Makes a virtual backup of the last epoch that has one. Returns whether there was such an epoch.
    pub fn back_up_virtually(&mut self) -> bool {
        self.archive();
        let progress = Arc::new(RestoreProgress::default());
        let begun = VirtualBackup::begin(&self.store_to_write(), None, progress, |_, _| {});
        match begun.and_then(VirtualBackup::run) {
            Ok(_) => true,
            Err(Error::Usage(_)) => false,
            Err(error) => panic!("a virtual backup: {error}"),
        }
    }

    /// Damages the newest image, if there is an older one. The next life starts from that one. Returns whether it did.
    pub fn rot_newest_image(&self) -> bool {
        let is_listed = |path: &String| path.contains("/directory-") && !path.ends_with(".tmp");
        let files = self.data.files().into_iter().map(|(path, _)| path);
        let mut images: Vec<String> = files.filter(is_listed).collect();
        images.sort_by_key(|path| path.rsplit('-').next().map(str::to_owned));
        let newest = images.pop().filter(|_| !images.is_empty());
        newest.is_some_and(|path| self.data.flip(&path, 9, 3))
    }

    /// Cuts the power, and begins the next life with other options.
    pub fn crash_into(&mut self, options: CoreOptions, seed: u64) {
        self.options = options;
        self.crash(seed);
    }

    /// Cuts the power of all three disks, and begins the next life. Writes that were not acknowledged may be lost.
    pub fn crash(&mut self, seed: u64) {
        self.core = None;
        self.archiving = Archiving::new(self.archive.life(), 1);
        self.archive.crash(CrashProfile::Worst, seed);
        self.archiving = archiving(&self.archive, seed | 1);
        self.is_away = false;
        self.data.crash(CrashProfile::Worst, seed);
        self.log.crash(CrashProfile::Worst, seed);
        let core = self.open();
        let durable = Epoch(core.report().durable_epoch);
        let now = self.clock.wall_us();
        let is_kept = |change: &Change| change.epoch <= durable;
        let mut lost = self.changes.iter().filter(|change| !is_kept(change));
        assert!(
            lost.all(|change| change.wall_us == u64::MAX),
            "what was acknowledged is kept"
        );
        self.changes.retain(is_kept);
        let open = self.changes.iter_mut().rev();
        open.take_while(|change| change.wall_us == u64::MAX)
            .for_each(|change| change.wall_us = now);
        self.core = Some(core);
    }

    /// Ends the process without a close. The disks keep their contents.
    pub fn kill(&mut self) {
        self.core = None;
    }

    /// Takes some steps of flushing, without acknowledging any change.
    pub fn flush_some(&mut self, rng: &mut fastrand::Rng) {
        for _ in 0..rng.usize(..6) {
            let stream = StreamId(rng.u8(..).rem_euclid(2));
            self.core().flush_step(stream).expect("a step");
        }
    }

    /// Kills the process in the middle of its work. Sometimes the disks of log and archive lose power too.
    pub fn end(&mut self, rng: &mut fastrand::Rng) {
        self.flush_some(rng);
        self.kill();
        let profile = CrashProfile::ALL[rng.usize(..CrashProfile::ALL.len())];
        if rng.bool() {
            self.archiving = Archiving::new(self.archive.life(), 1);
            self.archive.crash(profile, rng.u64(..));
            self.log.crash(profile, rng.u64(..));
        }
    }

    /// Begins the next life, after a [`kill`](Self::kill).
    pub fn reopen(&mut self) {
        let core = self.open();
        self.core = Some(core);
        self.archiving = archiving(&self.archive, 3);
    }

    /// Returns the values at an epoch.
    pub fn state(&self, target: Epoch) -> BTreeMap<usize, Vec<u8>> {
        let mut state = self.state.clone();
        let until = self
            .changes
            .iter()
            .take_while(|change| change.epoch <= target);
        for change in until {
            match &change.value {
                Some(value) => state.insert(change.key, value.clone()),
                None => state.remove(&change.key),
            };
        }
        state
    }

    /// Opens the archive as a restore does.
    pub fn store(&self) -> Result<Arc<Store>, Error> {
        Store::read_only(self.archive.life(), &self.uuid)
    }

    pub fn plan(&self, at: Option<At>) -> Result<RestorePlan, Error> {
        let store = self.store()?;
        let now_us = self.clock.wall_us();
        let chosen = at.map(|at| at.resolve(&store, &[], now_us)).transpose()?;
        RestorePlan::from_archive(&store, chosen.map(|chosen| chosen.epoch), |_, _| {})
    }
}

/// Returns a uuid that no other database in this process has.
fn new_uuid() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut uuid = [9; 16];
    uuid[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Uuid(uuid)
}

/// Carries a plan out onto new disks.
pub fn carry_out(plan: &RestorePlan) -> Result<(Restored, RestoreReport), Error> {
    let restored = Restored::new();
    let report = carry_out_onto(&restored, plan)?;
    Ok((restored, report))
}

/// Carries a plan out onto these disks.
pub fn carry_out_onto(restored: &Restored, plan: &RestorePlan) -> Result<RestoreReport, Error> {
    let means = RestoreMeans {
        disks: disks_on(&restored.data, &restored.log),
        uuid: new_uuid(),
        threads: if cfg!(feature = "flaws") { 1 } else { 2 },
        clock: &(Arc::new(ManualClock::at(BEGIN_US)) as Arc<dyn Clock>),
        progress: &RestoreProgress::default(),
        deadlines: Deadlines::Keep,
    };
    restore(plan, &means)
}

/// The disks of a database that was restored.
pub struct Restored {
    pub data: Arc<SimDisk>,
    pub log: Arc<SimDisk>,
}

impl Restored {
    pub fn new() -> Restored {
        Restored {
            data: SimDisk::new(1),
            log: SimDisk::new(2),
        }
    }

    pub fn open(&self) -> Result<Core, Error> {
        self.open_with(small())
    }

    pub fn open_with(&self, options: CoreOptions) -> Result<Core, Error> {
        let clock = Arc::new(ManualClock::at(BEGIN_US));
        open_on(&self.data, &self.log, &clock, (7, options))
    }

    /// Cuts the power of the disks.
    pub fn crash(&self, seed: u64) {
        self.data.crash(CrashProfile::Worst, seed);
        self.log.crash(CrashProfile::Worst, seed);
    }
}
