//! The calls for running transactions on a [`Db`].
//!
//! | | returns when | for |
//! |---|---|---|
//! | [`Db::write`] | the transaction is durable, as [`Options::durability`](crate::Options::durability) says | most programs |
//! | [`Db::write_later`] | others see the transaction; its ticket says when it is durable | many writes, one wait |
//! | [`Db::read`] | all data that the transaction has seen is durable, as for `write` | reading |
//! | [`Db::transact`] | others see the transaction | callers that know the partitions, such as the server |
//!
//! All four calls use [`perdura_txn::Executor::run`].

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use perdura_base::{Error, PartitionId, PartitionSet};
use perdura_table::Cx;
use perdura_txn::{Manner, Patience, Says, Ticket, Tx};

use crate::core::Watch;
use crate::db::Db;

/// The outcome of a transaction whose caller does not wait for the log.
#[derive(Debug)]
pub enum Attempt<R> {
    /// The transaction is visible to others. It is durable when the ticket's epoch is.
    Committed(R, Ticket),
    /// The log has no room for the transaction yet, and the transaction was undone. Run it again when [`Db::is_behind`]
    /// returns `false` for `bytes`.
    Behind {
        /// The room in the log that the transaction needs, bytes.
        bytes: usize,
    },
}

/// The partitions of a transaction, and the caller's patience with their latches.
#[derive(Clone, Copy)]
pub struct Latching<'a> {
    parts: &'a PartitionSet,
    waits_on: &'a dyn Fn(PartitionId) -> bool,
}

impl<'a> Latching<'a> {
    /// Declares the partitions `parts`. `waits_on` returns whether the caller waits on for the latch of a partition. It
    /// must not run a transaction.
    #[must_use]
    pub fn new(parts: &'a PartitionSet, waits_on: &'a dyn Fn(PartitionId) -> bool) -> Self {
        Latching { parts, waits_on }
    }
}

impl fmt::Debug for Latching<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Latching");
        shown.field("parts", self.parts).finish_non_exhaustive()
    }
}

