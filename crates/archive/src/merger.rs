//! The merge daemon: it chooses runs, merges them and publishes the merged run, one I/O a step.
//!
//! # The rule
//! A *tier* is a level. Once a tier has [`fan_in`](MergerOptions::fan_in) neighbouring runs, the oldest `fan_in` runs
//! become one run of the next tier. The merger looks at lower tiers first. Each run of a tier comes from about the same
//! number of level-0 runs, so the runs of a tier have about equal sizes. A record is written once for each tier. The
//! tier never increases from an older run to a newer run. So each tier keeps fewer than `fan_in` runs. For n level-0
//! runs, the number of tiers is the logarithm of n to base `fan_in`.
//!
//! A merged file has at most [`bytes_max`](MergerOptions::bytes_max) bytes. If the chosen runs together are longer,
//! only the first few runs are merged. Two neighbours that together are too long are not merged. A merged run also
//! lists at most 1,000 moments. If the chosen runs have more promised moments, only the first runs are merged. If even
//! the first two runs have too many, they are not merged until the moments are older. These bounds limit the size of a
//! run, but not the number of runs.
//!
//! # Net change
//! Runs of level 0 keep each record. A merge combines the records of a page if the policy says which moments to keep
//! (see [`retention`](crate::retention)). It does not combine records that an image separates. When a merge begins, it
//! reads the list of images from the newest manifest. An image that begins later cannot separate records of
//! the inputs, because its checkpoint epoch is above every tag in the inputs.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.3: asynchronous merging by a daemon.
//! # Deviations
//! The paper does not say how to choose the runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, Result};
use perdura_page::RegionDigest;

use crate::manifest::object::RUNS;
use crate::manifest::{Clock, Edit, Manifest, Object, ObjectId};
use crate::merge::{Keep, Merge, MergeOptions};
use crate::name::{EpochRange, RunId};
use crate::reader::Run;
use crate::run::{Codec, MOMENTS_MAX, Moment};
use crate::store::{Lease, Publication, Published, Store};
use crate::writer::{Progress, RunSummary};

/// The moments that a merged run keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No records are combined, and each epoch stays a moment.
    Each,
    /// Like [`Each`](Verdict::Each), but the run lists these moments, because a later merge must keep them.
    Listing(Vec<Moment>),
    /// Records are combined. Then a restore can stop only at these moments or at the end of the run.
    Only(Vec<Moment>),
}

/// A function that chooses the moments of a merged run. The function chooses from the moments that the inputs list.
pub type Policy = Arc<dyn Fn(&Clock, &[Moment]) -> Verdict + Send + Sync>;

/// The count of idle steps before a new attempt to merge the waiting runs.
const WAITS_IDLE: u32 = 64;
/// The maximum number of inputs of one merge.
const INPUTS_MAX: usize = 256;

/// The options of a merger.
#[derive(Clone)]
pub struct MergerOptions {
    /// The number of runs that become one run; at least 2.
    pub fan_in: usize,
    /// The maximum size of a merged run, bytes. The merger compares it with the sum of the inputs' sizes.
    pub bytes_max: u64,
    /// The codec of merged runs.
    pub codec: Codec,
    /// The function that chooses the moments to keep.
    pub policy: Policy,
    /// True if neighbouring runs are merged whatever their tiers when no tier is full.
    pub all: bool,
}

impl Default for MergerOptions {
    /// Returns the default options: ten runs become one run of at most 16 GiB, and no records are combined.
    fn default() -> MergerOptions {
        MergerOptions {
            fan_in: 10,
            bytes_max: 16 * 1024 * 1024 * 1024,
            codec: Codec::default(),
            policy: Arc::new(|_, _| Verdict::Each),
            all: false,
        }
    }
}

/// A merged run. It has replaced the inputs.
#[derive(Debug)]
pub struct MergedRun {
    /// The run.
    pub id: RunId,
    /// The number of runs that were merged.
    pub inputs: usize,
    /// The total size of the inputs, bytes.
    pub bytes_in: u64,
    /// The size of the merged run, bytes.
    pub bytes_out: u64,
    /// The manifest that names the merged run.
    pub published: Published,
}

/// The result of a step.
#[derive(Debug)]
pub enum MergerStep {
    /// The archive has no runs to merge.
    Idle,
    /// The merger made an I/O.
    Worked,
    /// A merged run has replaced its inputs.
    Merged(MergedRun),
    /// The merger discarded a merged run, because the archive changed during the merge and the run no longer fits.
    GivenUp(RunId, Error),
}

enum Stage {
    Idle,
    Open(Vec<RunId>, Vec<Arc<Run>>),
    /// All inputs are open.
    Begin(Vec<RunId>, Vec<Arc<Run>>),
    Merge(Box<Merge>, Sources, Option<Vec<Epoch>>),
    Publish(Box<Publication>, Sources, RunSummary),
}

