//! The log as a sequence of whole epochs, over all streams, while it is being appended.
//!
//! A [`LogCursor`] reads one stream. An archive needs all of them, because an epoch is durable or void as a whole. An
//! [`EpochSource`] merges the cursors of all streams by epoch: it returns the frames of one epoch after the other. The
//! frames of one stream come in their order, the streams in any order. Between two epochs it returns the end of the
//! epoch in each stream, and the time when it was written. A reader that continues in another life must have saved
//! both.
//!
//! A step reads at most one block of frames. So the source is a machine that a caller interleaves with its other I/O; a
//! large epoch takes many steps.
//!
//! # Invariants
//! * No frame of an epoch beyond the D that the caller names is returned, in whatever stream it is.
//! * Void epochs do not occur: what a life wrote beyond its cut is in no life's part of a stream. They are
//!   empty epochs, as are those in which nothing was appended.
//! * An epoch is whole when its end is returned: every stream was read up to its next epoch, or up to D's end.
//! * A source that is opened where another one ended an epoch returns what the other would have returned next.
//!
//! # Moments
//! A block has the wall clock at which it was sealed. Flushers seal the streams at different speeds, so those clocks
//! rise within a stream, but not from epoch to epoch over all streams. The moment of an epoch is the latest clock of
//! its blocks, and never before the moment of the epoch before it.
//!
//! # Source
//! *Single-pass restore after a media failure* (004), section 3.1: the archiver reads the recovery log.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_usize;
use perdura_base::{Epoch, Error, Pos, Result, StreamId};
use perdura_device::Disk;

use crate::anchor::{History, Vouched};
use crate::block::BLOCK_BYTES_MAX;
use crate::cursor::LogCursor;
use crate::ends::EpochEnds;
use crate::frame::{Direction, Frame, for_each_frame};
use crate::unit::Origin;

/// The result of a step of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStep {
    /// Everything up to D has been returned, and [`EpochSource::at`] is at D.
    Idle,
    /// The frames of a block have been returned, as far as they are whole.
    Frames,
    /// All frames of an epoch have been returned.
    End {
        /// The epoch, and its end in each stream.
        end: EpochEnds,
        /// Its moment, microseconds since 1970.
        wall_us: u64,
    },
}

/// One stream of the source.
struct Part {
    cursor: LogCursor,
    /// The epoch of the next block. `None`: there was no further block up to the D of the last look.
    next: Option<Epoch>,
    /// The bytes of a frame that later blocks of the epoch complete, and the frame's position.
    rest: Vec<u8>,
    rest_from: Option<Origin>,
    /// True if no frame has begun: the first block may begin within one.
    is_first: bool,
}

/// A reader of whole epochs of all streams, in order.
pub struct EpochSource {
    parts: Vec<Part>,
    at: EpochEnds,
    /// The epoch that is being read.
    open: Option<Epoch>,
    wall_us: u64,
}

impl EpochSource {
    /// Opens a source over the log of the database with this `history`. It begins behind the epoch and at the positions
    /// of `from`. They are the result of an [`End`](SourceStep::End) or of [`at`](Self::at) in this life or an earlier
    /// one. For an image they are the positions at which its checkpoint begins, and the epoch before its lowest. Then
    /// the first epoch is returned from there on. `disks[s]` holds stream s.
    ///
    /// # Errors
    /// [`Error::Usage`] if the numbers of positions and streams differ, or no block begins at a position.
    pub fn open(
        disks: &[Arc<dyn Disk>],
        history: &History,
        from: &EpochEnds,
    ) -> Result<EpochSource> {
        assert_eq!(
            disks.len(),
            usize::from(history.streams),
            "a disk for each stream"
        );
        if from.ends.len() != disks.len() {
            return Err(Error::Usage(format!(
                "{} positions for a log of {} streams",
                from.ends.len(),
                disks.len()
            )));
        }
        let places = (0u8..).map(StreamId).zip(&from.ends).zip(disks);
        let parts = places.map(|((stream, at), disk)| {
            Ok(Part {
                cursor: LogCursor::open(Arc::clone(disk), history, stream, *at)?,
                next: None,
                rest: Vec::new(),
                rest_from: None,
                is_first: true,
            })
        });
        Ok(EpochSource {
            parts: parts.collect::<Result<_>>()?,
            at: from.clone(),
            open: None,
            wall_us: 0,
        })
    }

    /// Returns the newest epoch whose end was returned, and its ends. After a step that found everything up to D
    /// returned, it is D. A caller that saves it continues from there.
    #[must_use]
    pub fn at(&self) -> &EpochEnds {
        &self.at
    }

