//! Makes runs from the part of a surviving log that the archive does not have. These runs follow the archive's runs.
//!
//! The archive ends about a second before the log does. If the data disk is lost and the log is on other disks, no
//! acknowledged transaction is lost. `wal` finds the part of the log from the archive's end to the log's end
//! ([`perdura_wal::survive`]), and the product's archiver makes runs of it.
//!
//! If the archive could not be reached for a time, the runs for it are in a backlog beside the log. The part of the log
//! with the records of these runs may have been deleted. So the backlog's runs come before the runs made from the log.
//!
//! If nodes mirrored the log, its newest blocks may be only in their memories. The caller adds these blocks to the log
//! before it is read.

use std::sync::Arc;

use perdura_archive::backup::BackupHeader;
use perdura_archive::{
    Archiver, ArchiverOptions, ArchiverStep, Merge, MergeOptions, Run, RunTarget, Store, backlog,
};
use perdura_base::{Epoch, Error, Result};
use perdura_device::Disk;
use perdura_page::RegionDigest;
use perdura_wal::anchor::History;
use perdura_wal::{Archived, EpochEnds, EpochSource, Lineage, Scheme, Survivor, lives_of, survive};

use crate::choose::beginning;
use crate::listed::end_of;
use crate::scratch::Scratch;

