//! The tables and procedures that a program declares, made when the database is opened.

use perdura_base::Result;
use perdura_recovery::families::Family;

use crate::core::Core;

impl Core {
    /// Makes the declared tables and procedures that the catalog lacks, and numbers the others. What
    /// their frames are is declared in the anchor before the first of them.
    pub(crate) fn make_typed(&mut self) -> Result<()> {
        let missing = self.typed.missing(&self.heap)?;
        let procedures = self.typed.number_procedures(&self.heap)?;
        if self.typed.registry.has_tables() || !missing.is_empty() {
            self.declare_families()?;
            self.checkpoints.require_cuts();
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

    /// Declares in the anchor what ordered frames the log may hold.
    fn declare_families(&self) -> Result<()> {
        self.anchor.declare(&self.wal, Family::Effects)?;
        if self.typed.logs_commands() {
            self.anchor.declare(&self.wal, Family::Commands)?;
        }
        Ok(())
    }

    /// Puts accepted divergences into an image before work is taken: the log still says what they are not.
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
        self.report.notes.push(format!(
            "the new results of {count} record(s) that differ were taken; checkpoint {} in image {slot} has them, and \
             the next restart replays none of them",
            named.image(slot).k.0
        ));
        Ok(())
    }
}