    /// Takes one step towards the `durable` epoch, which never decreases. Passes frames to `each`, with the block that
    /// they begin in.
    ///
    /// # Errors
    /// [`Error::Truncated`] if a stream does not reach back to that position. The disk's error. [`Error::Corrupt`] if
    /// the bytes are not what is durable: the source stays at its position, and the next step tries again. The errors
    /// of `each`: then a caller that cannot continue from there opens another source at [`at`](Self::at).
    pub fn step(
        &mut self,
        durable: &Vouched,
        mut each: impl FnMut(Frame<'_>, &Origin) -> Result<()>,
    ) -> Result<SourceStep> {
        assert!(
            self.at.epoch <= durable.epoch || self.open.is_none(),
            "epoch {} is being read, and D is {}",
            self.at.epoch,
            durable.epoch
        );
        let least = self
            .open
            .unwrap_or(Epoch(self.at.epoch.0.saturating_add(1)));
        for part in &mut self.parts {
            part.look(durable, least)?;
        }
        let lowest = self.parts.iter().filter_map(|part| part.next).min();
        let Some(epoch) = self.open.or(lowest) else {
            return self.idle(durable);
        };
        assert!(
            lowest.is_none_or(|lowest| lowest >= epoch),
            "a block of epoch {lowest:?} stands behind the begin of epoch {epoch}"
        );
        let part = self.parts.iter_mut().find(|part| part.next == Some(epoch));
        let Some(part) = part else {
            return self.end(epoch);
        };
        self.open = Some(epoch);
        self.wall_us = self.wall_us.max(part.read(durable, &mut each)?);
        Ok(SourceStep::Frames)
    }

    /// Ends a step that found nothing left up to D: the epochs up to it that were not returned are empty.
    fn idle(&mut self, durable: &Vouched) -> Result<SourceStep> {
        self.at.check_durable(durable)?;
        let ends = self.ends();
        assert!(
            ends == durable.ends,
            "everything up to D is read: {ends:?} of {:?}",
            durable.ends
        );
        self.at = EpochEnds {
            epoch: durable.epoch,
            ends,
        };
        Ok(SourceStep::Idle)
    }

    /// Ends an epoch whose blocks have all been read.
    fn end(&mut self, epoch: Epoch) -> Result<SourceStep> {
        assert!(epoch > self.at.epoch, "epoch {epoch} ends once");
        for part in &self.parts {
            part.check_whole(epoch)?;
        }
        self.open = None;
        self.at = EpochEnds {
            epoch,
            ends: self.ends(),
        };
        Ok(SourceStep::End {
            end: self.at.clone(),
            wall_us: self.wall_us,
        })
    }

    fn ends(&self) -> Vec<Pos> {
        self.parts.iter().map(|part| part.cursor.at()).collect()
    }
}

impl Part {
    /// Reads the header of the next block: it must be of the epoch that is being read, the `least`, or of a later one.
    fn look(&mut self, durable: &Vouched, least: Epoch) -> Result<()> {
        let header = match self.cursor.peek(&seen_durable(durable, self.cursor.at())) {
            Err(_) if armed(Flaw::EpochBeyondDArchived) => None,
            looked => looked?,
        };
        self.next = header.map(|header| header.epoch);
        if let Some(epoch) = self.next.filter(|epoch| *epoch < least) {
            return Err(Error::corrupt(
                format!("log stream {}", self.cursor.stream()),
                self.cursor.at().0,
                format!("a block of epoch {least} or a later one"),
                format!("a block of epoch {epoch}, which should have ended before"),
                "The epoch does not end at these positions. Begin again from an image.",
            ));
        }
        Ok(())
    }

    /// Reads the next block, whose header was read before, and passes its frames on. Returns its clock.
    fn read(
        &mut self,
        durable: &Vouched,
        each: &mut impl FnMut(Frame<'_>, &Origin) -> Result<()>,
    ) -> Result<u64> {
        let Part {
            cursor,
            rest,
            rest_from,
            is_first,
            ..
        } = self;
        let stream = cursor.stream();
        let seen = seen_durable(durable, cursor.at());
        let block = cursor.read(&seen)?;
        let block = block.expect("a block that was looked at is still durable");
        let header = &block.header;
        assert!(
            header.epoch <= durable.epoch,
            "a block of epoch {} is read, and D is {}",
            header.epoch,
            durable.epoch
        );
        let here = Origin {
            stream,
            life: header.incarnation,
            pos: header.pos,
            epoch: header.epoch,
        };
        let mut body = block.body();
        if *is_first {
            // This is the rest of a frame that began before the source did.
            body = &body[to_usize(u64::from(header.first_frame)).min(body.len())..];
            *is_first = body.is_empty();
        }
        if let Some(from) = *rest_from {
            // The first frame began in an older block; those behind it begin in this one.
            rest.extend_from_slice(body);
            let mut origin = from;
            let whole = for_each_frame(rest, Direction::Forward, |frame| {
                each(frame, &std::mem::replace(&mut origin, here))
            })?;
            if whole > 0 {
                rest.drain(..whole);
                *rest_from = (!rest.is_empty()).then_some(here);
            }
        } else {
            let whole = for_each_frame(body, Direction::Forward, |frame| each(frame, &here))?;
            if whole < body.len() {
                rest.extend_from_slice(&body[whole..]);
                *rest_from = Some(here);
            }
        }
        Ok(header.wall_us)
    }

    /// Checks that a frame ends in the epoch that it begins in.
    fn check_whole(&self, epoch: Epoch) -> Result<()> {
        let Some(from) = self.rest_from else {
            return Ok(());
        };
        Err(Error::corrupt(
            format!("log stream {}", from.stream),
            from.pos.0,
            format!("whole frames up to the end of epoch {epoch}"),
            format!("{} bytes that are not a frame", self.rest.len()),
            "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
        ))
    }
}

/// Returns what a stream's cursor takes for durable. The seeded bug reads a stream as far as it is written, although
/// another one does not hold its part of the epoch.
fn seen_durable(durable: &Vouched, at: Pos) -> std::borrow::Cow<'_, Vouched> {
    if !armed(Flaw::EpochBeyondDArchived) {
        return std::borrow::Cow::Borrowed(durable);
    }
    let end = Pos(at.0 + perdura_base::num::to_u64(BLOCK_BYTES_MAX));
    std::borrow::Cow::Owned(Vouched {
        epoch: Epoch(u64::MAX),
        wall_us: 0,
        ends: vec![end; durable.ends.len()],
    })
}
