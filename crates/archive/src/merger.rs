//! The merge daemon: which runs are merged, and when their files go. One I/O a step.
//!
//! # The rule
//! A *tier* is a level. As soon as a tier has [`fan_in`](MergerOptions::fan_in) neighbouring runs, the oldest of them
//! become one run of the next tier; lower tiers come first. Runs of one tier were made of equally many runs of level 0, so
//! they are of about one size, and a record is written once a tier. The tiers descend from the oldest run to the newest,
//! so the archive has fewer than `fan_in` runs a tier, and as many tiers as the logarithm of its runs of level 0.
//!
//! A merged file has at most [`bytes_max`](MergerOptions::bytes_max): of the runs that would make a longer one, only the first
//! are merged. Runs of which two are too much stay as they are; only these are not bounded in number.
//!
//! # Net change
//! Runs of level 0 keep each record. In merged ones the records of a page are combined, if the policy says which moments
//! are kept; the images that part them are those of the manifest with which the merge begins. An image that begins later
//! has a number above every tag in the inputs.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.3: asynchronous merging by a daemon.
//! # Deviations
//! The paper leaves open which runs are merged.

use std::sync::Arc;

use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, Result};
use perdura_page::RegionDigest;

use crate::manifest::object::RUNS;
use crate::manifest::{Edit, Manifest, Object, ObjectId};
use crate::merge::{Keep, Merge, MergeOptions};
use crate::name::{EpochRange, RunId};
use crate::reader::Run;
use crate::run::{Codec, Moment};
use crate::store::{Lease, Publication, Published, Store};
use crate::writer::{Progress, RunSummary};

/// Says which of the moments listed by the inputs the merged run keeps, at most 1,000. `None`: no records are combined, and each
/// epoch stays a moment.
pub type Policy = Arc<dyn Fn(RunId, &[Moment]) -> Option<Vec<Moment>> + Send + Sync>;

/// How an archive is merged.
#[derive(Clone)]
pub struct MergerOptions {
    /// How many runs become one, at least 2.
    pub fan_in: usize,
    /// Bytes of a merged run at most, taken as the sum of its inputs'.
    pub bytes_max: u64,
    /// The codec of merged runs.
    pub codec: Codec,
    /// Which moments are kept.
    pub policy: Policy,
}

impl Default for MergerOptions {
    /// Ten runs become one, of 16 GiB at most, and no records are combined.
    fn default() -> MergerOptions {
        MergerOptions {
            fan_in: 10,
            bytes_max: 16 * 1024 * 1024 * 1024,
            codec: Codec::default(),
            policy: Arc::new(|_, _| None),
        }
    }
}

/// A run that has replaced others.
#[derive(Debug)]
pub struct MergedRun {
    /// The run.
    pub id: RunId,
    /// How many it replaces.
    pub inputs: usize,
    /// Their bytes.
    pub bytes_in: u64,
    /// Its own.
    pub bytes_out: u64,
    /// The manifest that names it.
    pub published: Published,
}

/// What a step did.
#[derive(Debug)]
pub enum MergerStep {
    /// Nothing: no runs are to be merged.
    Idle,
    /// It went on.
    Worked,
    /// Runs are replaced by this one.
    Merged(MergedRun),
    /// A merged run was given up, because the archive has changed meanwhile in a way that it does not fit.
    GivenUp(RunId, Error),
}

enum Stage {
    Idle,
    Open(Vec<RunId>, Vec<Arc<Run>>),
    Merge(Box<Merge>, Sources, Option<Vec<Epoch>>),
    Publish(Box<Publication>, Sources, RunSummary),
}

/// What a merged run is made of.
struct Sources {
    runs: Vec<RunId>,
    bytes: u64,
}

/// Merges the runs of an archive.
pub struct Merger {
    store: Arc<Store>,
    options: MergerOptions,
    digest: Arc<RegionDigest>,
    stage: Stage,
    /// Merges that were given up: each has a name of its own.
    given_up: u32,
    _lease: Lease,
}

/// The runs that are merged next: the oldest ones of the lowest tier that has enough.
#[must_use]
pub fn choose(manifest: &Manifest, fan_in: usize, bytes_max: u64) -> Option<Vec<RunId>> {
    let run = |object: &Object| object.id.run().map(|id| (id, object.bytes));
    let runs: Vec<(RunId, u64)> = manifest.objects.iter().filter_map(run).collect();
    let tiers = runs.chunk_by(|a, b| a.0.level == b.0.level);
    let full = tiers.filter(|tier| tier.len() >= fan_in && tier[0].0.level < u8::MAX);
    let mut full: Vec<&[(RunId, u64)]> = full.collect();
    full.sort_by_key(|tier| tier[0].0.level);
    debug_assert!(fan_in >= 2, "one run is not merged");
    full.into_iter()
        .find_map(|tier| within(tier, fan_in, bytes_max))
}

