//! The loop of the simulator: a chain of lives and crashes. The loop ends after all planned crashes, but not before the
//! run has enough transactions and a checkpoint. A world provides the engine, the steps, and the expected state after a
//! restart.

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
/// The maximum number of successive crashes while a life restarts.
const NESTED_MAX: u32 = 5;

/// The rates of extra restarts from copies of the disks. The extra restarts follow a restart of the run, use other
/// methods, and must lead to the same state. At a rate of N, extra restarts follow one in N restarts of the run. Copies
/// are costly. Extra restarts find the most bugs while an image slot holds pages of two checkpoints. They also find
/// many bugs after an interrupted checkpoint has been repeated.
pub(crate) struct Rarity {
    pub mixed: u8,
    pub later: u8,
    pub never_interrupted: u8,
}

impl Rarity {
    /// The rates of worlds with cheap copies.
    pub const OFTEN: Rarity = Rarity {
        mixed: 2,
        later: 4,
        never_interrupted: 4,
    };
}

/// Chooses the character (the random settings) of a run with `draw`, makes the world with `make`, and runs the world.
/// Each world has a different `salt`, so one seed gives different characters in different worlds.
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

/// A world that the loop drives: an engine with steps and an oracle.
pub(crate) trait Lives: DerefMut<Target = Machine<Self::Engine>> {
    /// The engine.
    type Engine: Engine;
    /// The rates of extra restarts from copies of the disks.
    const OTHER_WAYS: Rarity;
    /// The number of copies of the disks that get bit rot at the last crash.
    const ROTS: u32;

    /// Opens the engine on these disks, and creates a database if the disks have none.
    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Self::Engine, Error>;
    /// Chooses, at random, options of the next restart, such as the restart method and the level of parallelism.
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
    /// Takes one step. Its kind is chosen at random, by the run's odds.
    fn step(&mut self) -> Check;
    /// Ends a life, before the crash. `overdue`: the planned crashes were too few for a run with enough transactions
    /// and a checkpoint, so this life was added.
    fn end_life(&mut self, overdue: bool) -> Check {
        self.checkpoint_if(overdue)
    }
    /// Drops the engine and all state that is only in memory.
    fn forget_all(&mut self);
    /// Prepares the next attempt after a restart has failed.
    fn try_again(&mut self) {}
    /// Compares the recovered state with the expected state.
    fn check_restart(&mut self) -> Check;
    /// Restarts from `copies` with other methods than the last restart used. The copies show the disks as they were
    /// before the last restart. Each result must equal the state after the last restart.
    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check;
    /// Restarts from damaged disks and checks that the result fits the evidence of durable epochs. Returns the epoch
    /// that the restart kept, or `None` if the restart was refused.
    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>>;
    /// Ends the run.
    fn clean_up(&mut self) -> Check {
        Ok(())
    }

    /// Runs the world to its end. Returns the run's counts, trace and result.
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

    /// Runs lives and crashes until all planned crashes have happened and `counts` returns true.
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

    /// Runs one life, up to its crash.
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
            // An overdue life exists only to make the run count. It ends soon after the run counts.
            if overdue && self.counts() && self.rng.u8(0..8) == 0 {
                break;
            }
            // A clone of the generator draws the lane, so that old seeds still lead to the same steps.
            perdura::set_lane(usize::from(self.rng.clone().u8(..)));
            self.step()?;
            self.observe();
        }
        self.end_life(overdue)
    }

    /// Cuts the power or kills the process. Drops the engine and everything that it held in memory.
    fn crash(&mut self) {
        self.power_cut();
    }

    /// Crashes the disks and drops the engine.
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

    /// Chooses, at random, the number of crashes within the next restart. Also chooses whether extra restarts from
    /// copies of the disks follow, with other methods.
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
                // The restart succeeded, although a disk has lost its power. Only the work that the restart deferred
                // needs this disk.
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

    /// Flips one bit of one file on a copy of the disks, as bit rot does, and checks a restart from the copy.
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
            // Most bytes of a file are zero. Damage to the other bytes finds more bugs.
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

/// Adds the disks' faults to the counts of a run, and mixes the disks' numbers of operations into its trace.
pub(crate) fn account(tally: &mut Tally, trace: &mut u64, disks: &[Arc<SimDisk>]) {
    for disk in disks {
        for (kind, count) in disk.faults() {
            *tally.faults.entry(kind).or_default() += count;
        }
        *trace = scramble(*trace ^ disk.ops());
    }
}
