//! The log in the memory of nodes, during an open and while the database runs.
//!
//! The *view* says which nodes hold the newest log. It is stored in the *arbiter*, where an open claims the database.
//! If nodes may hold more of the log than the disks, the open seals these nodes. Then the open *drains* these nodes: it
//! copies the nodes' blocks into the segments. The restart follows. Once the anchor names the new life, the open writes
//! that life into the view.

mod draining;
mod lost;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Pos, Result, StreamId, Uuid};
use perdura_device::Clock;
use perdura_mirror::{
    Beginning, Claim, Claimant, Fetch, Fetched, Kept, Log, Managed, Mirror, MirrorOptions, Net,
    Patience, Register, Status, Swap, View, beginning_view,
};
use perdura_recovery::disks::Disks;
use perdura_recovery::{Anchor, AnchorCell, Mirrored, Tail, flush_all, read_anchor};
use perdura_wal::{Rung, Wal};

use draining::{drain_stream, drained_from, lives_to_drain};
pub use lost::{Fenced, Lost, LostLog, Permits};

/// The PEM files for TLS connections to the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTlsFiles {
    /// The certificate authorities that sign the nodes' certificates. `None`: TLS is not used.
    pub ca_cert: Option<PathBuf>,
    /// This database's certificate for the nodes, with the certificate chain.
    pub cert: Option<PathBuf>,
    /// The private key of `cert`.
    pub key: Option<PathBuf>,
}

/// The settings of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Pairs of addresses, each `HOST:PORT,HOST:PORT`.
    pub groups: Vec<String>,
    /// The directory that holds the view.
    pub view: Option<PathBuf>,
    /// The file with the nodes' key.
    pub key_file: Option<PathBuf>,
    /// The files of TLS.
    pub tls: NodeTlsFiles,
    /// At most this many bytes of a stream may be in the nodes' memories and not on disk.
    pub tail_bytes: u64,
    /// True if two nodes on one machine count as a mirror.
    pub one_machine: bool,
    /// The length of the lease. A lease begins when the writer asks the arbiter whether its view is in force. Only
    /// during the lease may the writer acknowledge data because its disk has it. Zero: the lease never ends.
    pub lease: Duration,
    /// True if blocks may go to other machines unencrypted.
    pub allow_plaintext: bool,
    /// True if a restart may give up data that neither the disks nor the nodes return.
    pub accept_loss: bool,
}

impl Default for NodeSettings {
    fn default() -> Self {
        NodeSettings {
            groups: Vec::new(),
            view: None,
            key_file: None,
            tls: NodeTlsFiles::default(),
            tail_bytes: 32 << 20,
            one_machine: false,
            lease: Duration::ZERO,
            allow_plaintext: false,
            accept_loss: false,
        }
    }
}

/// Makes the arbiter's register, which holds a database's view.
pub type MakeRegister = dyn Fn(Uuid) -> Result<Box<dyn Register>> + Send + Sync;
/// Returns random numbers. No attacker can guess them. In the simulator a seed determines them.
pub type Random = dyn Fn() -> u64 + Send + Sync;

/// The nodes for the newest part of the log, and the arbiter with the view.
#[derive(Clone)]
pub struct Nodes {
    /// The nodes' addresses, and limits.
    pub options: MirrorOptions,
    /// The network that connects to the nodes.
    pub net: Arc<dyn Net>,
    /// The maker of the register that holds the view.
    pub register: Arc<MakeRegister>,
    /// Random numbers.
    pub random: Arc<Random>,
    /// The times that a takeover waits for the nodes.
    pub patience: Patience,
    /// Waits for a short time, so that nodes can answer.
    pub pass: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Nodes");
        shown.field("groups", &self.options.groups);
        shown.finish_non_exhaustive()
    }
}

/// The number of attempts to ask the arbiter before an open fails.
const TRIES: usize = 50;

/// A database that an open has claimed.
pub(crate) struct Claimed {
    by: Claimant,
    view: View,
    register: Box<dyn Register>,
    /// The restart's rule for the end of the log.
    pub tail: Tail,
    /// The actions of the takeover, for the report.
    pub notes: Vec<String>,
}

/// Refuses a view if its number of streams differs from the anchor's, or if its life is later than the anchor's.
fn check_life(view: &View, anchor: &Anchor) -> Result<()> {
    if view.homes.len() != usize::from(anchor.streams) {
        return Err(Error::Usage(format!(
            "the view is of a log of {} streams, but this log has {}. Give the view directory of \
             this database (--log-view)",
            view.homes.len(),
            anchor.streams
        )));
    }
    if view.life > anchor.incarnation {
        return Err(Error::Usage(format!(
            "the data directory is an older copy: the view is of life {} of this database, and the directory of life \
             {}. Only the generation was changed. Give the newest data directory",
            view.life, anchor.incarnation
        )));
    }
    Ok(())
}

