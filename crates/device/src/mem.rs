//! A disk in memory. Its writes are durable at once.
//!
//! It serves unit tests, and benchmarks that measure the engine without a disk.
//! [`SimDisk`](crate::SimDisk) simulates crashes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use perdura_base::checksum::crc32c;
use perdura_base::{Error, Result};

use crate::path::{bytes_u64, check_dir, check_file, name_in, parent};
use crate::{Access, Disk, File, FileId};

type Bytes = Arc<RwLock<Vec<u8>>>;

/// A disk in memory.
#[derive(Debug, Default)]
pub struct MemDisk {
    tree: Arc<Mutex<Tree>>,
}

/// All names. While a thread holds the lock on a file's bytes, it must not lock the names.
#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<String, Bytes>,
    dirs: BTreeSet<String>,
    locked: BTreeSet<String>,
}

impl MemDisk {
    /// Returns an empty disk.
    #[must_use]
    pub fn new() -> MemDisk {
        MemDisk::default()
    }
}

impl Tree {
    fn has_dir(&self, dir: &str) -> bool {
        dir.is_empty() || self.dirs.contains(dir)
    }

    /// Returns the identity of a file or directory. A directory is identified by its path, because directories are
    /// never removed.
    fn find(&self, op: &'static str, path: &str) -> Result<FileId> {
        match self.files.get(path) {
            Some(bytes) => Ok(id_of(bytes)),
            None if self.has_dir(path) => Ok(FileId {
                device: 1,
                number: u64::from(crc32c(path.as_bytes())),
            }),
            None => Err(missing(op, path)),
        }
    }

    fn create(&mut self, op: &'static str, path: &str) -> Result<Bytes> {
        if !self.has_dir(parent(path)) {
            return Err(missing(op, path));
        }
        if self.files.contains_key(path) || self.dirs.contains(path) {
            return Err(Error::io(
                op,
                path,
                io::Error::from(io::ErrorKind::AlreadyExists),
            ));
        }
        let bytes = Bytes::default();
        let before = self.files.insert(path.to_owned(), Arc::clone(&bytes));
        assert!(before.is_none(), "{path} is created where it is free");
        Ok(bytes)
    }
}

/// Returns the identity of a file. It is the address of the file's bytes.
fn id_of(bytes: &Bytes) -> FileId {
    FileId {
        device: 0,
        number: bytes_u64(Arc::as_ptr(bytes).addr()),
    }
}

fn missing(op: &'static str, path: &str) -> Error {
    Error::io(op, path, io::Error::from(io::ErrorKind::NotFound))
}

fn opened(path: &str, access: Access, bytes: Bytes) -> Arc<dyn File> {
    Arc::new(MemFile {
        path: path.to_owned(),
        direct: access == Access::Direct,
        bytes,
    })
}

impl Disk for MemDisk {
    fn create(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let bytes = self.tree.lock().create("create", path)?;
        Ok(opened(path, access, bytes))
    }

