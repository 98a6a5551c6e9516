//! The world of typed tables in the simulator's loop.

use std::sync::Arc;

use perdura::{Core, Error};
use perdura_device::SimDisk;
use perdura_heap::SnapshotMode;
use perdura_recovery::Level;

use crate::lives::{Lives, Rarity, run_drawn};
use crate::over_core::{OverCore, is_mirrored};
use crate::report::{Check, CrashOptions, Tally};
use crate::swarm::{draw_schedule, pick};

use super::rows::Sort;
use super::swarm::Swarm;
use super::tree::Tenant;
use super::world::World;

/// Runs one seed.
pub(crate) fn run_seed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    run_drawn(seed, 0x7ab1e5, options, Swarm::draw, World::new)
}

/// Runs one seed with a tree beside the tables.
pub(crate) fn run_mixed(seed: u64, options: &CrashOptions) -> (Tally, u64, Check) {
    run_drawn(seed, 0x6d1c_5ed0, options, Swarm::draw_mixed, World::new)
}

impl Lives for World {
    type Engine = Core;
    const OTHER_WAYS: Rarity = Rarity::OFTEN;
    const ROTS: u32 = 2;

    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        self.open_life(disks)
    }

    fn draw_way(&mut self) {
        // With nodes, an open makes its log durable. So the tables that a failed open has created exist, and this
        // open must not declare more tables.
        let declares = !self.opens_again || self.machine.cluster.is_none();
        let World { machine, swarm, .. } = self;
        swarm.dropped = 0;
        let level = pick(&mut machine.rng, &Level::ALL);
        swarm.options.schedule = draw_schedule(&mut machine.rng, level);
        if swarm.changes {
            let sort = pick(&mut machine.rng, &Sort::ALL);
            if declares {
                swarm.declare(sort);
            }
            swarm.draw_typed(&mut machine.rng);
        }
        let modes = [SnapshotMode::Pages, SnapshotMode::Rows];
        swarm.options.snapshot_mode = pick(&mut machine.rng, &modes);
        self.draw_tree_method();
    }

    fn step(&mut self) -> Check {
        self.draw_step()?;
        self.machine.step_of_nodes()?;
        self.note_image();
        self.check_room()
    }

    fn end_life(&mut self, overdue: bool) -> Check {
        if self.rng.bool() {
            self.close_snapshots()?;
        }
        if !self.stopped && self.rng.u8(0..6) == 0 {
            self.compare(self.core(), self.oracle.live())
                .map_err(|what| format!("before the crash: {what}"))?;
        }
        self.machine.checkpoint_if(overdue)?;
        self.commit_at_times()?;
        // The engine must have no open transaction when it is closed.
        if self.tenant.as_ref().is_none_or(Tenant::is_idle) {
            self.machine
                .close_cleanly_at_times(&mut self.closed_cleanly)?;
        }
        self.note_image();
        Ok(())
    }

    fn forget_all(&mut self) {
        let held = u64::try_from(self.snapshots.len()).unwrap_or(0);
        if held > 0 {
            *self.tally.reached.entry("snapshot_open").or_default() += held;
        }
        self.snapshots.clear();
        self.tenant.iter_mut().for_each(Tenant::forget);
        self.machine.forget();
    }

    fn try_again(&mut self) {
        // The failed restart may have removed the mark of a clean shutdown.
        self.closed_cleanly = None;
        self.opens_again = true;
    }

    fn check_restart(&mut self) -> Check {
        self.opens_again = false;
        self.mark_reached();
        self.check_state()
    }

    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check {
        let choice = self.rng.u64(..);
        let Some(copies) = copies else {
            return Ok(());
        };
        match choice % 5 {
            0 if !self.swarm.unlogged && !is_mirrored(&copies)? => {
                self.check_gap(&copies, choice / 5)
            }
            1..=2 if self.tenant.is_some() => self.check_methods(&copies, choice / 5),
            _ => self.check_other_ways(&copies, choice / 5),
        }
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        self.check_damaged(disks, self.evidence, damage)
    }
}

impl World {
    /// Counts the rare states of the database at the last restart.
    fn mark_reached(&mut self) {
        let report = self.core().report();
        let played = report.ordered.as_ref().map_or(0, |ordered| ordered.played);
        let losers = report.tree.as_ref().map_or(0, |tree| tree.losers);
        let marks = [
            ("frame_played", played),
            ("loser", losers),
            ("loser_beside_frames", played.min(losers)),
        ];
        for (mark, count) in marks {
            if count > 0 {
                *self.tally.reached.entry(mark).or_default() += count;
            }
        }
    }
}
