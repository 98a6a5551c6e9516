//! The log of the lost database: its directories, and the nodes that mirrored it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Parser;
use perdura::{Error, Fenced, Lost, LostLog, Nodes, Permits};
use perdura_archive::Store;
use perdura_device::{Disk, Locks, MemDisk, OverlayDisk, SystemClock};
use perdura_recovery::Anchor;
use perdura_recovery::disks::Paths;
use perdura_restore::{Complete, LogTail, Scratch, Surviving, drained_lives, read_tail};
use perdura_server::settings::Settings;
use perdura_wal::EpochEnds;
use perdura_wal::drain::DrainLife;

use crate::exit::Usage;
use crate::nodes;
use crate::output;
use crate::read_disk::ReadDisk;
use crate::setting_args::LogNodesArgs;

/// The places of the log that the archive does not have.
#[derive(Debug, Parser)]
pub struct LostLogArgs {
    /// The directory of the lost database's log, if this directory was on a separate disk and still exists. The restore
    /// then includes the log that is not yet in the archive. Give one directory for all streams, or one directory for
    /// each stream.
    #[arg(long, value_name = "DIR")]
    log_dir: Vec<PathBuf>,
    /// Replace the server that wrote the log, although it may still run, and then read the nodes. That server stops and
    /// acknowledges nothing more.
    #[arg(long, conflicts_with = "dry_run")]
    take_over: bool,
    /// Restore the last state of a database whose log was mirrored by nodes, although the nodes may have newer writes.
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    nodes: LogNodesArgs,
}

/// The log of a lost database, as the command line describes it.
#[derive(Default)]
pub struct LostLogPlaces {
    dirs: Vec<PathBuf>,
    nodes: Option<Nodes>,
    permits: Permits,
    /// The view, once the writer is fenced.
    fenced: Option<Fenced>,
}

impl LostLogArgs {
    /// Returns the places. Fails if the flags contradict each other.
    pub fn places(&self) -> anyhow::Result<LostLogPlaces> {
        let mut settings = Settings::default();
        self.nodes.0.apply(&mut settings)?;
        let settings = settings.database.node_settings;
        if let Some(view) = settings.view.as_ref().filter(|view| !view.is_dir()) {
            bail!(Usage(format!(
                "--log-view {}: no such directory",
                view.display()
            )));
        }
        let nodes = nodes::of(&settings)?;
        if self.take_over && nodes.is_none() {
            bail!(Usage("--take-over needs --log-nodes".into()));
        }
        Ok(LostLogPlaces {
            dirs: self.log_dir.clone(),
            nodes,
            permits: Permits {
                take_over: self.take_over,
                accept_loss: self.accept_loss,
            },
            fenced: None,
        })
    }

    /// Returns whether the restore may lack writes that only nodes have.
    pub fn accepts_loss(&self) -> bool {
        self.accept_loss
    }
}

