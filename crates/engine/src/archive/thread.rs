//! The archiver's threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use perdura_archive::{ArchiverStep, Store};
use perdura_base::{Epoch, Error, Result};
use perdura_device::Clock;
use perdura_wal::Rung;

use crate::delays::Work;
use crate::pace::thread_cpu_ns;
use crate::shared::Shared;
use crate::yielding::{Side, Yielding, urgency_of_lag};

/// The archiver looks for durable epochs this often.
const TICK: Duration = Duration::from_millis(20);

impl Shared {
    /// A thread of the archiver.
    pub(crate) fn archiver(&self, side: Side) {
        side.begin();
        let mut yielding = Yielding::default();
        while !self.is_stopping() {
            let urgency = self.archive_urgency();
            let before_ns = thread_cpu_ns();
            let is_turn = yielding.is_turn(side, self.clock.mono_ns(), urgency);
            if !is_turn || self.archive_step() {
                std::thread::park_timeout(TICK);
                continue;
            }
            if side == Side::High {
                let used_ns = thread_cpu_ns().saturating_sub(before_ns);
                let pause_ns = yielding.pause_ns(self.clock.mono_ns(), used_ns, urgency);
                if pause_ns > 0 {
                    std::thread::sleep(Duration::from_nanos(pause_ns));
                }
            }
        }
    }

    /// Notes how far the archive is behind, and says how urgent that is, in thousandths.
    fn archive_urgency(&self) -> u64 {
        let wal = self.core.wal();
        let now_ns = self.clock.mono_ns();
        let archived = self.core.archived().map_or(Epoch(0), |end| end.epoch);
        let lag_ns = (self.lag.lock()).note(now_ns, wal.durable(Rung::Disk), archived);
        assert!(lag_ns <= now_ns, "what is missing was logged before");
        self.caught_up_ns.store(now_ns - lag_ns, Ordering::Relaxed);
        match wal.is_short() {
            true => 1000,
            false => urgency_of_lag(lag_ns),
        }
    }

    /// Asks for runs up to this epoch.
    pub fn archive_to(&self, epoch: Epoch) {
        self.archive_to.fetch_max(epoch.0, Ordering::SeqCst);
    }

    /// Takes a step. Whether nothing is to be done for a while.
    fn archive_step(&self) -> bool {
        let wal = self.core.wal();
        let now_ns = self.clock.mono_ns();
        let mut archiving = self.archiving.lock();
        let Some(archiving) = archiving.as_mut().filter(|_| wal.failure().is_none()) else {
            return true;
        };
        let is_due = self.delays.is_due(Work::Archive, now_ns);
        let is_stopping = self.is_stopping();
        if archiving.is_away() && is_due && !is_stopping {
            archiving.look_for_archive();
        }
        if is_stopping {
            archiving.end_draining();
        }
        let goes_on = is_due || archiving.is_away();
        if !goes_on || !self.delays.is_due(Work::Backlog, now_ns) {
            return true;
        }
        if wal.is_short() {
            // What the archive has, the next checkpoint cuts off.
            archiving.cut_at(wal.durable(Rung::Disk));
        }
        archiving.cut_at(Epoch(self.archive_to.load(Ordering::SeqCst)));
        let step = archiving.step(&self.core);
        {
            let mut stats = self.archived.lock();
            stats.proof = archiving.proof_stats();
            stats.backlog = archiving.backlog_stats(&self.core);
        }
        if let Some(error) = archiving.take_trouble() {
            self.delays.failed(Work::Archive, &error, now_ns);
        }
        if let Some(damaged) = archiving.take_damaged() {
            match &damaged[..] {
                [] => self.delays.done(Work::Backups),
                _ => {
                    let error = Error::Usage(damaged.join("; "));
                    self.delays.failed(Work::Backups, &error, now_ns);
                }
            }
        }
        let is_away = archiving.is_away();
        let all = archiving.has_all();
        match step {
            Ok(ArchiverStep::Working) => false,
            Ok(ArchiverStep::Run(run)) => {
                self.archived_well(is_away);
                self.archived.lock().add(&run);
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
                self.delays.failed(work, &error, now_ns);
                true
            }
        }
    }

    /// Notes that archiving goes well, in the archive or in its backlog.
    fn archived_well(&self, is_away: bool) {
        self.delays.done(Work::Backlog);
        if !is_away {
            self.delays.done(Work::Archive);
        }
    }

    /// The archive, once the archiver has opened it.
    pub fn open_archive(&self) -> Result<Arc<Store>> {
        loop {
            if !self.archives {
                return Err(Error::Usage(
                    "the database has no archive: open it with one".into(),
                ));
            }
            if let Some(store) = self.lent.get() {
                return Ok(store);
            }
            self.fail_if_delayed()?;
            std::thread::sleep(TICK);
        }
    }

    /// Waits until the archive holds the log up to an epoch.
    pub fn await_archived(&self, epoch: Epoch) -> Result<()> {
        while self.core.archived().is_none_or(|end| end.epoch < epoch) {
            self.fail_if_delayed()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn fail_if_delayed(&self) -> Result<()> {
        if self.is_stopping() {
            return Err(Error::Stopped("the database is being closed".into()));
        }
        match self.delays.why(Work::Archive) {
            Some(why) => Err(Error::Usage(format!(
                "the archive cannot be written: {why}"
            ))),
            None => Ok(()),
        }
    }

    /// When the threads have ended: archives everything that is durable, unless the archive fails. What it then lacks is kept
    /// in the log.
    pub fn archive_rest(&self) {
        assert!(self.is_stopping(), "nobody else archives");
        self.archive_to(self.core.wal().durable(Rung::Disk));
        while !self.archive_step() {}
    }
}
