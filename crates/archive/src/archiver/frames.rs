//! The ordered frames of the run that is being collected.
//!
//! A frame is kept once, with an entry for each of its partitions. When the run is cut, the entries are sorted by
//! partition and number. So they are written in the order of the run.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result};
use perdura_formats::OrderedPayload;
use perdura_wal::{FrameKind, Origin};

use crate::run::{FrameAt, FrameEntry, FrameOrPlace};
use crate::writer::{Progress, RunWriter};

/// An entry of a frame that is kept.
struct Spot {
    at: FrameAt,
    epoch: Epoch,
    what: SpotOf,
}

enum SpotOf {
    Frame {
        kind: FrameKind,
        from: usize,
        to: usize,
    },
    Elsewhere(FrameAt),
}

impl Spot {
    fn is_frame(&self) -> bool {
        matches!(self.what, SpotOf::Frame { .. })
    }
}

/// The frames that were collected for one run.
#[derive(Default)]
pub(super) struct FrameSpace {
    spots: Vec<Spot>,
    bytes: Vec<u8>,
}

impl FrameSpace {
    /// Returns the memory that the frames take, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.spots.len() * size_of::<Spot>()
    }

    /// Adds a frame of the log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a frame that cannot be decoded.
    pub fn add(&mut self, kind: FrameKind, payload: &[u8], origin: &Origin) -> Result<()> {
        let decoded = OrderedPayload::decode(payload).map_err(|why| {
            Error::corrupt(
                format!("log stream {}", origin.stream),
                origin.pos.0,
                format!("an ordered frame: {}", why.expected),
                format!("something else at byte {} of the frame", why.at),
                "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
            )
        })?;
        let mut places = decoded.head.parts.iter().map(|part| FrameAt {
            partition: part.0,
            number: part.1,
        });
        let home = places.next().expect("a decoded frame has a partition");
        let from = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.spots.push(Spot {
            at: home,
            epoch: origin.epoch,
            what: SpotOf::Frame {
                kind,
                from,
                to: self.bytes.len(),
            },
        });
        self.spots.extend(places.map(|at| Spot {
            at,
            epoch: origin.epoch,
            what: SpotOf::Elsewhere(home),
        }));
        debug_assert!(self.bytes() > from, "a frame takes memory");
        Ok(())
    }

    /// Sorts the frames.
    pub fn cut(mut self) -> SortedFrames {
        if armed(Flaw::FrameLeftOut)
            && let Some(last) = self.spots.iter().rposition(|spot| spot.is_frame())
        {
            self.spots.truncate(last);
        }
        self.spots.sort_unstable_by_key(|spot| spot.at);
        SortedFrames {
            space: self,
            next: 0,
        }
    }
}

/// The sorted frames of one run.
#[derive(Default)]
pub(super) struct SortedFrames {
    space: FrameSpace,
    next: usize,
}

impl SortedFrames {
    /// Returns whether the run has no frame.
    pub fn is_empty(&self) -> bool {
        self.space.spots.is_empty()
    }

    /// Encodes entries until one write has been made or no entry is left.
    ///
    /// # Errors
    /// Those of [`RunWriter::push_frame`].
    pub fn write_some(&mut self, writer: &mut RunWriter) -> Result<Progress<()>> {
        if writer.catch_up()? {
            return Ok(Progress::More);
        }
        let writes = writer.writes();
        while let Some(spot) = self.space.spots.get(self.next) {
            self.next += 1;
            writer.push_frame(&FrameEntry {
                at: spot.at,
                epoch: spot.epoch,
                carried: match &spot.what {
                    SpotOf::Elsewhere(home) => FrameOrPlace::Elsewhere(*home),
                    SpotOf::Frame { kind, from, to } => FrameOrPlace::Frame {
                        kind: *kind,
                        payload: &self.space.bytes[*from..*to],
                    },
                },
            })?;
            if writer.writes() > writes {
                return Ok(Progress::More);
            }
        }
        debug_assert_eq!(self.next, self.space.spots.len(), "all are written");
        Ok(Progress::Done(()))
    }
}
