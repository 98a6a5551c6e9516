//! The archiver turns the durable epochs of the log into runs of level 0.
//!
//! ```text
//!  epochs of the log ──► page records ──► workspace ── cut at an epoch's end ──► run, written, published
//!                          (select)       (generation)                             │
//!             ▲                                                                     ▼
//!             └───────────────────── reads on after the run ◄──────────── ArchivedRun to the caller
//! ```
//!
//! The archiver makes one I/O in each step. Its steps alternate with steps of checkpoint and purge. While it reads, a
//! step reads one block of the log. When it cuts a run, it sorts the run's records, and the next steps write them. Then
//! it continues to read. The algorithm [`Generation::Selection`] also reads the log between the writes. The archiver
//! reads no clock: the caller supplies the time.
//!
//! The archiver cuts a run when its workspace is full, when the run's first frame is
//! [`age_ns`](ArchiverOptions::age_ns) old, or when the caller asks with [`cut_at`](Archiver::cut_at). The caller asks
//! before a checkpoint or a backup, before closing, and before the archived log is deleted.
//!
//! # The epochs of a run
//! Runs leave no gap: each run begins with the epoch after the previous run's last epoch. An epoch without frames, or a
//! void epoch, belongs to the run that is being collected when the archiver passes the epoch. If there were only such
//! epochs since the last run, no run is cut by age. So an idle database writes no runs.
//!
//! The log after the last run must be kept. To keep that log short, frames that no run has (marks of checkpoints,
//! starts, beacons) cause a run as well. A run with only such frames has no record.
//!
//! # Ordered frames
//! If the database has declared ordered frames, each run carries those of its epochs, and says so.
//!
//! # Invariants
//! * A run ends where an epoch ends. [`EpochSource::at`] gives the end positions, and a later archiver can begin there.
//! * When a run is reported, its file and folder are synced. Only then may the log be deleted up to the run's end.
//! * After an error the archiver does nothing more. The log still has all records that no finished run holds. The
//!   caller starts a new archiver at the end of the last run.
//!
//! # Source
//! "Single-pass restore after a media failure", 3.1.

mod frames;
mod leftovers;
mod select;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result, Uuid};
use perdura_page::Chunks;
use perdura_wal::{EpochEnds, EpochSource, SourceStep, Vouched};

use crate::generation::{Generation, Player, RunOrigin, Writing};
use crate::name::EpochRange;
use crate::quick::WORKSPACE_BYTES;
use crate::run::{Codec, Moment, Moments};
use crate::unsorted::CopyTail;
use crate::writer::{Progress, RunSummary, RunTarget, RunWriter, Tail};

use frames::SortedFrames;
use leftovers::Leftovers;
use select::Selection;

/// The default of [`ArchiverOptions::age_ns`], in nanoseconds.
pub const AGE_NS: u64 = 1_000_000_000;
/// The maximum number of moments collected for one run. The moments take 2 MiB.
const MOMENTS_HELD_MAX: usize = 1 << 17;

/// The options of an archiver.
#[derive(Debug, Clone)]
pub struct ArchiverOptions {
    /// The database.
    pub uuid: Uuid,
    /// The assignment of the database's pages to partitions.
    pub chunks: Chunks,
    /// The codec that compresses blocks.
    pub codec: Codec,
    /// The approximate size of all records of a run, in bytes.
    pub workspace_bytes: usize,
    /// The age of a run's first frame at which the run is cut, in nanoseconds.
    pub age_ns: u64,
    /// The algorithm that makes runs from records.
    pub row: Generation,
    /// True if the database has declared ordered frames. Then each run carries those of its epochs.
    pub carries_frames: bool,
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
            carries_frames: false,
        }
    }
}

/// A finished run. Its file and folder are synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedRun {
    /// The run.
    pub summary: RunSummary,
    /// The last epoch of the run, and the end of that epoch in each stream. The archive holds the log up to these
    /// positions.
    pub end: EpochEnds,
    /// The moments that the run lists.
    pub moments: Moments,
}

/// The result of a step of the archiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiverStep {
    /// The archiver has nothing to do until the durable epoch advances, time passes or the caller asks for a run.
    Idle,
    /// The archiver made an I/O.
    Working,
    /// The archiver finished a run.
    Run(ArchivedRun),
}

/// The facts about a run that are not in its records.
struct Bounds {
    end: EpochEnds,
    moments: Moments,
    /// The ordered frames that are not yet written.
    frames: SortedFrames,
}

/// The work of the next step.
enum Work {
    /// List the files that an earlier archiver left.
    List,
    /// Remove one of the leftover files. If none is left, read the log.
    Clear(Leftovers),
    Read,
    Create(EpochRange, Bounds),
    Write(Box<RunWriter>, Bounds),
    /// Write the ordered frames, after the records.
    Frames(Box<RunWriter>, Bounds),
    /// Read a block of the log while a run is being written.
    ReadAlong(Box<RunWriter>, Bounds),
    End(Box<Tail>, Bounds),
    Copy(Box<CopyTail>, Bounds),
    /// A step failed. The archiver does nothing more.
    Failed,
}

