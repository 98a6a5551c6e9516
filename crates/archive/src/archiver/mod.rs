//! The archiver: the log's durable epochs become runs of level 0.
//!
//! ```text
//!  epochs of the log ──► page records ──► workspace ── cut at an epoch's end ──► run, written, published
//!                          (select)       (generation)                             │
//!             ▲                                                                     ▼
//!             └──────────────────── reads on behind the run ◄──────────── ArchivedRun to the caller
//! ```
//!
//! It is a machine of one I/O a step, beside checkpoint and purge. While it reads, a step takes one block of the log. A
//! run that was cut is laid out in its order, and written by the steps that follow. Then the machine continues to read.
//! Row `selection` of [`Generation`] also reads between the writes. The machine reads no clock: the caller supplies the
//! time.
//!
//! A run is cut when its workspace is full, when its first frame is [`age_ns`](ArchiverOptions::age_ns) old, or when
//! the caller asks with [`cut_at`](Archiver::cut_at). The caller asks for a checkpoint, a backup, a log that has to be
//! cut, or the end.
//!
//! # The epochs of a run
//! Runs tile the line of epochs: each begins with the epoch behind its predecessor's last. Epochs without a record,
//! void ones among them, belong to the run that is open when they pass; no run is made for them alone. The log is kept
//! up to the end of a run. So a run may have no record if the log has other frames only (marks of checkpoints, starts,
//! beacons, ordered frames). When nothing was logged since the last run, time cuts none, so that an idle database
//! writes nothing.
//!
//! # Invariants
//! * A run ends at an epoch's end: its positions are those of [`EpochSource::at`], and an archiver that begins there
//!   continues this one's work.
//! * A reported run exists: file and folder are synced. Only then may the log be cut behind it.
//! * The moments' wall clocks do not fall, within a run and from one run to the next.
//! * After an error the archiver does nothing more. The log still has everything that it had read. The caller begins
//!   another archiver at the end of the last run.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1.

mod leftovers;
mod select;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result, Uuid};
use perdura_page::Chunks;
use perdura_wal::{EpochEnds, EpochSource, SourceStep, Vouched};

use crate::generation::{Generation, Player, Writing};
use crate::name::EpochRange;
use crate::quick::WORKSPACE_BYTES;
use crate::run::{Codec, Moment, Moments};
use crate::unsorted::CopyTail;
use crate::writer::{Progress, RunSummary, RunTarget, RunWriter, Tail};

use leftovers::Leftovers;
use select::Selection;

/// The age of the first frame of a run at which the run is cut, nanoseconds.
pub const AGE_NS: u64 = 1_000_000_000;
/// The most moments that are collected for a run: 2 MiB.
const MOMENTS_HELD_MAX: usize = 1 << 17;

/// The options of an archiver.
#[derive(Debug, Clone)]
pub struct ArchiverOptions {
    /// The database.
    pub uuid: Uuid,
    /// The division of its pages among the partitions.
    pub chunks: Chunks,
    /// The codec that packs blocks.
    pub codec: Codec,
    /// The approximate size of the records of a run, bytes.
    pub workspace_bytes: usize,
    /// The age of the first frame of a run at which the run is cut, nanoseconds.
    pub age_ns: u64,
    /// The way in which records become runs.
    pub row: Generation,
}

impl ArchiverOptions {
    /// Returns the usual options for a database.
    #[must_use]
    pub fn new(uuid: Uuid, chunks: Chunks) -> ArchiverOptions {
        ArchiverOptions {
            uuid,
            chunks,
            codec: Codec::Lz4,
            workspace_bytes: WORKSPACE_BYTES,
            age_ns: AGE_NS,
            row: Generation::Quick,
        }
    }
}

/// A run that exists: file and folder are synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedRun {
    /// The run.
    pub summary: RunSummary,
    /// Its last epoch, and the end of that epoch in each stream. The log up to there is in the archive.
    pub end: EpochEnds,
    /// The latest moment up to its end, microseconds since 1970. A later archiver begins with it.
    pub wall_us: u64,
    /// The number of ordered frames in its epochs, which it does not contain. If it is not 0, the database cannot be
    /// restored from runs.
    pub ordered: u64,
}

/// The result of a step of the archiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiverStep {
    /// It has nothing to do before D moves, time passes or a run is asked for.
    Idle,
    /// It made an I/O.
    Working,
    /// It has made a run.
    Run(ArchivedRun),
}

