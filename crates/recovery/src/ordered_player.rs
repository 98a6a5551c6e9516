//! The interface of a player of ordered frames, which a layer above implements: it knows tables and procedures.

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
    /// Its payload, the head of which is read.
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
    /// The first byte that is out of place.
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

/// A player of ordered frames: a layer above that knows tables and procedures.
///
/// Frames whose partitions are disjoint are played side by side, on any thread. The player takes the latches of a
/// frame's partitions itself. When a frame is played, all frames with smaller numbers in any of its partitions have
/// been, and none with a greater one. The first error ends the restart.
pub trait OrderedPlayer: Debug + Send + Sync {
    /// Begins the pass: pages, catalog and indexes are complete. A restart calls it once, even if it had to plan its
    /// image again. `image` is the checkpoint epoch of the image, 0 without an image.
    ///
    /// # Errors
    /// The player cannot serve the catalog.
    fn begin(&self, heap: &Arc<Heap>, catalog: &Catalog, image: CkptEpoch) -> Result<()>;

    /// Plays a frame, and makes the frame's numbers those of its partitions.
    ///
    /// # Errors
    /// The frame cannot be read ([`malformed`](crate::ordered::malformed) is the error for that), or its work cannot be
    /// repeated.
    fn play(&self, frame: &OrderedFrame<'_>, origin: &Origin) -> Result<()>;

    /// Ends the pass: all frames have been played.
    ///
    /// # Errors
    /// No log can leave this state.
    fn finish(&self) -> Result<()>;

    /// Returns the frames with other results than before the crash, if the player took the new results.
    fn divergences(&self) -> Divergences {
        Divergences::default()
    }
}
