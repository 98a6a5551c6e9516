//! The runs that a reader of the archive can use.

use std::sync::Arc;

use perdura_base::{Error, Result};
use perdura_page::RegionDigest;

use super::{Store, restart};
use crate::manifest::object::RUNS;
use crate::manifest::{Manifest, object_damage};
use crate::name::RunId;
use crate::reader::Run;

impl Store {
    /// Opens all runs: the runs of the newest manifest, then undamaged runs that no manifest names. A crash leaves an
    /// unnamed run if the run is published and no manifest names the run yet. A reader needs the unnamed run, because
    /// the run's epochs in the log may be lost with the database.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a missing or damaged run, and for runs that leave a gap or partly overlap; errors of the
    /// disk.
    pub fn readable_runs(&self) -> Result<Vec<Arc<Run>>> {
        self.with_newest(|manifest| self.runs_by(manifest))
    }

    /// Calls `read` with the newest manifest. Calls it again if it fails and the manifest is no longer the newest: a writer
    /// may have removed files that the manifest names.
    ///
    /// # Errors
    /// Errors of `read`; errors of the disk.
    pub fn with_newest<T>(&self, mut read: impl FnMut(&Manifest) -> Result<T>) -> Result<T> {
        loop {
            let manifest = self.refresh()?;
            match read(&manifest) {
                Err(_) if self.refresh()?.number != manifest.number => {}
                found => return found,
            }
        }
    }

    fn runs_by(&self, manifest: &Manifest) -> Result<Vec<Arc<Run>>> {
        let mut runs = Vec::new();
        for id in manifest.runs() {
            match self.open_run(id) {
                Err(error) if error.is_not_found() => {
                    let path = self.path(&id.path(RUNS));
                    return Err(object_damage(
                        &path,
                        0,
                        "a run that the manifest names",
                        "no file",
                    ));
                }
                run => runs.push(run?),
            }
        }
        for id in self.unnamed_runs(manifest)? {
            runs.push(self.open_run(id)?);
        }
        assert!(
            runs.windows(2)
                .all(|pair| pair[0].id().epochs.end == pair[1].id().epochs.begin),
            "the runs tile their epochs"
        );
        Ok(runs)
    }

    /// Returns the undamaged runs that continue the archive but are not in a manifest.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for runs that leave a gap or partly overlap; errors of the disk.
    pub fn unnamed_runs(&self, manifest: &Manifest) -> Result<Vec<RunId>> {
        let names = self.disk.list(&self.runs_dir())?;
        let plan = restart::judge_runs(manifest, &self.dir, &names)?;
        let region = RegionDigest::new();
        let mut whole = Vec::new();
        for id in plan.adopt {
            match self.open_run(id).and_then(|run| run.verify(&region)) {
                Ok(_) => whole.push(id),
                Err(Error::Corrupt(_)) => break,
                Err(error) if error.is_not_found() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }
}
