//! The jobs of a restart that load the image, play the log and build the indexes. The schedule decides the time and the
//! thread of each job.
//!
//! A unit is a piece of a log stream. A unit is first *prepared*: the blocks are checked, the frames decoded and the
//! records tested against the gate. The units of a stream are prepared in order, because some players collect the fates
//! of transactions during preparation. The unit is then *played*: the records that passed the gate are sorted by
//! partition and applied. Preparing is cheap. Playing is slow, because it waits for memory accesses. Any free thread
//! can play a unit.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Result};
use perdura_heap::{Heap, Replayed};
use perdura_wal::Direction;

use crate::base::Image;
use crate::indexing::{Indexer, Tables};
use crate::judge::{Group, InLife, InOrder, Passed, Play, Scene, StreamPlayer};
use crate::means::Means;
use crate::merge::merge;
use crate::pass::{Pass, SharedUnit};
use crate::route::{Route, foreign};
use crate::source::{Frames, LogSource, Raw};
use crate::stats::ReplayStats;
use crate::threads::run_threads;
use crate::undo::undo_losers;
use crate::work::Work;

/// The facts that are known after the end of the log has been decided.
struct Decided {
    /// Count of units in each part of the log. A part is one stream.
    units: Vec<usize>,
    /// The last epoch that the recovered state includes.
    epoch: Epoch,
    /// The highest checkpoint epoch seen.
    ckpt_max: CkptEpoch,
}

/// One attempt at loading the image and playing the log.
pub(crate) struct Replay<'a, I, S> {
    pass: Pass<'a, I, S>,
    indexer: Option<Indexer<'a>>,
    decided: OnceLock<Decided>,
    damaged: AtomicU64,
}

/// The result of an attempt.
pub(crate) struct Attempt {
    /// Count of damaged pages in the image. If it is not 0, the attempt is void.
    pub damaged: u64,
    /// The tables, with their indexes built.
    pub tables: Tables,
    /// The counts of records.
    pub stats: ReplayStats,
    /// The seconds spent undoing.
    pub undo_seconds: f64,
}

impl<'a, I: Image, S: LogSource> Replay<'a, I, S> {
    /// Makes an attempt that the schedule has not begun.
    pub fn new(heap: &'a Arc<Heap>, image: &'a I, log: &'a S, means: &'a Means<'a>) -> Self {
        Replay {
            pass: Pass::begin(heap, image, log, means),
            indexer: means.indexing.map(Indexer::new),
            decided: OnceLock::new(),
            damaged: AtomicU64::new(0),
        }
    }

    fn decided(&self) -> &Decided {
        self.decided
            .get()
            .expect("the schedule decides before it reads units")
    }

    /// Returns the result of the attempt. Called after the schedule has run.
    #[must_use]
    pub fn finish(self) -> Attempt {
        let (stats, undo_seconds) = self.pass.into_figures();
        Attempt {
            damaged: self.damaged.into_inner(),
            tables: self.indexer.map(Indexer::into_tables).unwrap_or_default(),
            stats,
            undo_seconds,
        }
    }

    /// Returns whether the attempt is void, because pages of the image are damaged.
    fn is_void(&self) -> bool {
        self.damaged.load(Ordering::Relaxed) > 0
    }

    /// Ends the player of each stream. If the players leave changes to undo, runs a second pass that undoes them.
    fn finish_players(&self) -> Result<()> {
        let threads = self.pass.means.schedule.threads;
        let mut losers = Vec::new();
        for (part, player) in self.pass.streams.iter().enumerate() {
            losers.extend(player.finish().into_iter().map(|lost| (part, lost)));
        }
        let since = self.pass.means.clock.mono_ns();
        let units = &self.decided().units;
        assert!(
            losers
                .iter()
                .all(|(part, losers)| losers.units.end <= units[*part]),
            "losers are undone by units that count"
        );
        let next = AtomicUsize::new(0);
        run_threads(threads.min(losers.len()), || {
            while let Some((part, losers)) = losers.get(next.fetch_add(1, Ordering::Relaxed)) {
                undo_losers(&self.pass, *part, losers, &|_| true)?;
            }
            Ok(())
        })?;
        if !losers.is_empty() {
            self.pass.add_undo(since);
        }
        Ok(())
    }

