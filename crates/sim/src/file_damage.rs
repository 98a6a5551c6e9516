//! What damage to files really looks like: each file of a small database truncated to every sector,
//! zeroed from every sector on, with a bit flipped in every sector, replaced by an older version of itself and by each other file of
//! its kind, and every subset of a directory deleted.
//!
//! For each, `verify`, a dry run and opening for good must agree: all refuse with the same words, or
//! all start. A start must be exactly a durable prefix, must not lose what was vouched for, and must
//! stand two checkpoints and another restart.

mod flips;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use perdura::catalog::names_databases;
use perdura::{CheckpointProgress, Core, Env, Error, Progress};
use perdura_base::error::Family;
use perdura_base::limits::{PAGE_BYTES, SECTOR_BYTES};
use perdura_base::num::to_usize;
use perdura_base::{ImageSlot, PartitionId, Uuid};
use perdura_device::{Access, AlignedBuf, Clock, CrashProfile, Disk, MemDisk};
use perdura_recovery::image::{ImageFile, Places, read_directory};
use perdura_recovery::salvage::{Condition, build, salvage};
use perdura_recovery::verify::verify;
use perdura_recovery::{LogMemory, Method, RestartOptions, restart};
use perdura_store::Geometry;
use perdura_wal::anchor::read_anchor;
use perdura_wal::{Anchor, ImageState, Scheme};

use crate::damage::empty;
use crate::model::{Model, State};
use crate::world::{Check, World, dry_run_options};

pub use flips::{Blocks, flips};

/// Files by path.
type Files = BTreeMap<String, Arc<Vec<u8>>>;

/// The directories of a database.
const FOLDERS: [&str; 3] = ["image-a", "image-b", "log"];
/// Deletions of every subset stop at this many files; of more, single ones and pairs are deleted.
const SUBSET_FILES_MAX: usize = 9;

/// How old the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It has never taken a checkpoint.
    Young,
    /// One checkpoint, with transactions while it was taken, and a log that begins before it.
    Midway,
    /// Two lives, two checkpoints in each.
    Grown,
    /// A third life with one checkpoint; the log of the first is not needed any more.
    Old,
}

/// What was tried and how it ended.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// Damaged directories.
    pub cases: u64,
    /// Those that started.
    pub started: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those of the refused of which everything up to an epoch was had, exactly.
    pub salvaged: u64,
    /// Those in which nothing was left of the database.
    pub absent: u64,
    /// Those that started without something that was acknowledged and vouched for.
    pub lost: Vec<String>,
    /// Everything else that went wrong.
    pub violations: Vec<String>,
}

/// A small database as files, with what it was at earlier moments.
struct Subject {
    world: World,
    now: Files,
    /// Contents that each file had before, all different from the newest.
    older: BTreeMap<String, Vec<Arc<Vec<u8>>>>,
    /// The epoch that a start must reach.
    vouched: u64,
    /// The model of each life, with the epoch that it begins with, oldest first.
    models: Vec<(u64, Model)>,
}

impl Subject {
    fn new(seed: u64, streams: u8, age: Age) -> Check<Subject> {
        let mut subject = Subject {
            world: empty(seed, streams),
            now: Files::new(),
            older: BTreeMap::new(),
            vouched: 0,
            models: Vec::new(),
        };
        let checkpoints: &[usize] = match age {
            Age::Young | Age::Midway => &[0],
            Age::Grown => &[2, 2],
            Age::Old => &[2, 2, 1],
        };
        let lives = checkpoints.len();
        for (life, checkpoints) in checkpoints.iter().enumerate() {
            subject.world.open()?;
            let floor = subject.world.core().report().durable_epoch;
            for _ in 0..*checkpoints {
                subject.work(12)?;
                subject.world.checkpoint_now()?;
                subject.look()?;
            }
            if age == Age::Midway {
                subject.work(120)?;
                subject.checkpoint_amid_work()?;
            }
            subject.work(20)?;
            // At rest for a moment: everything is durable, and the log says so.
            subject.world.flush_all()?;
            subject.world.flush_all()?;
            let vouched = subject.world.core().vouch();
            vouched.map_err(|error| format!("vouching: {error}"))?;
            subject.world.observe();
            subject.look()?;
            subject.models.push((floor, subject.world.model.clone()));
            if life + 1 < lives {
                subject.world.disks[0].crash(CrashProfile::Everything, seed);
                subject.world.forget_engine();
            }
        }
        subject.world.disks[0].crash(CrashProfile::Everything, seed);
        subject.world.forget_engine();
        subject.look()?;
        subject.vouched = subject.world.must_survive;
        for (path, newest) in &subject.now {
            if let Some(older) = subject.older.get_mut(path) {
                older.retain(|bytes| bytes != newest);
            }
        }
        Ok(subject)
    }

