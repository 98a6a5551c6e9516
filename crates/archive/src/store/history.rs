//! Comparing an archive's history with the history of a database.

use perdura_base::{Error, LifeId, Result};
use perdura_wal::Lineage;

use super::Store;
use crate::manifest::Manifest;
use crate::name::RunId;
use crate::reader::Run;

impl Store {
    /// Fails unless the database with these lives has the archive's history. Runs that no manifest names yet are a part
    /// of the archive.
    ///
    /// # Errors
    /// [`Error::OtherHistory`]; [`Error::Corrupt`] for runs that leave a gap or partly overlap; errors of the disk.
    pub fn check_history(&self, database: &Lineage) -> Result<()> {
        let manifest = self.manifest();
        self.check_manifest(database, &manifest, &manifest.lineage()?)?;
        self.check_runs(database, &self.unnamed_runs(&manifest)?)
    }

    /// Fails unless a database has the history of the archive in `manifest`. `archived` is the history that the manifest
    /// states.
    pub(super) fn check_manifest(
        &self,
        database: &Lineage,
        manifest: &Manifest,
        archived: &Lineage,
    ) -> Result<()> {
        let end = manifest.held().0;
        let Err(refused) = database.check_has(archived, end) else {
            return Ok(());
        };
        // A manifest that was made of the files has an older anchor than its last run. The run names its life.
        let last = manifest.runs().last().map(|id| self.open_run(id));
        match last {
            Some(Ok(run)) if run.header().life != LifeId(0) && run.id().epochs.last() == end => {
                check_run(database, &run)
            }
            _ => Err(refused),
        }
    }

    /// Fails if one of these runs has epochs of a history that the database does not have. A damaged run has none.
    pub(super) fn check_runs(&self, database: &Lineage, runs: &[RunId]) -> Result<()> {
        for id in runs {
            match self.open_run(*id) {
                Err(Error::Corrupt(_)) => {}
                run => check_run(database, run?.as_ref())?,
            }
        }
        Ok(())
    }
}

/// Fails unless a database has the history of a run. The run names the life of its last epoch.
fn check_run(database: &Lineage, run: &Run) -> Result<()> {
    let archived = Lineage {
        id: run.header().life,
        past: Vec::new(),
    };
    database.check_has(&archived, run.id().epochs.last())
}

/// Returns the lives that an encoded anchor lists. `of` is a manifest of the anchor's database.
pub(super) fn lives_of(of: &Manifest, anchor: &[u8]) -> Result<Lineage> {
    let with = Manifest {
        anchor: anchor.to_vec(),
        ..of.clone()
    };
    with.database_lineage()
}
