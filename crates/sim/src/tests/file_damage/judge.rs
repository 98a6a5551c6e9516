//! The verdict on a damaged database. `verify`, a dry run and an ordinary start must agree. A database that starts must
//! hold a durable prefix: all epochs up to some epoch. A salvage of a refused database must succeed.

use std::sync::Arc;

use perdura::databases::names_databases;
use perdura::{Core, Env, Error, Progress};
use perdura_base::error::Family;
use perdura_base::limits::{PAGE_BYTES, SECTOR_BYTES};
use perdura_base::{ImageSlot, PartitionId, Uuid};
use perdura_device::{AlignedBuf, Clock, Disk, MemDisk};
use perdura_recovery::Anchor;
use perdura_recovery::Disks;
use perdura_recovery::image::{ImageFile, Places, read_directory};
use perdura_recovery::read_anchor;
use perdura_recovery::salvage::{Condition, build, salvage};
use perdura_recovery::verify::verify;
use perdura_recovery::{LogMemory, Method, RestartOptions, restart};
use perdura_wal::Scheme;

use super::subject::{Files, contents, disk_of};
use super::{Sweep, kind};
use crate::over_core::{OverCore, dry_run_options};

/// The result of `verify`, of a dry run, or of a start.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
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

/// The reason why a case fails.
pub(super) enum Wrong {
    /// A loss of acknowledged data that the anchor vouched for.
    Lost(String),
    Other(String),
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong::Other(text)
    }
}

impl Sweep<'_> {
    /// Returns the verdict on a database. All three checks must give the same verdict, and nothing may be lost.
    pub(super) fn judge(&self, files: &Files, folders: &[&str]) -> Result<Verdict, Wrong> {
        let disk: Arc<dyn Disk> = Arc::new(disk_of(files, folders)?);
        let world = &self.subject.world;
        let env = Env {
            disks: Disks::on_one(Arc::clone(&disk), usize::from(world.course.streams)),
            clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
            seed: world.seed ^ 1,
            nodes: None,
            accept_loss: false,
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

    /// Salvages a database that was refused. The salvage must make a new database that holds exactly everything up to
    /// some epoch. It may fail only if [`may_refuse`](Self::may_refuse) accepts the failure.
    fn salvage(
        &self,
        options: &RestartOptions,
        env: &Env,
        disk: &dyn Disk,
        files: &Files,
    ) -> Result<(), Wrong> {
        let salvaged = match salvage(options, &names_databases, &|| None) {
            Ok(Condition::Salvaged(salvaged)) => *salvaged,
            Ok(Condition::Whole) => return Err("salvage takes it for whole".to_owned().into()),
            Err(error) => return self.may_refuse(options, error),
        };
        let missing = salvaged.missing.clone();
        let target: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let into = RestartOptions {
            archived: None,
            disks: Disks::on_one(target, env.disks.logs.len()),
            clock: Arc::clone(&env.clock),
            memory: Arc::clone(&options.memory),
            progress: Arc::clone(&options.progress),
            ordered: options.ordered.clone(),
            catalog: Arc::clone(&options.catalog),
            mode: perdura_recovery::RestartMode::Real,
            methods: options.methods.clone(),
            ..*options
        };
        let (world, text) = (&self.subject.world, |error: Error| {
            format!("{missing:?}: {error}")
        });
        let limits = LogMemory {
            block_bytes_max: world.swarm.options.block_bytes_max,
            queue_bytes_max: world.swarm.options.queue_bytes_max,
            lanes: 1,
            mirror: None,
        };
        build(salvaged, &into, Uuid([7; 16]), limits).map_err(text)?;
        let env = Env {
            disks: into.disks,
            ..env.clone()
        };
        let opened = Core::open(env, world.options(), Arc::new(Progress::default()));
        let core = opened.map_err(text)?;
        if contents(disk)? != *files {
            return Err("salvage changed the damaged database".to_owned().into());
        }
        // The models can predict neither a state that lacks pages nor the state of an image without its log.
        if missing.pages.is_empty() && !missing.image_alone {
            let expected = self.subject.state_at(missing.intact_epoch);
            let same = world.compare(&core, &expected);
            same.map_err(|what| Wrong::Other(format!("salvaged {missing:?}: {what}")))?;
            self.salvaged.set(self.salvaged.get() + 1);
        }
        Ok(())
    }

    /// Accepts a failed salvage in two cases. The first is that the anchor cannot be read. The second is that no image
    /// is usable and the log does not reach back to the database's creation. An image is unusable if it is incomplete
    /// or one of these parts cannot be read: header, directory or page (docs/operate/damage.md).
    fn may_refuse(&self, options: &RestartOptions, error: Error) -> Result<(), Wrong> {
        let Ok(Some(anchor)) = read_anchor(options.disks.data.as_ref()) else {
            return Ok(());
        };
        let suffices = |slot: &ImageSlot| {
            let image = anchor.image(*slot);
            image.is_complete() && is_readable(options, &anchor, *slot)
        };
        match ImageSlot::ALL.iter().find(|slot| suffices(slot)) {
            None => Ok(()),
            Some(slot) => {
                Err(format!("image {slot} is there, and nothing was salvaged: {error}").into())
            }
        }
    }

    /// Checks that no remains of a database are left where no database was found.
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

/// Returns whether an image and all of its pages can be read.
fn is_readable(options: &RestartOptions, anchor: &Anchor, slot: ImageSlot) -> bool {
    let geometry = anchor.geometry;
    let file = ImageFile::open(options.disks.images[0].as_ref(), slot, &anchor.uuid);
    let listed = read_directory(options.disks.data.as_ref(), anchor, slot, &geometry);
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
