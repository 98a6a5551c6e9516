//! Runs the schedule of a restart: gives jobs to threads. Each level of parallelism has edges. They say which earlier
//! jobs must end before a job may begin.
//!
//! One mutex protects the progress of the work. A thread takes a job under the mutex, performs it without the mutex,
//! and records the job's end under the mutex. A thread that finds no allowed job waits until the progress changes. A
//! thread that reads a disk ends after it has read the whole disk. A player's thread ends after everything was played.
//! All threads end after a job has failed.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::Clock;

use crate::jobs::{
    Asker, Counts, Decided, DiskState, Ending, Indexes, Job, Scan, ScheduleState, Sidecars,
    StreamState,
};
use crate::level::{Busy, Edges, Schedule};
use crate::threads::{OnPanic, start};
use crate::work::Work;

struct Runner<'a, W: Work> {
    work: &'a W,
    edges: Edges,
    pile_share: u64,
    mergers: usize,
    clock: &'a dyn Clock,
    state: Mutex<ScheduleState<W::Part, W::Unit>>,
    changed: Condvar,
}

/// Runs all jobs of `work`, and returns how long disks and players were busy.
///
/// # Errors
/// The first error of any job.
pub fn run<W: Work>(work: &W, schedule: &Schedule, clock: &dyn Clock) -> Result<Busy> {
    let threads = schedule.threads.max(1);
    let mergers = work.mergers(if schedule.inline.is_some() {
        1
    } else {
        threads
    });
    assert!(
        mergers <= threads,
        "{mergers} workers merge on {threads} threads"
    );
    let runner = Runner::new(work, schedule, mergers, clock);
    if let Some(seed) = schedule.inline {
        let mut busy = Busy::default();
        runner.everything(seed, &mut busy);
        return runner.finish(busy);
    }
    let total = Mutex::new(Busy::default());
    let note = |busy: Busy| {
        let mut total = total.lock();
        total.backup_play = total.backup_play.max(busy.backup_play);
        total.log_play = total.log_play.max(busy.log_play);
    };
    std::thread::scope(|scope| {
        let runner = &runner;
        // If a reader's thread cannot be started, the schedule ends with an error. Otherwise it would wait for ever for
        // that disk or stream to be read.
        let read = |asker| {
            let started = start(scope, move || runner.read_loop(asker));
            if let Err(error) = started {
                runner.fail(error);
            }
        };
        // The loop must not hold the lock: `fail` takes it.
        let disks = runner.state.lock().disks.len();
        for disk in 0..disks {
            (0..runner.edges.reads).for_each(|_| read(Asker::Disk(disk)));
        }
        (0..work.streams()).for_each(|stream| read(Asker::Stream(stream)));
        // If a player's thread cannot be started, the schedule only takes longer.
        let player = |_| start(scope, || note(runner.play_loop())).ok();
        (1..threads).map_while(player).for_each(drop);
        note(runner.play_loop());
    });
    runner.finish(total.into_inner())
}