    fn open(&self, path: &str, access: Access) -> Result<Arc<dyn File>> {
        check_file(path)?;
        let bytes = self.tree.lock().files.get(path).cloned();
        Ok(opened(
            path,
            access,
            bytes.ok_or_else(|| missing("open", path))?,
        ))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let dir = check_dir(dir)?;
        let tree = self.tree.lock();
        if !tree.has_dir(dir) {
            return Err(missing("list", dir));
        }
        let paths = tree.files.keys().chain(&tree.dirs);
        let mut names: Vec<String> = paths
            .filter_map(|path| name_in(dir, path))
            .map(str::to_owned)
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn make_dir(&self, dir: &str) -> Result<()> {
        let mut dir = check_dir(dir)?;
        let mut tree = self.tree.lock();
        while !dir.is_empty() {
            if tree.files.contains_key(dir) {
                let source = io::Error::from(io::ErrorKind::NotADirectory);
                return Err(Error::io("create directory", dir, source));
            }
            tree.dirs.insert(dir.to_owned());
            dir = parent(dir);
        }
        debug_assert!(
            tree.dirs.iter().all(|dir| tree.has_dir(parent(dir))),
            "directories have their parents"
        );
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let mut tree = self.tree.lock();
        if !tree.has_dir(parent(to)) {
            return Err(missing("rename", to));
        }
        let bytes = tree
            .files
            .remove(from)
            .ok_or_else(|| missing("rename", from))?;
        tree.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        check_file(from)?;
        check_file(to)?;
        let mut tree = self.tree.lock();
        if !tree.files.contains_key(from) {
            return Err(missing("publish", from));
        }
        if !tree.has_dir(parent(to)) {
            return Err(missing("publish", to));
        }
        if tree.files.contains_key(to) || tree.dirs.contains(to) {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::io("publish", to, source));
        }
        let bytes = tree.files.remove(from).unwrap_or_default();
        let before = tree.files.insert(to.to_owned(), bytes);
        assert!(before.is_none(), "{to} is published where it is free");
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<()> {
        check_file(path)?;
        let removed = self.tree.lock().files.remove(path);
        removed.map(|_| ()).ok_or_else(|| missing("remove", path))
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        let dir = check_dir(dir)?;
        let known = self.tree.lock().has_dir(dir);
        if known {
            Ok(())
        } else {
            Err(missing("sync directory", dir))
        }
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        check_file(path)?;
        let mut tree = self.tree.lock();
        if !tree.files.contains_key(path) {
            tree.create("lock", path)?;
        }
        if !tree.locked.insert(path.to_owned()) {
            return Err(Error::Locked { dir: self.name() });
        }
        Ok(Box::new(Guard {
            tree: Arc::clone(&self.tree),
            path: path.to_owned(),
        }))
    }

    fn lock_present(&self, path: &str) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        let path = check_dir(path)?;
        let mut tree = self.tree.lock();
        tree.find("lock", path)?;
        if !tree.locked.insert(path.to_owned()) {
            return Err(Error::Locked { dir: self.name() });
        }
        Ok(Some(Box::new(Guard {
            tree: Arc::clone(&self.tree),
            path: path.to_owned(),
        })))
    }

    fn identity(&self, path: &str) -> Result<Option<FileId>> {
        self.tree.lock().find("stat", check_dir(path)?).map(Some)
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

/// A guard that releases the lock when it is dropped.
struct Guard {
    tree: Arc<Mutex<Tree>>,
    path: String,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let held = self.tree.lock().locked.remove(&self.path);
        debug_assert!(held, "the lock on {} is held until here", self.path);
    }
}

struct MemFile {
    path: String,
    direct: bool,
    bytes: Bytes,
}

impl MemFile {
    /// Converts an offset to an index. Fails if the offset is larger than any memory.
    fn index(&self, op: &'static str, offset: u64) -> Result<usize> {
        usize::try_from(offset).map_err(|_| {
            Error::io(
                op,
                self.path.as_str(),
                io::Error::from(io::ErrorKind::FileTooLarge),
            )
        })
    }
}

impl File for MemFile {
    fn len(&self) -> Result<u64> {
        Ok(bytes_u64(self.bytes.read().len()))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes.read();
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let count = buf.len().min(bytes.len() - start);
        buf[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = self.index("write", offset.saturating_add(bytes_u64(data.len())))?;
        let start = end - data.len();
        let mut bytes = self.bytes.write();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        assert!(
            end <= bytes.len() && end - start == data.len(),
            "{} bytes are written to {start}..{end} of {}",
            data.len(),
            bytes.len()
        );
        bytes[start..end].copy_from_slice(data);
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let len = self.index("allocate", len)?;
        let mut bytes = self.bytes.write();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let len = self.index("resize", len)?;
        self.bytes.write().resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn identity(&self) -> Result<Option<FileId>> {
        Ok(Some(id_of(&self.bytes)))
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}
