//! Comparing an archive's history with the history of a database.

use perdura_base::{Error, Result};
use perdura_wal::Lineage;

use super::Store;
use crate::manifest::Manifest;
use crate::name::RunId;

impl Store {
    /// Fails unless the database with these lives has the archive's history. Runs that no manifest names yet are a part
    /// of the archive.
    ///
    /// # Errors
    /// [`Error::OtherHistory`]; [`Error::Corrupt`] for runs that leave a gap or partly overlap; errors of the disk.
    pub fn check_history(&self, database: &Lineage) -> Result<()> {
        let manifest = self.manifest();
        database.check_has(&manifest.lineage()?, manifest.held().0)?;
        self.check_runs(database, &self.unnamed_runs(&manifest)?)
    }

    /// Fails if one of these runs has epochs of a history that the database does not have. A damaged run has none.
    pub(super) fn check_runs(&self, database: &Lineage, runs: &[RunId]) -> Result<()> {
        for id in runs {
            let run = match self.open_run(*id) {
                Err(Error::Corrupt(_)) => continue,
                run => run?,
            };
            let archived = Lineage {
                id: run.header().life,
                past: Vec::new(),
            };
            database.check_has(&archived, id.epochs.last())?;
        }
        Ok(())
    }
}

/// Returns the lives that an encoded anchor lists. `of` is a manifest of the anchor's database.
pub(super) fn lives_of(of: &Manifest, anchor: &[u8]) -> Result<Lineage> {
    let with = Manifest {
        anchor: anchor.to_vec(),
        ..of.clone()
    };
    with.database_lineage()
}
