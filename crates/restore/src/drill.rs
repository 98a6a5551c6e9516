//! A drill: compares a trial restore's database with digests computed without the restore.
//!
//! The expected digest of the archive's last epoch is computed from the last proven image. The database itself has
//! computed that image's digest. The drill XORs this digest with the digests of all records that the image does not
//! reflect. If no image was proven, the drill uses the backup's digest and the records that the backup does not
//! reflect. The digest of the restored database is computed from the page digests in its image's directory. The two
//! digests must agree in every partition.
//!
//! # Source
//! "Single-pass restore after a media failure", section 1: backups that were never tried fail when they are needed.

use perdura_archive::backup::BackupKind;
use perdura_archive::report::newest_report;
use perdura_archive::{Report, ReportKind, Store};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};
use perdura_recovery::image::read_directory;
use perdura_recovery::{Disks, read_anchor};
use perdura_wal::Archived;

use crate::listed::Listed;
use crate::plan::RestorePlan;
use crate::restore::RestoreReport;

/// The result of a drill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// A description of the digests that differ. `None`: all digests agree.
    pub fails: Option<String>,
    /// A description of what was compared.
    pub compared: String,
    /// The number of the manifest that the drill used.
    pub manifest: u64,
    /// The number of runs that contributed digests.
    pub runs: u64,
}

/// The digests that the restored image must have.
struct Expected {
    by: String,
    partitions: Vec<u64>,
    runs: u64,
}

/// An image or a backup, and its digest of each partition.
struct Base {
    k: CkptEpoch,
    /// The first epoch with records that it may lack.
    begin: Epoch,
    sums: Vec<u64>,
}

/// Compares the database on `disks`, which was restored by `plan`, with the archive.
///
/// # Errors
/// Errors of the disks; damage of the archive or of the restored database.
pub fn judge(
    store: &Store,
    plan: &RestorePlan,
    report: &RestoreReport,
    disks: &Disks,
) -> Result<Judgement> {
    let restored = restored(disks)?;
    let manifest = store.manifest().number;
    let Some(expected) = expected(store, plan, report)? else {
        let compared = format!(
            "only the update numbers of each page: digests are known for the archive's last epoch, not for epoch {}",
            report.epoch
        );
        return Ok(Judgement {
            fails: None,
            compared,
            manifest,
            runs: 0,
        });
    };
    assert_eq!(
        restored.len(),
        expected.partitions.len(),
        "the restored database has the partitions of its backup"
    );
    let pairs = restored.iter().zip(&expected.partitions);
    let wrong: Vec<String> = (0u16..)
        .zip(pairs)
        .filter(|(_, (restored, expected))| restored != expected)
        .map(|(id, (restored, expected))| {
            format!("partition {id} has the digest {restored:016x} instead of {expected:016x}")
        })
        .collect();
    Ok(Judgement {
        fails: (!wrong.is_empty()).then(|| wrong.join(", ")),
        compared: format!("the digest of each partition, by {}", expected.by),
        manifest,
        runs: expected.runs,
    })
}

/// Returns the digest of each partition of the restored image, from the image's directory.
fn restored(disks: &Disks) -> Result<Vec<u64>> {
    let anchor = read_anchor(disks.data.as_ref())?;
    let newest = anchor.and_then(|anchor| anchor.newest_image().map(|slot| (anchor, slot)));
    let Some((anchor, slot)) = newest else {
        return Err(Error::Usage("the restored database has no image".into()));
    };
    let geometry = anchor.geometry;
    let listed = read_directory(disks.data.as_ref(), &anchor, slot, &geometry)?;
    let all = (0..geometry.partitions).map(PartitionId);
    let digest = |id| {
        let pages = listed.directory.bound_digests(id, &geometry);
        pages.fold(0, |sum, (_, digest)| sum ^ digest)
    };
    let digests: Vec<u64> = all.map(digest).collect();
    assert!(!digests.is_empty(), "a database has a partition");
    Ok(digests)
}

/// Returns the digests of the restored epoch's state, according to the archive. Returns `None` if the archive is not
/// enough to compute them.
fn expected(store: &Store, plan: &RestorePlan, report: &RestoreReport) -> Result<Option<Expected>> {
    let id = plan.backup();
    let backup = &plan.backup;
    let header = backup.header();
    let is_cut = header.kind == BackupKind::Cut;
    let of_backup = plan.digests()?;
    // The digests of a proof leave out the pages of key-addressed tables, and those of a backup do not.
    let is_keyed = plan.cut().archive() == Archived::Carried;
    let is_backup = is_cut || is_keyed;
    if is_backup && report.epoch == header.moment() {
        return Ok(Some(Expected {
            by: format!("the digests of {}", id.name()),
            partitions: of_backup,
            runs: 0,
        }));
    }
    let proof = newest_report(store.disk().as_ref(), store.uuid(), ReportKind::Proof)?;
    let is_of_these = |proof: &Report| proof.digests.len() == of_backup.len();
    if let Some(proof) = proof.filter(|proof| is_of_these(proof) && !is_keyed) {
        let by = format!("the digest of image {} with the records after it", proof.to);
        let base = Base {
            k: proof.to,
            begin: proof.begin,
            sums: proof.digests,
        };
        if let Some((partitions, runs)) = advanced(store, &base, report.epoch)? {
            return Ok(Some(Expected {
                by,
                partitions,
                runs,
            }));
        }
    }
    if is_cut {
        return Ok(None);
    }
    let by = format!("the digests of {} with the records after it", id.name());
    let base = Base {
        k: header.id.k,
        begin: header.begin,
        sums: of_backup,
    };
    let expected = advanced(store, &base, report.epoch)?;
    Ok(expected.map(|(partitions, runs)| Expected {
        by,
        partitions,
        runs,
    }))
}

/// Returns the digests `sums` of image `k`, XORed with the digests of all records that the image does not reflect. Also
/// returns the number of runs that these records are in. Returns `None` if the runs do not reach back to the image's
/// begin, or do not end with `last`.
fn advanced(store: &Store, base: &Base, last: Epoch) -> Result<Option<(Vec<u64>, u64)>> {
    // Only one run is open at a time, and a merge may replace the runs in the meantime.
    store.with_newest(|_| advanced_by(store, base, last))
}

/// Returns the digests as [`advanced`], by the newest manifest that was read.
fn advanced_by(store: &Store, base: &Base, last: Epoch) -> Result<Option<(Vec<u64>, u64)>> {
    let Base { k, begin, sums } = base;
    let mut sums = sums.clone();
    let mut runs = Listed::of_archive(store)?;
    let holds = runs
        .first()
        .is_some_and(|run| run.id().epochs.begin <= *begin);
    if !holds || runs.last().map(|run| run.id().epochs.last()) != Some(last) {
        return Ok(None);
    }
    runs.retain(|run| run.id().epochs.end > *begin);
    assert!(
        runs.windows(2)
            .all(|pair| pair[0].id().epochs.end == pair[1].id().epochs.begin),
        "the runs of an archive follow each other without a gap"
    );
    for run in &runs {
        for (tag, partition, digest) in run.open(store)?.digests().sums() {
            if *k <= tag {
                sums[usize::from(partition.0)] ^= digest;
            }
        }
    }
    Ok(Some((sums, to_u64(runs.len()))))
}