/// Refuses a view that is not newer than the anchor's generation.
fn check_generation(view: &View, anchored: u64) -> Result<()> {
    if view.generation.0 <= anchored {
        return Err(Error::Usage(format!(
            "the view directory has generation {} of this database, but the anchor names generation {anchored}. It is \
             another directory, or it has lost its newest view. Nothing was changed. Give the right directory \
             (--log-view), or start with --accept-loss and without nodes",
            view.generation.0 - 1,
        )));
    }
    Ok(())
}

impl Nodes {
    /// Claims a database, and drains the nodes into its segments. If the nodes do not return all blocks that the disks
    /// lack, the takeover fails. With `accept_loss` it gives up the missing blocks instead. The last writer may
    /// acknowledge writes until its lease ends. The takeover waits for that end, and then reads the anchor again.
    ///
    /// # Errors
    /// The errors of arbiter, nodes and [`drain`]. A failed takeover may have raised the generation in the view, and
    /// may have drained some blocks. It has changed nothing else. The next open finds these changes.
    pub(crate) fn take_over(
        &self,
        disks: &Disks,
        anchor: &mut Anchor,
        accept_loss: bool,
        clock: &dyn Clock,
    ) -> Result<Claimed> {
        self.options.check()?;
        let mut claimed = self.claim_for(anchor, clock.wall_us())?;
        self.outwait(&claimed.view, disks, anchor, clock)?;
        check_life(&claimed.view, anchor)?;
        let view = &claimed.view;
        let Some(mirrored) = anchor.mirrored else {
            claimed.tail = if accept_loss {
                Tail::GivenUp
            } else {
                Tail::OnDisk
            };
            return Ok(claimed);
        };
        check_generation(view, mirrored.generation)?;
        // Nothing is to be drained: a later life has recovered the nodes' blocks, or the view says that all is on disk.
        let is_recovered = view.life != anchor.incarnation && !armed(Flaw::OldLifeFetched);
        if is_recovered || !view.is_mirrored() {
            if accept_loss {
                return Err(Error::Usage(
                    "nothing is lost: the view says that the log's disks have every acknowledged \
                     transaction. Start without --accept-loss"
                        .into(),
                ));
            }
            return Ok(claimed);
        }
        let (kept, lacks) = self.fetch(view, drained_from(anchor), accept_loss, clock)?;
        assert!(
            accept_loss || lacks.is_none(),
            "a takeover that lacks something is refused, or its loss is accepted"
        );
        assert!(
            anchor.mirrored.is_some(),
            "the anchor says that nodes may hold more"
        );
        for life in lives_to_drain(anchor) {
            let stream = usize::from(life.stream.0);
            let drained = drain_stream(&disks.logs[stream], &life, &kept[stream])?;
            claimed.notes.extend(drained.notes);
        }
        match lacks {
            Some(why) => {
                claimed.tail = Tail::GivenUp;
                claimed.notes.push(why.to_string());
            }
            None if accept_loss => {
                let why =
                    "nothing was lost: the nodes have returned every acknowledged transaction";
                claimed.notes.push(why.into());
            }
            None => {}
        }
        Ok(claimed)
    }

    /// Claims the database of an anchor for this process.
    fn claim_for(&self, anchor: &Anchor, wall_us: u64) -> Result<Claimed> {
        self.claim_as(self.claimant(anchor, (self.random)(), wall_us))
    }

    fn claimant(&self, anchor: &Anchor, writer: u64, wall_us: u64) -> Claimant {
        Claimant {
            uuid: anchor.uuid,
            writer,
            wall_us,
            groups: u8::try_from(self.options.groups.len()).expect("at most 16 groups"),
            streams: anchor.streams,
        }
    }

    fn claim_as(&self, by: Claimant) -> Result<Claimed> {
        let mut register = (self.register)(by.uuid)?;
        let view = self.claim(&by, register.as_mut())?;
        assert!(
            view.uuid == by.uuid && view.writer == by.writer,
            "what was claimed is this database"
        );
        Ok(Claimed {
            by,
            view,
            register,
            tail: Tail::Drained,
            notes: Vec::new(),
        })
    }