impl<'a, W: Work> Runner<'a, W> {
    fn new(work: &'a W, schedule: &Schedule, mergers: usize, clock: &'a dyn Clock) -> Self {
        let disks: Vec<_> = work
            .parts()
            .into_iter()
            .map(|parts| DiskState {
                parts,
                next: 0,
                reading: 0,
                open: 0,
                ready: VecDeque::new(),
                busy_ns: 0,
                busy_since_ns: 0,
            })
            .collect();
        let streams = (0..work.streams())
            .map(|_| StreamState {
                scan: Scan::Due,
                units: 0,
                next: 0,
                reading: false,
                open: 0,
                piled: 0,
                ready: VecDeque::new(),
                preparing: false,
                taken: vec![0; mergers],
                dropped: 0,
                busy_ns: 0,
            })
            .collect();
        Runner {
            work,
            edges: schedule.level.edges(),
            pile_share: schedule.pile_bytes / to_u64(work.streams().max(1)),
            mergers,
            clock,
            state: Mutex::new(ScheduleState {
                parts_left: disks.iter().map(|disk: &DiskState<_>| disk.parts).sum(),
                disks,
                streams,
                decided: Decided::No,
                units_left: 0,
                mergers_next: 0,
                mergers_left: mergers,
                log_end: Ending::No,
                sidecars: Sidecars {
                    count: work.sidecars(),
                    next: 0,
                    reading: 0,
                },
                indexes: Indexes::Due,
                backup_span: None,
                log_span: None,
                index_span: None,
                error: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn finish(self, mut busy: Busy) -> Result<Busy> {
        let is_played = self.is_played(&self.state.lock());
        let state = self.state.into_inner();
        if let Some(error) = state.error {
            return Err(error);
        }
        assert!(
            is_played,
            "a schedule without an error ends when image and log are played"
        );
        let busiest = |ns: Option<u64>| seconds(ns.unwrap_or(0));
        busy.backup_read = busiest(state.disks.iter().map(|d| d.busy_ns).max());
        busy.log_read = busiest(state.streams.iter().map(|s| s.busy_ns).max());
        let length = |span: Option<(u64, u64)>| span.map_or(0.0, |(from, to)| seconds(to - from));
        busy.backup_span = length(state.backup_span);
        busy.log_span = length(state.log_span);
        busy.index_span = length(state.index_span);
        assert!(
            state
                .disks
                .iter()
                .all(|disk| disk.open == 0 && disk.ready.is_empty()),
            "every part that was read was played"
        );
        assert!(
            self.mergers > 0
                || state
                    .streams
                    .iter()
                    .all(|s| s.open == 0 && s.ready.is_empty()),
            "every unit that was read was played"
        );
        let is_taken = |s: &StreamState<W::Unit>| s.taken.iter().all(|taken| *taken == s.units);
        assert!(
            state.streams.iter().all(is_taken),
            "every merging worker has taken every unit"
        );
        Ok(busy)
    }

    /// Returns a guard that ends all threads if this thread panics. Without the guard, all other threads would wait for
    /// this thread's job to end.
    fn end_all_on_panic(&self) -> impl Drop {
        OnPanic(|| {
            let panicked = || Error::Stopped("a job of the restart panicked".into());
            self.state.lock().error.get_or_insert_with(panicked);
            self.changed.notify_all();
        })
    }

    /// Ends the schedule with `error`. If it has failed already, keeps the earlier error.
    fn fail(&self, error: Error) {
        self.state.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Takes and performs jobs on a thread that reads a disk or a stream. Returns when nothing is left to read there.
    fn read_loop(&self, asker: Asker) {
        let _guard = self.end_all_on_panic();
        let mut busy = Busy::default();
        while let Some(job) = self.next_job(asker) {
            self.perform(job, &mut busy);
        }
    }

    /// Takes and performs jobs on a player's thread, until everything is played. Returns the thread's busy times.
    fn play_loop(&self) -> Busy {
        let _guard = self.end_all_on_panic();
        let mut busy = Busy::default();
        while let Some(job) = self.next_job(Asker::Player) {
            self.perform(job, &mut busy);
        }
        busy
    }

    /// Takes and performs all jobs on the only thread, in an order that `seed` picks.
    fn everything(&self, seed: u64, busy: &mut Busy) {
        let mut pick = seed;
        while let Some(job) = self.next_job(Asker::Everyone(pick)) {
            self.perform(job, busy);
            if seed != 0 {
                pick = perdura_base::checksum::mix64(pick).max(1);
            }
        }
    }

    /// Waits for a job that this thread may perform, and takes it. `None`: this thread will get no more jobs.
    fn next_job(&self, asker: Asker) -> Option<Job<W::Part, W::Unit>> {
        let mut state = self.state.lock();
        loop {
            if state.error.is_some() || self.is_over(&state, asker) {
                self.changed.notify_all();
                return None;
            }
            if let Some(job) = self.take_job(&mut state, asker) {
                return Some(job);
            }
            if let Asker::Everyone(_) = asker {
                unreachable!("one thread that does everything always finds a job");
            }
            self.changed.wait(&mut state);
        }
    }

    fn is_over(&self, state: &ScheduleState<W::Part, W::Unit>, asker: Asker) -> bool {
        let decided = state.decided == Decided::Yes;
        match asker {
            Asker::Disk(disk) => state.disks[disk].next == state.disks[disk].parts,
            Asker::Stream(s) => decided && state.streams[s].next == state.streams[s].units,
            Asker::Player | Asker::Everyone(_) => {
                state.log_end == Ending::Yes && state.indexes == Indexes::Done
            }
        }
    }

    /// Returns whether the whole image and the whole log have been played.
    fn is_played(&self, state: &ScheduleState<W::Part, W::Unit>) -> bool {
        let played = if self.mergers > 0 {
            state.mergers_left == 0
        } else {
            state.units_left == 0
        };
        state.parts_left == 0 && state.decided == Decided::Yes && played
    }

    fn take_job(
        &self,
        state: &mut ScheduleState<W::Part, W::Unit>,
        asker: Asker,
    ) -> Option<Job<W::Part, W::Unit>> {
        match asker {
            Asker::Disk(disk) => self.take_read_part(state, disk),
            Asker::Stream(stream) => self.take_log_read(state, stream),
            Asker::Player => (0..state.disks.len())
                .find_map(|disk| state.take_part(disk))
                .or_else(|| self.take_log_play(state, 0))
                .or_else(|| self.take_end(state))
                .or_else(|| state.take_sidecar()),
            Asker::Everyone(pick) => {
                let disks = state.disks.len();
                let kinds = 2 * disks + state.streams.len() + 2;
                let start = usize::try_from(pick % to_u64(kinds)).unwrap_or(0);
                // The search for a job begins at a kind of job that the seed picks. With seed 0 it begins with playing
                // parts, so each part is played right after it is read.
                let taken = (0..kinds).map(|i| (start + i) % kinds).find_map(|kind| {
                    if kind < disks {
                        state.take_part(kind)
                    } else if kind < 2 * disks {
                        self.take_read_part(state, kind - disks)
                    } else if kind < 2 * disks + 1 {
                        self.take_log_play(state, pick)
                    } else if kind < 2 * disks + 2 {
                        state.take_sidecar()
                    } else {
                        self.take_log_read(state, kind - 2 * disks - 2)
                    }
                });
                taken.or_else(|| self.take_end(state))
            }
        }
    }

    fn take_read_part(
        &self,
        state: &mut ScheduleState<W::Part, W::Unit>,
        disk: usize,
    ) -> Option<Job<W::Part, W::Unit>> {
        let d = &mut state.disks[disk];
        if d.next == d.parts || d.reading == self.edges.reads || d.open >= self.edges.pipeline {
            return None;
        }
        d.begin_read(self.clock.mono_ns());
        Some(Job::ReadPart(disk, d.next - 1))
    }

    fn take_log_read(
        &self,
        state: &mut ScheduleState<W::Part, W::Unit>,
        stream: usize,
    ) -> Option<Job<W::Part, W::Unit>> {
        let loaded = state.parts_left == 0;
        if self.edges.log_read_waits && !loaded {
            return None;
        }
        if state.streams[stream].scan == Scan::Due {
            state.streams[stream].scan = Scan::Running;
            return Some(Job::Scan(stream));
        }
        if state.decided == Decided::No && state.streams.iter().all(|s| s.scan == Scan::Done) {
            state.decided = Decided::Running;
            return Some(Job::Decide);
        }
        let s = &mut state.streams[stream];
        if state.decided != Decided::Yes || s.next == s.units || s.reading {
            return None;
        }
        // At levels 3 and 4 a stream reads ahead until it has used its share of the budget, but at least one unit.
        let room = if self.edges.log_read_waits {
            s.open < self.edges.pipeline
        } else {
            s.open == 0 || s.piled < self.pile_share
        };
        if !room {
            return None;
        }
        s.reading = true;
        s.open += 1;
        s.next += 1;
        Some(Job::ReadUnit(stream, s.next - 1))
    }

    fn take_log_play(
        &self,
        state: &mut ScheduleState<W::Part, W::Unit>,
        pick: u64,
    ) -> Option<Job<W::Part, W::Unit>> {
        let may_play = state.parts_left == 0 || !self.edges.log_play_waits;
        if !may_play || state.decided != Decided::Yes {
            return None;
        }
        if state.mergers_next < self.mergers {
            state.mergers_next += 1;
            return Some(Job::Merge(state.mergers_next - 1));
        }
        if self.mergers > 0 {
            return None;
        }
        let streams = state.streams.len();
        let start = usize::try_from(pick % to_u64(streams.max(1))).unwrap_or(0);
        (0..streams).map(|i| (start + i) % streams).find_map(|at| {
            let s = &mut state.streams[at];
            if s.preparing {
                return None;
            }
            let unit = s.ready.pop_front()?;
            s.preparing = true;
            Some(Job::PlayUnit(at, unit))
        })
    }

    /// Takes a job after image and log were played. The first job ends the players. The later jobs build the indexes.
    fn take_end(
        &self,
        state: &mut ScheduleState<W::Part, W::Unit>,
    ) -> Option<Job<W::Part, W::Unit>> {
        if state.log_end == Ending::No && self.is_played(state) {
            state.log_end = Ending::Running;
            return Some(Job::EndLog);
        }
        let loaded = state.parts_left == 0 && state.decided == Decided::Yes;
        let may_begin = loaded && state.log_end == Ending::Yes;
        state.take_index(may_begin)
    }

    fn perform(&self, job: Job<W::Part, W::Unit>, busy: &mut Busy) {
        let since = self.clock.mono_ns();
        let spent = || self.clock.mono_ns().saturating_sub(since);
        let counts = job.counts();
        let done = match job {
            Job::ReadPart(disk, part) => {
                let read = self.work.read_part(disk, part);
                self.update(read, |state, part| {
                    state.disks[disk].end_read(part, self.clock.mono_ns());
                })
            }
            Job::PlayPart(disk, part) => {
                let played = self.work.play_part(part);
                busy.backup_play += seconds(spent());
                self.update(played, |state, ()| state.end_part(disk))
            }
            Job::Scan(stream) => {
                let scanned = self.work.scan(stream);
                self.update(scanned, |state, ()| {
                    state.streams[stream].scan = Scan::Done;
                    state.streams[stream].busy_ns += spent();
                })
            }
            Job::Decide => self.update(self.work.decide(), ScheduleState::decide),
            Job::ReadUnit(stream, unit) => self.read_unit(stream, unit).map(drop),
            Job::PlayUnit(stream, unit) => self.play_unit(stream, unit, busy),
            Job::Merge(worker) => self.merge(worker, busy),
            Job::EndLog => self.update(self.work.end_log(), |state, ()| state.end_log()),
            Job::ReadSidecar(number) => {
                self.work.read_sidecar(number);
                self.update(Ok(()), |state, ()| state.sidecars.reading -= 1)
            }
            Job::BeginIndexes => self.update(self.work.begin_indexes(), |state, count| {
                let (next, left) = (0, count);
                state.indexes = Indexes::Building { count, next, left };
            }),
            Job::BuildIndex(number) => self.update(self.work.build_index(number), |state, ()| {
                state.end_index();
            }),
            Job::EndIndexes => self.update(self.work.end_indexes(), |state, ()| {
                state.indexes = Indexes::Done;
            }),
        };
        self.end_job(counts, (since, since + spent()), done);
    }

    fn play_unit(&self, stream: usize, unit: Arc<W::Unit>, busy: &mut Busy) -> Result<()> {
        let since = self.clock.mono_ns();
        let mut prepared = false;
        let played = self.work.play_unit(stream, &unit, &mut || {
            prepared = true;
            self.state.lock().streams[stream].preparing = false;
            self.changed.notify_all();
        });
        busy.log_play += seconds(self.clock.mono_ns().saturating_sub(since));
        let bytes = self.work.unit_bytes(&unit);
        drop(unit);
        self.update(played, |state, ()| {
            let s = &mut state.streams[stream];
            s.preparing &= prepared;
            s.open -= 1;
            s.piled = s.piled.saturating_sub(bytes);
            s.check();
            state.units_left -= 1;
            assert!(
                state.parts_left == 0 || !self.edges.log_play_waits,
                "a unit was played before {} parts of the image, which it waits for",
                state.parts_left
            );
        })
    }

    fn merge(&self, worker: usize, busy: &mut Busy) -> Result<()> {
        let (begin, mut waited_ns) = (self.clock.mono_ns(), 0);
        let merged = self.work.merge(worker, self.mergers, &mut |stream| {
            let since = self.clock.mono_ns();
            let next = self.next_for_merge(worker, stream);
            waited_ns += self.clock.mono_ns().saturating_sub(since);
            next
        });
        let spent = self.clock.mono_ns().saturating_sub(begin);
        busy.log_play += seconds(spent.saturating_sub(waited_ns));
        self.update(merged, |state, ()| state.mergers_left -= 1)
    }

    /// Records the times at which a job began and ended. If the job failed, records the error. After that, no thread
    /// takes a new job.
    fn end_job(&self, counts: Counts, (since, now): (u64, u64), done: Result<()>) {
        let mut state = self.state.lock();
        let span = match counts {
            Counts::Image => Some(&mut state.backup_span),
            Counts::Log => Some(&mut state.log_span),
            Counts::Index => Some(&mut state.index_span),
            Counts::Undo | Counts::Nothing => None,
        };
        if let Some(span) = span {
            let (from, to) = span.unwrap_or((since, now));
            *span = Some((from.min(since), to.max(now)));
        }
        if let Err(error) = done {
            // An error about damage names the damaged file and offset. It replaces any other kind of error, because
            // other jobs may have failed as a consequence of the damage.
            let names_a_place = matches!(error, Error::Corrupt(_))
                && !matches!(state.error, Some(Error::Corrupt(_)));
            if state.error.is_none() || names_a_place {
                state.error = Some(error);
            }
            self.changed.notify_all();
        }
    }

    fn update<T>(
        &self,
        result: Result<T>,
        change: impl FnOnce(&mut ScheduleState<W::Part, W::Unit>, T),
    ) -> Result<()> {
        let value = result?;
        change(&mut self.state.lock(), value);
        self.changed.notify_all();
        Ok(())
    }

    fn read_unit(&self, stream: usize, unit: usize) -> Result<()> {
        let since = self.clock.mono_ns();
        let read = self.work.read_unit(stream, unit);
        self.update(read, |state, unit| {
            let s = &mut state.streams[stream];
            s.reading = false;
            s.busy_ns += self.clock.mono_ns().saturating_sub(since);
            s.piled += self.work.unit_bytes(&unit);
            s.ready.push_back(Arc::new(unit));
            s.check();
        })
    }

    /// Returns the next unit of a stream for one merging worker; `None` at the stream's end. Drops units that all
    /// workers have taken. If the unit has not been read and no thread reads the stream, reads the unit here. A single
    /// thread needs this to make progress.
    fn next_for_merge(&self, worker: usize, stream: usize) -> Result<Option<Arc<W::Unit>>> {
        let mut state = self.state.lock();
        self.drop_passed(&mut state.streams[stream]);
        self.changed.notify_all();
        loop {
            if state.error.is_some() {
                return Err(Error::Stopped("another job of the restart failed".into()));
            }
            let s = &mut state.streams[stream];
            let wanted = s.taken[worker];
            assert!(
                s.dropped <= wanted,
                "unit {wanted} of stream {stream} was dropped before worker {worker} took it"
            );
            if wanted == s.units {
                return Ok(None);
            }
            if let Some(unit) = s.ready.get(wanted - s.dropped) {
                let unit = Arc::clone(unit);
                s.taken[worker] += 1;
                return Ok(Some(unit));
            }
            if !s.reading && s.open == 0 {
                s.reading = true;
                s.open += 1;
                s.next += 1;
                let unit = s.next - 1;
                drop(state);
                self.read_unit(stream, unit)?;
                state = self.state.lock();
            } else {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Drops units that every worker has taken. A worker may still hold the newest unit that it took, until it takes
    /// the next unit.
    fn drop_passed(&self, s: &mut StreamState<W::Unit>) {
        let passed = s.taken.iter().copied().min().unwrap_or(0);
        while s.dropped < passed {
            if let Some(unit) = s.ready.pop_front() {
                s.piled = s.piled.saturating_sub(self.work.unit_bytes(&unit));
                s.open -= 1;
            }
            s.dropped += 1;
        }
        s.check();
        assert!(
            s.dropped + s.ready.len() <= s.next,
            "{} units were dropped, {} are ready, {} were read",
            s.dropped,
            s.ready.len(),
            s.next
        );
    }
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}
