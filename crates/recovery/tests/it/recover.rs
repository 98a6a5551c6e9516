//! Tests `recover` with implementations of an image and a log source that only this file has. Both are in memory. The
//! image is the state of an epoch. The log has its records in another order than the product's streams. The recovered
//! state must equal the state recovered from the product's streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perdura_base::{
    CkptEpoch, Epoch, Incarnation, PageId, PartitionSet, Result, StreamId, Useq, Uuid,
};
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_recovery::Disks;
use perdura_recovery::base::{Base, Image};
use perdura_recovery::claims::Claims;
use perdura_recovery::plan::plan_image;
use perdura_recovery::player::PagePlayer;
use perdura_recovery::recover::{Means, State, recover};
use perdura_recovery::rule::ImageKind;
use perdura_recovery::source::{Frames, LogEnd, LogSource, Raw};
use perdura_recovery::streams::Streams;
use perdura_recovery::window::ExecutorWindow;
use perdura_recovery::{
    Level, Life, LogMemory, METHODS, NewDatabase, Progress, RestartOptions, Schedule, create,
    flush_all, read_anchor, restart,
};
use perdura_wal::{Direction, Frame, FrameKind, Origin, Rung, Scheme, SegmentSizes};

const STREAMS: u8 = 2;
const PAGES: u32 = 4;
const GEOMETRY: Geometry = Geometry {
    partitions: 2,
    chunk_pages: 2,
    hash_seed: 1,
};

/// A frame read from a log.
#[derive(Clone)]
struct Kept {
    kind: FrameKind,
    payload: Vec<u8>,
    origin: Origin,
}

/// A log source with its frames in memory. It divides the frames into parts and units without regard to their streams.
struct Archive {
    parts: Vec<Vec<Shelf>>,
    end: Epoch,
}

/// A unit of an [`Archive`].
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

/// Returns the contents of the pages. They lack update numbers, which a restart assigns only at its end.
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

/// A database in memory. The tests recover from its log.
struct Machine {
    disks: Disks,
}

impl Machine {
    /// Makes a database with some epochs of random changes, in two lives.
    fn new(seed: u64) -> Machine {
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
        create(&machine.disks, &clock, &new, None).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut useq = [0; PAGES as usize];
        for _ in 0..2 {
            machine.live(&mut rng, &mut useq);
        }
        machine
    }

    /// Runs a life of the database. The pages have no class, so no index contains their rows.
    fn live(&self, rng: &mut fastrand::Rng, useq: &mut [u32]) {
        let options = RestartOptions::of_records(
            self.disks.clone(),
            Arc::new(ManualClock::at(1)),
            Schedule::inline(Level::Two, 0),
            &METHODS[0],
        );
        let restarted = restart(&options).unwrap().unwrap();
        let memory = LogMemory {
            block_bytes_max: 4096,
            queue_bytes_max: 1 << 20,
            lanes: 1,
            mirror: None,
        };
        let window = Arc::<ExecutorWindow>::default();
        let wal = Life::begin(restarted, &options, memory, window)
            .unwrap()
            .wal;
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
            flush_all(&wal).unwrap();
        }
        assert!(wal.durable(Rung::Disk) > Epoch(0));
    }

    /// Recovers the state from the streams, with the product's log source.
    fn by_streams(&self, schedule: Schedule) -> Result<State> {
        let anchor = read_anchor(self.disks.data.as_ref()).unwrap().unwrap();
        let Disks { data, images, .. } = &self.disks;
        let (none, data) = (BTreeSet::new(), data.as_ref());
        let plan = plan_image(&GEOMETRY, data, images, &anchor, &none, &BTreeSet::new()).unwrap();
        let streams = Streams::new(&self.disks.logs, &anchor, &plan.begin);
        recovered(&plan, &streams, schedule)
    }

    /// Returns every frame of the log up to its end, and the durable epoch.
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

/// Returns a group with one change of a page.
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

fn recovered<I: Image, S: LogSource>(image: &I, log: &S, schedule: Schedule) -> Result<State> {
    let means = Means {
        geometry: GEOMETRY,
        memory: &Arc::new(MemoryAccount::new(u64::MAX)),
        records: PagePlayer::Group(Direction::Forward),
        later: Claims::default(),
        schedule: &schedule,
        clock: &ManualClock::at(1),
        progress: &Progress::default(),
        indexing: None,
    };
    recover(image, log, &means)
}

/// Returns an archive of the frames in `kept`, divided at random into parts. Within each life the frames are in random
/// order. Each unit holds frames of one life.
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
            let ours = machine.by_streams(schedule).unwrap();
            let theirs = recovered(&Copies::none(), &log, schedule).unwrap();
            assert_eq!(pages(&ours.heap), pages(&theirs.heap), "seed {seed}");
            assert_eq!(ours.stats.applied, theirs.stats.applied);
            assert!(ours.stats.applied > 0);
        }
    }
}
