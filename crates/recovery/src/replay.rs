//! The work of a restart between anchor and indexes: image to memory, log to memory. The schedule
//! says when and on which thread, the method says how; this file is the how.
//!
//! A unit of log is *prepared* (checked, decoded, each record held against the gate, in the order
//! of its stream, because fates are learned on the way) and then *played*: what passed the gate is
//! sorted by partition and applied. Preparing is cheap and kept in order, playing waits for memory
//! and is done by whoever is free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Error, Result, StreamId};
use perdura_device::{Clock, Disk};
use perdura_store::Heap;
use perdura_wal::{
    Anchor, Check, Cut, Direction, RawUnit, StreamScan, Unit, decide_cut, scan_stream,
};

use crate::fates::{Backward, Forward, Losers};
use crate::load::{BadPage, ImagePlan, LoadedRun};
use crate::merge::merge;
use crate::method::{Apply, GateBy, Method, Share};
use crate::report::Progress;
use crate::rule::Gate;
use crate::schedule::run_threads;
use crate::undo::undo_losers;
use crate::work::Work;

/// About how many bytes of log make a unit: it is checked, decoded and applied while it is in the
/// processor's cache.
pub const UNIT_BYTES: u64 = 256 << 10;

/// What replay did.
#[derive(Debug, Clone, Default)]
pub struct ReplayStats {
    /// Committed transactions seen.
    pub groups: u64,
    /// Records seen.
    pub seen: u64,
    /// Records applied.
    pub applied: u64,
    /// Records of unfinished transactions undone by a second pass.
    pub undone: u64,
    /// Records skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Bytes of frames read.
    pub bytes: u64,
}

impl ReplayStats {
    /// Adds another player's.
    pub fn merge(&mut self, other: ReplayStats) {
        self.groups += other.groups;
        self.seen += other.seen;
        self.applied += other.applied;
        self.undone += other.undone;
        self.bytes += other.bytes;
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    pub(crate) fn decided(&mut self, gate: Gate) -> bool {
        self.seen += 1;
        match gate {
            Gate::Apply => {
                self.applied += 1;
                true
            }
            Gate::Skip(why) => {
                *self.skipped.entry(why.name()).or_default() += 1;
                false
            }
        }
    }
}

/// The log as scanned, and what of it counts.
pub struct Decided {
    /// Each stream's blocks up to its cut.
    pub scans: Vec<StreamScan>,
    /// The cut.
    pub cut: Cut,
    /// Each stream's units, oldest first.
    pub units: Vec<Vec<std::ops::Range<usize>>>,
    /// Blocks beyond the cut.
    pub void_blocks: u64,
}

/// What a stream's records are held against, in the order of the scan.
pub(crate) enum Fates {
    None,
    Backward(Backward),
    Forward(Forward, Vec<Losers>),
}

/// A unit of log, opened by the first player who needs it.
pub struct LogUnit {
    /// Its number among its stream's, oldest first.
    pub number: usize,
    bytes: u64,
    raw: Mutex<Option<RawUnit>>,
    open: OnceLock<Unit>,
}

impl LogUnit {
    /// The frames.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is damaged.
    pub fn open(&self, scan: &StreamScan) -> Result<&Unit> {
        let mut raw = self.raw.lock();
        if let Some(raw) = raw.take() {
            let unit = scan.open_unit(raw)?;
            return Ok(self.open.get_or_init(|| unit));
        }
        drop(raw);
        self.open
            .get()
            .ok_or_else(|| Error::Stopped("this unit of log is damaged".into()))
    }
}

/// One attempt at loading the image and playing the log.
pub struct Replay<'a> {
    pub(crate) parts: ReplayParts<'a>,
    found: Found,
}

/// What an attempt finds out on its way.
#[derive(Default)]
struct Found {
    scanned: Mutex<Vec<StreamScan>>,
    decided: OnceLock<Decided>,
    fates: Vec<Mutex<Fates>>,
    bad: Mutex<BTreeSet<BadPage>>,
    stats: Mutex<ReplayStats>,
    undo_ns: AtomicU64,
}

