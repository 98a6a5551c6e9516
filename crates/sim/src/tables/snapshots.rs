//! Snapshots that stay open during later steps and checkpoints, and while other snapshots are opened.

use perdura::{MemoryUse, TableId};
use perdura_heap::{KeptBound, Snapshot};

use crate::machine::Engine;
use crate::ops::key_number;
use crate::report::Check;

use super::check::{decode, tables};
use super::oracle::State;
use super::rows::{Key, Row, Rows};
use super::world::World;

/// An open snapshot, and the state that it must show.
pub(crate) struct Held {
    snapshot: Snapshot,
    state: State,
    /// The typed tables that existed when the snapshot was opened.
    tables: Vec<(super::rows::Sort, TableId)>,
    plain: TableId,
}

impl World {
    /// Opens a snapshot, or compares an open one with its state, or closes one.
    pub fn snapshot_step(&mut self) -> Check {
        let (count, draw) = (self.snapshots.len(), self.rng.u8(0..3));
        if count == 0 || draw == 0 && count < self.swarm.snapshots {
            if self.swarm.snapshots > 0 {
                let held = self.snapshot();
                self.snapshots.push(held);
            }
            return Ok(());
        }
        assert!(
            count <= self.swarm.snapshots,
            "no more snapshots are held than the run allows"
        );
        let at = self.rng.usize(0..count);
        self.snapshots[at].holds(self)?;
        if draw == 1 {
            drop(self.snapshots.remove(at));
            self.check_kept()?;
        }
        Ok(())
    }

    fn snapshot(&self) -> Held {
        let core = self.core();
        Held {
            snapshot: core.heap().snapshot(),
            state: self.oracle.live().clone(),
            tables: tables(core),
            plain: core.database(0),
        }
    }

    /// Checks that every snapshot still shows the state at its opening. Then closes all snapshots, and checks that no
    /// version is kept.
    pub fn close_snapshots(&mut self) -> Check {
        let mut older_is_held = false;
        for held in &self.snapshots {
            let is_held = held.holds(self)?;
            if older_is_held && !is_held {
                return Err("a snapshot has ended, and an older one has not".to_owned());
            }
            older_is_held |= is_held;
        }
        self.snapshots.clear();
        self.check_kept()
    }

    /// Ends the oldest snapshots while the memory for kept versions exceeds its bound. If a checkpoint runs, its
    /// steps free the versions instead.
    pub fn check_room(&mut self) -> Check {
        let core = self.machine.engine();
        if !core.heap().kept_over_bound() {
            return Ok(());
        }
        *self
            .machine
            .tally
            .reached
            .entry("kept_over_bound")
            .or_default() += 1;
        let core = self.core();
        if Engine::checkpoint_is_running(core) {
            return Ok(());
        }
        for _ in 0..=self.snapshots.len() {
            core.heap().make_room();
        }
        match core.heap().kept_over_bound() {
            true => Err("too much is kept, and no snapshot is left to end".to_owned()),
            false => Ok(()),
        }
    }

    /// Checks that versions are kept only if a snapshot is open or a checkpoint runs.
    fn check_kept(&self) -> Check {
        let core = self.core();
        let kept = core.heap().memory().get(MemoryUse::Kept);
        if kept > 0 && self.snapshots.is_empty() && !Engine::checkpoint_is_running(core) {
            return Err(format!("{kept} bytes are kept for no cut"));
        }
        Ok(())
    }
}

impl Held {
    /// Compares the snapshot with the state at the snapshot's opening. Skips a snapshot that the engine has ended to
    /// free memory. Returns whether the snapshot is still open.
    fn holds(&self, world: &World) -> Check<bool> {
        let is_bounded = world.swarm.options.kept_bound != KeptBound::default();
        match self.snapshot.each_row(self.plain, |_, _| Ok(())) {
            Err(perdura::Error::SnapshotEnded) if is_bounded => Ok(false),
            _ => self.compare(world).map(|()| true),
        }
    }

    /// Compares the snapshot with the state at its opening.
    fn compare(&self, world: &World) -> Check {
        if self.snapshot.pseq() != self.state.numbers {
            return Err(format!(
                "a snapshot has the numbers {:?}, and was opened at {:?}",
                self.snapshot.pseq(),
                self.state.numbers
            ));
        }
        let copies = usize::from(world.swarm.options.partitions);
        assert_eq!(
            self.state.numbers.len(),
            copies,
            "a number of each partition"
        );
        let (mut found, mut copied, mut wrong) = (Rows::new(), 0, None);
        let failed = |error: perdura::Error| format!("a snapshot cannot be read: {error}");
        for (sort, table) in &self.tables {
            let each = |key: &[u8], value: &[u8]| {
                let (key, row) = decode(*sort, key, value)?;
                copied += usize::from(matches!(key, Key::Rate(_)));
                wrong = wrong.take().or(match self.state.rows.get(&key) {
                    Some(expected) if *expected == row => None,
                    _ => Some(key),
                });
                found.insert(key, row);
                Ok(())
            };
            self.snapshot.each_row(*table, each).map_err(failed)?;
        }
        let plain = |key: &[u8], value: &[u8]| {
            let place = key_number(key).map(Key::Plain);
            let expected = place.and_then(|place| Some((place, self.state.rows.get(&place)?)));
            match expected {
                Some((place, Row::Plain(content))) if content.matches(value) => {
                    found.insert(place, Row::Plain(*content));
                }
                _ => wrong = wrong.take().or(place).or(Some(Key::Plain(u8::MAX))),
            }
            Ok(())
        };
        self.snapshot.each_row(self.plain, plain).map_err(failed)?;
        if let Some(key) = wrong {
            return Err(format!(
                "a snapshot shows another {key:?} than was there when it was opened"
            ));
        }
        let rates = found.keys().filter(|key| matches!(key, Key::Rate(_)));
        if copied != rates.count() * copies {
            return Err(format!(
                "a snapshot shows {copied} copies of replicated rows"
            ));
        }
        let is_row = |key: &&Key| !matches!(key, Key::Table(_));
        let expected = self.state.rows.keys().filter(is_row).count();
        if found.len() != expected {
            return Err(format!(
                "a snapshot shows {} rows of {expected}",
                found.len()
            ));
        }
        Ok(())
    }
}
