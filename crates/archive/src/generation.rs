//! The algorithms that make files of the archive from records of the log. Each is a row of this table:
//!
//! | row | player | writes |
//! |---|---|---|
//! | `quick` | [`Quick`]: sorts a workspace when it is full | runs |
//! | `selection` | [`Selecting`]: a selection tree, which continues to read while it writes | runs |
//! | `unsorted` | [`Copying`]: keeps the log's order | [unsorted copies](crate::unsorted), useless to a restore |
//!
//! A database uses `quick` by default. The paper proposes `selection`. The paper compares sorted runs with the baseline
//! `unsorted`.

use perdura_base::{Epoch, LifeId, Result};
use perdura_page::PageRecord;

use crate::archiver::ArchiverOptions;
use crate::name::{EpochRange, RunId};
use crate::quick::{Quick, Sorted};
use crate::run::RunHeader;
use crate::selection::Selecting;
use crate::unsorted::{Copied, CopyTail, Copying};
use crate::workspace::write_some;
use crate::writer::{Progress, RunTarget, RunWriter};

/// An algorithm: a row of the module's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Generation {
    /// Sorts each full workspace.
    #[default]
    Quick,
    /// Replacement selection: records leave a tree in order while others arrive.
    Selection,
    /// Traditional archiving, which does not sort. For measurements only: no database can be restored from its files.
    Unsorted,
}

impl Generation {
    /// All rows.
    pub const ALL: [Generation; 3] = [
        Generation::Quick,
        Generation::Selection,
        Generation::Unsorted,
    ];

    /// Returns the row's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Generation::Quick => "quick",
            Generation::Selection => "selection",
            Generation::Unsorted => "unsorted",
        }
    }

    /// Returns the row named `name`. `None`: no row has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Generation> {
        Generation::ALL.into_iter().find(|row| row.name() == name)
    }

    /// Returns whether the row makes runs. Only runs can be used by a restore.
    #[must_use]
    pub fn makes_runs(self) -> bool {
        match self {
            Generation::Quick | Generation::Selection => true,
            Generation::Unsorted => false,
        }
    }
}

/// A maker of runs. It collects the records of one run, and sorts the records of the run before, which has been cut.
pub(crate) enum Player {
    Quick {
        collecting: Quick,
        cut: Option<Sorted>,
    },
    Selection(Box<Selecting>),
    Unsorted {
        collecting: Box<Copying>,
        cut: Option<Copied>,
    },
}

/// A run or copy that is being written.
pub(crate) enum Writing {
    Run(Box<RunWriter>),
    Copy(Box<CopyTail>),
}

/// The parts of a run's header that its records do not give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunOrigin {
    pub generation: u32,
    /// The life that has the run's last epoch.
    pub life: LifeId,
    /// True if the run carries the ordered frames of its epochs.
    pub carries_frames: bool,
}

impl Player {
    /// Returns a player. `begin` is the first epoch of the first run.
    pub fn new(options: &ArchiverOptions, begin: Epoch) -> Player {
        match options.row {
            Generation::Quick => Player::Quick {
                collecting: Quick::new(begin, options.chunks, options.workspace_bytes),
                cut: None,
            },
            Generation::Selection => Player::Selection(Box::new(Selecting::new(
                begin,
                options.chunks,
                options.workspace_bytes,
            ))),
            Generation::Unsorted => Player::Unsorted {
                collecting: Box::new(copying(begin, options)),
                cut: None,
            },
        }
    }

    /// Returns the first epoch of the run that is being collected.
    pub fn begin(&self) -> Epoch {
        match self {
            Player::Quick { collecting, .. } => collecting.begin(),
            Player::Selection(selecting) => selecting.begin(),
            Player::Unsorted { collecting, .. } => collecting.begin(),
        }
    }

    /// Adds a record from a block of epoch `epoch`.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<()> {
        match self {
            Player::Quick { collecting, .. } => collecting.add(epoch, record),
            Player::Selection(selecting) => selecting.add(epoch, record),
            Player::Unsorted { collecting, .. } => collecting.add(epoch, record),
        }
    }

    /// Returns whether the run should end with the epoch that is being read.
    pub fn is_full(&self) -> bool {
        match self {
            Player::Quick { collecting, .. } => collecting.is_full(),
            Player::Selection(selecting) => selecting.is_full(),
            Player::Unsorted { collecting, .. } => collecting.is_full(),
        }
    }

    /// Returns whether the log can be read while a run is written.
    pub fn reads_along(&self) -> bool {
        match self {
            Player::Selection(selecting) => !selecting.is_full(),
            Player::Quick { .. } | Player::Unsorted { .. } => false,
        }
    }

    /// Ends the collected run with the epoch before `end`. The next run begins with `end`. The run that was cut before
    /// this one must already be written.
    pub fn cut(&mut self, end: Epoch, options: &ArchiverOptions) -> Result<EpochRange> {
        match self {
            Player::Quick { collecting, cut } => {
                let next = Quick::new(end, options.chunks, options.workspace_bytes);
                let sorted = std::mem::replace(collecting, next).cut(end)?;
                let epochs = sorted.epochs();
                *cut = Some(sorted);
                Ok(epochs)
            }
            Player::Selection(selecting) => selecting.cut(end),
            Player::Unsorted { collecting, cut } => {
                let next = copying(end, options);
                let copied = std::mem::replace(collecting.as_mut(), next).cut(end)?;
                let epochs = copied.epochs();
                *cut = Some(copied);
                Ok(epochs)
            }
        }
    }

    /// Begins to write the run that was just cut.
    pub fn create(
        &mut self,
        target: &RunTarget,
        epochs: EpochRange,
        origin: RunOrigin,
        options: &ArchiverOptions,
    ) -> Result<Writing> {
        let RunTarget { disk, dir, digest } = target.clone();
        if let Player::Unsorted { cut, .. } = self {
            let copied = cut.take().expect("a copy was cut");
            let tail = copied.write(disk, &dir, origin.generation)?;
            return Ok(Writing::Copy(Box::new(tail)));
        }
        let header = RunHeader {
            uuid: options.uuid,
            id: RunId {
                epochs,
                level: 0,
                generation: origin.generation,
            },
            chunks: options.chunks,
            only_listed_moments: false,
            carries_frames: origin.carries_frames,
            life: origin.life,
        };
        let writer = RunWriter::create(disk, &dir, header, options.codec, digest)?;
        Ok(Writing::Run(Box::new(writer)))
    }

    /// Encodes records of the run that was cut last, until one write has been made or no record is left.
    pub fn write_some(&mut self, writer: &mut RunWriter) -> Result<Progress<()>> {
        match self {
            Player::Quick { cut, .. } => {
                let Some(sorted) = cut else {
                    return Ok(Progress::Done(()));
                };
                write_some(sorted, writer)
            }
            Player::Selection(selecting) => write_some(selecting.as_mut(), writer),
            Player::Unsorted { .. } => Ok(Progress::Done(())),
        }
    }
}

fn copying(begin: Epoch, options: &ArchiverOptions) -> Copying {
    let ArchiverOptions {
        uuid,
        chunks,
        codec,
        workspace_bytes,
        ..
    } = *options;
    Copying::new(begin, uuid, chunks, codec, workspace_bytes)
}
