//! The standing proof: an image, together with the records after it, gives the next image.
//!
//! An image k reflects exactly the records with a tag (checkpoint epoch) below k. So the digest of image k, XORed with
//! the digests of all records with k <= tag < k', is the digest of image k'. The end of a run's file lists the digests
//! of the run's records by tag and partition. A checkpoint computes the digests of the image's pages. So a proof reads
//! only the ends of the runs' files, and no pages or records. Each checkpoint thereby cross-checks log, archiver,
//! merger and checkpointer. A proof detects a missing run, a missing record, a record that occurs twice or is on the
//! wrong page, and two exchanged pages.
//!
//! Each page's digest is bound to the page's number ([`perdura_page::digest::bound`]). Pages of key-addressed tables
//! change without a page record. These pages are in odd chunks, and only consistent images have them. So the digest of
//! a consistent image covers even chunks only.
//!
//! # Source
//! The idea of checking backups against logs is Goetz Graefe's. "Single-pass restore after a media failure", section 1,
//! says that backups fail if they were never tried. The digests and this equation are our addition.
//!
//! # Limits
//! Odd and even chunks have separate pools. An older database without separate pools may have records of pages in odd
//! chunks. Proofs of that database fail once it has key-addressed tables.

use std::sync::Arc;

use perdura_archive::{EpochRange, Manifest, Progress, Run, RunId, Store};
use perdura_base::num::to_u32;
use perdura_base::{Epoch, Error, PartitionId, Result};
use perdura_recovery::SweepDigest;

/// The maximum number of runs that the text of a failed proof names for each partition.
const NAMED_RUNS: usize = 8;

/// The result of a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// A description of the fault that was found. `None`: the proof holds.
    pub fails: Option<String>,
    /// The number of the manifest that lists the proof's runs.
    pub manifest: u64,
    /// The number of runs that were read.
    pub runs: u32,
}

/// A run that the proof has read, and the partitions in which the run has records between the two images.
struct ReadRun {
    id: RunId,
    partitions: Vec<PartitionId>,
}

/// A proof in progress. Each step opens one run.
pub struct Proof {
    store: Arc<Store>,
    base: Arc<SweepDigest>,
    target: Arc<SweepDigest>,
    manifest: Arc<Manifest>,
    runs: Vec<RunId>,
    read: Vec<ReadRun>,
    /// For each partition, the XOR of the digests of the records so far.
    sums: Vec<u64>,
}

impl Proof {
    /// Returns whether an archive holds all epochs that the proof of `target` needs.
    #[must_use]
    pub fn is_due(store: &Store, target: &SweepDigest) -> bool {
        store.manifest().end > target.end
    }

    /// Begins to prove image `target` from the older image `base`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive does not hold all epochs of the records between the images; errors when the
    /// manifests are read.
    pub fn begin(
        store: Arc<Store>,
        base: Arc<SweepDigest>,
        target: Arc<SweepDigest>,
    ) -> Result<Proof> {
        assert!(base.k < target.k, "an image is proven by an older one");
        assert_eq!(
            base.partitions.len(),
            target.partitions.len(),
            "both are images of one database"
        );
        let manifest = store.refresh()?;
        let mut proof = Proof {
            store,
            sums: vec![0; base.partitions.len()],
            base,
            target,
            manifest,
            runs: Vec::new(),
            read: Vec::new(),
        };
        proof.start_over()?;
        Ok(proof)
    }

    /// Returns the digests of the two images: first the older image, then the image to be proven.
    #[must_use]
    pub fn images(&self) -> (&SweepDigest, &SweepDigest) {
        (&self.base, &self.target)
    }

    /// Begins the proof anew, with the runs of the newest known manifest.
    fn start_over(&mut self) -> Result<()> {
        self.manifest = self.store.manifest();
        self.sums.fill(0);
        self.read.clear();
        let epochs = EpochRange::new(self.base.begin, Epoch(self.target.end.0 + 1));
        self.runs = match epochs {
            Some(epochs) => self.manifest.tiling(epochs)?,
            None => Vec::new(),
        };
        self.runs.reverse();
        Ok(())
    }

