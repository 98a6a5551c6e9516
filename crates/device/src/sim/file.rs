//! An open file of the simulated disk.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::Result;

use super::names::Ino;
use super::state::State;
use crate::path::bytes_u64;
use crate::{File, FileId};

pub(super) struct SimFile {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) direct: bool,
    pub(super) handle: Handle,
}

/// The file that an operation is about.
pub(super) struct Handle {
    /// The number of the file.
    pub(super) ino: Ino,
    /// The path that was used to open the file.
    pub(super) path: Arc<str>,
    /// The number of the machine's life in which the file was opened. See [`State::life`].
    pub(super) life: u64,
}

impl File for SimFile {
    fn len(&self) -> Result<u64> {
        let mut state = self.state.lock();
        state.alive("stat", &self.handle.path, self.handle.life)?;
        Ok(bytes_u64(state.inode(self.handle.ino).live.len()))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.state.lock().read(&self.handle, offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.state.lock().write(&self.handle, offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.state.lock().resize("allocate", &self.handle, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.state.lock().resize("resize", &self.handle, len)
    }

    fn sync(&self) -> Result<()> {
        self.state.lock().sync(&self.handle)
    }

    fn identity(&self) -> Result<Option<FileId>> {
        let number = self.handle.ino;
        Ok(Some(FileId { device: 0, number }))
    }

    fn path(&self) -> &str {
        &self.handle.path
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.life == self.handle.life {
            state.inode(self.handle.ino).handles -= 1;
        }
    }
}
