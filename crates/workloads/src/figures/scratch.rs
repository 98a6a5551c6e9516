//! A directory of an experiment, which is removed at the end of the experiment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// A directory that is removed when the `Scratch` is dropped.
pub(super) struct Scratch {
    /// The path of the directory.
    pub dir: PathBuf,
}

impl Scratch {
    /// Makes a directory in memory if there is a file system in memory, and otherwise a temporary
    /// directory.
    pub fn in_memory() -> Result<Scratch> {
        let memory = Path::new("/dev/shm");
        match memory.is_dir() {
            true => Scratch::within(memory),
            false => Scratch::within(&std::env::temp_dir()),
        }
    }

    /// Makes a new directory in `base`.
    pub fn within(base: &Path) -> Result<Scratch> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("perdura-figures-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Scratch { dir })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
