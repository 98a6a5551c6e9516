//! The directories and files that an open database uses, by their inodes.
//!
//! A process can still write to an open file after the file's name is removed. So the process does not notice that an
//! `rm -r` removes the data directory, or that a copy replaces it. A restart would not find the transactions that
//! committed after this event. Therefore [`Footing::check`] runs before the anchor vouches for an epoch. The check
//! compares each path's present file or directory with the opened file or directory.
//!
//! # Invariants
//! * A loss is proven only if a path no longer exists or leads to something else. Any other error of checking a path
//!   proves nothing.

use std::sync::Arc;

use perdura_base::{Error, ImageSlot, Result, StreamId};
use perdura_device::{Disk, FileId};
use perdura_wal::anchor::ANCHOR_PATH;
use perdura_wal::segment::LOG_DIR;

use crate::disks::{Disks, LOCK_PATH, image_lock, log_lock};
use crate::image::folder;

/// The files and directories that were found at the paths of a database.
#[derive(Default)]
pub struct Footing(Vec<Foothold>);

struct Foothold {
    disk: Arc<dyn Disk>,
    path: String,
    id: FileId,
}

impl Footing {
    /// Returns the files and directories that are at the paths now.
    #[must_use]
    pub fn of(disks: &Disks) -> Footing {
        let mut footing = Footing::default();
        footing.note(disks);
        footing
    }

    /// Notes which file or directory each path leads to. A path that was noted before is not noted again.
    pub fn note(&mut self, disks: &Disks) {
        let data = &disks.data;
        for path in ["", LOCK_PATH, ANCHOR_PATH] {
            self.note_path(data, path);
        }
        for (stream, log) in (0..).map(StreamId).zip(&disks.logs) {
            for path in ["", LOG_DIR, &log_lock(stream)] {
                self.note_path(log, path);
            }
        }
        for (number, image) in disks.images.iter().enumerate() {
            self.note_path(image, "");
            self.note_path(image, &image_lock(number));
            for slot in ImageSlot::ALL {
                self.note_path(image, folder(slot));
            }
        }
    }

    fn note_path(&mut self, disk: &Arc<dyn Disk>, path: &str) {
        let is_known = |held: &Foothold| held.path == path && Arc::ptr_eq(&held.disk, disk);
        if self.0.iter().any(is_known) {
            return;
        }
        if let Ok(Some(id)) = disk.identity(path) {
            let (disk, path) = (Arc::clone(disk), path.to_owned());
            self.0.push(Foothold { disk, path, id });
        }
    }

    /// Fails if a path no longer leads to the file or directory that was noted.
    ///
    /// # Errors
    /// [`Error::Displaced`].
    pub fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(Foothold::check)
    }
}

impl Foothold {
    fn check(&self) -> Result<()> {
        let what = match self.disk.identity(&self.path) {
            Ok(Some(id)) if id != self.id => "another file or directory has its name",
            Err(error) if error.is_not_found() || error.is_of_another_kind() => "it is gone",
            Ok(_) | Err(_) => return Ok(()),
        };
        let place = match self.path.as_str() {
            "" => self.disk.name(),
            path => format!("{}/{path}", self.disk.name()),
        };
        Err(Error::Displaced(format!("{place}: {what}")))
    }
}

#[cfg(test)]
mod tests {
    use perdura_device::{Access, FileDisk, MemDisk};

    use super::*;

    fn noted(disk: &Arc<dyn Disk>) -> Footing {
        disk.make_dir(LOG_DIR).unwrap();
        disk.create(ANCHOR_PATH, Access::Buffered).unwrap();
        drop(disk.lock(LOCK_PATH).unwrap());
        let mut footing = Footing::default();
        let disks = Disks::on_one(Arc::clone(disk), 2);
        footing.note(&disks);
        let before = footing.0.len();
        assert_eq!(before, 4, "root, log directory, lock and anchor");
        footing.note(&disks);
        assert_eq!(footing.0.len(), before, "each is noted once");
        footing.check().unwrap();
        footing
    }

    #[test]
    fn a_file_that_is_removed_or_replaced_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let mem: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let real = FileDisk::shared(&dir.path().join("db")).unwrap();
        for disk in [mem, real] {
            let footing = noted(&disk);
            for path in [LOCK_PATH, ANCHOR_PATH] {
                disk.rename(path, "aside").unwrap();
                let missed = footing.check().unwrap_err();
                assert!(missed.is_fenced(), "{missed}");
                let said = missed.to_string();
                assert!(said.contains(path) && said.contains("it is gone"), "{said}");
                disk.create(path, Access::Buffered).unwrap();
                let said = footing.check().unwrap_err().to_string();
                assert!(said.contains("another file"), "{said}");
                disk.rename("aside", path).unwrap();
                footing.check().unwrap();
            }
        }
    }

    #[test]
    fn a_directory_that_is_moved_away_or_replaced_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("db");
        let disk = FileDisk::shared(&root).unwrap();
        let footing = noted(&disk);
        let aside = dir.path().join("aside");
        for path in [root.clone(), root.join(LOG_DIR)] {
            std::fs::rename(&path, &aside).unwrap();
            assert!(footing.check().is_err(), "{}", path.display());
            std::fs::create_dir(&path).unwrap();
            assert!(footing.check().is_err(), "{}", path.display());
            std::fs::remove_dir(&path).unwrap();
            std::fs::rename(&aside, &path).unwrap();
            footing.check().unwrap();
        }
    }
}
