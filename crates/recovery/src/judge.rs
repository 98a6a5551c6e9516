//! From a unit's frames to changes of pages: each record decoded, held against the gate, and what
//! passes it played.

use perdura_base::{Error, Result};
use perdura_page::txn_record::{TxnRecord, decode_txn_record};
use perdura_store::{Batch, PageRecord, SlotChange, decode_group};
use perdura_wal::frame::EndRecord;
use perdura_wal::{BlockRef, Frame, FrameKind, StreamScan, Unit};

use crate::fates::gate_tag;
use crate::replay::{Fates, LogUnit, Replay, ReplayStats};
use crate::rule::{Gate, Skip, gate};

impl Replay<'_> {
    /// Groups of committed transactions: every record against the epochs.
    pub(crate) fn play_groups(
        &self,
        scan: &StreamScan,
        unit: &Unit,
        stats: &mut ReplayStats,
    ) -> Result<()> {
        let (image, target) = (self.parts.image, self.target());
        let geometry = self.parts.heap.geometry();
        let mut batch = Batch::<PageRecord<'_>>::new();
        unit.for_each(scan, self.parts.method.source.direction, |frame, block| {
            if frame.kind != FrameKind::Group {
                return Ok(());
            }
            let group = decode_group(frame.payload)
                .ok_or_else(|| no_record(scan, block, "a group of page records"))?;
            stats.groups += 1;
            for record in group.records() {
                if image.lost.contains(&record.page) {
                    continue;
                }
                let k = image.base_of(record.page).k;
                if stats.decided(gate(record.tag, k, block.epoch, target)) {
                    batch.push(geometry, record);
                }
            }
            Ok(())
        })?;
        batch.play(self.parts.heap)
    }

    /// Records of interleaved transactions: every change against its transaction's fate.
    pub(crate) fn play_changes(
        &self,
        stream: usize,
        unit: &LogUnit,
        opened: &Unit,
        stats: &mut ReplayStats,
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        let scan = &self.decided().scans[stream];
        let geometry = self.parts.heap.geometry();
        let mut batch = Batch::<SlotChange<'_>>::new();
        let mut fates = self.fates(stream).lock();
        let first_block = self.decided().units[stream][unit.number].start;
        let life = scan.blocks[first_block].incarnation;
        match &mut *fates {
            Fates::None => {}
            Fates::Backward(fates) => fates.enter(life),
            Fates::Forward(fates, lost) => lost.extend(fates.enter(life, unit.number)),
        }
        opened.for_each(scan, self.parts.method.source.direction, |frame, block| {
            match frame.kind {
                FrameKind::Record => {
                    let record = decode_txn_record(frame.payload)
                        .ok_or_else(|| no_record(scan, block, "a transaction's record"))?;
                    if let Some(change) = self.judge(scan, &mut fates, record, block, stats) {
                        batch.push(geometry, change);
                    }
                }
                FrameKind::BeginCheckpoint | FrameKind::EndCheckpoint => {
                    self.pass_mark(&mut fates, frame);
                }
                FrameKind::Group | FrameKind::Restart | FrameKind::Beacon => {}
            }
            Ok(())
        })?;
        drop(fates);
        prepared();
        batch.play(self.parts.heap)
    }

    fn judge<'r>(
        &self,
        scan: &StreamScan,
        fates: &mut Fates,
        record: TxnRecord<'r>,
        block: &BlockRef,
        stats: &mut ReplayStats,
    ) -> Option<SlotChange<'r>> {
        stats.groups += u64::from(matches!(record, TxnRecord::Commit { .. }));
        match fates {
            Fates::None => {}
            Fates::Backward(fates) => fates.note(&record, block.epoch),
            Fates::Forward(fates, _) => fates.note(&record),
        }
        let TxnRecord::Update(update) = record else {
            return None;
        };
        let base = self.parts.image.base_of(update.page);
        let decision = if base.reaches(scan.stream, block.pos) {
            match fates {
                Fates::None => gate(update.tag, base.k, block.epoch, self.target()),
                Fates::Backward(fates) => fates.gate(update.txn, update.tag, base.k, self.target()),
                Fates::Forward(..) => gate_tag(update.tag, base.k),
            }
        } else {
            Gate::Skip(Skip::Reflected)
        };
        stats.decided(decision).then_some(SlotChange {
            page: update.page,
            change: update.change,
            undo: false,
        })
    }

    fn pass_mark(&self, fates: &mut Fates, frame: Frame<'_>) {
        if let (Fates::Backward(fates), Some(mark)) = (fates, EndRecord::decode(frame.payload))
            && mark.k == self.parts.image.k
        {
            let is_end = frame.kind == FrameKind::EndCheckpoint;
            fates.pass_mark(is_end, mark.active.unwrap_or_default());
        }
    }
}

/// The error for a frame whose checksum holds and whose payload does not parse.
pub(crate) fn no_record(scan: &StreamScan, block: &BlockRef, expected: &str) -> Error {
    Error::corrupt(
        format!("log stream {}", scan.stream),
        block.pos.0,
        expected,
        "bytes that are none",
        "The checksums hold, so this is a bug in the writer. Keep a copy and report it.",
    )
}
