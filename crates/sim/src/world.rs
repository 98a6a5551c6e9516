//! The machine of a run: its disks, its clock, the engine that is open on them, and the client
//! that remembers what it was promised.

use std::sync::Arc;

use fastrand::Rng;
use perdura::catalog::read_catalog;
use perdura::{Core, CoreOptions, Env, Error, MemoryAccount, Progress};
use perdura_base::error::Family;
use perdura_device::{Clock, CrashProfile, Disk, FaultPlan, ManualClock, SimDisk};
use perdura_recovery::{Method, RestartOptions, Schedule};
use perdura_wal::Rung;

use crate::content::scramble;
use crate::drafting::Drafting;
use crate::model::Model;
use crate::report::Tally;
use crate::scanning::Scanning;
use crate::swarm::Swarm;

/// What a step may end with: a contradiction, in words.
pub type Check<T = ()> = Result<T, String>;

/// An answer that waits for its epoch.
pub(crate) struct Promise {
    /// The ticket: from when on the client may be told.
    pub ticket: u64,
    /// The newest epoch that what it is told follows from.
    pub needs: u64,
}

/// Everything a run consists of.
pub struct World {
    pub(crate) swarm: Swarm,
    pub(crate) rng: Rng,
    /// The data disk first; then, if they are apart, one for each stream.
    pub(crate) disks: Vec<Arc<SimDisk>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) core: Option<Core>,
    pub(crate) model: Model,
    pub(crate) promises: Vec<Promise>,
    pub(crate) scan: Option<Scanning>,
    pub(crate) drafts: Vec<Drafting>,
    /// Every epoch up to here was acknowledged or seen after a restart: it must not be lost.
    pub(crate) must_survive: u64,
    /// Every epoch up to here has proof in a durable block or in the anchor.
    pub(crate) evidence: u64,
    /// What each stream's unsynced blocks would prove.
    pub(crate) named: Vec<u64>,
    /// How many checkpoints had been completed when a crash interrupted one last, if any did.
    pub(crate) interrupted: Option<u64>,
    /// Whether the last life ended with the anchor's mark of a clean shutdown, if that is known.
    pub(crate) closed_cleanly: Option<bool>,
    /// The engine has failed, or the power is gone: the life is over.
    pub(crate) stopped: bool,
    pub(crate) purge_turn: u64,
    pub(crate) faults_before: u64,
    pub(crate) tally: Tally,
    pub(crate) trace: u64,
    pub(crate) seed: u64,
    pub(crate) scratch: Vec<u8>,
}

/// A restart of these disks by `method` that changes nothing on them.
pub(crate) fn dry_run_options(
    env: &Env,
    method: &'static Method,
    schedule: Schedule,
) -> RestartOptions<'static> {
    RestartOptions {
        data: Arc::clone(&env.data),
        images: vec![Arc::clone(&env.data)],
        logs: env.logs.clone(),
        clock: Arc::clone(&env.clock),
        schedule,
        method,
        dry_run: true,
        memory: Arc::new(MemoryAccount::new(u64::MAX)),
        catalog: &read_catalog,
        progress: Arc::new(Progress::default()),
    }
}

impl World {
    /// A machine with empty disks.
    #[must_use]
    pub fn new(seed: u64, rng: Rng, swarm: Swarm) -> World {
        let count = if swarm.disks_apart {
            u64::from(swarm.streams) + 1
        } else {
            1
        };
        let disks = (0..count)
            .map(|i| SimDisk::new(scramble(seed ^ (i << 56))))
            .collect();
        let streams = usize::from(swarm.streams);
        World {
            swarm,
            rng,
            disks,
            clock: Arc::new(ManualClock::at(1_700_000_000_000_000)),
            core: None,
            model: Model::default(),
            promises: Vec::new(),
            scan: None,
            drafts: Vec::new(),
            must_survive: 0,
            evidence: 0,
            named: vec![0; streams],
            interrupted: None,
            closed_cleanly: Some(false),
            stopped: false,
            purge_turn: 0,
            faults_before: 0,
            tally: Tally::default(),
            trace: scramble(seed),
            seed,
            scratch: Vec::new(),
        }
    }

