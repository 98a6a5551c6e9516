//! Plays the records of all streams in the order of their serial numbers. Each worker merges all streams by serial
//! number and applies the changes of the partitions assigned to it.
//!
//! With one worker this is the paper's PL2P: disks are read in parallel and one thread plays. A modern design would use
//! PL2P with several workers. All changes of a slot are applied by the same worker, so they keep their order.
//!
//! The workers play the lives of the database in order. Before a life, the workers undo the unfinished transactions of
//! the previous life, because records of the new life may change the transactions' slots again.
//!
//! The checkpoint that wrote a page's image has a begin mark in *every* stream. Redo of the page begins at these marks.
//! If a transaction was open when the checkpoint began, a stream may be read from a position before its mark. Records
//! before the mark must not be redone. The image may already hold a later change of the record's slot. This later
//! change was logged in another stream, before the mark of that stream. Redo would overwrite the later change with
//! older bytes.
//!
//! The marks are sufficient only on one premise: in the order of serial numbers, the begin marks of all streams lie
//! between two consecutive changes. So while `Window::begin` writes the marks, no change may get a serial number.
//!
//! # Source
//! *Differential Logging* (000), section 5.1: "merges them by the serialization order".

use std::ops::Range;
use std::sync::Arc;

use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Incarnation, PartitionId, Result};
use perdura_heap::{Batch, SlotChange};
use perdura_page::{Change, TxnRecord, decode_txn_record};
use perdura_wal::{Direction, Frame, Origin, Role};

use crate::base::{Image, begun_by};
use crate::cursor::range_in;
use crate::fates::Forward;
use crate::judge::{no_record, txn_record};
use crate::pass::{Pass, SharedUnit};
use crate::route::{Route, foreign};
use crate::rule::gate_begun;
use crate::source::{Frames, LogSource};
use crate::stats::ReplayStats;
use crate::undo::undo_losers;

/// The order number of one change, and the range of the change's payload in its unit. A unit is a piece of a stream.
/// The last entry of a unit marks the unit's end and has no payload. All workers stop at a common unit boundary, so all
/// workers finish a unit before the unit is freed.
struct Entry {
    number: u64,
    payload: Option<Range<usize>>,
}

/// A change's order number, and whether this worker plays the change.
struct Numbered {
    number: u64,
    is_played: bool,
}

/// A function that returns the next unit of the stream with the given index; `None` at the end of the stream.
pub(crate) type Next<'n, S> = dyn FnMut(usize) -> Result<Option<Arc<SharedUnit<S>>>> + 'n;

/// The position of one worker in a stream.
struct Head<S: LogSource> {
    unit: Option<Arc<SharedUnit<S>>>,
    entries: Vec<Entry>,
    at: usize,
    /// The checkpoints that have begun: the worker has passed their begin marks in this stream.
    begun: Vec<CkptEpoch>,
    /// A unit of a later life, kept until that life is played.
    parked: Option<Arc<SharedUnit<S>>>,
    ended: bool,
}

impl<S: LogSource> Head<S> {
    fn new(first: Option<Arc<SharedUnit<S>>>) -> Self {
        Head {
            unit: None,
            entries: Vec::new(),
            at: 0,
            begun: Vec::new(),
            ended: first.is_none(),
            parked: first,
        }
    }
}

struct Merger<'m, 'a, I, S: LogSource> {
    pass: &'m Pass<'a, I, S>,
    worker: usize,
    workers: usize,
    heads: Vec<Head<S>>,
    fates: Vec<Forward>,
    stats: ReplayStats,
}

