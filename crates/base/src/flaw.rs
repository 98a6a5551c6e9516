//! The registry of seeded recovery bugs.
//!
//! Each flaw is a mistake that was made once, or that a printed algorithm invites. The code calls
//! [`armed`] at the place of the mistake; without the `flaws` feature that returns the constant `false`
//! and the branch vanishes. The simulator must catch every flaw, which shows that the tests would
//! notice the mistake.

/// A seeded bug. The text says the story; the place is found by searching for the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Flaw {
    /// Blocks are not epoch-pure: a commit of e+1 is sealed into the block of e.
    ImpureBlocks,
    /// Restart keeps every valid block, not only those up to the cut of the durable epoch.
    CutIgnored,
    /// The void tail of an older incarnation stays readable for later restarts.
    VoidTailRevived,
    /// Pages born during a sweep are swept too.
    BornPagesSwept,
    /// After a crash the other image's pages are believed to be as the anchor left them.
    OtherImageTrusted,
    /// Pages changed by restart are not marked dirty for the image that was loaded.
    RestartChangesClean,
    /// The checkpoint epoch number of a crashed sweep is used again.
    CkptEpochReused,
    /// The anchor is written before the log of the window is durable.
    AnchorBeforeLog,
    /// The anchor is written before the image's pages are synced.
    AnchorBeforeImage,
    /// A transaction releases its latches before it appends its group.
    LateAppend,
    /// A record's tag is the database's checkpoint epoch, not its page's.
    TagFromClock,
    /// An epoch counts as durable when one stream holds its part.
    OneStreamSuffices,
    /// A reply computed from a pre-committed write does not wait for it.
    EagerReadReply,
    /// The image about to be overwritten is not marked as building first.
    NoBuildingMark,
    /// The log is cut at the newer image, so that the older is no fallback.
    TruncateAtNewer,
    /// Segments are recycled before the anchor that allows it is durable.
    TruncateBeforeAnchor,
    /// A new segment's directory entry is not synced before its blocks are acknowledged.
    NoDirSync,
    /// A failed sync is retried and its second answer believed.
    SyncRetried,
    /// A block whose write is refused for want of space counts, and is written again only after
    /// later blocks have.
    RefusedBlockLate,
    /// A block is accepted wherever it is found: recycled segments resurrect old blocks.
    PositionUnchecked,
    /// The checkpoint copies a page after it has released the partition's latch.
    CopyAfterLatch,
    /// A page of the image is loaded without comparing its checksum with the directory.
    ImageCrcUnchecked,
    /// Pages beyond the image's directory are read from its file instead of being zeros.
    JunkBeyondDirectory,
    /// The dirty bit is cleared although the write of the page failed.
    FailedWriteClean,
    /// The anchor is written to both of its copies with one sync.
    AnchorOneSync,
    /// Restart starts its epochs right after the durable one, reusing void epochs.
    EpochReused,
    /// A restart does not list the collections that no header names: their rows stay for good.
    OrphansForgotten,
    /// A restart puts the items of a list in the order of their slots, not of their labels.
    ListBySlot,
    /// An item put into a gap without a middle gets its neighbour's label.
    LabelTwice,
    /// Only the partitions declared before a header was read are in the group: what happened in
    /// the home of a renamed collection is not.
    HomeNotLogged,
    /// A collection whose home is in another partition is let go without a word to that one.
    ForeignNotOrphaned,
    /// After a restart a header is looked for in the home's partition only: a renamed collection
    /// counts as an orphan, and the purge takes it.
    ForeignHeaderUnclaimed,
    /// A rolled-back delete leaves the collection on the list of orphans.
    OrphanNotAdopted,
    /// After a restart collections are numbered from their count on, not from the greatest number.
    CollectionIdReused,
    /// A new score in the old slot is written, and the order of scores stays as it was.
    ScoreNotMoved,
    /// A scan passes over entries that neighbours have pushed from their places.
    ScanSkipsDisplaced,
    /// The purge removes the rows of an orphan and leaves the pages of long elements.
    ChainLeaked,
    /// The salt of an index comes from when it was made: after a restart a cursor stands elsewhere.
    SaltFromClock,
    /// A restart does not write again the blocks that it believes and nothing vouches for.
    TailNotRewritten,
    /// A restart syncs the blocks that it believes and does not write them: after a failed sync
    /// that changes nothing.
    TailOnlySynced,
    /// The anchor vouches for an epoch before it is durable.
    VouchedBeforeDurable,
    /// A transaction whose closure panics releases its latches and undoes nothing.
    PanicNotUndone,
    /// A draft that is dropped is no orphan: its rows stay until a restart.
    DraftForgotten,
    /// A collection that has got its header still counts as a draft, and goes away with its builder.
    DraftNotClaimed,
    /// After a naming that is undone the draft belongs to a header that is not there.
    DraftStaysClaimed,
    /// A key gets a string that was built in steps, and the draft it was built in keeps it, too.
    TextKeptByDraft,
    /// The purge frees the first pages of a long value, and its row still names them.
    TrimNotNoted,
    /// Steal mode: a rollback within a checkpoint window is not compensated.
    NoClr,
    /// Steal mode, Algorithm 1, step 2 as printed: an update reads its page's tag without the
    /// latch and changes the page later.
    FlagOutsideLatch,
    /// Steal mode, Algorithm 1, step 6 after step 5 as printed: the record is appended after the
    /// latch is released, so that a crash between leaves a change in an image and none in the log.
    LateAppendSteal,
    /// Steal mode: the active list is captured before the end mark is appended; restart follows
    /// Algorithm 3 as printed.
    ListRace,
    /// Steal mode: rollbacks are not compensated and restart is Algorithm 3 as printed, with a
    /// one-bit image id that is tested within the window only.
    PrintedRule,
    /// Steal mode: a commit is acknowledged when its own stream is synced past it.
    NoEpochs,
}