/// A state machine that makes runs from the log of one database.
pub struct Archiver {
    options: ArchiverOptions,
    target: RunTarget,
    source: EpochSource,
    work: Work,
    generation: u32,
    selection: Selection,
    moments: Vec<Moment>,
    /// The time when the run's first frame was read. `None`: no frame has been read since the last cut.
    since_ns: Option<u64>,
    /// The highest epoch that the caller has passed to [`cut_at`](Self::cut_at). `None`: the caller waits for no run.
    wanted: Option<Epoch>,
}

impl Archiver {
    /// Returns an archiver that reads from `source`. `source` is at the end of the last run. The archiver writes its runs
    /// to `target`. Only this archiver may write runs of level 0 there.
    #[must_use]
    pub fn new(source: EpochSource, target: RunTarget, options: ArchiverOptions) -> Archiver {
        let player = Player::new(&options, next(source.at().epoch));
        Archiver {
            options,
            target,
            source,
            work: Work::List,
            generation: 0,
            selection: Selection::new(player),
            moments: Vec::new(),
            since_ns: None,
            wanted: None,
        }
    }

    /// Returns the first epoch of the run that is being collected.
    #[must_use]
    pub fn begin(&self) -> Epoch {
        self.selection.player.begin()
    }

    /// Returns the last epoch that was read, and its end in each stream.
    #[must_use]
    pub fn read_end(&self) -> &EpochEnds {
        self.source.at()
    }

    /// Returns whether the archiver has read frames that are in no finished run.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.since_ns.is_some()
    }

    /// Returns whether a run is being written.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        !matches!(self.work, Work::List | Work::Clear(_) | Work::Read)
    }

    /// Requests runs up to this epoch. Once the epoch is durable and read, the archiver cuts the run that contains the
    /// epoch. Does nothing if the epoch is already in a finished run or in the run that is being written.
    pub fn cut_at(&mut self, epoch: Epoch) {
        if epoch >= self.begin() {
            self.wanted = self.wanted.max(Some(epoch));
        }
    }

    /// Takes one step. `durable` is the durable epoch, which never decreases. `now_ns` is the time of a monotonic
    /// clock.
    ///
    /// # Errors
    /// Errors of the log ([`EpochSource::step`]) and of the archive's disk. [`Error::Corrupt`] for a group of records
    /// that cannot be decoded. [`Error::Usage`] for a page outside the geometry, and for a log of steal mode. Every
    /// step after a failed one returns [`Error::Stopped`].
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
            Work::Create(epochs, bounds) => self.work = self.create(epochs, bounds)?,
            Work::Write(mut writer, bounds) => {
                let player = &mut self.selection.player;
                self.work = match player.write_some(&mut writer)? {
                    Progress::More if player.reads_along() => Work::ReadAlong(writer, bounds),
                    Progress::More => Work::Write(writer, bounds),
                    Progress::Done(()) => Work::Frames(writer, bounds),
                };
            }
            Work::Frames(mut writer, mut bounds) => {
                self.work = match bounds.frames.write_some(&mut writer)? {
                    Progress::More => Work::Frames(writer, bounds),
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

    /// Begins to write the run that was cut.
    fn create(&mut self, epochs: EpochRange, bounds: Bounds) -> Result<Work> {
        let origin = RunOrigin {
            generation: self.generation,
            life: self.source.life_at(epochs.last()),
            carries_frames: self.options.carries_frames,
        };
        let player = &mut self.selection.player;
        let written = player.create(&self.target, epochs, origin, &self.options)?;
        Ok(match written {
            Writing::Run(writer) => Work::Write(writer, bounds),
            Writing::Copy(tail) => Work::Copy(tail, bounds),
        })
    }

    /// Takes one step of reading the log. The new records join the collected run.
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
                self.moments.push(Moment {
                    epoch: end.epoch,
                    wall_us: *wall_us,
                });
            }
            SourceStep::End { .. } => panic!("a run ends where an epoch does"),
            SourceStep::Idle => {}
        }
        Ok(step)
    }

    /// Takes one step of reading the log. Cuts the run if it is due.
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
                    self.selection.is_full(&self.options) || self.moments.len() >= MOMENTS_HELD_MAX;
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

    /// Returns whether the run must be cut: the run is too old, or the caller requested the cut.
    fn is_due(&self, end: &EpochEnds, now_ns: u64) -> bool {
        let age = self.since_ns.map(|since| now_ns.saturating_sub(since));
        age.is_some_and(|age| age >= self.options.age_ns)
            || self.wanted.is_some_and(|wanted| wanted <= end.epoch)
    }

    /// Ends the run with epoch `end`. The next run begins with the epoch after `end`.
    fn cut(&mut self, end: EpochEnds) -> Result<()> {
        let begin = next(end.epoch);
        let (epochs, frames) = self.selection.cut(begin, &self.options)?;
        self.options.carries_frames |= !frames.is_empty();
        let moments = Moments::sampled(&std::mem::take(&mut self.moments));
        if self.wanted.is_some_and(|wanted| wanted <= end.epoch) {
            self.wanted = None;
        }
        self.since_ns = None;
        let bounds = Bounds {
            end,
            moments,
            frames,
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
            moments: self.moments,
        }
    }
}

/// Returns the epoch after `epoch`.
fn next(epoch: Epoch) -> Epoch {
    assert!(epoch < Epoch(u64::MAX), "epochs do not run out");
    Epoch(epoch.0 + 1)
}
