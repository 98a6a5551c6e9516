//! Tests of damage at every byte of a small database. Each case flips a bit of one byte, or zeroes the log from this
//! byte to the end of the segment.
//!
//! The database may refuse to start, with an error that names the damage. If it starts, it must hold exactly a durable
//! prefix: all epochs up to some epoch. A flip may lose an epoch only if no later block or anchor proves that the epoch
//! was durable. Zeros may remove this proof. They may then lose the epoch only if they also cover the epoch's blocks.
//! The engine must not panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::num::to_u64;
use perdura_device::{CrashProfile, FaultPlan, SimDisk};

use crate::course::Course;
use crate::lives::Lives;
use crate::over_core::OverCore;
use crate::report::Check;
use crate::swarm::Swarm;
use crate::world::World;

/// The counts of damaged cases, by result.
#[derive(Debug, Clone, Default)]
pub struct Damaged {
    /// The number of cases. Each case flipped one bit, or zeroed a segment of the log from some byte to its end.
    pub cases: u64,
    /// The number of databases that started.
    pub started: u64,
    /// The number of databases that refused to start.
    pub refused: u64,
    /// The violations that were found.
    pub violations: Vec<String>,
}

impl Damaged {
    /// Checks that every case was counted once: as started, as refused, or as a violation.
    fn check(&self) {
        let ended = self.started + self.refused;
        let (cases, wrong) = (self.cases, to_u64(self.violations.len()));
        assert!(
            ended <= cases && cases <= ended + wrong,
            "{cases} cases, of which {ended} ended and {wrong} were wrong"
        );
    }
}

/// Returns a small database with two images. The log has records after both images. The log of an earlier life ends
/// with records that are void, because their epochs were not durable at the crash.
fn small(seed: u64) -> Check<World> {
    let mut world = empty(seed, 2);
    for _ in 0..2 {
        world.open()?;
        for _ in 0..2 {
            world.steps(12)?;
            world.checkpoint_now()?;
        }
        world.steps(20)?;
        world.crash();
    }
    Ok(world)
}

/// Returns a world with disks that have no database. A database created on the disks gets a few rows of every type.
pub(crate) fn empty(seed: u64, streams: u8) -> World {
    let mut rng = Rng::with_seed(seed);
    let drawn = Swarm::draw(&mut rng, Some(streams), Some(CrashProfile::Ordered));
    let options = perdura::CoreOptions {
        partitions: 2,
        chunk_pages: 2,
        ..drawn.options
    };
    let swarm = Swarm {
        course: Course {
            memory_is_short: drawn.course.memory_is_short,
            ..Course::calm(streams, drawn.course.profile)
        },
        options,
        disks_apart: false,
        keys: 4,
        databases: 1,
        medium: 5,
        large: 0,
        expiry: 0,
        collections: 50,
        names: 20,
        long: 20,
        bulk: 0,
        ..drawn
    };
    World::new(seed, rng, swarm)
}

impl World {
    pub(crate) fn open(&mut self) -> Check {
        let core = self
            .open_core(&self.disks)
            .map_err(|error| error.to_string())?;
        self.engine = Some(core);
        self.check_state()
    }

    pub(crate) fn steps(&mut self, count: u32) -> Check {
        for _ in 0..count {
            self.draw_step()?;
            self.observe();
        }
        Ok(())
    }
}

fn try_one(world: &World, evidence: u64, what: &str, out: &mut Damaged) -> Option<u64> {
    out.cases += 1;
    let attempt = || world.check_damaged(&world.disks, evidence, what);
    match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(Ok(Some(epoch))) => {
            out.started += 1;
            return Some(epoch);
        }
        Ok(Ok(None)) => out.refused += 1,
        Ok(Err(wrong)) => out.violations.push(wrong),
        Err(_) => out.violations.push(format!("{what}: a panic")),
    }
    None
}

/// Flips a bit of every `stride`-th byte of every file.
///
/// # Errors
/// Fails if the small database cannot be made.
pub fn flip_bytes(seed: u64, stride: usize) -> Check<Damaged> {
    let world = small(seed)?;
    let disk = Arc::clone(&world.disks[0]);
    let snapshot = disk.snapshot();
    let mut out = Damaged::default();
    let mut at = 0;
    for (path, len) in disk.files() {
        while at < len {
            disk.restore(&snapshot);
            let bit = u8::try_from(at % 8).unwrap_or(0);
            assert!(
                disk.flip(&path, at, bit),
                "{path} has no byte {at} of {len}"
            );
            try_one(
                &world,
                world.evidence,
                &format!("byte {at} of {path} flipped"),
                &mut out,
            );
            at += to_u64(stride);
        }
        at -= len;
    }
    out.check();
    Ok(out)
}

/// Zeroes each segment of the log from some byte to its end, as a crash that loses writes may do. Tries every
/// `stride`-th byte as the first zeroed byte. Checks that a database never starts at an earlier epoch when more of the
/// segment is left.
///
/// # Errors
/// Fails if the small database cannot be made.
pub fn zero_log(seed: u64, stride: usize) -> Check<Damaged> {
    let world = small(seed)?;
    let disk: Arc<SimDisk> = Arc::clone(&world.disks[0]);
    disk.set_plan(FaultPlan::default());
    let snapshot = disk.snapshot();
    let mut out = Damaged::default();
    for (path, len) in disk.files() {
        if !path.starts_with("log/s0") {
            continue;
        }
        let mut newest = 0;
        for at in (0..len).step_by(stride) {
            disk.restore(&snapshot);
            disk.zero_from(&path, at);
            let what = format!("{path} zeroed from {at} on");
            if let Some(epoch) = try_one(&world, 0, &what, &mut out) {
                if epoch < newest {
                    out.violations
                        .push(format!("{what}: epoch {epoch}, less gave {newest}"));
                }
                newest = epoch;
            }
        }
    }
    out.check();
    Ok(out)
}
