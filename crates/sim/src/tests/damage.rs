//! Damage at every byte of a small database: one bit is flipped, or the log is zeroed from that byte on.
//!
//! The database must refuse with an error that names the damage, or start from exactly a durable prefix. A flip may
//! lose only epochs of whose durability no later block or anchor has evidence. Zeros may lose only such epochs, and
//! only if the zeros cover their blocks. The engine never panics.

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

/// The number of damaged cases, by their results.
#[derive(Debug, Clone, Default)]
pub struct Damaged {
    /// The number of cases: bytes that were flipped, or from which on the log was zeroed.
    pub cases: u64,
    /// The number of cases in which the database started.
    pub started: u64,
    /// The number of cases in which it refused.
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

/// Returns a small database with two images, log behind both of them, and a void tail of an earlier life.
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

/// Returns a machine without a database. The database that is made there has a few rows of every type.
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

/// Zeroes every segment of the log from every `stride`-th byte on, as a crash that loses writes leaves
/// it. A longer log never leads to an older epoch.
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
