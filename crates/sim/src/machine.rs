//! The simulated machine of a run, for any engine. It has the disks, the clock, and the replies that clients wait
//! for. It takes every step that is not a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use perdura_base::error::Family;
use perdura_base::{Error, StreamId};
use perdura_device::{Clock, Disk, ManualClock, SimDisk};
use perdura_recovery::CheckpointProgress;
use perdura_wal::FlushProgress;

use crate::clients_life::ClientsLife;
use crate::cluster::Cluster;
use crate::content::scramble;
use crate::course::Course;
use crate::report::{Check, Tally};

/// The operations, besides transactions, that the simulator needs from an engine.
pub trait Engine {
    /// A reply that must wait until its epoch is durable.
    type Promise;

    /// Returns the epoch that must survive once the client has this reply. `None`: the client must not get the reply
    /// yet.
    fn due(&self, promise: &Self::Promise) -> Option<u64>;
    /// Returns the newest durable epoch. All earlier epochs are durable too.
    fn durable(&self) -> u64;
    /// Returns the highest epoch that the log proves to be durable. The proof is in a part of the log that is itself
    /// durable. The next restart must keep this epoch.
    fn evidence(&self) -> u64;
    /// Returns whether a failure has stopped the log for good.
    fn has_failed(&self) -> bool;
    /// Returns whether the log has nothing left to write or to sync.
    fn is_idle(&self) -> bool;
    /// Takes a step of preparing the next log segment of a stream.
    ///
    /// # Errors
    /// Errors of the disk.
    fn prepare_segment(&self, stream: StreamId) -> Result<(), Error>;
    /// Closes the epoch.
    fn close_epoch(&self);
    /// Takes a step of a stream's flusher.
    ///
    /// # Errors
    /// Errors of the disk.
    fn flush_step(&self, stream: StreamId) -> Result<FlushProgress, Error>;
    /// Records the durable epoch in the anchor.
    ///
    /// # Errors
    /// Errors of the disk.
    fn vouch(&self) -> Result<bool, Error>;
    /// Begins a checkpoint.
    ///
    /// # Errors
    /// Errors of the disk.
    fn checkpoint_begin(&self) -> Result<(), Error>;
    /// Takes a step of the checkpoint.
    ///
    /// # Errors
    /// Errors of the disk.
    fn checkpoint_step(&self) -> Result<CheckpointProgress, Error>;
    /// Returns whether a checkpoint has begun and has not ended.
    fn checkpoint_is_running(&self) -> bool;
}

/// Implements the simulator's `Engine` for a database of the product or of steal mode. The database, or the target of
/// its `Deref`, must have the methods that the macro calls.
macro_rules! engine {
    ($engine:ident, $promise:ident, $due:expr) => {
        impl $crate::machine::Engine for $engine {
            type Promise = $promise;

            fn due(&self, promise: &$promise) -> Option<u64> {
                $due(self, promise)
            }

            fn durable(&self) -> u64 {
                self.wal().durable(perdura_wal::Rung::Disk).0
            }

            fn evidence(&self) -> u64 {
                self.wal().evidenced().0
            }

            fn has_failed(&self) -> bool {
                self.wal().failure().is_some()
            }

            fn is_idle(&self) -> bool {
                self.wal().is_idle()
            }

            fn prepare_segment(
                &self,
                stream: perdura_base::StreamId,
            ) -> Result<(), perdura_base::Error> {
                self.wal().prepare_segment(stream, &|| {}).map(drop)
            }

            fn close_epoch(&self) {
                perdura_recovery::Life::close_epoch(self);
            }

            fn flush_step(
                &self,
                stream: perdura_base::StreamId,
            ) -> Result<perdura_wal::FlushProgress, perdura_base::Error> {
                perdura_recovery::Life::flush_step(self, stream)
            }

            fn vouch(&self) -> Result<bool, perdura_base::Error> {
                perdura_recovery::Life::vouch(self)
            }

            fn checkpoint_begin(&self) -> Result<(), perdura_base::Error> {
                perdura_recovery::Life::checkpoint_begin(self)
            }

            fn checkpoint_step(
                &self,
            ) -> Result<perdura_recovery::CheckpointProgress, perdura_base::Error> {
                perdura_recovery::Life::checkpoint_step(self)
            }

            fn checkpoint_is_running(&self) -> bool {
                perdura_recovery::Life::checkpoint_stats(self).running
            }
        }
    };
}

