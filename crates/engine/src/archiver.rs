//! The archiver's threads, and the state that they share with other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perdura_archive::{ArchiverStep, Store};
use perdura_base::{Epoch, Error, Result};
use perdura_wal::Rung;

use crate::archive::Archiving;
use crate::delays::Work;
use crate::ground::Ground;
use crate::lent::Lent;
use crate::pace::thread_cpu_ns;
use crate::stats::ArchiveStats;
use crate::yielding::{Lag, Side, Yielding, urgency_of_lag};

/// The archiver looks for durable epochs this often.
const TICK: Duration = Duration::from_millis(20);

/// The state of an open database's archive, which the database's threads share.
pub(crate) struct AtArchive {
    /// The database.
    pub ground: Arc<Ground>,
    /// True if an archive is configured.
    pub archives: bool,
    /// The steps of archiving, if an archive is configured. A thread holds this lock while it takes a step, also during
    /// the step's I/O.
    archiving: Mutex<Option<Archiving>>,
    /// The archive while it is open.
    pub lent: Lent,
    /// The highest epoch passed to [`ask_to`](Self::ask_to): runs up to this epoch are wanted.
    to: AtomicU64,
    /// The figures of the archive since the database was opened.
    pub stats: Mutex<ArchiveStats>,
    /// The archive's lag.
    lag: Mutex<Lag>,
    /// The last time when the archive held all durable epochs.
    pub caught_up_ns: AtomicU64,
}

impl AtArchive {
    /// Returns the shared state. `archiving` is `None` if no archive is configured.
    pub fn new(ground: &Arc<Ground>, archiving: Option<Archiving>) -> AtArchive {
        AtArchive {
            ground: Arc::clone(ground),
            archives: archiving.is_some(),
            lent: archiving.as_ref().map(Archiving::lent).unwrap_or_default(),
            archiving: Mutex::new(archiving),
            to: AtomicU64::new(0),
            stats: Mutex::default(),
            lag: Mutex::default(),
            caught_up_ns: AtomicU64::new(ground.opened_ns),
        }
    }

    /// Runs one of the archiver's two threads; `side` says which.
    pub fn archiver(&self, side: Side) {
        side.begin();
        let mut yielding = Yielding::default();
        while !self.ground.is_stopping() {
            let urgency = self.archive_urgency();
            let before_ns = thread_cpu_ns();
            let is_turn = yielding.is_turn(side, self.ground.now_ns(), urgency);
            if !is_turn || self.archive_step() {
                std::thread::park_timeout(TICK);
                continue;
            }
            if side == Side::High {
                let used_ns = thread_cpu_ns().saturating_sub(before_ns);
                let pause_ns = yielding.pause_ns(self.ground.now_ns(), used_ns, urgency);
                if pause_ns > 0 {
                    std::thread::sleep(Duration::from_nanos(pause_ns));
                }
            }
        }
    }

    /// Records the archive's lag. Returns the urgency of archiving, in thousandths.
    fn archive_urgency(&self) -> u64 {
        let wal = self.ground.core.wal();
        let now_ns = self.ground.now_ns();
        let archived = self
            .ground
            .core
            .archived()
            .map_or(Epoch(0), |end| end.epoch);
        let lag_ns = (self.lag.lock()).note(now_ns, wal.durable(Rung::Disk), archived);
        assert!(lag_ns <= now_ns, "what is missing was logged before");
        self.caught_up_ns.store(now_ns - lag_ns, Ordering::Relaxed);
        match wal.is_short() {
            true => 1000,
            false => urgency_of_lag(lag_ns),
        }
    }

    /// Asks for runs up to this epoch.
    pub fn ask_to(&self, epoch: Epoch) {
        self.to.fetch_max(epoch.0, Ordering::SeqCst);
    }

