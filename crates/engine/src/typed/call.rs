//! Running a procedure, and transactions on typed tables.

use perdura_base::PartitionSet;
use perdura_base::Result;
use perdura_table::{Abort, ArgList, Cx, Homes, Procedure, Registry};
use perdura_txn::{CommandCall, Manner, Says, Ticket, Tx};

use crate::core::Core;
use crate::db::Db;
use crate::transact::Attempt;

impl Core {
    /// The typed tables, for the verbs of [`Cx`] within [`Core::transact`].
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.typed().registry
    }

    /// Runs a procedure as one serial transaction.
    ///
    /// # Errors
    /// What the procedure aborts with, after its changes are undone; those of a write.
    pub fn call<P: Procedure>(&self, args: &P::Args) -> Result<(P::Output, Ticket), Abort> {
        self.call_watched::<P>(args, |_| {})
    }

    /// The same. `watch` sees the transaction at the end of each run.
    pub(crate) fn call_watched<P: Procedure>(
        &self,
        args: &P::Args,
        mut watch: impl FnMut(&Tx<'_>),
    ) -> Result<(P::Output, Ticket), Abort> {
        let typed = self.typed();
        let procedure = typed.procedure::<P>()?;
        let mut homes = Homes::new(typed.registry.geometry());
        P::homes(args, &mut homes);
        let mut encoded = Vec::new();
        let says = if typed.logs_commands() {
            args.encode(&mut encoded);
            Says::Command(CommandCall {
                procedure,
                args: &encoded,
                strict: typed.options.strict,
            })
        } else {
            Says::Effects
        };
        assert!(
            homes
                .partitions()
                .iter()
                .all(|id| id.0 < self.heap().geometry().partitions),
            "a home is a partition"
        );
        let manner = Manner {
            now_ms: self.clock().wall_us() / 1000,
            says,
        };
        self.executor().run_as(&homes.partitions(), &manner, |tx| {
            let done = P::run(&mut Cx::new(tx, &typed.registry), args.clone());
            watch(tx);
            done
        })
    }
}

/// A call that is visible to others and will be durable.
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

    /// What the procedure returned. Until the call is durable, a crash can take it back.
    pub fn value(&self) -> &R {
        &self.value
    }

    /// The ticket: calls of one thread become durable in their order.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Db {
    /// Runs a procedure and waits until it is durable.
    ///
    /// # Errors
    /// [`Abort::Refused`] with what the procedure aborted with: then nothing of it is left.
    /// [`Abort::Database`] as [`Db::write`]; [`perdura_base::Error::Usage`] if the database was not opened with it.
    ///
    /// # Panics
    /// If the procedure does: its transaction is undone, and the database stays open.
    pub fn call<P: Procedure>(&self, procedure: P, args: P::Args) -> Result<P::Output, Abort> {
        Ok(self.submit(procedure, args)?.wait()?)
    }

    /// Runs a procedure and returns as soon as others see what it did.
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
                    .core
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

    /// Runs `f` as one transaction over these partitions, with the verbs of typed tables.
    pub(crate) fn transact_typed<R, E: From<perdura_base::Error>>(
        &self,
        parts: &PartitionSet,
        mut f: impl FnMut(&mut Cx<'_, '_>) -> Result<R, E>,
    ) -> Result<(R, Ticket), E> {
        let registry = &self.shared.core.typed().registry;
        self.transact(parts, |tx| f(&mut Cx::new(tx, registry)))
    }
}