/// The facts of a run beside its records.
struct Bounds {
    end: EpochEnds,
    moments: Moments,
    wall_us: u64,
    ordered: u64,
}

/// The work of the next step.
enum Work {
    /// The search for files that another archiver left behind.
    List,
    /// The removal of one of them, or the first read.
    Clear(Leftovers),
    Read,
    Create(EpochRange, Bounds),
    Write(Box<RunWriter>, Bounds),
    /// The read of a block of the log while a run is written.
    ReadAlong(Box<RunWriter>, Bounds),
    End(Box<Tail>, Bounds),
    Copy(Box<CopyTail>, Bounds),
    /// A step failed.
    Failed,
}

/// A machine that makes runs of the log of one database.
pub struct Archiver {
    options: ArchiverOptions,
    target: RunTarget,
    source: EpochSource,
    work: Work,
    generation: u32,
    selection: Selection,
    moments: Vec<Moment>,
    wall_us: u64,
    /// The time at which the first frame of the run was read. `None`: no frame was read.
    since_ns: Option<u64>,
    /// The epoch up to which the caller has asked for runs.
    wanted: Option<Epoch>,
}

impl Archiver {
    /// Returns an archiver that begins with `source`, at the end of the last run. `wall_us` was the latest moment of
    /// that run. Its runs go to `target`. No other archiver writes runs of level 0 there.
    #[must_use]
    pub fn new(
        source: EpochSource,
        target: RunTarget,
        options: ArchiverOptions,
        wall_us: u64,
    ) -> Archiver {
        let player = Player::new(&options, next(source.at().epoch));
        Archiver {
            options,
            target,
            source,
            work: Work::List,
            generation: 0,
            selection: Selection::new(player),
            moments: Vec::new(),
            wall_us,
            since_ns: None,
            wanted: None,
        }
    }