pub(crate) use engine;

/// Makes the disks keep the locks of a process until the last write of this process has reached the disk. A database
/// keeps the locks of its directories in this way.
pub(crate) fn keep_locked(disks: &[Arc<SimDisk>]) {
    for disk in disks {
        disk.keep_locked(&vec![Box::new(())]);
    }
}

/// Returns copies of the disks in their present state.
pub(crate) fn copies_of(disks: &[Arc<SimDisk>]) -> Vec<Arc<SimDisk>> {
    let copy = |disk: &Arc<SimDisk>| {
        let copy = SimDisk::new(0);
        copy.restore(&disk.snapshot());
        debug_assert_eq!(copy.files(), disk.files(), "a copy has the files it is of");
        copy
    };
    disks.iter().map(copy).collect()
}

/// A machine and the machine's open engine.
pub struct Machine<E: Engine> {
    pub(crate) course: Course,
    pub(crate) rng: Rng,
    /// The disks, the data disk first.
    pub(crate) disks: Vec<Arc<SimDisk>>,
    pub(crate) clock: Arc<ManualClock>,
    /// The nodes that hold the newest part of the log. `None`: the run has no nodes.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) engine: Option<E>,
    pub(crate) promises: Vec<E::Promise>,
    /// The latest life with working clients.
    pub(crate) life: ClientsLife,
    /// The newest epoch acknowledged to a client, or seen by a client after a restart. Every epoch up to this epoch
    /// must survive.
    pub(crate) must_survive: u64,
    /// The newest epoch that a durable block or the anchor proves to be durable.
    pub(crate) evidence: u64,
    /// The number of checkpoints that were complete when a crash last interrupted a checkpoint. `None`: no crash has
    /// interrupted a checkpoint.
    pub(crate) interrupted: Option<u64>,
    /// True while a backup copies an image. A checkpoint that would overwrite this image must not
    /// begin.
    pub(crate) image_is_held: bool,
    /// True if the engine has failed or the power is gone: the life is over.
    pub(crate) stopped: bool,
    pub(crate) faults_before: u64,
    pub(crate) tally: Tally,
    pub(crate) trace: u64,
    pub(crate) seed: u64,
    /// The number of calls of [`next_seed`](Self::next_seed).
    openings: AtomicU64,
}

impl<E: Engine> Machine<E> {
    /// Returns a machine with `disks` empty disks.
    #[must_use]
    pub fn new(seed: u64, rng: Rng, course: Course, disks: u64) -> Machine<E> {
        assert_eq!(
            course.stream_speed.len(),
            usize::from(course.streams),
            "each stream has a speed"
        );
        Machine {
            rng,
            disks: (0..disks)
                .map(|i| SimDisk::new(scramble(seed ^ (i << 56))))
                .collect(),
            clock: Arc::new(ManualClock::at(1_700_000_000_000_000)),
            cluster: None,
            engine: None,
            promises: Vec::new(),
            life: ClientsLife::default(),
            must_survive: 0,
            evidence: 0,
            interrupted: None,
            image_is_held: false,
            stopped: false,
            faults_before: 0,
            tally: Tally::default(),
            trace: scramble(seed),
            seed,
            openings: AtomicU64::new(0),
            course,
        }
    }

    /// Returns the random number of the next process that opens the database.
    pub(crate) fn next_seed(&self) -> u64 {
        let nth = self.openings.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        let nth = crate::tests::mistakes::process(nth);
        self.seed ^ nth << 40
    }

    /// Chooses the kind of the next step at random. `odds` has the weight of each kind.
    pub(crate) fn draw_kind(&mut self, odds: &[u32]) -> usize {
        let mut at = self.rng.u32(0..odds.iter().sum());
        let mut kind = 0;
        while at >= odds[kind] {
            at -= odds[kind];
            kind += 1;
        }
        self.note(u64::try_from(kind).unwrap_or(0));
        kind
    }

