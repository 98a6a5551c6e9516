//! Exhaustive tests of small histories. A history is repeated with a crash at each of its I/Os. Each crash is repeated
//! with every possible subset of the operations that were not yet durable. In other passes the n-th I/O fails, for
//! n = 1, 2, … until a pass has no n-th I/O.
//!
//! Random histories find unexpected errors. Exhaustive histories find errors that need one exact moment.
//!
//! # Source
//! SQLite's *out-of-memory* and *I/O error* tests also repeat a test with the n-th operation failing.

use std::sync::Arc;

use fastrand::Rng;
use perdura::CoreOptions;
use perdura_base::StreamId;
use perdura_base::num::to_u64;
use perdura_device::{CrashProfile, FaultPlan, SimDisk, SimSnapshot, SyncFailure};
use perdura_wal::FlushProgress;
use perdura_wal::anchor::AnchorFile;

use crate::content::Content;
use crate::course::Course;
use crate::ops::Op;
use crate::over_core::OverCore;
use crate::report::Check;
use crate::swarm::Swarm;
use crate::world::World;

/// A step of a small history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letter {
    /// A transaction that writes this key and becomes durable.
    Write(u8),
    /// A checkpoint.
    Checkpoint,
    /// `kill -9` of the process, and a restart. The machine keeps running.
    Restart,
}

/// The counts and the violations of an exhaustive test.
#[derive(Debug, Clone, Default)]
pub struct Tried {
    /// The number of histories.
    pub histories: u64,
    /// The number of runs. Each run has one crash or one failure.
    pub cases: u64,
    /// The number of restarts compared with the model.
    pub restarts: u64,
    /// The violations that were found.
    pub violations: Vec<String>,
}

/// The event that follows a restart.
#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    /// The power fails at once. Everything that clients could read after the restart must be durable.
    PowerCut,
    /// A checkpoint, and then a power cut.
    Checkpoint,
}

impl Then {
    /// Returns the event that follows the restart after a crash. After a kill, it is a power cut, because this event
    /// finds the most errors. After other crashes, it is a checkpoint if `now` is true, else nothing. Checkpoints are
    /// costly, so `now` is rarely true.
    fn after(profile: CrashProfile, now: bool) -> Then {
        match () {
            () if profile == CrashProfile::Killed => Then::PowerCut,
            () if now => Then::Checkpoint,
            () => Then::Nothing,
        }
    }
}

/// The maximum number of pending operations for a crash that tries every subset of them. With more pending operations,
/// every crash profile is tried instead.
const SUBSETS_MAX: usize = 8;

fn small(streams: u8) -> World {
    let mut rng = Rng::with_seed(1);
    let options = CoreOptions {
        partitions: 2,
        chunk_pages: 2,
        segment_bytes: 65536,
        block_bytes_max: 8192,
        ..CoreOptions::default()
    };
    let swarm = Swarm {
        course: Course::calm(streams, None),
        disks_apart: false,
        options,
        keys: 2,
        databases: 1,
        ..Swarm::draw(&mut rng, Some(streams), None)
    };
    World::new(1, rng, swarm)
}

