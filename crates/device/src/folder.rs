//! A folder of a disk, used as a separate disk.

use std::any::Any;
use std::sync::Arc;

use perdura_base::Result;

use crate::path::{check_dir, check_file};
use crate::{Access, Disk, DurableQueue, File, FileId, Locks, LogWayReport};

/// A folder of a parent disk, used as a disk. Messages name files by paths on the parent disk.
pub struct Folder {
    disk: Arc<dyn Disk>,
    root: String,
}

impl Folder {
    /// Returns folder `root` of a disk. The folder need not exist: [`make_dir`](Disk::make_dir) with an empty path
    /// makes it.
    ///
    /// # Errors
    /// [`Error::Usage`](perdura_base::Error::Usage) for a path that leads out of the disk's root.
    pub fn new(disk: Arc<dyn Disk>, root: &str) -> Result<Folder> {
        check_file(root)?;
        let root = root.to_owned();
        Ok(Folder { disk, root })
    }

    fn file(&self, path: &str) -> Result<String> {
        check_file(path)?;
        Ok(format!("{}/{path}", self.root))
    }

    fn dir(&self, dir: &str) -> Result<String> {
        match check_dir(dir)? {
            "" => Ok(self.root.clone()),
            dir => self.file(dir),
        }
    }
}

impl Disk for Folder {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        self.disk.create(&self.file(path)?, access)
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        self.disk.open(&self.file(path)?, access)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.disk.list(&self.dir(dir)?)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        self.disk.make_dir(&self.dir(dir)?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(&self.file(from)?, &self.file(to)?)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.disk.publish(&self.file(from)?, &self.file(to)?)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.disk.remove(&self.file(path)?)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.disk.sync_dir(&self.dir(dir)?)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.disk.lock(&self.file(path)?)
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        self.disk.lock_present(&self.dir(path)?)
    }

    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        self.disk.identity(&self.dir(path)?)
    }

    fn keep_locked(&self, locks: &Locks) {
        self.disk.keep_locked(locks);
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        self.disk.durable_queue()
    }

    fn log_way(&self) -> Option<LogWayReport> {
        self.disk.log_way()
    }

    fn name(&self) -> String {
        format!("{}/{}", self.disk.name(), self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemDisk, conformance};

    #[test]
    fn a_folder_is_a_disk() {
        conformance::disk(|| {
            let folder = Folder::new(Arc::new(MemDisk::new()), "of/another").unwrap();
            folder.make_dir("").unwrap();
            Arc::new(folder)
        });
    }

    #[test]
    fn its_files_are_below_it_and_it_does_not_see_others() {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        disk.create("beside", Access::Buffered).unwrap();
        let folder = Folder::new(Arc::clone(&disk), "below").unwrap();
        assert!(folder.list("").unwrap_err().is_not_found());
        folder.make_dir("").unwrap();
        let file = folder.create("f", Access::Buffered).unwrap();
        assert_eq!(file.path(), "below/f");
        assert_eq!(folder.list("").unwrap(), ["f"]);
        assert_eq!(disk.list("below").unwrap(), ["f"]);
        assert!(Folder::new(disk, "../beside").is_err());
    }
}
