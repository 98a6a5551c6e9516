//! The ordered frames of a restore. They become the log of the new database.
//!
//! A restore makes the pages of key-addressed tables as of a cut: that of an increment, or of the backup. Later changes are
//! in ordered frames. A frame may be a command, and only the program has its procedure. So the restore replays nothing. It writes
//! the frames up to the target into the new database's log. The first open replays them, as after a crash.
//!
//! # The order of the frames
//! A frame is in the cut exactly if its numbers are at most the cut's. The frame's epoch decides nothing: the end
//! epoch of an image is after its cut. The new log has the frames in the order of the old epochs. A new epoch has whole
//! old epochs. So in each partition, numbers and epochs rise together, as a restart demands.
//!
//! # Invariants
//! * In each partition, the frames that are written have all numbers after the cut's, without a gap.
//! * The anchor declares the families of the frames, and vouches for the new log, before the database is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::{FrameOfEpoch, Run};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, Gsn, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::{Clock, Disk};
use perdura_formats::OrderedPayload;
use perdura_formats::ordered::Part;

use perdura_recovery::{AnchorCell, Families, Family, flush_all};
use perdura_wal::{FrameKind, RestartRecord, Rung, Wal, WalOptions, WalStart};

use crate::plan::RestorePlan;

/// The approximate size of the frames in one epoch of the new log, bytes. A restart holds one epoch in memory.
const EPOCH_BYTES: usize = 1024 * 1024;

/// The calls of a procedure that a restore has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedCalls {
    /// The number of calls.
    pub count: u64,
    /// The epoch of the first call, in the archived database.
    pub first: Epoch,
    /// The epoch of the last call, in the archived database.
    pub last: Epoch,
}

/// The ordered frames that a restore has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarriedFrames {
    /// The number of effects frames. The first open replays them without the program.
    pub effects: u64,
    /// The calls by the id of the procedure. The first open needs the program that has the procedures.
    pub calls: BTreeMap<u32, CarriedCalls>,
    /// The bytes of the frames.
    pub bytes: u64,
}

impl CarriedFrames {
    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.effects + self.all_calls()
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.calls.values().map(|calls| calls.count).sum()
    }

    fn note(&mut self, kind: FrameKind, epoch: Epoch, payload: &OrderedPayload<'_>) {
        match payload.command() {
            Ok(command) if kind == FrameKind::Command => {
                let calls = self.calls.entry(command.procedure);
                let calls = calls.or_insert(CarriedCalls {
                    count: 0,
                    first: epoch,
                    last: epoch,
                });
                debug_assert!(calls.last <= epoch, "the frames come in epoch order");
                calls.count += 1;
                calls.last = calls.last.max(epoch);
            }
            _ => self.effects += 1,
        }
    }
}

/// The choice of the frames that a restore needs, by their numbers.
struct Wanted {
    /// For each partition, the highest number in the backup.
    backup: Vec<u64>,
    /// For each partition, the highest number in the backup and in the frames so far.
    newest: Vec<u64>,
    /// The parts of the current epoch's frames.
    parts: Vec<Part>,
    run: String,
    /// The end epoch of the cut's image.
    end: Epoch,
}

impl Wanted {
    /// Returns whether the backup lacks a frame. Fails if the backup has it in some of its partitions only.
    fn lacks(&self, parts: &[Part], epoch: Epoch) -> Result<bool> {
        if armed(Flaw::FrameJudgedByEpoch) {
            return Ok(epoch > self.end);
        }
        let mut has = 0;
        for (partition, number) in parts {
            let Some(backup) = self.backup.get(usize::from(partition.0)) else {
                let found = format!("an ordered frame of partition {partition}");
                return Err(self.corrupt(format!("partitions below {}", self.backup.len()), found));
            };
            has += usize::from(number <= backup);
        }
        if has > 0 && has < parts.len() {
            let expected =
                "ordered frames that the backup has in all their partitions, or in none".into();
            let found = format!(
                "one of epoch {epoch} that it has in {has} of {}",
                parts.len()
            );
            return Err(self.corrupt(expected, found));
        }
        Ok(has == 0)
    }

    /// Checks that the frames of an epoch have the next numbers of their partitions.
    fn end_epoch(&mut self) -> Result<()> {
        self.parts.sort_unstable();
        for (partition, number) in std::mem::take(&mut self.parts) {
            let newest = self.newest[usize::from(partition.0)];
            if number != newest + 1 {
                let expected = format!(
                    "the ordered frame with number {} of partition {partition}",
                    newest + 1
                );
                return Err(self.corrupt(expected, format!("the one with number {number}")));
            }
            self.newest[usize::from(partition.0)] = number;
        }
        debug_assert!(
            self.newest
                .iter()
                .zip(&self.backup)
                .all(|(now, was)| now >= was),
            "a number is never lower than the backup's"
        );
        Ok(())
    }

    #[cold]
    fn corrupt(&self, expected: String, found: String) -> Error {
        Error::corrupt(
            self.run.clone(),
            0,
            expected,
            found,
            "An ordered frame is missing, or is there twice. Restore from a later backup, or an earlier moment.",
        )
    }
}

/// The place of the new log.
pub(crate) struct LogPlace<'a> {
    /// The disk of each stream.
    pub(crate) logs: &'a [Arc<dyn Disk>],
    /// The identity of the new database.
    pub(crate) uuid: Uuid,
    /// The clock.
    pub(crate) clock: &'a Arc<dyn Clock>,
}