pub(crate) fn merge<I: Image, S: LogSource>(
    pass: &Pass<'_, I, S>,
    worker: usize,
    workers: usize,
    next: &mut Next<'_, S>,
) -> Result<()> {
    assert!(worker < workers, "worker {worker} of {workers}");
    let parts = pass.log.parts();
    let heads: Result<Vec<_>> = (0..parts).map(|part| next(part).map(Head::new)).collect();
    let mut merger = Merger {
        pass,
        worker,
        workers,
        heads: heads?,
        fates: (0..parts).map(|_| Forward::default()).collect(),
        stats: ReplayStats::default(),
    };
    let mut last = None;
    while let Some(life) = merger.next_life() {
        assert!(last < Some(life), "life {life} comes after {last:?}");
        last = Some(life);
        merger.play_life(life, next)?;
        merger.end_of_life()?;
    }
    assert!(
        merger
            .heads
            .iter()
            .all(|head| head.ended && head.parked.is_none()),
        "a worker plays every stream to its end"
    );
    pass.add_stats(merger.stats);
    Ok(())
}

impl<I: Image, S: LogSource> Merger<'_, '_, I, S> {
    /// Returns the earliest life that has an unplayed unit. `None`: every unit was played.
    fn next_life(&self) -> Option<Incarnation> {
        let parked = self.heads.iter().filter_map(|head| head.parked.as_ref());
        parked.map(|unit| unit.life).min()
    }

    fn play_life(&mut self, life: Incarnation, next: &mut Next<'_, S>) -> Result<()> {
        for stream in 0..self.heads.len() {
            if let Some(unit) = self.heads[stream].parked.take() {
                self.receive(stream, unit, life)?;
            }
        }
        loop {
            self.play_until_a_unit_ends()?;
            let mut any = false;
            for stream in 0..self.heads.len() {
                while self.needs_unit(stream) {
                    match next(stream)? {
                        Some(unit) => self.receive(stream, unit, life)?,
                        None => self.heads[stream].ended = true,
                    }
                }
                any |= self.heads[stream].unit.is_some();
            }
            if !any {
                return Ok(());
            }
        }
    }

    fn needs_unit(&mut self, stream: usize) -> bool {
        let head = &mut self.heads[stream];
        if head.unit.is_some() && head.at == head.entries.len() {
            head.unit = None;
        }
        head.unit.is_none() && head.parked.is_none() && !head.ended
    }

    /// Makes `unit` the stream's current unit, or parks it if it belongs to a later life than `life`.
    fn receive(
        &mut self,
        stream: usize,
        unit: Arc<SharedUnit<S>>,
        life: Incarnation,
    ) -> Result<()> {
        assert!(
            self.heads[stream].parked.is_none(),
            "stream {stream} has given a unit of a later life than {}",
            unit.life
        );
        if unit.life > life {
            self.heads[stream].parked = Some(unit);
            return Ok(());
        }
        assert_eq!(unit.life, life, "a round ends before the next life begins");
        let pass = self.pass;
        let opened = unit.open()?;
        let mut entries = Vec::new();
        let mut last = 0;
        opened.for_each(Direction::Forward, |frame, origin| {
            match pass.routes.of(frame.kind) {
                Some(Route::Records) => {}
                Some(Route::Later) => return Ok(()),
                None => return Err(foreign(frame, origin)),
            }
            if let Some(numbered) = self.frame(stream, unit.number, frame, origin)? {
                last = numbered.number;
                if numbered.is_played {
                    entries.push(Entry {
                        number: numbered.number,
                        payload: Some(range_in(opened.joined(), frame.payload)),
                    });
                }
            }
            Ok(())
        })?;
        entries.push(Entry {
            number: last,
            payload: None,
        });
        if self.worker == 0 {
            let bytes = to_u64(opened.joined().len());
            self.stats.bytes += bytes;
            pass.means.progress.add_done(bytes);
        }
        let head = &mut self.heads[stream];
        (head.unit, head.entries, head.at) = (Some(unit), entries, 0);
        Ok(())
    }