    /// Waits until the last writer's lease has ended. Then reads the anchor again: that writer may have changed it.
    fn outwait(
        &self,
        view: &View,
        disks: &Disks,
        anchor: &mut Anchor,
        clock: &dyn Clock,
    ) -> Result<()> {
        if self.wait_for_lease(view, clock)
            && let Some(newer) = read_anchor(disks.data.as_ref())?
        {
            *anchor = newer;
        }
        Ok(())
    }

    /// Waits until the last writer's lease has ended. Returns whether that writer had one.
    fn wait_for_lease(&self, view: &View, clock: &dyn Clock) -> bool {
        let wait_ns = self.options.takeover_wait_ns(view);
        let until_ns = clock.mono_ns().saturating_add(wait_ns);
        while clock.mono_ns() < until_ns {
            (self.pass)();
        }
        wait_ns > 0
    }

    fn claim(&self, by: &Claimant, register: &mut dyn Register) -> Result<View> {
        let mut claim = Claim::new(by.clone());
        let mut failed = None;
        for _ in 0..TRIES {
            match claim.step(register) {
                Ok(Some(view)) => return Ok(view),
                Ok(None) => {}
                // Damage stays, so another attempt is useless.
                Err(error @ (Error::Corrupt(_) | Error::Foreign { .. })) => return Err(error),
                Err(error) => {
                    failed = Some(error);
                    (self.pass)();
                }
            }
        }
        Err(failed.unwrap_or_else(|| {
            Error::Usage("other processes keep claiming this database. Start only one".into())
        }))
    }

    fn fetch(
        &self,
        view: &View,
        from: Vec<Pos>,
        accept_loss: bool,
        clock: &dyn Clock,
    ) -> Result<(Vec<Vec<Kept>>, Option<Error>)> {
        let random = Arc::clone(&self.random);
        let mut fetch = Fetch::new(
            view.clone(),
            self.options.key.clone(),
            Arc::clone(&self.net),
            self.patience,
            from,
            Box::new(move || random()),
        )
        .accepting_loss(accept_loss);
        loop {
            match fetch.step(clock.mono_ns())? {
                Fetched::All(kept) => return Ok((kept, fetch.take_lacks())),
                Fetched::Step => {}
                Fetched::Waits => (self.pass)(),
            }
        }
    }

    /// Starts to mirror the log to the nodes. The anchor must already name the new life.
    pub(crate) fn begin(
        &self,
        mut claimed: Claimed,
        wal: &Arc<Wal>,
        anchor: &Arc<AnchorCell>,
    ) -> Result<NodesInUse> {
        let record = anchor.get();
        let durable = wal.durable(Rung::Disk);
        assert!(
            record.incarnation > claimed.view.life,
            "life {} was recovered and is behind that of the view",
            record.incarnation
        );
        let view = beginning_view(&claimed.view, &claimed.by, record.incarnation, durable);
        self.store(claimed.register.as_mut(), &view)?;
        // Flush the frames that the open has logged, so that the tail begins after them.
        flush_all(wal)?;
        let streams = (0..wal.streams()).map(StreamId);
        let start: Vec<Pos> = streams
            .clone()
            .map(|stream| wal.sealed_end(stream))
            .collect();
        assert!(
            streams
                .zip(&start)
                .all(|(stream, end)| wal.synced(stream) == *end),
            "all that was sealed is synced"
        );
        let random = Arc::clone(&self.random);
        let generation = view.generation.0;
        let beginning = Beginning {
            view,
            start,
            anchored: record.mirrored.is_some(),
            random: Box::new(move || random()),
        };
        let mirror = Mirror::new(
            self.options.clone(),
            Arc::clone(&self.net),
            claimed.register,
            beginning,
        )?;
        let mirror = Arc::new(mirror);
        let shipped = (Arc::clone(&mirror), Arc::downgrade(wal));
        wal.ship_by(move |block| {
            let synced = shipped
                .1
                .upgrade()
                .map_or(Pos(0), |wal| wal.synced(block.stream));
            shipped.0.ship(block, synced);
        });
        let log = OverWal {
            wal: Arc::clone(wal),
            anchor: Arc::clone(anchor),
            generation,
            wants_copy: AtomicBool::new(false),
        };
        mirror.begin(&log);
        Ok(NodesInUse {
            mirror,
            log,
            is_mirrored: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
        })
    }

    fn store(&self, register: &mut dyn Register, view: &View) -> Result<()> {
        let mut failed = None;
        for _ in 0..TRIES {
            match register.replace(view) {
                Ok(Swap::Done) => return Ok(()),
                Ok(Swap::Lost) => {
                    return match register.read()? {
                        Some(found) if found == *view => Ok(()),
                        _ => Err(Error::Fenced(
                            "another process has claimed the database".into(),
                        )),
                    };
                }
                Err(error) => {
                    failed = Some(error);
                    (self.pass)();
                }
            }
        }
        Err(failed.expect("the last try has failed"))
    }
}

