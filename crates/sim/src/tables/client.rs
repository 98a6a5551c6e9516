//! The steps of transactions. The model checks each reply.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use perdura::typed::LogForm;
use perdura::{Abort, Error, PartitionId, PartitionSet, Ticket};
use perdura_device::Clock;

use crate::ops::key_bytes;
use crate::over_core::Promise;
use crate::report::Check;
use crate::swarm::pick;

use super::calls::{Call, ChangedMind, Reply, change_mind};
use super::check::name;
use super::edits::{self, Edit};
use super::interpret::{Refusal, View, interpret};
use super::oracle::Commit;
use super::procedures::CHANGED_MIND;
use super::rows::{Key, Sort, Write};
use super::world::World;

/// The end of a transaction.
enum Ended<R> {
    Committed(R, Ticket),
    Told(String),
    Failed(Error),
    Panicked,
}

/// Runs a transaction of a client. Also catches the panic of a client that abandons it.
fn attempt<R>(run: impl FnOnce() -> Result<(R, Ticket), Abort>) -> Ended<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok((value, ticket))) => Ended::Committed(value, ticket),
        Ok(Err(Abort::Refused(why))) => Ended::Told(why),
        Ok(Err(Abort::Database(error))) => Ended::Failed(error),
        Err(panic) if panic.is::<ChangedMind>() => Ended::Panicked,
        Err(panic) => resume_unwind(panic),
    }
}

impl World {
    /// Calls a drawn procedure.
    pub fn call_step(&mut self) -> Check {
        let Some(call) = Call::draw(&mut self.machine.rng, &self.swarm) else {
            return Ok(());
        };
        let now_ms = self.clock.wall_us() / 1000;
        let before = World::numbers(self.core());
        let ended = attempt(|| call.make(self.core()));
        let mut view = View::new(&self.oracle);
        let given = match &ended {
            Ended::Committed(reply, _) => Some(reply),
            _ => None,
        };
        let expected = interpret(&call, &mut view, given, now_ms);
        let committed = match (ended, expected) {
            (Ended::Committed(reply, ticket), Ok(expected)) if reply == expected => {
                Some((reply, ticket))
            }
            (Ended::Told(why), Err(Refusal::Told(expected))) if why == expected => None,
            (Ended::Failed(Error::Usage(_)), Err(Refusal::Verb)) => None,
            // The engine refused the call, because it touched an undeclared partition or a page-addressed table.
            (Ended::Failed(Error::Usage(_)), _) if self.is_strict() && !call.is_command() => None,
            (Ended::Panicked, _) if call.panics() => None,
            (Ended::Failed(error), _) if !matches!(error, Error::Usage(_)) => {
                self.unchanged(&before)?;
                return self.tolerate("call", &error);
            }
            (ended, expected) => {
                let ended = match ended {
                    Ended::Committed(reply, _) => format!("{reply:?}"),
                    Ended::Told(why) => why,
                    Ended::Failed(error) => error.to_string(),
                    Ended::Panicked => "a panic".to_owned(),
                };
                return Err(format!(
                    "{call:?} ended as {ended}, the model says {expected:?}"
                ));
            }
        };
        match committed {
            None => self.unchanged(&before),
            Some((reply, ticket)) => {
                let read = std::mem::take(&mut view.read);
                let writes = view.writes();
                self.check_ids(reply.ids())?;
                let ids = match reply {
                    Reply::Ids(ids) => ids,
                    Reply::Id(id) => id.into_iter().collect(),
                    _ => Vec::new(),
                };
                self.committed((&before, ticket), (read, writes, ids))
            }
        }
    }

    fn is_strict(&self) -> bool {
        let typed = &self.swarm.options.typed;
        typed.strict && typed.log == LogForm::Command
    }

    /// Empties Redis's first database. The database then has a new table without rows.
    pub fn empty_step(&mut self) -> Check {
        let before = World::numbers(self.core());
        match self.core().flush_database(Some(0)) {
            Ok(ticket) => {
                let rows = self.oracle.live().rows.keys();
                let plain = rows.filter(|key| matches!(key, Key::Plain(_)));
                let writes = plain.map(|key| (*key, None)).collect();
                self.committed((&before, ticket), (Vec::new(), writes, Vec::new()))
            }
            Err(error) => self.tolerate("flush_database", &error),
        }
    }