    /// Takes a step of the archiver. Returns true if the archiver has no work for a while.
    fn archive_step(&self) -> bool {
        let wal = self.ground.core.wal();
        let now_ns = self.ground.now_ns();
        let mut archiving = self.archiving.lock();
        let Some(archiving) = archiving.as_mut().filter(|_| wal.failure().is_none()) else {
            return true;
        };
        let is_due = self.ground.delays.is_due(Work::Archive, now_ns);
        let is_stopping = self.ground.is_stopping();
        if archiving.is_away() && is_due && !is_stopping {
            archiving.look_for_archive();
        }
        if is_stopping {
            archiving.end_draining();
        }
        let goes_on = is_due || archiving.is_away();
        if !goes_on || !self.ground.delays.is_due(Work::Backlog, now_ns) {
            return true;
        }
        if wal.is_short() {
            // The log is short of room, and a checkpoint cuts only the part of the log that the archive has. So request
            // runs up to the durable end.
            archiving.cut_at(wal.durable(Rung::Disk));
        }
        archiving.cut_at(Epoch(self.to.load(Ordering::SeqCst)));
        let step = archiving.step(&self.ground.core);
        {
            let mut stats = self.stats.lock();
            stats.proof = archiving.proof_stats();
            stats.backlog = archiving.backlog_stats(&self.ground.core);
        }
        if let Some(error) = archiving.take_trouble() {
            self.ground.delays.failed(Work::Archive, &error, now_ns);
        }
        if let Some(damaged) = archiving.take_damaged() {
            match &damaged[..] {
                [] => self.ground.delays.done(Work::Objects),
                _ => {
                    let error = Error::Usage(damaged.join("; "));
                    self.ground.delays.failed(Work::Objects, &error, now_ns);
                }
            }
        }
        let is_away = archiving.is_away();
        let all = archiving.has_all();
        match step {
            Ok(ArchiverStep::Working) => false,
            Ok(ArchiverStep::Run(run)) => {
                self.archived_well(is_away);
                self.stats.lock().add(&run);
                false
            }
            Ok(ArchiverStep::Idle) => {
                if all {
                    self.archived_well(is_away);
                }
                true
            }
            Err(error) => {
                let work = match is_away {
                    true => Work::Backlog,
                    false => Work::Archive,
                };
                self.ground.delays.failed(work, &error, now_ns);
                true
            }
        }
    }

    /// Records that a step of archiving has succeeded. If `is_away`, the step wrote to the backlog instead of the
    /// archive.
    fn archived_well(&self, is_away: bool) {
        self.ground.delays.done(Work::Backlog);
        if !is_away {
            self.ground.delays.done(Work::Archive);
        }
    }

    /// Waits until the archiver has opened the archive, and returns the archive.
    pub fn open(&self) -> Result<Arc<Store>> {
        loop {
            if !self.archives {
                return Err(Error::Usage(
                    "the database has no archive. Open it with one".into(),
                ));
            }
            if let Some(store) = self.lent.get() {
                let own = self.ground.core.anchor().get().uuid;
                assert_eq!(*store.uuid(), own, "the archive is this database's");
                return Ok(store);
            }
            self.fail_if_delayed()?;
            std::thread::sleep(TICK);
        }
    }

    /// Waits until the archive itself holds the log up to an epoch. Runs that wait in a backlog do not count.
    pub fn await_archived(&self, store: &Store, epoch: Epoch) -> Result<()> {
        while store.refresh()?.held().0 < epoch {
            self.fail_if_delayed()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn fail_if_delayed(&self) -> Result<()> {
        if self.ground.is_stopping() {
            return Err(Error::Stopped("the database is being closed".into()));
        }
        match self.ground.delays.why(Work::Archive) {
            Some(why) => Err(Error::Usage(format!(
                "the archive cannot be written: {why}"
            ))),
            None => Ok(()),
        }
    }

    /// Archives all durable epochs after the threads have ended. If the archive fails, the unarchived epochs stay in
    /// the log.
    pub fn archive_rest(&self) {
        assert!(self.ground.is_stopping(), "nobody else archives");
        self.ask_to(self.ground.core.wal().durable(Rung::Disk));
        while !self.archive_step() {}
    }
}