    fn work(&mut self, steps: u32) -> Check {
        for _ in 0..4 {
            self.world.steps(steps / 4)?;
            self.look()?;
        }
        Ok(())
    }

    /// What the database held at a durable epoch.
    fn state_at(&self, epoch: u64) -> State {
        let mut lives = self.models.iter().rev();
        let of_life = lives.find(|(floor, _)| *floor <= epoch);
        of_life.map_or_else(State::default, |(_, model)| model.state_at(epoch))
    }

    /// A checkpoint between whose steps transactions run.
    fn checkpoint_amid_work(&mut self) -> Check {
        let before = self.world.tally.checkpoints;
        self.world.checkpoint_begin()?;
        while self.world.tally.checkpoints == before {
            self.world.steps(2)?;
            if self.world.checkpoint_step()? == Some(CheckpointProgress::Waiting) {
                self.world.flush_all()?;
            }
        }
        self.look()
    }

    /// Notes every file as it is.
    fn look(&mut self) -> Check {
        let disk = &self.world.disks[0];
        self.now.clear();
        for (path, _) in disk.files() {
            let bytes = disk.read_all(&path).map_err(|error| error.to_string())?;
            let bytes = Arc::new(bytes);
            let older = self.older.entry(path.clone()).or_default();
            if !older.contains(&bytes) {
                older.push(Arc::clone(&bytes));
            }
            self.now.insert(path, bytes);
        }
        Ok(())
    }
}

/// What a path is, so that only like is exchanged for like.
fn kind(path: &str) -> &str {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    match path.split_once('/') {
        Some(("log", _)) => "log",
        Some((_, _)) if name.starts_with("directory-") => "directory",
        _ => name,
    }
}

/// Takes every case to the judges and keeps the account.
struct Sweep<'a> {
    subject: &'a Subject,
    out: Swept,
    salvaged: Cell<u64>,
}

/// How one of the three ways of looking at a directory ended.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Starts,
    Absent,
    Refused(Family, String),
}

fn verdict<T>(result: Result<Option<T>, Error>) -> Verdict {
    match result {
        Ok(Some(_)) => Verdict::Starts,
        Ok(None) => Verdict::Absent,
        Err(error) => Verdict::Refused(error.family(), error.to_string()),
    }
}

