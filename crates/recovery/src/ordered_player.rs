//! The interface of a player of ordered frames. A layer above this crate implements it, because it knows tables and
//! procedures.

use std::fmt::Debug;
use std::sync::Arc;

use perdura_base::{CkptEpoch, Result};
use perdura_formats::OrderedPayload;
use perdura_formats::ordered::{CommandFrame, Effects, Malformed, Part};
use perdura_heap::Heap;
use perdura_wal::Origin;

use crate::divergence::Divergences;
use crate::families::Family;
use crate::tables::Catalog;

/// A frame that the second pass plays.
#[derive(Debug, Clone)]
pub struct OrderedFrame<'a> {
    /// The frame's family, which defines the form of the payload.
    pub family: Family,
    /// The payload. Its head is already decoded.
    pub payload: OrderedPayload<'a>,
}

impl<'a> OrderedFrame<'a> {
    /// Returns the transaction's partitions, and the transaction's sequence number in each.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.payload.head.parts
    }

    /// Returns the body of a command.
    ///
    /// # Errors
    /// [`Malformed`] with the position of the first byte that does not parse.
    pub fn command(&self) -> Result<CommandFrame<'a>, Malformed> {
        debug_assert_eq!(self.family, Family::Commands, "the body of a command");
        self.payload.command()
    }

    /// Returns the effects of an effects frame.
    #[must_use]
    pub fn effects(&self) -> Effects<'a> {
        debug_assert_eq!(self.family, Family::Effects, "the body of effects");
        self.payload.effects()
    }
}

/// A player of ordered frames, implemented by a layer that knows tables and procedures.
///
/// Frames without a common partition may be played in parallel, on any thread. The player takes the latches of a
/// frame's partitions itself. In each partition, frames are played in the order of their numbers. The first error ends
/// the restart.
pub trait OrderedPlayer: Debug + Send + Sync {
    /// Begins the pass, after pages, catalog and indexes are complete. A restart calls this once, even if it has loaded
    /// an image more than once. `image` is the checkpoint epoch of the key-addressed
    /// rows in the image; 0 if there is no image.
    ///
    /// # Errors
    /// The player cannot work with this catalog.
    fn begin(&self, heap: &Arc<Heap>, catalog: &Catalog, image: CkptEpoch) -> Result<()>;

    /// Plays a frame. Also sets the sequence number of each partition of the frame. The frame holds the number for each
    /// partition.
    ///
    /// # Errors
    /// The frame is unreadable, or the frame's changes or call cannot be repeated. For an unreadable frame,
    /// [`malformed`](crate::ordered::malformed) makes the error.
    fn play(&self, frame: &OrderedFrame<'_>, origin: &Origin) -> Result<()>;

    /// Ends the pass, after all frames have been played.
    ///
    /// # Errors
    /// The state after the pass is a state that no valid log produces.
    fn finish(&self) -> Result<()>;

    /// Returns the frames whose results in the replay differ from the results before the crash. The default returns no
    /// frames. It is for players whose [`play`](Self::play) fails at such a frame.
    fn divergences(&self) -> Divergences {
        Divergences::default()
    }
}