/// The first runs of a tier that make a file within the bound; `None` if no two neighbours do.
fn within(tier: &[(RunId, u64)], fan_in: usize, bytes_max: u64) -> Option<Vec<RunId>> {
    for from in 0..tier.len() {
        let mut bytes = 0u64;
        let fits = |(_, more): &&(RunId, u64)| {
            bytes = bytes.saturating_add(*more);
            bytes <= bytes_max
        };
        let some: Vec<RunId> = tier[from..]
            .iter()
            .take(fan_in)
            .take_while(fits)
            .map(|r| r.0)
            .collect();
        if some.len() >= 2 {
            return Some(some);
        }
        if tier.len() - from <= fan_in {
            break;
        }
    }
    None
}

impl Merger {
    /// Takes the right to merge.
    ///
    /// # Errors
    /// As [`Store::lease_merging`]; [`Error::Usage`] for a fan-in below 2.
    pub fn new(
        store: Arc<Store>,
        options: MergerOptions,
        digest: Arc<RegionDigest>,
    ) -> Result<Merger> {
        if options.fan_in < 2 {
            return Err(Error::Usage(format!(
                "{} runs cannot become one",
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
            _lease: lease,
        })
    }

    /// The archive.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Goes on by one I/O; a step that opens a run reads its two ends.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a run that is damaged; as [`Publication::step`]; the disk's. The merge that was going on is
    /// given up, its inputs stay, and the next step begins another one.
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
                let chosen = choose(&manifest, self.options.fan_in, self.options.bytes_max);
                let Some(inputs) = chosen else {
                    return Ok(MergerStep::Idle);
                };
                self.stage = Stage::Open(inputs, Vec::new());
            }
            Stage::Open(inputs, mut open) => {
                let Some(next) = inputs.get(open.len()) else {
                    self.stage = self.begin(inputs, open)?;
                    return Ok(MergerStep::Worked);
                };
                open.push(self.store.open_run(*next)?);
                self.stage = Stage::Open(inputs, open);
            }
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

    /// Takes steps until no runs are to be merged. Returns the runs that it made.
    ///
    /// # Errors
    /// As [`step`](Self::step).
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

    /// Begins to merge runs that are open.
    fn begin(&self, inputs: Vec<RunId>, open: Vec<Arc<Run>>) -> Result<Stage> {
        assert_eq!(inputs.len(), open.len(), "each input is open");
        let (first, last) = (inputs[0], inputs[inputs.len() - 1]);
        let epochs = EpochRange::new(first.epochs.begin, last.epochs.end);
        let output = RunId {
            epochs: epochs.expect("runs of a manifest ascend"),
            level: first.level + 1,
            generation: self.given_up,
        };
        let keep = self.keep(output, &open);
        let kept = keep
            .as_ref()
            .map(|keep| keep.moments.iter().map(|m| m.epoch).collect());
        let options = MergeOptions {
            generation: output.generation,
            codec: self.options.codec,
            keep,
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

    /// What must stay apart in the merged run; `None` if no records are combined.
    fn keep(&self, output: RunId, inputs: &[Arc<Run>]) -> Option<Keep> {
        let lists = inputs.iter().flat_map(|run| run.moments().list());
        let listed: Vec<Moment> = lists.copied().collect();
        let is_combined = inputs.iter().any(|run| run.header().only_listed_moments);
        let all = is_combined.then(|| listed.clone());
        let mut moments = (self.options.policy)(output, &listed).or(all)?;
        let manifest = self.store.manifest();
        let mut images = manifest.images.clone();
        for object in &manifest.objects {
            match object.id {
                ObjectId::Run(_) => {}
                ObjectId::Sweep(id) => images.retained.push(id.k),
                ObjectId::Cut(id) => moments.push(moment_at(id.end, &listed)),
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
        Some(Keep { moments, images })
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

/// A moment at an epoch, with the clock of the last one listed before.
fn moment_at(epoch: Epoch, listed: &[Moment]) -> Moment {
    let before = listed.partition_point(|moment| moment.epoch <= epoch);
    let wall_us = before.checked_sub(1).map_or(0, |i| listed[i].wall_us);
    Moment { epoch, wall_us }
}