/// The new log while it is written.
struct NewLog {
    wal: Wal,
    /// The bytes of the frames in the open epoch.
    open: usize,
}

impl NewLog {
    /// Begins the log of a new database: its first life.
    fn begin(plan: &RestorePlan, place: &LogPlace<'_>, cell: &AnchorCell) -> Result<NewLog> {
        let record = cell.get();
        let header = plan.backup.header();
        let zeros = vec![Pos(0); place.logs.len()];
        let options = WalOptions {
            segments: header.segments,
            ..WalOptions::default()
        };
        let start = WalStart {
            uuid: place.uuid,
            incarnation: record.incarnation,
            start: zeros.clone(),
            epoch: Epoch(plan.highest_epoch().0 + 1),
            durable: plan.target(),
            wall_us: header.wall_us,
            gsn: Gsn(0),
            lives: record.lineage.clone(),
        };
        assert_eq!(record.incarnation, Incarnation(1), "the first life");
        let wal = Wal::open(place.logs, Arc::clone(place.clock), options, start, |_| {
            false
        })?;
        wal.append_restart(&RestartRecord {
            incarnation: record.incarnation,
            durable: plan.target(),
            ckpt_max: record.ckpt_max,
            cut: zeros,
        });
        Ok(NewLog { wal, open: 0 })
    }

    fn append(&mut self, frame: &FrameOfEpoch<'_>, parts: &[Part]) {
        let streams = u16::from(self.wal.streams());
        let stream = frame.at.partition.0 % streams;
        let stream = StreamId(u8::try_from(stream).unwrap_or(0));
        let touched = parts.iter().map(|(partition, _)| *partition).collect();
        self.wal
            .append(stream, frame.kind, frame.payload, &touched, CkptEpoch(0));
        self.open += frame.payload.len();
    }

    /// Ends an old epoch. Ends the new epoch as well if it is long enough.
    fn end_epoch(&mut self) -> Result<()> {
        if self.open >= EPOCH_BYTES {
            flush_all(&self.wal)?;
            self.open = 0;
        }
        Ok(())
    }
}

/// Writes the frames up to the target into the new database's log. `numbers` has each partition's number in the backup.
/// The anchor then declares the frames' families and vouches for the log.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged run, and if a frame is missing or there twice; errors of the disks.
pub(crate) fn write_frames(
    plan: &RestorePlan,
    place: &LogPlace<'_>,
    cell: &AnchorCell,
    numbers: Vec<u64>,
) -> Result<CarriedFrames> {
    let mut carried = CarriedFrames::default();
    let mut wanted = Wanted {
        newest: numbers.clone(),
        backup: numbers,
        parts: Vec::new(),
        run: String::new(),
        end: plan.cut().id.end,
    };
    let mut log: Option<NewLog> = None;
    for run in plan.runs.iter().filter(|run| has_frames(run)) {
        wanted.run = run.id().name();
        let mut frames = run.frames_by_epoch(plan.cut().begin, plan.target());
        loop {
            let is_left = frames.next_epoch(|frame| {
                let payload = OrderedPayload::decode(frame.payload).map_err(|why| {
                    let found = format!("something else at byte {} of a frame", why.at);
                    wanted.corrupt(format!("an ordered frame: {}", why.expected), found)
                })?;
                let parts = &payload.head.parts;
                if !wanted.lacks(parts, frame.epoch)? {
                    return Ok(());
                }
                wanted.parts.extend_from_slice(parts);
                carried.note(frame.kind, frame.epoch, &payload);
                carried.bytes += to_u64(frame.payload.len());
                if log.is_none() {
                    log = Some(NewLog::begin(plan, place, cell)?);
                }
                if let Some(log) = &mut log {
                    log.append(&frame, parts);
                }
                Ok(())
            })?;
            wanted.end_epoch()?;
            if let Some(log) = &mut log {
                log.end_epoch()?;
            }
            if !is_left {
                break;
            }
        }
    }
    assert!(wanted.parts.is_empty(), "each epoch was ended");
    assert_eq!(
        log.is_some(),
        carried.frames() > 0,
        "the log has the frames"
    );
    if let Some(log) = log {
        flush_all(&log.wal)?;
        vouch_for(&log.wal, cell, &carried)?;
    }
    let gained: u64 = wanted
        .newest
        .iter()
        .zip(&wanted.backup)
        .map(|(now, was)| now - was)
        .sum();
    assert!(
        gained >= carried.frames(),
        "each frame has a number in a partition"
    );
    Ok(carried)
}

fn has_frames(run: &Arc<Run>) -> bool {
    run.frames().is_some_and(|frames| frames.count > 0)
}

/// Declares the families of the frames, and vouches for the log that has them.
fn vouch_for(wal: &Wal, cell: &AnchorCell, carried: &CarriedFrames) -> Result<()> {
    let durable = wal.durable_end(Rung::Disk);
    assert!(
        wal.durable(Rung::Disk) >= durable.epoch,
        "only durable log is named"
    );
    let update = cell.update(|record| {
        let mut families: Families = record.families;
        if carried.effects > 0 {
            families = families.with(Family::Effects);
        }
        if !carried.calls.is_empty() {
            families = families.with(Family::Commands);
        }
        record.families = families;
        record.epoch_floor = record.epoch_floor.max(durable.epoch);
        record.vouched = durable.clone();
    });
    update.map(drop).map_err(Error::from)
}
