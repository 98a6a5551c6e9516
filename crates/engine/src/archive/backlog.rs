//! The backlog: runs that wait on the log's disk while the archive is away.
//!
//! | event | reaction |
//! |---|---|
//! | the archive fails | the archiver writes runs into the backlog, and the log up to their end may be cut |
//! | many runs wait | the merger makes fewer runs of them |
//! | the archive is back | the drain moves the waiting runs into the archive |
//! | no run waits | the archiver writes into the archive again |
//!
//! The backlog is a separate archive ([`Store`]), in folder `backlog` of the first stream's disk. Its runs replace
//! parts of the log that would otherwise stay on the log's disks. So the backlog does not make the loss of any disk
//! worse. The backlog begins at the last known end of the archive. Its merger combines no records, so each epoch can
//! still be restored. An empty backlog stays on the disk and is used again.
//!
//! # The bound
//! The options bound the total bytes of the waiting runs and the unarchived log, approximately. The archiver stops when
//! one more run might exceed the bound. From then on only the log grows. When the total reaches the bound, the log gets
//! no more files ([`Wal::hold_growth`]). Writes are then refused as on a full disk, and resume by themselves when there
//! is room again.
//!
//! # Source
//! The design is ours. "Single-pass restore after a media failure" does not say what to do when the archive cannot be
//! written.

use std::sync::Arc;

use perdura_archive::backlog::{disk_of, waiting_bytes};
use perdura_archive::merger::Policy;
use perdura_archive::store::{Creation, Own, Publication};
use perdura_archive::{
    Codec, Drain, DrainStep, Edit, Images as ArchiveImages, Merger, MergerOptions, MergerStep,
    Object, Progress, Role, Store, Verdict, Writer, list_archives,
};
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, Result};
use perdura_page::RegionDigest;
use perdura_wal::{EpochEnds, Rung, Wal};
use serde::Serialize;

use super::running::end_of;
use crate::core::Core;

/// The size, in bytes, allowed for the parts of a run outside the writer's workspace: moments, index and ends.
const RUN_REST_BYTES: u64 = 64 << 10;

/// The size limit of the backlog, and the policy for merging runs.
#[derive(Clone)]
pub struct BacklogOptions {
    /// The approximate limit, in bytes, for the waiting runs and the unarchived log together.
    pub bytes_max: u64,
    /// The policy for choosing the moments that a later merge in the archive must keep. A merged run of the backlog
    /// lists these moments.
    pub policy: Policy,
}

impl Default for BacklogOptions {
    /// Returns options without a size limit. Their policy lists no moments.
    fn default() -> BacklogOptions {
        BacklogOptions {
            bytes_max: u64::MAX,
            policy: Arc::new(|_, _| Verdict::Each),
        }
    }
}

/// Figures of the runs and the log that wait for an archive.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BacklogStats {
    /// `none`: the archiver writes into the archive. `waiting`: the archive is away. `draining`: it is back, and the
    /// waiting runs move into it.
    pub state: &'static str,
    /// Count of runs that wait.
    pub runs: u64,
    /// Bytes of these runs.
    pub bytes: u64,
    /// Bytes of the durable log that are neither in the archive nor in the backlog yet.
    pub log_bytes: u64,
    /// The limit, in bytes, for the sum of `bytes` and `log_bytes`.
    pub bytes_max: u64,
    /// True if the log may not grow because `bytes_max` is reached.
    pub full: bool,
    /// Count of runs that moved from the backlog into the archive since the database was opened.
    pub drained_runs: u64,
}

/// The data that opening a backlog needs: the database, the writer's identity and the images that
/// exist.
pub(super) struct Opener<'a> {
    pub core: &'a Core,
    pub life: u64,
    pub images: ArchiveImages,
}