    /// Passes a unit's frames to the player of page records.
    #[inline]
    fn take_frames<'r, P: Play>(
        &self,
        player: &mut P,
        unit: usize,
        opened: &'r <S::Raw as Raw>::Open,
    ) -> Result<Passed<P::Change<'r>>> {
        let scene = Scene {
            geometry: self.pass.heap.geometry(),
            image: self.pass.image,
            target: self.decided().epoch,
            unit,
        };
        let mut passed = Passed::default();
        let routes = &self.pass.routes;
        opened.for_each(routes.records.direction(), |frame, origin| {
            match routes.of(frame.kind) {
                Some(Route::Records) => player.frame(&scene, frame, origin, &mut passed),
                Some(Route::Later) => Ok(()),
                None => Err(foreign(frame, origin)),
            }
        })?;
        assert_eq!(
            to_u64(passed.batch.len()),
            passed.stats.applied,
            "what passed the gate is played, and nothing else"
        );
        passed.stats.bytes += to_u64(opened.joined().len());
        Ok(passed)
    }

    fn play_in_order<P: Play + InOrder>(
        &self,
        player: &Mutex<InLife<P>>,
        unit: &SharedUnit<S>,
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        let opened = unit.open()?;
        let mut player = player.lock();
        player.enter(unit.life);
        let passed = self.take_frames(&mut player.player, unit.number, opened)?;
        drop(player);
        prepared();
        self.play(passed)
    }

    fn play<R: Replayed>(&self, mut passed: Passed<R>) -> Result<()> {
        passed.batch.play(self.pass.heap)?;
        self.pass.means.progress.add_done(passed.stats.bytes);
        self.pass.add_stats(passed.stats);
        Ok(())
    }
}

impl<I: Image, S: LogSource> Work for Replay<'_, I, S> {
    type Part = I::Part;
    type Unit = SharedUnit<S>;

    fn parts(&self) -> Vec<usize> {
        self.pass.image.parts()
    }

    fn read_part(&self, disk: usize, part: usize) -> Result<I::Part> {
        self.pass.image.read(disk, part)
    }

    fn play_part(&self, part: I::Part) -> Result<()> {
        let bytes = self.pass.image.bytes(&part);
        let damaged = self.pass.image.play(self.pass.heap, part)?;
        self.damaged.fetch_add(damaged, Ordering::Relaxed);
        self.pass.means.progress.add_done(bytes);
        Ok(())
    }

    fn streams(&self) -> usize {
        self.pass.log.parts()
    }

    fn scan(&self, stream: usize) -> Result<()> {
        self.pass.log.scan(stream)
    }

    fn decide(&self) -> Result<Vec<usize>> {
        let end = self.pass.log.end()?;
        assert_eq!(
            end.units.len(),
            self.pass.log.parts(),
            "an end of every part"
        );
        self.pass.image.check_end(end.epoch)?;
        self.pass.means.progress.add_total(end.bytes);
        let units = end.units.clone();
        let decided = Decided {
            units: end.units,
            epoch: end.epoch,
            ckpt_max: end.ckpt_max,
        };
        assert!(self.decided.set(decided).is_ok(), "decided once");
        Ok(units)
    }

    fn read_unit(&self, stream: usize, unit: usize) -> Result<SharedUnit<S>> {
        let units = self.decided().units[stream];
        assert!(unit < units, "unit {unit} of {units} in stream {stream}");
        let number = match self.pass.routes.records.direction() {
            Direction::Forward => unit,
            Direction::Backward => units - 1 - unit,
        };
        let raw = self.pass.log.read(stream, number)?;
        Ok(SharedUnit::new(number, raw))
    }

    fn unit_bytes(&self, unit: &SharedUnit<S>) -> u64 {
        unit.bytes
    }

    fn mergers(&self, threads: usize) -> usize {
        self.pass.routes.records.mergers(threads)
    }

    fn play_unit(
        &self,
        stream: usize,
        unit: &SharedUnit<S>,
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        match &self.pass.streams[stream] {
            StreamPlayer::Group => {
                // This player keeps no state between units, so the next unit may be prepared at once.
                prepared();
                self.play(self.take_frames(&mut Group, unit.number, unit.open()?)?)
            }
            StreamPlayer::Fate(player) => self.play_in_order(player, unit, prepared),
            StreamPlayer::TwoPass(player) => self.play_in_order(player, unit, prepared),
            StreamPlayer::Merged => unreachable!("the units of a merged log go to the mergers"),
        }
    }

    fn merge(
        &self,
        worker: usize,
        workers: usize,
        next: &mut dyn FnMut(usize) -> Result<Option<Arc<SharedUnit<S>>>>,
    ) -> Result<()> {
        merge(&self.pass, worker, workers, next)
    }

    fn end_log(&self) -> Result<()> {
        if self.is_void() {
            return Ok(());
        }
        self.finish_players()
    }

    fn sidecars(&self) -> usize {
        self.indexer.as_ref().map_or(0, Indexer::sidecars)
    }

    fn read_sidecar(&self, number: usize) {
        if let Some(indexer) = &self.indexer {
            indexer.read_sidecar(self.pass.heap, number);
        }
    }

    fn begin_indexes(&self) -> Result<usize> {
        match &self.indexer {
            Some(indexer) if !self.is_void() => {
                self.pass.means.progress.enter(2);
                indexer.begin(self.pass.heap, self.decided().ckpt_max)
            }
            Some(_) | None => Ok(0),
        }
    }

    fn build_index(&self, number: usize) -> Result<()> {
        let indexer = self.indexer.as_ref();
        indexer.map_or(Ok(()), |indexer| indexer.build(self.pass.heap, number))
    }

    fn end_indexes(&self) -> Result<()> {
        let indexer = self.indexer.as_ref();
        indexer.map_or(Ok(()), |indexer| indexer.end(self.pass.heap))
    }
}
