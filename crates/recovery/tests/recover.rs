//! `recover` by an image and a log that the product does not have: a log held in memory, sorted as an
//! archive would be, and an image that is the state of an epoch. Both exist in this file alone, and
//! find the same state as the product's streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::{
    CkptEpoch, Epoch, Incarnation, PageId, PartitionSet, Result, StreamId, Useq, Uuid,
};
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_recovery::Disks;
use perdura_recovery::base::{Base, Image};
use perdura_recovery::plan::plan_image;
use perdura_recovery::player::Supplied;
use perdura_recovery::recover::{Means, State, Target, recover};
use perdura_recovery::rule::ImageKind;
use perdura_recovery::source::{Frames, LogEnd, LogSource, Raw};
use perdura_recovery::streams::Streams;
use perdura_recovery::window::ExecutorWindow;
use perdura_recovery::{
    Families, Level, LogMemory, METHODS, Method, NewDatabase, Player, Progress, RestartOptions,
    Schedule, create, flush_all, read_anchor, restart, resume,
};
use perdura_wal::{Direction, Frame, FrameKind, Origin, Rung, Scheme, SegmentSizes};

const STREAMS: u8 = 2;
const PAGES: u32 = 4;
const GEOMETRY: Geometry = Geometry {
    partitions: 2,
    chunk_pages: 2,
    hash_seed: 1,
};

/// A frame out of its log.
#[derive(Clone)]
struct Kept {
    kind: FrameKind,
    payload: Vec<u8>,
    origin: Origin,
}

/// A source that holds its frames in memory, in parts and units that have nothing to do with the
/// streams they came from.
struct Archive {
    parts: Vec<Vec<Shelf>>,
    end: Epoch,
}

/// A unit of it.
#[derive(Clone)]
struct Shelf {
    joined: Vec<u8>,
    frames: Vec<(FrameKind, std::ops::Range<usize>, Origin)>,
}

impl Shelf {
    fn of(kept: &[Kept]) -> Shelf {
        let mut shelf = Shelf {
            joined: Vec::new(),
            frames: Vec::new(),
        };
        for frame in kept {
            let from = shelf.joined.len();
            shelf.joined.extend_from_slice(&frame.payload);
            let range = from..shelf.joined.len();
            shelf.frames.push((frame.kind, range, frame.origin));
        }
        shelf
    }
}

impl Raw for Shelf {
    type Open = Shelf;

    fn bytes(&self) -> u64 {
        u64::try_from(self.joined.len()).unwrap()
    }

    fn life(&self) -> Incarnation {
        self.frames[0].2.life
    }

    fn open(self) -> Result<Shelf> {
        Ok(self)
    }
}

impl Frames for Shelf {
    fn joined(&self) -> &[u8] {
        &self.joined
    }

    fn for_each<'a>(
        &'a self,
        _: Direction,
        mut each: impl FnMut(Frame<'a>, &'a Origin) -> Result<()>,
    ) -> Result<()> {
        self.frames.iter().try_for_each(|(kind, range, origin)| {
            let payload = &self.joined[range.clone()];
            each(
                Frame {
                    kind: *kind,
                    payload,
                },
                origin,
            )
        })
    }
}

impl LogSource for Archive {
    type Raw = Shelf;

    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn scan(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn end(&self) -> Result<LogEnd> {
        let shelves = self.parts.iter().flatten();
        Ok(LogEnd {
            epoch: self.end,
            ckpt_max: CkptEpoch(0),
            units: self.parts.iter().map(Vec::len).collect(),
            bytes: shelves.map(Raw::bytes).sum(),
        })
    }

    fn read(&self, part: usize, number: usize) -> Result<Shelf> {
        Ok(self.parts[part][number].clone())
    }
}

/// An image in memory; each page is a part.
struct Copies {
    pages: Vec<(PageId, Vec<u8>)>,
    base: Base,
    rests_on: Epoch,
}

impl Copies {
    fn of(heap: &Heap, kind: ImageKind, rests_on: Epoch) -> Copies {
        Copies {
            pages: pages(heap).into_iter().collect(),
            base: Base::new(kind, Vec::new()),
            rests_on,
        }
    }

