//! Calls of procedures, and drops of declared tables.

use perdura_base::Result;
use perdura_table::{Abort, Procedure};
use perdura_txn::Ticket;

use crate::db::Db;
use crate::map;
use crate::transact::Attempt;

/// A procedure call with visible changes, which may not be durable yet.
#[must_use = "the call is durable when `wait` has returned"]
pub struct Pending<R> {
    db: Db,
    value: R,
    ticket: Ticket,
}

impl<R> Pending<R> {
    /// Waits until the call is durable and returns what the procedure returned.
    ///
    /// # Errors
    /// As [`Db::wait`].
    pub fn wait(self) -> Result<R> {
        self.db.wait(self.ticket)?;
        Ok(self.value)
    }

    /// Returns the result of the procedure. Until the call is durable, a crash can undo it.
    pub fn value(&self) -> &R {
        &self.value
    }

    /// Returns the ticket of the call. Calls of one thread become durable in the order of the calls.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Db {
    /// Runs a procedure and waits until it is durable.
    ///
    /// # Errors
    /// [`Abort::Refused`] with the procedure's own error if the procedure aborts; its changes are undone.
    /// [`Abort::Database`] with the errors of [`Db::write`], and with [`perdura_base::Error::Usage`] if the database
    /// was not opened with this procedure.
    ///
    /// # Panics
    /// If the procedure panics. Its transaction is undone, and the database stays open.
    pub fn call<P: Procedure>(&self, procedure: P, args: P::Args) -> Result<P::Output, Abort> {
        Ok(self.submit(procedure, args)?.wait()?)
    }

    /// Runs a procedure and returns when the changes are visible to other threads, before the changes are durable.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Panics
    /// As [`call`](Self::call).
    pub fn submit<P: Procedure>(
        &self,
        _procedure: P,
        args: P::Args,
    ) -> Result<Pending<P::Output>, Abort> {
        loop {
            let attempt = self.attempt(|watch| {
                self.shared
                    .core()
                    .call_watched::<P>(&args, |tx| watch(tx.awaits_log()))
            })?;
            match attempt {
                Attempt::Committed(value, ticket) => {
                    if ticket.epoch > self.durable() {
                        self.want_durable();
                    }
                    let db = self.clone();
                    return Ok(Pending { db, value, ticket });
                }
                Attempt::Behind { .. } => self.hold_back(),
            }
        }
    }

    /// Drops a typed table with all its rows. Returns false if no table has that name. The drop is durable when this
    /// returns. From then on, reads and writes of the table fail. A program that still declares the table gets a new,
    /// empty table when it opens the database again.
    ///
    /// ```
    /// # perdura::table! { pub struct Visit in "visits" { key(id: u64), page: String } }
    /// # use perdura::Table;
    /// # let dir = tempfile::tempdir()?;
    /// let db = perdura::Db::builder(dir.path()).table::<Visit>().open()?;
    /// db.write(|tx| tx.insert(&Visit { id: 1, page: "/".into() }))?;
    /// assert!(db.drop_table(Visit::NAME)?);
    /// assert!(db.read(|tx| tx.get::<Visit>(1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of a write.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        let core = self.shared.core();
        let (flushed, ticket) = loop {
            match self.attempt(|watch| core.drop_watched(name, watch))? {
                Attempt::Committed(flushed, ticket) => break (flushed, ticket),
                Attempt::Behind { .. } => self.hold_back(),
            }
        };
        let Some(flushed) = flushed else {
            return Ok(false);
        };
        core.reclaim_flushed(flushed);
        self.wait(ticket)?;
        Ok(true)
    }

    /// Drops a map with all its entries. Returns false if no map has that name. Existing [`Map`](map::Map) handles of
    /// the map then find no entries, and their writes fail.
    ///
    /// # Errors
    /// The errors of a write.
    pub fn drop_map(&self, name: &str) -> Result<bool> {
        self.drop_table(&map::table_name(name))
    }
}
