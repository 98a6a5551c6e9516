//! The standing proof of an open database: each checkpoint's image is compared with the archive while archiving
//! continues.
//!
//! ```text
//!  a checkpoint is complete ──► the archive reaches the image's end ──► Proof: one run a step ──► report ──► next base
//! ```
//!
//! The progress is kept in the archive, as a report about the last image that was proven (docs/formats/report.md). The
//! archive outlives the database's disks, so a restore can rely on the report. Progress in the anchor would cost one
//! more write at each checkpoint, and could be lost with the anchor's disk. After a restart the proof continues from
//! the newest report. Without a report, it begins with the image that the restart loaded.
//!
//! A proof that fails is reported ([`ProofStats::alarm`]). The database continues to run. The unproven image becomes
//! the base of the next proof. If the archive cannot be read, the proof is tried again later. After [`ATTEMPTS`]
//! attempts it counts as failed. A proof never delays archiving.

use std::sync::Arc;
use std::time::Duration;

use perdura_archive::report::newest_report;
use perdura_archive::{
    Images as ArchiveImages, Outcome, Progress, Replay, Report, ReportKind, Reporting, Store,
};
use perdura_base::{CkptEpoch, Error, Result, Uuid};
use perdura_device::Disk;
use perdura_recovery::SweepDigest;
use perdura_restore::proof::{Proof, Verdict};
use serde::Serialize;

use crate::core::Core;

/// A number of attempts. If all of these attempts fail to read the archive, the proof counts as failed.
const ATTEMPTS: u32 = 5;
/// The pause between two attempts, nanoseconds.
const PAUSE_NS: u64 = 1_000_000_000;
/// The smallest number of replayed changes whose duration says how fast a replay is.
const REPLAYED_MIN: u64 = 1000;

/// Returns whether a restart that played `played` changes, and found `reflected` in its image, says how fast a replay is.
fn is_long(played: u64, reflected: u64) -> bool {
    played >= REPLAYED_MIN.max(reflected)
}

/// Returns the replay at the restart that opened this database. `None`: it is too short to say how fast a replay is, or it
/// mostly read changes that the image had.
fn long_replay(core: &Core) -> Option<Replay> {
    let pass = core.report().ordered?;
    let took = Duration::try_from_secs_f64(pass.seconds).ok()?;
    is_long(pass.played, pass.reflected).then(|| Replay {
        changes: pass.played,
        took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
    })
}

enum Task {
    Idle,
    /// A proof, and its start time.
    Proving(Box<Proof>, u64),
    /// The report that is being written. Its image will be the next base.
    Reporting(Box<Reporting>),
}

/// Proves images, one I/O a step.
pub(crate) struct Proving {
    /// The image to compare with the next image.
    base: Option<Arc<SweepDigest>>,
    /// The next image to prove. Newer images do not replace it: otherwise, with a slow archive, no image would ever be
    /// proven.
    next: Option<Arc<SweepDigest>>,
    /// The newest image that is newer than `next`.
    latest: Option<Arc<SweepDigest>>,
    work: Task,
    attempts: u32,
    not_before_ns: u64,
    /// The replay in the newest report when the archive was opened. A long replay of this opening replaces it.
    replay: Replay,
    stats: ProofStats,
}

/// The result of proving an image.
struct Finding {
    outcome: Outcome,
    /// The `number` of the archive's manifest that the proof used.
    manifest: u64,
    /// Count of runs whose digests the proof has read.
    runs: u32,
    took_us: u64,
    text: String,
}

impl Finding {
    /// Returns the finding for an image that was not compared.
    fn begun(manifest: u64, text: String) -> Finding {
        Finding {
            outcome: Outcome::Begun,
            manifest,
            runs: 0,
            took_us: 0,
            text,
        }
    }
}

impl Proving {
    /// Returns a prover that knows no image yet.
    pub fn new() -> Proving {
        Proving {
            base: None,
            next: None,
            latest: None,
            work: Task::Idle,
            attempts: 0,
            not_before_ns: 0,
            replay: Replay::default(),
            stats: ProofStats::default(),
        }
    }

    /// Prepares for the opening of an archive. Gives up a proof that is under way. If there is no base yet, takes the
    /// base from the archive's newest report.
    ///
    /// # Errors
    /// The errors of the disk.
    pub fn resume(&mut self, disk: &dyn Disk, uuid: &Uuid, partitions: u16) -> Result<()> {
        self.work = Task::Idle;
        if self.base.is_some() {
            return Ok(());
        }
        let Some(report) = newest_report(disk, uuid, ReportKind::Proof)? else {
            return Ok(());
        };
        self.stats.read(&report);
        self.replay = report.replay;
        if report.digests.len() == usize::from(partitions) {
            self.base = Some(Arc::new(SweepDigest {
                k: report.to,
                begin: report.begin,
                end: report.end,
                partitions: report.digests,
            }));
            self.pass_over_reported(report.to);
        }
        Ok(())
    }