impl Opener<'_> {
    /// Opens or makes the backlog that continues the archive from `from`, the archive's last known end. An existing
    /// backlog may begin later than `from`, at the end that the archive had when the backlog was made. Also returns the
    /// damage found in an existing backlog.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::create`].
    pub fn open_or_make(&self, from: &EpochEnds) -> Result<(Arc<Store>, Vec<String>)> {
        let disk = disk_of(&self.core.disks().logs)?;
        let uuid = self.core.anchor().get().uuid;
        disk.make_dir("")?;
        if !list_archives(disk.as_ref())?.contains(&uuid) {
            let creation = Creation {
                uuid,
                life: self.life,
                begin: Epoch(from.epoch.0 + 1),
                positions: from.ends.clone(),
                images: self.images.clone(),
                parent: None,
                is_whole: false,
                anchor: self.core.anchor_for_archive(),
            };
            return Ok((Store::create(disk, creation)?, Vec::new()));
        }
        let (store, damaged) = self.open()?;
        let manifest = store.manifest();
        if manifest.held().0 < from.epoch {
            // The archive has all epochs of the backlog.
            let before = manifest.end;
            store.publish(Edit::RemoveRuns { before }).run()?;
            store.publish(Edit::Skip(from.clone())).run()?;
        }
        assert!(
            store.manifest().held().0 >= from.epoch,
            "it goes on where the archive ends, or later"
        );
        Ok((store, damaged))
    }

    /// Opens the existing backlog. Also returns the damage found in it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self) -> Result<(Arc<Store>, Vec<String>)> {
        let disk = disk_of(&self.core.disks().logs)?;
        let writer = Writer {
            role: Role::Database,
            life: self.life,
        };
        let own = Own {
            images: &self.images,
            anchor: &self.core.anchor_for_archive(),
        };
        let uuid = self.core.anchor().get().uuid;
        let (store, opened) = Store::open(disk, &uuid, writer, Some(own))?;
        Ok((store, opened.damaged))
    }
}

/// The outcome of a turn.
pub(super) enum Turn {
    /// The backlog had nothing to do.
    Nothing,
    Worked,
    /// All runs of the backlog are in the archive, and the archiver may write to the archive again.
    Drained(Arc<Store>),
    /// The archive failed.
    Failed(Error),
}

/// An open backlog, and the merge or drain under way. A drain moves the runs into the archive.
pub(super) struct Backlog {
    store: Arc<Store>,
    options: BacklogOptions,
    region: Arc<RegionDigest>,
    merger: Option<Merger>,
    /// True if a merge is under way.
    merges: bool,
    drain: Option<Drain>,
    /// The manifest change under way that makes a drained run part of the archive.
    adding: Option<Publication>,
    pub drained: u64,
}

impl Backlog {
    /// Returns a backlog that keeps its runs in `store`. No merge or drain is under way yet.
    pub fn new(store: Arc<Store>, options: BacklogOptions) -> Backlog {
        assert!(options.bytes_max > 0, "a bound leaves room for something");
        Backlog {
            store,
            options,
            region: Arc::new(RegionDigest::new()),
            merger: None,
            merges: false,
            drain: None,
            adding: None,
            drained: 0,
        }
    }

    /// Returns whether the archive is away.
    pub fn is_waiting(&self) -> bool {
        self.drain.is_none()
    }

    /// Returns whether the backlog's next turn has work.
    pub fn is_busy(&self) -> bool {
        self.drain.is_some() || self.merges
    }

    /// Returns where the archive ends. `None` while the archive is away.
    pub fn archive_end(&self) -> Option<EpochEnds> {
        self.drain.as_ref().map(|drain| end_of(drain.archive()))
    }

    /// Moves the waiting runs into an archive that is back.
    ///
    /// # Errors
    /// As [`Drain::new`].
    pub fn drain_into(&mut self, archive: Arc<Store>) -> Result<()> {
        assert!(self.is_waiting(), "it is drained into one archive");
        let (backlog, region) = (Arc::clone(&self.store), Arc::clone(&self.region));
        // The drain moves whole runs, so a merge that is under way is dropped.
        (self.merger, self.merges) = (None, false);
        self.drain = Some(Drain::new(backlog, archive, region)?);
        Ok(())
    }

    /// Ends the drain. The remaining runs stay in the backlog.
    pub fn end_draining(&mut self) {
        (self.drain, self.adding) = (None, None);
    }

    /// Takes one step, which does one I/O. During a drain, the step moves runs into the archive. Otherwise it merges
    /// runs. `images` returns the database's images.
    ///
    /// # Errors
    /// Errors of the backlog's disk, as [`Merger::step`].
    pub fn turn(&mut self, core: &Core, images: impl FnOnce() -> ArchiveImages) -> Result<Turn> {
        if self.drain.is_none() {
            return self.merge();
        }
        match self.drain_on(core, images) {
            Ok(turn) => Ok(turn),
            Err(error) => {
                self.end_draining();
                Ok(Turn::Failed(error))
            }
        }
    }