    fn none() -> Copies {
        Copies {
            pages: Vec::new(),
            base: Base::default(),
            rests_on: Epoch(0),
        }
    }
}

impl Image for Copies {
    type Part = usize;

    fn kind(&self) -> ImageKind {
        self.base.kind
    }

    fn base_of(&self, _: PageId) -> Option<&Base> {
        Some(&self.base)
    }

    fn parts(&self) -> Vec<usize> {
        vec![self.pages.len()]
    }

    fn read(&self, _: usize, part: usize) -> Result<usize> {
        Ok(part)
    }

    fn bytes(&self, part: &usize) -> u64 {
        u64::try_from(self.pages[*part].1.len()).unwrap()
    }

    fn play(&self, heap: &Heap, part: usize) -> Result<u64> {
        let (page, bytes) = &self.pages[part];
        let partition = GEOMETRY.partition_of_page(*page);
        heap.lock(partition)
            .load_page(GEOMETRY.local_index(*page), bytes);
        Ok(0)
    }

    fn check_end(&self, end: Epoch) -> Result<()> {
        assert!(end >= self.rests_on);
        Ok(())
    }
}

/// What pages hold. The update number is not among it: it is the end of a restart that assigns it.
fn pages(heap: &Heap) -> BTreeMap<PageId, Vec<u8>> {
    let mut found = BTreeMap::new();
    for page in (0..PAGES).map(PageId) {
        let part = heap.lock(GEOMETRY.partition_of_page(page));
        if let Some(bytes) = part.page_bytes(GEOMETRY.local_index(page)) {
            found.insert(page, bytes.to_vec());
        }
    }
    found
}

/// A log on a disk, and all that it holds.
struct Machine {
    disks: Disks,
}

impl Machine {
    /// A database with some epochs of random changes, in two lives.
    fn new(seed: u64) -> Machine {
        Machine::with_records(seed, 0)
    }

    /// One whose log also has this many records of another kind in each epoch.
    fn with_records(seed: u64, records: u32) -> Machine {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let disks = Disks::on_one(disk, usize::from(STREAMS));
        let machine = Machine { disks };
        let new = NewDatabase {
            uuid: Uuid([3; 16]),
            geometry: GEOMETRY,
            streams: STREAMS,
            segments: SegmentSizes::fixed(64 << 10),
            scheme: Scheme::Differential,
        };
        let clock = ManualClock::at(1);
        create(&machine.disks, &clock, &new).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut useq = [0; PAGES as usize];
        for _ in 0..2 {
            machine.live(&mut rng, &mut useq, records);
        }
        machine
    }

    /// A life of the database. Its pages are no pages of rows: they are never indexed, because a
    /// player that passes everything over restarts this log.
    fn live(&self, rng: &mut fastrand::Rng, useq: &mut [u32], records: u32) {
        let passes_over = Method {
            name: "nothing",
            schemes: &[Scheme::Differential],
            player: Player::Supplied(Arc::new(Deaf)),
        };
        let options = RestartOptions::of_records(
            self.disks.clone(),
            Arc::new(ManualClock::at(1)),
            Schedule::inline(Level::Two, 0),
            &passes_over,
        );
        let restarted = restart(&options).unwrap().unwrap();
        let memory = LogMemory {
            block_bytes_max: 4096,
            queue_bytes_max: 1 << 20,
            mirror: None,
        };
        let window = Arc::<ExecutorWindow>::default();
        let wal = resume(restarted, &options, memory, window).unwrap().wal;
        for _ in 0..6 {
            for _ in 0..rng.u8(1..6) {
                let page = PageId(rng.u32(0..PAGES));
                let partition = GEOMETRY.partition_of_page(page);
                let next = &mut useq[usize::try_from(page.0).unwrap()];
                *next += 1;
                let payload = change(rng, page, Useq(*next));
                let parts: PartitionSet = [partition].into_iter().collect();
                let stream = StreamId(rng.u8(0..STREAMS));
                wal.append(stream, FrameKind::Group, &payload, &parts, CkptEpoch(0));
            }
            for _ in 0..records {
                let (stream, payload) = (StreamId(rng.u8(0..STREAMS)), rng.u64(..).to_le_bytes());
                let none = PartitionSet::empty();
                wal.append(stream, FrameKind::Record, &payload, &none, CkptEpoch(0));
            }
            flush_all(&wal).unwrap();
        }
        assert!(wal.durable(Rung::Disk) > Epoch(0));
    }

