//! A file of the archive that is being written under a temporary name, and then published.
//!
//! # Invariants
//! * A file gets its name when its bytes are durable: it is written under a temporary name, synced, and then
//!   published. After a crash at any I/O there is a temporary file or a complete file.
//! * After a failed sync or another failed I/O the file is discarded, because it is unknown what the disk holds.

use std::sync::Arc;

use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::{Access, AlignedBuf, Disk, File};

use crate::name::TEMPORARY;

/// The number of bytes that are written at once.
pub const WRITE_BYTES: usize = 1024 * 1024;

/// The progress that a step of a machine returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<T> {
    /// More steps are needed.
    More,
    /// The machine has finished. This is its result.
    Done(T),
}

fn is_there(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
}

/// A file that is being written.
pub(crate) struct Output {
    disk: Arc<dyn Disk>,
    dir: String,
    path: String,
    temporary: String,
    file: Arc<dyn File>,
    /// The bytes that have been encoded and not yet written.
    pub(crate) pending: Vec<u8>,
    written: u64,
    crc: u32,
    buf: AlignedBuf,
    pub(crate) writes: u64,
}

impl Output {
    /// Begins the file that will be `path` in folder `dir`, which exists. If a crash left a file with the temporary
    /// name, that file is removed.
    pub(crate) fn create(disk: Arc<dyn Disk>, dir: &str, path: String) -> Result<Output> {
        let temporary = format!("{path}{TEMPORARY}");
        let file = match disk.create(&temporary, Access::Direct) {
            Err(error) if is_there(&error) => {
                disk.remove(&temporary)?;
                disk.create(&temporary, Access::Direct)?
            }
            made => made?,
        };
        Ok(Output {
            disk,
            dir: dir.to_owned(),
            path,
            temporary,
            file,
            pending: Vec::new(),
            written: 0,
            crc: crc32c(&[]),
            buf: AlignedBuf::zeroed(WRITE_BYTES),
            writes: 0,
        })
    }

    pub(crate) fn temporary(&self) -> &str {
        &self.temporary
    }

    /// Returns the position of the next byte in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.written + to_u64(self.pending.len())
    }

    /// Writes the first [`WRITE_BYTES`] pending bytes. If fewer are pending they are the end of the file, and must be
    /// whole sectors.
    pub(crate) fn write(&mut self) -> Result<()> {
        let len = self.pending.len().min(WRITE_BYTES);
        assert!(
            len.is_multiple_of(SECTOR_BYTES),
            "{len} bytes are whole sectors"
        );
        self.buf[..len].copy_from_slice(&self.pending[..len]);
        self.file.write_at(self.written, &self.buf[..len])?;
        self.crc = crc32c_append(self.crc, &self.buf[..len]);
        self.written += to_u64(len);
        self.writes += 1;
        self.pending.drain(..len);
        Ok(())
    }

    /// Discards and removes the file.
    pub(crate) fn abandon(self) -> Result<()> {
        self.disk.remove(&self.temporary)
    }

    /// Renames the temporary file to its final name. Fails if a file of that name exists.
    fn publish(&self) -> Result<()> {
        match self.disk.publish(&self.temporary, &self.path) {
            Err(error) if is_there(&error) => Err(Error::Usage(format!(
                "{} exists already and is not overwritten",
                self.path
            ))),
            published => published,
        }
    }
}

/// The next I/O for a file whose bytes are all encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Write,
    Sync,
    Publish,
    SyncDir,
    Done,
    /// An I/O failed. Nothing more is done.
    Failed,
}

/// A machine that finishes a file, one I/O a step.
pub(crate) struct Ending {
    out: Output,
    stage: Stage,
}

impl Ending {
    /// Finishes a file whose last bytes are pending.
    pub(crate) fn new(out: Output) -> Ending {
        Ending {
            out,
            stage: Stage::Write,
        }
    }

    pub(crate) fn temporary(&self) -> &str {
        &self.out.temporary
    }

    /// Makes the next I/O. When the file is durable under its name, returns its length and its CRC-32C.
    pub(crate) fn step(&mut self) -> Result<Progress<(u64, u32)>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = match stage {
            Stage::Write => {
                self.out.write()?;
                if self.out.pending.is_empty() {
                    Stage::Sync
                } else {
                    Stage::Write
                }
            }
            Stage::Sync => {
                if !armed(Flaw::RenameBeforeSync) {
                    self.out.file.sync()?;
                }
                Stage::Publish
            }
            Stage::Publish => {
                self.out.publish()?;
                Stage::SyncDir
            }
            Stage::SyncDir => {
                self.out.disk.sync_dir(&self.out.dir)?;
                Stage::Done
            }
            Stage::Done => Stage::Done,
            Stage::Failed => {
                return Err(Error::Stopped(format!(
                    "{} was abandoned after a failed write",
                    self.out.temporary
                )));
            }
        };
        if self.stage == Stage::Done {
            return Ok(Progress::Done((self.out.written, self.out.crc)));
        }
        Ok(Progress::More)
    }
}
