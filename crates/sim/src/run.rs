//! Runs: lives and crashes in a chain, until the run counts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::error::Family;
use perdura_base::{PartitionId, StreamId};
use perdura_device::{Clock, SimDisk, SystemClock};
use perdura_recovery::Level;

use crate::content::scramble;
use crate::faults;
use crate::ops::Op;
use crate::report::{CrashOptions, CrashReport, Mode, Tally, Violation};
use crate::swarm::{Swarm, draw_schedule, pick};
use crate::world::{Check, World};

/// A run counts with so many transactions.
pub(crate) const TRANSACTIONS_MIN: u64 = 20;
/// How deep crashes within restarts go.
pub(crate) const NESTED_MAX: u32 = 5;
/// Purge steps after which no orphan is left.
const PURGES_MAX: u32 = 100_000;
/// Runs between two reports of progress.
const PROGRESS_RUNS: u64 = 256;

/// Runs the simulator; `progress` sees the report as it grows.
pub fn run(options: &CrashOptions, mut progress: impl FnMut(&CrashReport)) -> CrashReport {
    let clock = SystemClock::new();
    let seconds = || std::time::Duration::from_nanos(clock.mono_ns()).as_secs_f64();
    let mut report = CrashReport::default();
    for i in 0..options.runs {
        let seed = options.seed.wrapping_add(i);
        let (tally, trace, result) = run_seed(seed, options);
        report.absorb(&tally);
        report.trace = scramble(report.trace ^ trace);
        match result {
            Ok(()) => {
                report.runs += 1;
                let mode = mode_of(seed, options).name();
                *report.runs_by_mode.entry(mode).or_default() += 1;
            }
            Err(what) => report.violations.push(Violation {
                seed,
                what,
                replay_command: replay_command(seed, options),
            }),
        }
        report.seconds = seconds();
        if (i + 1) % PROGRESS_RUNS == 0 {
            progress(&report);
        }
        if report.violations.len() >= options.violations_max {
            break;
        }
    }
    let runs = f64::from(u32::try_from(report.runs).unwrap_or(u32::MAX));
    report.runs_per_second = runs / report.seconds.max(1e-9);
    progress(&report);
    report
}

fn replay_command(seed: u64, options: &CrashOptions) -> String {
    let mode = mode_of(seed, options).name();
    let mut command = format!("perdura crash --mode {mode} --seed {seed} --runs 1");
    if let Some(streams) = options.streams {
        command += &format!(" --streams {streams}");
    }
    if let Some(profile) = options.profile {
        command += &format!(" --profile {}", format!("{profile:?}").to_lowercase());
    }
    command
}

/// One run, in the mode that was asked for or, if both were, that the seed's parity gives.
fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    match mode_of(seed, options) {
        Mode::Steal => crate::steal::run_seed(seed, options),
        _ => run_executor(seed, options),
    }
}

fn mode_of(seed: u64, options: &CrashOptions) -> Mode {
    match options.mode {
        Mode::Both if seed.is_multiple_of(2) => Mode::Steal,
        Mode::Both => Mode::Executor,
        mode => mode,
    }
}

