//! A disk over another disk, for work that must write files and may change nothing: a dry run that restarts a tree.
//!
//! ```text
//! read ──► block was written? ──yes──► scratch file          write ──► scratch file, at the block's place there
//!                             └──no───► the disk below
//! ```
//! Written blocks of all files go to one scratch file, so the work *pays for its I/O*. One write to the overlay is one
//! write below, a read of written bytes reads the scratch file, and a sync syncs it. The places of the blocks are known
//! in memory alone (about 32 bytes a block). The scratch file loses its name as soon as it is open, so that a killed
//! process leaves nothing.
//!
//! # Invariants
//! * The overlay opens, reads and lists the disk below, and never changes it. Nothing else may change it in the
//!   meantime.
//! * The bytes of a file's blocks behind its end are zeros.
//! * A block keeps its place in the scratch file until the overlay is dropped.
//!
//! # Differences from a disk
//! * A write of a part of a block reads the block first.
//! * Blocks lie in the scratch file in the order in which they were first written, so scattered writes become adjacent
//!   ones.
//! * Allocation takes no space: a full disk shows when the blocks are written.
//! * A lock that exists below is taken there, too. Any other lock belongs to this overlay alone.

mod blocks;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Error, Result};

use self::blocks::{Blocks, OverlayFile, Scratch};
use crate::path::{check_dir, check_file, name_in, parent};
use crate::{Access, Disk, File};

/// The name of the scratch file in its directory. The process's number follows, because several processes may work at a
/// time.
const SCRATCH: &str = "overlay.scratch.";

/// A disk over another one that it does not change.
pub struct OverlayDisk {
    below: Arc<dyn Disk>,
    scratch: Arc<Scratch>,
    names: Arc<Mutex<Names>>,
}

/// The differences from the names below.
#[derive(Default)]
struct Names {
    /// Files that were made or opened here. They hide those below.
    files: BTreeMap<String, Arc<Blocks>>,
    /// Names below that were removed or renamed here.
    gone: BTreeSet<String>,
    dirs: BTreeSet<String>,
    locked: BTreeSet<String>,
}

