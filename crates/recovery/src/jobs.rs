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
    /// When the first job of image and log began and the last ended.
    pub backup_span: Option<(u64, u64)>,
    pub log_span: Option<(u64, u64)>,
    pub error: Option<Error>,
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Decided {
    No,
    Running,
    Yes,
}

pub(crate) enum Job<P, U> {
    ReadPart(usize, usize),
    PlayPart(usize, P),
    Scan(usize),
    Decide,
    ReadUnit(usize, usize),
    PlayUnit(usize, Arc<U>),
    Merge(usize),
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