/// The log and the anchor, as an implementation of the mirror's [`Log`].
struct OverWal {
    wal: Arc<Wal>,
    anchor: Arc<AnchorCell>,
    generation: u64,
    wants_copy: AtomicBool,
}

impl Log for OverWal {
    fn synced(&self, stream: StreamId) -> Pos {
        self.wal.synced(stream)
    }

    fn raise(&self, stream: StreamId, end: Pos) {
        self.wal.raise_mirror(stream, end);
    }

    fn follow_disk(&self, follows: bool) {
        self.wal.mirror_follows_disk(follows);
    }

    fn now_ns(&self) -> u64 {
        self.wal.mono_ns()
    }

    fn want_copy(&self) {
        self.wants_copy.store(true, Ordering::SeqCst);
    }

    fn durable(&self) -> Epoch {
        self.wal.durable(Rung::Disk)
    }

    fn fence(&self, why: &str) {
        self.wal.stop("the mirror", &Error::Fenced(why.to_owned()));
    }

    fn anchor(&self, mirrored: bool) -> Result<()> {
        let generation = self.generation;
        assert!(generation > 0, "a writer has a generation");
        let updated = self.anchor.update_running(&self.wal, |record| {
            record.mirrored = mirrored.then_some(Mirrored { generation });
        });
        updated.map(drop)
    }
}

/// The nodes of an open database.
pub struct NodesInUse {
    mirror: Arc<Mirror>,
    log: OverWal,
    /// True if acknowledgements could rely on nodes after the last call of `manage`.
    is_mirrored: AtomicBool,
    /// True if view and anchor say that everything is on disk. From then on no acknowledgement relies on nodes.
    has_stopped: AtomicBool,
}

impl NodesInUse {
    /// Returns whether acknowledgements of some stream currently rely on nodes, so that the disk may lag.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.is_mirrored.load(Ordering::SeqCst)
    }

    /// Sends and receives without waiting. Returns whether the nodes hold more than before. `None`: the nodes are in
    /// use by a different thread.
    pub fn try_pump(&self, now_ns: u64) -> Option<bool> {
        self.mirror.try_pump(&self.log, now_ns)
    }

    /// Like [`try_pump`](Self::try_pump). If a thread is already using the nodes, that thread pumps afterwards.
    pub fn pump_soon(&self, now_ns: u64) -> Option<bool> {
        self.mirror.pump_soon(&self.log, now_ns)
    }

    /// Returns whether a thread has left blocks unsent because a call of [`status`](Self::status) had the nodes locked.
    pub fn is_missed(&self) -> bool {
        self.mirror.is_missed()
    }

    /// Like [`try_pump`](Self::try_pump), but waits until no other thread is using the nodes.
    pub fn pump(&self, now_ns: u64) -> bool {
        self.mirror.pump(&self.log, now_ns)
    }

    /// Waits until a node has sent something, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        self.mirror.wait(timeout);
    }

    /// Takes one step of managing connections and the view. The step may wait.
    ///
    /// # Errors
    /// As [`Mirror::manage`].
    pub fn manage(&self, now_ns: u64) -> Result<Managed> {
        let managed = self.mirror.manage(&self.log, now_ns);
        assert!(
            !self.mirror.is_mirrored() || self.log.anchor.get().mirrored.is_some(),
            "the anchor says that acknowledgements may rest on nodes, before they do"
        );
        self.is_mirrored
            .store(self.mirror.is_mirrored(), Ordering::SeqCst);
        if matches!(managed, Ok(Managed::Stopped)) {
            assert!(
                !self.mirror.is_mirrored(),
                "what has ended rests on no node"
            );
            self.has_stopped.store(true, Ordering::SeqCst);
        }
        managed
    }

    /// Returns whether a change of view has requested the copy to disk since the last call.
    pub fn take_copy_wish(&self) -> bool {
        self.log.wants_copy.swap(false, Ordering::SeqCst)
    }

    /// Tells the mirror to end as soon as all data is on disk. Does not wait for that.
    pub fn begin_stop(&self) {
        self.mirror.begin_stop();
    }

    /// Returns whether the mirror has ended: view and anchor say that all data is on disk.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::SeqCst)
    }

    /// Returns the number of the current view, and the state of each node.
    #[must_use]
    pub fn status(&self, now_ns: u64) -> Status {
        self.mirror.status(now_ns)
    }

    /// Returns a line for each change of view since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<String> {
        self.mirror.take_events()
    }
}
