//! One pass over a log: the state that the players of the log's streams share, on any threads.

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
    /// The player of each part of the log. A part is one stream.
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

    /// Adds the counts of one unit or one worker to the counts of the pass.
    pub fn add_stats(&self, stats: ReplayStats) {
        self.stats.lock().merge(stats);
    }

    /// Counts the time since `since_ns` as time spent undoing. Workers undo in parallel, so only the longest time
    /// counts.
    pub fn add_undo(&self, since_ns: u64) {
        let spent = self.means.clock.mono_ns().saturating_sub(since_ns);
        self.undo_ns.fetch_max(spent, Ordering::Relaxed);
    }

    /// Returns the counts, and the time of the undo in seconds. Called after everything was played.
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

/// A unit (a piece of a stream) for several players. The first player that needs the unit opens it.
pub(crate) struct SharedUnit<S: LogSource> {
    /// The index of the unit within its part of the log; 0 is the oldest unit.
    pub number: usize,
    /// The life of the database that wrote the unit.
    pub life: Incarnation,
    /// Bytes of memory that the unit took when it was read.
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

    /// Returns the unit's frames. The first call decodes them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is damaged. Later calls then return [`Error::Stopped`].
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