impl LostLogPlaces {
    /// Returns whether nothing but the archive is read.
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty() && self.nodes.is_none()
    }

    /// Returns whether nodes are read.
    pub fn has_nodes(&self) -> bool {
        self.nodes.is_some()
    }

    /// Replaces the server that wrote the log, if nodes are to be read.
    ///
    /// # Errors
    /// As [`Nodes::fence`]; errors of the log's disks.
    pub fn fence(&mut self, store: &Store) -> Result<(), Error> {
        let Some(nodes) = &self.nodes else {
            return Ok(());
        };
        let newest = match self.dirs.is_empty() {
            true => None,
            false => {
                let (logs, _locks) = self.open(streams_of(store))?;
                let lives = drained_lives(store, &logs)?;
                lives.first().map(|life| life.incarnation)
            }
        };
        let anchor = anchor_of(store)?;
        let lost = Lost {
            anchor: &anchor,
            newest,
        };
        let fenced = nodes.fence(&lost, self.permits, &SystemClock::new())?;
        fenced.notes().iter().for_each(|note| output::warning(note));
        self.fenced = Some(fenced);
        Ok(())
    }

    /// Makes runs of the log after the archive's end. `disk` is the new database's data disk.
    ///
    /// # Errors
    /// As [`read_tail`] and [`Fenced::complete`].
    pub fn read(
        &self,
        store: &Store,
        disk: &Arc<dyn Disk>,
        scratch: &Scratch,
    ) -> Result<LogTail, Error> {
        let (mut logs, _locks) = self.open(streams_of(store))?;
        let Some(fenced) = &self.fenced else {
            let log = Surviving {
                accept_loss: self.permits.accept_loss,
                ..Surviving::on(&logs)
            };
            return read_tail(store, &log, scratch).map(told);
        };
        // The drain changes an overlay, and the surviving log stays as it is.
        if let [first, rest @ ..] = &logs[..]
            && rest.iter().all(|other| Arc::ptr_eq(first, other))
        {
            logs = vec![overlay(first, disk)?; logs.len()];
        } else {
            let over = logs.iter().map(|log| overlay(log, disk));
            logs = over.collect::<Result<_, Error>>()?;
        }
        let (anchor, notes) = (anchor_of(store)?, RefCell::new(Vec::new()));
        let complete = |lives: Option<Vec<DrainLife>>, from: &EpochEnds| {
            let log = LostLog {
                disks: &logs,
                lives,
                from,
                anchor: &anchor,
            };
            *notes.borrow_mut() = fenced.complete(&log)?;
            Ok(fenced.durable())
        };
        let complete: &Complete<'_> = &complete;
        let log = Surviving {
            disks: &logs,
            is_on_disk: !self.dirs.is_empty(),
            complete: Some(complete),
            accept_loss: self.permits.accept_loss,
        };
        let tail = read_tail(store, &log, scratch);
        notes.take().iter().for_each(|note| output::note(note));
        tail.map(told)
    }

    /// Opens the directories of a surviving log, and locks them in shared mode. Returns a disk for each stream, and the
    /// locks. Without directories, the disks are empty. Fails if a server uses the log.
    fn open(&self, streams: u8) -> Result<(Vec<Arc<dyn Disk>>, Locks), Error> {
        let mut locks: Locks = Vec::new();
        if self.dirs.is_empty() {
            let empty: Arc<dyn Disk> = Arc::new(MemDisk::new());
            return Ok((vec![empty; usize::from(streams)], locks));
        }
        let paths = Paths {
            logs: self.dirs.clone(),
            ..Paths::default()
        };
        paths.check_logs(streams)?;
        let mut logs = Vec::new();
        for dir in &self.dirs {
            let disk: Arc<dyn Disk> = Arc::new(ReadDisk::open(dir));
            let names = disk.list("")?;
            for name in names.iter().filter(|name| name.starts_with("LOCK")) {
                locks.push(disk.lock(name)?);
            }
            locks.extend(disk.lock_present("")?);
            logs.push(disk);
        }
        if let [all] = &logs[..] {
            logs = vec![Arc::clone(all); usize::from(streams)];
        }
        assert_eq!(logs.len(), usize::from(streams), "each stream has a disk");
        Ok((logs, locks))
    }
}

/// Returns a disk over `log`. Changes of it go to a file on `disk` that has no name.
fn overlay(log: &Arc<dyn Disk>, disk: &Arc<dyn Disk>) -> Result<Arc<dyn Disk>, Error> {
    let over = OverlayDisk::new(Arc::clone(log), disk.as_ref(), "")?;
    Ok(Arc::new(over))
}

/// Reports what the log has lost.
fn told(tail: LogTail) -> LogTail {
    if let Some(lost_to) = tail.lost_to {
        let last = tail
            .runs
            .last()
            .map(|run| run.id().epochs.last().to_string());
        let last = last.unwrap_or_else(|| "that of the archive".into());
        output::warning(&format!(
            "acknowledged transactions are lost: the log ends with epoch {last}, and epoch {lost_to} was acknowledged"
        ));
    }
    tail
}

fn streams_of(store: &Store) -> u8 {
    u8::try_from(store.manifest().positions.len()).unwrap_or(u8::MAX)
}

/// Returns the archive's copy of the anchor.
fn anchor_of(store: &Store) -> Result<Anchor, Error> {
    let anchor = store.manifest().anchor()?.map(Anchor::of).transpose()?;
    anchor.ok_or_else(|| {
        Error::Usage(
            "an older build wrote this archive, without the anchor that nodes are read by. Restore without --log-nodes"
                .into(),
        )
    })
}
