//! The registry of seeded recovery bugs.
//!
//! Each flaw is a mistake that was made once, or that an algorithm as the paper prints it invites. The code calls
//! [`armed`] at the place of the mistake. Without the `flaws` feature, [`armed`] returns the constant `false`, and the
//! compiler removes the branch. The simulator must catch every flaw, which shows that the tests would notice the
//! mistake.

mod lists;

/// A seeded bug. Each variant's comment describes the wrong behaviour. To find the code that makes the mistake, search
/// for the variant.
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
    /// After a crash, a restart believes that the other image's pages have not changed since the anchor was written.
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
    /// An epoch counts as durable when one stream, and not all, holds its part durably.
    OneStreamSuffices,
    /// A reply that was computed from a pre-committed write does not wait until the write is durable.
    EagerReadReply,
    /// An image is overwritten without being marked as building first.
    NoBuildingMark,
    /// The log is truncated at the newer image, so the older one can no longer be used.
    TruncateAtNewer,
    /// Segments are recycled before the anchor that allows it is durable.
    TruncateBeforeAnchor,
    /// A new segment's directory entry is not synced before its blocks are acknowledged.
    NoDirSync,
    /// A failed sync is repeated, and the result of the second try is believed.
    SyncRetried,
    /// A block whose write the disk refuses for want of space counts as written. It is written only after later blocks.
    RefusedBlockLate,
    /// A block is accepted wherever it is found: recycled segments resurrect old blocks.
    PositionUnchecked,
    /// The checkpoint copies a page after it has released the partition's latch.
    CopyAfterLatch,
    /// A page of the image is loaded without comparing its checksum with the directory.
    ImageCrcUnchecked,
    /// Pages beyond the image's directory are read from the image's file instead of being zeros.
    JunkBeyondDirectory,
    /// The dirty bit is cleared although the write of the page failed.
    FailedWriteClean,
    /// The anchor is written to both of its copies with one sync.
    AnchorOneSync,
    /// Restart starts its epochs right after the durable one, reusing void epochs.
    EpochReused,
    /// A restart does not list the collections that no header names: their rows stay for good.
    OrphansForgotten,
    /// A restart orders the items of a list by their slots instead of their labels.
    ListBySlot,
    /// An item put into a gap without a middle gets its neighbour's label.
    LabelTwice,
    /// The group holds only the partitions declared before a header was read: changes in
    /// the home of a renamed collection are missing.
    HomeNotLogged,
    /// Deleting a collection whose home is in another partition does not make it an orphan there.
    ForeignNotOrphaned,
    /// A restart looks for headers in the home's partition only: a renamed collection
    /// counts as an orphan, and the purge removes it.
    ForeignHeaderUnclaimed,
    /// A rolled-back delete leaves the collection on the list of orphans.
    OrphanNotAdopted,
    /// After a restart collections are numbered from their count instead of their greatest number.
    CollectionIdReused,
    /// A new score is written into the old slot, but the index keeps the old order of scores.
    ScoreNotMoved,
    /// A scan skips entries that neighbours displaced.
    ScanSkipsDisplaced,
    /// The purge removes the rows of an orphan and leaves the pages of long elements.
    ChainLeaked,
    /// The salt of an index depends on the time at which the index was made: after a restart, a cursor points to
    /// another place.
    SaltFromClock,
    /// A restart does not rewrite the blocks that it keeps and that the anchor does not vouch for.
    TailNotRewritten,
    /// A restart syncs the blocks that it keeps but does not rewrite them. After a failed sync, another sync writes
    /// nothing.
    TailOnlySynced,
    /// The anchor vouches for an epoch before it is durable.
    VouchedBeforeDurable,
    /// A transaction whose closure panics releases its latches without undoing its changes.
    PanicNotUndone,
    /// A draft that is dropped does not become an orphan: its rows stay until a restart.
    DraftForgotten,
    /// A collection that has got its header still counts as a draft, and is removed when its builder is dropped.
    DraftNotClaimed,
    /// After the transaction that gave a draft its header is undone, the draft still counts as claimed by that header.
    DraftStaysClaimed,
    /// A key gets a string that was built in steps, but the draft keeps it too.
    TextKeptByDraft,
    /// The purge frees the first pages of a long value, but the value's row still names them.
    TrimNotNoted,
    /// A stream counts as durable up to the end of the write that completed last, although earlier writes are still in
    /// flight.
    NewestCompletionCounts,
    /// The writes that a killed process has in flight hold no lock: they land in a segment that the next life uses.
    LocksNotKept,
    /// A hole that writes in flight left at the end of the log counts as damage.
    HoleForDamage,
    /// Durable blocks that are missing count as a hole that writes in flight left.
    DamageForHole,
    /// The header of a segment is written, but not durable before the segment's first block.
    HeaderNotDurable,
    /// The mark in a segment that another one follows is written, but is not durable before the first block of the
    /// following segment.
    MarkNotDurable,
    /// A segment is recycled while a write to it is in flight.
    RecycledInFlight,
    /// An entry of the sidecar counts although its slot now has a row of another kind.
    KindInPlaceKept,
    /// An entry of the sidecar counts although another key has taken its slot.
    SlotKeyKept,
    /// An entry of the sidecar counts although its page was given to another class.
    PageClassKept,
    /// Replay ignores that a number is missing among a partition's ordered frames.
    SequenceGapIgnored,
    /// An ordered frame of several partitions is played when it is next in one of them, and not in all.
    FenceAtOneQueue,
    /// Ordered frames beyond the cut are played.
    CommandOfVoidTail,
    /// Ordered frames of one partition are played out of order.
    ColumnImagesUnordered,
    /// A restart does not know a table that was dropped at the log's end: the commands before its drop find no table.
    CommandBeforeDrop,
    /// A restart knows a dropped table only in partitions where the image has its pages. It does not know a table that
    /// was created after the image.
    TableBornAndDropped,
    /// A cut takes the partitions' latches one after the other, and does not hold all of them at once.
    CutLatchesSingly,
    /// The sequence number of a partition is read after the cut has released its latch.
    PseqReadAfterRelease,
    /// A page that was clean at the cut and has changed since is taken for a page that was born after the cut.
    CleanAtCutTakenForBorn,
    /// A checkpoint that visits a page which has changed since the cut clears the page's dirty bit.
    KeptVisitClearsDirty,
    /// The copy that a commit keeps for a second cut replaces the one for the first cut.
    SecondCutOverwritesKept,
    /// A snapshot that a user takes raises the checkpoint epoch.
    SnapshotRaisesG,
    /// A rollback leaves the entries in secondary indexes that the transaction made.
    IndexEntryKeptAfterAbort,
    /// A table takes a free page even if the page's earlier changes were not logged: page records are then applied to a
    /// page whose bytes were never logged.
    PoolsShared,
    /// A range inside a range that was saved before is saved again, and the later save counts as the older state.
    RangeInsideSave,
    /// A command that used a page-addressed table is logged as a command all the same.
    CommandReadPages,
    /// A transaction that is undone keeps its sequence numbers.
    AbortKeepsSequence,
    /// A rollback does not clear the bits of the rows that the transaction had changed. These bits say that a
    /// checkpoint in row mode has a copy of a row.
    AbortKeepsDirtyBit,
    /// The memory limit holds during a replay, too.
    MemoryLimitInReplay,
    /// A replayed procedure gets the present time, and not the time of its original call.
    ReplayReadsClock,
    /// A restart logs again the transactions that it replays.
    ReplayLogsAgain,
    /// After a restart a partition counts from the frames that were played, not from the image's number. Without played
    /// frames, the partition gives out ids of rows a second time.
    RowIdUsedTwice,
    /// A checkpoint is a fuzzy sweep although ordered frames are logged.
    FuzzyUnderOrdered,
    /// A restart decides which records a consistent image has by the epoch of the image's end, and not by tags.
    CutImageByEpoch,
    /// Entries of the sidecar count for key-addressed tables. Their pages may have changed between the cut and the
    /// sidecar without a page record about it.
    SidecarBelievedForKept,
    /// The digest of a page or a record is not bound to its page: two pages may be swapped.
    DigestUnbound,
    /// A run of the archive is published before its bytes are durable.
    RenameBeforeSync,
    /// Runs are merged that are not neighbours: the merged run covers epochs that it has no records of.
    MergeOfStrangers,
    /// Records are combined although a retained image has some of them and not the others.
    NetAcrossImage,
    /// Records are combined although an image that is being built has some of them and not the others.
    NetAcrossBuilding,
    /// A net record counts only the updates of its last input.
    UpdateSpanLost,
    /// Records are combined if no image lies above the first record's tag and at or below the last record's tag. That
    /// assumes that the tags of a page never fall.
    TagsTakenForRising,
    /// After a restart from an older image, pages are tagged with that image's number. A backup of a newer image then
    /// counts as having changes that it does not have.
    TagBelowKeptBackup,
    /// Restore: records of the backup's sweep that came after the target are left in its pages.
    LaterEpochsKept,
    /// Restore: runs are read up to the target, not up to the end of the backup's sweep.
    RunsReadUpToTarget,
    /// Restore: a backup is the state of an epoch, but its records are judged by tags, as if it were a sweep.
    CutJudgedByTag,
    /// Restore: runs are applied to a backup with key-addressed tables, which the runs do not bring up to date.
    RunsAppliedToKept,
    /// Restore: only the life in which the archive ends is read from a surviving log.
    LaterLivesIgnored,
    /// Restore: a page that the backup does not have begins with the old contents of the buffer.
    PageBeyondBackupKept,
    /// The standing proof counts pages of key-addressed tables, which change without a record.
    ProofOverBothPools,
    /// A checkpoint overwrites an image while it is copied into the archive.
    PinnedSlotOverwritten,
    /// The inputs of a merge are removed before the manifest without them is durable.
    InputsRemovedBeforeManifest,
    /// Two runs of the same range of epochs both count as part of the archive.
    EqualRangesBothRead,
    /// Runs leave the backlog before they are durable in the archive.
    BacklogForgottenEarly,
    /// An archive's reader reads a stream as far as the stream is written, beyond the durable epoch.
    EpochBeyondDArchived,
    /// An archive's reader continues behind the cut of a life, in a segment of that life.
    VoidEpochArchived,
    /// The log is truncated without regard to how far the archive has it.
    LogCutBeforeRun,
    /// A run is cut when its workspace is full, and not at an epoch's end.
    RunCutInsideEpoch,
    /// An acknowledged entry stays pending with its consumer: only one of its two rows is removed.
    AcknowledgedRowKept,
    /// A consumer of a stream's group is deleted, but its entries stay pending in the group.
    DeletedConsumerRowsKept,
    /// A group of a stream is deleted, but its consumers and pending entries stay.
    DestroyedGroupRowsKept,
    /// The group's last id is written only where the count of pending entries has changed, too.
    GroupLastNotWritten,
    /// A node of a stream takes an entry, but its length in use does not grow.
    GrownNodeTorn,
    /// An entry that begins a new node does not count for the stream's length.
    NewNodeNotCounted,
    /// Nodes that trimming removes still count for the stream's length.
    TrimNotCounted,
    /// An entry that a consumer claims also stays pending with the consumer that had it.
    ClaimedRowKept,
    /// The first entry of a stream is deleted, but the stream's head still names it.
    FirstIdStale,
    /// The changes that a script made before it passed a limit are kept, as if it had ended with an error.
    LimitKeepsHalf,
    /// The changes of a script that is killed are kept, as if it had ended with an error.
    HaltKeepsHalf,
    /// A script that runs again has other random numbers.
    RerunWithOtherSeed,
    /// A transaction that runs again sees another time.
    RerunAtOtherTime,
    /// A transaction that runs again begins on top of the changes of its earlier run.
    RerunOverHalf,
    /// The messages that a script had published before it ran again are sent, too.
    MessageOfRerunKept,
    /// A library of functions is kept in memory, but its row is not written.
    LibraryNotWritten,
    /// A waiting consumer receives an entry before its delivery is durable.
    DeliveryShownEarly,
    /// If an option occurs twice, access control checks the key of the first, and the command uses that of the last.
    FirstTargetJudged,
    /// A client that tracks prefixes is sent the names of keys that its user may not read.
    HiddenNameTold,
    /// A receipt says that a write is on disk, but it is not, and the receipt does not wait for it.
    ReceiptRoundedUp,
    /// A tree writes a page whose newest operation is not stable.
    PageBeyondStableLog,
    /// A tree's page that has changed since it was copied counts as written.
    DirtiedSinceWritten,
    /// The restart of a tree counts a page as written before it has finished redoing the page.
    RestartTellsWrites,
    /// The analysis of a tree begins with the first Δ whose TC-LSN is above the redo start, as the paper prints it.
    DeltasByStableEnd,
    /// An entry of the dirty page table keeps the lastLSN that it was made with, as the paper prints it.
    LastNotRefreshed,
    /// Pages of a tree are written in their places, without copies in the double-write file.
    NoDoubleWrite,
    /// Pages of a tree are written in their places before their copies are durable.
    DoubleNotSynced,
    /// The restart of a tree believes pages that a killed process has written but not synced, and does not write them
    /// again.
    PagesBelievedUnwritten,
    /// Redo does not look at the fences of a tree's page: a row that was moved to another page is put into its old
    /// page.
    FencesIgnored,
    /// A change of a tree's structure is logged as two records instead of one.
    StructureInTwoRecords,
    /// A page of a tree fills up. A restart that cuts it under a longer fence then finds no room.
    NoRoomForFence,
    /// A page of a tree counts as not in memory while it is read ahead. The copy that was read ahead then replaces one
    /// that was read and changed in the meantime.
    AheadOverNewer,
    /// An append takes its number before it reads the epoch that it joins.
    NumberBeforeEpoch,
    /// A restart undoes the compensations of a rollback, as if they were changes.
    CompensationUndone,
    /// A restart writes pages of a tree before it has made durable the log that it relies on.
    TreeLogBelievedUnwritten,
    /// A restart demands numbers above the end of the stable log without a gap.
    NumbersDemandedAboveEosl,
    /// A life gives operations numbers that an earlier life has given already.
    NumberReused,
    /// A checkpoint's cover does not reach back to the first record of the open transactions over a tree.
    CoverWithoutOpen,
    /// The changes to be undone in a tree are forgotten when the restart ends.
    LosersForgotten,
    /// Steal mode: a rollback within a checkpoint window is not compensated.
    NoClr,
    /// Steal mode, Algorithm 1, step 2 as the paper prints it: an update reads its page's tag without the latch, and
    /// changes the page later.
    FlagOutsideLatch,
    /// Steal mode, Algorithm 1, in the paper's order, step 5 before step 6: the record is appended after the latch is
    /// released. A crash between the two steps leaves a change in an image that the log does not have.
    LateAppendSteal,
    /// Steal mode: the active list is captured before the end mark is appended; restart follows
    /// Algorithm 3 as printed.
    ListRace,
    /// Steal mode: rollbacks are not compensated and restart is Algorithm 3 as printed, with a
    /// one-bit image id that is tested within the window only.
    PrintedRule,
    /// A node takes a block behind a gap.
    PositionGapAccepted,
    /// A node takes blocks of a writer that was replaced.
    GenerationUnchecked,
    /// A ring in the memory of a node that has ended counts as a copy.
    DeadRingCounts,
    /// A ring in a node's memory that a takeover has sealed counts as one that takes blocks.
    ClosedRingCounts,
    /// A node that lost its memory counts as one that holds the log.
    AmnesiaCounts,
    /// With one node left, its reply alone is enough for an acknowledgement, although the tail is not on disk yet.
    SoloBeforeFlush,
    /// Acknowledgements continue by the disk although the arbiter has not answered for longer than the lease.
    LeaseIgnored,
    /// A takeover reads the disk before the lease of the last writer is over.
    LeaseNotAwaited,
    /// Even in a mirror, the writer acknowledges what its own disk has synced.
    DiskAcknowledges,
    /// Acknowledgements rest on nodes before the anchor says so.
    MirrorBeforeAnchor,
    /// The view says that everything is on disk before the tail is synced.
    DiskBeforeTail,
    /// The tail's begin is moved up when the disk's copy is written, not when that copy is synced.
    LowAtWrite,
    /// The rings of the life before are dropped before the anchor names the new one.
    RingsRetiredEarly,
    /// Of the two nodes of a mirror, the node that holds more decides what is acknowledged.
    OneReplyIsEnough,
    /// Blocks that were sent to a node count as held.
    SentCounts,
    /// Blocks that a node held before it lost its memory count for its next start.
    HeldByOldStart,
    /// A node that returns belongs to the mirror before it holds all acknowledged frames.
    ReturnsBehind,
    /// A stream moves to nodes that do not hold all its acknowledged frames.
    MovesUnheld,
    /// A node that is asked to open a ring that it has already empties the ring.
    RingEmptiedAtOpen,
    /// A ring that was found damaged is replaced by an empty one while the view still relies on its contents.
    SpoiledRenewedAtOnce,
    /// A takeover does not stop nodes from taking blocks of the writer before.
    SealForgotten,
    /// A takeover accepts a node that was started again, and has an empty memory, as the node that the view names.
    EmptyNodeSuffices,
    /// A takeover does not raise the generation.
    GenerationKept,
    /// A writer that finds another writer's view continues from that view.
    FenceIgnored,
    /// While the outcome of a change of view is not known, acknowledgements rest on the old view alone.
    PendingViewIgnored,
    /// A change of view whose outcome is not known is given up when the arbiter still has the old view.
    PendingViewGivenUp,
    /// The next writer recycles a segment of the writer that it replaced, which may still be alive.
    RecycledUnderNextWriter,
    /// A page of a tree is written when only nodes, and not the disk, hold the log of its operations.
    PageOnMirror,
    /// An image counts when only nodes, and not the disk, hold the log that it rests on.
    ImageOnMirror,
    /// The anchor vouches for a part of the log that only nodes, and not the disk, hold.
    VouchedOnMirror,
    /// A block names an epoch as durable although only nodes, and not the disk, hold it.
    NamedOnMirror,
    /// A block is sealed when it is shipped, and sealed a second time when it is written.
    SealedAnew,
    /// The part of the log that is given up with a loss is not noted in the anchor.
    LossNotNoted,
    /// A drain begins where the anchor's voucher ends, although the log has been cut beyond that position.
    DrainedFromVouched,
    /// A takeover asks the nodes of a view for log, although the life of that view has been recovered already.
    OldLifeFetched,
    /// Before the tail is synced, the anchor says that nodes hold nothing that the disk lacks.
    AnchorBeforeTail,
    /// Steal mode: a commit is acknowledged when its own stream is synced past it.
    NoEpochs,
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

/// Returns whether the flaw is armed on this thread.
#[cfg(feature = "flaws")]
#[must_use]
pub fn armed(flaw: Flaw) -> bool {
    ARMED.with(std::cell::Cell::get) == Some(flaw)
}

/// Returns false: in a build without the registry no flaw is armed.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
#[must_use]
pub fn armed(_flaw: Flaw) -> bool {
    false
}
