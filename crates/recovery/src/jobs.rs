//! The progress of a schedule: what each disk and stream has read and played, and the jobs that follow.

use std::collections::VecDeque;
use std::sync::Arc;

use perdura_base::Error;

/// One disk of the image.
pub(crate) struct DiskState<P> {
    pub parts: usize,
    pub next: usize,
    /// Parts that are being read.
    pub reading: usize,
    /// Parts that are read, or being read, and not yet played.
    pub open: usize,
    pub ready: VecDeque<P>,
    /// The time for which at least one part was being read, without the present reads.
    pub busy_ns: u64,
    /// The time at which the present reads began.
    pub busy_since_ns: u64,
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

impl<P> DiskState<P> {
    /// Notes that a part begins to be read.
    pub fn begin_read(&mut self, now_ns: u64) {
        if self.reading == 0 {
            self.busy_since_ns = now_ns;
        }
        self.reading += 1;
        self.open += 1;
        self.next += 1;
        self.check();
    }

    /// Notes that a part was read.
    pub fn end_read(&mut self, part: P, now_ns: u64) {
        assert!(self.reading > 0, "a part was read that no job reads");
        self.reading -= 1;
        if self.reading == 0 {
            self.busy_ns += now_ns.saturating_sub(self.busy_since_ns);
        }
        self.ready.push_back(part);
        self.check();
    }

    /// Checks the counts of a disk against each other, after each change of them.
    pub fn check(&self) {
        assert!(
            self.next <= self.parts && self.open <= self.next,
            "{} parts are open, {} of {} were taken",
            self.open,
            self.next,
            self.parts
        );
        assert!(
            self.ready.len() + self.reading <= self.open,
            "{} parts are ready and {} are open",
            self.ready.len(),
            self.open
        );
    }
}

impl<U> StreamState<U> {
    /// Checks the counts of a stream against each other, after each change of them.
    pub fn check(&self) {
        assert!(
            self.next <= self.units && self.open <= self.next,
            "{} units are open, {} of {} were taken",
            self.open,
            self.next,
            self.units
        );
        assert!(
            self.ready.len() + usize::from(self.reading) <= self.open,
            "{} units are ready and {} are open",
            self.ready.len(),
            self.open
        );
        assert!(
            self.taken.iter().all(|taken| *taken <= self.next),
            "a worker has taken a unit that no job read"
        );
        assert!(
            self.units == 0 || self.scan == Scan::Done,
            "units are known of a stream that was not scanned"
        );
    }
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Scan {
    Due,
    Running,
    Done,
}

pub(crate) struct ScheduleState<P, U> {
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
    pub sidecars: Sidecars,
    pub indexes: Indexes,
    /// The time at which the first job of image and log began, and the time at which the last
    /// ended.
    pub backup_span: Option<(u64, u64)>,
    pub log_span: Option<(u64, u64)>,
    pub index_span: Option<(u64, u64)>,
    pub error: Option<Error>,
}

impl<P, U> ScheduleState<P, U> {
    /// Takes a part that was read from a disk and is not played.
    pub fn take_part(&mut self, disk: usize) -> Option<Job<P, U>> {
        let part = self.disks[disk].ready.pop_front()?;
        Some(Job::PlayPart(disk, part))
    }

    /// Takes a sidecar that no job has taken. Sidecars that are not read when the indexes are begun
    /// are read with them.
    pub fn take_sidecar(&mut self) -> Option<Job<P, U>> {
        let sidecars = &mut self.sidecars;
        if sidecars.next == sidecars.count || self.indexes != Indexes::Due {
            return None;
        }
        sidecars.next += 1;
        sidecars.reading += 1;
        Some(Job::ReadSidecar(sidecars.next - 1))
    }

    /// Notes that a part of the image was played.
    pub fn end_part(&mut self, disk: usize) {
        self.disks[disk].open -= 1;
        self.disks[disk].check();
        self.parts_left -= 1;
        let unread: usize = self.disks.iter().map(|d| d.parts - d.next).sum();
        assert!(
            unread <= self.parts_left,
            "{unread} parts are unread and {} unplayed",
            self.parts_left
        );
    }

    /// Takes the next step of the indexes, or the first one if it may be taken now.
    pub fn take_index(&mut self, may_begin: bool) -> Option<Job<P, U>> {
        match self.indexes {
            Indexes::Due => {
                let may_begin = may_begin && self.sidecars.reading == 0;
                may_begin.then(|| {
                    self.indexes = Indexes::Beginning;
                    Job::BeginIndexes
                })
            }
            Indexes::Building { left: 0, .. } => {
                self.indexes = Indexes::Ending;
                Some(Job::EndIndexes)
            }
            Indexes::Building { count, next, left } if next < count => {
                let next = next + 1;
                self.indexes = Indexes::Building { count, next, left };
                Some(Job::BuildIndex(next - 1))
            }
            Indexes::Building { .. } | Indexes::Beginning | Indexes::Ending | Indexes::Done => None,
        }
    }

    /// Notes that the log's end is known, and with it the units of each stream.
    pub fn decide(&mut self, units: Vec<usize>) {
        assert_eq!(units.len(), self.streams.len(), "units of every stream");
        self.units_left = units.iter().sum();
        for (s, units) in self.streams.iter_mut().zip(units) {
            s.units = units;
            s.check();
        }
        self.decided = Decided::Yes;
    }

    /// Notes that all players have ended the log.
    pub fn end_log(&mut self) {
        assert!(
            self.streams.iter().all(|s| s.next == s.units),
            "the log ends after its last unit"
        );
        self.log_end = Ending::Yes;
    }

    /// Notes that an index was built.
    pub fn end_index(&mut self) {
        let Indexes::Building { count, next, left } = &mut self.indexes else {
            unreachable!("indexes end after the last is built");
        };
        *left -= 1;
        assert!(
            *next <= *count && *count - *next <= *left,
            "{next} of {count} indexes were begun and {left} are left"
        );
    }
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Decided {
    No,
    Running,
    Yes,
}

/// The players' progress with the end of the log.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Ending {
    No,
    Running,
    Yes,
}

/// The progress of the sidecars: `next` is the first that no job has taken, `reading` is the number
/// being read.
pub(crate) struct Sidecars {
    pub count: usize,
    pub next: usize,
    pub reading: usize,
}

/// The progress of the indexes.
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
    ReadSidecar(usize),
    BeginIndexes,
    BuildIndex(usize),
    EndIndexes,
}

/// The figure of the report that a job's time is added to.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum Counts {
    Image,
    Log,
    Index,
    /// The second pass is timed separately.
    Undo,
    /// A sidecar is read while there is nothing else to do.
    Nothing,
}

impl<P, U> Job<P, U> {
    pub fn counts(&self) -> Counts {
        match self {
            Job::ReadPart(..) | Job::PlayPart(..) => Counts::Image,
            Job::Scan(_) | Job::Decide | Job::ReadUnit(..) | Job::PlayUnit(..) | Job::Merge(_) => {
                Counts::Log
            }
            Job::EndLog => Counts::Undo,
            Job::ReadSidecar(_) => Counts::Nothing,
            Job::BeginIndexes | Job::BuildIndex(_) | Job::EndIndexes => Counts::Index,
        }
    }
}

/// The thread that asks for a job.
#[derive(Clone, Copy)]
pub(crate) enum Asker {
    Disk(usize),
    Stream(usize),
    Player,
    /// The only thread, which takes reads too; the number picks among the possible jobs.
    Everyone(u64),
}
