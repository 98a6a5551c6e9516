//! The mirror: memories that hold the log beside its disks, as another component reports their contents.
//!
//! The log knows no nodes. A device receives the sealed blocks ([`Wal::ship_by`]) and sends them on. It reports with
//! [`Wal::raise_mirror`] the position up to which a stream counts as held. While no node is in force, D of the mirror
//! rises with the disk's ([`Wal::mirror_follows_disk`]).
//!
//! # Invariants
//! * A stream reaches no position on the mirror that is not sealed.
//! * D of the mirror never decreases, neither when nodes are lost nor when the disk is behind it.

use perdura_base::{Pos, Result, StreamId};

use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::sync::Ordering;

/// The limit of the tail of a log whose blocks other memories hold too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailOptions {
    /// The bytes of a stream that may be sealed and not synced on disk; at least a block's.
    pub tail_bytes_max: u64,
}

impl Wal {
    /// Returns the rung whose D counts for `rung`: without a mirror the disk's.
    #[inline]
    pub(crate) fn in_force(&self, rung: Rung) -> Rung {
        match rung {
            Rung::Mirror if self.options.mirror.is_none() => Rung::Disk,
            rung => rung,
        }
    }

    /// Returns the number of unsynced bytes of a stream of which `bytes` wait behind a full tail.
    pub(crate) fn beyond_tail(&self, bytes: u64) -> u64 {
        let tail = self
            .options
            .mirror
            .map_or(0, |mirror| mirror.tail_bytes_max);
        bytes.saturating_add(tail)
    }

    /// Seals the blocks of a stream that can be sealed, as far as the tail has room. Passes each block to the device of
    /// [`ship_by`](Self::ship_by). Writes nothing: the flusher's steps do that later, with the same bytes. Returns
    /// whether it sealed a block.
    ///
    /// # Errors
    /// [`Error::Stopped`](perdura_base::Error::Stopped) after a failure,
    /// [`Error::Fenced`](perdura_base::Error::Fenced) if another process owns the log.
    pub fn ship_step(&self, stream: StreamId) -> Result<bool> {
        let s = &self.streams[usize::from(stream.0)];
        let mut state = s.flush.lock();
        self.check()?;
        Ok(self.seal_step(stream, s, &mut state.tail))
    }

    /// Returns the position below which a stream's blocks are sealed.
    #[must_use]
    pub fn sealed_end(&self, stream: StreamId) -> Pos {
        let s = &self.streams[usize::from(stream.0)];
        Pos(s.sealed_end.load(Ordering::SeqCst))
    }

    /// Notes that the mirror holds everything below `end` in a stream, and raises D of [`Rung::Mirror`] as far as
    /// that allows. An end that was passed before changes nothing.
    ///
    /// # Panics
    /// Panics if the log has no mirror, or if `end` lies beyond the sealed blocks.
    pub fn raise_mirror(&self, stream: StreamId, end: Pos) {
        assert!(self.options.mirror.is_some(), "the log has no mirror");
        self.raise(&self.streams[usize::from(stream.0)], end);
    }

    /// Sets whether D of [`Rung::Mirror`] rises with every advance of the disk, as it does at first.
    pub fn mirror_follows_disk(&self, follows: bool) {
        self.follows_disk
            .store(u64::from(follows), Ordering::SeqCst);
        // An advance that has not seen the change is seen here.
        for s in &self.streams {
            self.follow_disk(s, Pos(s.reached[Rung::Disk].load(Ordering::SeqCst)));
        }
    }

    /// Raises the mirror to the disk's position, if it follows the disk.
    pub(crate) fn follow_disk(&self, s: &Stream, end: Pos) {
        if self.options.mirror.is_some() && self.follows_disk.load(Ordering::SeqCst) != 0 {
            self.raise(s, end);
        }
    }

    fn raise(&self, s: &Stream, end: Pos) {
        let sealed = s.sealed_end.load(Ordering::SeqCst);
        assert!(
            end.0 <= sealed,
            "the mirror holds blocks up to {end}, and they are sealed up to {sealed}"
        );
        if s.reached[Rung::Mirror].fetch_max(end.0, Ordering::SeqCst) < end.0 {
            self.advance_durable(Rung::Mirror);
        }
    }
}
