//! The lists of flaws, and the tests that arm them.

use super::Flaw;

impl Flaw {
    /// The flaws that the simulator must catch in executor mode.
    pub const ALL: [Flaw; 63] = [
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
        Flaw::LaneLeftFull,
        Flaw::LaneOfTwoEpochs,
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
        Flaw::NewestCompletionCounts,
        Flaw::LocksNotKept,
        Flaw::HoleForDamage,
        Flaw::DamageForHole,
        Flaw::HeaderNotDurable,
        Flaw::MarkNotDurable,
        Flaw::RecycledInFlight,
        Flaw::KindInPlaceKept,
        Flaw::SlotKeyKept,
        Flaw::PageClassKept,
        Flaw::CleanAtCutTakenForBorn,
        Flaw::KeptVisitClearsDirty,
        Flaw::SecondCutOverwritesKept,
        Flaw::SnapshotRaisesG,
    ];

    /// The flaws in code that only typed tables use.
    pub const TABLES: [Flaw; 19] = [
        Flaw::IndexEntryKeptAfterAbort,
        Flaw::PoolsShared,
        Flaw::RangeInsideSave,
        Flaw::CommandReadPages,
        Flaw::AbortKeepsSequence,
        Flaw::AbortKeepsDirtyBit,
        Flaw::MemoryLimitInReplay,
        Flaw::ReplayReadsClock,
        Flaw::ReplayLogsAgain,
        Flaw::RowIdUsedTwice,
        Flaw::FuzzyUnderOrdered,
        Flaw::CutImageByEpoch,
        Flaw::SidecarBelievedForKept,
        Flaw::SequenceGapIgnored,
        Flaw::FenceAtOneQueue,
        Flaw::CommandOfVoidTail,
        Flaw::ColumnImagesUnordered,
        Flaw::CommandBeforeDrop,
        Flaw::TableBornAndDropped,
    ];

    /// The flaws that only ordered frames reveal. Page records do not reveal these flaws, because a restart judges each
    /// page record by the record's tag.
    pub const ORDERED: [Flaw; 2] = [Flaw::CutLatchesSingly, Flaw::PseqReadAfterRelease];

    /// The flaws of the archive's files. Tests of the archive arm them.
    pub const ARCHIVE: [Flaw; 10] = [
        Flaw::DigestUnbound,
        Flaw::RenameBeforeSync,
        Flaw::MergeOfStrangers,
        Flaw::NetAcrossImage,
        Flaw::NetAcrossBuilding,
        Flaw::UpdateSpanLost,
        Flaw::TagsTakenForRising,
        Flaw::InputsRemovedBeforeManifest,
        Flaw::EqualRangesBothRead,
        Flaw::BacklogForgottenEarly,
    ];

    /// The flaws of an archive's history and clock. The simulator must catch them in archive mode.
    pub const HISTORY: [Flaw; 4] = [
        Flaw::LivesAlike,
        Flaw::LifeEndNotCompared,
        Flaw::IdleHourVouchedEarly,
        Flaw::JumpCountsAsAge,
    ];

    /// The flaws of a restore. Tests of the restore arm them.
    pub const RESTORE: [Flaw; 10] = [
        Flaw::TagBelowKeptBackup,
        Flaw::LaterEpochsKept,
        Flaw::RunsReadUpToTarget,
        Flaw::CutJudgedByTag,
        Flaw::FrameJudgedByEpoch,
        Flaw::FrameLeftOut,
        Flaw::LaterLivesIgnored,
        Flaw::PageBeyondBackupKept,
        Flaw::ProofOverBothPools,
        Flaw::PinnedSlotOverwritten,
    ];

    /// The flaws of two tasks of an archive: reading the log, and delaying the log's truncation. Tests of the log and
    /// of the engine arm them.
    pub const LOG_SOURCE: [Flaw; 4] = [
        Flaw::EpochBeyondDArchived,
        Flaw::VoidEpochArchived,
        Flaw::LogCutBeforeRun,
        Flaw::RunCutInsideEpoch,
    ];

    /// The flaws of streams.
    pub const STREAMS: [Flaw; 9] = [
        Flaw::AcknowledgedRowKept,
        Flaw::DeletedConsumerRowsKept,
        Flaw::DestroyedGroupRowsKept,
        Flaw::GroupLastNotWritten,
        Flaw::GrownNodeTorn,
        Flaw::NewNodeNotCounted,
        Flaw::TrimNotCounted,
        Flaw::ClaimedRowKept,
        Flaw::FirstIdStale,
    ];

    /// The flaws of scripts, and of transactions that run again.
    pub const SCRIPTS: [Flaw; 5] = [
        Flaw::LimitKeepsHalf,
        Flaw::HaltKeepsHalf,
        Flaw::RerunWithOtherSeed,
        Flaw::RerunAtOtherTime,
        Flaw::RerunOverHalf,
    ];

    /// The flaws of the server. No simulated run reaches the code of these flaws.
    pub const SERVER: [Flaw; 6] = [
        Flaw::MessageOfRerunKept,
        Flaw::LibraryNotWritten,
        Flaw::DeliveryShownEarly,
        Flaw::FirstTargetJudged,
        Flaw::HiddenNameTold,
        Flaw::ReceiptRoundedUp,
    ];

    /// The flaws of the tree. The model of the tree's restart arms them.
    pub const TREE: [Flaw; 5] = [
        Flaw::PageBeyondStableLog,
        Flaw::DirtiedSinceWritten,
        Flaw::RestartTellsWrites,
        Flaw::DeltasByStableEnd,
        Flaw::LastNotRefreshed,
    ];

