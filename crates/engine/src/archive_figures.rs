//! Figures of an archive: lag, contents, faults, and whether the archive can restore the database.

use std::sync::atomic::Ordering;

use perdura_archive::estimate::restore_us;
use perdura_archive::report::newest_report;
use perdura_archive::{Manifest, Object, Outcome, ReportKind};
use perdura_base::num::to_u64;
use perdura_device::Clock;
use perdura_wal::{Archived, Rung};

use crate::archive::backlog::BacklogStats;
use crate::archiver::AtArchive;
use crate::delays::Work;
use crate::stats::{ArchiveStats, BackupState, DrillStats, ProofStats};

/// An alarm is raised when the images of this many checkpoints in a row have not been proven.
pub const UNPROVEN_MAX: u64 = 4;

impl AtArchive {
    /// Returns the archive's fault: the archive cannot be reached, a proof or a drill has failed, no proof was made for
    /// too long, or files are missing. `None`: no fault is known, or the database has no archive.
    pub fn alarm(&self) -> Option<String> {
        if !self.archives {
            return None;
        }
        let (proof, drill, backlog) = {
            let archived = self.stats.lock();
            let backlog = archived.backlog.clone();
            (archived.proof.clone(), archived.drill.clone(), backlog)
        };
        if backlog.state == "waiting" {
            return Some(self.absence(&backlog));
        }
        let failed = (drill.result == Outcome::Fails.name())
            .then(|| format!("the drill of epoch {} failed: {}", drill.epoch, drill.text));
        let alarm = proof.alarm.clone().or(failed);
        let proven = alarm.or_else(|| self.absent(&proof));
        proven.or_else(|| self.ground.delays.why(Work::Objects))
    }

    /// Returns the alarm for an archive that cannot be reached. Its text says how much data waits, and whether writes
    /// are accepted.
    fn absence(&self, backlog: &BacklogStats) -> String {
        let why = self.ground.delays.why(Work::Archive);
        let writes = match backlog.full {
            true => "no more may wait (archive-backlog), so writes are refused",
            false => "writes are accepted",
        };
        let BacklogStats { runs, bytes, .. } = backlog;
        format!(
            "the archive cannot be reached ({}). {runs} runs of {bytes} bytes wait on the log's \
             disk; {writes}",
            why.unwrap_or("not tried again yet".into())
        )
    }

    /// Reads the report of the last drill into the figures. Changes nothing if the archive is
    /// closed or the report cannot be read.
    pub fn look_for_drill(&self) {
        let Some(store) = self.lent.get() else {
            return;
        };
        let newest = newest_report(store.disk().as_ref(), store.uuid(), ReportKind::Drill);
        if let Ok(Some(report)) = newest {
            self.stats.lock().drill = DrillStats {
                wall_us: report.wall_us,
                epoch: report.end.0,
                result: report.outcome.name(),
                took_us: report.took_us,
                restore_us: restore_us(&store.manifest(), &report),
                text: report.text,
            };
        }
    }

    /// Returns an alarm if [`UNPROVEN_MAX`] or more checkpoints have not been proven.
    fn absent(&self, proof: &ProofStats) -> Option<String> {
        let newest = self.ground.core.newest_digest()?.k.0;
        let unproven = match proof.image {
            Some(image) => newest.saturating_sub(image),
            None => self.ground.core.checkpoint_stats().completed,
        };
        if unproven < UNPROVEN_MAX {
            return None;
        }
        let why = self.ground.delays.why(Work::Archive);
        let why = why.unwrap_or_else(|| {
            "the archive does not contain the log up to the end of \
                                         the images yet"
                .into()
        });
        let last = match proof.image {
            Some(image) => format!("since image {image}"),
            None => "since the database was opened".into(),
        };
        Some(format!(
            "no image was compared with the archive {last}, {unproven} checkpoints ago: {why}"
        ))
    }

    /// Returns the archive's figures, including `backup`; `None` if the database is not archived.
    pub fn figures(&self, backup: BackupState) -> Option<ArchiveStats> {
        let end = self.ground.core.archived();
        if !self.archives && end.is_none() {
            return None;
        }
        let mut stats = self.stats.lock().clone();
        let durable = self.ground.core.wal().durable(Rung::Disk).0;
        let timeline = self.ground.core.anchor().get().timeline.clone();
        stats.timeline = timeline.map(|name| name.to_string());
        stats.archived_epoch = end.map(|end| end.epoch.0);
        let archived = stats.archived_epoch.unwrap_or(0);
        debug_assert!(archived <= durable, "what is durable is archived");
        stats.lag_epochs = durable.saturating_sub(archived);
        if self.archives && stats.lag_epochs > 0 {
            let since = self.caught_up_ns.load(Ordering::Relaxed);
            stats.lag_us = self.ground.now_ns().saturating_sub(since) / 1000;
        }
        let held = stats.proof.held_us;
        stats.proof.age_us = (held > 0).then(|| self.ground.clock.wall_us().saturating_sub(held));
        assert!(stats.runs > 0 || stats.bytes == 0, "bytes are of runs");
        let open_ns = self.ground.now_ns().saturating_sub(self.ground.opened_ns);
        let of_day = u128::from(stats.bytes) * 86_400_000_000_000 / u128::from(open_ns.max(1));
        stats.bytes_per_day = u64::try_from(of_day).unwrap_or(u64::MAX);
        stats.backup = backup;
        stats.alarm = self.alarm();
        let manifest = self.lent.get().map(|store| store.manifest());
        if let Some(manifest) = &manifest {
            let bytes = |runs: bool| -> u64 {
                let of_kind = |object: &&Object| object.id.run().is_some() == runs;
                let some = manifest.objects.iter().filter(of_kind);
                some.map(|object| object.bytes).sum()
            };
            stats.runs_now = Some(to_u64(manifest.runs().count()));
            stats.run_bytes = bytes(true);
            stats.backups = to_u64(manifest.backups().count());
            stats.backup_bytes = bytes(false);
            stats.complete_us = manifest.clock.seen_us;
            stats.clock_steps = to_u64(manifest.clock.steps.len());
        }
        stats.restorable = match stats.backlog.state {
            "draining" => {
                let runs = stats.backlog.runs;
                format!("no: the archive is back, and {runs} waiting runs are being written to it")
            }
            _ => self.restorable(manifest.as_deref(), &stats.proof),
        };
        Some(stats)
    }

    /// Returns whether the archive can restore the database: `yes`, or `no` and the reason.
    fn restorable(&self, manifest: Option<&Manifest>, proof: &ProofStats) -> String {
        if !self.archives {
            return "no: this server runs without its archive, and keeps the log for it".into();
        }
        let Some(manifest) = manifest else {
            let why = self.ground.delays.why(Work::Archive);
            return format!(
                "no: {}",
                why.unwrap_or("the archive is not open yet".into())
            );
        };
        let newest = manifest.backups().map(|id| id.k.0).max();
        // Runs of an earlier build lack the changes of key-addressed tables.
        let is_keyed = self.ground.core.anchor().get().archive() == Archived::Carried;
        match newest {
            None if manifest.has_all() && !is_keyed && proof.failed_image == 0 => {
                "yes, from the whole log: there is no backup yet".into()
            }
            None => "no: there is no backup yet".into(),
            Some(newest) if newest < proof.failed_image => format!(
                "no: the proof of image {} failed, and there is no backup of it or of a newer \
                 image",
                proof.failed_image
            ),
            Some(_) => "yes".into(),
        }
    }
}