    /// What the streams hold, by the product's own source.
    fn by_streams(&self, target: Target, schedule: Schedule) -> Result<State> {
        self.by_streams_beside(target, schedule, &METHODS[0], &[])
    }

    fn by_streams_beside(
        &self,
        target: Target,
        schedule: Schedule,
        method: &Method,
        supplied: &[Arc<dyn Supplied>],
    ) -> Result<State> {
        let anchor = read_anchor(self.disks.data.as_ref()).unwrap().unwrap();
        let Disks { data, images, .. } = &self.disks;
        let (none, data) = (BTreeSet::new(), data.as_ref());
        let plan = plan_image(&GEOMETRY, data, images, &anchor, &none, &BTreeSet::new()).unwrap();
        let streams = Streams::new(&self.disks.logs, &anchor, &plan.begin);
        recovered_beside(&plan, &streams, target, schedule, method, supplied)
    }

    /// Every frame of the log that counts, and its durable epoch.
    fn frames(&self) -> (Vec<Kept>, Epoch) {
        let anchor = read_anchor(self.disks.data.as_ref()).unwrap().unwrap();
        let begin = vec![perdura_base::Pos(0); usize::from(STREAMS)];
        let streams = Streams::new(&self.disks.logs, &anchor, &begin);
        for part in 0..streams.parts() {
            streams.scan(part).unwrap();
        }
        let end = streams.end().unwrap();
        let mut kept = Vec::new();
        for (part, units) in end.units.iter().enumerate() {
            for number in 0..*units {
                let unit = streams.read(part, number).unwrap().open().unwrap();
                let each = |frame: Frame<'_>, origin: &Origin| {
                    kept.push(Kept {
                        kind: frame.kind,
                        payload: frame.payload.to_vec(),
                        origin: *origin,
                    });
                    Ok(())
                };
                unit.for_each(Direction::Forward, each).unwrap();
            }
        }
        (kept, end.epoch)
    }
}

/// Passes over all frames, so that the log may hold what is no row.
#[derive(Debug)]
struct Deaf;

impl Supplied for Deaf {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn plays(&self, _: FrameKind) -> bool {
        true
    }

    fn begin(&self, _: &Arc<Heap>) {}

    fn frame(&self, _: Frame<'_>, _: Origin) -> Result<()> {
        Ok(())
    }