    fn drain_on(&mut self, core: &Core, images: impl FnOnce() -> ArchiveImages) -> Result<Turn> {
        let Some(drain) = &mut self.drain else {
            return Ok(Turn::Nothing);
        };
        if let Some(adding) = &mut self.adding {
            if let Progress::Done(_) = adding.step()? {
                self.adding = None;
                self.drained += 1;
                drain.added();
            }
            return Ok(Turn::Worked);
        }
        match drain.step()? {
            DrainStep::Working => {}
            DrainStep::Empty => return Ok(Turn::Drained(Arc::clone(drain.archive()))),
            DrainStep::Run(drained) => {
                let archive = drain.archive();
                archive.note_anchor(core.anchor_for_archive());
                self.adding = Some(archive.publish(Edit::AddRun {
                    run: Object::of(&drained.summary),
                    ends: drained.ends,
                    images: Some(images()),
                    moments: drained.moments,
                }));
            }
        }
        Ok(Turn::Worked)
    }

    fn merge(&mut self) -> Result<Turn> {
        assert!(
            self.is_waiting() && self.adding.is_none(),
            "what is drained is not merged"
        );
        if !self.merges && !self.has_room_for(self.merged_bytes_max()) {
            return Ok(Turn::Nothing);
        }
        let merger = match &mut self.merger {
            Some(merger) => merger,
            None => {
                let policy = Arc::clone(&self.options.policy);
                let options = MergerOptions {
                    bytes_max: self.merged_bytes_max(),
                    codec: Codec::Lz4,
                    policy: Arc::new(move |clock, listed| match policy(clock, listed) {
                        // The backlog combines no records. The merged run only lists the moments to
                        // keep.
                        Verdict::Only(list) => Verdict::Listing(list),
                        verdict => verdict,
                    }),
                    ..MergerOptions::default()
                };
                let region = Arc::clone(&self.region);
                self.merger = Some(Merger::new(Arc::clone(&self.store), options, region)?);
                return Ok(Turn::Worked);
            }
        };
        let step = merger.step();
        self.merges = matches!(step, Ok(MergerStep::Worked));
        if step.is_err() {
            self.merger = None;
        }
        Ok(match step? {
            MergerStep::Idle => Turn::Nothing,
            _ => Turn::Worked,
        })
    }

    fn merged_bytes_max(&self) -> u64 {
        self.options.bytes_max / 16
    }

    /// Returns whether the bound leaves room for one more run of `bytes`.
    fn has_room_for(&self, bytes: u64) -> bool {
        let waiting = waiting_bytes(&self.store.manifest());
        waiting.saturating_add(bytes) <= self.options.bytes_max
    }

    /// Returns whether the archiver may write one more run.
    pub fn has_room(&self, workspace_bytes: usize) -> bool {
        let workspace = to_u64(workspace_bytes);
        self.has_room_for(workspace + workspace / 4 + RUN_REST_BYTES)
    }

    /// Returns figures of the waiting runs and the waiting log.
    pub fn stats(&self, core: &Core) -> BacklogStats {
        let manifest = self.store.manifest();
        BacklogStats {
            state: if self.drain.is_some() {
                "draining"
            } else {
                "waiting"
            },
            runs: to_u64(manifest.runs().count()),
            bytes: waiting_bytes(&manifest),
            log_bytes: unarchived_bytes(core),
            bytes_max: self.options.bytes_max,
            full: core.wal().is_growth_held(),
            drained_runs: self.drained,
        }
    }

    /// Stops the log's growth when the total bytes of waiting runs and unarchived log reach the bound. Allows growth
    /// again when the total is more than a sixteenth below the bound.
    pub fn bound(&self, core: &Core) {
        let max = self.options.bytes_max;
        let waiting = waiting_bytes(&self.store.manifest()).saturating_add(unarchived_bytes(core));
        let wal: &Wal = core.wal();
        assert!(max / 16 < max, "growth is allowed again below the bound");
        if waiting >= max {
            wal.hold_growth(true);
        } else if waiting < max - max / 16 {
            wal.hold_growth(false);
        }
    }
}

/// Returns the bytes of the log that are durable and not archived.
fn unarchived_bytes(core: &Core) -> u64 {
    let Some(archived) = core.archived() else {
        return 0;
    };
    let durable = core.wal().durable_end(Rung::Disk);
    assert_eq!(
        durable.ends.len(),
        archived.ends.len(),
        "an end in each stream"
    );
    let streams = durable.ends.iter().zip(&archived.ends);
    streams
        .map(|(end, from)| end.0.saturating_sub(from.0))
        .sum()
}
