//! Merging: neighbouring runs become one run of the next level.
//!
//! The merged run covers the inputs' epochs and has all the inputs' records, sorted. The inputs must be neighbours: no
//! epoch is missing between two inputs. A restore reads the runs side by side, and after merges there are fewer of
//! them.
//!
//! If the options have a [`Keep`], a merge also combines the records of a page into their XOR, a *net change*. Two
//! rules say which records may be combined:
//!
//! * No image, retained or being built, may lie between the *tags* of the records. Then each image contains all of
//!   these changes or none. The net change gets the highest tag. So each image contains the net change if and only if
//!   the image contains the records.
//! * No kept moment may lie between the *epochs* of the records, because a restore to that moment takes only the
//!   records up to it.
//!
//! An image that begins later has a checkpoint epoch above every tag in the archive. So it does not lie between two of
//! these tags. Therefore merges can run while an image is built or a backup is copied.
//!
//! Tags do not always rise with the updates of a page, because a restart gives pages the checkpoint epoch of the image
//! that it loaded. So a merge may have several open net changes of one page. Each combines the records on one side of
//! the images.
//!
//! A net record stores the count, the lowest and the highest of the update numbers, and the sum of the numbers' hashes.
//! A restart's check compares these figures. So a net record is kept even if the bytes of its changes cancel out.
//!
//! # Invariants
//! * A merge proves its result. The merged run must have as many updates as the inputs. For each partition and each
//!   side of the images, the digest of the written records must equal the digest of the inputs. If a record was lost,
//!   doubled or combined wrongly, the merge ends with an error and the inputs stay.
//! * A merge does not change or remove its inputs. The caller removes them when a durable manifest names the merged run
//!   instead.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1 (net change), 3.3 (asynchronous merging).
//! # Deviations
//! The paper mentions net changes without saying when records must not be combined.

mod frames;
mod net;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, PartitionId, Pos, Result};
use perdura_device::Disk;
use perdura_page::RegionDigest;

pub use net::{Images, Keep};
pub use tree::Merged;

use crate::name::{EpochRange, RunId};
use crate::reader::{Run, Scope};
use crate::run::{Codec, Digests, MOMENTS_MAX, Moment, Moments, RunHeader};
use crate::writer::{DigestSum, Progress, RunSummary, RunWriter, Tail};
use frames::MergedFrames;
use net::NetChange;

/// The options of a merge.
#[derive(Debug, Clone, Default)]
pub struct MergeOptions {
    /// The generation of the merged run.
    pub generation: u32,
    /// The codec of the merged run's blocks.
    pub codec: Codec,
    /// The moments and images that must not lie between combined records. `None`: no records are combined.
    pub keep: Option<Keep>,
    /// The moments that the merged run lists. They must be moments of the inputs. The list is used only if no records
    /// are combined. `None`: the merged run lists a sample of the inputs' moments.
    pub listed: Option<Vec<Moment>>,
    /// The epoch after an archive's last one. The archive may already have the first epochs of the inputs, so their
    /// records are left out. The run that follows the archive is of level 0, like the archiver's runs, and none of its
    /// records are combined. `None`: the run begins where its first input begins.
    pub begin: Option<Epoch>,
}

/// A merge in progress. A step makes one I/O, or a read and a write.
pub struct Merge {
    inputs: Vec<Arc<Run>>,
    keep: Option<Keep>,
    moments: Moments,
    /// The count and the digests of the left-out updates. The inputs have these updates, and the merged run does not.
    left_out: (u64, Digests),
    /// The number of left-out frames.
    left_out_frames: u64,
    stage: Stage,
}

enum Stage {
    Merge(Box<Working>),
    /// The records are merged, and the ordered frames follow.
    Frames(Box<Working>),
    Tail(Box<Tail>),
    /// The merge is done, or has failed.
    Over,
}

struct Working {
    merged: Merged,
    net: Option<NetChange>,
    frames: MergedFrames,
    writer: RunWriter,
    header: RunHeader,
    /// The count and the digests of the updates in all records that were left out so far.
    left_out: (u64, DigestSum),
}

/// Returns the epochs that the inputs cover together. Fails if the runs are not neighbours or belong to different
/// databases.
fn neighbours(inputs: &[Arc<Run>]) -> Result<EpochRange> {
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else {
        return Err(Error::Usage("a merge needs a run".into()));
    };
    for pair in inputs.windows(2) {
        let [left, right] = pair else { continue };
        let (before, after) = (left.header(), right.header());
        if (before.uuid, before.chunks) != (after.uuid, after.chunks) {
            return Err(Error::Usage(format!(
                "{} and {} are runs of different databases",
                left.id().name(),
                right.id().name()
            )));
        }
        let follows = before.id.epochs.end == after.id.epochs.begin;
        if !follows && !armed(Flaw::MergeOfStrangers) {
            return Err(Error::Usage(format!(
                "{} and {} are not adjacent: the merged run would lack some epochs, or contain \
                 some twice",
                left.id().name(),
                right.id().name()
            )));
        }
    }
    let (begin, end) = (first.id().epochs.begin, last.id().epochs.end);
    EpochRange::new(begin, end)
        .ok_or_else(|| Error::Usage(format!("runs of epochs {begin} to {end} are not in order")))
}

