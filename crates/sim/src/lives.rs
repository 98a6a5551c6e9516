//! The loop of the simulator: a chain of lives and crashes, until the run counts. A world provides the
//! engine, the steps, and the expected state after a restart.

use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::Error;
use perdura_base::error::Family;
use perdura_device::{CrashProfile, SimDisk};

use crate::content::scramble;
use crate::faults;
use crate::machine::{Engine, Machine};
use crate::report::{Check, CrashOptions, Tally};

#[cfg(test)]
mod tests;

/// A run counts only if it has at least this many transactions.
const TRANSACTIONS_MIN: u64 = 20;
/// The most crashes that strike one after another while a life restarts.
const NESTED_MAX: u32 = 5;

/// The rates at which copies of the disks are restarted in other ways, which must lead to the same state:
/// after one restart in the given number. Copies are costly. They find the most bugs while an image slot
/// holds pages of two checkpoints, and after the interrupted checkpoint has been repeated.
pub(crate) struct Rarity {
    pub mixed: u8,
    pub later: u8,
    pub never_interrupted: u8,
}

impl Rarity {
    /// The rates of worlds whose copies cost little.
    pub const OFTEN: Rarity = Rarity {
        mixed: 2,
        later: 4,
        never_interrupted: 4,
    };
}

/// Runs a seed in the world of the character that `draw` makes for it. `salt` makes the characters of the
/// worlds differ.
pub(crate) fn run_drawn<W: Lives, S>(
    seed: u64,
    salt: u64,
    options: &CrashOptions,
    draw: impl FnOnce(&mut Rng, Option<u8>, Option<CrashProfile>) -> S,
    make: impl FnOnce(u64, Rng, S) -> W,
) -> (Tally, u64, Check) {
    let mut rng = Rng::with_seed(scramble(seed ^ salt));
    let character = draw(&mut rng, options.streams, options.profile);
    make(seed, rng, character).run_to_end()
}

/// A world: an engine with its steps and its oracle, driven by the loop.
pub(crate) trait Lives: DerefMut<Target = Machine<Self::Engine>> {
    /// The engine.
    type Engine: Engine;
    /// The rates at which copies are restarted in other ways.
    const OTHER_WAYS: Rarity;
    /// The number of copies of the disks that bit rot damages at the last crash.
    const ROTS: u32;

    /// Opens the engine on these disks, and creates a database if they have no database.
    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Self::Engine, Error>;
    /// Draws the method and the level of the next restart.
    fn draw_way(&mut self);
    /// Prepares the database after the first restart.
    fn settle_in(&mut self) -> Check {
        Ok(())
    }
    /// Plans the faults of a life.
    fn plan_fault(&mut self) {
        let machine = &mut **self;
        faults::plan(&mut machine.rng, &machine.disks, faults::LIFE_OPS);
    }
    /// Takes one step, drawn by the run's odds.
    fn step(&mut self) -> Check;
    /// Ends a life, before the crash. `overdue`: all planned crashes have happened, and this life exists only
    /// to make the run count.
    fn end_life(&mut self, overdue: bool) -> Check {
        self.checkpoint_if(overdue)
    }
    /// Drops the engine and all volatile state with it.
    fn forget_all(&mut self);
    /// Prepares the next attempt after a restart has failed.
    fn try_again(&mut self) {}
    /// Compares the recovered state with the expected one.
    fn check_restart(&mut self) -> Check;
    /// Restarts `copies` in other ways, which must lead to the same state. The copies hold the
    /// disks as the last restart found them.
    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check;
    /// Compares a restart of damaged disks with the evidence. Returns the epoch that the restart kept,
    /// or `None` if it was refused.
    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>>;
    /// Ends the run.
    fn clean_up(&mut self) -> Check {
        Ok(())
    }

