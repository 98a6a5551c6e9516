//! The interface to an image that a database is recovered from.
//!
//! An image has disks, each disk has parts, and parts may reach memory in any order. The records of a page are tested
//! against the page's [`Base`]. Two pages may have different bases: a damaged page of the newest image is replaced from
//! an older image.
//!
//! [`crate::plan`] and [`crate::load`] implement the interface for the two image slots of a database.

use perdura_base::cursor::Reader;
use perdura_base::{CkptEpoch, Epoch, Error, PageId, Pos, Result, StreamId};
use perdura_heap::Heap;

use crate::rule::ImageKind;

/// An image that a database is recovered from. All methods may run on any thread.
pub trait Image: Sync {
    /// A part of the image: `read` returns it, and `play` takes it.
    type Part: Send;

    /// Returns the state that the image's pages hold. A page that was replaced from an older image holds an older
    /// state.
    fn kind(&self) -> ImageKind;

    /// Returns the base that the records of a page are tested against. `None`: the page cannot be recovered and is left
    /// out.
    fn base_of(&self, page: PageId) -> Option<&Base>;

    /// Returns the number of parts on each disk.
    fn parts(&self) -> Vec<usize>;

    /// Reads a part: the job BR of [`crate::level`].
    ///
    /// # Errors
    /// Errors of the disk.
    fn read(&self, disk: usize, part: usize) -> Result<Self::Part>;

    /// Returns the size of a part, bytes.
    fn bytes(&self, part: &Self::Part) -> u64;

    /// Puts a part into memory: the job BP of [`crate::level`]. Returns the number of damaged pages. If a page is
    /// damaged, the state that is being recovered is void. The image remembers every damaged page.
    ///
    /// # Errors
    /// Any error ends the recovery.
    fn play(&self, heap: &Heap, part: Self::Part) -> Result<u64>;

    /// Checks that the log reaches far enough for this image: an image is usable only if the records of all its changes
    /// are durable.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log ends too early for this image. `end` is the last epoch of the log.
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
    /// Returns the base of an image. Records before `begin` of their stream do not concern the image.
    #[must_use]
    pub fn new(kind: ImageKind, begin: Vec<Pos>) -> Base {
        Base { kind, begin }
    }

    /// Returns, for each stream, the first position to read for this image.
    #[must_use]
    pub fn begin(&self) -> &[Pos] {
        &self.begin
    }

    /// Returns whether a record at this position may concern the image. A record before the image's begin does not
    /// concern it, whatever the record's tag.
    #[must_use]
    pub fn reaches(&self, stream: StreamId, pos: Pos) -> bool {
        self.begin
            .get(usize::from(stream.0))
            .is_none_or(|begin| pos >= *begin)
    }

    /// Returns the checkpoint epoch of the base's sweep. Players that decide only by tags or begin marks need this
    /// epoch.
    ///
    /// # Errors
    /// [`Error::Usage`] for a consistent cut, because a cut has no tags and no begin marks.
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

/// Returns the checkpoint epoch that a begin mark names; `None` if the payload does not parse.
pub(crate) fn begun_by(payload: &[u8]) -> Option<CkptEpoch> {
    Reader::new(payload).varint().map(CkptEpoch)
}