    /// Folds an event into the trace.
    pub(crate) fn note(&mut self, what: u64) {
        self.trace = scramble(self.trace ^ what);
    }

    /// Records that a transaction has committed in `epoch`. Its client waits for the reply `promise`.
    pub(crate) fn promise(&mut self, epoch: u64, promise: E::Promise) {
        self.promises.push(promise);
        self.tally.transactions += 1;
        self.note(epoch);
    }

    /// Returns the random number generator and the engine.
    pub(crate) fn parts(&mut self) -> (&mut Rng, &E) {
        let engine = self.engine.as_ref();
        let engine = engine.expect("a step is taken only while the engine is open");
        (&mut self.rng, engine)
    }

    /// Returns the engine. Steps are taken only while it is open.
    pub(crate) fn engine(&self) -> &E {
        self.engine
            .as_ref()
            .expect("a step is taken only while the engine is open")
    }

    /// Returns how many faults of any kind have struck so far.
    pub(crate) fn faults_struck(&self) -> u64 {
        self.disks.iter().map(|disk| disk.faults_struck()).sum()
    }

    /// Returns copies of the disks in their present state.
    pub(crate) fn copy_disks(&self) -> Vec<Arc<SimDisk>> {
        copies_of(&self.disks)
    }

    /// Drops the engine and everything that it held in memory.
    pub(crate) fn forget(&mut self) {
        self.engine = None;
        self.cluster.iter().for_each(Cluster::leave);
        self.promises.clear();
        self.stopped = false;
    }

    /// Gives clients all replies with durable epochs.
    pub(crate) fn observe(&mut self) {
        let Some(engine) = &self.engine else { return };
        if self.promises.is_empty() || engine.has_failed() {
            return;
        }
        let (must_survive, tally) = (&mut self.must_survive, &mut self.tally);
        self.promises.retain(|promise| {
            let due = engine.due(promise);
            if let Some(epoch) = due {
                *must_survive = epoch.max(*must_survive);
                tally.acknowledged += 1;
            }
            due.is_none()
        });
    }

    /// Accepts an error if an injected fault explains it.
    ///
    /// # Errors
    /// A contradiction, if no fault explains the error.
    pub(crate) fn tolerate(&mut self, step: &str, error: &Error) -> Check {
        if error.family() == Family::Corruption {
            return Err(format!("{step}: {error}"));
        }
        match error {
            Error::LogFull(_) => return Ok(()),
            Error::OutOfMemory { .. } if self.course.memory_is_short => return Ok(()),
            Error::Cancelled(_) if self.image_is_held => return Ok(()),
            _ => {}
        }
        if self.faults_struck() == self.faults_before {
            return Err(format!("{step} failed without a fault: {error}"));
        }
        // The run takes the failed step again, unless the failure has stopped the log.
        let failed = |engine: &E| engine.has_failed();
        self.stopped |= self.engine.as_ref().is_some_and(failed);
        Ok(())
    }

    /// Moves the clock forward, or changes the wall time.
    pub(crate) fn move_clock(&mut self) {
        if self.rng.u8(0..4) > 0 {
            self.clock.advance_us(self.rng.u64(0..2_000_000));
        } else {
            let now = self.clock.wall_us();
            let (back, ahead) = (now - 60_000_000, now + 60_000_000);
            self.clock.set_wall_us(self.rng.u64(back..ahead));
        }
    }

    /// Draws one of the streams.
    pub(crate) fn draw_stream(&mut self) -> StreamId {
        StreamId(self.rng.u8(0..self.course.streams))
    }

    /// Chooses a stream at random, and takes a step of preparing its next segment.
    pub(crate) fn prepare_one(&mut self) -> Check {
        let stream = self.draw_stream();
        self.prepare(stream)
    }

    /// Takes a step of preparing the next segment of a stream.
    pub(crate) fn prepare(&mut self, stream: StreamId) -> Check {
        match self.engine().prepare_segment(stream) {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate("prepare_segment", &error),
        }
    }