impl Sweep<'_> {
    fn case(&mut self, what: &str, files: &Files, folders: &[&str]) {
        self.out.cases += 1;
        match catch_unwind(AssertUnwindSafe(|| self.judge(files, folders))) {
            Ok(Ok(verdict)) => match verdict {
                Verdict::Starts => self.out.started += 1,
                Verdict::Absent => self.out.absent += 1,
                Verdict::Refused(..) => self.out.refused += 1,
            },
            Ok(Err(Wrong::Lost(text))) => self.out.lost.push(format!("{what}: {text}")),
            Ok(Err(Wrong::Other(text))) => self.out.violations.push(format!("{what}: {text}")),
            Err(_) => self.out.violations.push(format!("{what}: a panic")),
        }
    }

    fn judge(&self, files: &Files, folders: &[&str]) -> Result<Verdict, Wrong> {
        let disk: Arc<dyn Disk> = Arc::new(disk_of(files, folders)?);
        let world = &self.subject.world;
        let env = Env {
            data: Arc::clone(&disk),
            logs: vec![Arc::clone(&disk); usize::from(world.swarm.streams)],
            clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
            seed: world.seed ^ 1,
        };
        let method = Method::of(Scheme::Differential);
        let options = dry_run_options(&env, method, world.swarm.options.schedule);
        let describe = |_: &perdura_recovery::Restarted| Ok((0, String::new()));
        let verified = verify(&options, &describe).and_then(|verified| {
            let refusal = verified.map(|verified| verified.refusal);
            refusal.map(|error| error.map_or(Ok(()), Err)).transpose()
        });
        let verified = verdict(verified);
        let dry = verdict(restart(&options));
        if verified != dry {
            return Err(format!("verify: {verified:?}\n  dry run: {dry:?}").into());
        }
        if dry == Verdict::Absent {
            return self.absent(files, dry);
        }
        let open = || Core::open(env.clone(), world.options(), Arc::new(Progress::default()));
        let opened = open();
        let core = match opened {
            Ok(core) => core,
            Err(error) => {
                let served = verdict::<()>(Err(error));
                return match served == dry {
                    false => Err(format!("dry run: {dry:?}\n  open: {served:?}").into()),
                    true if matches!(dry, Verdict::Refused(Family::Corruption, _)) => {
                        self.salvage(&options, &env, disk.as_ref(), files)?;
                        Ok(dry)
                    }
                    true => Err(format!("it is not taken for damage: {dry:?}").into()),
                };
            }
        };
        if dry != Verdict::Starts {
            return Err(format!("dry run: {dry:?}\n  open: it starts").into());
        }
        self.compare(&core)?;
        for _ in 0..2 {
            core.checkpoint_now()
                .map_err(|error| format!("the next checkpoint: {error}"))?;
        }
        drop(core);
        let again = open().map_err(|error| format!("the next restart: {error}"))?;
        self.compare(&again)?;
        Ok(dry)
    }

    /// What is refused can be had up to some epoch, exactly, in a database of its own; unless
    /// [`may_refuse`](Self::may_refuse).
    fn salvage(
        &self,
        options: &RestartOptions<'_>,
        env: &Env,
        disk: &dyn Disk,
        files: &Files,
    ) -> Result<(), Wrong> {
        let salvaged = match salvage(options, &names_databases) {
            Ok(Condition::Salvaged(salvaged)) => *salvaged,
            Ok(Condition::Whole) => return Err("salvage takes it for whole".to_owned().into()),
            Err(error) => return self.may_refuse(options, error),
        };
        let missing = salvaged.missing.clone();
        let target: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let into = RestartOptions {
            data: Arc::clone(&target),
            images: vec![Arc::clone(&target)],
            logs: vec![Arc::clone(&target); env.logs.len()],
            clock: Arc::clone(&env.clock),
            memory: Arc::clone(&options.memory),
            progress: Arc::clone(&options.progress),
            dry_run: false,
            ..*options
        };
        let (world, text) = (&self.subject.world, |error: Error| {
            format!("{missing:?}: {error}")
        });
        let limits = LogMemory {
            block_bytes_max: world.swarm.options.block_bytes_max,
            queue_bytes_max: world.swarm.options.queue_bytes_max,
        };
        build(salvaged, &into, Uuid([7; 16]), limits).map_err(text)?;
        let env = Env {
            data: Arc::clone(&target),
            logs: into.logs,
            ..env.clone()
        };
        let opened = Core::open(env, world.options(), Arc::new(Progress::default()));
        let core = opened.map_err(text)?;
        if contents(disk)? != *files {
            return Err("salvage changed the damaged database".to_owned().into());
        }
        // Of pages that are gone, and of an image without its log, the models say nothing.
        if missing.pages.is_empty() && !missing.image_alone {
            let expected = self.subject.state_at(missing.intact_epoch);
            let same = world.compare(&core, &expected);
            same.map_err(|what| Wrong::Other(format!("salvaged {missing:?}: {what}")))?;
            self.salvaged.set(self.salvaged.get() + 1);
        }
        Ok(())
    }

    /// Salvage may fail if the anchor cannot be read; and if the log is not there from the
    /// database's beginning and each image is incomplete, or without a readable header, directory or
    /// page (docs/operations.md).
    fn may_refuse(&self, options: &RestartOptions<'_>, error: Error) -> Result<(), Wrong> {
        let Ok(Some(anchor)) = read_anchor(options.data.as_ref()) else {
            return Ok(());
        };
        let suffices = |slot: &ImageSlot| {
            let image = anchor.image(*slot);
            image.state == ImageState::Complete && is_readable(options, &anchor, *slot)
        };
        match ImageSlot::ALL.iter().find(|slot| suffices(slot)) {
            None => Ok(()),
            Some(slot) => {
                Err(format!("image {slot} is there, and nothing was salvaged: {error}").into())
            }
        }
    }

    /// Nothing may be left of a database that is taken for none.
    fn absent(&self, files: &Files, dry: Verdict) -> Result<Verdict, Wrong> {
        let left: Vec<&String> = files
            .iter()
            .filter(|(path, bytes)| match kind(path) {
                "LOCK" | "VERSION" => false,
                "pages" => bytes.len() > SECTOR_BYTES,
                "log" => !path.contains("/spare-"),
                _ => true,
            })
            .map(|(path, _)| path)
            .collect();
        match left.is_empty() {
            true => Ok(dry),
            false => Err(Wrong::Lost(format!(
                "taken for no database beside {left:?}"
            ))),
        }
    }

    fn compare(&self, core: &Core) -> Result<(), Wrong> {
        let durable = core.report().durable_epoch;
        let (world, vouched) = (&self.subject.world, self.subject.vouched);
        if durable < vouched {
            let text = format!("started at epoch {durable}; {vouched} was vouched for");
            return Err(Wrong::Lost(text));
        }
        let expected = world.model.state_at(durable);
        let same = world.compare(core, &expected);
        same.map_err(|what| Wrong::Other(format!("started at epoch {durable}: {what}")))
    }
}

