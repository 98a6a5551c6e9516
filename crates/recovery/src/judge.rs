//! The work of a player on single frames. A player turns the frames of a unit (a piece of a log stream) into changes of
//! pages.
//!
//! Each player reads records of one kind. [`Routes`](crate::route::Routes) passes a player only frames of that kind.

use parking_lot::Mutex;
use perdura_base::{Epoch, Error, Incarnation, Result, StreamId};
use perdura_heap::{Batch, Geometry, PageRecord, Replayed, SlotChange, for_each_record};
use perdura_page::{TxnRecord, Update, decode_txn_record};
use perdura_wal::{Direction, Frame, FrameKind, Origin, Role};

use crate::base::{Base, Image};
use crate::fates::{Backward, Forward, Losers};
use crate::player::PagePlayer;
use crate::rule::{Gate, Skip, gate, gate_tag};
use crate::stats::ReplayStats;

/// The data that the gate needs to test the records of a unit. See [`rule`](crate::rule).
pub(crate) struct Scene<'s, I> {
    pub geometry: &'s Geometry,
    pub image: &'s I,
    pub target: Epoch,
    /// The index of the unit within its stream.
    pub unit: usize,
}

/// The changes that passed the gate, and counts of passed and skipped changes.
pub(crate) struct Passed<R> {
    pub batch: Batch<R>,
    pub stats: ReplayStats,
}

impl<R> Default for Passed<R> {
    fn default() -> Self {
        Passed {
            batch: Batch::default(),
            stats: ReplayStats::default(),
        }
    }
}

/// A player of the frames of one stream.
pub(crate) trait Play {
    /// The form of the player's changes to pages.
    type Change<'r>: Replayed;

    fn frame<'r, I: Image>(
        &mut self,
        scene: &Scene<'_, I>,
        frame: Frame<'r>,
        origin: &Origin,
        passed: &mut Passed<Self::Change<'r>>,
    ) -> Result<()>;
}

/// A player that needs the units of a stream in order.
pub(crate) trait InOrder {
    /// Drops the player's state about the current life of the database. Called at the end of that life's frames.
    fn end_of_life(&mut self);
}

/// The player of one stream, and the life of the database that the player's current frame belongs to.
pub(crate) struct InLife<P> {
    pub player: P,
    stream: StreamId,
    direction: Direction,
    life: Option<Incarnation>,
}

impl<P: InOrder> InLife<P> {
    fn new(player: P, stream: StreamId, direction: Direction) -> Mutex<Self> {
        Mutex::new(InLife {
            player,
            stream,
            direction,
            life: None,
        })
    }

    /// Notes the life that the next frames belong to. If it differs from the current life, ends the current life first.
    pub fn enter(&mut self, life: Incarnation) {
        let before = self.life.replace(life);
        if let Some(before) = before.filter(|before| *before != life) {
            assert_eq!(
                self.direction == Direction::Forward,
                before < life,
                "life {life} of stream {} comes after {before}",
                self.stream
            );
            self.player.end_of_life();
        }
    }

    /// Ends the current life, at the end of the stream.
    fn leave(&mut self) {
        if self.life.take().is_some() {
            self.player.end_of_life();
        }
    }
}

/// The players of one stream.
pub(crate) enum StreamPlayer {
    /// This player keeps no state between units, so several units of one stream can be prepared in parallel.
    Group,
    Fate(Mutex<InLife<Backward>>),
    TwoPass(Mutex<InLife<TwoPass>>),
    /// [`crate::merge`] plays the frames of all streams together.
    Merged,
}

impl StreamPlayer {
    pub fn new(records: PagePlayer, stream: StreamId) -> StreamPlayer {
        let direction = records.direction();
        match records {
            PagePlayer::Group(_) => StreamPlayer::Group,
            PagePlayer::Fate => {
                StreamPlayer::Fate(InLife::new(Backward::default(), stream, direction))
            }
            PagePlayer::TwoPass => {
                StreamPlayer::TwoPass(InLife::new(TwoPass::default(), stream, direction))
            }
            PagePlayer::Merge(_) => StreamPlayer::Merged,
        }
    }

    /// Ends the stream. Returns the losers. A second pass undoes the losers' changes.
    pub fn finish(&self) -> Vec<Losers> {
        match self {
            StreamPlayer::Group | StreamPlayer::Merged => Vec::new(),
            StreamPlayer::Fate(player) => {
                player.lock().leave();
                Vec::new()
            }
            StreamPlayer::TwoPass(player) => {
                let mut player = player.lock();
                player.leave();
                std::mem::take(&mut player.player.lost)
            }
        }
    }
}

/// The player of groups, which belong to committed transactions. Tests the tag and the epoch of every record.
pub(crate) struct Group;

impl Play for Group {
    type Change<'r> = PageRecord<'r>;

    #[inline]
    fn frame<'r, I: Image>(
        &mut self,
        scene: &Scene<'_, I>,
        frame: Frame<'r>,
        origin: &Origin,
        passed: &mut Passed<PageRecord<'r>>,
    ) -> Result<()> {
        match frame.kind.role() {
            Role::Records => {}
            Role::BeginMark | Role::EndMark | Role::Log | Role::Ordered | Role::Numbered => {
                return Ok(());
            }
        }
        debug_assert_eq!(frame.kind, FrameKind::Group, "routed to the group player");
        let whole = for_each_record(frame.payload, |record| {
            let Some(base) = scene.image.base_of(record.page) else {
                return;
            };
            let decision = gate(record.tag, base.kind, origin.epoch, scene.target);
            if passed.stats.decided(decision) {
                passed.batch.push(scene.geometry, record);
            }
        });
        // If a group is malformed, some of its changes have been pushed. They do no harm, because the error ends the
        // restart.
        whole.ok_or_else(|| no_record(origin, "a group of page records"))?;
        passed.stats.groups += 1;
        Ok(())
    }
}