impl World {
    /// Plays a history until an injected failure or the history's end.
    fn play(&mut self, history: &[Letter]) -> Check {
        self.faults_before = 0;
        if !self.reopen()? {
            return Ok(());
        }
        for (at, letter) in history.iter().enumerate() {
            match letter {
                Letter::Write(key) => {
                    let seed = to_u64(at);
                    self.write((0, *key), Content { seed, len: 40 })?;
                    self.flush_all()?;
                }
                Letter::Checkpoint => self.checkpoint_now()?,
                Letter::Restart => {
                    self.disks[0].crash(CrashProfile::Killed, 0);
                    self.forget_engine();
                    if !self.reopen()? {
                        return Ok(());
                    }
                }
            }
            if self.stopped {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Opens the engine and compares its rows with the model. Returns `false` if an injected failure prevents the
    /// open.
    fn reopen(&mut self) -> Check<bool> {
        match self.open_core(&self.disks) {
            Ok(core) => {
                self.engine = Some(core);
                self.check_state()?;
                Ok(true)
            }
            Err(error) => {
                self.tolerate("restart", &error)?;
                self.stopped = true;
                Ok(false)
            }
        }
    }

    fn write(&mut self, place: (u8, u8), content: Content) -> Check {
        self.transact_ops(&[Op::Put(place, content, None)], false)
    }

    /// Restarts from disks that have just crashed, and checks the recovered state. The state must also survive the
    /// event `then` and a second restart.
    fn recover(&self, then: Then) -> Check {
        let open = || {
            self.open_core(&self.disks)
                .map_err(|error| format!("the restart: {error}"))
        };
        let core = open()?;
        self.verify(&core)?;
        let durable = core.report().durable_epoch;
        match then {
            Then::Nothing => return Ok(()),
            Then::PowerCut => {}
            Then::Checkpoint => core
                .checkpoint_now()
                .map_err(|error| format!("the next checkpoint: {error}"))?,
        }
        self.disks[0].crash(CrashProfile::Nothing, 0);
        drop(core);
        self.compare(&open()?, &self.model.state_at(durable))
            .map_err(|what| format!("after {then:?}: {what}"))
    }
}

/// Returns all histories of up to `letters` letters. Each letter is a write of one of two keys, or a checkpoint. A
/// history has at most three transactions.
#[must_use]
pub fn histories(letters: usize) -> Vec<Vec<Letter>> {
    let alphabet = [Letter::Write(0), Letter::Write(1), Letter::Checkpoint];
    let mut all: Vec<Vec<Letter>> = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..letters {
        let to = all.len();
        for at in from..to {
            for letter in alphabet {
                let mut longer = all[at].clone();
                longer.push(letter);
                if longer
                    .iter()
                    .filter(|letter| **letter != Letter::Checkpoint)
                    .count()
                    <= 3
                {
                    all.push(longer);
                }
            }
        }
        from = to;
    }
    all
}

/// Plays each history once for each of its mutating I/Os, and cuts the power at this I/O. Then restarts with every
/// subset of the operations that were not yet durable. If there are too many of these operations, restarts with those
/// that each crash profile keeps.
#[must_use]
pub fn crash_at_every_io(histories: &[Vec<Letter>], streams: u8) -> Tried {
    let mut tried = Tried::default();
    for history in histories {
        tried.histories += 1;
        for cut in 1.. {
            let mut world = small(streams);
            let cut_after_ops = Some(cut);
            world.disks[0].set_plan(FaultPlan {
                cut_after_ops,
                ..FaultPlan::default()
            });
            if let Err(what) = world.play(history) {
                tried
                    .violations
                    .push(format!("{history:?}, power cut at I/O {cut}: {what}"));
                break;
            }
            tried.cases += 1;
            let cut_struck = world.faults_struck() > 0;
            if let Err(what) = all_outcomes(&mut world, cut, &mut tried) {
                tried
                    .violations
                    .push(format!("{history:?}, power cut at I/O {cut}, {what}"));
                break;
            }
            if !cut_struck {
                break;
            }
        }
    }
    tried
}

fn all_outcomes(world: &mut World, cut: u64, tried: &mut Tried) -> Check {
    let disk = std::sync::Arc::clone(&world.disks[0]);
    let snapshot = disk.snapshot();
    let pending = disk.pending_ops();
    world.forget_engine();
    if pending <= SUBSETS_MAX {
        for keep in 0..1u64 << pending {
            disk.restore(&snapshot);
            assert_eq!(
                disk.pending_ops(),
                pending,
                "each case begins with the same operations pending"
            );
            disk.crash_keeping(keep);
            world
                .recover(Then::after(
                    CrashProfile::Everything,
                    keep == cut % (1 << pending),
                ))
                .map_err(|what| format!("keeping {keep:#b} of {pending} pending: {what}"))?;
            tried.restarts += 1;
        }
    }
    for (seed, profile) in (0..8).zip(CrashProfile::ALL.into_iter().cycle()) {
        // All subsets of whole operations were tried above. Torn operations were not.
        let whole = !matches!(profile, CrashProfile::Worst | CrashProfile::Killed);
        if pending <= SUBSETS_MAX && whole {
            continue;
        }
        disk.restore(&snapshot);
        disk.crash(profile, seed);
        world
            .recover(Then::after(profile, seed == 1))
            .map_err(|what| format!("{profile:?} {seed}: {what}"))?;
        tried.restarts += 1;
    }
    Ok(())
}

/// Plays each history and kills the process. Then repeats the restart once for each of its mutating I/Os, and cuts the
/// power at this I/O. The last repetition cuts the power after the restart. After each power cut, restarts again from
/// the operations that each crash profile keeps. If `failed` is set, a sync fails between the history and the kill.
#[must_use]
pub fn cut_after_kill(
    histories: &[Vec<Letter>],
    failed: Option<SyncFailure>,
    streams: u8,
) -> Tried {
    let mut tried = Tried::default();
    for history in histories {
        tried.histories += 1;
        if let Err(what) = cut_one_after_kill(history, failed, streams, &mut tried) {
            tried.violations.push(format!("{history:?}: {what}"));
        }
    }
    tried
}

fn cut_one_after_kill(
    history: &[Letter],
    failed: Option<SyncFailure>,
    streams: u8,
    tried: &mut Tried,
) -> Check {
    let text = |error: perdura::Error| error.to_string();
    let mut world = small(streams);
    world.play(history)?;
    // After this flush the segment exists, and the log that the restart itself wrote is durable.
    world.flush_all()?;
    let disk = Arc::clone(&world.disks[0]);
    // The process writes one more transaction but never syncs it.
    disk.set_plan(FaultPlan {
        fail_sync_at: failed.map(|failure| (1, failure)),
        ..FaultPlan::default()
    });
    world.write((0, 1), Content { seed: 99, len: 40 })?;
    world.core().close_epoch();
    for stream in (0..streams).map(StreamId) {
        // The first step writes. The second step syncs, and is taken only if the sync has to fail.
        let wrote = world.core().flush_step(stream).map_err(text)?;
        if wrote == FlushProgress::Wrote && failed.is_some() {
            if world.core().flush_step(stream).is_ok() {
                return Err("a failed sync was believed".to_owned());
            }
            break;
        }
    }
    disk.crash(CrashProfile::Killed, 0);
    world.forget_engine();
    let killed = disk.snapshot();
    for cut in 1.. {
        disk.restore(&killed);
        disk.set_plan(FaultPlan {
            cut_after_ops: Some(cut),
            ..FaultPlan::default()
        });
        let opened = world.open_core(&world.disks);
        let shown = opened.as_ref().ok().map(|core| core.report().durable_epoch);
        let struck = opened.is_err();
        drop(opened);
        let interrupted = disk.snapshot();
        for (seed, profile) in (0..10).zip(CrashProfile::ALL.into_iter().cycle()) {
            tried.cases += 1;
            disk.restore(&interrupted);
            disk.crash(profile, seed);
            let place = || format!("power cut at I/O {cut} of the restart, {profile:?} {seed}");
            world
                .recover(Then::after(profile, seed == 0))
                .map_err(|what| format!("{}: {what}", place()))?;
            tried.restarts += 1;
            disk.restore(&interrupted);
            disk.crash(profile, seed);
            let again = world.open_core(&world.disks).map_err(text)?;
            if shown.is_some_and(|shown| again.report().durable_epoch < shown) {
                return Err(format!("{}: what a restart showed is gone", place()));
            }
        }
        if !struck {
            return Ok(());
        }
    }
    Ok(())
}

/// A kind of failure: a name, and the plan that makes the n-th operation fail.
type Failure = (&'static str, fn(u64) -> FaultPlan);

const FAILURES: [Failure; 7] = [
    ("power cut", |n| FaultPlan {
        cut_after_ops: Some(n),
        ..FaultPlan::default()
    }),
    ("write EIO", |n| FaultPlan {
        fail_write_at: Some(n),
        ..FaultPlan::default()
    }),
    ("read EIO", |n| FaultPlan {
        fail_read_at: Some(n),
        ..FaultPlan::default()
    }),
    ("failed sync, new bytes kept", |n| FaultPlan {
        fail_sync_at: Some((n, SyncFailure::KeepsNew)),
        ..FaultPlan::default()
    }),
    ("failed sync, reverted", |n| FaultPlan {
        fail_sync_at: Some((n, SyncFailure::Reverts)),
        ..FaultPlan::default()
    }),
    ("disk full once", |n| FaultPlan {
        enospc_at: Some((n, 1)),
        ..FaultPlan::default()
    }),
    ("disk full for long", |n| FaultPlan {
        enospc_at: Some((n, 1000)),
        ..FaultPlan::default()
    }),
];

/// Plays `before` without a failure, and then `history` with its n-th operation failing. Repeats this for n = 1, 2, …
/// until a pass has no failure. After each pass, crashes with every crash profile in turn, and restarts.
#[must_use]
pub fn nth_failure(before: &[Letter], history: &[Letter], streams: u8) -> Tried {
    let mut tried = Tried {
        histories: 1,
        ..Tried::default()
    };
    for (kind, plan) in FAILURES {
        for nth in 1.. {
            tried.cases += 1;
            match fail_nth(before, history, streams, &plan(nth), &mut tried) {
                Ok(true) => {}
                Ok(false) => break,
                Err(what) => {
                    tried.violations.push(format!("{kind} at {nth}: {what}"));
                    break;
                }
            }
        }
    }
    tried
}

fn fail_nth(
    before: &[Letter],
    history: &[Letter],
    streams: u8,
    plan: &FaultPlan,
    tried: &mut Tried,
) -> Check<bool> {
    let mut world = small(streams);
    if !before.is_empty() {
        world.play(before)?;
        world.disks[0].crash(CrashProfile::Everything, 0);
        world.forget_engine();
    }
    let disk = std::sync::Arc::clone(&world.disks[0]);
    disk.set_plan(plan.clone());
    world.play(history)?;
    let struck = world.faults_struck() > 0;
    let snapshot = disk.snapshot();
    world.forget_engine();
    for (seed, profile) in (0..).zip(CrashProfile::ALL) {
        disk.restore(&snapshot);
        disk.crash(profile, seed);
        world
            .recover(Then::after(profile, seed == 0))
            .map_err(|what| format!("{profile:?}: {what}"))?;
        tried.restarts += 1;
    }
    Ok(struck)
}

/// Returns a history that makes the anchor longer than a sector.
fn long_anchor() -> Vec<Letter> {
    let life = [Letter::Write(0), Letter::Restart];
    life.into_iter().cycle().take(12).collect()
}

/// Restarts with an anchor longer than a sector, and crashes at each of the first 20 I/Os. Many of these crashes tear
/// a write.
#[must_use]
pub fn torn_anchor(seeds: u64) -> Tried {
    let mut tried = Tried {
        histories: 1,
        ..Tried::default()
    };
    // The restart makes the log durable first. Then it writes both copies of the anchor.
    for cut in 1..=20 {
        let mut world = small(4);
        if let Err(what) = world.play(&long_anchor()) {
            tried.violations.push(what);
            break;
        }
        let disk = Arc::clone(&world.disks[0]);
        disk.crash(CrashProfile::Everything, 0);
        world.forget_engine();
        let snapshot = world.cut_restart(&disk, cut);
        for seed in 0..seeds {
            disk.restore(&snapshot);
            disk.crash(CrashProfile::Worst, seed);
            let what = format!("power cut at I/O {cut}, torn by {seed}");
            if !world.tear(&mut tried, &what) {
                break;
            }
        }
    }
    tried
}

/// Crashes within an update of a long anchor, and again within the next update. The second update finds one copy
/// torn. It must write this torn copy first, not the intact one.
#[must_use]
pub fn torn_twice(seeds: u64) -> Tried {
    let mut tried = Tried {
        histories: 1,
        ..Tried::default()
    };
    for (first, second) in (1..=4).flat_map(|first| (1..=4).map(move |second| (first, second))) {
        for seed in 0..seeds {
            tried.cases += 1;
            match tear_twice([first, second], seed) {
                Ok(()) => tried.restarts += 1,
                Err(what) => tried.violations.push(format!(
                    "power cut at I/O {first}, then {second}, torn by {seed}: {what}"
                )),
            }
        }
    }
    tried
}

fn tear_twice(cuts: [u64; 2], seed: u64) -> Check {
    let text = |error: perdura::Error| error.to_string();
    let disk = SimDisk::new(seed);
    let mut world = small(4);
    world.disks = vec![Arc::clone(&disk)];
    world.play(&long_anchor())?;
    world.forget_engine();
    for (turn, cut) in (1..).zip(cuts) {
        disk.crash(CrashProfile::Worst, seed ^ (turn << 32));
        let opened = AnchorFile::open(disk.life().as_ref()).map_err(text)?;
        let (file, mut record, _) = opened.ok_or("there is no anchor")?;
        // These lines change the beginning and the end of the record, which are in two sectors.
        record.history.seq += 1;
        let last = record.history.chain.last_mut().ok_or("a short anchor")?;
        let end = last.cut.last_mut().ok_or("a link without a stream")?;
        end.0 ^= seed ^ turn;
        disk.set_plan(FaultPlan {
            cut_after_ops: Some(cut),
            ..FaultPlan::default()
        });
        drop(file.write(&record));
    }
    disk.crash(CrashProfile::Worst, seed);
    let opened = AnchorFile::open(disk.life().as_ref()).map_err(text)?;
    opened.map(drop).ok_or("there is no anchor".to_owned())
}

impl World {
    /// Restarts, cuts the power at the mutating I/O number `cut`, and returns the disk at that moment.
    fn cut_restart(&self, disk: &SimDisk, cut: u64) -> SimSnapshot {
        disk.set_plan(FaultPlan {
            cut_after_ops: Some(cut),
            ..FaultPlan::default()
        });
        drop(self.open_core(&self.disks));
        disk.snapshot()
    }

    /// Restarts from the disk. Returns whether the recovered state was right.
    fn tear(&mut self, tried: &mut Tried, what: &str) -> bool {
        tried.cases += 1;
        let recovered = self.recover(Then::Nothing);
        tried.restarts += u64::from(recovered.is_ok());
        if let Err(wrong) = &recovered {
            tried.violations.push(format!("{what}: {wrong}"));
        }
        recovered.is_ok()
    }
}
