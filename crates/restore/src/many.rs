//! Merges runs before a restore that would otherwise read too many runs simultaneously.
//!
//! Each run that a restore reads costs a file and a buffer for each thread. If there are more runs than a bound, the
//! restore first merges neighbouring runs until few enough are left. Only this restore reads the merged runs. Each
//! merge takes the neighbouring runs with the smallest total size. The moment and the backup are known, so all records
//! of a page between backup and moment become one record.
//!
//! # Source
//! "Single-pass restore after a media failure", section 3.2: "if too many runs exist, an initial merge phase".

use std::sync::Arc;

use perdura_archive::merge::Images;
use perdura_archive::{Codec, Keep, Merge, MergeOptions, Moment, Run, Store};
use perdura_base::{Result, Uuid};
use perdura_page::RegionDigest;

use crate::listed::Listed;
use crate::reach::Reach;
use crate::scratch::Scratch;

/// The maximum number of runs that a restore reads simultaneously. The caller may give another bound.
pub const RUNS_MAX: usize = 128;

/// The data for deciding which records a merge must not combine.
pub(crate) struct Kept {
    pub(crate) reach: Reach,
    pub(crate) images: Images,
    pub(crate) uuid: Uuid,
    /// The number of the attempt to plan the restore. It distinguishes the runs of several attempts.
    pub(crate) generation: u32,
}

/// Finds the `width` neighbouring runs with the smallest total size. Returns the index of the first run.
fn smallest(runs: &[Listed], width: usize) -> usize {
    assert!(
        (2..=runs.len()).contains(&width),
        "there is something to merge"
    );
    let sum = |at: &usize| -> u64 { runs[*at..*at + width].iter().map(Listed::bytes).sum() };
    (0..=runs.len() - width).min_by_key(sum).unwrap_or(0)
}

/// Merges neighbouring runs until at most `runs_max` runs are left. A merge has at most `runs_max` inputs.
///
/// # Errors
/// As [`Merge::new`] and [`Merge::step`]; the errors of opening a run.
pub(crate) fn reduce(
    mut runs: Vec<Listed>,
    runs_max: usize,
    (store, scratch): (&Store, &Scratch),
    kept: &Kept,
) -> Result<Vec<Listed>> {
    assert!(runs_max >= 2, "a bound of {runs_max} runs");
    let digest = Arc::new(RegionDigest::new());
    while runs.len() > runs_max {
        let width = runs_max.min(runs.len() - runs_max + 1);
        let at = smallest(&runs, width);
        let inputs = runs[at..at + width].iter().map(|run| run.open(store));
        let inputs: Vec<Arc<Run>> = inputs.collect::<Result<_>>()?;
        let within = kept.reach.moments();
        let within =
            within.filter(|epoch| inputs.iter().any(|run| run.id().epochs.contains(*epoch)));
        let options = MergeOptions {
            generation: kept.generation,
            codec: Codec::Lz4,
            keep: Some(Keep {
                // The merged run needs no times of moments, because the plan has the time.
                moments: within.map(|epoch| Moment { epoch, wall_us: 0 }).collect(),
                images: kept.images.clone(),
            }),
            ..MergeOptions::default()
        };
        let disk = Arc::clone(scratch.disk());
        let merge = Merge::new(disk, scratch.dir(), inputs, options, Arc::clone(&digest))?;
        let made = merge.run()?;
        let (first, last) = (runs[at].id().epochs, runs[at + width - 1].id().epochs);
        assert_eq!(
            (made.id.epochs.begin, made.id.epochs.end),
            (first.begin, last.end),
            "a merged run has the epochs of its inputs"
        );
        let merged = Listed::Merged(scratch.open(made.id, &kept.uuid)?);
        for run in runs.splice(at..at + width, [merged]) {
            if let Listed::Merged(run) = run {
                scratch.remove(run.id())?;
            }
        }
    }
    assert!(
        runs.windows(2)
            .all(|pair| pair[0].id().epochs.end == pair[1].id().epochs.begin),
        "what is left has all epochs"
    );
    Ok(runs)
}
