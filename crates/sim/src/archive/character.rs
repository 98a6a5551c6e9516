//! The character of a simulation in archive mode. It consists of the odds of each kind of step, the moments that
//! merging keeps, and the sizes of the archive's runs. These runs are files. The seed determines the character.

use fastrand::Rng;

use crate::swarm::{Swarm, pick, shift, sometimes};

/// The character of a run in archive mode.
#[derive(Debug, Clone)]
pub(crate) struct Character {
    /// The approximate number of bytes of records in one of the archive's runs, which are files.
    pub workspace_bytes: usize,
    /// The number of the archive's runs that one merge combines.
    pub fan_in: usize,
    /// Merging keeps each moment with an epoch that is a multiple of this number. `None`: merging keeps every moment.
    pub grain: Option<u64>,
    /// The maximum number of steps that the archiver, the merger or the agent takes in a row.
    pub stride: u32,
    /// True if the clock jumps by days.
    pub jumps: bool,
    /// The archive keeps moments for this number of days. `None`: it keeps them forever. No run lasts so long, however
    /// far its clock jumps.
    pub keep_days: Option<u64>,
    /// Odds, out of 100, that the newest image rots before a restart.
    pub rots: u8,
    /// Odds, out of 100, that a step of the run is a step of the archive.
    pub share: u8,
    /// Odds of each kind of archive step.
    pub odds: Odds,
    /// Odds, out of 100, that a crash of the database also crashes the archive's disk.
    pub together: u8,
    /// Odds, out of 100, that a life ends with the loss of the database's disks.
    pub losses: u8,
    /// Odds, out of 100, that a restore is interrupted.
    pub interrupted: u8,
    /// The maximum number of bytes of log that the backlog holds while the archive is unavailable. `None`: the run has
    /// no backlog, and the log keeps everything.
    pub backlog: Option<u64>,
}

/// Odds of the kinds of archive step, as weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Odds {
    /// The archiver takes a step.
    pub archive: u32,
    /// The archiver is made to end its current run.
    pub cut: u32,
    /// The merger takes a step.
    pub merge: u32,
    /// A backup begins or continues.
    pub back_up: u32,
    /// The agent (a process that merges) starts, merges, or is killed.
    pub agent: u32,
    /// A moment is restored and compared with the model.
    pub drill: u32,
    /// Every object of the archive is read.
    pub verify: u32,
    /// A fault of the archive's disk is planned.
    pub fault: u32,
    /// The archive's disk loses power.
    pub power: u32,
    /// The archive's disk becomes unavailable or available again.
    pub absence: u32,
    /// The clock advances, jumps or is set back.
    pub age: u32,
    /// An older copy of the database meets the archive.
    pub set_back: u32,
    /// A time is looked up in the archive.
    pub time: u32,
}

impl Odds {
    pub(crate) fn all(&self) -> [u32; 13] {
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
            self.set_back,
            self.time,
        ]
    }
}

impl Character {
    /// Chooses the character at random, with `rng`. Also makes the client's values smaller, so that a restore has fewer
    /// pages to write.
    pub(crate) fn draw(rng: &mut Rng, swarm: &mut Swarm) -> Character {
        swarm.medium = swarm.medium.min(10);
        swarm.large = if rng.u8(0..8) == 0 { swarm.large } else { 0 };
        swarm.bulk = swarm.bulk.min(3);
        swarm.names = swarm.names.min(20);
        swarm.course.steps = swarm.course.steps.min(80);
        swarm.course.crashes = pick(rng, &[2, 3, 4, 6]);
        swarm.odds.begin *= 3;
        swarm.odds.sweep *= 2;
        // The product's mode already compares snapshots page by page.
        swarm.odds.snapshot = 0;
        assert!(swarm.course.crashes > 0, "a run has a crash");
        Character {
            workspace_bytes: pick(rng, &[500, 2000, 20_000, 1 << 20]),
            fan_in: pick(rng, &[2, 2, 2, 3]),
            grain: pick(rng, &[None, Some(1), Some(2), Some(5), Some(u64::MAX)]),
            stride: pick(rng, &[4, 30, 60]),
            jumps: rng.u8(0..4) == 0,
            keep_days: pick(rng, &[None, Some(30)]),
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
                set_back: sometimes(rng, 1),
                time: sometimes(rng, 1),
            },
            together: pick(rng, &[0, 20, 60]),
            losses: pick(rng, &[0, 20, 50]),
            interrupted: pick(rng, &[0, 30, 80]),
            backlog: pick(rng, &[None, Some(100_000), Some(300_000), Some(4 << 20)]),
        }
    }
}
