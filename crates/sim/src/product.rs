//! The product's world in the simulator's loop.

use std::sync::Arc;

use perdura::{Core, Error};
use perdura_base::{PartitionId, StreamId};
use perdura_device::SimDisk;
use perdura_recovery::Level;

use crate::drafting::Drafting;
use crate::faults;
use crate::lives::{Lives, Rarity};
use crate::ops::Op;
use crate::over_core::OverCore;
use crate::report::Check;
use crate::swarm::{draw_schedule, pick};
use crate::world::World;

/// The maximum number of purge steps that may be needed to remove all orphans. An orphan is an element of a collection
/// that no key names any more.
const PURGES_MAX: u32 = 100_000;

impl Lives for World {
    type Engine = Core;
    const OTHER_WAYS: Rarity = Rarity {
        mixed: 5,
        later: 20,
        never_interrupted: 60,
    };
    const ROTS: u32 = 2;

    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        self.open_as(self.env(disks), self.options())
    }

    fn draw_way(&mut self) {
        let level = pick(&mut self.rng, &Level::ALL);
        self.swarm.options.schedule = draw_schedule(&mut self.rng, level);
        // This draws no number of the run, so that a run has the same steps as without loading on demand.
        self.swarm.options.on_demand = self.draw_of_restart().is_multiple_of(3);
    }

    fn step(&mut self) -> Check {
        self.draw_step()
    }

    fn end_life(&mut self, overdue: bool) -> Check {
        if !self.stopped && self.rng.u8(0..6) == 0 {
            self.compare(self.core(), &self.model.everything())
                .map_err(|what| format!("before the crash: {what}"))?;
        }
        self.machine.checkpoint_if(overdue)?;
        self.machine
            .close_cleanly_at_times(&mut self.closed_cleanly)?;
        Ok(())
    }

    fn forget_all(&mut self) {
        let building = self.drafts.iter().map(Drafting::rows).sum::<u64>();
        if building > 0 {
            *self.tally.reached.entry("draft_in_progress").or_default() += building;
        }
        self.forget_engine();
    }

    fn try_again(&mut self) {
        // The failed restart may have removed the mark of a clean shutdown.
        self.closed_cleanly = None;
    }

    fn check_restart(&mut self) -> Check {
        self.check_state()
    }

    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check {
        if self.core().is_loaded() {
            self.mark_reached();
        } else {
            *self.tally.reached.entry("on_demand").or_default() += 1;
        }
        let choice = self.rng.u64(..);
        copies.map_or(Ok(()), |copies| self.check_other_ways(&copies, choice))
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        self.check_damaged(disks, self.evidence, damage)
    }

    /// Purges at the end of the run until no orphan is left. In some runs, then deletes everything and checks that no
    /// page is left.
    fn clean_up(&mut self) -> Check {
        // A disturbed restart may have left a disk full. Then the purge would wait for ever.
        faults::clear(&self.disks);
        self.drafts.clear();
        let loaded = self.core().load_all();
        loaded.map_err(|error| format!("before the purge: {error}"))?;
        self.purge_all()?;
        self.compare(self.core(), &self.model.everything())
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
}

impl World {
    /// Purges until no orphan is left, or until an injected fault makes the engine fail.
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
                for stream in (0..self.course.streams).map(StreamId) {
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

    /// Counts how often each rare state occurs in the database after a restart.
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
}