/// What an attempt leaves.
pub struct Attempt {
    /// The log.
    pub decided: Decided,
    /// Pages of the image that are damaged: the attempt is void, plan again.
    pub bad: BTreeSet<BadPage>,
    /// Figures.
    pub stats: ReplayStats,
    /// Seconds of undoing.
    pub undo_seconds: f64,
}

/// What an attempt works with.
pub struct ReplayParts<'a> {
    /// The pages.
    pub heap: &'a Heap,
    /// What they are loaded from.
    pub image: &'a ImagePlan,
    /// How.
    pub method: &'static Method,
    /// What the database's anchor says.
    pub anchor: &'a Anchor,
    /// The disk of each stream.
    pub logs: &'a [Arc<dyn Disk>],
    /// Time, for the report.
    pub clock: &'a dyn Clock,
    /// Where to say how far it is.
    pub progress: &'a Progress,
    /// Whether the image may be used with this cut.
    pub check: &'a (dyn Fn(&Cut) -> Result<()> + Sync),
}

impl<'a> Replay<'a> {
    /// An attempt that has not begun.
    #[must_use]
    pub fn new(parts: ReplayParts<'a>) -> Self {
        let fates = parts.logs.iter().map(|_| {
            Mutex::new(match parts.method.gate {
                GateBy::Epoch | GateBy::BeginMark => Fates::None,
                GateBy::Fate => Fates::Backward(Backward::default()),
                GateBy::Tag => Fates::Forward(Forward::default(), Vec::new()),
            })
        });
        let found = Found {
            fates: fates.collect(),
            ..Found::default()
        };
        Replay { parts, found }
    }

    /// The log and the cut.
    pub(crate) fn decided(&self) -> &Decided {
        self.found
            .decided
            .get()
            .expect("the schedule decides before it reads units")
    }

    pub(crate) fn add_stats(&self, stats: ReplayStats) {
        self.found.stats.lock().merge(stats);
    }

    pub(crate) fn add_undo(&self, since_ns: u64) {
        let spent = self.parts.clock.mono_ns().saturating_sub(since_ns);
        self.found.undo_ns.fetch_max(spent, Ordering::Relaxed);
    }

    /// Reads a unit by its number from the oldest.
    pub(crate) fn read_numbered(&self, stream: usize, number: usize) -> Result<LogUnit> {
        let decided = self.decided();
        let blocks = decided.units[stream][number].clone();
        let raw = decided.scans[stream].read_raw(blocks)?;
        Ok(LogUnit {
            number,
            bytes: raw.bytes(),
            raw: Mutex::new(Some(raw)),
            open: OnceLock::new(),
        })
    }

    /// Ends the attempt: undoes what the first pass left, unless pages must be loaded anew.
    ///
    /// # Errors
    /// Those of reading the log again.
    pub fn finish(self, threads: usize) -> Result<Attempt> {
        if armed(Flaw::JunkBeyondDirectory) {
            self.parts.image.load_junk(self.parts.heap)?;
        }
        let bad = std::mem::take(&mut *self.found.bad.lock());
        if bad.is_empty() {
            self.undo_all(threads)?;
        }
        let undo_ns = self.found.undo_ns.into_inner();
        Ok(Attempt {
            decided: self
                .found
                .decided
                .into_inner()
                .expect("a finished schedule has decided"),
            bad,
            stats: self.found.stats.into_inner(),
            undo_seconds: std::time::Duration::from_nanos(undo_ns).as_secs_f64(),
        })
    }

    /// The second pass of an order-free method: each stream by itself.
    fn undo_all(&self, threads: usize) -> Result<()> {
        let mut losers = Vec::new();
        for (stream, fates) in self.found.fates.iter().enumerate() {
            if let Fates::Forward(open, lost) = &mut *fates.lock() {
                lost.extend(open.end());
                losers.extend(lost.drain(..).map(|of_life| (stream, of_life)));
            }
        }
        let since = self.parts.clock.mono_ns();
        let next = AtomicUsize::new(0);
        run_threads(threads.min(losers.len()), || {
            while let Some((stream, losers)) = losers.get(next.fetch_add(1, Ordering::Relaxed)) {
                undo_losers(self, *stream, losers, &|_| true)?;
            }
            Ok(())
        })?;
        if !losers.is_empty() {
            self.add_undo(since);
        }
        Ok(())
    }

