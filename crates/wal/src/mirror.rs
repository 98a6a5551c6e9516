//! The mirror: other machines that hold the log in memory. Another component reports how much of the log they hold.
//!
//! The log itself knows no nodes. A device receives the sealed blocks ([`Wal::ship_by`]) and sends them to the nodes.
//! With [`Wal::raise_mirror`] the device reports the position up to which the nodes hold a stream. While the mirror
//! uses no node, D of the mirror rises together with D of the disk ([`Wal::mirror_follows_disk`]).
//!
//! # Invariants
//! * The mirror never holds a stream beyond the stream's sealed end.
//! * D of the mirror never decreases, even if nodes are lost or D of the disk is lower.

use perdura_base::{Pos, Result, StreamId};

use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::sync::Ordering;

/// The limit of the tail, for a log with a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailOptions {
    /// The maximum number of bytes of a stream that may be sealed but not synced on disk; at least one block.
    pub tail_bytes_max: u64,
}

impl Wal {
    /// Returns the rung whose D counts as D of `rung`. Without a mirror this is always the disk.
    #[inline]
    pub(crate) fn in_force(&self, rung: Rung) -> Rung {
        match rung {
            Rung::Mirror if self.options.mirror.is_none() => Rung::Disk,
            rung => rung,
        }
    }

    /// Returns the number of unsynced bytes that a stream has if its tail is full and `bytes` more wait after the tail.
    pub(crate) fn beyond_tail(&self, bytes: u64) -> u64 {
        let tail = self
            .options
            .mirror
            .map_or(0, |mirror| mirror.tail_bytes_max);
        bytes.saturating_add(tail)
    }

    /// Seals blocks of a stream while the tail has room, and passes each block to the device of
    /// [`ship_by`](Self::ship_by). Writes nothing to the disk. The flusher writes the blocks later, unchanged. Returns
    /// whether a block was sealed.
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

    /// Notes that the mirror holds a stream up to `end`, and raises D of [`Rung::Mirror`] if that is now possible. An
    /// `end` that is not higher than an earlier one has no effect.
    ///
    /// # Panics
    /// Panics if the log has no mirror or `end` is beyond the sealed blocks.
    pub fn raise_mirror(&self, stream: StreamId, end: Pos) {
        assert!(self.options.mirror.is_some(), "the log has no mirror");
        self.raise(&self.streams[usize::from(stream.0)], end);
    }

    /// Sets whether D of [`Rung::Mirror`] rises whenever D of the disk rises. In a newly opened log it does.
    pub fn mirror_follows_disk(&self, follows: bool) {
        self.follows_disk
            .store(u64::from(follows), Ordering::SeqCst);
        // A concurrent advance of the disk may miss this change. Then the following loop sees the advance.
        for s in &self.streams {
            self.follow_disk(s, Pos(s.reached[Rung::Disk].load(Ordering::SeqCst)));
        }
    }

    /// Raises the mirror's position to `end`, the position of the disk, if the mirror follows the disk.
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
