//! The nodes' part of a lost database's log, for a restore.
//!
//! A restore has no anchor. The archive has a copy of one, and the surviving log has its lives
//! ([`perdura_wal::survive`]). A restore drains onto disks that it may write: overlays of the surviving log, or empty
//! disks.
//!
//! # Invariants
//! * A writer that may still run is replaced only if the caller says so. Otherwise it would acknowledge writes that the
//!   restored database lacks.
//! * The drained blocks follow the archive and the surviving log without a gap.

use std::sync::Arc;

use perdura_base::{Error, Incarnation, Pos, Result, StreamId};
use perdura_device::{Clock, Disk};
use perdura_mirror::{Kept, Register, View};
use perdura_recovery::Anchor;
use perdura_wal::EpochEnds;
use perdura_wal::anchor::History;
use perdura_wal::drain::DrainLife;
use perdura_wal::segment::LOG_DIR;

use super::draining::drain_stream;
use super::{Claimed, Nodes};

/// The log of a lost database, as far as archive and disks have it.
pub struct LostLog<'a> {
    /// The disk of each stream. The drain writes to it.
    pub disks: &'a [Arc<dyn Disk>],
    /// True if these disks have the log, and false if they are empty.
    pub survives: bool,
    /// The lives of the log on the disks, from the archive's end on. `None`: the disks have nothing after that end.
    pub found: Option<&'a History>,
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

/// The result of a completion.
#[derive(Debug, Default)]
pub struct Completed {
    /// True if blocks were written.
    pub has_blocks: bool,
    /// Lines for the operator.
    pub notes: Vec<String>,
}

impl Nodes {
    /// Adds to the log on `log.disks` the blocks that only nodes have.
    ///
    /// # Errors
    /// [`Error::Usage`] if the last writer may still run and may not be replaced, if the view is of another history, or
    /// if no node returns the acknowledged bytes. [`Error::Corrupt`] if the nodes' bytes do not follow the log, or
    /// contradict it. Errors of the view's storage and of the disks.
    pub fn complete(
        &self,
        log: &LostLog<'_>,
        permits: Permits,
        clock: &dyn Clock,
    ) -> Result<Completed> {
        self.options.check()?;
        assert_eq!(
            log.disks.len(),
            log.from.ends.len(),
            "each stream has a disk"
        );
        let view = self.view_of(log.anchor, permits, clock)?;
        log.check_view(&view)?;
        if !log.is_in_nodes(&view) {
            return log.without_nodes(&view, permits.accept_loss);
        }
        let lives = log.lives(view.life)?;
        let from = lives.iter().map(|life| life.vouched).collect();
        let (kept, lacks) = self.fetch(&view, from, permits.accept_loss, clock)?;
        assert_eq!(kept.len(), lives.len(), "each stream was asked for");
        let mut completed = Completed::default();
        for ((life, kept), disk) in lives.iter().zip(&kept).zip(log.disks) {
            let first = kept.iter().min_by_key(|kept| kept.from);
            // Without a log on disks, the drain begins at the archive's end.
            if let Some(first) = first.filter(|first| !log.survives && life.vouched < first.from) {
                return Err(hole(life.stream, life.vouched, first));
            }
            disk.make_dir(LOG_DIR)?;
            let drained = drain_stream(disk, life, kept)?;
            if let Some(later) = first.filter(|first| drained.end < first.from) {
                return Err(hole(life.stream, drained.end, later));
            }
            assert!(
                kept.iter().all(|kept| kept.from <= drained.end),
                "the nodes' bytes follow the log"
            );
            completed.has_blocks |= drained.blocks > 0;
            completed.notes.extend(drained.notes);
        }
        completed.notes.extend(lacks.map(|why| why.to_string()));
        Ok(completed)
    }

