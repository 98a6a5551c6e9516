//! The merge of runs that are too many to read side by side: the smallest neighbours come first.
//!
//! Each run that a restore reads costs a file and a buffer for each thread. Above a bound, the restore first merges
//! neighbours into its own runs, the smallest together first, until few enough are left. It knows the moment and the
//! backup, so all records of a page between these become one.
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

/// Runs that a restore reads side by side at most.
pub const RUNS_MAX: usize = 128;

/// The facts that the merged runs must keep apart.
pub(crate) struct Kept {
    pub(crate) reach: Reach,
    pub(crate) images: Images,
    pub(crate) uuid: Uuid,
    /// Distinguishes runs of several attempts.
    pub(crate) generation: u32,
}

/// Returns the first of the `width` neighbours that are the smallest together.
fn smallest(runs: &[Listed], width: usize) -> usize {
    assert!(
        (2..=runs.len()).contains(&width),
        "there is something to merge"
    );
    let sum = |at: &usize| -> u64 { runs[*at..*at + width].iter().map(Listed::bytes).sum() };
    (0..=runs.len() - width).min_by_key(sum).unwrap_or(0)
}

/// Merges neighbours until at most `runs_max` runs are left, never more than that at once.
///
/// # Errors
/// As [`Merge::new`] and [`Merge::step`]; those of a run that cannot be opened.
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
                // The plan has the time of the moment.
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