    /// Reads the digests of the next run. If there is no run left, compares the digests and ends the proof.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); errors of the disk. A damaged or missing run is not an error: the proof is done, and
    /// the verdict is a failure.
    pub fn step(&mut self) -> Result<Progress<Verdict>> {
        let Some(id) = self.runs.pop() else {
            let fails = self.compare();
            return Ok(Progress::Done(self.verdict(fails)));
        };
        match self.store.open_run(id) {
            Ok(run) => {
                self.add(id, &run);
                Ok(Progress::More)
            }
            // The run may be gone because a merger has replaced it and written a new manifest. Then the proof begins
            // anew.
            Err(error) if self.is_replaced()? => {
                debug_assert!(!error.to_string().is_empty(), "an error says what it is");
                self.start_over()?;
                Ok(Progress::More)
            }
            Err(error) if is_of_the_run(&error) => {
                let fails = format!("the runs between {} cannot be read: {error}", self.tags());
                Ok(Progress::Done(self.verdict(Some(fails))))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes all steps.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(mut self) -> Result<Verdict> {
        loop {
            if let Progress::Done(verdict) = self.step()? {
                return Ok(verdict);
            }
        }
    }

    fn is_replaced(&self) -> Result<bool> {
        let known = self.manifest.number;
        Ok(self.store.refresh()?.number > known)
    }

    fn add(&mut self, id: RunId, run: &Run) {
        let mut partitions = Vec::new();
        for (tag, partition, digest) in run.digests().sums() {
            if self.base.k <= tag && tag < self.target.k {
                self.sums[usize::from(partition.0)] ^= digest;
                partitions.push(partition);
            }
        }
        partitions.sort_unstable();
        partitions.dedup();
        debug_assert!(partitions.len() <= self.sums.len(), "each is counted once");
        self.read.push(ReadRun { id, partitions });
    }

    fn tags(&self) -> String {
        let (base, target) = (self.base.k, self.target.k);
        format!("images {base} and {target} (tags {base} to {target}, the last exclusive)")
    }

    /// Compares the digests of the images with the digests of the records. Returns a description of the difference, or
    /// `None` if they agree.
    fn compare(&self) -> Option<String> {
        let ends = self.base.partitions.iter().zip(&self.target.partitions);
        let both = ends
            .zip(&self.sums)
            .map(|((base, target), records)| (base ^ target, *records));
        let wrong: Vec<(PartitionId, u64, u64)> = (0u16..)
            .zip(both)
            .filter(|(_, (images, records))| images != records)
            .map(|(id, (images, records))| (PartitionId(id), images, records))
            .collect();
        let (id, images, records) = wrong.first()?;
        let of_partition = self.read.iter().filter(|run| run.partitions.contains(id));
        let mut runs: Vec<String> = of_partition.map(|run| run.id.name()).collect();
        let more = runs.len().saturating_sub(NAMED_RUNS);
        runs.truncate(NAMED_RUNS);
        if more > 0 {
            runs.push(format!("{more} more"));
        }
        let others: Vec<String> = wrong[1..].iter().map(|(id, ..)| id.to_string()).collect();
        let others = match &others[..] {
            [] => String::new(),
            others => format!("; partitions {} differ, too", others.join(", ")),
        };
        Some(format!(
            "the records between {} do not turn the older image into the newer one. In partition \
             {id} the images differ by {images:016x}, but the records by {records:016x}. Records \
             of this partition and these tags are in {}{others}",
            self.tags(),
            if runs.is_empty() {
                "no run".into()
            } else {
                runs.join(", ")
            },
        ))
    }

    fn verdict(&self, fails: Option<String>) -> Verdict {
        Verdict {
            fails,
            manifest: self.manifest.number,
            runs: to_u32(self.read.len()),
        }
    }
}

/// Returns whether an error shows a fault of the run. Other errors are failures of the disk.
fn is_of_the_run(error: &Error) -> bool {
    let is_damage = matches!(
        error,
        Error::Corrupt(_) | Error::Foreign { .. } | Error::Version { .. }
    );
    is_damage || error.is_not_found()
}