    /// Returns the view, of a writer that no longer runs.
    fn view_of(&self, anchor: &Anchor, permits: Permits, clock: &dyn Clock) -> Result<View> {
        let mut register: Box<dyn Register> = (self.register)(anchor.uuid)?;
        let Some(view) = register.read()? else {
            return Err(Error::Usage(format!(
                "the view directory has no view of database {}. Give the one that the server used (--log-view)",
                anchor.uuid
            )));
        };
        // If a later process has claimed the database, the writer of the rings has been replaced.
        if view.generation > view.rings {
            return Ok(view);
        }
        if !permits.take_over {
            return Err(Error::Usage(format!(
                "the server that wrote this log (generation {}) may still run, and would acknowledge writes that the \
                 restored database lacks. Nothing was changed. Stop that server, and give --take-over: it fences the \
                 server and then reads the nodes",
                view.generation
            )));
        }
        let Claimed { view, .. } = self.claim_for(anchor, clock.wall_us())?;
        self.wait_for_lease(&view, clock);
        assert_eq!(view.uuid, anchor.uuid, "the claim is of this database");
        assert!(
            view.generation > view.rings,
            "the claim replaced the writer"
        );
        Ok(view)
    }
}

impl LostLog<'_> {
    /// Returns the newest life of the log.
    fn newest(&self) -> Incarnation {
        let of_log = self.found.map(|found| found.incarnation);
        of_log.unwrap_or(self.anchor.incarnation)
    }

    /// Refuses a view that is of another log, or older than the log.
    fn check_view(&self, view: &View) -> Result<()> {
        let streams = self.disks.len();
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
                 is another directory, or it has lost its newest view (--log-view)",
                view.generation
            )));
        }
        Ok(())
    }

    /// Returns whether nodes may have acknowledged bytes that neither archive nor log has.
    fn is_in_nodes(&self, view: &View) -> bool {
        view.is_mirrored() && view.life >= self.newest()
    }

    /// Handles a view that says that the log's disks had every acknowledged byte. Fails if these disks are lost, unless
    /// the loss is accepted.
    fn without_nodes(&self, view: &View, accept_loss: bool) -> Result<Completed> {
        if self.survives || accept_loss {
            let note =
                "the nodes have nothing to add: the log's disks had every acknowledged transaction";
            return Ok(Completed {
                has_blocks: false,
                notes: vec![note.into()],
            });
        }
        Err(Error::Usage(format!(
            "the view (generation {}) says that the log's disks had every acknowledged transaction, and the nodes have \
             nothing to add. Give the log's directory (--log-dir), or --accept-loss to restore what the archive has",
            view.generation
        )))
    }

    /// Returns the facts for the drain of each stream of life `life`.
    fn lives(&self, life: Incarnation) -> Result<Vec<DrainLife>> {
        if life != self.newest() {
            let place = if self.survives { "log" } else { "archive" };
            return Err(Error::corrupt(
                format!("the {place}"),
                0,
                format!("the beginning of life {life} of the database, whose end the nodes have"),
                format!("life {} as its newest", self.newest()),
                "The log between is missing and may have acknowledged transactions. Nothing was changed. Give the \
                 newest log directory (--log-dir), or restore without --log-nodes and with --accept-loss.",
            ));
        }
        let history: &History = self.found.unwrap_or(self.anchor);
        let streams = (0u8..).map(StreamId).zip(&self.from.ends);
        let lives = streams.map(|(stream, end)| {
            let life = history.drain_life(stream);
            let vouched = match self.found {
                Some(_) => life.vouched,
                // The archive's end may be behind the end that its copy of the anchor vouches for.
                None => life.start.max(*end),
            };
            assert!(life.start <= vouched, "the drain is of one life");
            DrainLife { vouched, ..life }
        });
        Ok(lives.collect())
    }
}

/// Returns the error for bytes of a node that begin behind the log.
fn hole(stream: StreamId, end: Pos, later: &Kept) -> Error {
    Error::corrupt(
        format!("log stream {stream} in the memory of {}", later.holder),
        later.from.0,
        format!("the log from position {end} on, where archive and log directories end"),
        format!("a gap: the node's bytes begin at {}", later.from),
        "Transactions are missing between. They were on the log's disk. Nothing was changed. Give the log's directory \
         (--log-dir), or restore without --log-nodes and with --accept-loss to get what the archive has.",
    )
}