/// Whether an image and all of its pages can be read.
fn is_readable(options: &RestartOptions<'_>, anchor: &Anchor, slot: ImageSlot) -> bool {
    let geometry = Geometry {
        partitions: anchor.partitions,
        chunk_pages: anchor.chunk_pages,
        hash_seed: anchor.hash_seed,
    };
    let file = ImageFile::open(options.images[0].as_ref(), slot, &anchor.uuid);
    let listed = read_directory(options.data.as_ref(), anchor, slot, &geometry);
    let (Ok(file), Ok(listed)) = (file, listed) else {
        return false;
    };
    let mut bytes = AlignedBuf::zeroed(PAGE_BYTES);
    let mut pages = (0..geometry.partitions)
        .map(PartitionId)
        .flat_map(|partition| {
            let present = listed.directory.present(partition);
            present.filter_map(move |(local, entry)| {
                Some((geometry.page_id(partition, local)?, entry))
            })
        });
    pages.all(|(page, entry)| {
        let read = file.read(Places::of(anchor).place(page), &mut bytes);
        read.is_ok() && ImageFile::is_listed(page, &bytes, &entry)
    })
}

/// The files of a disk.
fn contents(disk: &dyn Disk) -> Check<Files> {
    let text = |error: Error| error.to_string();
    let mut files = Files::new();
    for folder in ["", "image-a", "image-b", "log"] {
        for name in disk.list(folder).unwrap_or_default() {
            let path = match folder {
                "" => name,
                folder => format!("{folder}/{name}"),
            };
            let Ok(file) = disk.open(&path, Access::Buffered) else {
                continue;
            };
            let mut bytes = vec![0; to_usize(file.len().map_err(text)?)];
            file.read_at(0, &mut bytes).map_err(text)?;
            files.insert(path, Arc::new(bytes));
        }
    }
    Ok(files)
}

enum Wrong {
    Lost(String),
    Other(String),
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong::Other(text)
    }
}

fn disk_of(files: &Files, folders: &[&str]) -> Check<MemDisk> {
    let disk = MemDisk::new();
    let text = |error: Error| error.to_string();
    for folder in folders {
        disk.make_dir(folder).map_err(text)?;
    }
    for (path, bytes) in files {
        let file = disk.create(path, Access::Buffered).map_err(text)?;
        file.write_at(0, bytes).map_err(text)?;
    }
    Ok(disk)
}

/// Sweeps over one database.
///
/// # Errors
/// The small database could not be made.
pub fn sweep(seed: u64, streams: u8, age: Age) -> Check<Swept> {
    let subject = Subject::new(seed, streams, age)?;
    let foreign = Subject::new(seed ^ 0xf0, streams, age)?;
    let mut sweep = Sweep {
        subject: &subject,
        out: Swept::default(),
        salvaged: Cell::new(0),
    };
    sweep.case("nothing", &subject.now, &FOLDERS);
    sweep.ends();
    sweep.exchanges(&foreign);
    sweep.deletions();
    sweep.out.salvaged = sweep.salvaged.get();
    Ok(sweep.out)
}

