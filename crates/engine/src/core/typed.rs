//! The typed tables and procedures that a program declares. Opening the database makes them. The program calls the
//! procedures.

use perdura_base::Result;
use perdura_recovery::families::Family;
use perdura_table::{Abort, ArgList, Cx, Homes, Procedure, Registry};
use perdura_txn::{CommandCall, Manner, Says, Ticket, Tx};

use super::Core;

impl Core {
    /// Makes the declared tables and procedures that the catalog lacks. Looks up the ids of existing procedures. If the
    /// database has key-addressed tables, first declares in the anchor the kinds of frames that the log may then hold.
    pub(crate) fn make_typed(&mut self) -> Result<()> {
        let missing = self.typed.missing(&self.life.catalog_heap())?;
        let procedures = self.typed.number_procedures(&self.life.catalog_heap())?;
        if self.typed.has_keyed(&missing) {
            self.declare_families()?;
            self.checkpoints.require_cuts();
            let families = self.anchor.get().families;
            assert!(families.has(Family::Effects), "declared before a frame");
        }
        if missing.is_empty() && procedures.is_empty() {
            return Ok(());
        }
        let (made, _durable_with_the_first_write) =
            self.transact(&self.all_partitions(), |tx| {
                tx.admit(4096)?;
                self.typed.make(tx, &missing, &procedures)
            })?;
        self.typed.publish(made);
        Ok(())
    }

    /// Declares in the anchor the kinds of ordered frames that the log may hold.
    fn declare_families(&self) -> Result<()> {
        self.anchor.declare(&self.wal, Family::Effects)?;
        if self.typed.logs_commands() {
            self.anchor.declare(&self.wal, Family::Commands)?;
        }
        Ok(())
    }

    /// If a replay accepted divergences, takes a checkpoint before the database accepts work. The log still holds the
    /// old results, so the new results must be in an image.
    pub(crate) fn keep_divergences(&mut self) -> Result<()> {
        let count = self.report.divergences.count;
        if count == 0 {
            return Ok(());
        }
        self.checkpoint_now()?;
        let named = self.anchor.get();
        let slot = named.newest_image().expect("the checkpoint named an image");
        assert!(
            self.report.checkpoint < named.image(slot).k.0,
            "the image is newer than the one that was loaded"
        );
        self.life.report.notes.push(format!(
            "{count} record(s) differed, and their new results were accepted. Checkpoint {} in \
             image {slot} contains them, so the next restart does not replay them",
            named.image(slot).k.0
        ));
        Ok(())
    }
}

impl Core {
    /// Returns the typed tables. A closure of [`Core::transact`] needs them to make a [`Cx`].
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.typed().registry
    }

    /// Runs a procedure as one serial transaction.
    ///
    /// # Errors
    /// The procedure's own error if it aborts; its changes are undone. Also the errors of a write.
    pub fn call<P: Procedure>(&self, args: &P::Args) -> Result<(P::Output, Ticket), Abort> {
        self.call_watched::<P>(args, |_| {})
    }

    /// Like [`call`](Self::call). `watch` is called with the transaction at the end of each run.
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
        let manner = Manner::new(self.clock().wall_us() / 1000, says);
        self.executor().run_as(&homes.partitions(), &manner, |tx| {
            let done = P::run(&mut Cx::new(tx, &typed.registry), args.clone());
            watch(tx);
            done
        })
    }
}
