//! Read-only views of disks and files. They refuse every change.

use std::any::Any;
use std::io;
use std::sync::Arc;

use perdura_base::{Error, Result};

use crate::{Access, Disk, File};

/// The operations of a [`Disk`] that change nothing.
pub trait ReadDir: Send + Sync + 'static {
    /// The type of the disk's files.
    type File: ReadFile + 'static;

    /// Opens a file, like [`Disk::open`].
    ///
    /// # Errors
    /// Those of [`Disk::open`].
    fn open(&self, path: &str, access: Access) -> Result<Self::File>;

    /// Lists a directory, like [`Disk::list`].
    ///
    /// # Errors
    /// Those of [`Disk::list`].
    fn list(&self, dir: &str) -> Result<Vec<String>>;

    /// Takes a lock, like [`Disk::lock`], but never creates the lock file.
    ///
    /// # Errors
    /// Those of [`Disk::lock`].
    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>>;

    /// Takes a lock, like [`Disk::lock_present`], but shares it with other readers.
    ///
    /// # Errors
    /// Those of [`Disk::lock_present`].
    fn lock_present(&self, _path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(None)
    }

    /// Returns the root directory, like [`Disk::name`].
    fn name(&self) -> String;
}

/// The operations of a [`File`] that change nothing.
pub trait ReadFile: Send + Sync {
    /// Returns the file's length, like [`File::len`].
    ///
    /// # Errors
    /// Those of [`File::len`].
    fn len(&self) -> Result<u64>;

    /// Returns whether the file is empty, like [`File::is_empty`].
    ///
    /// # Errors
    /// Those of [`File::is_empty`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads bytes, like [`File::read_at`].
    ///
    /// # Errors
    /// Those of [`File::read_at`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Announces a read, like [`File::will_read`].
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Returns the file's path, like [`File::path`].
    fn path(&self) -> &str;

    /// Returns whether I/O bypasses the cache, like [`File::is_direct`].
    fn is_direct(&self) -> bool;
}

/// A disk or a file that refuses every change.
#[derive(Debug)]
pub struct ReadOnly<T>(pub T);

fn refused(op: &'static str, path: &str) -> Error {
    Error::io(op, path, io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
}

impl<T: ReadDir> Disk for ReadOnly<T> {
    fn create(&self, path: &str, _: Access) -> Result<Arc<dyn File>> {
        Err(refused("create", path))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(Arc::new(ReadOnly(self.0.open(path, access)?)))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.0.list(dir)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        Err(refused("create directory", dir))
    }

    fn rename(&self, from: &str, _: &str) -> Result<()> {
        Err(refused("rename", from))
    }

    fn publish(&self, _: &str, to: &str) -> Result<()> {
        Err(refused("publish", to))
    }

    fn remove(&self, path: &str) -> Result<()> {
        Err(refused("remove", path))
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        Err(refused("sync", dir))
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.0.lock(path)
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        self.0.lock_present(path)
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

impl<T: ReadFile> File for ReadOnly<T> {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.0.will_read(offset, len);
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(refused("write", self.path()))
    }

    fn allocate(&self, _: u64) -> Result<()> {
        Err(refused("allocate", self.path()))
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Err(refused("resize", self.path()))
    }

    fn sync(&self) -> Result<()> {
        Err(refused("sync", self.path()))
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}