/// Returns the epochs and the level of the merged run.
fn place(inputs: &[Arc<Run>], options: &MergeOptions) -> Result<(EpochRange, u8)> {
    let epochs = neighbours(inputs)?;
    let Some(begin) = options.begin else {
        let highest = inputs.iter().map(|run| run.id().level).max().unwrap_or(0);
        let level = highest.checked_add(1);
        let level = level
            .ok_or_else(|| Error::Usage("a run of level 255 cannot be merged again".into()))?;
        return Ok((epochs, level));
    };
    let own = EpochRange::new(begin, epochs.end).filter(|_| epochs.begin <= begin);
    let own = own.filter(|_| options.keep.is_none());
    let own = own.ok_or_else(|| {
        let first = epochs.begin;
        Error::Usage(format!(
            "runs of epochs {first} to {} do not continue an archive that ends before epoch {begin}",
            epochs.end
        ))
    })?;
    Ok((own, 0))
}

/// Returns the moments that the merged run lists. If records are combined, the list has the kept moments and the run's
/// last epoch. If not, the list is `options.listed`. Without `options.listed`, it is a sample of the inputs' moments.
fn moments(inputs: &[Arc<Run>], epochs: EpochRange, options: &MergeOptions) -> Result<Moments> {
    let listed = |run: &&Arc<Run>| run.header().only_listed_moments;
    let Some(keep) = &options.keep else {
        if let Some(run) = inputs.iter().find(listed) {
            return Err(Error::Usage(format!(
                "records of {} have been combined already. Say which moments the merged run keeps",
                run.id().name()
            )));
        }
        if let Some(list) = &options.listed {
            return Ok(Moments::sampled(list));
        }
        let all = inputs
            .iter()
            .flat_map(|run| run.moments().list().iter().copied());
        let own = all.filter(|moment| epochs.contains(moment.epoch));
        return Ok(Moments::sampled(&own.collect::<Vec<Moment>>()));
    };
    let mut list: Vec<Moment> = Vec::new();
    for moment in keep.moments.iter().filter(|m| epochs.contains(m.epoch)) {
        if !inputs.iter().any(|run| run.has_moment(moment.epoch)) {
            return Err(Error::Usage(format!(
                "epoch {} is no longer a moment of any run, so a merged run cannot keep it",
                moment.epoch
            )));
        }
        list.push(*moment);
    }
    let known = inputs.last().and_then(|run| run.moments().list().last());
    let end = known.filter(|m| m.epoch == epochs.last());
    list.extend(end.filter(|_| list.last().is_none_or(|m| m.epoch < epochs.last())));
    if !list.is_sorted_by(|a, b| a.epoch < b.epoch) || list.len() > MOMENTS_MAX {
        return Err(Error::Usage(format!(
            "a run keeps at most {MOMENTS_MAX} moments, in ascending order; {} were given",
            list.len()
        )));
    }
    Ok(Moments::sampled(&list))
}

