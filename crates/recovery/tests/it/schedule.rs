//! Tests the schedule on toy work that records its jobs. Every job runs once, after the jobs that must precede it at
//! the restart's level. The units of a stream run in order. Errors reach the caller. Merging workers never wait for one
//! another in a circle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use perdura_base::{Error, Result};
use perdura_device::{ManualClock, SystemClock};
use perdura_recovery::schedule::run;
use perdura_recovery::work::Work;
use perdura_recovery::{Level, Schedule};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    ReadPart(usize, usize),
    PlayPart(usize, usize),
    Scan,
    Decide,
    ReadUnit(usize, usize),
    PlayUnit(usize, usize),
    EndLog,
    ReadSidecar(usize),
    BeginIndexes,
    BuildIndex(usize),
    EndIndexes,
}

/// The number of indexes of a toy.
const INDEXES: usize = 5;

/// Work of a given size: the count of parts on each disk, and the count of units in each stream. If the work is
/// ordered, the units have serial numbers. These numbers ascend within a stream.
struct Toy {
    parts: Vec<usize>,
    units: Vec<usize>,
    ordered: bool,
    fail: Option<Event>,
    panics: Option<Event>,
    trace: Mutex<Vec<Event>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
    merged: Mutex<Vec<Vec<u64>>>,
}

impl Toy {
    fn new(parts: &[usize], units: &[usize]) -> Toy {
        Toy {
            parts: parts.to_vec(),
            units: units.to_vec(),
            ordered: false,
            fail: None,
            panics: None,
            trace: Mutex::new(Vec::new()),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            merged: Mutex::new(Vec::new()),
        }
    }

    fn note(&self, event: Event) -> Result<()> {
        self.trace.lock().push(event);
        assert_ne!(self.panics, Some(event), "a panic on purpose");
        if self.fail == Some(event) {
            return Err(Error::Usage(format!("{event:?} fails")));
        }
        Ok(())
    }

    /// Returns the three serial numbers of a unit. The serial numbers of different streams interleave.
    fn serials(&self, stream: usize, unit: usize) -> Vec<u64> {
        let streams = self.units.len();
        (0..3)
            .map(|i| u64::try_from(((unit * 3 + i) * streams) + stream).unwrap())
            .collect()
    }
}

impl Work for Toy {
    type Part = (usize, usize);
    type Unit = (usize, usize);

    fn parts(&self) -> Vec<usize> {
        self.parts.clone()
    }

    fn read_part(&self, disk: usize, part: usize) -> Result<(usize, usize)> {
        self.note(Event::ReadPart(disk, part))?;
        Ok((disk, part))
    }

    fn play_part(&self, (disk, part): (usize, usize)) -> Result<()> {
        self.note(Event::PlayPart(disk, part))
    }

    fn streams(&self) -> usize {
        self.units.len()
    }

    fn scan(&self, _stream: usize) -> Result<()> {
        self.note(Event::Scan)
    }

    fn decide(&self) -> Result<Vec<usize>> {
        self.note(Event::Decide)?;
        Ok(self.units.clone())
    }

    fn read_unit(&self, stream: usize, unit: usize) -> Result<(usize, usize)> {
        self.note(Event::ReadUnit(stream, unit))?;
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        Ok((stream, unit))
    }

    fn unit_bytes(&self, _: &(usize, usize)) -> u64 {
        100
    }

