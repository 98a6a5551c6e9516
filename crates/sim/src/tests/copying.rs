//! Tests of copies of a running database. A copier reads file by file and piece by piece while the database works.
//!
//! docs/operate/back-up.md gives the order and the conditions of a copy. A copy that meets the conditions must start.
//! It must hold whole epochs without a gap, with every transaction acknowledged before the copying began. A copy that
//! violates the conditions must start and hold the same, or it must be refused with an error that names the cause.
//!
//! The simulator showed that the conditions are needed:
//!
//! * If writes are not paused, a copier reads zeros beyond the end of the log. The writer then fills this region and
//!   continues ahead of the copier. The copy of the log then has a gap. Blocks after the gap prove that log is missing.
//! * If a checkpoint completes during the copying, it leaves an image directory that the copied anchor does not name.
//!   The checkpoint also overwrites the pages of the older image.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura::databases::names_databases;
use perdura::{Core, Env, Error, Progress};
use perdura_base::num::to_u64;
use perdura_device::{Access, Clock, Disk, MemDisk};
use perdura_recovery::Disks;
use perdura_recovery::Method;
use perdura_recovery::salvage::{Condition, salvage};
use perdura_wal::Scheme;

use crate::over_core::{OverCore, dry_run_options};
use crate::report::Check;
use crate::tests::damage::empty;
use crate::world::World;

/// The rule of docs/operate/back-up.md that a copier breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// No rule is broken.
    None,
    /// Writes continue while the copier copies the log.
    Unpaused,
    /// Checkpoints begin and end while the copier copies the database.
    Checkpoints,
    /// The copier copies the log first and the anchor last.
    Backwards,
}

/// The result of opening a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copied {
    /// The copy starts, with everything that it must hold.
    Starts,
    /// The copy is refused with this message, which names the cause.
    Refused(String),
}

/// The part of a refusal's text that gives a possible cause: the files are a copy of a running database.
const CAUSE: &str = "a copy of a running database";
/// The directories of a database.
const FOLDERS: [&str; 3] = ["image-a", "image-b", "log"];
/// The size of a copier's reads, in bytes.
const PIECE_BYTES: usize = 4096;

struct Copier {
    world: World,
    breach: Breach,
    files: BTreeMap<String, Vec<u8>>,
}

/// Copies a small database and opens the copy.
///
/// # Errors
/// A description of the fault in the copy.
pub fn copy(seed: u64, streams: u8, breach: Breach) -> Check<Copied> {
    let mut world = empty(seed, streams);
    world.open()?;
    for _ in 0..world.rng.u8(1..=3) {
        let work = world.rng.u32(20..120);
        world.steps(work)?;
        world.checkpoint_now()?;
    }
    world.flush_all()?;
    world.observe();
    let promised = world.must_survive;
    if breach != Breach::Checkpoints {
        world.swarm.odds.begin = 0;
    }
    let mut copier = Copier {
        world,
        breach,
        files: BTreeMap::new(),
    };
    if breach == Breach::Backwards {
        for folder in ["log", "image-a", "image-b"] {
            copier.folder(folder)?;
        }
        copier.file("anchor")?;
    } else {
        copier.file("anchor")?;
        copier.folder("image-a")?;
        copier.folder("image-b")?;
        if breach != Breach::Unpaused {
            copier.pause()?;
        }
        copier.folder("log")?;
    }
    copier.judge(promised)
}

impl Copier {
    /// Stops all writes, makes everything durable, and appends to the log the evidence that everything is durable.
    fn pause(&mut self) -> Check {
        let odds = &mut self.world.swarm.odds;
        (odds.write, odds.purge, odds.empty, odds.draft) = (0, 0, 0, 0);
        self.world.flush_all()?;
        self.world.core().wal().append_beacon();
        self.world.flush_all()
    }

    fn folder(&mut self, folder: &str) -> Check {
        let text = |error: Error| error.to_string();
        for name in self.world.disks[0].list(folder).map_err(text)? {
            self.file(&format!("{folder}/{name}"))?;
        }
        Ok(())
    }

    /// Copies the current content of a file. Skips a file that no longer exists, like `cp -r`.
    fn file(&mut self, path: &str) -> Check {
        let text = |error: Error| error.to_string();
        let file = match self.world.disks[0].open(path, Access::Buffered) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(text(error)),
        };
        let mut bytes = Vec::new();
        loop {
            self.between()?;
            let mut piece = vec![0; PIECE_BYTES * self.world.rng.usize(1..=16)];
            let got = file
                .read_at(to_u64(bytes.len()), &mut piece)
                .map_err(text)?;
            if got == 0 {
                break;
            }
            bytes.extend_from_slice(&piece[..got]);
        }
        self.files.insert(path.to_owned(), bytes);
        Ok(())
    }

    /// Lets the database do up to five steps before the copier reads again.
    fn between(&mut self) -> Check {
        let steps = self.world.rng.u32(0..6);
        self.world.steps(steps)
    }

    fn judge(self, promised: u64) -> Check<Copied> {
        let Copier {
            world,
            files,
            breach,
        } = self;
        let text = |error: Error| error.to_string();
        let disk = MemDisk::new();
        for folder in FOLDERS {
            disk.make_dir(folder).map_err(text)?;
        }
        for (path, bytes) in &files {
            let file = disk.create(path, Access::Buffered).map_err(text)?;
            file.write_at(0, bytes).map_err(text)?;
        }
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let env = Env {
            disks: Disks::on_one(disk, usize::from(world.course.streams)),
            clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
            seed: world.seed ^ 1,
            nodes: None,
            accept_loss: false,
        };
        match Core::open(env.clone(), world.options(), Arc::new(Progress::default())) {
            Ok(core) => {
                let durable = core.report().durable_epoch;
                if durable < promised {
                    return Err(format!("it starts at epoch {durable} of {promised}"));
                }
                world.compare(&core, &world.model.state_at(durable))?;
                core.checkpoint_now().map_err(text)?;
                world.compare(&core, &world.model.state_at(durable))?;
                Ok(Copied::Starts)
            }
            Err(error) => {
                let told = error.to_string();
                if breach == Breach::None {
                    return Err(format!("a copy in the right order is refused: {told}"));
                }
                if !told.contains(CAUSE) {
                    return Err(format!("the refusal does not name the cause: {told}"));
                }
                if breach == Breach::Unpaused {
                    can_be_repaired(&world, &env, promised)?;
                }
                Ok(Copied::Refused(told))
            }
        }
    }
}

/// Checks that `repair` can make a database from a copy with an incomplete log. The result must hold everything
/// acknowledged before the copy began.
fn can_be_repaired(world: &World, env: &Env, promised: u64) -> Check {
    let method = Method::of(Scheme::Differential);
    let options = dry_run_options(env, method, world.swarm.options.schedule);
    let salvaged =
        salvage(&options, &names_databases, &|| None).map_err(|error| error.to_string())?;
    let Condition::Salvaged(salvaged) = salvaged else {
        return Err("repair takes it for whole".to_owned());
    };
    let missing = salvaged.missing;
    match missing.intact_epoch >= promised && missing.pages.is_empty() && !missing.image_alone {
        true => Ok(()),
        false => Err(format!("of {promised} epochs repair saves {missing:?}")),
    }
}
