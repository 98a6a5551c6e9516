//! One open file of a real file system.

use std::fs;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::{Error, Result};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pwritev, pwritev2};

use crate::durable::in_sequence;
use crate::path::bytes_u64;

use super::locks::id_of;
use crate::{AlignedBuf, File, FileId, Through};

/// The size of the buffer of zeros, in bytes. To write a longer range of zeros, the buffer is written several times.
pub(super) const ZEROS_BYTES: usize = 64 << 10;
/// The maximum number of buffers of zeros in one write. The last write may end at any offset. Every other write ends at
/// a multiple of the total size of this many buffers.
pub(super) const ZEROS_PER_WRITE: u64 = 16;

/// Returns whether the error means that only direct I/O was refused. The access can then use the cache.
pub(super) fn refuses_direct(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// Asks the kernel to read a part of a file into its cache, without waiting; see [`File::will_read`].
pub fn read_ahead(file: &fs::File, offset: u64, len: u64) {
    if let Some(len) = NonZeroU64::new(len) {
        // If the file system does not support this, the later read is just slower.
        let _ = fadvise(file, offset, Some(len), Advice::WillNeed);
    }
}

/// An open file. It has a direct descriptor as well if the file system supports direct I/O.
pub(super) struct RealFile {
    path: String,
    full: String,
    around: Option<fs::File>,
    direct_works: AtomicBool,
    buffered: fs::File,
}

impl RealFile {
    /// Wraps a file that is open for buffered access and perhaps also for direct access. `path` is relative to the
    /// disk's root.
    pub(super) fn new(
        path: &str,
        full: String,
        buffered: fs::File,
        around: Option<fs::File>,
    ) -> RealFile {
        RealFile {
            path: path.to_owned(),
            full,
            direct_works: AtomicBool::new(around.is_some()),
            around,
            buffered,
        }
    }

    fn error(&self, op: &'static str, source: io::Error) -> Error {
        Error::io(op, self.full.as_str(), source)
    }

    /// Returns the descriptor to use for an access, and whether it is the direct one.
    fn route(&self, offset: u64, buf: &[u8]) -> (&fs::File, bool) {
        let sector = bytes_u64(SECTOR_BYTES);
        let aligned = offset.is_multiple_of(sector)
            && buf.len().is_multiple_of(SECTOR_BYTES)
            && buf.as_ptr().addr().is_multiple_of(SECTOR_BYTES);
        debug_assert!(
            self.around.is_some() || !self.is_direct(),
            "direct I/O needs its descriptor"
        );
        match &self.around {
            Some(around) if aligned && self.is_direct() => (around, true),
            _ => (&self.buffered, false),
        }
    }

    /// Returns whether the caller should repeat the access: it was interrupted, or only direct I/O was refused.
    fn try_again(&self, direct: bool, e: &io::Error) -> bool {
        if direct && refuses_direct(e) {
            assert!(
                self.around.is_some(),
                "a direct access went around the cache"
            );
            self.direct_works.store(false, Ordering::Relaxed);
            return true;
        }
        e.kind() == io::ErrorKind::Interrupted
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }

    fn reserve(&self, from: u64, to: u64) -> io::Result<()> {
        assert!(from < to, "a file grows from {from} to {to}");
        loop {
            match fallocate(&self.buffered, FallocateFlags::empty(), from, to - from) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn write_all(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + bytes_u64(done);
            let rest = &data[done..];
            let (file, direct) = self.route(at, rest);
            match file.write_at(rest, at) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => {
                    assert!(n <= rest.len(), "{n} bytes were written of {}", rest.len());
                    done += n;
                }
                Err(e) if self.try_again(direct, &e) => {}
                Err(e) => return Err(e),
            }
        }
        assert_eq!(done, data.len(), "a write is whole or an error");
        Ok(())
    }

    /// Writes the parts in sequence. Returns when all their bytes are durable. A full disk or a limit can end a write
    /// early. A second system call then tries the remaining bytes, and fails with the reason.
    fn write_through(
        &self,
        direct: BorrowedFd<'_>,
        offset: u64,
        parts: &[&[u8]],
    ) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let (mut rest, mut done) = (slices.as_mut_slice(), 0);
        while done < bytes {
            match pwritev2(
                direct,
                rest,
                offset + bytes_u64(done),
                ReadWriteFlags::DSYNC,
            ) {
                Ok(0) => {
                    let what = format!("the device wrote {done} of {bytes} bytes");
                    return Err(io::Error::new(io::ErrorKind::WriteZero, what));
                }
                Ok(written) => {
                    done += written;
                    assert!(done <= bytes, "{done} bytes were written of {bytes}");
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!(done, bytes, "a write is whole or an error");
        Ok(())
    }

    /// Writes a small buffer of zeros many times. A large buffer would be wasteful, because the process may keep the
    /// buffer's memory after a segment was made.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = AlignedBuf::zeroed(ZEROS_BYTES);
        let piece = bytes_u64(ZEROS_BYTES) * ZEROS_PER_WRITE;
        let mut at = from;
        while at < to {
            let end = to.min((at / piece + 1) * piece);
            let mut parts = Vec::new();
            let mut left = usize::try_from(end - at).unwrap_or(ZEROS_BYTES);
            while left > 0 {
                let part = &zeros[..left.min(ZEROS_BYTES)];
                parts.push(IoSlice::new(part));
                left -= part.len();
            }
            let last = parts.last().expect("a piece has bytes");
            let (file, direct) = self.route(at, last);
            match pwritev(file, &parts, at) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => at += bytes_u64(n),
                Err(e) if self.try_again(direct, &e.into()) => {}
                Err(e) => return Err(e.into()),
            }
            assert!(at <= end, "a piece ends at {end}, and {at} is written");
        }
        assert_eq!(at, to.max(from), "all zeros are written");
        Ok(())
    }
}

impl File for RealFile {
    fn len(&self) -> Result<u64> {
        self.length().map_err(|e| self.error("stat", e))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + bytes_u64(done);
            let rest = &mut buf[done..];
            let (file, direct) = self.route(at, rest);
            match file.read_at(rest, at) {
                Ok(0) => break,
                Ok(n) => {
                    assert!(n <= rest.len(), "{n} bytes were read into {}", rest.len());
                    done += n;
                }
                Err(e) if self.try_again(direct, &e) => {}
                Err(e) => return Err(self.error("read", e)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_all(offset, data)
            .map_err(|e| self.error("write", e))
    }

    fn will_read(&self, offset: u64, len: u64) {
        read_ahead(&self.buffered, offset, len);
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let old = self.len()?;
        if len <= old {
            return Ok(());
        }
        // Reserve space first, so that a full disk is noticed before a long write of zeros and not after it.
        let grown = self
            .reserve(old, len)
            .and_then(|()| self.write_zeros(old, len));
        grown.map_err(|e| {
            // Report the first failure. If this truncation fails too, the file stays longer and ends in zeros, and
            // the next allocation accepts that.
            let _ = self.buffered.set_len(old);
            self.error("allocate", e)
        })
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.buffered
            .set_len(len)
            .map_err(|e| self.error("resize", e))
    }

    fn sync(&self) -> Result<()> {
        self.buffered.sync_data().map_err(|e| self.error("sync", e))
    }

    fn write_durable(&self, offset: u64, parts: &[&[u8]], through: Through) -> Result<()> {
        match (through, self.direct_fd()) {
            (Through::Dsync, Some(direct)) => self
                .write_through(direct, offset, parts)
                .map_err(|e| self.error("write", e)),
            _ => {
                in_sequence(offset, parts, |at, part| self.write_at(at, part))?;
                self.sync()
            }
        }
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        let direct = self.around.as_ref().filter(|_| self.is_direct());
        direct.map(AsFd::as_fd)
    }

    fn identity(&self) -> Result<Option<FileId>> {
        let found = self.buffered.metadata();
        let found = found.map_err(|e| self.error("stat", e))?;
        Ok(Some(id_of(&found)))
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct_works.load(Ordering::Relaxed)
    }
}