    fn play_unit(
        &self,
        stream: usize,
        unit: &(usize, usize),
        prepared: &mut dyn FnMut(),
    ) -> Result<()> {
        self.note(Event::PlayUnit(stream, unit.1))?;
        prepared();
        self.open.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn merge(
        &self,
        worker: usize,
        workers: usize,
        next: &mut dyn FnMut(usize) -> Result<Option<Arc<(usize, usize)>>>,
    ) -> Result<()> {
        let mut heads: Vec<Option<(Vec<u64>, usize)>> = Vec::new();
        for stream in 0..self.units.len() {
            let unit = next(stream)?;
            heads.push(unit.map(|unit| (self.serials(stream, unit.1), 0)));
        }
        let mut mine = Vec::new();
        loop {
            let first = heads
                .iter()
                .enumerate()
                .filter_map(|(s, head)| head.as_ref().map(|(serials, at)| (serials[*at], s)))
                .min();
            let Some((serial, stream)) = first else { break };
            if usize::try_from(serial).unwrap() % workers == worker {
                mine.push(serial);
            }
            let head = heads[stream].as_mut().unwrap();
            head.1 += 1;
            if head.1 == head.0.len() {
                heads[stream] = next(stream)?.map(|unit| (self.serials(stream, unit.1), 0));
            }
        }
        self.merged.lock().push(mine);
        Ok(())
    }

    fn mergers(&self, threads: usize) -> usize {
        if self.ordered { threads } else { 0 }
    }

    fn end_log(&self) -> Result<()> {
        self.note(Event::EndLog)
    }

    fn sidecars(&self) -> usize {
        INDEXES
    }

    fn read_sidecar(&self, number: usize) {
        self.note(Event::ReadSidecar(number)).expect("no error");
    }

    fn begin_indexes(&self) -> Result<usize> {
        self.note(Event::BeginIndexes)?;
        Ok(INDEXES)
    }

    fn build_index(&self, number: usize) -> Result<()> {
        self.note(Event::BuildIndex(number))
    }

    fn end_indexes(&self) -> Result<()> {
        self.note(Event::EndIndexes)
    }
}

fn at(trace: &[Event], wanted: impl Fn(&Event) -> bool) -> Vec<usize> {
    trace
        .iter()
        .enumerate()
        .filter(|(_, event)| wanted(event))
        .map(|(i, _)| i)
        .collect()
}

fn is_part_played(event: &Event) -> bool {
    matches!(event, Event::PlayPart(..))
}

fn is_log_read(event: &Event) -> bool {
    matches!(event, Event::Scan | Event::ReadUnit(..))
}

fn is_unit_played(event: &Event) -> bool {
    matches!(event, Event::PlayUnit(..))
}

fn check(toy: &Toy, level: Level) {
    let trace = toy.trace.lock();
    let parts: usize = toy.parts.iter().sum();
    let units: usize = toy.units.iter().sum();
    let loaded = at(&trace, is_part_played);
    assert_eq!(loaded.len(), parts);
    let played = at(&trace, is_unit_played);
    assert_eq!(played.len(), units);
    for (stream, units) in toy.units.iter().enumerate() {
        let order: Vec<usize> = trace
            .iter()
            .filter_map(|event| match event {
                Event::PlayUnit(s, unit) if *s == stream => Some(*unit),
                _ => None,
            })
            .collect();
        assert_eq!(order, (0..*units).collect::<Vec<_>>(), "prepared in order");
    }
    let last_part = loaded.last().copied().unwrap_or(0);
    if level <= Level::Two {
        assert!(at(&trace, is_log_read).iter().all(|i| *i > last_part));
    }
    if level <= Level::Three {
        assert!(played.iter().all(|i| *i > last_part));
    }
    if level == Level::One {
        // A part is read only after the part before it on the same disk was played.
        for (disk, parts) in toy.parts.iter().enumerate() {
            for part in 1..*parts {
                let read = at(&trace, |e| *e == Event::ReadPart(disk, part))[0];
                assert!(read > at(&trace, |e| *e == Event::PlayPart(disk, part - 1))[0]);
            }
        }
    }
}

#[test]
fn one_thread_keeps_the_edges_of_every_level_in_any_order_a_seed_picks() {
    let clock = ManualClock::at(0);
    for level in Level::ALL {
        let mut log_first = false;
        for seed in 0..200 {
            let toy = Toy::new(&[3, 5], &[4, 0, 7]);
            run(&toy, &Schedule::inline(level, seed), &clock).unwrap();
            check(&toy, level);
            let trace = toy.trace.lock();
            let first_played = at(&trace, is_unit_played)[0];
            log_first |= at(&trace, is_part_played)[0] > first_played;
        }
        assert_eq!(log_first, level == Level::Four, "log before image");
    }
}

#[test]
fn threads_keep_the_edges_of_every_level() {
    let clock = SystemClock::new();
    for level in Level::ALL {
        for threads in [1, 2, 5] {
            for _ in 0..20 {
                let toy = Toy::new(&[6, 1, 0], &[9, 0, 20, 3]);
                run(&toy, &Schedule::new(level, threads), &clock).unwrap();
                // A player records a job some time after it took the job. So only with one player is the recorded order
                // of a stream's jobs the true order.
                if threads == 1 {
                    check(&toy, level);
                }
                assert_eq!(at(&toy.trace.lock(), is_unit_played).len(), 32);
            }
        }
    }
}

#[test]
fn records_pile_up_only_as_far_as_the_budget_reaches() {
    let clock = ManualClock::at(0);
    for seed in 1..100 {
        let toy = Toy::new(&[50], &[40, 40]);
        let mut schedule = Schedule::inline(Level::Three, seed);
        schedule.pile_bytes = 1000;
        run(&toy, &schedule, &clock).unwrap();
        assert!(toy.most_open.load(Ordering::SeqCst) <= 10);
        check(&toy, Level::Three);
    }
}

#[test]
fn merging_workers_see_every_unit_in_order_however_small_the_budget() {
    let clock = SystemClock::new();
    for level in [Level::One, Level::Two, Level::Three] {
        for threads in [1, 2, 4] {
            for _ in 0..30 {
                let mut toy = Toy::new(&[2, 2], &[5, 13, 0, 8]);
                toy.ordered = true;
                let mut schedule = Schedule::new(level, threads);
                schedule.pile_bytes = 1;
                run(&toy, &schedule, &clock).unwrap();
                let mut all: Vec<u64> = Vec::new();
                for mine in toy.merged.lock().iter() {
                    assert!(mine.is_sorted());
                    all.extend(mine);
                }
                all.sort_unstable();
                let mut expected: Vec<u64> = (0..4)
                    .flat_map(|s| (0..toy.units[s]).flat_map(move |u| (s, u).serials(4)))
                    .collect();
                expected.sort_unstable();
                assert_eq!(all, expected);
            }
        }
    }
    let mut toy = Toy::new(&[2], &[5, 3]);
    toy.ordered = true;
    run(
        &toy,
        &Schedule::inline(Level::Three, 7),
        &ManualClock::at(0),
    )
    .unwrap();
    assert_eq!(toy.merged.lock()[0].len(), 24);
}

trait Serials {
    fn serials(self, streams: usize) -> Vec<u64>;
}

impl Serials for (usize, usize) {
    fn serials(self, streams: usize) -> Vec<u64> {
        let (stream, unit) = self;
        (0..3)
            .map(|i| u64::try_from(((unit * 3 + i) * streams) + stream).unwrap())
            .collect()
    }
}

#[test]
fn the_first_error_ends_every_thread_and_is_handed_on() {
    let clock = SystemClock::new();
    let failing = [
        Event::ReadPart(1, 2),
        Event::PlayPart(0, 0),
        Event::Scan,
        Event::Decide,
        Event::ReadUnit(1, 3),
        Event::PlayUnit(0, 2),
    ];
    for fail in failing {
        for level in Level::ALL {
            for schedule in [Schedule::new(level, 3), Schedule::inline(level, 5)] {
                let mut toy = Toy::new(&[2, 4], &[5, 6]);
                toy.fail = Some(fail);
                let error = run(&toy, &schedule, &clock).unwrap_err();
                assert!(error.to_string().contains("fails"), "{error}");
            }
        }
    }
}

#[test]
fn a_job_that_panics_ends_the_others() {
    let clock = SystemClock::new();
    for panics in [
        Event::ReadPart(0, 1),
        Event::PlayPart(0, 3),
        Event::ReadUnit(0, 2),
    ] {
        let mut toy = Toy::new(&[9], &[9, 9]);
        toy.panics = Some(panics);
        let schedule = Schedule::new(Level::Four, 3);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&toy, &schedule, &clock)
        }));
        assert!(ended.is_err(), "{panics:?} is handed on as a panic");
    }
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let clock = ManualClock::at(0);
    for level in Level::ALL {
        let toy = Toy::new(&[0], &[0]);
        run(&toy, &Schedule::inline(level, 1), &clock).unwrap();
        run(&Toy::new(&[], &[0]), &Schedule::new(level, 2), &clock).unwrap();
    }
}

