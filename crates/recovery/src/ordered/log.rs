//! The ordered frames of all streams, epoch by epoch.
//!
//! Within a stream epochs never decrease, not even from one life of the database to the next. Each stream has a next
//! frame, the first that was not taken yet. The next epoch is the lowest epoch of these frames.

use perdura_base::Result;
use perdura_formats::OrderedPayload;
use perdura_formats::ordered::{OrderedHead, Part};
use perdura_wal::{Frame, Holds, Origin, StreamScan};

use super::{OrderedFrame, malformed};
use crate::claims::Claims;
use crate::cursor::{Cursor, FrameBytes, Reads};
use crate::families::Family;
use crate::report::Progress;
use crate::route::foreign;
use crate::streams::UNIT_BYTES;

/// A frame from the log.
pub(super) struct Entry {
    pub head: EntryHead,
    pub bytes: FrameBytes,
}

/// The decoded head of a frame, which is kept in addition to the frame's bytes.
pub(super) struct EntryHead {
    pub family: Family,
    pub origin: Origin,
    numbers: OrderedHead,
    /// The offset of the frame's body in the frame's payload.
    body: usize,
}

impl Entry {
    /// Returns the frame's partitions, and the frame's sequence number in each.
    pub fn parts(&self) -> &[Part] {
        &self.head.numbers.parts
    }

    /// Decodes the frame, calls `play` with it, and returns the result of `play`.
    pub fn with<T>(&mut self, play: impl FnOnce(&OrderedFrame<'_>, &Origin) -> T) -> T {
        let EntryHead {
            family,
            origin,
            numbers,
            body,
        } = &mut self.head;
        let frame = OrderedFrame {
            family: *family,
            payload: OrderedPayload::resume(std::mem::take(numbers), self.bytes.payload(), *body),
        };
        let played = play(&frame, origin);
        *numbers = frame.payload.head;
        played
    }
}

/// A reader of the ordered frames of declared families.
struct Declared<'a> {
    claims: Claims,
    progress: &'a Progress,
}

impl Reads for Declared<'_> {
    type Entry = EntryHead;

    fn wants(&self, holds: Holds) -> bool {
        holds.ordered
    }

    fn read(&self, frame: Frame<'_>, origin: &Origin) -> Result<Option<EntryHead>> {
        let Some(family) = Family::of(frame.kind) else {
            return Ok(None);
        };
        if !self.claims.has(frame.kind) {
            return Err(foreign(frame, origin));
        }
        let payload = OrderedPayload::decode(frame.payload);
        let payload = payload.map_err(|why| malformed(family, why, origin))?;
        Ok(Some(EntryHead {
            family,
            origin: *origin,
            body: payload.body_at(),
            numbers: payload.head,
        }))
    }

    fn order(entry: &EntryHead) -> u64 {
        entry.origin.epoch.0
    }

    fn follows(&self, entry: &EntryHead, before: u64, origin: &Origin) -> Result<()> {
        assert!(
            before <= entry.origin.epoch.0,
            "epochs go back in stream {} at {}",
            origin.stream,
            origin.pos
        );
        Ok(())
    }

    fn end(entry: &EntryHead) -> u64 {
        entry.origin.epoch.0
    }

    fn note_read(&self, bytes: u64) {
        self.progress.add_done(bytes);
    }
}

/// The ordered frames of a log, to be taken epoch by epoch.
pub(super) struct Epochs<'a> {
    cursor: Cursor<'a, Declared<'a>>,
}

impl<'a> Epochs<'a> {
    /// Makes a reader that reads a log epoch by epoch. It reads each stream up to the stream's cut.
    pub fn new(scans: &'a [StreamScan], claims: Claims, progress: &'a Progress) -> Epochs<'a> {
        let declared = Declared { claims, progress };
        let cursor = Cursor::new(scans, declared, UNIT_BYTES, None);
        progress.add_total(cursor.body_bytes());
        Epochs { cursor }
    }

    /// Takes the frames of the next epoch, stream by stream. `None`: the log has ended.
    ///
    /// # Errors
    /// Errors of the disk; damage of the log; an unreadable frame; a frame of an undeclared family.
    pub fn next_epoch(&mut self) -> Result<Option<Vec<Entry>>> {
        let Some((epoch, _)) = self.cursor.head()? else {
            return Ok(None);
        };
        let mut taken = Vec::new();
        for stream in 0..self.cursor.streams() {
            let mut keep = |head, bytes| taken.push(Entry { head, bytes });
            self.cursor.take(epoch, stream, &mut keep)?;
        }
        assert!(
            !taken.is_empty(),
            "epoch {epoch} was at the head of a stream"
        );
        Ok(Some(taken))
    }
}
