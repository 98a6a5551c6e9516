//! The interface of an image to recover from.
//!
//! An image has disks, each disk has parts, and parts may reach memory in any order. The records of a page
//! are tested against the page's [`Base`]. Two pages may have different bases: a page that is damaged in
//! the newest image comes from an older one.
//!
//! The first implementation is the two slots of a database ([`crate::plan`], [`crate::load`]).

use perdura_base::cursor::Reader;
use perdura_base::{CkptEpoch, Epoch, Error, PageId, Pos, Result, StreamId};
use perdura_heap::Heap;

use crate::rule::ImageKind;

/// An image to recover from. All methods may run on any thread.
pub trait Image: Sync {
    /// A part of the image, which `read` returns and `play` takes.
    type Part: Send;

    /// Returns the state that the image's pages hold, except pages with another base.
    fn kind(&self) -> ImageKind;

    /// Returns the base that the records of a page are tested against. `None`: the page is given
    /// up.
    fn base_of(&self, page: PageId) -> Option<&Base>;

    /// Returns the number of parts on each disk.
    fn parts(&self) -> Vec<usize>;

    /// Reads a part (BR).
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, disk: usize, part: usize) -> Result<Self::Part>;

    /// Returns the number of bytes that `read` returned.
    fn bytes(&self, part: &Self::Part) -> u64;

    /// Puts a part into memory (BP). Returns the number of pages that are damaged: the image knows
    /// which, and the state that is being recovered is void.
    ///
    /// # Errors
    /// Any ends the recovery.
    fn play(&self, heap: &Heap, part: Self::Part) -> Result<u64>;

    /// Checks that the log reaches far enough for this image: an image counts once the records of
    /// all its changes are durable.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log's end, epoch `end`, is too early for that.
    fn check_end(&self, end: Epoch) -> Result<()>;
}

/// The state that the records of a page are tested against.
#[derive(Debug, Clone, Default)]
pub struct Base {
    /// The state that the page's image holds.
    pub kind: ImageKind,
    begin: Vec<Pos>,
}

impl Base {
    /// Returns the base of an image whose first possible record is at `begin` in each stream.
    #[must_use]
    pub fn new(kind: ImageKind, begin: Vec<Pos>) -> Base {
        Base { kind, begin }
    }

    /// Returns the position in each stream from which it is read for this image.
    #[must_use]
    pub fn begin(&self) -> &[Pos] {
        &self.begin
    }

    /// Returns whether a record at this position may concern the image. Records before the image's
    /// begin do not, whatever their tag.
    #[must_use]
    pub fn reaches(&self, stream: StreamId, pos: Pos) -> bool {
        self.begin
            .get(usize::from(stream.0))
            .is_none_or(|begin| pos >= *begin)
    }

    /// Returns the sweep of the base, for a player that decides by tags or begin marks alone.
    ///
    /// # Errors
    /// [`Error::Usage`] for a consistent cut, which has neither.
    pub fn sweep(&self) -> Result<CkptEpoch> {
        match self.kind {
            ImageKind::Sweep(k) => Ok(k),
            ImageKind::Cut(epoch) => Err(Error::Usage(format!(
                "the image is the exact state of epoch {epoch}, and this restart method needs a \
                 fuzzy checkpoint. Choose a method that decides by epochs or fates"
            ))),
        }
    }
}

/// Returns the checkpoint of a begin mark.
pub(crate) fn begun_by(payload: &[u8]) -> Option<CkptEpoch> {
    Reader::new(payload).varint().map(CkptEpoch)
}
