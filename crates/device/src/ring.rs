//! Durable writes through a ring. Each write is an `io_uring` write with `RWF_DSYNC`, and no thread waits for it.
//!
//! Several threads submit and collect, so the ring is not bound to one thread. The kernel posts a completion in the
//! thread that submitted the write: when that thread next enters the kernel, or when an interrupt makes it enter.
//!
//! # Writes of a killed process
//! After a process was killed, the kernel continues the writes that the process had in flight. Without a remedy, the
//! process's locks would be free long before the last of these writes ends. The next process could reuse a segment, and
//! the old writes would overwrite it. So the files that lock the database are in the file table of the ring. The kernel
//! clears that table only after the last write, and then the locks are free.
//!
//! # Unsafe code
//! Only this file gives the kernel addresses that the kernel reads later. A `Flight` owns the file, the buffers and the
//! list of their addresses from before the submission until the completion has been read. Dropping the queue waits for
//! all flights. So the addresses stay valid. The crate `io_uring` allows shared access to the two halves of the ring
//! only if one thread at a time uses each half. So each half has a lock.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use perdura_base::Error;

use crate::durable::{Completed, DurableQueue, DurableWrite, PARTS_MAX, Part};
use crate::{File, Through};

/// The maximum number of writes in flight. More writes rarely help, and each would get a smaller share of the bytes
/// that may be in flight.
const DEPTH: usize = 4;
/// The number of entries of the ring. There is at least one for each write in flight, so the ring is never full, even
/// if the kernel has not taken earlier entries.
const ENTRIES: u32 = 8;
const _: () = assert!(ENTRIES as usize >= DEPTH, "an entry for each slot");

/// A write that the kernel has, or will get.
struct Flight {
    token: u64,
    /// The file. Owning it keeps the descriptor open.
    file: Arc<dyn File>,
    offset: u64,
    parts: Vec<Part>,
    bytes: usize,
    /// The addresses of the parts. The kernel reads this list when the write is submitted, or later.
    vectors: Box<[libc::iovec]>,
}

// SAFETY: the addresses in `vectors` point into `parts`, which the same value owns; no thread reads
// through them.
unsafe impl Send for Flight {}

impl Flight {
    /// Removes the first `written` bytes from the bytes to write.
    fn skip(&mut self, written: usize) {
        assert!(written < self.bytes, "something is left to be written");
        self.bytes -= written;
        self.offset += u64::try_from(written).unwrap_or(u64::MAX);
        let mut left = written;
        for vector in &mut self.vectors {
            let here = left.min(vector.iov_len);
            vector.iov_base = vector.iov_base.wrapping_byte_add(here);
            vector.iov_len -= here;
            left -= here;
        }
        assert_eq!(left, 0, "the parts hold what was written");
    }
}

/// The writes in flight, and the ended writes for which the kernel reports no completion.
struct Submitting {
    flights: [Option<Flight>; DEPTH],
    /// Ended writes for which the kernel reports no completion. Either a ring cannot write to their file, or the ring
    /// is broken.
    done: Vec<Completed>,
    /// The kernel's permanent error for the ring. Entries that the kernel has not taken stay in the ring, because it
    /// may still read them. `None`: the ring works.
    broken: Option<i32>,
}

/// A queue that uses a ring.
pub(crate) struct RingQueue {
    ring: IoUring,
    submitting: Mutex<Submitting>,
    /// Locked by the thread that reads completions.
    collecting: Mutex<()>,
    /// The locks of the database. The ring holds the locks until it is dropped.
    _locks: Vec<Arc<OwnedFd>>,
}

impl RingQueue {
    /// Makes a ring. `locks` go into its file table.
    pub(crate) fn new(locks: Vec<Arc<OwnedFd>>) -> io::Result<RingQueue> {
        let ring = IoUring::new(ENTRIES)?;
        if !locks.is_empty() {
            let fds: Vec<i32> = locks.iter().map(|file| file.as_raw_fd()).collect();
            ring.submitter().register_files(&fds)?;
        }
        Ok(RingQueue {
            ring,
            submitting: Mutex::new(Submitting {
                flights: [const { None }; DEPTH],
                done: Vec::new(),
                broken: None,
            }),
            collecting: Mutex::new(()),
            _locks: locks,
        })
    }

    /// Passes all entries still in the ring to the kernel, and waits for `want` completions. If the kernel refuses
    /// entries temporarily (`EAGAIN`, `EBUSY`, `EINTR`, `ENOMEM`), they stay in the ring until the next call.
    fn enter(&self, want: usize) -> io::Result<usize> {
        match self.ring.submitter().submit_and_wait(want) {
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOMEM)
                ) =>
            {
                Ok(0)
            }
            entered => entered,
        }
    }

    /// Returns the number of writes in flight: the kernel may still read their buffers. 0 if the ring is broken.
    fn in_flight(&self) -> usize {
        let submitting = self.submitting.lock();
        match submitting.broken {
            Some(_) => 0,
            None => submitting.flights.iter().flatten().count(),
        }
    }

    fn has_completions(&self) -> bool {
        let _one_at_a_time = self.collecting.lock();
        // SAFETY: `collecting` is locked, so no other thread uses this half.
        let completions = unsafe { self.ring.completion_shared() };
        !completions.is_empty() || !self.submitting.lock().done.is_empty()
    }

    /// Puts the write of a slot into the ring and passes it to the kernel.
    fn push(&self, submitting: &mut Submitting, slot: usize) {
        let flight = submitting.flights[slot].as_ref();
        let flight = flight.expect("the write of this slot is submitted");
        let fd = flight.file.direct_fd().map_or(-1, |fd| fd.as_raw_fd());
        let count = u32::try_from(flight.vectors.len()).unwrap_or(u32::MAX);
        assert!(
            fd >= 0 && flight.vectors.len() == flight.parts.len(),
            "a ring writes an open file, each part once"
        );
        let entry = opcode::Writev::new(types::Fd(fd), flight.vectors.as_ptr(), count)
            .offset(flight.offset)
            .rw_flags(libc::RWF_DSYNC)
            .build()
            .user_data(u64::try_from(slot).unwrap_or(u64::MAX));
        // SAFETY: `submitting` is locked, so no other thread uses this half. The flight owns what the
        // entry points at and stays in its slot until the completion has been read.
        let pushed = unsafe { self.ring.submission_shared().push(&entry) };
        assert!(pushed.is_ok(), "the ring has an entry for each slot");
        self.hand_over(submitting);
    }

    /// Passes the entries in the ring to the kernel. If the kernel refuses the ring, all writes in flight fail.
    fn hand_over(&self, submitting: &mut Submitting) {
        let Err(error) = self.enter(0) else {
            return;
        };
        submitting.broken = error.raw_os_error();
        for flight in submitting.flights.iter().flatten() {
            let error = io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
            submitting.done.push(Completed {
                token: flight.token,
                parts: Vec::new(),
                result: Err(Error::io("submit", flight.file.path(), error)),
            });
        }
    }
}