impl Flaw {
    /// Every flaw of executor mode, for the test that proves each is caught.
    pub const ALL: [Flaw; 47] = [
        Flaw::ImpureBlocks,
        Flaw::CutIgnored,
        Flaw::VoidTailRevived,
        Flaw::BornPagesSwept,
        Flaw::OtherImageTrusted,
        Flaw::RestartChangesClean,
        Flaw::CkptEpochReused,
        Flaw::AnchorBeforeLog,
        Flaw::AnchorBeforeImage,
        Flaw::LateAppend,
        Flaw::TagFromClock,
        Flaw::OneStreamSuffices,
        Flaw::EagerReadReply,
        Flaw::NoBuildingMark,
        Flaw::TruncateAtNewer,
        Flaw::TruncateBeforeAnchor,
        Flaw::NoDirSync,
        Flaw::SyncRetried,
        Flaw::RefusedBlockLate,
        Flaw::PositionUnchecked,
        Flaw::CopyAfterLatch,
        Flaw::ImageCrcUnchecked,
        Flaw::JunkBeyondDirectory,
        Flaw::FailedWriteClean,
        Flaw::AnchorOneSync,
        Flaw::EpochReused,
        Flaw::OrphansForgotten,
        Flaw::ListBySlot,
        Flaw::LabelTwice,
        Flaw::HomeNotLogged,
        Flaw::ForeignNotOrphaned,
        Flaw::ForeignHeaderUnclaimed,
        Flaw::OrphanNotAdopted,
        Flaw::CollectionIdReused,
        Flaw::ScoreNotMoved,
        Flaw::ScanSkipsDisplaced,
        Flaw::ChainLeaked,
        Flaw::SaltFromClock,
        Flaw::TailNotRewritten,
        Flaw::TailOnlySynced,
        Flaw::VouchedBeforeDurable,
        Flaw::PanicNotUndone,
        Flaw::DraftForgotten,
        Flaw::DraftNotClaimed,
        Flaw::DraftStaysClaimed,
        Flaw::TextKeptByDraft,
        Flaw::TrimNotNoted,
    ];

    /// The flaws that only steal mode has a place for.
    pub const STEAL: [Flaw; 6] = [
        Flaw::NoClr,
        Flaw::FlagOutsideLatch,
        Flaw::LateAppendSteal,
        Flaw::ListRace,
        Flaw::PrintedRule,
        Flaw::NoEpochs,
    ];
}

#[cfg(feature = "flaws")]
std::thread_local! {
    static ARMED: std::cell::Cell<Option<Flaw>> = const { std::cell::Cell::new(None) };
}

/// Arms one flaw on this thread, or disarms all.
#[cfg(feature = "flaws")]
pub fn arm(flaw: Option<Flaw>) {
    ARMED.with(|armed| armed.set(flaw));
}

/// Whether the flaw is armed on this thread.
#[cfg(feature = "flaws")]
#[must_use]
pub fn armed(flaw: Flaw) -> bool {
    ARMED.with(std::cell::Cell::get) == Some(flaw)
}

/// Whether the flaw is armed: never, in a build without the registry.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
#[must_use]
pub fn armed(_flaw: Flaw) -> bool {
    false
}