    fn end_of_life(&self, _: StreamId, _: Incarnation) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A group with one change of a page.
fn change(rng: &mut fastrand::Rng, page: PageId, useq: Useq) -> Vec<u8> {
    let now: Vec<u8> = (0..40).map(|_| rng.u8(1..)).collect();
    let mut body = Vec::new();
    let mut fragments = FragmentWriter::new(&mut body);
    fragments.range(64 + rng.usize(0..3000), &[0; 40], &now);
    let (tag, fragments) = (CkptEpoch(0), fragments.count());
    let head = RecordHead {
        page,
        useq,
        tag,
        fragments,
    };
    let mut group = Vec::new();
    encode_group_head(&mut group, tag, 1);
    encode_record_head(&mut group, tag, &head);
    group.extend_from_slice(&body);
    group
}

fn recovered<I: Image, S: LogSource>(
    image: &I,
    log: &S,
    target: Target,
    schedule: Schedule,
    method: &Method,
) -> Result<State> {
    recovered_beside(image, log, target, schedule, method, &[])
}

fn recovered_beside<I: Image, S: LogSource>(
    image: &I,
    log: &S,
    target: Target,
    schedule: Schedule,
    method: &Method,
    supplied: &[Arc<dyn Supplied>],
) -> Result<State> {
    let means = Means {
        geometry: GEOMETRY,
        memory: &Arc::new(MemoryAccount::new(u64::MAX)),
        method,
        supplied,
        schedule: &schedule,
        clock: &ManualClock::at(1),
        progress: &Progress::default(),
        ordered: Families::default(),
        has_tree: false,
        indexing: None,
    };
    recover(image, log, target, &means)
}

/// The frames in another order, in parts of their own; a unit holds frames of one life.
fn archive(mut kept: Vec<Kept>, end: Epoch, rng: &mut fastrand::Rng) -> Archive {
    rng.shuffle(&mut kept);
    kept.sort_by_key(|frame| frame.origin.life);
    let of_life = kept.chunk_by(|a, b| a.origin.life == b.origin.life);
    let units = of_life.flat_map(|life| life.chunks(3)).map(Shelf::of);
    let mut parts = vec![Vec::new(); 3];
    for unit in units {
        parts[rng.usize(0..3)].push(unit);
    }
    Archive { parts, end }
}

fn schedules() -> impl Iterator<Item = Schedule> {
    Level::ALL
        .into_iter()
        .flat_map(|level| [Schedule::inline(level, 7), Schedule::new(level, 2)])
}

#[test]
fn a_log_held_in_memory_in_another_order_recovers_to_the_state_of_the_streams() {
    for seed in 0..6 {
        let machine = Machine::new(seed);
        let (kept, end) = machine.frames();
        let mut rng = fastrand::Rng::with_seed(seed);
        let log = archive(kept, end, &mut rng);
        for schedule in schedules() {
            let ours = machine.by_streams(Target::End, schedule).unwrap();
            let theirs =
                recovered(&Copies::none(), &log, Target::End, schedule, &METHODS[0]).unwrap();
            assert_eq!(pages(&ours.heap), pages(&theirs.heap), "seed {seed}");
            assert_eq!(ours.stats.applied, theirs.stats.applied);
            assert!(ours.stats.applied > 0);
        }
    }
}

#[test]
fn an_image_of_an_epoch_and_the_log_recover_to_every_target_before_and_behind_it() {
    for seed in 0..3 {
        let machine = Machine::new(seed);
        let (kept, end) = machine.frames();
        let mut rng = fastrand::Rng::with_seed(seed);
        let log = archive(kept, end, &mut rng);
        let schedule = Schedule::inline(Level::Four, seed);
        let state = |epoch| {
            let target = Target::Epoch(Epoch(epoch));
            machine.by_streams(target, schedule).unwrap()
        };
        let mut states = BTreeSet::new();
        for cut in 0..=end.0 {
            let image = Copies::of(&state(cut).heap, ImageKind::Cut(Epoch(cut)), Epoch(cut));
            for target in 0..=end.0 {
                let found = recovered(
                    &image,
                    &log,
                    Target::Epoch(Epoch(target)),
                    schedule,
                    &METHODS[0],
                )
                .unwrap();
                let found = nonzero(&found.heap);
                assert_eq!(found, nonzero(&state(target).heap), "cut {cut} to {target}");
                states.insert(found);
            }
        }
        assert!(states.len() > 6, "the targets are different states");
    }
}

/// Pages that hold something: one that every change was taken out of is as good as one never made.
fn nonzero(heap: &Heap) -> BTreeMap<PageId, Vec<u8>> {
    let mut pages = pages(heap);
    pages.retain(|_, bytes| bytes.iter().any(|byte| *byte != 0));
    pages
}

#[test]
fn a_target_behind_the_end_of_the_log_is_refused() {
    let machine = Machine::new(1);
    let (_, end) = machine.frames();
    let behind = Target::Epoch(Epoch(end.0 + 1));
    let refused = machine.by_streams(behind, Schedule::inline(Level::One, 0));
    let why = refused.map(drop).unwrap_err().to_string();
    assert!(why.contains("the log ends with epoch"), "{why}");
}

/// What a player of another kind of record was called with.
#[derive(Debug, Default)]
struct Notes {
    frames: Mutex<Vec<(FrameKind, Origin, Vec<u8>)>>,
    lives: Mutex<Vec<(StreamId, Incarnation)>>,
}

impl Supplied for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn plays(&self, kind: FrameKind) -> bool {
        kind == FrameKind::Record
    }

