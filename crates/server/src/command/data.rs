//! The context of a data command: a transaction, the client's database, and the events to publish
//! when the transaction has committed.

mod host;
mod judged;
mod outcome;
mod serving;

pub(crate) use host::Host;
use host::Server;
pub(crate) use outcome::{Observing, Outcome};
pub(crate) use serving::Claims;

use super::event::{Class, Event};
use super::scripts::ran::Ran;
use super::steps::{self, Progress, Step, Work};
use super::{Command, DataFn, Run, flag, notice};
#[cfg(doc)]
use crate::ahead::AHEAD_KEYS;
use crate::blocking::{Nothing, Wait};
use crate::engine::{
    Db, Draft, Error, Fault, Kind, PartitionId, PartitionSet, Renewal, RowRef, Shape, Source,
    TableId, Text, Tx, types,
};
use crate::flights::Flight;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::state::State;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// The reason why a data command ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The transaction cannot continue; it is undone, and perhaps run again.
    Abort(Error),
    /// The command replies with this error. The command has written nothing.
    Error(Cow<'static, str>),
    /// The key has nothing for the client yet, so the client waits. The command has written
    /// nothing.
    Wait(Wait),
    /// The command's source or result is so large that the command continues in steps.
    Long(Box<dyn Work>),
    /// The command is to run beside the loop, because it would go through too many elements. It has written
    /// nothing.
    Beside,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Abort(error)
    }
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Self {
        Stop::Wait(wait)
    }
}

impl From<&'static str> for Stop {
    fn from(text: &'static str) -> Self {
        Stop::Error(Cow::Borrowed(text))
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Stop::Error(Cow::Owned(text))
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::WrongType => Stop::Error(Cow::Borrowed(WRONG_TYPE)),
            Fault::Abort(abort) => Stop::Abort(abort),
        }
    }
}

/// Redis's text for a command on a key of the wrong type.
pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The reason why an ended command has no reply yet.
#[derive(Debug)]
pub(crate) enum Later {
    /// The client is to wait for a key.
    Wait(Box<Wait>),
    /// The client waits, at most for this time. `None`: there is no limit.
    Waits(Option<Duration>),
    /// The command continues in steps.
    Steps(Box<dyn Work>),
    /// The command is to run beside the loop.
    Beside,
}

/// A long string that has been written, but is not yet a key's value.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The draft that holds the string. A draft is a collection that no key names yet.
    pub draft: Arc<Draft>,
    /// The string.
    pub text: Text,
}

/// The result of a data command.
pub(crate) type Done = Result<(), Stop>;

/// The context of a data command.
pub(crate) struct Data<'a, 'tx> {
    /// The transaction.
    pub tx: &'a mut Tx<'tx>,
    /// The client's database, 0 to 15.
    pub database: u8,
    /// The table of that database.
    pub table: TableId,
    server: Server<'a>,
    db: &'a Db,
    /// The new tables of the databases that this transaction has flushed or swapped.
    renewal: Option<Box<Renewal>>,
    /// The databases that this transaction has swapped, one bit for each.
    swapped: u16,
    /// True if this transaction has flushed a database, even one without keys.
    emptied: bool,
    /// The maximum size of a value, bytes.
    pub value_bytes_max: usize,
    /// The maximum size of a reply, bytes.
    pub reply_bytes_max: usize,
    /// The number of keys looked up and found.
    hits: Cell<u64>,
    /// The number of keys looked up and not found.
    misses: Cell<u64>,
    /// True if changes have observers.
    interest: bool,
    /// The classes of [`super::notice`]'s events that are published, one bit for each class.
    notices: u16,
    events: Vec<Event>,
    changes: u64,
    errors: u64,
    /// True if a command may use only keys that it declares.
    keeps_to_keys: bool,
    /// True if the command is allowed to make the client wait.
    may_wait: bool,
    /// True if the command may run beside the loop instead of on it.
    may_leave: bool,
    /// True if the client had to wait, and its command now runs again.
    is_retry: bool,
    later: Option<Later>,
    /// The running command. `prepared` is the string for the command's key, if the string was written beforehand.
    running: Option<DataFn>,
    prepared: Option<Prepared>,
    /// The work that scripts postpone until after the commit.
    ran: Option<Box<Ran>>,
}