    /// Drops a drawn table with all its rows.
    pub fn drop_step(&mut self) -> Check {
        let sort = pick(&mut self.machine.rng, &Sort::ALL);
        if !self.swarm.declares(sort) {
            return Ok(());
        }
        let before = World::numbers(self.core());
        match self.core().drop_table(name(sort)) {
            Ok(Some((flushed, ticket))) => {
                self.core().reclaim_flushed(flushed);
                let rows = self.oracle.live().rows.keys();
                let gone = rows.filter(|key| match key {
                    Key::Table(place) => *place == sort.place(),
                    key => key.sort() == Some(sort),
                });
                let writes: Vec<Write> = gone.map(|key| (*key, None)).collect();
                let for_good = self.machine.rng.bool();
                self.swarm.note_dropped(sort, for_good);
                *self.tally.reached.entry("table_dropped").or_default() += 1;
                // A page-addressed table is dropped page by page. Partitions do not count changes of pages.
                match self.swarm.is_keyed(sort) {
                    true => self.committed((&before, ticket), (Vec::new(), writes, Vec::new())),
                    false => {
                        self.unchanged(&before)?;
                        self.counted(Vec::new(), ticket, (Vec::new(), writes, Vec::new()))
                    }
                }
            }
            Ok(None) => Err(format!("{sort:?} is declared, and there is no such table")),
            Err(error) => self.tolerate("drop_table", &error),
        }
    }

    /// Runs a plain transaction of some edits. Part of it may be undone, and the client may abandon it.
    pub fn edit_step(&mut self) -> Check {
        let edits = self.draw_edits();
        let parts = self.declare(&edits);
        let (gives_up, panics) = (self.rng.u8(0..10) == 0, self.rng.bool());
        let before = World::numbers(self.core());
        let core = self.machine.engine();
        let ended = attempt(|| {
            core.transact(&parts, |tx| {
                let ids = edits::perform(core, tx, &edits)?;
                match (gives_up, panics) {
                    (true, true) => change_mind(),
                    (true, false) => Err(Abort::from(CHANGED_MIND)),
                    (false, _) => Ok(ids),
                }
            })
        });
        let mut view = View::new(&self.oracle);
        let given = match &ended {
            Ended::Committed(ids, _) => Some(ids.as_slice()),
            _ => None,
        };
        let expected = edits::interpret(&edits, &mut view, given);
        match (ended, expected) {
            (Ended::Committed(ids, ticket), Ok(())) if !gives_up => {
                let read = std::mem::take(&mut view.read);
                let mut writes = view.writes();
                writes.retain(|(key, row)| row.is_some() || self.oracle.row(*key).is_some());
                self.check_ids(&ids)?;
                self.committed((&before, ticket), (read, writes, ids))
            }
            (Ended::Failed(Error::Usage(_)), Err(Refusal::Verb)) => self.unchanged(&before),
            (Ended::Told(_) | Ended::Panicked, Ok(())) if gives_up => self.unchanged(&before),
            (Ended::Failed(error), _) if !matches!(error, Error::Usage(_)) => {
                self.unchanged(&before)?;
                self.tolerate("transact", &error)
            }
            (ended, expected) => {
                let ended = match ended {
                    Ended::Committed(ids, _) => format!("a commit with the ids {ids:?}"),
                    Ended::Told(why) => why,
                    Ended::Failed(error) => error.to_string(),
                    Ended::Panicked => "a panic".to_owned(),
                };
                Err(format!(
                    "{edits:?} ended as {ended}, the model says {expected:?}"
                ))
            }
        }
    }

    fn draw_edits(&mut self) -> Vec<Edit> {
        let live = &self.oracle.live().rows;
        let entries: Vec<u64> = live
            .keys()
            .filter_map(|key| match key {
                Key::Entry(id) => Some(*id),
                _ => None,
            })
            .collect();
        let (rng, swarm) = (&mut self.machine.rng, &self.swarm);
        let count = rng.usize(1..=6).min(rng.usize(1..=6));
        let drawn = (0..count).filter_map(|_| Edit::draw(rng, swarm, &entries));
        let mut edits: Vec<Edit> = drawn.collect();
        if rng.u8(0..4) == 0 {
            let at = rng.usize(0..=edits.len());
            edits.insert(at, Edit::Mark);
            let back = rng.usize(at + 1..=edits.len());
            edits.insert(back, Edit::Back);
            assert!(at < back, "what comes after a mark is taken back");
        }
        edits
    }