impl Play for Backward {
    type Change<'r> = SlotChange<'r>;

    #[inline]
    fn frame<'r, I: Image>(
        &mut self,
        scene: &Scene<'_, I>,
        frame: Frame<'r>,
        origin: &Origin,
        passed: &mut Passed<SlotChange<'r>>,
    ) -> Result<()> {
        match frame.kind.role() {
            Role::Records => {}
            Role::BeginMark | Role::EndMark => {
                #[cfg(feature = "flaws")]
                self.note_mark(frame, scene.image.kind());
                return Ok(());
            }
            Role::Log | Role::Ordered | Role::Numbered => return Ok(()),
        }
        debug_assert_eq!(frame.kind, FrameKind::Record, "routed to the fate player");
        let record = txn_record(frame.payload, origin)?;
        self.note(&record, origin.epoch);
        passed.take(scene, record, origin, |update, base| {
            Ok(self.gate(update.txn, update.tag, base.kind, scene.target))
        })
    }
}

impl InOrder for Backward {
    fn end_of_life(&mut self) {
        self.end_life();
    }
}

/// The player of a forward scan. The player collects the losers for the second pass, which undoes the losers' changes.
#[derive(Default)]
pub(crate) struct TwoPass {
    open: Forward,
    lost: Vec<Losers>,
}

impl Play for TwoPass {
    type Change<'r> = SlotChange<'r>;

    #[inline]
    fn frame<'r, I: Image>(
        &mut self,
        scene: &Scene<'_, I>,
        frame: Frame<'r>,
        origin: &Origin,
        passed: &mut Passed<SlotChange<'r>>,
    ) -> Result<()> {
        match frame.kind.role() {
            Role::Records => {}
            Role::BeginMark | Role::EndMark | Role::Log | Role::Ordered | Role::Numbered => {
                return Ok(());
            }
        }
        debug_assert_eq!(frame.kind, FrameKind::Record, "routed to two passes");
        let record = txn_record(frame.payload, origin)?;
        self.open.note(&record, scene.unit);
        passed.take(scene, record, origin, |update, base| {
            Ok(gate_tag(update.tag, base.sweep()?))
        })
    }
}

impl InOrder for TwoPass {
    fn end_of_life(&mut self) {
        self.lost.extend(self.open.end_life());
    }
}

impl<'r> Passed<SlotChange<'r>> {
    /// Adds the change of an interleaved transaction's record to the batch if `gate` decides to apply it. `gate` gets
    /// the change and the [`Base`] of the changed page.
    #[inline]
    fn take<I: Image>(
        &mut self,
        scene: &Scene<'_, I>,
        record: TxnRecord<'r>,
        origin: &Origin,
        gate: impl FnOnce(&Update<'r>, &Base) -> Result<Gate>,
    ) -> Result<()> {
        let update = match record {
            TxnRecord::Update(update) => update,
            TxnRecord::Commit { .. } => {
                self.stats.groups += 1;
                return Ok(());
            }
            TxnRecord::Begin { .. } | TxnRecord::Abort { .. } => return Ok(()),
        };
        let Some(base) = scene.image.base_of(update.page) else {
            return Ok(());
        };
        let decision = if base.reaches(origin.stream, origin.pos) {
            gate(&update, base)?
        } else {
            Gate::Skip(Skip::Reflected)
        };
        if self.stats.decided(decision) {
            let change = SlotChange {
                page: update.page,
                change: update.change,
                undo: false,
            };
            self.batch.push(scene.geometry, change);
        }
        Ok(())
    }
}

/// Decodes an interleaved transaction's record.
#[inline]
pub(crate) fn txn_record<'r>(payload: &'r [u8], origin: &Origin) -> Result<TxnRecord<'r>> {
    decode_txn_record(payload).ok_or_else(|| no_record(origin, "a transaction's record"))
}

/// Returns the error for a frame that has a valid checksum but does not parse.
pub(crate) fn no_record(origin: &Origin, expected: &str) -> Error {
    Error::corrupt(
        format!("log stream {}", origin.stream),
        origin.pos.0,
        expected,
        "other bytes",
        "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::ImageKind;
    use perdura_base::{CkptEpoch, TxnId};

    #[test]
    fn what_one_life_says_of_a_transaction_is_not_held_against_another_lifes_records() {
        let (txn, epoch) = (TxnId(7), Epoch(5));
        let player = InLife::new(Backward::default(), StreamId(0), Direction::Backward);
        let mut held = player.lock();
        let of_change = |held: &InLife<Backward>| {
            let (tag, image) = (CkptEpoch(3), ImageKind::Sweep(CkptEpoch(1)));
            held.player.gate(txn, tag, image, epoch)
        };
        held.enter(Incarnation(2));
        held.player.note(&TxnRecord::Commit { txn }, epoch);
        held.enter(Incarnation(2));
        assert_eq!(of_change(&held), Gate::Apply);
        held.enter(Incarnation(1));
        assert_eq!(of_change(&held), Gate::Skip(Skip::NotWanted));
    }
}