#[test]
fn indexes_are_built_once_between_the_log_and_the_end() {
    for ordered in [false, true] {
        for level in Level::ALL {
            if ordered && level == Level::Four {
                continue;
            }
            let inline = (0..16).map(|seed| Schedule::inline(level, seed));
            for schedule in inline.chain([Schedule::new(level, 1), Schedule::new(level, 3)]) {
                let mut toy = Toy::new(&[3, 2], &[4, 3]);
                toy.ordered = ordered;
                run(&toy, &schedule, &ManualClock::at(1)).unwrap();
                let trace = toy.trace.lock();
                let one = |wanted| {
                    let found = at(&trace, |e| *e == wanted);
                    assert_eq!(found.len(), 1, "{wanted:?} {level:?}");
                    found[0]
                };
                let (begin, end) = (one(Event::BeginIndexes), one(Event::EndIndexes));
                for number in 0..INDEXES {
                    let built = one(Event::BuildIndex(number));
                    assert!(begin < built && built < end);
                    let read = at(&trace, |e| *e == Event::ReadSidecar(number));
                    assert!(read.len() <= 1 && read.iter().all(|read| *read < begin));
                }
                let parts = at(&trace, |e| matches!(e, Event::PlayPart(..)));
                assert!(parts.iter().all(|part| *part < begin), "{level:?}");
                let units = at(&trace, |e| matches!(e, Event::PlayUnit(..)));
                let log_end = one(Event::EndLog);
                assert!(units.iter().all(|unit| *unit < log_end));
                assert!(log_end < begin);
            }
        }
    }
}
