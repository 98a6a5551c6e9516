//! One pass over a log: the state that its players share, whatever threads they run on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use perdura_base::{Error, Incarnation, Result, StreamId};
use perdura_heap::Heap;

use crate::judge::StreamPlayer;
use crate::means::Means;
use crate::route::Routes;
use crate::source::{LogSource, Raw};
use crate::stats::ReplayStats;

/// One pass over a log.
pub(crate) struct Pass<'a, I, S> {
    pub heap: &'a Arc<Heap>,
    pub image: &'a I,
    pub log: &'a S,
    pub means: &'a Means<'a>,
    pub routes: Routes,
    /// The player of each part of the log.
    pub streams: Vec<StreamPlayer>,
    stats: Mutex<ReplayStats>,
    undo_ns: AtomicU64,
}

impl<'a, I, S: LogSource> Pass<'a, I, S> {
    /// Begins a pass.
    pub fn begin(heap: &'a Arc<Heap>, image: &'a I, log: &'a S, means: &'a Means<'a>) -> Self {
        let routes = Routes::new(means.records, means.later);
        let streams = (0u8..).map(StreamId).take(log.parts());
        let streams: Vec<_> = streams
            .map(|stream| StreamPlayer::new(means.records, stream))
            .collect();
        assert_eq!(streams.len(), log.parts(), "players for each part");
        Pass {
            streams,
            heap,
            image,
            log,
            means,
            routes,
            stats: Mutex::new(ReplayStats::default()),
            undo_ns: AtomicU64::new(0),
        }
    }

    /// Adds the counts of a unit or a worker.
    pub fn add_stats(&self, stats: ReplayStats) {
        self.stats.lock().merge(stats);
    }

    /// Counts the time since `since_ns` as time of undoing. Workers undo in parallel, so only the longest time counts.
    pub fn add_undo(&self, since_ns: u64) {
        let spent = self.means.clock.mono_ns().saturating_sub(since_ns);
        self.undo_ns.fetch_max(spent, Ordering::Relaxed);
    }

    /// Returns the counts and the seconds spent undoing. Called when everything is played.
    pub fn into_figures(self) -> (ReplayStats, f64) {
        let stats = self.stats.into_inner();
        let skipped: u64 = stats.skipped.values().sum();
        assert_eq!(
            stats.applied + skipped,
            stats.seen,
            "each record is applied or skipped"
        );
        let undo_ns = self.undo_ns.into_inner();
        let undo = std::time::Duration::from_nanos(undo_ns);
        (stats, undo.as_secs_f64())
    }
}

/// A unit of log that several players share. The first player that needs it opens it.
pub(crate) struct SharedUnit<S: LogSource> {
    /// Its number within its part of the log, oldest first.
    pub number: usize,
    /// The life of the database that wrote it.
    pub life: Incarnation,
    /// Bytes of memory that it took when it was read.
    pub bytes: u64,
    raw: Mutex<Option<S::Raw>>,
    open: OnceLock<<S::Raw as Raw>::Open>,
}

impl<S: LogSource> SharedUnit<S> {
    pub fn new(number: usize, raw: S::Raw) -> Self {
        SharedUnit {
            number,
            life: raw.life(),
            bytes: raw.bytes(),
            raw: Mutex::new(Some(raw)),
            open: OnceLock::new(),
        }
    }

    /// Returns the frames.
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
