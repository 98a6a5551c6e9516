//! Turns the frames of a unit into changes of pages: what each player does with a frame of its stream.
//!
//! A player reads records of one kind, and [`Players::route`](crate::route::Players::route) hands it no
//! others: frames of another kind go to the player that claims them, or end the restart.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{Epoch, Error, Incarnation, Result, StreamId};
use perdura_heap::{Batch, Geometry, PageRecord, Replayed, SlotChange, for_each_record};
use perdura_page::{TxnRecord, Update, decode_txn_record};
use perdura_wal::{Direction, Frame, FrameKind, Origin, Role};

use crate::base::{Base, Image};
use crate::fates::{Backward, Forward, Losers};
use crate::player::{Player, Supplied};
use crate::route::{Players, foreign};
use crate::rule::{Gate, Skip, gate, gate_tag};
use crate::stats::ReplayStats;

/// What the records of a unit are tested against.
pub(crate) struct Scene<'s, I> {
    pub geometry: &'s Geometry,
    pub image: &'s I,
    pub target: Epoch,
    /// The unit's number among its part's.
    pub unit: usize,
}

/// What passed the gate, and the count of what did not.
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

/// The verbs of a player in one stream.
pub(crate) trait Play {
    /// What it changes pages by.
    type Change<'r>: Replayed;

    fn frame<'r, I: Image>(
        &mut self,
        scene: &Scene<'_, I>,
        frame: Frame<'r>,
        origin: &Origin,
        passed: &mut Passed<Self::Change<'r>>,
    ) -> Result<()>;
}

/// The verb of a player that takes the units of a stream in their order.
pub(crate) trait InOrder {
    /// Forgets what is true of one life of the database only.
    fn end_of_life(&mut self);
}

/// The method's player of one stream, the supplied players that take frames of the stream in the same
/// pass, and the life of the database that they are in.
pub(crate) struct InLife<P> {
    pub player: P,
    stream: StreamId,
    supplied: Vec<Arc<dyn Supplied>>,
    direction: Direction,
    life: Option<Incarnation>,
}

impl<P: InOrder> InLife<P> {
    fn new(player: P, stream: StreamId, players: &Players<'_>) -> Mutex<Self> {
        Mutex::new(InLife {
            player,
            stream,
            supplied: players.supplied().to_vec(),
            direction: players.direction(),
            life: None,
        })
    }

