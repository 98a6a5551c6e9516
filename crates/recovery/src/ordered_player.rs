//! The interface of a player of ordered frames. A layer above, which knows tables and procedures, implements it.

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
    /// Its family, which decides how its payload is read.
    pub family: Family,
    /// Its payload, whose head is decoded.
    pub payload: OrderedPayload<'a>,
}

impl<'a> OrderedFrame<'a> {
    /// Returns the transaction's partitions, and its number in each.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.payload.head.parts
    }

    /// Returns the body of a command.
    ///
    /// # Errors
    /// The position of the first byte that does not parse.
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
/// frame's partitions itself. When a frame is played, all frames with smaller numbers in any of its partitions have
/// been played, and no frame with a greater number. The first error ends the restart.
pub trait OrderedPlayer: Debug + Send + Sync {
    /// Begins the pass, when pages, catalog and indexes are complete. A restart calls this once, even if it had to load
    /// its image again. `image` is the checkpoint epoch of the image, 0 without an image.
    ///
    /// # Errors
    /// The player cannot work with this catalog.
    fn begin(&self, heap: &Arc<Heap>, catalog: &Catalog, image: CkptEpoch) -> Result<()>;

    /// Plays a frame, and sets the numbers of its partitions to the frame's.
    ///
    /// # Errors
    /// The frame cannot be read (then [`malformed`](crate::ordered::malformed) makes the error), or its work cannot be
    /// repeated.
    fn play(&self, frame: &OrderedFrame<'_>, origin: &Origin) -> Result<()>;

    /// Ends the pass: all frames have been played.
    ///
    /// # Errors
    /// The pass has ended in a state that no valid log leaves.
    fn finish(&self) -> Result<()>;

    /// Returns the frames whose replay had another result than before the crash, if the player accepted the new
    /// results.
    fn divergences(&self) -> Divergences {
        Divergences::default()
    }
}