    /// Runs the world to its end. Returns its counts, its trace and its result.
    fn run_to_end(mut self) -> (Tally, u64, Check)
    where
        Self: Sized,
    {
        let result = guarded(|| self.chain());
        let machine = &mut *self;
        account(&mut machine.tally, &mut machine.trace, &machine.disks);
        (std::mem::take(&mut machine.tally), machine.trace, result)
    }

    /// Returns whether the run has done enough to count.
    fn counts(&self) -> bool {
        self.tally.transactions >= TRANSACTIONS_MIN && self.tally.checkpoints > 0
    }

    /// Runs lives and crashes until the planned crashes have happened and the run counts.
    fn chain(&mut self) -> Check {
        self.restart()?;
        self.settle_in()?;
        let mut lives = 0;
        loop {
            lives += 1;
            self.live(lives)?;
            let last = lives >= self.course.crashes && self.counts();
            self.crash();
            if last && self.course.rot {
                self.rot()?;
            }
            self.restart()?;
            assert!(
                self.tally.restarts <= self.tally.crashes + 1,
                "{} restarts follow {} crashes",
                self.tally.restarts,
                self.tally.crashes
            );
            if last {
                return self.clean_up();
            }
        }
    }

    /// Runs one life of the machine, up to the crash.
    fn live(&mut self, number: u32) -> Check {
        self.faults_before = self.faults_struck();
        let overdue = number > self.course.crashes;
        if overdue {
            faults::clear(&self.disks);
        } else if self.rng.u8(0..100) < self.course.faults {
            self.plan_fault();
        }
        if self.rng.u8(0..3) == 0 {
            self.checkpoint_begin()?;
        }
        let steps_max = self.course.steps;
        let steps = self.rng.u32(steps_max / 2..=steps_max);
        let space_returns = self.rng.u32(0..=steps_max);
        let mut grace = self.rng.u8(0..4);
        for step in 0..steps {
            if self.stopped {
                let Some(left) = grace.checked_sub(1) else {
                    break;
                };
                grace = left;
            }
            if step == space_returns && self.course.faults > 0 && !self.stopped {
                faults::clear(&self.disks);
            }
            // A life that exists only to make the run count ends soon after the run counts.
            if overdue && self.counts() && self.rng.u8(0..8) == 0 {
                break;
            }
            self.step()?;
            self.observe();
        }
        self.end_life(overdue)
    }

    /// Cuts the power or kills the process: nothing of the engine remains.
    fn crash(&mut self) {
        self.power_cut();
    }

    /// Crashes the disks of the machine and drops the engine.
    fn power_cut(&mut self) {
        let machine = &mut **self;
        let drawn = CrashProfile::ALL[machine.rng.usize(0..CrashProfile::ALL.len())];
        let profile = machine.course.profile.unwrap_or(drawn);
        for disk in &machine.disks {
            disk.crash(profile, machine.rng.u64(..));
            assert!(
                disk.has_power() && (disk.pending_ops() == 0 || profile == CrashProfile::Killed),
                "a crash under {profile:?} leaves operations pending, as only a kill does"
            );
        }
        faults::clear(&machine.disks);
        let running = |engine: &Self::Engine| engine.checkpoint_is_running();
        if machine.engine.as_ref().is_some_and(running) {
            machine.interrupted = Some(machine.tally.checkpoints);
        }
        self.forget_all();
        assert!(
            self.engine.is_none() && self.promises.is_empty(),
            "a client's answers wait for an engine that is gone"
        );
        self.tally.crashes += 1;
    }

    /// Draws how many crashes strike within the next restart, and whether copies are restarted in
    /// other ways.
    fn draw_restart(&mut self) -> (u32, bool) {
        let machine = &mut **self;
        let rng = &mut machine.rng;
        let depth = match rng.u8(0..100) < machine.course.nested {
            true => rng.u32(1..=NESTED_MAX).min(rng.u32(1..=NESTED_MAX)),
            false => 0,
        };
        let since = machine
            .interrupted
            .map(|then| machine.tally.checkpoints - then);
        let one_in = match since {
            Some(1 | 2) => Self::OTHER_WAYS.mixed,
            Some(_) => Self::OTHER_WAYS.later,
            None => Self::OTHER_WAYS.never_interrupted,
        };
        (depth, rng.u8(0..one_in) == 0)
    }

