//! A file of the archive that is being written under a temporary name, and then published.
//!
//! # Invariants
//! * A file is written under a temporary name and synced. Only then does the file get the final name. So a crash at any
//!   I/O leaves no file, a temporary file, or a complete file.
//! * After a failed I/O the file is discarded, because the contents on the disk are unknown. A sync counts as an I/O.

use std::sync::Arc;

use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::{Access, AlignedBuf, Disk, File};

use crate::name::TEMPORARY;

/// The maximum number of bytes in one write.
pub const WRITE_BYTES: usize = 1024 * 1024;

/// The progress that a step of a state machine returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<T> {
    /// More steps are needed.
    More,
    /// The state machine has finished. This is its result.
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
    /// The encoded bytes that are not yet written.
    pub(crate) pending: Vec<u8>,
    written: u64,
    crc: u32,
    buf: AlignedBuf,
    pub(crate) writes: u64,
}

impl Output {
    /// Begins a file. The file will be `path` in the existing folder `dir`. If a crash left a file with this file's
    /// temporary name, that file is removed first.
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

    /// Returns the file offset that the next byte appended to `pending` will have.
    pub(crate) fn offset(&self) -> u64 {
        self.written + to_u64(self.pending.len())
    }

    /// Writes the first [`WRITE_BYTES`] pending bytes. If fewer bytes are pending, writes all of them. In this case,
    /// the pending bytes must be the last bytes of the file and fill whole sectors.
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
    /// An I/O failed. The state machine does nothing more.
    Failed,
}

/// A state machine that finishes a file, one I/O a step.
pub(crate) struct Ending {
    out: Output,
    stage: Stage,
}

impl Ending {
    /// Returns the state machine that finishes `out`. The last bytes of the file must be among the pending bytes.
    pub(crate) fn new(out: Output) -> Ending {
        Ending {
            out,
            stage: Stage::Write,
        }
    }

    pub(crate) fn temporary(&self) -> &str {
        &self.out.temporary
    }

    /// Makes the next I/O. Returns the file's length and CRC-32C when the file is durable under its final name.
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
