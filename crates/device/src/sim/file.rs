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
    pub(super) life: u64,
    pub(super) path: Arc<str>,
    pub(super) direct: bool,
    pub(super) ino: Ino,
}

impl File for SimFile {
    fn len(&self) -> Result<u64> {
        let mut state = self.state.lock();
        state.alive("stat", &self.path, self.life)?;
        Ok(bytes_u64(state.inode(self.ino).live.len()))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.state
            .lock()
            .read(self.ino, &self.path, self.life, offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.state
            .lock()
            .write(self.ino, &self.path, self.life, offset, data)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.state
            .lock()
            .resize("allocate", self.ino, &self.path, self.life, len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.state
            .lock()
            .resize("resize", self.ino, &self.path, self.life, len)
    }

    fn sync(&self) -> Result<()> {
        self.state.lock().sync(self.ino, &self.path, self.life)
    }

    fn identity(&self) -> Result<Option<FileId>> {
        let number = self.ino;
        Ok(Some(FileId { device: 0, number }))
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.life == self.life {
            state.inode(self.ino).handles -= 1;
        }
    }
}