    /// Records the durable epoch in the anchor.
    pub(crate) fn vouch(&mut self) -> Check {
        let durable = self.engine().durable();
        match self.engine().vouch() {
            Ok(_) => {
                self.evidence = self.evidence.max(durable);
                assert!(
                    self.evidence <= self.engine().durable(),
                    "the anchor vouches for an epoch that is not durable"
                );
                Ok(())
            }
            Err(error) => self.tolerate("vouch", &error),
        }
    }

    pub(crate) fn flush_one(&mut self) -> Check {
        let stream = self.rng.u8(0..self.course.streams);
        if self.rng.u8(0..100) >= self.course.stream_speed[usize::from(stream)] {
            return Ok(());
        }
        for _ in 0..self.rng.u8(1..=6) {
            if self.flush_step(stream)? != Some(FlushProgress::Wrote) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a step of a flusher. Returns `None` if the step failed and an injected fault explains the failure.
    fn flush_step(&mut self, stream: u8) -> Check<Option<FlushProgress>> {
        let durable = self.engine().durable();
        match self.engine().flush_step(StreamId(stream)) {
            Ok(progress) => {
                self.evidence = self.evidence.max(self.engine().evidence());
                let now = self.engine().durable();
                assert!(
                    durable <= now && self.evidence <= now,
                    "durable epochs go from {durable} to {now}, with evidence of {}",
                    self.evidence
                );
                Ok(Some(progress))
            }
            Err(error) => self.tolerate("flush_step", &error).map(|()| None),
        }
    }

    /// Closes the epoch and flushes until every stream is idle.
    pub(crate) fn flush_all(&mut self) -> Check {
        self.engine().close_epoch();
        for stream in 0..self.course.streams {
            while !self.stopped {
                match self.flush_step(stream)? {
                    None | Some(FlushProgress::Idle) => break,
                    Some(_) => {}
                }
            }
        }
        self.observe();
        Ok(())
    }

    /// Begins a checkpoint.
    pub(crate) fn checkpoint_begin(&mut self) -> Check {
        match self.engine().checkpoint_begin() {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate("checkpoint_begin", &error),
        }
    }

    pub(crate) fn checkpoint_steps(&mut self) -> Check {
        for _ in 0..self.rng.u8(1..=4) {
            match self.checkpoint_step()? {
                Some(CheckpointProgress::Working(_)) => {}
                Some(CheckpointProgress::Waiting) => {
                    if self.rng.u8(0..3) == 0 {
                        self.flush_all()?;
                    }
                    break;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Takes a step of the checkpoint. Returns `None` if the step failed and an injected fault explains the failure.
    pub(crate) fn checkpoint_step(&mut self) -> Check<Option<CheckpointProgress>> {
        match self.engine().checkpoint_step() {
            Ok(progress) => {
                assert!(
                    progress != CheckpointProgress::Done || !self.engine().checkpoint_is_running(),
                    "a checkpoint that is complete goes on"
                );
                if progress == CheckpointProgress::Done {
                    self.tally.checkpoints += 1;
                    self.note(77);
                }
                Ok(Some(progress))
            }
            Err(error) => self.tolerate("checkpoint_step", &error).map(|()| None),
        }
    }

    /// Takes a whole checkpoint, and flushes the log between its steps. A fault may stop the checkpoint early.
    pub(crate) fn checkpoint_now(&mut self) -> Check {
        self.checkpoint_begin()?;
        while !self.stopped {
            match self.checkpoint_step()? {
                Some(CheckpointProgress::Working(_)) => {}
                Some(CheckpointProgress::Waiting) => {
                    self.flush_all()?;
                    // The log's disk is full, so the flush cannot finish, and the checkpoint would wait for ever.
                    if !self.engine().is_idle() {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Takes a checkpoint if the life is `overdue` and the run has no checkpoint yet. Without a checkpoint the run
    /// does not count.
    pub(crate) fn checkpoint_if(&mut self, overdue: bool) -> Check {
        match overdue && !self.stopped && self.tally.checkpoints == 0 {
            true => self.checkpoint_now(),
            false => Ok(()),
        }
    }
}