    /// Folds something that happened into the trace.
    pub(crate) fn note(&mut self, what: u64) {
        self.trace = scramble(self.trace ^ what);
    }

    /// What an engine on the given disks sees of the outside.
    pub(crate) fn env(&self, disks: &[Arc<SimDisk>]) -> Env {
        let logs = (0..self.swarm.streams)
            .map(|s| match self.swarm.disks_apart {
                true => disks[usize::from(s) + 1].life() as Arc<dyn Disk>,
                false => disks[0].life() as Arc<dyn Disk>,
            })
            .collect();
        Env {
            data: disks[0].life(),
            logs,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            seed: self.seed,
        }
    }

    pub(crate) fn options(&self) -> CoreOptions {
        self.swarm.options.clone()
    }

    pub(crate) fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        let core = Core::open(
            self.env(disks),
            self.options(),
            Arc::new(Progress::default()),
        )?;
        // In some runs segments are prepared by steps alone, and writers are refused until then.
        if self.swarm.odds.prepare > 1 {
            core.wal().prepare_by(|| ());
        }
        Ok(core)
    }

    /// The engine; steps are taken only while it is open.
    pub(crate) fn core(&self) -> &Core {
        self.core
            .as_ref()
            .expect("a step is taken only while the engine is open")
    }

    /// Faults that struck so far, whatever their kind.
    pub(crate) fn faults_struck(&self) -> u64 {
        self.disks
            .iter()
            .map(|disk| disk.faults().values().sum::<u64>())
            .sum()
    }

    /// Power fails, or the process dies: nothing of the engine remains.
    pub(crate) fn crash(&mut self) {
        let drawn = CrashProfile::ALL[self.rng.usize(0..CrashProfile::ALL.len())];
        let profile = self.swarm.profile.unwrap_or(drawn);
        for disk in &self.disks {
            disk.crash(profile, self.rng.u64(..));
            disk.set_plan(FaultPlan::default());
        }
        let running = |core: &Core| core.checkpoint_stats().running;
        if self.core.as_ref().is_some_and(running) {
            self.interrupted = Some(self.tally.checkpoints);
        }
        let building = self.drafts.iter().map(Drafting::rows).sum::<u64>();
        if building > 0 {
            *self.tally.reached.entry("draft_in_progress").or_default() += building;
        }
        self.forget_engine();
        self.tally.crashes += 1;
    }

    /// The engine and everything that only it knew are gone.
    pub(crate) fn forget_engine(&mut self) {
        self.core = None;
        self.drafts.clear();
        self.promises.clear();
        self.named.fill(0);
        self.stopped = false;
        self.purge_turn = 0;
    }

    /// The client looks which of its answers may be given now.
    pub(crate) fn observe(&mut self) {
        let Some(core) = &self.core else { return };
        if self.promises.is_empty() || core.wal().failure().is_some() {
            return;
        }
        let durable = core.wal().durable(Rung::Disk).0;
        let (must_survive, tally) = (&mut self.must_survive, &mut self.tally);
        self.promises.retain(|promise| {
            let due = promise.ticket <= durable;
            if due {
                *must_survive = promise.needs.max(*must_survive);
                tally.acknowledged += 1;
            }
            !due
        });
    }

    /// Whether an error is one that the faults injected so far explain.
    ///
    /// # Errors
    /// A contradiction: nothing explains it.
    pub(crate) fn tolerate(&mut self, step: &str, error: &Error) -> Check {
        if error.family() == Family::Corruption {
            return Err(format!("{step}: {error}"));
        }
        let memory_is_short = self.swarm.options.memory_limit < u64::MAX;
        match error {
            Error::LogFull(_) => return Ok(()),
            Error::OutOfMemory { .. } if memory_is_short => return Ok(()),
            _ => {}
        }
        if self.faults_struck() == self.faults_before {
            return Err(format!("{step} failed without a fault: {error}"));
        }
        // Whatever has not stopped the log is tried again.
        let failed = |core: &Core| core.wal().failure().is_some();
        self.stopped |= self.core.as_ref().is_some_and(failed);
        Ok(())
    }
}
