//! The work of a restart between anchor and indexes: image to memory, log to memory. The schedule
//! says when and on which thread, the method says how; this file is the how.
//!
//! A unit of log is *prepared* (checked, decoded, each record held against the gate, in the order
//! of its stream, because fates are learned on the way) and then *played*: what passed the gate is
//! sorted by partition and applied. Preparing is cheap and kept in order, playing waits for memory
//! and is done by whoever is free.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, Incarnation, Result, StreamId};
use perdura_heap::{Heap, Replayed};
use perdura_wal::Direction;

use crate::base::Image;
use crate::component::Component;
use crate::indexing::{Indexer, Tables};
use crate::judge::{Group, InLife, InOrder, Passed, Play, Scene, StreamPlayer};
use crate::merge::merge;
use crate::player::IndexNeed;
use crate::recover::{Means, Target};
use crate::route::{Players, Route};
use crate::rule::Gate;
use crate::schedule::run_threads;
use crate::source::{Frames, LogSource, Raw};
use crate::undo::undo_losers;
use crate::work::Work;

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

/// What the log's end decides for the replay.
struct Decided {
    /// Units of each part.
    units: Vec<usize>,
    /// The last epoch that the state has.
    target: Epoch,
    /// The highest checkpoint epoch seen.
    ckpt_max: CkptEpoch,
}

/// A unit of log in the hands of the players that need it: the first to need it opens it.
pub struct SharedUnit<S: LogSource> {
    /// Its number among its part's, oldest first.
    pub number: usize,
    /// The life of the database that wrote it.
    pub life: Incarnation,
    bytes: u64,
    raw: Mutex<Option<S::Raw>>,
    open: OnceLock<<S::Raw as Raw>::Open>,
}

impl<S: LogSource> SharedUnit<S> {
    fn new(number: usize, raw: S::Raw) -> Self {
        SharedUnit {
            number,
            life: raw.life(),
            bytes: raw.bytes(),
            raw: Mutex::new(Some(raw)),
            open: OnceLock::new(),
        }
    }

    /// The frames.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is damaged.
    pub fn open(&self) -> Result<&<S::Raw as Raw>::Open> {
        let mut raw = self.raw.lock();
        if let Some(raw) = raw.take() {
            let unit = raw.open()?;
            return Ok(self.open.get_or_init(|| unit));
        }
        drop(raw);
        self.open
            .get()
            .ok_or_else(|| Error::Stopped("this unit of log is damaged".into()))
    }
}

/// One attempt at loading the image and playing the log.
pub struct Replay<'a, I, S> {
    pub(crate) heap: &'a Arc<Heap>,
    pub(crate) image: &'a I,
    pub(crate) log: &'a S,
    pub(crate) means: &'a Means<'a>,
    pub(crate) players: Players<'a>,
    target: Target,
    streams: Vec<StreamPlayer>,
    component: Component,
    indexer: Option<Indexer<'a>>,
    decided: OnceLock<Decided>,
    damaged: AtomicU64,
    stats: Mutex<ReplayStats>,
    undo_ns: AtomicU64,
}

/// What an attempt leaves.
pub struct Attempt {
    /// Pages of the image that are damaged: the attempt is void.
    pub damaged: u64,
    /// The tables, indexed.
    pub tables: Tables,
    /// Figures.
    pub stats: ReplayStats,
    /// Seconds of undoing.
    pub undo_seconds: f64,
}

impl<'a, I: Image, S: LogSource> Replay<'a, I, S> {
    /// An attempt that has not begun.
    ///
    /// # Errors
    /// [`Error::Usage`] if the players of `means` cannot play one pass together.
    pub fn new(
        heap: &'a Arc<Heap>,
        image: &'a I,
        log: &'a S,
        target: Target,
        means: &'a Means<'a>,
    ) -> Result<Self> {
        let players = Players::plan(means.method, means.supplied)?;
        players.begin(heap);
        let streams = (0u8..).map(StreamId).take(log.parts());
        let streams = streams.map(|stream| StreamPlayer::new(&players, stream));
        Ok(Replay {
            streams: streams.collect(),
            players,
            component: Component::Heap(Arc::clone(heap)),
            indexer: means.indexing.map(Indexer::new),
            heap,
            image,
            log,
            means,
            target,
            decided: OnceLock::new(),
            damaged: AtomicU64::new(0),
            stats: Mutex::new(ReplayStats::default()),
            undo_ns: AtomicU64::new(0),
        })
    }