    /// Returns the first epoch of the run that is being collected.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.selection.player.begin()
    }

    /// Returns whether frames were read that no run contains yet.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.since_ns.is_some()
    }

    /// Returns whether a run is being written.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        !matches!(self.work, Work::List | Work::Clear(_) | Work::Read)
    }

    /// Asks for runs up to this epoch. The run that contains it is cut as soon as the epoch is durable and read. Does
    /// nothing if finished runs and the run that is being written reach the epoch already.
    pub fn cut_at(&mut self, epoch: Epoch) {
        if epoch >= self.begin() {
            self.wanted = self.wanted.max(Some(epoch));
        }
    }

    /// Takes one step towards `durable`, which never decreases. `now_ns` is the time by a clock that never decreases,
    /// either.
    ///
    /// # Errors
    /// Those of the log ([`EpochSource::step`]) and of the archive's disk. [`Error::Corrupt`] for a group that cannot
    /// be read. [`Error::Usage`] for a page that the geometry does not have, and for a log of steal mode. After an
    /// error, [`Error::Stopped`].
    pub fn step(&mut self, durable: &Vouched, now_ns: u64) -> Result<ArchiverStep> {
        match std::mem::replace(&mut self.work, Work::Failed) {
            Work::List => {
                let left =
                    Leftovers::list(self.target.disk.as_ref(), &self.target.dir, self.begin())?;
                self.generation = left.generation;
                self.work = Work::Clear(left);
            }
            Work::Clear(mut left) => {
                self.work = match left.remove_one(self.target.disk.as_ref())? {
                    true => Work::Clear(left),
                    false => Work::Read,
                };
            }
            Work::Read => return self.read(durable, now_ns),
            Work::Create(epochs, bounds) => {
                let written = self.selection.player.create(
                    &self.target,
                    epochs,
                    self.generation,
                    &self.options,
                )?;
                self.work = match written {
                    Writing::Run(writer) => Work::Write(writer, bounds),
                    Writing::Copy(tail) => Work::Copy(tail, bounds),
                };
            }
            Work::Write(mut writer, bounds) => {
                let player = &mut self.selection.player;
                self.work = match player.write_some(&mut writer)? {
                    Progress::More if player.reads_along() => Work::ReadAlong(writer, bounds),
                    Progress::More => Work::Write(writer, bounds),
                    Progress::Done(()) => {
                        let tail = writer.finish(&bounds.moments, &bounds.end.ends)?;
                        Work::End(Box::new(tail), bounds)
                    }
                };
            }
            Work::ReadAlong(writer, bounds) => {
                self.read_step(durable, now_ns)?;
                self.work = Work::Write(writer, bounds);
            }
            Work::Copy(mut tail, bounds) => match tail.step()? {
                Progress::More => self.work = Work::Copy(tail, bounds),
                Progress::Done(summary) => {
                    self.work = Work::Read;
                    return Ok(ArchiverStep::Run(bounds.of(summary)));
                }
            },
            Work::End(mut tail, bounds) => match tail.step()? {
                Progress::More => self.work = Work::End(tail, bounds),
                Progress::Done(summary) => {
                    self.work = Work::Read;
                    return Ok(ArchiverStep::Run(bounds.of(summary)));
                }
            },
            Work::Failed => {
                return Err(Error::Stopped("the archiver stopped after an error".into()));
            }
        }
        Ok(ArchiverStep::Working)
    }

    /// Continues to read the log. The records that a step returns join the run that is being collected.
    fn read_step(&mut self, durable: &Vouched, now_ns: u64) -> Result<SourceStep> {
        let selection = &mut self.selection;
        let step = self
            .source
            .step(durable, |frame, origin| selection.take(&frame, origin))?;
        match &step {
            SourceStep::Frames => {
                self.since_ns.get_or_insert(now_ns);
            }
            SourceStep::End { end, wall_us } if end.epoch >= self.begin() => {
                self.wall_us = self.wall_us.max(*wall_us);
                self.moments.push(Moment {
                    epoch: end.epoch,
                    wall_us: self.wall_us,
                });
            }
            SourceStep::End { .. } => panic!("a run ends where an epoch does"),
            SourceStep::Idle => {}
        }
        Ok(step)
    }

    /// Continues to read the log, and cuts the run if that is due.
    fn read(&mut self, durable: &Vouched, now_ns: u64) -> Result<ArchiverStep> {
        let step = self.read_step(durable, now_ns)?;
        self.work = Work::Read;
        match step {
            SourceStep::Frames => {
                if armed(Flaw::RunCutInsideEpoch) && self.selection.is_within(self.begin()) {
                    let ends = self.source.at().ends.clone();
                    let epoch = self.selection.epoch;
                    self.cut(EpochEnds { epoch, ends })?;
                }
            }
            SourceStep::End { end, .. } => {
                let is_full =
                    self.selection.player.is_full() || self.moments.len() >= MOMENTS_HELD_MAX;
                if end.epoch >= self.begin() && (is_full || self.is_due(&end, now_ns)) {
                    self.cut(end)?;
                }
            }
            SourceStep::Idle => {
                let end = self.source.at().clone();
                let has_epochs = end.epoch >= self.begin();
                assert!(
                    has_epochs || self.since_ns.is_none(),
                    "what was read belongs to a run"
                );
                if !has_epochs || !self.is_due(&end, now_ns) {
                    return Ok(ArchiverStep::Idle);
                }
                self.cut(end)?;
            }
        }
        Ok(ArchiverStep::Working)
    }

    /// Returns whether the run is to end, by time or because the caller asked for it.
    fn is_due(&self, end: &EpochEnds, now_ns: u64) -> bool {
        let age = self.since_ns.map(|since| now_ns.saturating_sub(since));
        age.is_some_and(|age| age >= self.options.age_ns)
            || self.wanted.is_some_and(|wanted| wanted <= end.epoch)
    }

    /// Ends the run with an epoch, and begins the next one behind it.
    fn cut(&mut self, end: EpochEnds) -> Result<()> {
        let begin = next(end.epoch);
        let (epochs, ordered) = self.selection.cut(begin, &self.options)?;
        let moments = Moments::sampled(&std::mem::take(&mut self.moments));
        if self.wanted.is_some_and(|wanted| wanted <= end.epoch) {
            self.wanted = None;
        }
        self.since_ns = None;
        let bounds = Bounds {
            end,
            moments,
            wall_us: self.wall_us,
            ordered,
        };
        self.work = Work::Create(epochs, bounds);
        Ok(())
    }
}

impl Bounds {
    fn of(self, summary: RunSummary) -> ArchivedRun {
        assert_eq!(
            summary.id.epochs.last(),
            self.end.epoch,
            "a run ends with the epoch whose end it has"
        );
        ArchivedRun {
            summary,
            end: self.end,
            wall_us: self.wall_us,
            ordered: self.ordered,
        }
    }
}

/// Returns the epoch behind one.
fn next(epoch: Epoch) -> Epoch {
    assert!(epoch < Epoch(u64::MAX), "epochs do not run out");
    Epoch(epoch.0 + 1)
}
