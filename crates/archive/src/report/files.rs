//! The files of an archive's reports: listing, reading and writing them. A step of the writing makes one I/O.

use std::sync::Arc;

use perdura_base::num::to_usize;
use perdura_base::{Error, Result, Uuid};
use perdura_device::{Access, AlignedBuf, Disk, read_exact_at};

use super::codec::{REPORT_BYTES_MAX, damage};
use super::{KEPT_REPORTS, REPORTS, Report, ReportId, ReportKind};
use crate::name::TEMPORARY;
use crate::output::{Ending, Output, Progress};
use crate::store::folder;

fn dir_of(uuid: &Uuid) -> String {
    format!("{}/{REPORTS}", folder(uuid))
}

/// Returns the names of the files in `dir`, the folder of reports. The list is empty if the folder does not exist.
fn names(disk: &dyn Disk, dir: &str) -> Result<Vec<String>> {
    match disk.list(dir) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        names => names,
    }
}

/// Lists the reports of a database's archive. The proofs come first, ordered by the checkpoint epochs of their images.
/// The drills follow, ordered by their times.
///
/// # Errors
/// Errors of the disk.
pub fn reports(disk: &dyn Disk, uuid: &Uuid) -> Result<Vec<ReportId>> {
    let names = names(disk, &dir_of(uuid))?;
    let mut found: Vec<ReportId> = names
        .iter()
        .filter_map(|name| ReportId::parse(name))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Reads a report.
///
/// # Errors
/// Those of [`Report::decode`]; errors of the disk.
pub fn read_report(disk: &dyn Disk, uuid: &Uuid, id: ReportId) -> Result<Report> {
    let path = format!("{}/{}", dir_of(uuid), id.name());
    let file = disk.open(&path, Access::Buffered)?;
    let len = to_usize(file.len()?);
    if len > REPORT_BYTES_MAX {
        let expected = format!("at most {REPORT_BYTES_MAX} bytes");
        return Err(damage(&path, 0, expected, format!("{len} bytes")));
    }
    let mut bytes = AlignedBuf::zeroed(len);
    read_exact_at(file.as_ref(), 0, &mut bytes)?;
    Report::decode(&path, &bytes, id, uuid)
}

/// Returns the newest readable report of a kind. `None`: no report of the kind is readable.
///
/// # Errors
/// Errors of the disk.
pub fn newest_report(disk: &dyn Disk, uuid: &Uuid, kind: ReportKind) -> Result<Option<Report>> {
    let mut ids = reports(disk, uuid)?;
    ids.retain(|id| id.kind == kind);
    for id in ids.into_iter().rev() {
        match read_report(disk, uuid, id) {
            Ok(report) => return Ok(Some(report)),
            // Another writer has removed this report, or the report is damaged. Try the report before it.
            Err(error) if error.is_not_found() => {}
            Err(Error::Corrupt(_) | Error::Foreign { .. } | Error::Version { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

enum Stage {
    Prepare,
    Write(Ending),
    /// Remove these older reports.
    Clear(Vec<String>),
}

/// A state machine that writes a report and removes old reports, one I/O a step.
pub struct Reporting {
    disk: Arc<dyn Disk>,
    report: Report,
    dir: String,
    stage: Stage,
}

impl Reporting {
    /// Begins to write a report into the archive of its database. The archive must exist.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, report: Report) -> Reporting {
        Reporting {
            disk,
            dir: dir_of(&report.uuid),
            report,
            stage: Stage::Prepare,
        }
    }

    /// Makes the next I/O. After [`Progress::Done`] the report is durable.
    ///
    /// # Errors
    /// Errors of the disk. The report then exists completely or not at all. [`Error::Usage`] if a report of this name
    /// exists.
    pub fn step(&mut self) -> Result<Progress<()>> {
        match &mut self.stage {
            Stage::Prepare => {
                self.disk.make_dir(&self.dir)?;
                self.disk.sync_dir(&folder(&self.report.uuid))?;
                let path = format!("{}/{}", self.dir, self.report.id().name());
                let mut out = Output::create(Arc::clone(&self.disk), &self.dir, path)?;
                out.pending = self.report.encode();
                self.stage = Stage::Write(Ending::new(out));
            }
            Stage::Write(ending) => {
                if let Progress::Done(_) = ending.step()? {
                    self.stage = Stage::Clear(self.older()?);
                }
            }
            Stage::Clear(older) => match older.pop() {
                None => return Ok(Progress::Done(())),
                Some(name) => match self.disk.remove(&format!("{}/{name}", self.dir)) {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                },
            },
        }
        Ok(Progress::More)
    }

    /// Takes all steps to the end.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(mut self) -> Result<()> {
        while self.step()? == Progress::More {}
        Ok(())
    }

    /// Returns the names of the reports of this kind that are older than the [`KEPT_REPORTS`] newest.
    fn older(&self) -> Result<Vec<String>> {
        let mut names = names(self.disk.as_ref(), &self.dir)?;
        let kind = self.report.kind;
        let of_kind = |name: &str| ReportId::parse(name).is_some_and(|id| id.kind == kind);
        names.retain(|name| of_kind(name.strip_suffix(TEMPORARY).unwrap_or(name)));
        names.sort_unstable();
        let mut whole = names.iter().filter(|name| of_kind(name)).rev();
        let Some(lowest) = whole.nth(KEPT_REPORTS - 1).cloned() else {
            return Ok(Vec::new());
        };
        names.retain(|name| *name < lowest);
        debug_assert!(
            names.iter().all(|name| *name < lowest),
            "what is kept is not removed"
        );
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::{CkptEpoch, Epoch};
    use perdura_device::{CrashProfile, FaultPlan, MemDisk, SimDisk};

    use super::*;
    use crate::report::{Outcome, Replay};

    const UUID: Uuid = Uuid([5; 16]);

    fn report(kind: ReportKind, of: u64, wall_us: u64) -> Report {
        let is_proof = kind == ReportKind::Proof;
        Report {
            kind,
            outcome: Outcome::Holds,
            uuid: UUID,
            wall_us,
            from: CkptEpoch(1),
            to: CkptEpoch(if is_proof { of } else { 0 }),
            begin: Epoch(1),
            end: Epoch(of),
            manifest: 1,
            runs: 3,
            took_us: 0,
            replay: Replay::default(),
            digests: Vec::new(),
            text: String::new(),
        }
    }

    fn archive(disk: &dyn Disk) {
        disk.make_dir(&folder(&UUID)).expect("a disk");
        disk.sync_dir("").expect("a disk");
    }

    #[test]
    fn the_newest_of_each_kind_are_kept_and_a_damaged_one_is_passed_over() {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        archive(disk.as_ref());
        let newest = |kind| newest_report(disk.as_ref(), &UUID, kind).expect("a disk");
        assert_eq!(newest(ReportKind::Proof), None);
        for i in 1..=30 {
            let drill = report(ReportKind::Drill, 100 - i, i);
            Reporting::new(Arc::clone(&disk), drill)
                .run()
                .expect("a disk");
            let proof = report(ReportKind::Proof, i, 9);
            Reporting::new(Arc::clone(&disk), proof)
                .run()
                .expect("a disk");
        }
        assert_eq!(
            reports(disk.as_ref(), &UUID).unwrap().len(),
            2 * KEPT_REPORTS
        );
        let (proof, drill) = (newest(ReportKind::Proof), newest(ReportKind::Drill));
        assert_eq!(proof.as_ref().map(|report| report.to), Some(CkptEpoch(30)));
        assert_eq!(drill.map(|report| report.wall_us), Some(30));
        let path = format!("{}/{}", dir_of(&UUID), proof.unwrap().id().name());
        let file = disk.open(&path, Access::Buffered).unwrap();
        file.write_at(30, &[0xff]).unwrap();
        let before = newest(ReportKind::Proof).map(|report| report.to);
        assert_eq!(before, Some(CkptEpoch(29)));
        let again = Reporting::new(Arc::clone(&disk), report(ReportKind::Proof, 29, 9)).run();
        assert!(matches!(again, Err(Error::Usage(_))), "{again:?}");
    }

    #[test]
    fn a_crash_at_each_io_leaves_the_report_whole_or_not_at_all() {
        let (mut none, mut whole) = (0, 0);
        for nth in 0..16 {
            let disk = SimDisk::new(nth);
            let life: Arc<dyn Disk> = disk.life();
            archive(life.as_ref());
            let first = report(ReportKind::Proof, 1, 1);
            Reporting::new(Arc::clone(&life), first)
                .run()
                .expect("a disk");
            disk.set_plan(FaultPlan {
                cut_after_ops: Some(nth),
                ..FaultPlan::default()
            });
            let done = Reporting::new(life, report(ReportKind::Proof, 2, 2)).run();
            disk.crash(CrashProfile::Worst, nth);
            let life = disk.life();
            let newest = newest_report(life.as_ref(), &UUID, ReportKind::Proof);
            let newest = newest.expect("a disk").expect("the first is durable").to;
            assert!(done.is_err() || newest == CkptEpoch(2), "I/O {nth}");
            none += usize::from(newest == CkptEpoch(1));
            whole += usize::from(newest == CkptEpoch(2));
        }
        assert!(none > 2 && whole > 2, "{none} and {whole}");
    }
}