    /// Decides whether this worker plays the change in a frame. Returns the decision with the change's order number.
    /// Returns `None` if the frame has no change, or its page cannot be recovered.
    #[inline]
    fn frame(
        &mut self,
        stream: usize,
        unit: usize,
        frame: Frame<'_>,
        origin: &Origin,
    ) -> Result<Option<Numbered>> {
        let pass = self.pass;
        let head = &mut self.heads[stream];
        match frame.kind.role() {
            Role::Records => {}
            Role::BeginMark => {
                head.begun.extend(begun_by(frame.payload));
                return Ok(None);
            }
            Role::EndMark | Role::Log | Role::Ordered | Role::Numbered => return Ok(None),
        }
        debug_assert!(
            frame.kind == pass.routes.records.kind(),
            "a frame of kind {} was routed to the mergers",
            frame.kind.code()
        );
        let record = txn_record(frame.payload, origin)?;
        self.fates[stream].note(&record, unit);
        let update = match record {
            TxnRecord::Update(update) => update,
            TxnRecord::Commit { .. } => {
                self.stats.groups += u64::from(self.worker == 0);
                return Ok(None);
            }
            TxnRecord::Begin { .. } | TxnRecord::Abort { .. } => return Ok(None),
        };
        let number = order_number(&update.change)
            .ok_or_else(|| no_record(origin, "before and after images"))?;
        let Some(base) = pass.image.base_of(update.page) else {
            return Ok(None);
        };
        let decision = gate_begun(base.sweep()?, |k| head.begun.contains(&k));
        let partition = pass.heap.geometry().partition_of_page(update.page);
        let is_own = is_own(partition, self.worker, self.workers);
        Ok(Some(Numbered {
            number,
            is_played: is_own && self.stats.decided(decision),
        }))
    }

    /// Plays the changes of all streams in the order of their numbers, until one stream's current unit ends.
    fn play_until_a_unit_ends(&mut self) -> Result<()> {
        let heap = self.pass.heap;
        let units: Vec<_> = self.heads.iter().map(|head| head.unit.clone()).collect();
        let mut batch = Batch::<SlotChange<'_>>::new();
        let mut last = 0;
        loop {
            let first = self.heads.iter().enumerate();
            let first = first
                .filter(|(_, head)| head.unit.is_some())
                .min_by_key(|(_, head)| head.entries[head.at].number)
                .map(|(stream, _)| stream);
            let Some(stream) = first else { break };
            let head = &mut self.heads[stream];
            let entry = &head.entries[head.at];
            debug_assert!(
                last <= entry.number,
                "change {} of stream {stream} comes after {last}",
                entry.number
            );
            last = entry.number;
            let payload = entry.payload.clone();
            head.at += 1;
            let (Some(payload), Some(unit)) = (payload, &units[stream]) else {
                break;
            };
            let bytes = &unit.open()?.joined()[payload];
            let Some(TxnRecord::Update(update)) = decode_txn_record(bytes) else {
                unreachable!("the bytes were decoded when the unit was placed");
            };
            batch.push(
                heap.geometry(),
                SlotChange {
                    page: update.page,
                    change: update.change,
                    undo: false,
                },
            );
        }
        batch.play(heap)
    }

    /// Undoes the changes of the transactions that were open when the life ended. Changes only this worker's
    /// partitions.
    fn end_of_life(&mut self) -> Result<()> {
        let since = self.pass.means.clock.mono_ns();
        let (worker, workers) = (self.worker, self.workers);
        let mut any = false;
        for stream in 0..self.fates.len() {
            if let Some(losers) = self.fates[stream].end_life() {
                any = true;
                undo_losers(self.pass, stream, &losers, &|partition| {
                    is_own(partition, worker, workers)
                })?;
            }
        }
        if any {
            self.pass.add_undo(since);
        }
        Ok(())
    }
}

/// Returns the number by which a change is merged; `None` for a change without a number.
fn order_number(change: &Change<'_>) -> Option<u64> {
    match change {
        Change::Assign(images) => Some(images.gseq),
        Change::Xor(_) => None,
    }
}

fn is_own(partition: PartitionId, worker: usize, workers: usize) -> bool {
    usize::from(partition.0) % workers == worker
}