impl OverlayDisk {
    /// Makes an overlay over `below`, with its scratch file in the directory `dir` of the disk `scratch`. Removes the
    /// file that an earlier process with this one's number left there.
    ///
    /// # Errors
    /// The errors of `scratch`. A missing directory is one.
    pub fn new(below: Arc<dyn Disk>, scratch: &dyn Disk, dir: &str) -> Result<OverlayDisk> {
        let name = format!("{SCRATCH}{}", std::process::id());
        let path = match check_dir(dir)? {
            "" => name,
            dir => format!("{dir}/{name}"),
        };
        match scratch.remove(&path) {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        Ok(OverlayDisk {
            below,
            scratch: Arc::new(Scratch::make(scratch, &path)?),
            names: Arc::default(),
        })
    }

    /// Returns the names in a directory below. `None`: the directory does not exist.
    fn names_below(&self, dir: &str) -> Result<Option<Vec<String>>> {
        match self.below.list(dir) {
            Ok(names) => Ok(Some(names)),
            Err(Error::Io { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn has_dir(&self, names: &Names, dir: &str) -> Result<bool> {
        Ok(dir.is_empty() || names.dirs.contains(dir) || self.names_below(dir)?.is_some())
    }

    /// Returns whether a file or a directory has this name.
    fn has(&self, names: &Names, path: &str) -> Result<bool> {
        if names.files.contains_key(path) || names.dirs.contains(path) {
            return Ok(true);
        }
        let below = self.names_below(parent(path))?.unwrap_or_default();
        let is_below = below
            .iter()
            .any(|name| name_in(parent(path), path) == Some(name));
        Ok(is_below && !names.gone.contains(path))
    }

    /// Fails if the directory of `path` does not exist. Checks nothing else.
    fn check_room(&self, names: &Names, op: &'static str, path: &str) -> Result<()> {
        if self.has_dir(names, parent(path))? {
            return Ok(());
        }
        Err(failed(op, path, io::ErrorKind::NotFound))
    }

    /// Returns the file at a name, from the overlay or from below.
    fn file(&self, names: &mut Names, op: &'static str, path: &str) -> Result<Arc<Blocks>> {
        if let Some(file) = names.files.get(path) {
            return Ok(Arc::clone(file));
        }
        if names.gone.contains(path) {
            return Err(failed(op, path, io::ErrorKind::NotFound));
        }
        if names.dirs.contains(path) {
            return Err(failed(op, path, io::ErrorKind::IsADirectory));
        }
        let len = self.below.open(path, Access::Buffered)?.len()?;
        let file = Arc::new(Blocks::over(path, len));
        names.files.insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn create_empty(&self, names: &mut Names, op: &'static str, path: &str) -> Result<Arc<Blocks>> {
        self.check_room(names, op, path)?;
        if self.has(names, path)? {
            return Err(failed(op, path, io::ErrorKind::AlreadyExists));
        }
        let file = Arc::new(Blocks::empty());
        names.files.insert(path.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn opened(&self, path: &str, access: Access, blocks: Arc<Blocks>) -> Result<Arc<dyn File>> {
        let below = blocks.path_below();
        let below = below.map(|path| self.below.open(path, access));
        let scratch = Arc::clone(&self.scratch);
        let file = OverlayFile::new(path, access, blocks, below.transpose()?, scratch);
        Ok(Arc::new(file))
    }
}

fn failed(op: &'static str, path: &str, kind: io::ErrorKind) -> Error {
    Error::io(op, path, io::Error::from(kind))
}

impl Names {
    /// Moves a file to a name and replaces any file there.
    fn put(&mut self, from: &str, to: &str, file: Arc<Blocks>) {
        assert!(!self.dirs.contains(to), "{to} is a directory");
        self.take(from);
        self.gone.insert(to.to_owned());
        self.files.insert(to.to_owned(), file);
    }

    fn take(&mut self, path: &str) {
        let taken = self.files.remove(path);
        assert!(taken.is_some(), "{path} was found first");
        self.gone.insert(path.to_owned());
    }
}

impl Disk for OverlayDisk {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let blocks = self.create_empty(&mut self.names.lock(), "create", path)?;
        self.opened(path, access, blocks)
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let blocks = self.file(&mut self.names.lock(), "open", path)?;
        self.opened(path, access, blocks)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let dir = check_dir(dir)?;
        let names = self.names.lock();
        if !self.has_dir(&names, dir)? {
            return Err(failed("list", dir, io::ErrorKind::NotFound));
        }
        let below = self.names_below(dir)?.unwrap_or_default();
        let is_gone = |name: &String| {
            let gone = |path: &String| name_in(dir, path) == Some(name);
            names.gone.iter().any(gone)
        };
        let mut found: BTreeSet<String> = below.into_iter().filter(|name| !is_gone(name)).collect();
        let here = names.files.keys().chain(&names.dirs);
        found.extend(
            here.filter_map(|path| name_in(dir, path))
                .map(str::to_owned),
        );
        Ok(found.into_iter().collect())
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        let mut dir = check_dir(dir)?;
        let mut names = self.names.lock();
        let mut made = Vec::new();
        while !self.has_dir(&names, dir)? {
            if self.has(&names, dir)? {
                return Err(failed(
                    "create directory",
                    dir,
                    io::ErrorKind::NotADirectory,
                ));
            }
            made.push(dir.to_owned());
            dir = parent(dir);
        }
        names.dirs.extend(made);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let mut names = self.names.lock();
        let file = self.file(&mut names, "rename", from)?;
        self.check_room(&names, "rename", to)?;
        if self.has_dir(&names, to)? {
            return Err(failed("rename", to, io::ErrorKind::IsADirectory));
        }
        names.put(from, to, file);
        Ok(())
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let mut names = self.names.lock();
        let file = self.file(&mut names, "publish", from)?;
        self.check_room(&names, "publish", to)?;
        if self.has(&names, to)? {
            return Err(failed("publish", to, io::ErrorKind::AlreadyExists));
        }
        names.put(from, to, file);
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<()> {
        check_file(path)?;
        let mut names = self.names.lock();
        self.file(&mut names, "remove", path)?;
        names.take(path);
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        let dir = check_dir(dir)?;
        if !self.has_dir(&self.names.lock(), dir)? {
            return Err(failed("sync directory", dir, io::ErrorKind::NotFound));
        }
        self.scratch.sync(Access::Buffered)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        check_file(path)?;
        let mut names = self.names.lock();
        let below = if self.has(&names, path)? {
            let file = self.file(&mut names, "lock", path)?;
            let below = file.path_below();
            below.map(|path| self.below.lock(path)).transpose()?
        } else {
            self.create_empty(&mut names, "lock", path)?;
            None
        };
        if !names.locked.insert(path.to_owned()) {
            return Err(Error::Locked { dir: self.name() });
        }
        Ok(Box::new(Guard {
            names: Arc::clone(&self.names),
            path: path.to_owned(),
            _below: below,
        }))
    }

    fn name(&self) -> String {
        self.below.name()
    }
}

/// A guard that releases the lock when it is dropped.
struct Guard {
    names: Arc<Mutex<Names>>,
    path: String,
    _below: Option<Box<dyn Any + Send + Sync>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let held = self.names.lock().locked.remove(&self.path);
        debug_assert!(held, "the lock on {} is held until here", self.path);
    }
}

#[cfg(test)]
mod tests;