impl Sweep<'_> {
    fn replaced(&mut self, path: &str, bytes: Vec<u8>, what: &str) {
        let mut files = self.subject.now.clone();
        files.insert(path.to_owned(), Arc::new(bytes));
        self.case(&format!("{path} {what}"), &files, &FOLDERS);
    }

    /// Every file cut at every sector, zeroed from there on, and with a bit flipped there.
    fn ends(&mut self) {
        const CUT_BYTES: usize = 512;
        const FLIP_AT: usize = 9;
        let subject = self.subject;
        for (path, bytes) in &subject.now {
            for at in (0..bytes.len()).step_by(CUT_BYTES) {
                self.replaced(path, bytes[..at].to_vec(), &format!("truncated to {at}"));
                if bytes[at..].iter().any(|byte| *byte != 0) {
                    let mut zeroed = bytes[..at].to_vec();
                    zeroed.resize(bytes.len(), 0);
                    self.replaced(path, zeroed, &format!("zeroed from {at} on"));
                    let mut flipped = bytes.to_vec();
                    let place = (at + FLIP_AT).min(bytes.len() - 1);
                    flipped[place] ^= 0x10;
                    self.replaced(path, flipped, &format!("flipped at {place}"));
                }
            }
        }
    }

    /// Every file replaced by what it was and by every other file of its kind, here and elsewhere.
    fn exchanges(&mut self, foreign: &Subject) {
        let subject = self.subject;
        for (path, bytes) in &subject.now {
            let versions = subject.older.get(path).into_iter().flatten();
            for (number, older) in versions.enumerate() {
                self.replaced(path, older.to_vec(), &format!("as version {number} of it"));
            }
            let others = |files: &Files| -> Vec<(String, Arc<Vec<u8>>)> {
                let like = |other: &&String| kind(other) == kind(path);
                let paths = files.keys().filter(like);
                paths
                    .map(|other| (other.clone(), Arc::clone(&files[other])))
                    .collect()
            };
            for (other, theirs) in others(&subject.now) {
                if other != *path && theirs != *bytes {
                    self.replaced(path, theirs.to_vec(), &format!("replaced by {other}"));
                }
            }
            for (other, theirs) in others(&foreign.now) {
                let what = format!("replaced by {other} of another database");
                self.replaced(path, theirs.to_vec(), &what);
            }
        }
        // A whole log of another database, instead of ours and beside it.
        let logs = foreign
            .now
            .iter()
            .filter(|(path, _)| path.starts_with("log/"));
        let theirs: Files = logs
            .map(|(path, bytes)| (path.clone(), Arc::clone(bytes)))
            .collect();
        let mut beside = theirs.clone();
        beside.extend(subject.now.clone());
        self.case("another database's log beside", &beside, &FOLDERS);
        let mut instead = subject.now.clone();
        instead.retain(|path, _| !path.starts_with("log/"));
        instead.extend(theirs);
        self.case("another database's log instead", &instead, &FOLDERS);
    }

    /// Every subset of each directory deleted, and every subset of what stands in the root.
    fn deletions(&mut self) {
        let paths: BTreeSet<&String> = self.subject.now.keys().collect();
        for folder in FOLDERS {
            let within = |path: &&&String| path.starts_with(&format!("{folder}/"));
            let units: Vec<String> = paths.iter().filter(within).map(|p| (**p).clone()).collect();
            self.subsets(&units);
        }
        let mut units: Vec<String> = FOLDERS.map(str::to_owned).to_vec();
        units.extend(
            paths
                .iter()
                .filter(|p| !p.contains('/'))
                .map(|p| (**p).clone()),
        );
        self.subsets(&units);
    }

    fn subsets(&mut self, units: &[String]) {
        let all = units.len() <= SUBSET_FILES_MAX;
        for set in 1u64..1 << units.len().min(20) {
            if !all
                && set.count_ones() > 2
                && set.count_ones() < u32::try_from(units.len()).unwrap_or(0)
            {
                continue;
            }
            let chosen = |at: &usize| set >> at & 1 == 1;
            let gone: Vec<&String> = (0..units.len())
                .filter(chosen)
                .map(|at| &units[at])
                .collect();
            let is_gone = |path: &str| {
                let at = |unit: &&&String| path == **unit || path.starts_with(&format!("{unit}/"));
                gone.iter().any(|unit| at(&unit))
            };
            let mut files = self.subject.now.clone();
            files.retain(|path, _| !is_gone(path));
            let folders: Vec<&str> = FOLDERS.into_iter().filter(|f| !is_gone(f)).collect();
            self.case(&format!("without {gone:?}"), &files, &folders);
        }
    }
}
