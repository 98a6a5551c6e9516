//! A toy world that exists only for these tests. Its store has a few hundred lines, and shares only the modelled disk
//! with the product and steal mode. The loop drives it, crashes it and finds its planted bugs. This shows that the
//! loop needs nothing from an engine beyond [`Engine`](crate::machine::Engine) and [`Lives`].

mod store;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fastrand::Rng;
use perdura_base::Error;
use perdura_base::error::Family;
use perdura_device::{Disk, SimDisk};

use store::{Bug, Rows, Store};

use super::{Lives, Rarity};
use crate::content::scramble;
use crate::course::Course;
use crate::faults;
use crate::machine::{Engine, Machine};
use crate::report::{Check, Tally};
use crate::swarm::pick;

const KEYS: u64 = 24;

/// The toy's machine and its oracle. The oracle has the rows at the last restart, and all later transactions.
struct World {
    machine: Machine<Store>,
    bug: Option<Bug>,
    base: Rows,
    history: Vec<(u64, Vec<(u64, u64)>)>,
}

impl Deref for World {
    type Target = Machine<Store>;

    fn deref(&self) -> &Machine<Store> {
        &self.machine
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Machine<Store> {
        &mut self.machine
    }
}

fn course(rng: &mut Rng) -> Course {
    Course {
        streams: 1,
        stream_speed: vec![pick(rng, &[100, 50, 5])],
        crashes: rng.u32(1..=4),
        steps: pick(rng, &[30, 60]),
        faults: pick(rng, &[0, 50]),
        nested: pick(rng, &[0, 40]),
        rot: rng.bool(),
        profile: None,
        memory_is_short: false,
    }
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut rng = Rng::with_seed(scramble(seed));
        let course = course(&mut rng);
        World {
            machine: Machine::new(seed, rng, course, 1),
            bug,
            base: Rows::new(),
            history: Vec::new(),
        }
    }

    fn state_at(&self, durable: u64) -> Rows {
        let mut rows = self.base.clone();
        let kept = self.history.iter().filter(|(epoch, _)| *epoch <= durable);
        for (key, value) in kept.flat_map(|(_, changes)| changes) {
            match value {
                0 => drop(rows.remove(key)),
                value => drop(rows.insert(*key, *value)),
            }
        }
        rows
    }

    fn transact(&mut self) -> Check {
        let count = self.rng.usize(1..=3);
        let rng = &mut self.machine.rng;
        let mut draw = || (rng.u64(0..KEYS), rng.u64(..) * u64::from(rng.u8(0..4) > 0));
        let changes: Vec<(u64, u64)> = (0..count).map(|_| draw()).collect();
        match self.engine().transact(&changes) {
            Ok(epoch) => {
                self.history.push((epoch, changes));
                self.promises.push(epoch);
                self.tally.transactions += 1;
                self.note(epoch);
                Ok(())
            }
            Err(error) => self.tolerate("transact", &error),
        }
    }

    fn compare(&self, store: &Store) -> Check {
        let durable = store.durable();
        match store.rows() == self.state_at(durable) {
            true => Ok(()),
            false => Err(format!("other rows than the model's at epoch {durable}")),
        }
    }
}

impl Lives for World {
    type Engine = Store;
    const OTHER_WAYS: Rarity = Rarity {
        mixed: 1,
        later: 2,
        never_interrupted: 4,
    };
    const ROTS: u32 = 4;

    fn open_on(&self, disks: &[Arc<SimDisk>]) -> Result<Store, Error> {
        Store::open(disks[0].life(), self.bug)
    }

    fn draw_way(&mut self) {}

    fn plan_fault(&mut self) {
        faults::plan(&mut self.machine.rng, &self.machine.disks, 30);
    }

    fn step(&mut self) -> Check {
        match self.rng.u8(0..12) {
            0..=4 => self.transact(),
            5 | 6 => {
                self.engine().close_epoch();
                Ok(())
            }
            7 | 8 => self.flush_one(),
            9 => self.checkpoint_begin(),
            _ => self.checkpoint_steps(),
        }
    }

    fn forget_all(&mut self) {
        self.machine.forget();
    }

    fn check_restart(&mut self) -> Check {
        let durable = self.engine().durable();
        self.check_kept(durable)?;
        self.compare(self.engine())?;
        self.base = self.engine().rows();
        self.history.clear();
        self.count_restart(durable);
        Ok(())
    }

    /// Checks that the log alone holds every row. Removes the image; the store must then restart with every row.
    fn check_copies(&mut self, copies: Option<Vec<Arc<SimDisk>>>) -> Check {
        let Some(copies) = copies else { return Ok(()) };
        match copies[0].life().remove("image") {
            Err(error) if !error.is_not_found() => return Err(error.to_string()),
            _ => {}
        }
        let store = self.open_on(&copies);
        let store = store.map_err(|error| format!("from the log alone: {error}"))?;
        self.compare(&store)
            .map_err(|what| format!("from the log alone: {what}"))
    }

    fn check_rotten(&self, disks: &[Arc<SimDisk>], damage: &str) -> Check<Option<u64>> {
        let store = match self.open_on(disks) {
            Ok(store) => store,
            Err(error) if error.family() == Family::Corruption => return Ok(None),
            Err(error) => return Err(format!("{damage}: {error}")),
        };
        let (durable, evidence) = (store.durable(), self.evidence);
        if durable < evidence {
            return Err(format!("{damage}: {durable} kept, evidence of {evidence}"));
        }
        self.compare(&store)
            .map_err(|what| format!("{damage}: {what}"))?;
        Ok(Some(durable))
    }

    fn clean_up(&mut self) -> Check {
        faults::clear(&self.disks);
        self.checkpoint_now()?;
        self.compare(self.engine())
    }
}

const SEEDS: std::ops::Range<u64> = 0..400;

/// Runs the seeds up to the first violation. Returns that violation, and the counts of all runs
/// before it.
fn first_violation(bug: Option<Bug>) -> (Tally, Option<String>) {
    let mut sum = Tally::default();
    for seed in SEEDS {
        let (tally, _, result) = World::new(seed, bug).run_to_end();
        if let Err(what) = result {
            return (sum, Some(format!("seed {seed}: {what}")));
        }
        sum.crashes += tally.crashes;
        sum.restarts += tally.restarts;
        sum.checkpoints += tally.checkpoints;
        sum.acknowledged += tally.acknowledged;
        for (kind, count) in tally.faults {
            *sum.faults.entry(kind).or_default() += count;
        }
    }
    (sum, None)
}

#[test]
fn the_loop_drives_a_third_world_through_crashes_and_restarts() {
    let (sum, violation) = first_violation(None);
    assert_eq!(violation, None);
    let runs = SEEDS.end - SEEDS.start;
    assert!(sum.restarts >= 2 * runs && sum.crashes >= sum.restarts - runs);
    assert!(sum.checkpoints >= runs && sum.acknowledged >= runs);
    for kind in [
        "power_cut",
        "sync_failed",
        "write_failed",
        "read_failed",
        "rot",
    ] {
        assert!(sum.faults.contains_key(kind), "{kind}: {:?}", sum.faults);
    }
}

#[test]
fn the_loop_catches_every_bug_planted_in_a_third_world() {
    for bug in Bug::ALL {
        let (_, violation) = first_violation(Some(bug));
        let violation = violation.unwrap_or_else(|| panic!("{bug:?} was not noticed"));
        println!("{bug:?}: {violation}");
    }
}

#[test]
fn the_same_seed_drives_a_third_world_the_same_way() {
    let trace = |seed| World::new(seed, None).run_to_end().1;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