    /// Forgets the images up to checkpoint epoch `k`, because the archive has a report about image `k`. Such images
    /// exist if the archive failed just after this process had written its first report.
    fn pass_over_reported(&mut self, k: CkptEpoch) {
        let is_newer = |digest: &Arc<SweepDigest>| k < digest.k;
        let (next, latest) = (self.next.take(), self.latest.take());
        let mut left = next.into_iter().chain(latest).filter(is_newer);
        (self.next, self.latest) = (left.next(), left.next());
        self.stats.unproven = u64::from(self.next.is_some()) + u64::from(self.latest.is_some());
    }

    /// Adds to `images` the images that proofs still need, even if a checkpoint has overwritten them. The merger never
    /// combines a record from before one of these images with a record from after it.
    pub fn add_images(&self, images: &mut ArchiveImages) {
        let own = [&self.base, &self.next, &self.latest];
        let own = own.into_iter().flatten().map(|digest| digest.k);
        let is_new =
            |k: &CkptEpoch| k.0 > 0 && !images.retained.contains(k) && images.building != Some(*k);
        let new: Vec<CkptEpoch> = own.filter(is_new).collect();
        images.retained.extend(new);
        images.retained.sort_unstable();
        assert!(
            images.retained.is_sorted_by(|a, b| a < b),
            "each image is listed once"
        );
    }

    /// Returns the figures of the proofs.
    pub fn stats(&self) -> ProofStats {
        self.stats.clone()
    }

    /// Returns whether a proof is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.work, Task::Idle)
    }

    /// Takes a step. Returns whether a step was possible.
    pub fn step(&mut self, core: &Core, store: &Arc<Store>) -> bool {
        self.look(core, store);
        let now_ns = core.clock().mono_ns();
        if now_ns < self.not_before_ns {
            return false;
        }
        match std::mem::replace(&mut self.work, Task::Idle) {
            Task::Idle => self.begin(core, store, now_ns),
            Task::Proving(mut proof, since) => {
                match proof.step() {
                    Ok(Progress::More) => self.work = Task::Proving(proof, since),
                    Ok(Progress::Done(verdict)) => self.judge(core, store, &verdict, since),
                    Err(error) => self.put_off(core, store, &error),
                }
                true
            }
            Task::Reporting(mut reporting) => {
                match reporting.step() {
                    Ok(Progress::More) => self.work = Task::Reporting(reporting),
                    Ok(Progress::Done(())) => self.settle(),
                    // If the report could not be written, the next restart continues from an older report, or from the
                    // image that it loads.
                    Err(_) => self.settle(),
                }
                true
            }
        }
    }

    /// Notes the newest image, if it is not known yet, as `next` or `latest`.
    fn look(&mut self, core: &Core, store: &Store) {
        let Some(newest) = core.newest_digest() else {
            return;
        };
        let known = [&self.base, &self.next, &self.latest];
        let known = known.into_iter().flatten().map(|digest| digest.k).max();
        if Some(newest.k) <= known || newest.begin < store.manifest().begin {
            return;
        }
        self.stats.unproven += 1;
        let place = if self.next.is_none() {
            &mut self.next
        } else {
            &mut self.latest
        };
        *place = Some(newest);
        assert!(
            self.next.is_some(),
            "the latest image waits behind the next one"
        );
    }

    /// Begins to prove `next`, if the archive reaches that image's end. Returns whether there was
    /// anything to do.
    fn begin(&mut self, core: &Core, store: &Arc<Store>, now_ns: u64) -> bool {
        let Some(next) = self.next.clone() else {
            return false;
        };
        assert!(
            self.base.as_ref().is_none_or(|base| base.k < next.k),
            "an image is proven by an older one"
        );
        if !Proof::is_due(store, &next) {
            return false;
        }
        let Some(base) = self.base.clone() else {
            self.report(core, store, Finding::begun(0, String::new()));
            return true;
        };
        match Proof::begin(Arc::clone(store), base, next) {
            Ok(proof) => self.work = Task::Proving(Box::new(proof), now_ns),
            Err(error) => self.put_off(core, store, &error),
        }
        true
    }

    /// Turns the verdict of a finished proof into a finding, and reports it.
    fn judge(&mut self, core: &Core, store: &Store, verdict: &Verdict, since: u64) {
        let took_us = core.clock().mono_ns().saturating_sub(since) / 1000;
        let outcome = match verdict.fails {
            None => Outcome::Holds,
            Some(_) => Outcome::Fails,
        };
        let finding = Finding {
            outcome,
            manifest: verdict.manifest,
            runs: verdict.runs,
            took_us,
            text: verdict.fails.clone().unwrap_or_default(),
        };
        self.report(core, store, finding);
    }

    /// Handles a proof that could not be made. Schedules a new attempt, or reports the reason.
    fn put_off(&mut self, core: &Core, store: &Store, error: &Error) {
        let number = store.manifest().number;
        if matches!(error, Error::Usage(_)) {
            // The archive no longer reaches back to the base, so nothing can be compared.
            let text = format!("nothing was compared: {error}");
            self.report(core, store, Finding::begun(number, text));
            return;
        }
        self.attempts += 1;
        self.not_before_ns = core.clock().mono_ns().saturating_add(PAUSE_NS);
        if self.attempts == ATTEMPTS {
            let text = format!("the archive could not be read in {ATTEMPTS} attempts: {error}");
            let finding = Finding {
                outcome: Outcome::Fails,
                ..Finding::begun(number, text)
            };
            self.report(core, store, finding);
        }
    }

    /// Notes the finding about the next image, and begins to write the report.
    fn report(&mut self, core: &Core, store: &Store, finding: Finding) {
        let next = self.next.as_ref().expect("an image was held against it");
        let report = Report {
            kind: ReportKind::Proof,
            outcome: finding.outcome,
            uuid: *store.uuid(),
            wall_us: core.clock().wall_us(),
            from: self.base.as_ref().map_or(CkptEpoch(0), |base| base.k),
            to: next.k,
            begin: next.begin,
            end: next.end,
            manifest: finding.manifest,
            runs: finding.runs,
            took_us: finding.took_us,
            replay: long_replay(core).unwrap_or(self.replay),
            digests: next.partitions.clone(),
            text: finding.text,
        };
        assert!(
            report.from < report.to,
            "an image is proven by an older one"
        );
        assert!(
            report.outcome == Outcome::Begun || self.base.is_some(),
            "what holds or fails was compared"
        );
        self.stats.read(&report);
        self.stats.failed += u64::from(report.outcome == Outcome::Fails);
        self.stats.unproven = u64::from(self.latest.is_some());
        let disk = Arc::clone(store.disk());
        self.work = Task::Reporting(Box::new(Reporting::new(disk, report)));
    }

    /// Makes the reported image the next base, whether its proof held or failed.
    fn settle(&mut self) {
        self.base = self.next.take();
        assert!(self.base.is_some(), "an image was reported");
        self.next = self.latest.take();
        self.attempts = 0;
        self.not_before_ns = 0;
    }
}

