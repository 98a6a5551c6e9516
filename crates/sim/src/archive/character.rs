//! The character of a run of the archive: the sizes of runs, the moments that merging keeps, and the odds of each kind
//! of step.

use fastrand::Rng;

use crate::swarm::{Swarm, pick, shift, sometimes};

/// The character of a run.
#[derive(Debug, Clone)]
pub(crate) struct Character {
    /// The approximate bytes of the records of a run.
    pub workspace_bytes: usize,
    /// The number of runs that are merged into one.
    pub fan_in: usize,
    /// The grain of moments: merging keeps each moment whose epoch is a multiple of it. `None`: merging combines no
    /// records.
    pub grain: Option<u64>,
    /// The most steps that a machine of the archive takes at once.
    pub stride: u32,
    /// Odds that the newest image rots before a restart, of 100.
    pub rots: u8,
    /// Odds that a step is one of the archive's, of 100.
    pub share: u8,
    /// Odds of the kinds of step.
    pub odds: Odds,
    /// Odds that a crash takes the archive's disk as well, of 100.
    pub together: u8,
    /// Odds that a life ends with the loss of the database's disks, of 100.
    pub losses: u8,
    /// Odds that a restore is interrupted, of 100.
    pub interrupted: u8,
    /// The most bytes that wait in the backlog while the archive is away. `None`: no backlog exists, and the log keeps
    /// all.
    pub backlog: Option<u64>,
}

/// Odds of the kinds of step, as weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Odds {
    /// The archiver takes a step.
    pub archive: u32,
    /// A run is requested.
    pub cut: u32,
    /// The merger takes a step.
    pub merge: u32,
    /// A backup begins or continues.
    pub back_up: u32,
    /// The agent begins, merges, or is killed.
    pub agent: u32,
    /// A moment is restored and compared.
    pub drill: u32,
    /// Every object is read.
    pub verify: u32,
    /// A fault of the archive's disk is planned.
    pub fault: u32,
    /// The archive's disk loses power.
    pub power: u32,
    /// The archive's disk becomes unavailable or available again.
    pub absence: u32,
    /// Time passes.
    pub age: u32,
}

impl Odds {
    pub(crate) fn all(&self) -> [u32; 11] {
        [
            self.archive,
            self.cut,
            self.merge,
            self.back_up,
            self.agent,
            self.drill,
            self.verify,
            self.fault,
            self.power,
            self.absence,
            self.age,
        ]
    }
}

impl Character {
    /// Draws the character of a seed. Makes the client's smaller, because what is restored is written page by page.
    pub(crate) fn draw(rng: &mut Rng, swarm: &mut Swarm) -> Character {
        swarm.medium = swarm.medium.min(10);
        swarm.large = if rng.u8(0..8) == 0 { swarm.large } else { 0 };
        swarm.bulk = swarm.bulk.min(3);
        swarm.names = swarm.names.min(20);
        swarm.course.steps = swarm.course.steps.min(80);
        swarm.course.crashes = pick(rng, &[2, 3, 4, 6]);
        swarm.odds.begin *= 3;
        swarm.odds.sweep *= 2;
        // The product's mode compares snapshots page by page.
        swarm.odds.snapshot = 0;
        assert!(swarm.course.crashes > 0, "a run has a crash");
        Character {
            workspace_bytes: pick(rng, &[500, 2000, 20_000, 1 << 20]),
            fan_in: pick(rng, &[2, 2, 2, 3]),
            grain: pick(rng, &[None, Some(1), Some(2), Some(5), Some(u64::MAX)]),
            stride: pick(rng, &[4, 30, 60]),
            rots: pick(rng, &[0, 30, 60]),
            share: pick(rng, &[30, 50, 70]),
            odds: Odds {
                archive: shift(rng, 4),
                cut: shift(rng, 4),
                merge: shift(rng, 3),
                back_up: shift(rng, 4),
                agent: sometimes(rng, 3),
                drill: shift(rng, 2),
                verify: sometimes(rng, 1),
                fault: sometimes(rng, 1),
                power: sometimes(rng, 1),
                absence: sometimes(rng, 1),
                age: sometimes(rng, 1),
            },
            together: pick(rng, &[0, 20, 60]),
            losses: pick(rng, &[0, 20, 50]),
            interrupted: pick(rng, &[0, 30, 80]),
            backlog: pick(rng, &[None, Some(100_000), Some(300_000), Some(4 << 20)]),
        }
    }
}