    /// Returns the partitions that a client declares: the partitions of all edits, of the first edit, or none.
    fn declare(&mut self, edits: &[Edit]) -> PartitionSet {
        let core = self.machine.engine();
        let partitions = self.swarm.options.partitions;
        let mut parts = PartitionSet::empty();
        for key in edits.iter().filter_map(Edit::key) {
            match (key, key.home(partitions)) {
                (_, Some(home)) => parts.insert(PartitionId(home)),
                (Key::Plain(key), None) => parts.insert(core.partition_of(&key_bytes(key))),
                (_, None) => parts = core.all_partitions(),
            }
            if self.seed.is_multiple_of(3) {
                break;
            }
        }
        if self.machine.rng.u8(0..16) == 0 {
            return PartitionSet::empty();
        }
        parts
    }

    /// Checks that no row had any of these new ids before.
    fn check_ids(&self, ids: &[u64]) -> Check {
        match ids.iter().find(|id| self.oracle.is_spent(**id)) {
            Some(id) => Err(format!("a row gets the id {id}, which another row had")),
            None => Ok(()),
        }
    }

    /// Checks that no partition has counted an uncommitted transaction. `before` has the partitions' earlier numbers.
    fn unchanged(&self, before: &[u64]) -> Check {
        let now = World::numbers(self.core());
        assert_eq!(now.len(), before.len(), "partitions do not come and go");
        match now == before {
            true => Ok(()),
            false => Err(format!(
                "a transaction that was not made leaves the numbers {now:?} behind {before:?}"
            )),
        }
    }

    /// Adds a committed transaction to the model. Computes the transaction's numbers from the partitions' numbers
    /// before and after it.
    fn committed(
        &mut self,
        (before, ticket): (&[u64], Ticket),
        (read, mut writes, ids): (Vec<Key>, Vec<Write>, Vec<u64>),
    ) -> Check {
        let now = World::numbers(self.core());
        let mut numbers = Vec::new();
        for (at, (now, before)) in now.iter().zip(before).enumerate() {
            match now - before {
                0 => {}
                1 => numbers.push((at, *now)),
                _ => return Err(format!("partition {at} counts a transaction twice")),
            }
        }
        let is_keyed = |(key, _): &Write| key.sort().is_some_and(|sort| self.swarm.is_keyed(sort));
        // A write that leaves a page as it is has no record, and so no epoch.
        let changes = |(key, row): &Write| self.oracle.row(*key) != row.as_ref();
        writes.retain(|write| is_keyed(write) || changes(write));
        if numbers.is_empty() && writes.iter().any(is_keyed) {
            return Err("a transaction that writes key-addressed rows counts nowhere".to_owned());
        }
        if !numbers.is_empty() && self.swarm.all_pages {
            return Err("a transaction counts, and all tables are page-addressed".to_owned());
        }
        self.counted(numbers, ticket, (read, writes, ids))
    }

    /// Adds a committed transaction to the model. `numbers` has the partitions that counted it, each with its number
    /// there.
    fn counted(
        &mut self,
        numbers: Vec<(usize, u64)>,
        ticket: Ticket,
        (read, writes, ids): (Vec<Key>, Vec<Write>, Vec<u64>),
    ) -> Check {
        let seen = read.into_iter().map(|key| self.oracle.written(key));
        let mut needs = seen.max().unwrap_or(0);
        if !writes.is_empty() || !numbers.is_empty() {
            needs = needs.max(ticket.epoch.0);
            self.oracle.commit(Commit {
                epoch: self.moment(ticket.epoch.0),
                writes,
                numbers,
                ids,
            });
        }
        if self.swarm.unlogged {
            // Without a log, a reply does not promise that the transaction survives.
            needs = 0;
        }
        let current = self.core().wal().current().0;
        assert!(
            needs.max(ticket.epoch.0) <= current,
            "a ticket of epoch {} for what epoch {needs} wrote, and {current} is open",
            ticket.epoch
        );
        let ticket = ticket.epoch.0;
        self.promise(ticket, Promise { ticket, needs });
        Ok(())
    }
}
