//! Whether the log can be written and extended: spare segments, and what is known of a full disk.

use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result, StreamId};

use crate::log::Wal;
use crate::sizes::Span;
use crate::sync::Ordering;

/// The last attempt to add a segment found the disk full.
const NO_SPACE: u64 = 1;
/// It failed for another reason.
const NO_SEGMENT: u64 = 2;

impl Wal {
    /// Whether the last attempt to write or to extend the log found the disk full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.short.load(Ordering::Relaxed) == NO_SPACE || self.refused.load(Ordering::Relaxed) != 0
    }

    /// Whether the log cannot be written or extended now, for whatever reason: accepted blocks wait,
    /// and writes are refused once those would not fit into the segments there are.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) != 0 || self.refused.load(Ordering::Relaxed) != 0
    }

    /// Prepares a spare segment for a stream that has none and is past the middle of its files.
    /// Returns whether one was made. Slow: it writes a whole segment of zeros, without a lock and
    /// with a `pause` after every part of it.
    pub fn prepare_segment(&self, stream: StreamId, pause: &dyn Fn()) -> Result<bool> {
        let s = &self.streams[usize::from(stream.0)];
        let ahead = s
            .allocated_end
            .load(Ordering::Relaxed)
            .saturating_sub(s.sealed_end.load(Ordering::Relaxed));
        let next = self.next_span(stream);
        let plan = {
            let mut shelf = s.shelf.lock();
            if shelf.has_spare(next.bytes) {
                // A checkpoint may have freed segments while the disk was full.
                self.note_segment(Ok(()));
                return Ok(false);
            }
            if ahead > next.bytes / 2 {
                return Ok(false);
            }
            shelf.plan_spare(next.bytes)
        };
        let prepared = plan.prepare(pause);
        self.note_segment(prepared.as_ref().map(drop));
        s.shelf.lock().add_spare(prepared?);
        Ok(true)
    }

    /// Remembers whether a segment can be added.
    pub(crate) fn note_segment(&self, added: Result<(), &Error>) {
        let short = match added {
            Ok(()) => 0,
            Err(error) if error.is_disk_full() => NO_SPACE,
            Err(_) => NO_SEGMENT,
        };
        self.short.store(short, Ordering::Relaxed);
    }

    /// Whether a flush of `stream` will find room without making a segment first, which is slow.
    #[must_use]
    pub fn has_room_ahead(&self, stream: StreamId) -> bool {
        let s = &self.streams[usize::from(stream.0)];
        let allocated = s.allocated_end.load(Ordering::Relaxed);
        let ahead = allocated.saturating_sub(s.sealed_end.load(Ordering::Relaxed));
        ahead > 2 * to_u64(self.options.block_bytes_max)
            || s.shelf.lock().has_spare(self.next_span(stream).bytes)
    }

    /// The segment that `stream` will need after those it has.
    fn next_span(&self, stream: StreamId) -> Span {
        let number = usize::from(stream.0);
        let allocated = self.streams[number].allocated_end.load(Ordering::Relaxed);
        self.options
            .segments
            .span_at(self.start[number], Pos(allocated))
    }
}
