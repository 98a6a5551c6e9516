//! The log as a sequence of whole epochs over all streams, readable while it is being appended.
//!
//! A [`LogCursor`] reads one stream. An archive needs all streams, because an epoch is durable or void as a whole. An
//! [`EpochSource`] merges the cursors of all streams and returns the frames epoch by epoch. Within an epoch the frames
//! of a stream are in order, but the order of streams is arbitrary. After each epoch the source returns the epoch's end
//! in each stream, and its moment. To continue in a later life, a reader must have saved the ends and the moment.
//!
//! A step reads at most one block of frames, so a large epoch takes many steps. A caller can do other I/O between
//! steps.
//!
//! # Invariants
//! * The source returns no frame of an epoch above the D that the caller passes. This holds for all streams.
//! * Void epochs are not returned. The blocks of a void epoch lie beyond the life's cut. The source reads a closed life
//!   only up to the cut. A void epoch looks like an empty epoch.
//! * The end of an epoch is returned after all frames of the epoch. At that time every stream has been read up to its
//!   next epoch, or up to D's end.
//! * A new source, opened at an epoch's end, returns the steps that the old source would have returned.
//!
//! # Moments
//! Each block has the wall-clock time of its sealing. Flushers seal the streams at different speeds. So these times
//! ascend within a stream, but not from epoch to epoch over all streams. The moment of an epoch is the latest time of
//! its blocks, but never before the moment of the preceding epoch.
//!
//! # Source
//! *Single-pass restore after a media failure* (004), section 3.1: the archiver reads the recovery log.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_usize;
use perdura_base::{Epoch, Error, LifeId, Pos, Result, StreamId};
use perdura_device::Disk;

use crate::anchor::{History, Vouched};
use crate::block::BLOCK_BYTES_MAX;
use crate::cursor::LogCursor;
use crate::ends::EpochEnds;
use crate::frame::{Direction, Frame, for_each_frame};
use crate::lineage::Lineage;
use crate::unit::Origin;

/// The result of a step of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStep {
    /// Everything up to D has been returned. [`EpochSource::at`] now returns D.
    Idle,
    /// The whole frames of a block have been returned.
    Frames,
    /// All frames of an epoch have been returned.
    End {
        /// The epoch, with the epoch's end in each stream.
        end: EpochEnds,
        /// The moment of the epoch, microseconds since 1970.
        wall_us: u64,
    },
}

/// One stream of the source.
struct Part {
    cursor: LogCursor,
    /// The epoch of the next block. `None` if the stream had no further block up to D when it was last read.
    next: Option<Epoch>,
    /// The first bytes of a frame that continues in later blocks of the epoch.
    rest: Vec<u8>,
    rest_from: Option<Origin>,
    /// True until the start of a frame has been found. The first block may begin in the middle of a frame.
    is_first: bool,
}

/// A reader of the whole log, epoch by epoch. An epoch has the frames of all streams.
pub struct EpochSource {
    parts: Vec<Part>,
    at: EpochEnds,
    /// The epoch that is being read.
    open: Option<Epoch>,
    wall_us: u64,
    /// The lives of the log.
    lives: Lineage,
}

impl EpochSource {
    /// Opens a source over the log of the database with this `history`. The source begins to read at the positions of
    /// `from`, and first returns the epoch after `from`. `from` comes from an [`End`](SourceStep::End) or from
    /// [`at`](Self::at) in this life or an earlier one. To begin at an image, pass the start positions of the image's
    /// checkpoint. Also pass the epoch before the lowest epoch at these positions. `disks[s]` is the disk of stream s.
    ///
    /// # Errors
    /// [`Error::Usage`] if `from` does not have one position for each stream. [`Error::Usage`] also if no block can
    /// begin at one of the positions.
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
            lives: history.lineage.clone(),
        })
    }

    /// Returns the last epoch that has been returned in full, and the epoch's end in each stream. After a step that
    /// found nothing left up to D, this epoch is D. A caller that saves the value can later open a source there.
    #[must_use]
    pub fn at(&self) -> &EpochEnds {
        &self.at
    }

    /// Returns the life that has `epoch`, by its random number. 0: it is not known.
    #[must_use]
    pub fn life_at(&self, epoch: Epoch) -> LifeId {
        self.lives.life_at(epoch)
    }

    /// Takes one step towards the `durable` epoch, which must never decrease between calls. Passes each frame and the
    /// frame's first block to `each`.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the log of a stream no longer has the next block. [`Error::Corrupt`] if the bytes there
    /// are not the durable block. The disk's error. After these errors the source stays at its position, and the next
    /// step tries again. An error of `each` is returned too. A caller that cannot continue after this error opens a new
    /// source at [`at`](Self::at).
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
        let wall_us = part.read(durable, &mut each)?;
        self.wall_us = self.wall_us.max(wall_us);
        Ok(SourceStep::Frames)
    }

    /// Ends a step that found no more blocks up to D. Epochs up to D that were not returned are empty.
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

    /// Ends an epoch. All blocks of the epoch have been read.
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
            wall_us: std::mem::take(&mut self.wall_us),
        })
    }

    fn ends(&self) -> Vec<Pos> {
        self.parts.iter().map(|part| part.cursor.at()).collect()
    }
}

impl Part {
    /// Reads the header of the next block. Its epoch must be at least `least`, the epoch that is being read.
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

    /// Reads the cursor's block, and passes the block's frames to `each`. The block's header was read before. Returns
    /// the block's wall clock.
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
            // The block begins with the rest of a frame that began before the source's start. That rest is skipped.
            body = &body[to_usize(u64::from(header.first_frame)).min(body.len())..];
            *is_first = body.is_empty();
        }
        if let Some(from) = *rest_from {
            // The first frame began in an older block. All later frames begin in this block.
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

    /// Checks that no frame is incomplete at the end of an epoch.
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

/// Returns the durable epoch and ends to pass to a stream's cursor. With the seeded bug, the returned ends always cover
/// the next block, even if the epoch is not durable in all streams.
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