/// The records and the moments that a merged run keeps.
enum Kept {
    /// All records, uncombined. The run lists the given moments. `None`: the run lists a sample of its inputs' moments.
    Each(Option<Vec<Moment>>),
    /// Combined records. A record from before one of these moments or images is not combined with a record from after
    /// it.
    Only(Keep),
}

/// The inputs of a merged run.
struct Sources {
    runs: Vec<RunId>,
    bytes: u64,
}

/// A state machine that merges the runs of an archive.
pub struct Merger {
    store: Arc<Store>,
    options: MergerOptions,
    digest: Arc<RegionDigest>,
    stage: Stage,
    /// The count of merges that were discarded. It makes the name of each merged run unique.
    given_up: u32,
    /// The runs that for now must not be the first input of a merge. Such a run and the next run together have more
    /// promised moments than one run can list.
    waits: BTreeSet<RunId>,
    /// The count of idle steps since the runs in `waits` were last tried.
    idle: u32,
    _lease: Lease,
}

/// Returns the runs of a manifest and their sizes.
fn runs_of(manifest: &Manifest) -> Vec<(RunId, u64)> {
    let run = |object: &Object| object.id.run().map(|id| (id, object.bytes));
    manifest.objects.iter().filter_map(run).collect()
}

/// Chooses the runs to merge next: the oldest runs of the lowest tier that has `fan_in` neighbouring runs. `None`: no
/// tier is full.
#[must_use]
pub fn choose(manifest: &Manifest, fan_in: usize, bytes_max: u64) -> Option<Vec<RunId>> {
    choose_but(manifest, fan_in, bytes_max, &BTreeSet::new())
}

/// Chooses runs as [`choose`] does, but never a run of `waits` as the first of the chosen runs.
fn choose_but(
    manifest: &Manifest,
    fan_in: usize,
    bytes_max: u64,
    waits: &BTreeSet<RunId>,
) -> Option<Vec<RunId>> {
    let runs = runs_of(manifest);
    let tiers = runs.chunk_by(|a, b| a.0.level == b.0.level);
    let full = tiers.filter(|tier| tier.len() >= fan_in && tier[0].0.level < u8::MAX);
    let mut full: Vec<&[(RunId, u64)]> = full.collect();
    full.sort_by_key(|tier| tier[0].0.level);
    debug_assert!(fan_in >= 2, "one run is not merged");
    full.into_iter()
        .find_map(|tier| within(tier, fan_in, fan_in, bytes_max, waits))
}

/// Returns the oldest neighbouring runs of `tier` that can be merged. They are two to `at_most` runs and have at most
/// `bytes_max` bytes in total. The first of them is not in `waits`, and `tier` has at least `enough` runs from this run
/// on. `None`: no two neighbours fit.
fn within(
    tier: &[(RunId, u64)],
    enough: usize,
    at_most: usize,
    bytes_max: u64,
    waits: &BTreeSet<RunId>,
) -> Option<Vec<RunId>> {
    for from in 0..=tier.len().saturating_sub(enough) {
        if waits.contains(&tier[from].0) {
            continue;
        }
        let mut bytes = 0u64;
        let fits = |(_, more): &&(RunId, u64)| {
            bytes = bytes.saturating_add(*more);
            bytes <= bytes_max
        };
        let some: Vec<RunId> = tier[from..]
            .iter()
            .take(at_most)
            .take_while(fits)
            .map(|r| r.0)
            .collect();
        if some.len() >= 2 {
            return Some(some);
        }
    }
    None
}

impl Merger {
    /// Takes the lock for merging. No other process can merge in the archive until the merger is dropped.
    ///
    /// # Errors
    /// Those of [`Store::lease_merging`]; [`Error::Usage`] for a fan-in below 2.
    pub fn new(
        store: Arc<Store>,
        options: MergerOptions,
        digest: Arc<RegionDigest>,
    ) -> Result<Merger> {
        if options.fan_in < 2 {
            return Err(Error::Usage(format!(
                "{} runs cannot be merged into one",
                options.fan_in
            )));
        }
        let lease = store.lease_merging()?;
        Ok(Merger {
            store,
            options,
            digest,
            stage: Stage::Idle,
            given_up: 0,
            waits: BTreeSet::new(),
            idle: 0,
            _lease: lease,
        })
    }

