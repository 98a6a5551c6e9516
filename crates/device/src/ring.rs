//! Durable writes through a ring: one `io_uring` write with `RWF_DSYNC`, for which no thread waits.
//!
//! Several threads submit and collect, so the ring is not bound to one of them. A completion is posted
//! by the thread that submitted, when it next enters the kernel, or by an interrupt that makes it do so.
//!
//! # A killed process's writes land late
//! After a process is killed, the kernel continues with its writes in flight, and its locks are free long before the
//! last write has landed. If the next life reused a segment, those writes would overwrite it. So the files that lock
//! the database are in the ring's file table. The kernel empties that table after the last write, and only then are the
//! locks free.
//!
//! # Unsafe code
//! This file alone gives the kernel addresses to read from later. A `Flight` owns the file, the buffers and the list of
//! their addresses from before the submission until the completion has been read. Dropping the queue waits for all
//! flights. So the addresses stay valid. The two halves of the ring are each behind a lock, because the crate's shared
//! access to them demands that one thread uses a half at a time.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use perdura_base::Error;

use crate::durable::{Completed, DurableQueue, DurableWrite, PARTS_MAX, Part};
use crate::{File, Through};

/// The most writes in flight. Cases that gain by more are rare, and each write takes a share of the bytes that may be
/// in flight.
const DEPTH: usize = 4;
/// The entries of the ring. They are enough for each write in flight, so the ring is never full, whatever the kernel
/// leaves in it.
const ENTRIES: u32 = 8;
const _: () = assert!(ENTRIES as usize >= DEPTH, "an entry for each slot");

/// A write that the kernel knows, or will know.
struct Flight {
    token: u64,
    /// The file, which keeps the descriptor open.
    file: Arc<dyn File>,
    offset: u64,
    parts: Vec<Part>,
    bytes: usize,
    /// The addresses of the parts. The kernel reads this list at the submission or later.
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

/// The submitted writes, and the writes that needed no submission.
struct Submitting {
    flights: [Option<Flight>; DEPTH],
    /// Writes that ended without the kernel: to files that a ring cannot write, or after `broken`.
    done: Vec<Completed>,
    /// The error with which the kernel has refused the ring for good. Entries that it has not taken stay in the ring,
    /// because it may still read them. `None`: the ring works.
    broken: Option<i32>,
}

/// A queue that uses a ring.
pub(crate) struct RingQueue {
    ring: IoUring,
    submitting: Mutex<Submitting>,
    /// Held by the thread that reads completions.
    collecting: Mutex<()>,
    /// The locks of the database, kept as long as the ring.
    _locks: Vec<Arc<OwnedFd>>,
}

impl RingQueue {
    /// Makes a ring whose file table holds `locks`.
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

    /// Hands entries to the kernel that it has not taken yet. Entries that it refuses for now (`EAGAIN`, `EBUSY`,
    /// `EINTR`, `ENOMEM`) stay in the ring for the next call.
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

    /// Returns the number of writes that the kernel may still read.
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

    /// Puts the write of a slot into the ring and hands it to the kernel.
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

    /// Hands the entries in the ring to the kernel.
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

/// Converts the kernel's result of a write of `bytes` bytes.
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
                // The thread that submitted it has ended before the kernel began it.
                self.push(&mut submitting, slot);
                continue;
            }
            let short = submitting.flights.get_mut(slot).and_then(Option::as_mut);
            if let (Some(flight), Ok(written @ 1..)) = (short, usize::try_from(completion.result()))
                && written < flight.bytes
            {
                // A full disk or a limit ends a write early. The write of the rest fails with the reason.
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
        // SAFETY: the descriptor is the ring's, and stays open as long as `self` is borrowed.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }
}

impl Drop for RingQueue {
    /// Waits for the writes in flight. Only then may the buffers and the locks be released.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 {
            self.wait();
            self.collect(&mut done);
        }
        let mut submitting = self.submitting.lock();
        if submitting.broken.is_some() {
            // The kernel may still read the buffers, so they are never freed.
            for flight in submitting.flights.iter_mut().filter_map(Option::take) {
                std::mem::forget(flight);
            }
        }
        // The kernel would empty the table later than it closes the ring, but the locks must be free now.
        let _no_table = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests;