    fn decided(&self) -> &Decided {
        self.decided
            .get()
            .expect("the schedule decides before it reads units")
    }

    pub(crate) fn add_stats(&self, stats: ReplayStats) {
        self.stats.lock().merge(stats);
    }

    pub(crate) fn add_undo(&self, since_ns: u64) {
        let spent = self.means.clock.mono_ns().saturating_sub(since_ns);
        self.undo_ns.fetch_max(spent, Ordering::Relaxed);
    }

    /// What the attempt leaves, when the schedule is done.
    #[must_use]
    pub fn finish(self) -> Attempt {
        let stats = self.stats.into_inner();
        assert!(
            stats.applied <= stats.seen,
            "{} of {} records applied",
            stats.applied,
            stats.seen
        );
        let undo_ns = self.undo_ns.into_inner();
        Attempt {
            damaged: self.damaged.into_inner(),
            tables: self.indexer.map(Indexer::into_tables).unwrap_or_default(),
            stats,
            undo_seconds: std::time::Duration::from_nanos(undo_ns).as_secs_f64(),
        }
    }

    /// Whether pages of the image are damaged: they are loaded anew, in another attempt.
    fn is_void(&self) -> bool {
        self.damaged.load(Ordering::Relaxed) > 0
    }

    /// Ends the log for the players, with a second pass if they leave something to undo: each part
    /// by itself.
    fn finish_players(&self) -> Result<()> {
        let threads = self.means.schedule.threads;
        let mut losers = Vec::new();
        for (part, player) in self.streams.iter().enumerate() {
            losers.extend(player.finish()?.into_iter().map(|lost| (part, lost)));
        }
        self.players.finish()?;
        let since = self.means.clock.mono_ns();
        let next = AtomicUsize::new(0);
        run_threads(threads.min(losers.len()), || {
            while let Some((part, losers)) = losers.get(next.fetch_add(1, Ordering::Relaxed)) {
                undo_losers(self, *part, losers, &|_| true)?;
            }
            Ok(())
        })?;
        if !losers.is_empty() {
            self.add_undo(since);
        }
        Ok(())
    }

    /// Hands a unit's frames to the method's player and, by kind, to the supplied ones. If there are
    /// any of these, the caller takes the units of a stream in order.
    #[inline]
    fn take_frames<'r, P: Play>(
        &self,
        player: &mut P,
        unit: usize,
        opened: &'r <S::Raw as Raw>::Open,
    ) -> Result<Passed<P::Change<'r>>> {
        let scene = Scene {
            geometry: self.heap.geometry(),
            image: self.image,
            target: self.decided().target,
            unit,
        };
        let mut passed = Passed::default();
        let supplied = self.players.supplied();
        opened.for_each(self.players.direction(), |frame, origin| {
            match self.players.route(frame, origin)? {
                Route::Method => player.frame(&scene, frame, origin, &mut passed),
                Route::Supplied(number) => supplied[number].frame(frame, *origin),
            }
        })?;
        passed.stats.bytes += to_u64(opened.joined().len());
        Ok(passed)
    }

    /// Tells the supplied players that read a merged log beside the mergers which life comes next.
    pub(crate) fn enter_merged_life(&self, stream: usize, life: Incarnation) -> Result<()> {
        match &self.streams[stream] {
            StreamPlayer::Merged(supplied) => supplied.lock().enter(life),
            StreamPlayer::Group
            | StreamPlayer::GroupInOrder(_)
            | StreamPlayer::Fate(_)
            | StreamPlayer::TwoPass(_)
            | StreamPlayer::Supplied(_) => unreachable!("a stream of a merged log"),
        }
    }

    fn play_in_order<P: Play + InOrder>(
        &self,
        player: &Mutex<InLife<P>>,
        unit: &SharedUnit<S>,
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        let opened = unit.open()?;
        let mut player = player.lock();
        player.enter(unit.life)?;
        let passed = self.take_frames(&mut player.player, unit.number, opened)?;
        drop(player);
        prepared();
        self.play(passed)
    }

    fn play<R: Replayed>(&self, mut passed: Passed<R>) -> Result<()> {
        passed.batch.play(self.heap)?;
        self.means.progress.add_done(passed.stats.bytes);
        self.add_stats(passed.stats);
        Ok(())
    }
}