    /// Returns the archive.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Makes one I/O. A step that opens a run makes more: it reads the run's header, its footer, and the parts between
    /// the blocks and the footer.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged run; errors of [`Publication::step`] and of the disk. An error discards the
    /// merge in progress; the inputs stay. The next step begins a new merge.
    pub fn step(&mut self) -> Result<MergerStep> {
        let step = self.advance();
        if matches!(step, Err(_) | Ok(MergerStep::GivenUp(..))) {
            self.given_up = self.given_up.wrapping_add(1);
        }
        step
    }

    fn advance(&mut self) -> Result<MergerStep> {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => {
                let manifest = self.store.refresh()?;
                let Some(inputs) = self.choose(&manifest) else {
                    self.idle += 1;
                    if self.idle >= WAITS_IDLE {
                        self.idle = 0;
                        self.waits.clear();
                    }
                    return Ok(MergerStep::Idle);
                };
                self.stage = Stage::Open(inputs, Vec::new());
            }
            Stage::Open(inputs, mut open) => {
                open.push(self.store.open_run(inputs[open.len()])?);
                self.stage = if open.len() < inputs.len() {
                    Stage::Open(inputs, open)
                } else {
                    Stage::Begin(inputs, open)
                };
            }
            Stage::Begin(inputs, open) => self.stage = self.begin(inputs, open)?,
            Stage::Merge(mut merge, sources, kept) => match merge.step()? {
                Progress::More => self.stage = Stage::Merge(merge, sources, kept),
                Progress::Done(summary) => self.stage = self.replace(summary, sources, kept),
            },
            Stage::Publish(mut publication, sources, output) => match publication.step() {
                Ok(Progress::More) => self.stage = Stage::Publish(publication, sources, output),
                Ok(Progress::Done(published)) => {
                    return Ok(MergerStep::Merged(MergedRun {
                        id: output.id,
                        inputs: sources.runs.len(),
                        bytes_in: sources.bytes,
                        bytes_out: output.bytes,
                        published,
                    }));
                }
                Err(error @ Error::Usage(_)) => {
                    self.store
                        .disk()
                        .remove(&self.store.path(&output.id.path(RUNS)))?;
                    return Ok(MergerStep::GivenUp(output.id, error));
                }
                Err(error) => return Err(error),
            },
        }
        Ok(MergerStep::Worked)
    }

    /// Takes steps until there are no runs to merge. Returns the merged runs.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(&mut self) -> Result<Vec<RunId>> {
        let mut made = Vec::new();
        loop {
            match self.step()? {
                MergerStep::Idle => return Ok(made),
                MergerStep::Merged(merged) => made.push(merged.id),
                MergerStep::Worked | MergerStep::GivenUp(..) => {}
            }
        }
    }

    /// Chooses the runs to merge next.
    fn choose(&self, manifest: &Manifest) -> Option<Vec<RunId>> {
        let MergerOptions {
            fan_in,
            bytes_max,
            all,
            ..
        } = self.options;
        choose_but(manifest, fan_in, bytes_max, &self.waits).or_else(|| {
            let runs = runs_of(manifest);
            let may_rise = |(run, _): &&(RunId, u64)| run.level < u8::MAX;
            let runs: Vec<(RunId, u64)> = runs.iter().take_while(may_rise).copied().collect();
            (all && runs.len() >= 2)
                .then(|| within(&runs, 2, INPUTS_MAX, bytes_max, &self.waits))
                .flatten()
        })
    }

    /// Begins to merge open runs. Drops the last inputs until one merged run can list all moments that it must keep.
    fn begin(&mut self, mut inputs: Vec<RunId>, mut open: Vec<Arc<Run>>) -> Result<Stage> {
        assert_eq!(inputs.len(), open.len(), "each input is open");
        // A merged run would claim to carry frames that an input lacks.
        let carries = open[0].header().carries_frames;
        let alike = |run: &&Arc<Run>| run.header().carries_frames == carries;
        let alike = open.iter().take_while(alike).count();
        inputs.truncate(alike);
        open.truncate(alike);
        let (output, kept_moments) = loop {
            if inputs.len() < 2 {
                self.waits.insert(inputs[0]);
                return Ok(Stage::Idle);
            }
            let (first, last) = (inputs[0], inputs[inputs.len() - 1]);
            let epochs = EpochRange::new(first.epochs.begin, last.epochs.end);
            let highest = inputs.iter().map(|run| run.level).max().unwrap_or(0);
            let output = RunId {
                epochs: epochs.expect("runs of a manifest ascend"),
                level: highest + 1,
                generation: self.given_up,
            };
            if let Some(kept) = self.kept(output, &open) {
                break (output, kept);
            }
            inputs.pop();
            open.pop();
        };
        let (keep, listed) = match kept_moments {
            Kept::Each(listed) => (None, listed),
            Kept::Only(keep) => (Some(keep), None),
        };
        let kept = keep
            .as_ref()
            .map(|keep| keep.moments.iter().map(|m| m.epoch).collect());
        let options = MergeOptions {
            generation: output.generation,
            codec: self.options.codec,
            keep,
            listed,
            begin: None,
        };
        let sources = Sources {
            bytes: open.iter().map(|run| run.bytes()).sum(),
            runs: inputs,
        };
        let merge = Merge::new(
            Arc::clone(self.store.disk()),
            &self.store.runs_dir(),
            open,
            options,
            Arc::clone(&self.digest),
        )?;
        Ok(Stage::Merge(Box::new(merge), sources, kept))
    }

    /// Returns the records and the moments that the merged run keeps. `None`: the run would have to keep more moments
    /// than it can list.
    fn kept(&self, output: RunId, inputs: &[Arc<Run>]) -> Option<Kept> {
        let lists = inputs.iter().flat_map(|run| run.moments().list());
        let listed: Vec<Moment> = lists.copied().collect();
        let combined = inputs.iter().filter(|run| run.header().only_listed_moments);
        let combined = combined.count();
        let clock = &self.store.manifest().clock;
        let moments = match (self.options.policy)(clock, &listed) {
            Verdict::Only(moments) => moments,
            Verdict::Each if combined == 0 => return Some(Kept::Each(None)),
            Verdict::Listing(list) if combined == 0 => {
                return (list.len() <= MOMENTS_MAX).then_some(Kept::Each(Some(list)));
            }
            Verdict::Each | Verdict::Listing(_) if combined == inputs.len() => listed.clone(),
            // Only some inputs were combined. Each epoch of the uncombined inputs must stay a moment, and a list cannot
            // name all these epochs.
            Verdict::Each | Verdict::Listing(_) => return None,
        };
        let keep = self.keep(output, &listed, moments);
        // The list also contains the end of the run.
        (keep.moments.len() < MOMENTS_MAX).then_some(Kept::Only(keep))
    }

    /// Returns the moments and the images across which the merged run must not combine records. The moments are
    /// `moments` and those of the manifest's cuts. The images are those of the manifest, and those that the manifest
    /// lists as copies.
    fn keep(&self, output: RunId, listed: &[Moment], mut moments: Vec<Moment>) -> Keep {
        let manifest = self.store.manifest();
        let mut images = manifest.images.clone();
        for object in &manifest.objects {
            match object.id {
                // No page record is of a page that an increment has.
                ObjectId::Run(_) | ObjectId::Increment(_) => {}
                ObjectId::Sweep(id) => images.retained.push(id.k),
                ObjectId::Cut(id) => moments.push(moment_at(id.end, listed)),
            }
        }
        moments.retain(|moment| output.epochs.contains(moment.epoch));
        moments.sort_by_key(|moment| moment.epoch);
        moments.dedup_by_key(|moment| moment.epoch);
        images.retained.sort_unstable();
        images.retained.dedup();
        debug_assert!(
            to_u64(images.retained.len()) >= to_u64(manifest.images.retained.len()),
            "no image is forgotten"
        );
        Keep { moments, images }
    }

    fn replace(&self, output: RunSummary, sources: Sources, kept: Option<Vec<Epoch>>) -> Stage {
        let inputs = sources.runs.clone();
        assert!(
            inputs.iter().all(|input| input.level < output.id.level),
            "a merged run is of a higher tier"
        );
        let edit = Edit::Replace {
            inputs,
            output: Object::of(&output),
            kept,
        };
        Stage::Publish(Box::new(self.store.publish(edit)), sources, output)
    }
}

/// Returns a moment at `epoch`. The moment gets the wall clock of the last listed moment that is not after `epoch`. If
/// none is, it gets that of the first listed moment: retention then keeps the moment longer, and not shorter. Without a
/// listed moment, the wall clock is 0.
fn moment_at(epoch: Epoch, listed: &[Moment]) -> Moment {
    let before = listed.partition_point(|moment| moment.epoch <= epoch);
    let nearest = listed.get(before.saturating_sub(1));
    Moment {
        epoch,
        wall_us: nearest.map_or(0, |moment| moment.wall_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cut before the first listed moment got the time 0. Times of the archive were then refused, because the clock
    /// seemed to have been set back.
    #[test]
    fn a_cut_before_the_first_moment_has_a_time() {
        let listed = [(3, 300), (5, 500)].map(|(epoch, wall_us)| Moment {
            epoch: Epoch(epoch),
            wall_us,
        });
        let times = [2, 3, 4, 5, 9].map(|epoch| moment_at(Epoch(epoch), &listed).wall_us);
        assert_eq!(times, [300, 300, 300, 500, 500]);
        assert_eq!(moment_at(Epoch(1), &[]).wall_us, 0);
    }
}