/// A panic of the engine is a contradiction like any other.
pub(crate) fn guarded(run: impl FnOnce() -> Check) -> Check {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// What was struck and done on the disks belongs to the run's account.
pub(crate) fn account(tally: &mut Tally, trace: &mut u64, disks: &[Arc<SimDisk>]) {
    for disk in disks {
        for (kind, count) in disk.faults() {
            *tally.faults.entry(kind).or_default() += count;
        }
        *trace = scramble(*trace ^ disk.ops());
    }
}

fn run_executor(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    let mut rng = Rng::with_seed(scramble(seed));
    let swarm = Swarm::draw(&mut rng, options.streams, options.profile);
    let mut world = World::new(seed, rng, swarm);
    let result = guarded(|| world.run());
    account(&mut world.tally, &mut world.trace, &world.disks);
    (std::mem::take(&mut world.tally), world.trace, result)
}

impl World {
    fn counts(&self) -> bool {
        self.tally.transactions >= TRANSACTIONS_MIN && self.tally.checkpoints > 0
    }

    /// Lives and crashes until everything planned has happened and the run counts.
    fn run(&mut self) -> Check {
        self.restart()?;
        let mut lives = 0;
        loop {
            lives += 1;
            self.live(lives)?;
            let last = lives >= self.swarm.crashes && self.counts();
            self.crash();
            if last && self.swarm.rot {
                self.rot()?;
            }
            self.restart()?;
            if last {
                return self.clean_up();
            }
        }
    }

    /// A life of the machine, until it is time to crash.
    fn live(&mut self, number: u32) -> Check {
        self.faults_before = self.faults_struck();
        let overdue = number > self.swarm.crashes;
        if overdue {
            faults::clear(&self.disks);
        } else if self.rng.u8(0..100) < self.swarm.faults {
            faults::plan(&mut self.rng, &self.disks, 150);
        }
        if self.rng.u8(0..3) == 0 {
            self.checkpoint_begin()?;
        }
        let steps = self.rng.u32(self.swarm.steps / 2..=self.swarm.steps);
        let space_returns = self.rng.u32(0..=self.swarm.steps);
        let mut grace = self.rng.u8(0..4);
        for step in 0..steps {
            if self.stopped {
                let Some(left) = grace.checked_sub(1) else {
                    break;
                };
                grace = left;
            }
            if step == space_returns && self.swarm.faults > 0 && !self.stopped {
                faults::clear(&self.disks);
            }
            // A life that only makes the run count ends soon after it does.
            if overdue && self.counts() && self.rng.u8(0..8) == 0 {
                break;
            }
            self.step()?;
            self.observe();
        }
        if !self.stopped && self.rng.u8(0..6) == 0 {
            self.compare(self.core(), self.model.live())
                .map_err(|what| format!("before the crash: {what}"))?;
        }
        if overdue && !self.stopped && self.tally.checkpoints == 0 {
            self.checkpoint_now()?;
        }
        if !self.stopped && self.rng.u8(0..24) == 0 {
            self.close_cleanly()?;
        }
        Ok(())
    }

    /// In the end nothing of what was deleted is left, and when everything has been deleted, no
    /// page.
    fn clean_up(&mut self) -> Check {
        // A disk that a disturbed restart left full would keep the purge waiting for ever.
        faults::clear(&self.disks);
        self.drafts.clear();
        self.purge_all()?;
        self.compare(self.core(), self.model.live())
            .map_err(|what| format!("after the purge: {what}"))?;
        if self.stopped || self.rng.u8(0..3) > 0 {
            return Ok(());
        }
        let places = self.model.live().keys();
        let deletes: Vec<Op> = places.map(|place| Op::Delete(*place)).collect();
        if !deletes.is_empty() {
            self.flush_all()?;
            self.transact_ops(&deletes, false)?;
        }
        if self.stopped || !self.model.live().is_empty() {
            return Ok(());
        }
        self.purge_all()?;
        let core = self.core();
        for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
            let part = core.heap().lock(partition);
            for database in 0..self.swarm.databases {
                let pages = part.pages_held(core.database(database));
                if pages > 0 && !self.stopped {
                    return Err(format!("{pages} pages of database {database} hold nothing"));
                }
            }
        }
        Ok(())
    }

    /// Purges until no orphan is left, or the engine fails as it may.
    fn purge_all(&mut self) -> Check {
        for turn in 0..PURGES_MAX {
            if self.stopped || self.orphan_rows() == 0 {
                return Ok(());
            }
            self.purge()?;
            if turn % 64 == 63 {
                self.flush_all()?;
            }
            if self.core().wal().is_behind(0) {
                self.flush_all()?;
                for stream in (0..self.swarm.streams).map(StreamId) {
                    self.prepare(stream)?;
                }
            }
        }
        Err("the purge does not come to an end".to_owned())
    }

    fn orphan_rows(&self) -> u64 {
        let core = self.core();
        let ids = (0..core.heap().geometry().partitions).map(PartitionId);
        ids.map(|id| core.heap().lock(id).orphan_rows()).sum()
    }

    /// Counts the rare states that a restart has come from.
    fn mark_reached(&mut self) {
        let core = self.core();
        let (mut rows, mut abroad) = (0, 0);
        for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
            for database in 0..self.swarm.databases {
                let part = core.heap().lock(partition);
                part.for_each(core.database(database), |row| {
                    rows += u64::from(row.home().is_some());
                    abroad += u64::from(row.home().is_some_and(|at| at.partition != partition));
                });
            }
        }
        let scanning = u64::from(self.scan.is_some());
        let marks = [
            ("collection_of_rows", rows),
            ("home_abroad", abroad),
            ("orphan_row", self.orphan_rows()),
            ("scan_in_progress", scanning),
        ];
        for (mark, count) in marks.into_iter().filter(|(_, count)| *count > 0) {
            *self.tally.reached.entry(mark).or_default() += count;
        }
    }

    /// Restarts until the engine is up, through crashes within, and compares.
    fn restart(&mut self) -> Check {
        let depth = match self.rng.u8(0..100) < self.swarm.nested {
            true => self
                .rng
                .u32(1..=NESTED_MAX)
                .min(self.rng.u32(1..=NESTED_MAX)),
            false => 0,
        };
        // Copies are costly. They tell most while a slot holds a mixture, and once the interrupted
        // checkpoint has been taken again.
        let since = self.interrupted.map(|then| self.tally.checkpoints - then);
        let one_in = match since {
            Some(1 | 2) => 5,
            Some(_) => 20,
            None => 60,
        };
        let other_ways = self.rng.u8(0..one_in) == 0;
        for attempt in 0..=depth {
            // A restart that fails may or may not have taken the mark of a clean shutdown away.
            if attempt > 0 {
                self.closed_cleanly = None;
            }
            let before = self.faults_struck();
            if attempt < depth {
                faults::plan(&mut self.rng, &self.disks, 12);
            }
            let level = pick(&mut self.rng, &Level::ALL);
            self.swarm.options.schedule = draw_schedule(&mut self.rng, level);
            let copies = other_ways.then(|| self.copy_disks());
            match self.open_on(&self.disks) {
                // What a restart leaves for later may be all that met the power cut.
                Ok(_) if self.disks.iter().any(|disk| !disk.has_power()) => self.crash(),
                Ok(core) => {
                    self.core = Some(core);
                    self.faults_before = before;
                    self.check_restart()?;
                    self.mark_reached();
                    let choice = self.rng.u64(..);
                    return copies.map_or(Ok(()), |copies| self.check_other_ways(&copies, choice));
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

    /// Bit rot: one bit of one file, on a copy of the disks.
    fn rot(&mut self) -> Check {
        for _ in 0..2 {
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
            // Most of a file is zeros; where there is something, damage is more telling.
            if self.rng.u8(0..4) > 0 {
                at = (at..bytes.len()).find(|at| bytes[*at] != 0).unwrap_or(at);
            }
            let at = u64::try_from(at).unwrap_or(0);
            copies[disk].flip(path, at, self.rng.u8(0..8));
            let damage = format!("byte {at} of {path} flipped");
            let started = self.check_damaged(&copies, self.evidence, &damage)?;
            *self.tally.faults.entry("rot").or_default() += 1;
            self.note(started.unwrap_or(u64::MAX));
        }
        Ok(())
    }
}