/// Converts the kernel's result of a write of `bytes` bytes into an error or success.
fn judge(path: &str, bytes: usize, result: i32) -> Result<(), Error> {
    let error = match usize::try_from(result) {
        Ok(written) if written == bytes => return Ok(()),
        Ok(written) => io::Error::new(
            io::ErrorKind::WriteZero,
            format!("the device wrote {written} of {bytes} bytes"),
        ),
        Err(_) => io::Error::from_raw_os_error(result.saturating_neg()),
    };
    Err(Error::io("write", path, error))
}

impl DurableQueue for RingQueue {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&self, write: DurableWrite) {
        let bytes = write.bytes();
        assert!(bytes > 0, "a write of nothing");
        assert!(
            (1..=PARTS_MAX).contains(&write.parts.len()),
            "a write has {} parts",
            write.parts.len()
        );
        let mut submitting = self.submitting.lock();
        if write.file.direct_fd().is_none() {
            let parts: Vec<&[u8]> = write.parts.iter().map(Part::bytes).collect();
            let result = write
                .file
                .write_durable(write.offset, &parts, Through::WriteAndSync);
            submitting.done.push(Completed {
                token: write.token,
                parts: write.parts,
                result,
            });
            return;
        }
        let slot = submitting.flights.iter().position(Option::is_none);
        let slot = slot.expect("no more writes are submitted than the depth allows");
        let vector = |part: &Part| libc::iovec {
            iov_base: part.bytes().as_ptr().cast_mut().cast(),
            iov_len: part.len,
        };
        let vectors = write.parts.iter().map(vector).collect();
        submitting.flights[slot] = Some(Flight {
            token: write.token,
            file: write.file,
            offset: write.offset,
            parts: write.parts,
            bytes,
            vectors,
        });
        self.push(&mut submitting, slot);
    }

    fn collect(&self, done: &mut Vec<Completed>) {
        let _one_at_a_time = self.collecting.lock();
        let mut submitting = self.submitting.lock();
        // SAFETY: `submitting` is locked, so no other thread uses this half.
        let is_left = unsafe { !self.ring.submission_shared().is_empty() };
        if is_left && submitting.broken.is_none() {
            self.hand_over(&mut submitting);
        }
        // SAFETY: `collecting` is locked, so no other thread uses this half.
        let completions = unsafe { self.ring.completion_shared() };
        for completion in completions {
            let slot = usize::try_from(completion.user_data()).unwrap_or(DEPTH);
            if completion.result() == -libc::ECANCELED {
                // The thread that submitted the write has ended before the kernel began the write. Submit it again.
                self.push(&mut submitting, slot);
                continue;
            }
            let short = submitting.flights.get_mut(slot).and_then(Option::as_mut);
            if let (Some(flight), Ok(written @ 1..)) = (short, usize::try_from(completion.result()))
                && written < flight.bytes
            {
                // A full disk or a limit has ended the write early. Writing the remaining bytes fails with the
                // reason.
                flight.skip(written);
                self.push(&mut submitting, slot);
                continue;
            }
            let flight = submitting.flights.get_mut(slot).and_then(Option::take);
            let flight = flight.expect("the kernel completes what was submitted, once");
            assert!(
                usize::try_from(completion.result()).is_ok_and(|n| n <= flight.bytes)
                    || completion.result() < 0,
                "{} bytes were written of {}",
                completion.result(),
                flight.bytes
            );
            done.push(Completed {
                token: flight.token,
                result: judge(flight.file.path(), flight.bytes, completion.result()),
                parts: flight.parts,
            });
        }
        done.append(&mut submitting.done);
    }

    fn wait(&self) {
        while self.in_flight() > 0 && !self.has_completions() {
            if self.enter(1).is_err() {
                return;
            }
        }
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the ring and stays open as long as `self` is borrowed.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }
}

impl Drop for RingQueue {
    /// Waits for the writes in flight. Only after that may the buffers and the locks be released.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 {
            self.wait();
            self.collect(&mut done);
        }
        let mut submitting = self.submitting.lock();
        if submitting.broken.is_some() {
            // The kernel may still read these buffers, so they are leaked.
            for flight in submitting.flights.iter_mut().filter_map(Option::take) {
                std::mem::forget(flight);
            }
        }
        // The kernel clears the table some time after the ring is closed. But the locks must be free when `drop`
        // returns.
        let _no_table = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests;