    fn begin(&self, _: &Arc<Heap>) {
        self.frames.lock().clear();
        self.lives.lock().clear();
    }

    fn frame(&self, frame: Frame<'_>, origin: Origin) -> Result<()> {
        let end = (origin.stream, origin.life);
        assert!(
            !self.lives.lock().contains(&end),
            "{origin:?} after its life"
        );
        let noted = (frame.kind, origin, frame.payload.to_vec());
        self.frames.lock().push(noted);
        Ok(())
    }

    fn end_of_life(&self, stream: StreamId, life: Incarnation) -> Result<()> {
        self.lives.lock().push((stream, life));
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        assert_eq!(self.lives.lock().len(), 2 * usize::from(STREAMS));
        Ok(())
    }
}

#[test]
fn a_supplied_player_and_the_heaps_play_one_log_in_one_pass_and_each_has_its_own_frames() {
    let backward = Method {
        player: Player::Group(Direction::Backward),
        ..METHODS[0]
    };
    for seed in 0..4 {
        let machine = Machine::with_records(seed, 3);
        let (kept, end) = machine.frames();
        let (records, others): (Vec<_>, Vec<_>) = kept
            .into_iter()
            .partition(|frame| frame.kind == FrameKind::Record);
        assert_eq!(records.len(), 36, "three in each of twelve epochs");
        let mut rng = fastrand::Rng::with_seed(seed);
        let heaps_own = archive(others, end, &mut rng);
        for (schedule, method) in
            schedules().flat_map(|schedule| [(schedule, &METHODS[0]), (schedule, &backward)])
        {
            let notes = Arc::new(Notes::default());
            let supplied = [Arc::clone(&notes) as Arc<dyn Supplied>];
            let both = machine
                .by_streams_beside(Target::End, schedule, method, &supplied)
                .unwrap();
            let none = Copies::none();
            let alone = recovered(&none, &heaps_own, Target::End, schedule, &METHODS[0]).unwrap();
            assert_eq!(pages(&both.heap), pages(&alone.heap), "seed {seed}");
            assert_eq!(both.stats.seen, alone.stats.seen);
            let frames = notes.frames.lock();
            assert_eq!(frames.len(), records.len(), "each once");
            for stream in (0..STREAMS).map(StreamId) {
                let noted = frames.iter().filter(|noted| noted.1.stream == stream);
                let of_stream = records.iter().filter(|kept| kept.origin.stream == stream);
                let in_order = of_stream.map(|kept| (kept.kind, kept.origin, &kept.payload));
                assert!(noted.map(|n| (n.0, n.1, &n.2)).eq(in_order), "{stream}");
            }
        }
        let unplayed = machine.by_streams(Target::End, Schedule::inline(Level::Four, seed));
        let why = unplayed.map(drop).unwrap_err().to_string();
        assert!(why.contains("a frame of kind 6"), "{why}");
    }
}
