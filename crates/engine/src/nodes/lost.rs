//! The nodes' part of a lost database's log, for a restore.
//!
//! A restore has no anchor. The archive has a copy of one, and the surviving log has its lives
//! ([`perdura_wal::lives_to_drain`]). First the restore *fences* the writer: it claims the database in the arbiter, like
//! a takeover, and seals and reads the nodes. Then it reads archive and log, and drains the nodes' bytes onto disks that it may write: overlays of the
//! surviving log, or empty disks.
//!
//! # Invariants
//! * A writer that may still run is replaced only if the caller says so. Otherwise it would acknowledge writes that the
//!   restored database lacks.
//! * Archive and log are read after the fence.
//! * The drained blocks follow the archive and the surviving log without a gap.

use std::sync::Arc;

use perdura_base::{Epoch, Error, Incarnation, Pos, Result, StreamId};
use perdura_device::{Clock, Disk};
use perdura_mirror::{Kept, Register, View};
use perdura_recovery::Anchor;
use perdura_wal::EpochEnds;
use perdura_wal::drain::DrainLife;
use perdura_wal::segment::LOG_DIR;

use super::draining::drain_stream;
use super::{Claimed, Nodes};

/// The number of the writer in the claim of a restore. A restore never writes the log, so a view with this writer has no
/// live writer.
const RESTORER: u64 = 0;

/// The state of a lost database before the fence.
pub struct Lost<'a> {
    /// The archive's copy of the anchor.
    pub anchor: &'a Anchor,
    /// The newest life in the surviving log. `None`: no log survives.
    pub newest: Option<Incarnation>,
}

/// The log of a lost database, as far as archive and disks have it.
pub struct LostLog<'a> {
    /// The disk of each stream. The drain writes to it.
    pub disks: &'a [Arc<dyn Disk>],
    /// The facts for the drain of each stream. `None`: the disks are empty.
    pub lives: Option<Vec<DrainLife>>,
    /// The end of the part that the archive has.
    pub from: &'a EpochEnds,
    /// The archive's copy of the anchor.
    pub anchor: &'a Anchor,
}

/// The permissions of a restore that reads nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permits {
    /// True if a writer that may still run is replaced.
    pub take_over: bool,
    /// True if the restore continues although acknowledged bytes cannot be fetched.
    pub accept_loss: bool,
}

/// The view of a database whose last writer was replaced, and the bytes of the sealed nodes.
#[derive(Debug, Clone)]
pub struct Fenced {
    view: View,
    /// For each stream, the bytes that the nodes have returned.
    kept: Vec<Vec<Kept>>,
    /// Lines for the operator.
    notes: Vec<String>,
}

impl Nodes {
    /// Replaces the last writer of a lost database, and waits until its lease has ended. If a restore has replaced it
    /// before, only waits.
    ///
    /// # Errors
    /// [`Error::Usage`] if the writer may still run and `take_over` is not permitted, or if the view is not the
    /// database's newest one. Nothing was changed then. Errors of the view's storage.
    pub fn fence(&self, lost: &Lost<'_>, permits: Permits, clock: &dyn Clock) -> Result<Fenced> {
        self.options.check()?;
        let mut register: Box<dyn Register> = (self.register)(lost.anchor.uuid)?;
        let Some(view) = register.read()? else {
            return Err(Error::Usage(format!(
                "the view directory has no view of database {}. Give the one that the server used (--log-view)",
                lost.anchor.uuid
            )));
        };
        lost.check_view(&view, permits)?;
        let is_fenced = view.generation > view.rings && view.writer == RESTORER;
        let view = match (is_fenced, permits.take_over) {
            (true, _) => view,
            (false, true) => {
                let by = self.claimant(lost.anchor, RESTORER, clock.wall_us());
                let Claimed { view, .. } = self.claim_as(by)?;
                lost.check_view(&view, permits)?;
                view
            }
            (false, false) => {
                return Err(Error::Usage(format!(
                    "the server that wrote this log (generation {}) may still run, and would acknowledge writes that \
                     the restored database lacks. Nothing was changed. Stop that server, and give --take-over: it \
                     fences the server and then reads the nodes",
                    view.generation
                )));
            }
        };
        self.wait_for_lease(&view, clock);
        assert_eq!(view.uuid, lost.anchor.uuid, "the claim is of this database");
        assert!(view.generation > view.rings, "the writer was replaced");
        let mut fenced = Fenced {
            kept: vec![Vec::new(); view.homes.len()],
            notes: lost.warnings(&view),
            view,
        };
        if fenced.view.is_mirrored() && fenced.view.life == lost.life() {
            let from = vec![Pos(0); fenced.view.homes.len()];
            let (kept, lacks) = self.fetch(&fenced.view, from, permits.accept_loss, clock)?;
            fenced.kept = kept;
            fenced.notes.extend(lacks.map(|why| why.to_string()));
        }
        Ok(fenced)
    }
}