    /// Begins the next life.
    fn restart(&mut self) -> Check {
        self.come_back()
    }

    /// Restarts until the engine is open, with crashes in between, and compares the state with the
    /// model.
    fn come_back(&mut self) -> Check {
        let (depth, other_ways) = self.draw_restart();
        for attempt in 0..=depth {
            if attempt > 0 {
                self.try_again();
            }
            let before = self.faults_struck();
            if attempt < depth {
                let machine = &mut **self;
                faults::plan(&mut machine.rng, &machine.disks, 12);
            }
            self.draw_way();
            let copies = other_ways.then(|| self.copy_disks());
            match self.open_on(&self.disks) {
                // The restart succeeded, but the work that it defers may be the first to need the
                // failed disk.
                Ok(_) if self.disks.iter().any(|disk| !disk.has_power()) => self.crash(),
                Ok(engine) => {
                    self.engine = Some(engine);
                    self.faults_before = before;
                    let restarts = self.tally.restarts;
                    self.check_restart()?;
                    assert_eq!(
                        self.tally.restarts,
                        restarts + 1,
                        "a world counts the restarts that it compares"
                    );
                    let durable = self.engine().durable();
                    assert!(
                        self.evidence <= self.must_survive && self.must_survive <= durable,
                        "the world holds {} to survive, the engine {durable}",
                        self.must_survive
                    );
                    return self.check_copies(copies);
                }
                Err(error) if error.family() == Family::Corruption => {
                    return Err(format!("the restart refuses: {error}"));
                }
                Err(error) if self.faults_struck() == before => {
                    return Err(format!("the restart failed without a fault: {error}"));
                }
                Err(_) => self.crash(),
            }
        }
        Err("the restart failed without a fault".to_owned())
    }

    /// Flips one bit of one file, on a copy of the disks, as bit rot does.
    fn rot(&mut self) -> Check {
        for _ in 0..Self::ROTS {
            let copies = self.copy_disks();
            let disk = self.rng.usize(0..copies.len());
            let files = copies[disk].files();
            if files.is_empty() {
                continue;
            }
            let (path, len) = &files[self.rng.usize(0..files.len())];
            if *len == 0 {
                continue;
            }
            let bytes = copies[disk]
                .read_all(path)
                .map_err(|error| error.to_string())?;
            let mut at = self.rng.usize(0..bytes.len());
            // Most of a file is zeros. Damage to other bytes finds more.
            if self.rng.u8(0..4) > 0 {
                at = (at..bytes.len()).find(|at| bytes[*at] != 0).unwrap_or(at);
            }
            let at = u64::try_from(at).unwrap_or(0);
            assert!(
                copies[disk].flip(path, at, self.rng.u8(0..8)),
                "{path} has no byte {at}, although it was read from there"
            );
            debug_assert_eq!(
                self.disks[disk].read_all(path).ok().as_ref(),
                Some(&bytes),
                "what rots on a copy stays on the disk"
            );
            let damage = format!("byte {at} of {path} flipped");
            let started = self.check_rotten(&copies, &damage)?;
            *self.tally.faults.entry("rot").or_default() += 1;
            self.note(started.unwrap_or(u64::MAX));
        }
        Ok(())
    }
}

/// Runs `run` and turns a panic of the engine into a contradiction.
pub(crate) fn guarded(run: impl FnOnce() -> Check) -> Check {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Adds the faults and the operations of the disks to the counts and the trace of a run.
pub(crate) fn account(tally: &mut Tally, trace: &mut u64, disks: &[Arc<SimDisk>]) {
    for disk in disks {
        for (kind, count) in disk.faults() {
            *tally.faults.entry(kind).or_default() += count;
        }
        *trace = scramble(*trace ^ disk.ops());
    }
}
