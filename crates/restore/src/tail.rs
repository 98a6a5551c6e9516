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
use perdura_wal::drain::DrainLife;
use perdura_wal::{
    Archived, EpochEnds, EpochSource, Lineage, LogOf, Scheme, Survivor, lives_of, lives_to_drain,
    survive,
};

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

/// Adds to a log the blocks that only the memories of nodes have. The arguments are the facts for the drain of each
/// stream, and the end of the part that is known. There are no facts if the disks are empty. Returns an epoch that the
/// log had durably.
pub type Complete<'a> = dyn Fn(Option<Vec<DrainLife>>, &EpochEnds) -> Result<Epoch> + 'a;

/// The log of a lost database, as far as it survives.
#[derive(Clone, Copy)]
pub struct Surviving<'a> {
    /// The disk of each stream. It is only read here.
    pub disks: &'a [Arc<dyn Disk>],
    /// False if these disks are empty, because nothing but the memory of nodes survives.
    pub is_on_disk: bool,
    /// The means to add the nodes' part to the log on `disks`. `None`: no nodes are asked.
    pub complete: Option<&'a Complete<'a>>,
    /// True if the log may lack acknowledged epochs that only the memories of nodes had.
    pub accept_loss: bool,
}

impl<'a> Surviving<'a> {
    /// Returns the log on these disks, without nodes.
    #[must_use]
    pub fn on(disks: &'a [Arc<dyn Disk>]) -> Surviving<'a> {
        Surviving {
            disks,
            is_on_disk: true,
            complete: None,
            accept_loss: false,
        }
    }
}

/// Returns the log as `wal` looks at it. `header` describes the log.
fn log_of<'a>(log: &Surviving<'a>, header: &BackupHeader) -> Result<LogOf<'a>> {
    let scheme = Scheme::from_code(header.scheme).ok_or_else(|| {
        Error::Usage(format!(
            "the backup has logging scheme {}, which this build does not know. Restore with a newer build",
            header.scheme
        ))
    })?;
    Ok(LogOf {
        disks: log.disks,
        uuid: header.uuid,
        scheme,
        sizes: header.segments,
        is_partial: !log.is_on_disk,
        accept_loss: log.accept_loss,
    })
}

/// Returns the facts for a drain of a surviving log from the archive's end on.
///
/// # Errors
/// As [`read_tail`].
pub fn drained_lives(store: &Store, disks: &[Arc<dyn Disk>]) -> Result<Vec<DrainLife>> {
    let log = log_of(&Surviving::on(disks), &any_header(store)?)?;
    let lives = lives_of(&log)?;
    check_history(store, &lives)?;
    lives_to_drain(&log, &lives, &end_of(store)?)
}

/// The part of a log that follows the archive.
pub struct LogTail {
    /// The runs of this part.
    pub runs: Vec<Arc<Run>>,
    /// The highest acknowledged epoch, if the log lacks it and its loss is accepted.
    pub lost_to: Option<Epoch>,
}

/// Makes runs from a surviving log, from the archive's end to the log's end. `log.complete` is called first, because
/// only nodes may have blocks without which the log seems to have lost some.
///
/// # Errors
/// [`Error::Foreign`] for the log of another database. [`Error::Corrupt`] as [`survive`]. Errors of the disks and of
/// `log.complete`.
pub fn read_tail(store: &Store, log: &Surviving<'_>, scratch: &Scratch) -> Result<LogTail> {
    let header = any_header(store)?;
    let found = log_of(log, &header)?;
    let mut from = end_of(store)?;
    let (mut runs, mut had) = (Vec::new(), Epoch(0));
    if log.is_on_disk {
        check_history(store, &lives_of(&found)?)?;
        runs = read_backlog(store, log.disks, scratch, &from)?;
        if let Some(last) = runs.last() {
            from = EpochEnds {
                epoch: last.id().epochs.last(),
                ends: last.ends().to_vec(),
            };
        }
    }
    if let Some(complete) = log.complete {
        let lives = log.is_on_disk.then(|| lives_of(&found)).transpose()?;
        let facts = lives.map(|lives| lives_to_drain(&found, &lives, &from));
        had = complete(facts.transpose()?, &from)?;
    }
    let lives = lives_of(&found)?;
    check_history(store, &lives)?;
    let mut survivor = survive(&found, &from)?;
    survivor.history.lineage = lives;
    assert_eq!(log.disks.len(), from.ends.len(), "each stream has a disk");
    runs.extend(runs_of(log, &survivor, &from, &header, scratch)?);
    let is_short = survivor.durable.epoch < had;
    if is_short && !log.accept_loss {
        return Err(shorter(survivor.durable.epoch, had));
    }
    let lost_to = survivor.lost_to.max(Some(had).filter(|_| is_short));
    Ok(LogTail { runs, lost_to })
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
    let options = ArchiverOptions {
        carries_frames: header.archive() == Archived::Carried,
        ..ArchiverOptions::new(header.uuid, header.chunks)
    };
    let mut archiver = Archiver::new(source, target, options);
    archiver.cut_at(durable.epoch);
    loop {
        match archiver.step(durable, 0)? {
            ArchiverStep::Working => {}
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

/// Returns the error for a log that ends before an epoch that it had durably.
fn shorter(end: Epoch, had: Epoch) -> Error {
    Error::corrupt(
        "the log",
        0,
        format!("the log up to epoch {had} at least, which the view says was durable"),
        format!("epoch {end} as its last"),
        "Acknowledged transactions are missing. The directories are older copies, or another disk has the rest. Give the \
         newest ones, or --accept-loss to restore what is there.",
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