impl Fenced {
    /// Returns lines for the operator.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns an epoch that was durable on the log's disks. A log that ends before it has lost something.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        self.view.hard
    }

    /// Adds to the log on `log.disks` the blocks that only nodes had. Returns lines for the operator.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the nodes' bytes do not follow the log, or contradict it. Errors of the disks.
    pub fn complete(&self, log: &LostLog<'_>) -> Result<Vec<String>> {
        let lives = log.lives();
        assert_eq!(
            (log.disks.len(), lives.len()),
            (log.from.ends.len(), self.kept.len()),
            "each stream has a disk"
        );
        assert!(
            lives.iter().all(|life| life.start <= life.vouched),
            "the drain is of one life"
        );
        let mut notes = Vec::new();
        for ((life, kept), disk) in lives.iter().zip(&self.kept).zip(log.disks) {
            if kept.is_empty() {
                continue;
            }
            // Without a log on disks, the drain begins at the archive's end.
            let begins = kept.iter().filter(|_| log.lives.is_none());
            if let Some(first) = begins.min_by_key(|kept| kept.from)
                && life.vouched < first.from
            {
                return Err(hole(life.stream, life.vouched, first));
            }
            disk.make_dir(LOG_DIR)?;
            let drained = drain_stream(disk, life, kept)?;
            if let Some(later) = kept.iter().find(|kept| drained.end < kept.from) {
                return Err(hole(life.stream, drained.end, later));
            }
            notes.extend(drained.notes);
        }
        Ok(notes)
    }
}

impl Lost<'_> {
    /// Refuses a view that is of another log, or that is older than the archive or the log.
    fn check_view(&self, view: &View, permits: Permits) -> Result<()> {
        let streams = usize::from(self.anchor.streams);
        if view.homes.len() != streams {
            return Err(Error::Usage(format!(
                "the view is of a log of {} streams, but this log has {streams}. Give the view directory of this \
                 database (--log-view)",
                view.homes.len()
            )));
        }
        let anchored = self.anchor.mirrored.map_or(0, |named| named.generation);
        if view.generation.0 < anchored {
            return Err(Error::Usage(format!(
                "the view directory has generation {} of this database, but the archive knows generation {anchored}. It \
                 is another directory, or it has lost its newest view. Nothing was changed. Give the right directory \
                 (--log-view)",
                view.generation
            )));
        }
        let newest = self.life();
        let place = if self.newest.is_some() {
            "log"
        } else {
            "archive"
        };
        if view.life < newest && !permits.accept_loss {
            return Err(Error::Usage(format!(
                "the view is of life {} of the database, but the {place} has life {newest}. The view directory is an \
                 older copy, or the database ran without its nodes since. Nothing was changed. Give the newest view \
                 directory (--log-view), or restore without --log-nodes and with --accept-loss",
                view.life
            )));
        }
        if view.life > newest && (view.is_mirrored() || self.newest.is_some()) {
            return Err(Error::Usage(format!(
                "the nodes have the end of life {} of the database, but the {place} has life {newest} as its newest. The \
                 log between is missing and may have acknowledged transactions. Nothing was changed. Give the newest \
                 log directory (--log-dir), or restore without --log-nodes and with --accept-loss",
                view.life
            )));
        }
        match self.only_on_disk(view) {
            Some(why) if !permits.accept_loss => Err(Error::Usage(format!(
                "{why}. Nothing was changed. Give the log's directory (--log-dir), or --accept-loss to restore what \
                 archive and nodes have"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the newest life that is known.
    fn life(&self) -> Incarnation {
        self.newest.unwrap_or(self.anchor.incarnation)
    }

    /// Returns the reason why the nodes do not have all acknowledged bytes. `None`: they have, or a log survives.
    fn only_on_disk(&self, view: &View) -> Option<String> {
        let stream = first_on_disk(view).filter(|_| self.newest.is_none())?;
        Some(format!(
            "acknowledgements of stream {stream} rested on the log's disk (view {}), so the nodes do not have all of them",
            view.v
        ))
    }

    /// Returns warnings about a view in which not all acknowledgements rest on nodes.
    fn warnings(&self, view: &View) -> Vec<String> {
        let mut warnings: Vec<String> = self.only_on_disk(view).into_iter().collect();
        if view.life != self.life() {
            warnings.push(format!(
                "the view is of life {} of the database, and the newest life that is known is {}: the nodes are not read",
                view.life,
                self.life()
            ));
        }
        if first_on_disk(view).is_some() {
            warnings.push(
                "acknowledgements rested on the log's disks, not only on nodes. Nodes cannot fence a server in this \
                 mode, so make sure that it does not run"
                    .into(),
            );
        }
        warnings
    }
}

/// Returns the first stream whose acknowledgements rest on the log's disk, not only on nodes.
fn first_on_disk(view: &View) -> Option<StreamId> {
    let streams = (0u8..).map(StreamId).zip(&view.homes);
    let mut on_disk = streams.filter(|(stream, _)| !view.mode_of(*stream).is_mirror());
    on_disk.next().map(|(stream, _)| stream)
}

impl LostLog<'_> {
    /// Returns the facts for the drain of each stream.
    fn lives(&self) -> Vec<DrainLife> {
        if let Some(lives) = &self.lives {
            return lives.clone();
        }
        let streams = (0u8..).map(StreamId).zip(&self.from.ends);
        let lives = streams.map(|(stream, end)| {
            let life = self.anchor.drain_life(stream);
            // The archive's end may be behind the end that its copy of the anchor vouches for.
            let vouched = life.start.max(*end);
            DrainLife { vouched, ..life }
        });
        lives.collect()
    }
}

/// Returns the error for bytes of a node that begin behind the log.
fn hole(stream: StreamId, end: Pos, later: &Kept) -> Error {
    Error::corrupt(
        format!("log stream {stream} in the memory of {}", later.holder),
        later.from.0,
        format!("the log from position {end} on, where archive and log directories end"),
        format!("a gap: the node's bytes begin at {}", later.from),
        "Transactions are missing between. They were on the log's disk. Only the generation was changed. Give the log's \
         directory (--log-dir), or restore without --log-nodes and with --accept-loss to get what the archive has.",
    )
}
