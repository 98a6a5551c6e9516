//! The runs that a restore may read. Only a few runs are open at a time.

use std::sync::Arc;

use perdura_archive::{Run, RunId, Store};
use perdura_base::{Error, Result};
use perdura_wal::EpochEnds;

/// A run that a restore may read.
#[derive(Clone)]
pub(crate) enum Listed {
    /// A run of the archive, with its size in bytes. It is opened when it is needed.
    Archived(RunId, u64),
    /// A run that is open.
    Open(Arc<Run>),
    /// A run that this restore has made by merging others.
    Merged(Arc<Run>),
}

impl Listed {
    /// Returns the runs of an archive, in the order of their epochs. They are the manifest's runs, and later runs that
    /// no manifest names yet.
    ///
    /// # Errors
    /// As [`Store::unnamed_runs`].
    pub(crate) fn of_archive(store: &Store) -> Result<Vec<Listed>> {
        let manifest = store.manifest();
        let named = manifest.objects.iter().filter_map(|object| {
            let id = object.id.run()?;
            Some(Listed::Archived(id, object.bytes))
        });
        let mut runs: Vec<Listed> = named.collect();
        for id in store.unnamed_runs(&manifest)? {
            runs.push(Listed::Open(store.open_run(id)?));
        }
        assert!(
            runs.windows(2)
                .all(|pair| pair[0].id().epochs.end == pair[1].id().epochs.begin),
            "the runs tile their epochs"
        );
        Ok(runs)
    }

    pub(crate) fn id(&self) -> RunId {
        match self {
            Listed::Archived(id, _) => *id,
            Listed::Open(run) | Listed::Merged(run) => run.id(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Listed::Archived(_, bytes) => *bytes,
            Listed::Open(run) | Listed::Merged(run) => run.bytes(),
        }
    }

    /// Opens the run.
    ///
    /// # Errors
    /// As [`Store::open_run`], but [`Error::Corrupt`] if the file is missing.
    pub(crate) fn open(&self, store: &Store) -> Result<Arc<Run>> {
        match self {
            Listed::Archived(id, _) => store.open_run(*id).map_err(|error| {
                if !error.is_not_found() {
                    return error;
                }
                let (path, found) = (id.path(&store.runs_dir()), "no such file");
                let hint = "Restore the file from another copy of the archive, or restore an earlier moment.";
                Error::corrupt(path, 0, "a run that the manifest names", found, hint)
            }),
            Listed::Open(run) | Listed::Merged(run) => Ok(Arc::clone(run)),
        }
    }
}

/// Returns the end of an archive's runs: the last epoch, and the epoch's end position in each log stream.
///
/// # Errors
/// As [`Listed::of_archive`]; the errors of opening the last run.
pub(crate) fn end_of(store: &Store) -> Result<EpochEnds> {
    let manifest = store.manifest();
    let (epoch, ends) = manifest.held();
    match Listed::of_archive(store)?.last() {
        Some(last) if last.id().epochs.last() > epoch => Ok(EpochEnds {
            epoch: last.id().epochs.last(),
            ends: last.open(store)?.ends().to_vec(),
        }),
        _ => Ok(EpochEnds {
            epoch,
            ends: ends.to_vec(),
        }),
    }
}
