//! What a schedule knows of the work's progress, and the jobs that follow from it.

use std::collections::VecDeque;
use std::sync::Arc;

use perdura_base::Error;

/// One disk of the image.
pub(crate) struct DiskState<P> {
    pub parts: usize,
    pub next: usize,
    pub reading: bool,
    /// Read, or being read, and not yet played.
    pub open: usize,
    pub ready: VecDeque<P>,
    pub busy_ns: u64,
}

/// One stream.
pub(crate) struct StreamState<U> {
    pub scan: Scan,
    pub units: usize,
    pub next: usize,
    pub reading: bool,
    pub open: usize,
    /// Bytes read and not yet played.
    pub piled: u64,
    pub ready: VecDeque<Arc<U>>,
    /// A unit is being prepared.
    pub preparing: bool,
    /// Ordered: units each worker has taken; `ready` begins with unit `dropped`.
    pub taken: Vec<usize>,
    pub dropped: usize,
    pub busy_ns: u64,
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Scan {
    Due,
    Running,
    Done,
}

pub(crate) struct State<P, U> {
    pub disks: Vec<DiskState<P>>,
    pub streams: Vec<StreamState<U>>,
    /// Parts not yet played.
    pub parts_left: usize,
    pub decided: Decided,
    /// Order-free: units not yet played.
    pub units_left: usize,
    pub mergers_next: usize,
    pub mergers_left: usize,
    pub log_end: Ending,
    pub indexes: Indexes,
    /// When the first job of image and log began and the last ended.
    pub backup_span: Option<(u64, u64)>,
    pub log_span: Option<(u64, u64)>,
    pub index_span: Option<(u64, u64)>,
    pub error: Option<Error>,
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Decided {
    No,
    Running,
    Yes,
}

/// Whether the players were told that the log has ended.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Ending {
    No,
    Running,
    Yes,
}

/// How far the indexes are.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Indexes {
    /// The pages are not complete, or not made ready.
    Due,
    Beginning,
    /// `next` is the first that no job has taken, `left` are not built yet.
    Building {
        count: usize,
        next: usize,
        left: usize,
    },
    Ending,
    Done,
}

pub(crate) enum Job<P, U> {
    ReadPart(usize, usize),
    PlayPart(usize, P),
    Scan(usize),
    Decide,
    ReadUnit(usize, usize),
    PlayUnit(usize, Arc<U>),
    Merge(usize),
    EndLog,
    BeginIndexes,
    BuildIndex(usize),
    EndIndexes,
}

/// What a job's time counts as in the report.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Counts {
    Image,
    Log,
    Index,
    /// The second pass has a clock of its own.
    Undo,
}

impl<P, U> Job<P, U> {
    pub fn counts(&self) -> Counts {
        match self {
            Job::ReadPart(..) | Job::PlayPart(..) => Counts::Image,
            Job::Scan(_) | Job::Decide | Job::ReadUnit(..) | Job::PlayUnit(..) | Job::Merge(_) => {
                Counts::Log
            }
            Job::EndLog => Counts::Undo,
            Job::BeginIndexes | Job::BuildIndex(_) | Job::EndIndexes => Counts::Index,
        }
    }
}

/// Who asks for a job.
#[derive(Clone, Copy)]
pub(crate) enum Asker {
    Disk(usize),
    Stream(usize),
    Player,
    /// The only thread: takes reads too; the number picks among what is possible.
    Everyone(u64),
}