impl<I: Image, S: LogSource> Work for Replay<'_, I, S> {
    type Part = I::Part;
    type Unit = SharedUnit<S>;

    fn parts(&self) -> Vec<usize> {
        self.image.parts()
    }

    fn read_part(&self, disk: usize, part: usize) -> Result<I::Part> {
        self.image.read(disk, part)
    }

    fn play_part(&self, part: I::Part) -> Result<()> {
        let damaged = self.image.play(self.heap, &part)?;
        self.damaged.fetch_add(damaged, Ordering::Relaxed);
        self.means.progress.add_done(self.image.bytes(&part));
        Ok(())
    }

    fn streams(&self) -> usize {
        self.log.parts()
    }

    fn scan(&self, stream: usize) -> Result<()> {
        self.log.scan(stream)
    }

    fn decide(&self) -> Result<Vec<usize>> {
        let end = self.log.end()?;
        assert_eq!(end.units.len(), self.log.parts(), "an end of every part");
        self.image.check_end(end.epoch)?;
        let target = self.target.within(&end)?;
        self.means.progress.add_total(end.bytes);
        let units = end.units.clone();
        let decided = Decided {
            units: end.units,
            target,
            ckpt_max: end.ckpt_max,
        };
        assert!(self.decided.set(decided).is_ok(), "decided once");
        Ok(units)
    }

    fn read_unit(&self, stream: usize, unit: usize) -> Result<SharedUnit<S>> {
        let number = match self.players.direction() {
            Direction::Forward => unit,
            Direction::Backward => self.decided().units[stream] - 1 - unit,
        };
        let raw = self.log.read(stream, number)?;
        Ok(SharedUnit::new(number, raw))
    }

    fn unit_bytes(&self, unit: &SharedUnit<S>) -> u64 {
        unit.bytes
    }

    fn mergers(&self, threads: usize) -> usize {
        self.players.method().mergers(threads)
    }

    fn play_unit(
        &self,
        stream: usize,
        unit: &SharedUnit<S>,
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        if self.indexes_first() && self.is_void() {
            // Pages that the indexes would be built from are missing.
            prepared();
            return Ok(());
        }
        match &self.streams[stream] {
            StreamPlayer::Group => {
                // Nothing is learned on the way, so nothing waits.
                prepared();
                self.play(self.take_frames(&mut Group, unit.number, unit.open()?)?)
            }
            StreamPlayer::Fate(player) => self.play_in_order(player, unit, prepared),
            StreamPlayer::TwoPass(player) => self.play_in_order(player, unit, prepared),
            StreamPlayer::GroupInOrder(player) => self.play_in_order(player, unit, prepared),
            StreamPlayer::Supplied(player) => self.play_in_order(player, unit, prepared),
            StreamPlayer::Merged(_) => unreachable!("the units of a merged log go to the mergers"),
        }
    }

    fn merge(
        &self,
        worker: usize,
        workers: usize,
        next: &mut dyn FnMut(usize) -> Result<Option<Arc<SharedUnit<S>>>>,
    ) -> Result<()> {
        merge(self, worker, workers, next)
    }

    fn end_log(&self) -> Result<()> {
        if self.is_void() {
            return Ok(());
        }
        self.finish_players()
    }

    fn indexes_first(&self) -> bool {
        match self.players.indexes() {
            IndexNeed::AfterLog => false,
            IndexNeed::BeforeLog => true,
        }
    }

    fn begin_indexes(&self) -> Result<usize> {
        match &self.indexer {
            Some(indexer) if !self.is_void() => {
                self.means.progress.enter(2);
                indexer.begin(&self.component, self.heap, self.decided().ckpt_max)
            }
            Some(_) | None => Ok(0),
        }
    }

    fn build_index(&self, number: usize) -> Result<()> {
        let indexer = self.indexer.as_ref();
        indexer.map_or(Ok(()), |indexer| indexer.build(&self.component, number))
    }

    fn end_indexes(&self) -> Result<()> {
        let indexer = self.indexer.as_ref();
        indexer.map_or(Ok(()), |indexer| indexer.end(&self.component))
    }
}