/// Returns a header that describes the log: the header of the newest readable backup. If no backup can be read and the
/// archive begins with the first epoch, returns the header of an empty backup.
fn any_header(store: &Store) -> Result<BackupHeader> {
    let mut first = None;
    let manifest = store.manifest();
    let newest: Vec<_> = manifest.backups().collect();
    for id in newest.into_iter().rev() {
        match store.open_backup(id) {
            Ok(backup) => return Ok(*backup.header()),
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    if let Some(empty) = beginning(store)? {
        return Ok(*empty.header());
    }
    Err(first.unwrap_or_else(|| {
        Error::Usage(format!(
            "the archive of {} has no backup, so it cannot be restored. Make a backup with `perdura backup create`",
            store.uuid()
        ))
    }))
}

/// Adds to a log the blocks that only the memories of nodes have. The arguments are the lives of the log and the end of
/// the part that is known. The lives are `None` if the log's disks have nothing after that end. Returns whether blocks
/// were added.
pub type Complete<'a> = dyn Fn(Option<&History>, &EpochEnds) -> Result<bool> + 'a;

/// The log of a lost database, as far as it survives.
#[derive(Clone, Copy)]
pub struct Surviving<'a> {
    /// The disk of each stream. It is only read here.
    pub disks: &'a [Arc<dyn Disk>],
    /// False if these disks are empty, because nothing but the memory of nodes survives.
    pub is_on_disk: bool,
    /// The means to add the nodes' part to the log on `disks`. `None`: no nodes are asked.
    pub complete: Option<&'a Complete<'a>>,
}

impl<'a> Surviving<'a> {
    /// Returns the log on these disks, without nodes.
    #[must_use]
    pub fn on(disks: &'a [Arc<dyn Disk>]) -> Surviving<'a> {
        Surviving {
            disks,
            is_on_disk: true,
            complete: None,
        }
    }
}

/// Makes runs from a surviving log, from the archive's end to the log's end.
///
/// # Errors
/// [`Error::Foreign`] for the log of another database. [`Error::Usage`] for a database with key-addressed tables,
/// because some changes in its log are in no run. [`Error::Corrupt`] as [`survive`]. Errors of the disks and of
/// `log.complete`.
pub fn read_tail(store: &Store, log: &Surviving<'_>, scratch: &Scratch) -> Result<Vec<Arc<Run>>> {
    let header = any_header(store)?;
    if header.archive() == Archived::Carried {
        return Err(is_ordered());
    }
    let scheme = Scheme::from_code(header.scheme).ok_or_else(|| {
        Error::Usage(format!(
            "the backup has logging scheme {}, which this build does not know. Restore with a newer build",
            header.scheme
        ))
    })?;
    let uuid = *store.uuid();
    let mut from = end_of(store)?;
    assert_eq!(log.disks.len(), from.ends.len(), "each stream has a disk");
    let survivor_from = |from: &EpochEnds| -> Result<Survivor> {
        let lives = lives_of(log.disks, &uuid)?;
        check_history(store, &lives)?;
        let mut survivor = survive(log.disks, uuid, scheme, header.segments, from)?;
        survivor.history.lineage = lives;
        Ok(survivor)
    };
    let mut runs = Vec::new();
    let mut survivor = None;
    if log.is_on_disk {
        check_history(store, &lives_of(log.disks, &uuid)?)?;
        runs = read_backlog(store, log.disks, scratch, &from)?;
        if let Some(last) = runs.last() {
            from = EpochEnds {
                epoch: last.id().epochs.last(),
                ends: last.ends().to_vec(),
            };
        }
        survivor = Some(survivor_from(&from)?);
    }
    if let Some(complete) = log.complete {
        let beyond = survivor
            .as_ref()
            .filter(|found| found.durable.epoch > from.epoch);
        if complete(beyond.map(|found| &found.history), &from)? {
            survivor = Some(survivor_from(&from)?);
        }
    }
    if let Some(survivor) = survivor {
        runs.extend(runs_of(log, &survivor, &from, &header, scratch)?);
    }
    Ok(runs)
}

/// Makes runs of the epochs after `from`.
fn runs_of(
    log: &Surviving<'_>,
    survivor: &Survivor,
    from: &EpochEnds,
    header: &BackupHeader,
    scratch: &Scratch,
) -> Result<Vec<Arc<Run>>> {
    let (mut runs, durable) = (Vec::new(), &survivor.durable);
    assert!(
        durable.epoch >= from.epoch,
        "the log ends with epoch {}, and the archive has epoch {}",
        durable.epoch,
        from.epoch
    );
    if durable.epoch == from.epoch {
        return Ok(runs);
    }
    let source = EpochSource::open(log.disks, &survivor.history, from)?;
    let target = RunTarget {
        disk: Arc::clone(scratch.disk()),
        dir: scratch.dir().to_owned(),
        digest: Arc::new(RegionDigest::new()),
    };
    let options = ArchiverOptions::new(header.uuid, header.chunks);
    let mut archiver = Archiver::new(source, target, options);
    archiver.cut_at(durable.epoch);
    loop {
        match archiver.step(durable, 0)? {
            ArchiverStep::Working => {}
            ArchiverStep::Run(run) if run.ordered > 0 => return Err(is_ordered()),
            ArchiverStep::Run(run) => runs.push(scratch.open(run.summary.id, &header.uuid)?),
            ArchiverStep::Idle => break,
        }
    }
    let reached = runs.last().map_or(Epoch(0), |run| run.id().epochs.last());
    assert_eq!(reached, durable.epoch, "the runs have all that is durable");
    Ok(runs)
}

/// Fails unless the log with these lives has the archive's history. A copy of the database that was set back
/// has another one.
fn check_history(store: &Store, log: &Lineage) -> Result<()> {
    store.check_history(log).map_err(|error| match error {
        Error::OtherHistory { archived, common } => Error::Foreign {
            file: "the log".into(),
            why: format!(
                "it is the log of another copy of the database. That copy left the archive's history after epoch \
                 {common}, and the archive has epochs up to {archived}. Nothing was changed. Give the log of the \
                 database that made the archive, or restore without --log-dir"
            ),
        },
        other => other,
    })
}

/// Returns the error for a log with changes that no run contains.
fn is_ordered() -> Error {
    Error::Usage(
        "the database has key-addressed tables, so only the epochs of its backups can be \
         restored. --log-dir adds no epochs. Restore without it"
            .into(),
    )
}

/// Returns the runs of the backlog beside a surviving log, without the epochs that the archive has. `from` is the
/// archive's end. If a run begins before the archive's end, a new run is written with the later epochs only. `wall_us`
/// is the time of the last moment that the archive lists.
fn read_backlog(
    store: &Store,
    logs: &[Arc<dyn Disk>],
    scratch: &Scratch,
    from: &EpochEnds,
) -> Result<Vec<Arc<Run>>> {
    let uuid = store.uuid();
    let Some(backlog) = backlog::find(logs, uuid)? else {
        return Ok(Vec::new());
    };
    let begin = Epoch(from.epoch.0 + 1);
    let waiting = backlog.readable_runs()?.into_iter();
    let mut runs: Vec<Arc<Run>> = waiting
        .skip_while(|run| run.id().epochs.end <= begin)
        .collect();
    let Some(first) = runs.first_mut() else {
        return Ok(runs);
    };
    let epochs = first.id().epochs;
    if begin < epochs.begin {
        return Err(Error::Usage(format!(
            "the archive ends with epoch {}, but the runs that wait for it on the log's disk, in \
             {}, begin with epoch {}. The runs between are lost, or are in another copy of the \
             archive. Give that copy, or restore without --log-dir",
            from.epoch,
            backlog.disk().name(),
            epochs.begin
        )));
    }
    if epochs.begin < begin {
        let options = MergeOptions {
            begin: Some(begin),
            ..MergeOptions::default()
        };
        let disk = Arc::clone(scratch.disk());
        let digest = Arc::new(RegionDigest::new());
        let inputs = vec![Arc::clone(first)];
        let written = Merge::new(disk, scratch.dir(), inputs, options, digest)?.run()?;
        *first = scratch.open(written.id, uuid)?;
    }
    assert_eq!(
        runs.first().map(|run| run.id().epochs.begin),
        Some(begin),
        "the runs follow the archive's"
    );
    Ok(runs)
}
