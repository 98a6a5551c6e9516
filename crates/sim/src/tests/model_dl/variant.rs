//! The variants of the model: the corrected algorithm, and variants with known mistakes. Each mistake is tried alone,
//! and in the combinations that matter.

/// A deviation from the corrected algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Twist {
    /// Restart treats compensated aborts as losers instead of winners. Both treatments are right.
    CompensatedAsLoser,
    /// Every abort is compensated, even outside of checkpoint windows. This is right but takes longer.
    AlwaysCompensate,
    /// Half of the records are appended only at the transaction's next action. In the paper, the append (step 6)
    /// follows the release of the latch (step 5).
    LateAppend,
    /// A checkpoint appends all late records before it ends.
    Quiesce,
    /// A checkpoint also sweeps pages added during the checkpoint.
    BornSwept,
    /// A record of the next epoch may precede the end of the epoch that is being closed.
    Impure,
    /// The epochs that a restart voids are recorded, and no later restart accepts them.
    VoidRanges,
    /// A commit counts if its record lies before the cut. Its epoch does not matter.
    BlockEpochDecides,
    /// Aborts within a checkpoint window are not compensated.
    NoCompensation,
    /// The tag is read before the latch is taken.
    FlagOutsideLatch,
    /// A commit counts as durable when the transaction's stream is durable.
    NoEpochs,
    /// Restart keeps the log beyond the durable epoch.
    NoCut,
    /// Net change combines records with different tags.
    NetAcrossTags,
    /// After a crash, the dirty bits for the image that was not loaded are trusted.
    OtherImageTrusted,
    /// The pages that a restart changed are not marked as dirty for the loaded image.
    RestartChangesClean,
    /// The id of an interrupted checkpoint is used again.
    CkptEpochReused,
    /// The anchor is written before the log is durable.
    AnchorBeforeLog,
    /// Restart is the paper's algorithm 3 as printed, with one bit as the tag.
    OneBit,
    /// No transaction aborts.
    NoAborts,
    /// The list of active transactions is taken before the end-checkpoint record is appended.
    ListRace,
}

/// A set of twists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Twists(u32);

impl Twists {
    /// Returns the set of these twists.
    #[must_use]
    pub const fn of(twists: &[Twist]) -> Twists {
        let (mut bits, mut at) = (0, 0);
        while at < twists.len() {
            bits |= 1 << twists[at] as u32;
            at += 1;
        }
        Twists(bits)
    }

    /// Returns whether a twist is in the set.
    #[must_use]
    pub const fn has(self, twist: Twist) -> bool {
        self.0 & (1 << twist as u32) != 0
    }
}

/// A variant of the algorithm, and whether its runs must keep all promises.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// The variant's description, for reports.
    pub name: &'static str,
    /// The variant's differences from the corrected algorithm.
    pub twists: Twists,
    /// True if the variant keeps every promise. If false, some run must break one.
    pub sound: bool,
}

const fn sound(name: &'static str, twists: &[Twist]) -> Variant {
    Variant {
        name,
        twists: Twists::of(twists),
        sound: true,
    }
}

const fn flawed(name: &'static str, twists: &[Twist]) -> Variant {
    Variant {
        name,
        twists: Twists::of(twists),
        sound: false,
    }
}

/// Every variant. The first variant is the algorithm that the engine implements.
pub const VARIANTS: [Variant; 24] = {
    use Twist::*;
    [
        sound("as built: epoch tags, gate and compensation", &[]),
        sound("compensated aborts taken for losers", &[CompensatedAsLoser]),
        sound("always compensated", &[AlwaysCompensate]),
        flawed("late append, tags only", &[LateAppend]),
        sound(
            "late append, settled before the end",
            &[LateAppend, Quiesce],
        ),
        flawed("pages born in a sweep are swept", &[BornSwept]),
        flawed("impure blocks", &[Impure]),
        sound("impure blocks, void ranges kept", &[Impure, VoidRanges]),
        flawed(
            "impure blocks, the block's epoch decides",
            &[Impure, BlockEpochDecides],
        ),
        flawed("no compensation in a window", &[NoCompensation]),
        flawed("tag read outside the latch", &[FlagOutsideLatch]),
        flawed("no commit epochs", &[NoEpochs]),
        flawed("void commits stay in the log", &[NoCut]),
        flawed("net change across tags", &[NetAcrossTags]),
        flawed("the other image is trusted", &[OtherImageTrusted]),
        flawed("pages changed by restart are clean", &[RestartChangesClean]),
        flawed("a checkpoint's number is used again", &[CkptEpochReused]),
        flawed("the anchor before the log", &[AnchorBeforeLog]),
        sound("one bit, no aborts", &[OneBit, NoAborts]),
        flawed("one bit, aborts as printed", &[OneBit, NoCompensation]),
        sound("one bit, gate and compensation", &[OneBit]),
        flawed(
            "one bit, no aborts, late append",
            &[OneBit, NoAborts, LateAppend],
        ),
        sound(
            "one bit, no aborts, late append settled before the end",
            &[OneBit, NoAborts, LateAppend, Quiesce],
        ),
        flawed(
            "one bit, no aborts, list taken before the end",
            &[OneBit, NoAborts, ListRace],
        ),
    ]
};