impl<'a, 'tx> Data<'a, 'tx> {
    /// Returns the context of the commands of one transaction. The first command runs in
    /// `database`.
    pub(crate) fn new(state: &'a State, db: &'a Db, tx: &'a mut Tx<'tx>, database: u8) -> Self {
        Data {
            may_wait: true,
            ..Data::of(Server::Loop(state), &Host::of(state), db, tx, database)
        }
    }

    /// Forbids the command to wait, as within MULTI.
    pub(crate) fn hurry(&mut self) {
        self.may_wait = false;
    }

    /// Sets whether the command may wait; within a script it may not. Returns the previous setting.
    pub(crate) fn set_may_wait(&mut self, may: bool) -> bool {
        std::mem::replace(&mut self.may_wait, may)
    }

    /// Returns the server.
    ///
    /// # Panics
    /// If the command runs beside the loop. Scripts never run there.
    pub(crate) fn state(&self) -> &'a State {
        match self.server {
            Server::Loop(state) => state,
            Server::Beside(..) => unreachable!("scripts run on the loop"),
        }
    }

    /// Notes the transaction in [`Flights`](crate::flights::Flights), because it has run for some time under its latches
    /// and continues. The caller of the transaction ends the note with [`State::end_long`].
    #[cold]
    pub(crate) fn note_long(&self) {
        let Server::Loop(state) = self.server else {
            return;
        };
        let latched: PartitionSet = self.tx.latched().collect();
        if state.peers.several() && !latched.is_empty() {
            let flight = Flight::Round(state.event_loop);
            if state.common.flights.begin(flight, latched) {
                state.common.wake_others(state.event_loop);
            }
        }
    }

    /// Returns the work that scripts postpone until after the commit.
    pub(crate) fn ran(&mut self) -> &mut Ran {
        self.ran.get_or_insert_default()
    }

    /// Returns the number of scripts that this transaction has run.
    pub(crate) fn scripts_run(&self) -> u32 {
        self.ran.as_ref().map_or(0, |ran| ran.scripts)
    }

    /// Returns whether the client had to wait, and its command now runs again.
    pub(crate) fn is_retry(&self) -> bool {
        self.is_retry
    }

    /// Returns the partition of a key.
    pub(crate) fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.db.partition_of(key)
    }

    /// Returns the greatest size of a sparse HyperLogLog sketch, bytes.
    pub(crate) fn sparse_sketch_bytes_max(&self) -> u64 {
        self.server.sparse_sketch_bytes_max()
    }

    /// Returns whether a command should go through `elements` elements in steps.
    pub(crate) fn is_long(&self, elements: u64) -> bool {
        elements > self.server.long()
    }

    /// Runs one command. An error reply replaces the reply that the command has begun.
    pub(crate) fn run(
        &mut self,
        command: &Command,
        args: &Args<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let Run::Data(run) = command.run else {
            return Ok(());
        };
        // The commands inside a script have already added the events of the script's keys.
        if self.notices == 0 || command.has(flag::SCRIPTS) {
            return self.with_keys(command, args, |data| data.run_plainly(run, args, out));
        }
        let absent = notice::before(self, self.notices, command, args)?;
        let (start, first) = (out.buf.len(), self.events.len());
        self.with_keys(command, args, |data| data.run_plainly(run, args, out))?;
        if self.later.is_none() && out.buf.get(start) != Some(&b'-') {
            let mut events = std::mem::take(&mut self.events);
            notice::after(self, &mut events, first, absent)?;
            self.events = events;
        }
        Ok(())
    }

    fn run_plainly(
        &mut self,
        run: DataFn,
        args: &Args<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let start = out.buf.len();
        self.running = Some(run);
        let done = match run(self, args, out) {
            // A command that may not wait, as in a block, cannot continue in steps. It runs beside
            // the loop.
            Err(Stop::Long(_)) if !self.may_wait && self.may_leave => Err(Stop::Beside),
            Err(Stop::Long(mut work)) if !self.may_wait => {
                out.buf.truncate(start);
                // The command has already counted its lookups, so the lookups of its steps do not count.
                let (hits, misses) = (self.hits.get(), self.misses.get());
                let done = steps::finish(work.as_mut(), self, args, out);
                self.hits.set(hits);
                self.misses.set(misses);
                done
            }
            other => other,
        };
        debug_assert!(out.buf.len() >= start, "what was replied before stays");
        match done {
            Ok(()) => Ok(()),
            Err(Stop::Abort(abort)) => Err(abort),
            Err(Stop::Error(text)) => {
                out.buf.truncate(start);
                out.error(&text);
                self.errors += 1;
                Ok(())
            }
            Err(Stop::Wait(wait)) => {
                out.buf.truncate(start);
                match wait.nothing {
                    _ if self.may_wait => self.later = Some(Later::Wait(Box::new(wait))),
                    Nothing::Null => out.null(),
                    Nothing::NullArray => out.null_array(),
                }
                Ok(())
            }
            Err(Stop::Beside) => {
                out.buf.truncate(start);
                self.later = Some(Later::Beside);
                Ok(())
            }
            Err(Stop::Long(work)) => {
                out.buf.truncate(start);
                self.later = Some(Later::Steps(work));
                Ok(())
            }
        }
    }

    /// Runs one step of a command that runs in steps, and stores the result after the last step. An inner `Err`
    /// is the error that the command replies with.
    pub(crate) fn step(
        &mut self,
        work: &mut dyn Work,
        command: &Command,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Result<Progress, Cow<'static, str>>, Error> {
        let stepped = self.with_keys(command, args, |data| match work.step(data, args, step) {
            Ok(Progress::Complete) => data.store(work, command, args),
            other => other,
        });
        match stepped {
            Ok(progress) => Ok(Ok(progress)),
            Err(Stop::Abort(abort)) => Err(abort),
            Err(Stop::Error(text)) => {
                self.errors += 1;
                Ok(Err(text))
            }
            Err(Stop::Wait(_) | Stop::Long(_) | Stop::Beside) => Ok(Ok(Progress::Changed)),
        }
    }

    fn store(
        &mut self,
        work: &mut dyn Work,
        command: &Command,
        args: &Args<'_>,
    ) -> Result<Progress, Stop> {
        let absent = match self.notices {
            0 => None,
            notices => Some(notice::before(self, notices, command, args)?),
        };
        if let Run::Data(run) = command.run {
            self.running = Some(run);
        }
        work.store(self, args)?;
        if let Some(absent) = absent {
            let mut events = std::mem::take(&mut self.events);
            notice::after(self, &mut events, 0, absent)?;
            self.events = events;
        }
        Ok(Progress::Complete)
    }

    /// Runs a command again after its string has been written.
    pub(crate) fn run_with_text(
        &mut self,
        prepared: Prepared,
        args: &Args<'_>,
        out: &mut Out<'_>,
    ) -> Done {
        let Some(run) = self.running else {
            return Ok(());
        };
        self.prepared = Some(prepared);
        let done = run(self, args, out);
        self.prepared = None;
        done
    }

    /// Makes the prepared string the value of a key. Returns false if no string was prepared.
    pub(crate) fn name_text(
        &mut self,
        database: u8,
        key: &[u8],
        expiry: Option<u64>,
    ) -> Result<bool, Error> {
        let Some(Prepared { draft, text }) = &self.prepared else {
            return Ok(false);
        };
        debug_assert_eq!(draft.table(), self.table_of(database));
        self.tx.name_text(draft, *text, key, expiry)?;
        Ok(true)
    }

    /// Notes that a key has changed or is gone. Every write of a key calls this method, once for
    /// each event that Redis names.
    pub(crate) fn changed(&mut self, class: Class, name: &'static str, key: &[u8]) {
        self.changed_in(self.database, class, name, key);
    }

    /// Notes that a key of another database has changed or is gone.
    pub(crate) fn changed_in(
        &mut self,
        database: u8,
        class: Class,
        name: &'static str,
        key: &[u8],
    ) {
        self.changes += 1;
        if self.interest {
            self.events.push(Event {
                database,
                class,
                name,
                key: key.into(),
            });
        }
    }

    /// Fetches the next keys that the command will use, at most [`AHEAD_KEYS`]. This is a hint. Call it again
    /// when these keys have been used.
    pub(crate) fn look_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.server.looks_ahead() {
            self.tx.look_ahead(self.table, keys);
        }
    }

    /// Returns the row of a key that holds a string; `None` if the key does not exist.
    pub(crate) fn string(&mut self, key: &[u8]) -> Result<Option<RowRef<'_>>, Stop> {
        match self.tx.get(self.table, key)? {
            Some(row) if row.kind() != Kind::String => Err(Fault::WrongType.into()),
            found => Ok(found),
        }
    }

    /// Opens the collection of a key to read it, and counts the lookup.
    pub(crate) fn collection(&self, key: &[u8], shape: Shape) -> Result<Option<Source<'_>>, Stop> {
        let found = types::open::read(self.tx, self.table, key, shape)?;
        self.looked_up(found.is_some());
        Ok(found)
    }

    /// Selects the database that the following commands use.
    pub(crate) fn select(&mut self, database: u8) {
        self.database = database;
        self.table = self.table_of(database);
    }

    /// Returns the table of a database, within this transaction.
    pub(crate) fn table_of(&self, database: u8) -> TableId {
        let renewed = self.renewal.as_ref().and_then(|r| r.table(database));
        renewed.unwrap_or_else(|| self.db.database(database))
    }

    /// Empties a database: at once for this transaction, and for all clients when the transaction
    /// commits. An empty database stays as it is.
    pub(crate) fn flush(&mut self, database: u8) -> Result<(), Error> {
        self.emptied = true;
        let keys = self.tx.len(self.table_of(database))?;
        if keys > 0 {
            self.changes += keys;
            let table = self.table_of(database);
            let state = self.state();
            let observed = state.common.watches.keys_of(database);
            let observed = observed.iter().map(AsRef::as_ref);
            let blocking = &state.common.blocking;
            let waited = blocking.with(|blocking| blocking.keys_of(database));
            for key in observed.chain(waited.iter().map(AsRef::as_ref)) {
                if self.tx.peek(table, key)?.is_some() {
                    self.touched(database, key);
                }
            }
            let renewal = self.renewal.get_or_insert_default();
            self.db.begin_flush(self.tx, Some(database), renewal)?;
            self.select(self.database);
        }
        Ok(())
    }

    /// Adds events for the watched keys and the keys that clients wait for, because two databases are
    /// about to be swapped.
    fn tell_swapped(&mut self, first: u8, second: u8) -> Result<(), Error> {
        let state = self.state();
        let (watches, blocking) = (&state.common.watches, &state.common.blocking);
        let tables = [first, second].map(|database| self.table_of(database));
        for database in [first, second] {
            for key in watches.keys_of(database) {
                let there = |table| Ok::<_, Error>(self.tx.peek(table, &key)?.is_some());
                if there(tables[0])? || there(tables[1])? {
                    self.touched(database, &key);
                }
            }
            for key in blocking.with(|blocking| blocking.keys_of(database)) {
                self.touched(database, &key);
            }
        }
        Ok(())
    }

    fn touched(&mut self, database: u8, key: &[u8]) {
        self.events.push(Event {
            database,
            class: Class::Quiet,
            name: "",
            key: key.into(),
        });
    }

    /// Swaps the contents of two databases: at once for this transaction, and for all clients when
    /// the transaction commits.
    pub(crate) fn swap(&mut self, databases: [u8; 2]) -> Result<(), Error> {
        let [first, second] = databases;
        self.tell_swapped(first, second)?;
        self.swapped |= 1 << first | 1 << second;
        let renewal = self.renewal.get_or_insert_default();
        self.db.swap_databases(self.tx, databases, renewal)?;
        self.select(self.database);
        Ok(())
    }

    /// Finishes the transaction and returns its outcome. No later step of the transaction may fail.
    pub(crate) fn finish(self) -> Result<Outcome, Error> {
        let flushed = match &self.renewal {
            Some(renewal) => Some(self.db.finish_flush(self.tx, renewal)?),
            None => None,
        };
        Ok(Outcome {
            hits: self.hits.get(),
            misses: self.misses.get(),
            errors: self.errors,
            events: self.events,
            changes: self.changes,
            flushed,
            swapped: self.swapped,
            ran: self.ran,
            emptied: self.emptied,
            wrote: self.tx.has_written() || self.changes > 0,
            later: self.later,
        })
    }

    /// Counts a lookup.
    pub(crate) fn looked_up(&self, found: bool) {
        let counter = if found { &self.hits } else { &self.misses };
        counter.set(counter.get() + 1);
    }

    /// Fails if the reply has outgrown its limit. `bytes` is the reply's size so far.
    pub(crate) fn check_reply(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.reply_bytes_max {
            return Ok(());
        }
        let max = self.reply_bytes_max;
        Err(Error::Usage(format!(
            "the reply is longer than the {max} bytes allowed. Nothing was changed. Ask for \
             fewer keys at once"
        )))
    }
}
