//! A disk on top of another disk, *the disk below*. All changes go to a scratch file, and the disk below stays
//! unchanged. A trial restart uses such a disk, because it must write files but may change nothing.
//!
//! ```text
//! read ──► block was written? ──yes──► scratch file          write ──► scratch file, at the block's place there
//!                             └──no───► the disk below
//! ```
//! The written blocks of all files go to one scratch file, so work on an overlay costs real I/O. A write to the overlay
//! is one write to the scratch file. A read of written bytes reads the scratch file, and a sync syncs it. The positions
//! of the blocks are only in memory (about 32 bytes a block). The overlay removes the name of the scratch file once the
//! file is open, so a killed process leaves nothing.
//!
//! # Invariants
//! * The overlay only opens, reads and lists files of the disk below. Nothing else may change that disk while the
//!   overlay exists.
//! * After the end of a file, the rest of its last block is zeros.
//! * A block keeps its position in the scratch file until the overlay is dropped.
//!
//! # Differences from other disks
//! * A write of a part of a block first reads the block.
//! * The blocks are in the scratch file in the order of their first writes. So scattered writes become adjacent.
//! * Allocation takes no space. If the disk is full, a later write of the blocks fails.
//! * If a lock file exists on the disk below, it is locked there too. Any other lock is known only in this overlay.

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

/// The beginning of the scratch file's name. The id of the process follows, because several processes may use one
/// directory.
const SCRATCH: &str = "overlay.scratch.";

/// A disk on top of another disk, which stays unchanged.
pub struct OverlayDisk {
    below: Arc<dyn Disk>,
    scratch: Arc<Scratch>,
    names: Arc<Mutex<Names>>,
}

/// The names that the overlay has recorded. Any other name is as on the disk below.
#[derive(Default)]
struct Names {
    /// Files created or opened in the overlay. Each hides the file of the same name on the disk below.
    files: BTreeMap<String, Arc<Blocks>>,
    /// Names that exist on the disk below but were removed or renamed in the overlay.
    gone: BTreeSet<String>,
    dirs: BTreeSet<String>,
    locked: BTreeSet<String>,
}

impl OverlayDisk {
    /// Makes an overlay over `below`. Its scratch file is in directory `dir` of disk `scratch`. Removes a scratch file
    /// that an earlier process with the same process id has left there.
    ///
    /// # Errors
    /// Errors of `scratch`, for example if the directory `dir` does not exist.
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

    /// Returns the names in a directory of the disk below. `None`: the directory does not exist.
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

    /// Returns whether a file or a directory of this name exists.
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

    /// Fails if the parent directory of `path` does not exist.
    fn check_room(&self, names: &Names, op: &'static str, path: &str) -> Result<()> {
        if self.has_dir(names, parent(path))? {
            return Ok(());
        }
        Err(failed(op, path, io::ErrorKind::NotFound))
    }

    /// Returns the file that has this name in the overlay. It may still be unchanged from the disk below.
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
    /// Renames a file. Replaces an existing file of the new name.
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