    /// The flaws of the tree's pages. Tests that run several lives of a tree arm them.
    pub const TREE_PAGES: [Flaw; 3] = [
        Flaw::FencesIgnored,
        Flaw::StructureInTwoRecords,
        Flaw::NoRoomForFence,
    ];

    /// The flaws of the tree's file. Tests of this file arm them.
    pub const TREE_FILE: [Flaw; 3] = [
        Flaw::NoDoubleWrite,
        Flaw::DoubleNotSynced,
        Flaw::PagesBelievedUnwritten,
    ];

    /// The flaws in the read-ahead of a tree's pages. They are armed by a test that tries schedules of two threads.
    pub const TREE_AHEAD: [Flaw; 1] = [Flaw::AheadOverNewer];

    /// The flaws of transactions that change a tree's rows, and of a restart's recovery of the tree.
    pub const KEYED: [Flaw; 6] = [
        Flaw::CompensationUndone,
        Flaw::TreeLogBelievedUnwritten,
        Flaw::NumbersDemandedAboveEosl,
        Flaw::NumberReused,
        Flaw::CoverWithoutOpen,
        Flaw::LosersForgotten,
    ];

    /// The flaws in the numbering of operations. They are armed by a test that tries every schedule of a few threads.
    pub const NUMBERS: [Flaw; 1] = [Flaw::NumberBeforeEpoch];

    /// The flaws of the log in the memory of nodes.
    pub const MIRROR: [Flaw; 27] = [
        Flaw::LeaseIgnored,
        Flaw::LeaseNotAwaited,
        Flaw::PositionGapAccepted,
        Flaw::GenerationUnchecked,
        Flaw::DeadRingCounts,
        Flaw::ClosedRingCounts,
        Flaw::AmnesiaCounts,
        Flaw::SoloBeforeFlush,
        Flaw::DiskAcknowledges,
        Flaw::MirrorBeforeAnchor,
        Flaw::DiskBeforeTail,
        Flaw::LowAtWrite,
        Flaw::RingsRetiredEarly,
        Flaw::OneReplyIsEnough,
        Flaw::SentCounts,
        Flaw::HeldByOldStart,
        Flaw::ReturnsBehind,
        Flaw::MovesUnheld,
        Flaw::RingEmptiedAtOpen,
        Flaw::SpoiledRenewedAtOnce,
        Flaw::SealForgotten,
        Flaw::EmptyNodeSuffices,
        Flaw::GenerationKept,
        Flaw::FenceIgnored,
        Flaw::PendingViewIgnored,
        Flaw::PendingViewGivenUp,
        Flaw::AnchorBeforeTail,
    ];

    /// The flaws of a mirrored log in layers below the mirror. Simulated runs of the whole engine find them.
    pub const MIRROR_LOG: [Flaw; 8] = [
        Flaw::RecycledUnderNextWriter,
        Flaw::ImageOnMirror,
        Flaw::VouchedOnMirror,
        Flaw::NamedOnMirror,
        Flaw::SealedAnew,
        Flaw::LossNotNoted,
        Flaw::DrainedFromVouched,
        Flaw::OldLifeFetched,
    ];

    /// The flaws of a tree with a mirrored log. Simulated runs with a tree find these flaws.
    pub const MIRROR_TREE: [Flaw; 1] = [Flaw::PageOnMirror];

    /// The flaws in code that only steal mode uses.
    pub const STEAL: [Flaw; 6] = [
        Flaw::NoClr,
        Flaw::FlagOutsideLatch,
        Flaw::LateAppendSteal,
        Flaw::ListRace,
        Flaw::PrintedRule,
        Flaw::NoEpochs,
    ];
}

/// All lists.
const LISTS: [&[Flaw]; 20] = [
    &Flaw::ALL,
    &Flaw::TABLES,
    &Flaw::ORDERED,
    &Flaw::ARCHIVE,
    &Flaw::HISTORY,
    &Flaw::RESTORE,
    &Flaw::LOG_SOURCE,
    &Flaw::STREAMS,
    &Flaw::SCRIPTS,
    &Flaw::SERVER,
    &Flaw::TREE,
    &Flaw::TREE_PAGES,
    &Flaw::TREE_FILE,
    &Flaw::TREE_AHEAD,
    &Flaw::KEYED,
    &Flaw::NUMBERS,
    &Flaw::MIRROR,
    &Flaw::MIRROR_LOG,
    &Flaw::MIRROR_TREE,
    &Flaw::STEAL,
];

/// Returns the number of flaws on the lists. Panics if a flaw is listed twice.
const fn listed() -> usize {
    let mut seen = [false; LAST + 1];
    let (mut count, mut list) = (0, 0);
    while list < LISTS.len() {
        let mut at = 0;
        assert!(!LISTS[list].is_empty(), "a list has flaws");
        while at < LISTS[list].len() {
            let flaw = LISTS[list][at] as usize;
            assert!(flaw <= LAST, "the last flaw stands last");
            assert!(!seen[flaw], "a flaw is on two lists");
            seen[flaw] = true;
            count += 1;
            at += 1;
        }
        list += 1;
    }
    assert!(count <= seen.len(), "a flaw counts once");
    count
}

/// The discriminant of the last flaw.
const LAST: usize = Flaw::NoEpochs as usize;

const _: () = assert!(listed() == LAST + 1, "every flaw is on a list");
