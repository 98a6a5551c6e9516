//! A small database as files, with the earlier contents of these files.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura::{CheckpointProgress, Error};
use perdura_base::num::to_usize;
use perdura_device::{Access, CrashProfile, Disk, MemDisk};

use crate::model::{Model, State};
use crate::report::Check;
use crate::tests::damage::empty;
use crate::world::World;

/// Files by path.
pub(super) type Files = BTreeMap<String, Arc<Vec<u8>>>;

/// The history of the small database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The database has never taken a checkpoint.
    Young,
    /// The database had one life and took one checkpoint. Transactions ran during the checkpoint. The log also has
    /// records from before the checkpoint.
    Midway,
    /// The database had two lives, and took two checkpoints in each.
    Grown,
    /// The database had three lives, and took one checkpoint in the third. The log of the first life is no longer
    /// needed.
    Old,
}

/// A small database as files, with the earlier contents of these files.
pub(super) struct Subject {
    pub(super) world: World,
    pub(super) now: Files,
    /// The earlier contents of each file, without those equal to its present content.
    pub(super) older: BTreeMap<String, Vec<Arc<Vec<u8>>>>,
    /// The epoch that a start must reach.
    pub(super) vouched: u64,
    /// The model and the first epoch of each life, oldest life first.
    pub(super) models: Vec<(u64, Model)>,
}

impl Subject {
    pub(super) fn new(seed: u64, streams: u8, age: Age) -> Check<Subject> {
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
            // After two flushes everything is durable, and the log has the evidence for it.
            subject.world.flush_all()?;
            subject.world.flush_all()?;
            let vouched = subject.world.core().vouch();
            vouched.map_err(|error| format!("vouching: {error}"))?;
            subject.world.observe();
            subject.look()?;
            let before = subject.models.last().map(|(floor, _)| *floor);
            assert!(
                before <= Some(floor) && floor <= subject.world.must_survive,
                "a life begins at epoch {floor}, the one before it at {before:?}"
            );
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

    /// Returns the expected rows of the database at a durable epoch.
    pub(super) fn state_at(&self, epoch: u64) -> State {
        let mut lives = self.models.iter().rev();
        let of_life = lives.find(|(floor, _)| *floor <= epoch);
        of_life.map_or_else(State::default, |(_, model)| model.state_at(epoch))
    }

    /// Takes a checkpoint, and runs transactions between its steps.
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

    /// Records the current content of every file.
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

/// Returns the files of a disk.
pub(super) fn contents(disk: &dyn Disk) -> Check<Files> {
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

/// Returns a disk with these files and directories.
pub(super) fn disk_of(files: &Files, folders: &[&str]) -> Check<MemDisk> {
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