    /// Notes the life of the next frames.
    pub fn enter(&mut self, life: Incarnation) -> Result<()> {
        match self.life.replace(life) {
            Some(before) if before != life => {
                assert_eq!(
                    self.direction == Direction::Forward,
                    before < life,
                    "life {life} of stream {} comes after {before}",
                    self.stream
                );
                self.end_of_life(before)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the last life.
    fn leave(&mut self) -> Result<()> {
        self.life
            .take()
            .map_or(Ok(()), |life| self.end_of_life(life))
    }

    fn end_of_life(&mut self, life: Incarnation) -> Result<()> {
        self.player.end_of_life();
        let mut supplied = self.supplied.iter();
        supplied.try_for_each(|player| player.end_of_life(self.stream, life))
    }
}

/// The players of one stream.
pub(crate) enum StreamPlayer {
    /// The group player alone. It learns nothing on its way, so units of one stream are prepared side
    /// by side.
    Group,
    /// The group player, and supplied players that need the order.
    GroupInOrder(Mutex<InLife<Group>>),
    Fate(Mutex<InLife<Backward>>),
    TwoPass(Mutex<InLife<TwoPass>>),
    /// The method's frames are played with those of all other streams, by [`crate::merge`].
    Merged(Mutex<InLife<NoPlayer>>),
    /// The method's own player is a supplied one.
    Supplied(Mutex<InLife<NoPlayer>>),
}

impl StreamPlayer {
    pub fn new(players: &Players<'_>, stream: StreamId) -> StreamPlayer {
        match players.method() {
            Player::Group(_) if players.supplied().is_empty() => StreamPlayer::Group,
            Player::Group(_) => StreamPlayer::GroupInOrder(InLife::new(Group, stream, players)),
            Player::Fate => StreamPlayer::Fate(InLife::new(Backward::default(), stream, players)),
            Player::TwoPass => {
                StreamPlayer::TwoPass(InLife::new(TwoPass::default(), stream, players))
            }
            Player::Merge(_) => StreamPlayer::Merged(InLife::new(NoPlayer, stream, players)),
            Player::Supplied(_) | Player::Ordered | Player::Tree(_) => {
                StreamPlayer::Supplied(InLife::new(NoPlayer, stream, players))
            }
        }
    }

    /// Ends the stream. Returns what a second pass undoes.
    pub fn finish(&self) -> Result<Vec<Losers>> {
        match self {
            StreamPlayer::Group => {}
            StreamPlayer::GroupInOrder(player) => player.lock().leave()?,
            StreamPlayer::Fate(player) => player.lock().leave()?,
            StreamPlayer::TwoPass(player) => {
                let mut player = player.lock();
                player.leave()?;
                return Ok(std::mem::take(&mut player.player.lost));
            }
            StreamPlayer::Merged(player) | StreamPlayer::Supplied(player) => {
                player.lock().leave()?;
            }
        }
        Ok(Vec::new())
    }
}

/// Plays groups of committed transactions: tests every record against the epochs.
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
        // What was pushed of a malformed group ends here with the restart.
        whole.ok_or_else(|| no_record(origin, "a group of page records"))?;
        passed.stats.groups += 1;
        Ok(())
    }
}

impl InOrder for Group {
    fn end_of_life(&mut self) {}
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

/// Forward, and what is left for the second pass.
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

/// Stands for the method's player in a stream where no frame is routed to it.
pub(crate) struct NoPlayer;

impl Play for NoPlayer {
    type Change<'r> = SlotChange<'r>;

    fn frame<'r, I: Image>(
        &mut self,
        _: &Scene<'_, I>,
        frame: Frame<'r>,
        origin: &Origin,
        _: &mut Passed<SlotChange<'r>>,
    ) -> Result<()> {
        Err(foreign(frame, origin))
    }
}

impl InOrder for NoPlayer {
    fn end_of_life(&mut self) {}
}

impl<'r> Passed<SlotChange<'r>> {
    /// Takes the change of an interleaved transaction's record if `gate`, given the base of its
    /// page, applies it.
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

/// The error for a frame whose checksum holds and whose payload does not parse.
pub(crate) fn no_record(origin: &Origin, expected: &str) -> Error {
    Error::corrupt(
        format!("log stream {}", origin.stream),
        origin.pos.0,
        expected,
        "bytes that are none",
        "The checksums hold, so this is a bug in the writer. Keep a copy and report it.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Method;
    use crate::rule::ImageKind;
    use perdura_base::{CkptEpoch, TxnId};
    use perdura_wal::Scheme;

    #[test]
    fn what_one_life_says_of_a_transaction_is_not_held_against_another_lifes_records() {
        let (txn, epoch) = (TxnId(7), Epoch(5));
        let players = Players::plan(Method::of(Scheme::Dl1p), &[]).unwrap();
        let player = InLife::new(Backward::default(), StreamId(0), &players);
        let mut held = player.lock();
        let of_change = |held: &InLife<Backward>| {
            let (tag, image) = (CkptEpoch(3), ImageKind::Sweep(CkptEpoch(1)));
            held.player.gate(txn, tag, image, epoch)
        };
        held.enter(Incarnation(2)).unwrap();
        held.player.note(&TxnRecord::Commit { txn }, epoch);
        held.enter(Incarnation(2)).unwrap();
        assert_eq!(of_change(&held), Gate::Apply);
        held.enter(Incarnation(1)).unwrap();
        assert_eq!(of_change(&held), Gate::Skip(Skip::NotWanted));
    }
}