impl Db {
    /// Runs `f` as one serial transaction and waits until it is durable. When this returns `Ok`, the whole transaction
    /// survives a power cut, unless [`Options::durability`](crate::Options::durability) asks for less.
    ///
    /// **`f` may run several times.** It is an `FnMut` for that reason. A run is undone and `f` starts over if the run
    /// needs a key of an unlatched partition, or the log buffer is full. Only the last run counts. So `f` must first
    /// reset any data that it collects outside the database.
    ///
    /// `f` fails with any error that can be made from [`Error`]. The transaction is then undone. A panic in `f` also
    /// undoes the transaction and continues in the caller. The database stays open.
    ///
    /// # Errors
    /// The error of `f`. From the engine: [`Error::LogFull`] while the disk is full, [`Error::OutOfMemory`] at the
    /// memory limit. [`Error::Usage`] if this thread already has an open transaction of this database.
    /// [`Error::Stopped`] if the database stops. If a failing disk stops it during the wait, the transaction may or may
    /// not survive.
    ///
    /// # Panics
    /// If `f` panics. A panic inside an operation of [`Tx`] stops the database as well.
    pub fn write<R, E: From<Error>>(
        &self,
        f: impl FnMut(&mut Cx<'_, '_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (value, ticket) = self.transact_typed(&PartitionSet::empty(), f)?;
        self.wait(ticket)?;
        Ok(value)
    }

    /// Like [`write`](Self::write), but returns when other threads see the transaction. It is durable once
    /// [`wait`](Self::wait) or [`wait_at`](Self::wait_at) returns for the ticket. Tickets of one thread become durable
    /// in their order, so waiting for the last is enough. **`f` may run several times.**
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_later<R, E: From<Error>>(
        &self,
        f: impl FnMut(&mut Cx<'_, '_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        let done = self.transact_typed(&PartitionSet::empty(), f)?;
        self.want_durable();
        Ok(done)
    }

    /// Runs `f` as one serial transaction that only reads. Waits until all data that it can have seen is durable. **`f`
    /// may run several times**, as in [`write`](Self::write).
    ///
    /// # Errors
    /// The error of `f`; [`Error::Stopped`] if the database stops before the data that `f` has read is durable.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn read<R, E: From<Error>>(
        &self,
        mut f: impl FnMut(&Cx<'_, '_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (value, ticket) = self.transact_typed(&PartitionSet::empty(), |tx| f(tx))?;
        self.wait(ticket)?;
        Ok(value)
    }

    /// Runs `f` as one serial transaction over the declared partitions, in this thread. The transaction is visible to
    /// others on return, and durable when the ticket's epoch is. If `f` touches an undeclared partition, the
    /// transaction is undone and runs again with that partition. So the declaration only saves repetitions. **`f` may
    /// run several times.**
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn transact<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        self.transact_at(parts, self.shared.core().clock().wall_us() / 1000, f)
    }

    /// Like [`transact`](Self::transact), but the caller passes the current time, `now_ms`, milliseconds since 1970.
    /// Reading the clock takes a considerable part of the time of a short transaction.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn transact_at<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        now_ms: u64,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        loop {
            match self.try_transact_at(parts, now_ms, &mut f)? {
                Attempt::Committed(value, ticket) => return Ok((value, ticket)),
                Attempt::Behind { .. } => self.hold_back(),
            }
        }
    }

    /// Like [`transact_at`](Self::transact_at), but returns [`Attempt::Behind`] where `transact_at` would wait for the
    /// log. This is for event loops and other callers that cannot wait.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    pub fn try_transact_at<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<Attempt<R>, E> {
        self.try_transact_then(parts, now_ms, f, |_, _| ())
    }

    /// Like [`transact_at`](Self::transact_at), but calls `settle` after the commit, as
    /// [`try_transact_then`](Self::try_transact_then) does.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`try_transact_then`](Self::try_transact_then).
    pub fn transact_then<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        now_ms: u64,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        mut settle: impl FnMut(&mut R, Ticket),
    ) -> Result<(R, Ticket), E> {
        loop {
            match self.try_transact_then(parts, now_ms, &mut f, &mut settle)? {
                Attempt::Committed(value, ticket) => return Ok((value, ticket)),
                Attempt::Behind { .. } => self.hold_back(),
            }
        }
    }

    /// Like [`try_transact_at`](Self::try_transact_at), but calls `settle` after the commit, before the latches are
    /// released. So no other transaction on these partitions comes between the commit and `settle`. This is for state
    /// beside the database that must follow the order of commits, such as a message for each change of a key. `settle`
    /// runs once. It must be short, and must not run a transaction.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write), and if `settle` panics. The transaction has then committed.
    #[inline]
    pub fn try_transact_then<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        settle: impl FnMut(&mut R, Ticket),
    ) -> Result<Attempt<R>, E> {
        self.try_in_manner(parts, &Manner::new(now_ms, Says::Effects), f, settle)
    }

    /// Like [`try_transact_then`](Self::try_transact_then), but does not wait longer for a latch than the caller wants.
    /// While another thread holds a latch, calls `waits_on` of `latching` with its partition, at first after 0.1 ms
    /// and then repeatedly. If that returns `false`, the transaction is undone, and the result is `None`. The result is
    /// also `None` if a restart has not loaded a partition yet. The partition is then loaded next.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`try_transact_then`](Self::try_transact_then).
    #[inline]
    pub fn try_transact_while<R, E: From<Error>>(
        &self,
        latching: Latching<'_>,
        now_ms: u64,
        f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        settle: impl FnMut(&mut R, Ticket),
    ) -> Result<Option<Attempt<R>>, E> {
        let has_ended = Cell::new(false);
        let waits_on = |held| {
            let waits = (latching.waits_on)(held);
            has_ended.set(!waits);
            waits
        };
        let absent = || has_ended.set(true);
        let manner = Manner {
            patience: Patience::while_true(&waits_on).unless_absent(&absent),
            ..Manner::new(now_ms, Says::Effects)
        };
        let done = self.try_in_manner(latching.parts, &manner, f, settle);
        if has_ended.get() {
            assert!(
                !matches!(done, Ok(Attempt::Committed(..))),
                "a transaction without its latches has not committed"
            );
            return Ok(None);
        }
        done.map(Some)
    }

    /// Runs `f` as one transaction, and `settle` after its commit. Returns [`Attempt::Behind`] if the log has no room.
    #[inline]
    fn try_in_manner<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        manner: &Manner<'_>,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
        settle: impl FnMut(&mut R, Ticket),
    ) -> Result<Attempt<R>, E> {
        self.attempt(|watch| {
            let run = |tx: &mut Tx<'_>| {
                let result = f(tx);
                watch(tx.awaits_log());
                result
            };
            let core = self.shared.core();
            core.transact_in_manner(parts, manner, run, settle)
        })
    }

    /// Runs `f` as one transaction over these partitions, with the verbs of typed tables.
    fn transact_typed<R, E: From<Error>>(
        &self,
        parts: &PartitionSet,
        mut f: impl FnMut(&mut Cx<'_, '_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        let registry = self.shared.core().registry();
        self.transact(parts, |tx| f(&mut Cx::new(tx, registry)))
    }

    /// Runs a transaction once. If it awaits room in the log, wakes the flusher and returns
    /// [`Attempt::Behind`].
    #[inline]
    pub(crate) fn attempt<R, E: From<Error>>(
        &self,
        run: impl FnOnce(Watch<'_>) -> Result<(R, Ticket), E>,
    ) -> Result<Attempt<R>, E> {
        let mut behind = None;
        let done = run(&mut |awaited| behind = awaited);
        if let Some(bytes) = behind {
            assert!(
                done.is_err(),
                "a transaction that awaits the log has not committed"
            );
            self.nudge();
            return Ok(Attempt::Behind { bytes });
        }
        done.map(|(value, ticket)| Attempt::Committed(value, ticket))
    }

    /// Delays a writer for a short time, because the log has no room for its transaction.
    pub(crate) fn hold_back(&self) {
        std::thread::sleep(Duration::from_micros(100));
    }
}
