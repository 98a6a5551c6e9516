//! Directories that a disk keeps open.
//!
//! The log syncs a directory to make the name of a new segment durable. If the directory were not open already, a
//! process without a free descriptor could not open it, and the sync would fail.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Error, Result};

use super::locks::id_of;

/// The maximum number of directories that a disk keeps open. A database has fewer directories on each disk.
const DIRS_MAX: usize = 8;

/// The open directories. The last element was opened last.
#[derive(Debug, Default)]
pub(super) struct OpenDirs(Mutex<VecDeque<(PathBuf, Arc<File>)>>);

impl OpenDirs {
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Errors of the system. If opening the directory failed, the error names the operation `open directory`. If
    /// the sync failed, the error names `sync directory`.
    pub(super) fn sync(&self, dir: &Path) -> Result<()> {
        let named = |op, error| Error::io(op, dir.display().to_string(), error);
        let open = self
            .handle(dir)
            .map_err(|error| named("open directory", error))?;
        open.sync_all()
            .map_err(|error| named("sync directory", error))
    }

    /// Returns an open handle of the directory at this path.
    fn handle(&self, dir: &Path) -> io::Result<Arc<File>> {
        let mut open = self.0.lock();
        let named = id_of(&fs::metadata(dir)?);
        if let Some(at) = open.iter().position(|(path, _)| path == dir) {
            let known = Arc::clone(&open[at].1);
            if id_of(&known.metadata()?) == named {
                return Ok(known);
            }
            // The path leads to another directory now.
            open.remove(at);
        }
        debug_assert!(
            open.iter().all(|(path, _)| path != dir),
            "a directory is open once"
        );
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY);
        let opened = Arc::new(options.open(dir)?);
        if open.len() == DIRS_MAX {
            open.pop_front();
        }
        open.push_back((dir.to_path_buf(), Arc::clone(&opened)));
        assert!(
            open.len() <= DIRS_MAX,
            "{} directories are open",
            open.len()
        );
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_open_as_long_as_its_path_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let dirs = OpenDirs::default();
        fs::create_dir(at("a")).unwrap();
        let first = dirs.handle(&at("a")).unwrap();
        dirs.sync(&at("a")).unwrap();
        assert!(Arc::ptr_eq(&first, &dirs.handle(&at("a")).unwrap()));
        fs::rename(at("a"), at("b")).unwrap();
        assert!(dirs.sync(&at("a")).unwrap_err().is_not_found());
        fs::create_dir(at("a")).unwrap();
        let second = dirs.handle(&at("a")).unwrap();
        assert!(!Arc::ptr_eq(&first, &second), "the new directory is synced");
        for number in 0..20 {
            let path = at(&number.to_string());
            fs::create_dir(&path).unwrap();
            dirs.sync(&path).unwrap();
        }
        assert_eq!(dirs.0.lock().len(), DIRS_MAX);
        fs::write(at("file"), "").unwrap();
        assert!(dirs.sync(&at("file")).is_err());
    }
}
