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
use perdura_base::{Error, Incarnation, Result, StreamId};
use perdura_device::{Clock, Disk};
use perdura_heap::{Heap, Replayed};
use perdura_wal::{Check, Cut, Direction, RawUnit, StreamScan, Unit, scan_stream};

use crate::anchor::Anchor;
use crate::judge::{Group, InLife, Passed, Play, PlayInOrder, Scene, StreamPlayer};
use crate::load::{BadPage, ImagePlan, LoadedRun};
use crate::merge::merge;
use crate::method::Method;
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
    players: Vec<StreamPlayer>,
    found: Found,
}

/// What an attempt finds out on its way.
#[derive(Default)]
struct Found {
    scanned: Mutex<Vec<StreamScan>>,
    decided: OnceLock<Decided>,
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
    pub heap: &'a Arc<Heap>,
    /// What they are loaded from.
    pub image: &'a ImagePlan,
    /// How.
    pub method: &'a Method,
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
        let player = &parts.method.player;
        player.begin(parts.heap);
        let streams = (0u8..).map(StreamId).take(parts.logs.len());
        let players = streams.map(|stream| StreamPlayer::new(player, stream));
        Replay {
            players: players.collect(),
            parts,
            found: Found::default(),
        }
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

    /// The life of the database that wrote a unit.
    pub(crate) fn life_of(&self, stream: usize, unit: &LogUnit) -> Incarnation {
        let decided = self.decided();
        let first = decided.units[stream][unit.number].start;
        decided.scans[stream].blocks[first].incarnation
    }

    /// Ends the attempt and what the players left to do, unless pages must be loaded anew.
    ///
    /// # Errors
    /// Those of reading the log again, and a supplied player's.
    pub fn finish(self, threads: usize) -> Result<Attempt> {
        if armed(Flaw::JunkBeyondDirectory) {
            self.parts.image.load_junk(self.parts.heap)?;
        }
        let bad = std::mem::take(&mut *self.found.bad.lock());
        if bad.is_empty() {
            self.finish_players(threads)?;
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

    /// Ends the log for the players, with a second pass if they leave something to undo: each stream
    /// by itself.
    fn finish_players(&self, threads: usize) -> Result<()> {
        let mut losers = Vec::new();
        for (stream, player) in self.players.iter().enumerate() {
            losers.extend(player.finish()?.into_iter().map(|lost| (stream, lost)));
        }
        self.parts.method.player.finish()?;
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

    /// Hands a unit's frames to a player.
    fn take_frames<'r, P: Play>(
        &'r self,
        player: &mut P,
        stream: usize,
        number: usize,
        opened: &'r Unit,
    ) -> Result<Passed<P::Change<'r>>> {
        let scan = &self.decided().scans[stream];
        let scene = Scene {
            geometry: self.parts.heap.geometry(),
            image: self.parts.image,
            target: self.target(),
            scan,
            unit: number,
        };
        let mut passed = Passed::default();
        let direction = self.parts.method.player.direction();
        opened.for_each(scan, direction, |frame, block| {
            player.frame(&scene, frame, block, &mut passed)
        })?;
        passed.stats.bytes += opened.bytes();
        Ok(passed)
    }

    fn play_in_order<P: PlayInOrder>(
        &self,
        player: &Mutex<InLife<P>>,
        stream: usize,
        unit: &LogUnit,
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        let opened = unit.open(&self.decided().scans[stream])?;
        let mut player = player.lock();
        player.enter(self.life_of(stream, unit))?;
        let passed = self.take_frames(&mut player.player, stream, unit.number, opened)?;
        drop(player);
        prepared();
        self.play(passed)
    }

    fn play<R: Replayed>(&self, mut passed: Passed<R>) -> Result<()> {
        passed.batch.play(self.parts.heap)?;
        self.parts.progress.add_done(passed.stats.bytes);
        self.add_stats(passed.stats);
        Ok(())
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
        let cut = self.parts.anchor.decide_cut(&scans)?;
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
        let number = match self.parts.method.player.direction() {
            Direction::Forward => unit,
            Direction::Backward => self.decided().units[stream].len() - 1 - unit,
        };
        self.read_numbered(stream, number)
    }

    fn unit_bytes(&self, unit: &LogUnit) -> u64 {
        unit.bytes
    }

    fn mergers(&self, threads: usize) -> usize {
        self.parts.method.player.mergers(threads)
    }

    fn play_unit(&self, stream: usize, unit: &LogUnit, prepared: &mut dyn FnMut()) -> Result<()> {
        match &self.players[stream] {
            StreamPlayer::Group => {
                // Nothing is learned on the way, so nothing waits.
                prepared();
                let opened = unit.open(&self.decided().scans[stream])?;
                self.play(self.take_frames(&mut Group, stream, unit.number, opened)?)
            }
            StreamPlayer::Fate(player) => self.play_in_order(player, stream, unit, prepared),
            StreamPlayer::TwoPass(player) => self.play_in_order(player, stream, unit, prepared),
            StreamPlayer::Supplied(player) => self.play_in_order(player, stream, unit, prepared),
            StreamPlayer::Merged => unreachable!("the units of a merged log go to the mergers"),
        }
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