    pub(crate) fn fates(&self, stream: usize) -> &Mutex<Fates> {
        &self.found.fates[stream]
    }

    pub(crate) fn target(&self) -> perdura_base::Epoch {
        self.decided().cut.durable
    }
}

impl Work for Replay<'_> {
    type Part = LoadedRun;
    type Unit = LogUnit;

    fn parts(&self) -> Vec<usize> {
        self.parts.image.parts()
    }

    fn read_part(&self, disk: usize, part: usize) -> Result<LoadedRun> {
        self.parts.image.read(disk, part)
    }

    fn play_part(&self, part: LoadedRun) -> Result<()> {
        let bad = self.parts.image.play(self.parts.heap, &part);
        self.found.bad.lock().extend(bad);
        self.parts.progress.add_done(part.bytes());
        Ok(())
    }

    fn streams(&self) -> usize {
        self.parts.logs.len()
    }

    fn scan(&self, stream: usize) -> Result<()> {
        let id = StreamId(u8::try_from(stream).expect("at most 16 streams"));
        let from = self.parts.image.begin[stream];
        let disk = self.parts.logs[stream].as_ref();
        let lives = self.parts.anchor.lives();
        let scan = scan_stream(disk, &lives, id, from, Check::InDoubt)?;
        self.found.scanned.lock().push(scan);
        Ok(())
    }

    fn decide(&self) -> Result<Vec<usize>> {
        let mut scans = std::mem::take(&mut *self.found.scanned.lock());
        scans.sort_by_key(|scan| scan.stream);
        let cut = decide_cut(self.parts.anchor, &scans)?;
        (self.parts.check)(&cut)?;
        let mut void_blocks = 0;
        for scan in &mut scans {
            let blocks = scan.blocks.len();
            scan.cut_at(cut.cut[usize::from(scan.stream.0)]);
            void_blocks += to_u64(blocks - scan.blocks.len());
            let bytes = scan.blocks.iter().map(|b| u64::from(b.body_len)).sum();
            self.parts.progress.add_total(bytes);
        }
        let units: Vec<_> = scans.iter().map(|scan| scan.units(UNIT_BYTES)).collect();
        let counts = units.iter().map(Vec::len).collect();
        let decided = Decided {
            scans,
            cut,
            units,
            void_blocks,
        };
        assert!(self.found.decided.set(decided).is_ok(), "decided once");
        Ok(counts)
    }

    fn read_unit(&self, stream: usize, unit: usize) -> Result<LogUnit> {
        let number = match self.parts.method.source.direction {
            Direction::Forward => unit,
            Direction::Backward => self.decided().units[stream].len() - 1 - unit,
        };
        self.read_numbered(stream, number)
    }

    fn unit_bytes(&self, unit: &LogUnit) -> u64 {
        unit.bytes
    }

    fn is_ordered(&self) -> bool {
        self.parts.method.source.share != Share::Anyhow
    }

    fn mergers(&self, threads: usize) -> usize {
        match self.parts.method.source.share {
            Share::Anyhow => 0,
            Share::Merged => 1,
            Share::MergedByPage => threads,
        }
    }

    fn play_unit(&self, stream: usize, unit: &LogUnit, prepared: &mut dyn FnMut()) -> Result<()> {
        let scan = &self.decided().scans[stream];
        let mut stats = ReplayStats::default();
        let opened = match self.parts.method.apply {
            Apply::XorPage => {
                // Whole committed groups: nothing is learned on the way, so nothing waits.
                prepared();
                let opened = unit.open(scan)?;
                self.play_groups(scan, opened, &mut stats)?;
                opened
            }
            Apply::RedoSlot => {
                let opened = unit.open(scan)?;
                self.play_changes(stream, unit, opened, &mut stats, prepared)?;
                opened
            }
        };
        stats.bytes += opened.bytes();
        self.parts.progress.add_done(opened.bytes());
        self.add_stats(stats);
        Ok(())
    }

    fn merge(
        &self,
        worker: usize,
        workers: usize,
        next: &mut dyn FnMut(usize) -> Result<Option<Arc<LogUnit>>>,
    ) -> Result<()> {
        merge(self, worker, workers, next)
    }
}