/// Figures of the standing proof: the archive's records must be the difference between the database's images.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ProofStats {
    /// The checkpoint epoch of the image that the last report is about. `None` before the first report.
    pub image: Option<u64>,
    /// The checkpoint epoch of the earlier image that `image` was compared with. 0 if `image` is the first image.
    pub by_image: u64,
    /// The end epoch of `image`. The archive has been compared up to this epoch.
    pub end_epoch: u64,
    /// The time of the report, microseconds since 1970.
    pub wall_us: u64,
    /// The result of the comparison: `holds`, `fails`, or `begun` if there was no earlier image to
    /// compare with. Empty before the first report.
    pub result: &'static str,
    /// Count of runs whose digests the proof has read.
    pub runs: u32,
    /// The duration of the comparison, microseconds.
    pub took_us: u64,
    /// The time of the last successful proof, in microseconds since 1970. 0 if not known.
    pub held_us: u64,
    /// The age of the last successful proof, in microseconds. `None` if not known.
    pub age_us: Option<u64>,
    /// Count of images that are newer than `image` and not proven yet.
    pub unproven: u64,
    /// The checkpoint epoch of the last image whose proof failed. 0 if no failed proof is known.
    pub failed_image: u64,
    /// Count of proofs that failed since the database was opened.
    pub failed: u64,
    /// The reason for the last failure of a proof. `None` if a later proof succeeded, or if no failure is known.
    pub alarm: Option<String>,
}

impl ProofStats {
    /// Updates the figures from the newest report.
    fn read(&mut self, report: &Report) {
        self.image = Some(report.to.0);
        self.by_image = report.from.0;
        self.end_epoch = report.end.0;
        self.wall_us = report.wall_us;
        self.result = report.outcome.name();
        self.runs = report.runs;
        self.took_us = report.took_us;
        match report.outcome {
            Outcome::Begun => {}
            Outcome::Holds => {
                self.held_us = report.wall_us;
                self.alarm = None;
            }
            Outcome::Fails => {
                self.failed_image = report.to.0;
                self.alarm = Some(format!("image {}: {}", report.to, report.text));
            }
        }
        debug_assert!(self.image.is_some(), "a report is of an image");
    }
}

#[cfg(test)]
mod tests {
    use super::is_long;

    #[test]
    fn a_long_replay_plays_much_and_no_less_than_the_image_had() {
        assert!(is_long(1000, 0) && is_long(5000, 5000));
        assert!(!is_long(999, 0) && !is_long(1000, 1001));
    }
}
