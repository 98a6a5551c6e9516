//! The registry of seeded recovery bugs.
//!
//! A flaw is a mistake: Perdura once had it, or a paper's printed algorithm has it. The code calls [`armed`] where the
//! mistake would be made. Without the `flaws` feature, [`armed`] returns the constant `false`, and the compiler removes
//! the branch. A test arms each flaw and must find the wrong behaviour. This shows that the tests would notice the
//! mistake.

mod lists;

/// A seeded bug. Each variant's comment describes the wrong behaviour. To find the code that makes the mistake, search
/// for the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Flaw {
    /// A block has commits of two epochs: a commit of epoch e+1 is sealed into a block of epoch e.
    ImpureBlocks,
    /// A restart keeps every valid block, even blocks of epochs after the durable epoch.
    CutIgnored,
    /// The log of an ended life can end with void blocks. Later restarts still read these blocks.
    VoidTailRevived,
    /// A sweep visits even pages that were created after the sweep began.
    BornPagesSwept,
    /// After a crash, a restart trusts the image that it did not load: it assumes that this image's pages have not
    /// changed since the anchor was written.
    OtherImageTrusted,
    /// A restart changes a page, but the page still counts as clean for the image that the restart loaded.
    RestartChangesClean,
    /// A sweep reuses the checkpoint epoch of an earlier sweep that a crash interrupted.
    CkptEpochReused,
    /// The anchor is written before the checkpoint's log is durable.
    AnchorBeforeLog,
    /// The anchor is written before the image's pages are synced.
    AnchorBeforeImage,
    /// A transaction releases the latches before the transaction's group is appended.
    LateAppend,
    /// A record is tagged with the database's current checkpoint epoch instead of its page's tag.
    TagFromClock,
    /// An epoch counts as durable when one stream has its part on disk. Correct: when all streams have their parts on
    /// disk.
    OneStreamSuffices,
    /// An epoch is closed in a stream although a lane has groups of the epoch.
    LaneLeftFull,
    /// A group joins a lane with groups of the previous epoch. All of them then count as groups of the new epoch.
    LaneOfTwoEpochs,
    /// A reply depends on a write of a second transaction. The reply does not wait until this write is durable.
    EagerReadReply,
    /// An image is overwritten, but the anchor did not mark it as building before.
    NoBuildingMark,
    /// The log is truncated at the newer image, so the older image can no longer be used.
    TruncateAtNewer,
    /// Log segments are recycled before the anchor that makes them unnecessary is durable.
    TruncateBeforeAnchor,
    /// A new segment's directory entry is not synced before its blocks are acknowledged.
    NoDirSync,
    /// A failed sync is repeated, and the result of the second try is believed.
    SyncRetried,
    /// A block counts as written although the disk was too full to take it. It is written only after later blocks.
    RefusedBlockLate,
    /// A block is accepted at any position, so old blocks in recycled segments count again.
    PositionUnchecked,
    /// The checkpoint copies a page after it has released the partition's latch.
    CopyAfterLatch,
    /// A page of the image is loaded without comparing its checksum with the directory.
    ImageCrcUnchecked,
    /// Pages beyond the image's directory are read from the image's file instead of counting as zeros.
    JunkBeyondDirectory,
    /// The dirty bit is cleared although the write of the page failed.
    FailedWriteClean,
    /// The anchor's two copies are written before a single sync, so a crash can damage the two copies together.
    AnchorOneSync,
    /// After a restart, new epochs follow right after the durable epoch. So the ids of void epochs are used again.
    EpochReused,
    /// After a restart, the list of orphans lacks the collections that no header names. Their rows are never removed.
    OrphansForgotten,
    /// A restart orders a list's items by slot instead of by label.
    ListBySlot,
    /// A list item inserted between two adjacent labels gets one of these labels.
    LabelTwice,
    /// The rows of a renamed collection stay in their old partition. A transaction finds this partition only through
    /// the header. The transaction's group lacks the changes of such partitions.
    HomeNotLogged,
    /// A deleted collection does not become an orphan if the rows and the header are in different partitions.
    ForeignNotOrphaned,
    /// A restart looks for a collection's header only in the partition of its rows. So a renamed collection counts as
    /// an orphan, and the purge removes it.
    ForeignHeaderUnclaimed,
    /// A rolled-back delete leaves the collection on the list of orphans.
    OrphanNotAdopted,
    /// After a restart, the next collection id follows from the count of collections instead of the greatest id.
    CollectionIdReused,
    /// A new score is written into the old slot, but the index keeps the old order of scores.
    ScoreNotMoved,
    /// A scan skips displaced index entries, which did not fit into the home slot.
    ScanSkipsDisplaced,
    /// The purge of an orphan removes the orphan's rows, but not the pages of long elements.
    ChainLeaked,
    /// The salt of an index depends on the time when the index was created, and a restart creates the index anew. So a
    /// scan with a cursor from before the restart continues at a wrong entry.
    SaltFromClock,
    /// A restart keeps blocks beyond the position that the anchor vouches for, but does not rewrite them.
    TailNotRewritten,
    /// A restart keeps blocks and only syncs them, instead of rewriting them. If a sync of these blocks failed before
    /// the restart, the new sync writes nothing.
    TailOnlySynced,
    /// The anchor vouches for an epoch before that epoch is durable.
    VouchedBeforeDurable,
    /// If a closure panics, the transaction's latches are released without undoing the changes.
    PanicNotUndone,
    /// A draft is a collection that is still being built. A dropped draft does not become an orphan: its rows stay
    /// until a restart.
    DraftForgotten,
    /// A collection still counts as a draft after it has got a header. So the collection is removed when its builder is
    /// dropped.
    DraftNotClaimed,
    /// A transaction gives a draft a header and is then undone. The draft still counts as claimed by the header.
    DraftStaysClaimed,
    /// A string that is built in steps belongs to a draft at first. After a key has taken the string over, the draft
    /// still owns it, too.
    TextKeptByDraft,
    /// The purge frees the first pages of a long value, but the value's row still names them.
    TrimNotNoted,
    /// A stream counts as durable up to the last completed write, although earlier writes are in flight.
    NewestCompletionCounts,
    /// The lock of a killed process is released while some of the process's writes are still in flight. These writes
    /// can overwrite a segment that the next life uses.
    LocksNotKept,
    /// A hole at the end of the log counts as damage, although unfinished writes left it.
    HoleForDamage,
    /// Missing durable blocks count as a hole that unfinished writes left.
    DamageForHole,
    /// The header of a segment is written, but not durable before the segment's first block.
    HeaderNotDurable,
    /// A segment's mark says that a next segment follows. The mark is written, but is not durable before the next
    /// segment's first block.
    MarkNotDurable,
    /// A segment is recycled while a write to it is in flight.
    RecycledInFlight,
    /// The sidecar is an image's copy of the hash index. One of its entries counts although the slot now has a row of a
    /// new kind.
    KindInPlaceKept,
    /// A sidecar entry counts although a new key has taken the entry's slot.
    SlotKeyKept,
    /// A sidecar entry counts although the entry's page has a new class.
    PageClassKept,
    /// Replay ignores a missing sequence number among a partition's ordered frames.
    SequenceGapIgnored,
    /// An ordered frame of several partitions is played when it is next in one of them. Correct: when it is next in all
    /// of them.
    FenceAtOneQueue,
    /// A restart decides where the log ends, but still plays ordered frames beyond this end.
    CommandOfVoidTail,
    /// Ordered frames of one partition are played out of order.
    ColumnImagesUnordered,
    /// The log has commands for a table, and later the drop of the table. A restart does not know the table, so these
    /// commands find no table.
    CommandBeforeDrop,
    /// A restart knows a dropped table only in partitions where the image has pages of the table. The restart does not
    /// know a dropped table created after the image.
    TableBornAndDropped,
    /// A checkpoint's cut takes the partitions' latches one by one, not all together.
    CutLatchesSingly,
    /// A checkpoint's cut reads a partition's sequence number after it has released the partition's latch.
    PseqReadAfterRelease,
    /// A page was clean at the cut and has changed since. It counts as a page created after the cut.
    CleanAtCutTakenForBorn,
    /// A checkpoint visits a page that has changed since the cut. It clears the page's dirty bit.
    KeptVisitClearsDirty,
    /// The copy that a commit keeps for a second cut replaces the copy for the first cut.
    SecondCutOverwritesKept,
    /// A snapshot that a user takes raises the checkpoint epoch.
    SnapshotRaisesG,
    /// A rollback does not remove the transaction's entries from secondary indexes.
    IndexEntryKeptAfterAbort,
    /// A table takes a free page whose earlier changes were not logged. A restart then applies page records to a page
    /// whose bytes are not in the log.
    PoolsShared,
    /// A byte range inside an already saved range is saved again. A rollback takes this later save for the older state.
    RangeInsideSave,
    /// A procedure that used a page-addressed table is nevertheless logged as a command.
    CommandReadPages,
    /// An undone transaction does not give back its sequence numbers.
    AbortKeepsSequence,
    /// A bit for each row says that a checkpoint in row mode has a copy of the row. A rollback does not clear the bits
    /// of the rows that it restores.
    AbortKeepsDirtyBit,
    /// A replay enforces the memory limit.
    MemoryLimitInReplay,
    /// A replayed procedure gets the present time instead of the time of its original call.
    ReplayReadsClock,
    /// A restart logs again the transactions that it replays.
    ReplayLogsAgain,
    /// After a restart, a partition's next row id follows from the played frames alone. The number in the image is
    /// ignored. If no frame was played, the partition gives out row ids a second time.
    RowIdUsedTwice,
    /// A checkpoint is a fuzzy sweep although ordered frames are logged.
    FuzzyUnderOrdered,
    /// A restart decides whether a consistent image has a record by the record's epoch and the last epoch of the image.
    /// Correct: by tags.
    CutImageByEpoch,
    /// Sidecar entries count for key-addressed tables. But between the cut and the sidecar, the pages of these tables
    /// may change without a page record.
    SidecarBelievedForKept,
    /// The digest of a page or a record does not depend on the page's id, so it does not notice two swapped pages.
    DigestUnbound,
    /// A run of the archive is published before its bytes are durable.
    RenameBeforeSync,
    /// Two runs with a gap in between are merged, so the merged run lacks records of some of the covered epochs.
    MergeOfStrangers,
    /// Records are combined although a retained image has only some of the records.
    NetAcrossImage,
    /// Records are combined although an unfinished image has only some of the records.
    NetAcrossBuilding,
    /// A net record combines several records of a page, but counts only the updates of the last record.
    UpdateSpanLost,
    /// Records must not be combined if an image has only some of them. The check assumes that a page's tags never fall.
    /// It looks only for an image with a checkpoint epoch k for which first tag < k <= last tag.
    TagsTakenForRising,
    /// After a restart from an older image, pages are tagged with that image's checkpoint epoch. A backup of a newer
    /// image then counts as having changes that it lacks.
    TagBelowKeptBackup,
    /// Restore: a backup's pages may contain changes that are later than the target. These changes are not removed.
    LaterEpochsKept,
    /// Restore: runs are read up to the target, not up to the end of the backup's sweep.
    RunsReadUpToTarget,
    /// Restore: tags decide which records a backup has, as if a sweep had made the backup. But the backup is the state
    /// of one epoch.
    CutJudgedByTag,
    /// Restore: an epoch decides which ordered frames a backup has, not their numbers. The end epoch of an image is after
    /// its cut.
    FrameJudgedByEpoch,
    /// A run lacks its last ordered frame.
    FrameLeftOut,
    /// Restore: a surviving log may have later lives than the archive. These lives are not read.
    LaterLivesIgnored,
    /// Restore: a page that the backup does not have begins with the old contents of the buffer instead of zeros.
    PageBeyondBackupKept,
    /// The standing proof compares the archive with the database. It includes the pages of key-addressed tables,
    /// although they change without a page record.
    ProofOverBothPools,
    /// A checkpoint overwrites an image that is being copied into the archive.
    PinnedSlotOverwritten,
    /// A merge removes its input runs too early: the new manifest, which no longer lists them, is not durable yet.
    InputsRemovedBeforeManifest,
    /// Two runs with equal ranges of epochs both count as parts of the archive.
    EqualRangesBothRead,
    /// The lives of a database have no random numbers, so two copies of the database look alike.
    LivesAlike,
    /// The epoch at which a life ended is not compared: an older copy counts as the newer database.
    LifeEndNotCompared,
    /// An archive vouches for an idle hour although some epochs before it are not in the archive yet.
    IdleHourVouchedEarly,
    /// Retention counts a jump of the clock as age.
    JumpCountsAsAge,
    /// Runs leave the backlog before they are durable in the archive.
    BacklogForgottenEarly,
    /// An archive's reader reads a stream up to the last written block, beyond the durable epoch.
    EpochBeyondDArchived,
    /// A restart has cut a life's log, and the blocks beyond the cut are void. An archive's reader does not stop at the
    /// cut, and reads the void blocks in the same segment.
    VoidEpochArchived,
    /// The log is truncated although the archive does not have the truncated part yet.
    LogCutBeforeRun,
    /// A run ends inside an epoch because its workspace is full. Correct: a run ends at an epoch's end.
    RunCutInsideEpoch,
    /// An acknowledged entry stays pending with the consumer: only one of the entry's two rows is removed.
    AcknowledgedRowKept,
    /// A consumer of a stream's group is deleted, but its entries stay pending in the group.
    DeletedConsumerRowsKept,
    /// A group of a stream is deleted, but the rows with the names of its consumers stay.
    DestroyedGroupRowsKept,
    /// A group of a stream stores the last id that it has delivered. A new last id is written only if the count of
    /// consumers or of pending entries changes too.
    GroupLastNotWritten,
    /// A node of a stream becomes larger to take an entry, but its stored number of used bytes stays unchanged.
    GrownNodeTorn,
    /// An entry that begins a new node does not count for the stream's length.
    NewNodeNotCounted,
    /// Nodes that trimming removes still count for the stream's length.
    TrimNotCounted,
    /// A consumer claims a pending entry, but the entry stays pending with the previous consumer, too.
    ClaimedRowKept,
    /// The first entry of a stream is deleted, but the stream's head still names it.
    FirstIdStale,
    /// The changes that a script made before it passed a limit are kept, as if it had ended with an error.
    LimitKeepsHalf,
    /// The changes of a killed script are kept, as if the script had ended with an error.
    HaltKeepsHalf,
    /// The second run of a script gets new random numbers.
    RerunWithOtherSeed,
    /// The second run of a transaction sees a new time.
    RerunAtOtherTime,
    /// The second run of a transaction begins before the first run's changes are undone.
    RerunOverHalf,
    /// A script publishes messages and then runs again. The messages of its first run are sent too.
    MessageOfRerunKept,
    /// A library of functions is kept in memory, but its row is not written.
    LibraryNotWritten,
    /// A waiting consumer receives an entry before its delivery is durable.
    DeliveryShownEarly,
    /// If an option occurs twice, access control checks the key of the first occurrence, but the command uses the key
    /// of the last.
    FirstTargetJudged,
    /// The server sends names of forbidden keys to a client that tracks prefixes.
    HiddenNameTold,
    /// A receipt says that a write is on disk although it is not. Correct: the receipt names a durability that the
    /// write has reached, or that the reply waits for.
    ReceiptRoundedUp,
    /// A tree writes a page before the page's newest operation is stable.
    PageBeyondStableLog,
    /// A tree writes a copy of a page. The page then counts as written although it has changed since it was copied.
    DirtiedSinceWritten,
    /// The restart of a tree counts a page as written before it has finished redoing the page.
    RestartTellsWrites,
    /// The analysis of a tree begins at the first Δ record with a TC-LSN above the redo start, as the paper prints it.
    DeltasByStableEnd,
    /// Each entry of the dirty page table keeps its first lastLSN and ignores later updates of the page, as the paper
    /// prints it.
    LastNotRefreshed,
    /// Pages of a tree are written in place, without first copying them to the double-write file.
    NoDoubleWrite,
    /// Pages of a tree are written in place before their copies in the double-write file are durable.
    DoubleNotSynced,
    /// The restart of a tree trusts pages that a killed process has written but not synced. The restart does not write
    /// these pages again.
    PagesBelievedUnwritten,
    /// Redo ignores the fences of a tree's page, so redo puts a moved row into the row's old page.
    FencesIgnored,
    /// A change of a tree's structure is logged as two records instead of one.
    StructureInTwoRecords,
    /// A tree's page may be filled completely. A restart that redoes a split of the page then has no room for a longer
    /// high fence, the upper bound of the page's keys.
    NoRoomForFence,
    /// A page of a tree counts as not in memory while it is read ahead. If the page is changed in the meantime, the
    /// read-ahead copy replaces the changed copy.
    AheadOverNewer,
    /// An append takes a number before the append reads the epoch.
    NumberBeforeEpoch,
    /// A restart undoes the compensations of a rollback, as if they were changes.
    CompensationUndone,
    /// A restart writes pages of a tree before it has made the replayed log durable.
    TreeLogBelievedUnwritten,
    /// A restart refuses gaps between operation numbers even above the end of the stable log.
    NumbersDemandedAboveEosl,
    /// A life repeats operation numbers of an earlier life.
    NumberReused,
    /// The log that a checkpoint preserves does not reach back to the first record of the tree's open transactions.
    CoverWithoutOpen,
    /// The changes to be undone in a tree are forgotten when the restart ends.
    LosersForgotten,
    /// Steal mode: a rollback within a checkpoint window is not compensated.
    NoClr,
    /// Steal mode, Algorithm 1, step 2 as the paper prints it: an update reads its page's tag without the latch, and
    /// changes the page later.
    FlagOutsideLatch,
    /// Steal mode, Algorithm 1, with step 5 before step 6 as in the paper: the latch is released before the record is
    /// appended. A crash between the two steps leaves an image with a change that is missing in the log.
    LateAppendSteal,
    /// Steal mode: the list of active transactions is captured before the end mark is appended. Restart follows
    /// Algorithm 3 as the paper prints it.
    ListRace,
    /// Steal mode: rollbacks are not compensated. Restart is Algorithm 3 as printed in the paper: the image id has one
    /// bit, and is tested only in the checkpoint window.
    PrintedRule,
    /// A node accepts a block although an earlier block is missing.
    PositionGapAccepted,
    /// A node accepts blocks of a replaced writer.
    GenerationUnchecked,
    /// A node has ended. The ring in its memory still counts as a copy of the log.
    DeadRingCounts,
    /// A takeover has sealed a ring in a node's memory. The ring still counts as one that accepts blocks.
    ClosedRingCounts,
    /// A node that lost its memory still counts as holding the log.
    AmnesiaCounts,
    /// Only one node is left. The reply of that node is enough for an acknowledgement, although the disk lacks the
    /// newest log.
    SoloBeforeFlush,
    /// The writer still acknowledges what its disk has, although the arbiter has not answered for longer than the
    /// lease.
    LeaseIgnored,
    /// A takeover reads the disk before the previous writer's lease has ended.
    LeaseNotAwaited,
    /// The writer acknowledges a block as soon as its disk has synced the block, even in a mode that must wait for
    /// nodes.
    DiskAcknowledges,
    /// The writer acknowledges log that only nodes hold, although the anchor does not say yet that nodes hold log.
    MirrorBeforeAnchor,
    /// The view says that the whole log is on disk, although the last part of the log is not synced yet.
    DiskBeforeTail,
    /// A block that the writer sends to a node should name the stream's synced end on the writer's disk. It names its
    /// own position instead, although the disk may lack earlier blocks.
    LowAtWrite,
    /// The previous life's rings are dropped before the anchor names the new life.
    RingsRetiredEarly,
    /// A mirror has two nodes. The writer acknowledges what one of them holds. Correct: what both hold.
    OneReplyIsEnough,
    /// Blocks sent to a node count as held before the node confirms the blocks.
    SentCounts,
    /// A node was restarted and its memory is empty. The blocks that it held before still count as held.
    HeldByOldStart,
    /// A returning node counts as part of the mirror before the node holds all acknowledged frames.
    ReturnsBehind,
    /// A stream moves to nodes that do not hold all its acknowledged frames.
    MovesUnheld,
    /// A node is asked to open a ring that it already has. It empties the ring.
    RingEmptiedAtOpen,
    /// A ring that was found damaged is replaced by an empty one while the view still relies on its contents.
    SpoiledRenewedAtOnce,
    /// After a takeover, nodes still accept blocks of the previous writer.
    SealForgotten,
    /// A node of the view was restarted and its memory is empty. A takeover still accepts it as the node in the view.
    EmptyNodeSuffices,
    /// A takeover does not raise the generation.
    GenerationKept,
    /// A writer finds a second writer's view, and continues from that view.
    FenceIgnored,
    /// While the outcome of a change of view is not known, only the nodes of the old view decide what is acknowledged.
    PendingViewIgnored,
    /// The outcome of a change of view is not known. The writer gives up the change if the arbiter still has the old
    /// view.
    PendingViewGivenUp,
    /// A writer recycles a segment of the writer that it replaced, although the replaced writer may still be running.
    RecycledUnderNextWriter,
    /// A page of a tree is written when only nodes, and not the disk, hold the log of its operations.
    PageOnMirror,
    /// An image counts as complete when only nodes, and not the disk, hold the log that it needs.
    ImageOnMirror,
    /// The anchor vouches for a part of the log that only nodes, and not the disk, hold.
    VouchedOnMirror,
    /// A block names an epoch as durable although only nodes, and not the disk, hold the epoch.
    NamedOnMirror,
    /// A block is sealed when it is shipped, and sealed a second time when it is written.
    SealedAnew,
    /// The anchor does not record which log was given up as lost.
    LossNotNoted,
    /// A drain copies the nodes' blocks to the disk. It begins at the end of the log that the anchor vouches for,
    /// although checkpoints have already cut the log beyond that position.
    DrainedFromVouched,
    /// A takeover asks the nodes of a view for log, although a restart has already recovered the life of that view.
    OldLifeFetched,
    /// The anchor says that the disk has all blocks of the nodes, although the last blocks are not synced yet.
    AnchorBeforeTail,
    /// Steal mode: a commit is acknowledged when its stream is synced, even if the other streams are not synced.
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

/// Returns false, because no flaw can be armed without the `flaws` feature.
#[cfg(not(feature = "flaws"))]
#[inline(always)]
#[must_use]
pub fn armed(_flaw: Flaw) -> bool {
    false
}