impl Merge {
    /// Begins to merge neighbouring runs, given in the order of their epochs, into a run in folder `dir`.
    ///
    /// # Errors
    /// [`Error::Usage`] for runs that are not neighbours or are of different databases, and if a kept moment is in no
    /// input; errors of the disk.
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &str,
        inputs: Vec<Arc<Run>>,
        options: MergeOptions,
        digest: Arc<RegionDigest>,
    ) -> Result<Merge> {
        let (epochs, level) = place(&inputs, &options)?;
        let moments = moments(&inputs, epochs, &options)?;
        let first = inputs[0].header();
        let header = RunHeader {
            uuid: first.uuid,
            id: RunId {
                epochs,
                level,
                generation: options.generation,
            },
            chunks: first.chunks,
            only_listed_moments: options.keep.is_some(),
            carries_frames: inputs.iter().any(|run| run.header().carries_frames),
            life: inputs[inputs.len() - 1].header().life,
        };
        let kept: Vec<Epoch> = moments.list().iter().map(|m| m.epoch).collect();
        let net = |keep: &Keep| NetChange::new(kept, keep.images.clone());
        let working = Working {
            merged: Merged::new(&inputs, &Scope::All),
            net: options.keep.as_ref().map(net),
            frames: MergedFrames::new(&inputs),
            left_out: (0, DigestSum::new(Arc::clone(&digest))),
            writer: RunWriter::create(disk, dir, header, options.codec, digest)?,
            header,
        };
        Ok(Merge {
            inputs,
            keep: options.keep,
            moments,
            left_out: (0, Digests::default()),
            left_out_frames: 0,
            stage: Stage::Merge(Box::new(working)),
        })
    }

    /// Continues until an I/O has been made. After [`Progress::Done`] the merged run is durable under its name.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an input is damaged or the written records do not match the inputs; errors of the disk. A
    /// merge cannot be used after an error. It may leave its temporary file.
    pub fn step(&mut self) -> Result<Progress<RunSummary>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Merge(mut working) => {
                self.stage = match working.step()? {
                    Progress::More => Stage::Merge(working),
                    Progress::Done(()) => Stage::Frames(working),
                };
                Ok(Progress::More)
            }
            Stage::Frames(mut working) => {
                let begin = working.header.id.epochs.begin;
                self.stage = match working.frames.step(&mut working.writer, begin)? {
                    Progress::More => Stage::Frames(working),
                    Progress::Done(()) => {
                        let ends: &[Pos] = self.inputs[self.inputs.len() - 1].ends();
                        let (updates, digests) = working.left_out;
                        self.left_out_frames = working.frames.left_out;
                        self.left_out = (updates, digests.finish(&working.header)?);
                        let tail = working.writer.finish(&self.moments, ends)?;
                        self.prove(&tail)?;
                        Stage::Tail(Box::new(tail))
                    }
                };
                Ok(Progress::More)
            }
            Stage::Tail(mut tail) => {
                let progress = tail.step()?;
                if progress == Progress::More {
                    self.stage = Stage::Tail(tail);
                }
                Ok(progress)
            }
            Stage::Over => Err(Error::Stopped("the merge has ended".into())),
        }
    }

    /// Takes all steps to the end. Returns the merged run.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(mut self) -> Result<RunSummary> {
        loop {
            if let Progress::Done(summary) = self.step()? {
                return Ok(summary);
            }
        }
    }

    /// Checks the written records against the inputs: the count of updates, and the digests for each partition and each
    /// side of the images.
    fn prove(&self, tail: &Tail) -> Result<()> {
        let differs = |expected: String, found: String| {
            let consequence = "The merged run was not made, and its inputs are kept. One of them \
                               contradicts its checksums, or memory is faulty. Run `perdura \
                               archive verify`, and test the memory.";
            Error::corrupt(tail.temporary(), 0, expected, found, consequence)
        };
        let counts = self.inputs.iter().map(|run| run.counts().1);
        let updates = counts.fold(0, u64::saturating_add);
        let found = tail.updates().saturating_add(self.left_out.0);
        if updates != found {
            let expected = format!("records of {updates} updates");
            return Err(differs(expected, format!("records of {found}")));
        }
        if !frames::are_proven(&self.inputs, tail.frames(), self.left_out_frames) {
            let expected = "the ordered frames of the merged runs".into();
            return Err(differs(expected, format!("{} others", tail.frames().count)));
        }
        let mut sums = self.sides(tail.digests());
        for (place, digest) in self.sides(&self.left_out.1) {
            *sums.entry(place).or_default() ^= digest;
        }
        for run in &self.inputs {
            for (place, digest) in self.sides(run.digests()) {
                *sums.entry(place).or_default() ^= digest;
            }
        }
        match sums.into_iter().find(|(_, sum)| *sum != 0) {
            None => Ok(()),
            Some(((_, partition), sum)) => Err(differs(
                format!("records of partition {partition} with the digests of the merged runs"),
                format!("others: the digests differ by {sum:016x}"),
            )),
        }
    }

    /// Returns the XOR of `digests` for each side of the images and each partition. If no records are combined, each
    /// tag counts as a side.
    fn sides(&self, digests: &Digests) -> BTreeMap<(u64, PartitionId), u64> {
        let mut sums = BTreeMap::new();
        for (tag, partition, digest) in digests.sums() {
            let side = self
                .keep
                .as_ref()
                .map_or(tag.0, |keep| keep.images.side(tag));
            *sums.entry((side, partition)).or_default() ^= digest;
        }
        sums
    }
}

impl Working {
    /// Merges until an I/O has been made or no record is left.
    fn step(&mut self) -> Result<Progress<()>> {
        if self.merged.prime()? == Progress::More {
            return Ok(Progress::More);
        }
        let (reads, writes) = (self.merged.reads(), self.writer.writes());
        let writer = &mut self.writer;
        let begin = self.header.id.epochs.begin;
        while self.merged.advance()? {
            let record = self.merged.record();
            match &mut self.net {
                _ if record.epochs.first < begin => {
                    let (updates, digests) = &mut self.left_out;
                    *updates = updates.saturating_add(record.updates.count);
                    digests.add(&record, &self.header)?;
                }
                None => writer.push(&record)?,
                Some(net) => net.add(&record, |sum| writer.push(sum))?,
            }
            if (self.merged.reads(), writer.writes()) != (reads, writes) {
                return Ok(Progress::More);
            }
        }
        if let Some(net) = &mut self.net {
            net.flush(|sum| writer.push(sum))?;
        }
        Ok(Progress::Done(()))
    }
}
