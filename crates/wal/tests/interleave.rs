//! Threads that append, close epochs, flush, truncate and read with a cursor. A random search chooses the orders in
//! which the threads run. Run with `--features shuttle,flaws`.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "flaws")]
use perdura_base::flaw::{Flaw, arm};
use perdura_base::{CkptEpoch, Epoch, Error, Gsn, Incarnation, PartitionSet, Pos, StreamId, Uuid};
use perdura_device::{
    Clock, CrashProfile, Disk, FaultPlan, ManualClock, MemDisk, SimDisk, SyncFailure,
};
use perdura_wal::frame::for_each_frame;
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    Check, Direction, FlushProgress, FrameKind, History, LaneId, LogCursor, Rung, Scheme,
    SegmentSizes, StreamScan, Wait, Wal, WalOptions, WalStart, decide_cut, scan_stream,
};
use shuttle::rand::Rng;
use shuttle::sync::Mutex;
use shuttle::thread;

mod interleave {
    mod rungs;
}

const STREAMS: u8 = 2;

fn anchor() -> History {
    let sizes = SegmentSizes::fixed(128 * 1024);
    History {
        clean: false,
        incarnation: Incarnation(1),
        ..History::begin(Uuid([5; 16]), 0, Scheme::Differential, STREAMS, sizes)
    }
}

fn open(disk: &Arc<dyn Disk>) -> Arc<Wal> {
    open_with(disk, WalOptions::default())
}

fn open_with(disk: &Arc<dyn Disk>, options: WalOptions) -> Arc<Wal> {
    let start = WalStart {
        uuid: Uuid([5; 16]),
        incarnation: Incarnation(1),
        start: vec![Pos(0); usize::from(STREAMS)],
        epoch: Epoch(1),
        durable: Epoch(0),
        wall_us: 0,
        gsn: Gsn(0),
        lives: perdura_wal::Lineage::default(),
    };
    let options = WalOptions {
        segments: SegmentSizes::fixed(128 * 1024),
        block_bytes_max: 4096,
        ..options
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
    let disks = vec![Arc::clone(disk); usize::from(STREAMS)];
    Arc::new(Wal::open(&disks, clock, options, start, |_| true).unwrap())
}

/// The writers' appends, each with payload and epoch, in the order in which the writers had the latch.
type Told = Arc<Mutex<Vec<(u8, Epoch)>>>;

/// The writers of [`history`].
#[derive(Clone, Copy)]
struct Writers {
    lanes: usize,
    /// The number of latches. With 1, the two writers share it.
    latches: usize,
    /// The sizes of each writer's groups, bytes.
    groups: &'static [usize],
}

/// Groups that can span blocks.
const DIRECT: Writers = Writers {
    lanes: 1,
    latches: 1,
    groups: &[1500; 3],
};

/// Groups of which two fill a lane, and one group that does not fit in a lane. Each writer has a lane.
const IN_LANES: Writers = Writers {
    lanes: 2,
    latches: 1,
    groups: &[200, 200, 200, 1500, 200, 200],
};

/// Writers of [`IN_LANES`] that do not wait for each other.
const APART: Writers = Writers {
    latches: 2,
    ..IN_LANES
};

/// Writers share latches, so each append depends on the one before it. Along this order of appends, epochs must never
/// decrease. A crash at any moment must keep a prefix of this order that consists of whole epochs.
fn history(writers: Writers) {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    disk.make_dir(LOG_DIR).unwrap();
    let wal = open_with(
        &disk,
        WalOptions {
            lanes: writers.lanes,
            ..WalOptions::default()
        },
    );
    let told: Vec<Told> = (0..writers.latches).map(|_| Told::default()).collect();
    let mut threads = Vec::new();
    for writer in 0..2u8 {
        let told = Arc::clone(&told[usize::from(writer) % writers.latches]);
        let wal = Arc::clone(&wal);
        threads.push(thread::spawn(move || {
            for (i, bytes) in (0u8..).zip(writers.groups) {
                let payload = writer * 16 + i;
                let mut latch = told.lock().unwrap();
                let none = PartitionSet::empty();
                let bytes = vec![payload; *bytes];
                let to = LaneId {
                    stream: StreamId((writer + i) % STREAMS),
                    lane: usize::from(writer),
                };
                let epoch = wal.append_group(to, &[&bytes], &none, CkptEpoch(0));
                latch.push((payload, epoch));
            }
        }));
    }
    for stream in (0..STREAMS).map(StreamId) {
        let wal = Arc::clone(&wal);
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                wal.close_epoch();
                while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
            }
        }));
    }
    if writers.lanes > 1 {
        // The marks of a checkpoint enter the blocks directly.
        let wal = Arc::clone(&wal);
        threads.push(thread::spawn(move || {
            let (_, least) = wal.begin_checkpoint(CkptEpoch(1));
            let (_, newest) = wal.end_checkpoint(CkptEpoch(1));
            assert!(least <= newest && wal.waiting_bytes(Rung::Disk) <= 1 << 20);
        }));
    }
    // A crash during the run is simulated here: the disk's contents are scanned while the other threads continue.
    let durable_before = wal.durable(Rung::Disk);
    let scans: Vec<_> = (0..STREAMS)
        .map(|stream| scan(disk.as_ref(), stream))
        .collect();
    // The streams are scanned one after the other, so a later scan may find more, but every scan must reach D.
    if let Ok(cut) = decide_cut(&anchor(), &scans, None, false) {
        assert!(
            cut.durable >= durable_before,
            "{cut:?} after {durable_before}"
        );
    }
    for thread in threads {
        thread.join().unwrap();
    }
    wal.close_epoch();
    for stream in (0..STREAMS).map(StreamId) {
        while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
    }
    let told: Vec<_> = told
        .iter()
        .map(|told| told.lock().unwrap().clone())
        .collect();
    let newest = told.iter().flatten().map(|(_, epoch)| *epoch).max();
    // The marks may have a newer epoch.
    let durable = Some(wal.durable(Rung::Disk));
    assert!(durable == newest || (writers.lanes > 1 && durable > newest));
    check(disk.as_ref(), &wal, &told);
}

fn scan(disk: &dyn Disk, stream: u8) -> StreamScan {
    let anchor = anchor();
    scan_stream(disk, &anchor.lives(), StreamId(stream), Pos(0), Check::All).unwrap()
}

fn check(disk: &dyn Disk, wal: &Wal, told: &[Vec<(u8, Epoch)>]) {
    for of_latch in told {
        assert!(
            of_latch.is_sorted_by_key(|(_, epoch)| *epoch),
            "a dependent has a smaller epoch: {told:?}"
        );
    }
    let mut scans: Vec<_> = (0..STREAMS).map(|stream| scan(disk, stream)).collect();
    let cut = decide_cut(&anchor(), &scans, None, false).unwrap();
    let durable = wal.durable(Rung::Disk);
    assert!(
        cut.durable >= durable,
        "epoch {durable} was acknowledged, {} is found",
        cut.durable
    );
    let mut found = BTreeMap::new();
    for scan in &mut scans {
        scan.cut_at(cut.cut[usize::from(scan.stream.0)]);
        for unit in scan.units(0) {
            scan.read_unit(unit, Direction::Forward, |frame, block| {
                if frame.kind != FrameKind::Group {
                    return Ok(());
                }
                assert!(frame.payload.iter().all(|b| *b == frame.payload[0]));
                assert_eq!(found.insert(frame.payload[0], block.epoch), None, "once");
                Ok(())
            })
            .unwrap();
        }
    }
    let told = told
        .iter()
        .flatten()
        .filter(|(_, epoch)| *epoch <= cut.durable);
    let expected: BTreeMap<u8, Epoch> = told.copied().collect();
    assert_eq!(
        found, expected,
        "each group in a block of the epoch its writer was told"
    );
}

/// Runs a writer, a flusher, a reader, and a checkpointer that truncates at the reader's position. The cursor must
/// return all appended groups in order, each once.
fn read_while_appending() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    disk.make_dir(LOG_DIR).unwrap();
    let wal = open(&disk);
    let stream = StreamId(0);
    let start = Pos(0);
    let cursor = LogCursor::open(Arc::clone(&disk), &anchor(), stream, start).unwrap();
    let reader = Arc::new(Mutex::new(Reader {
        cursor,
        bytes: Vec::new(),
        groups: Vec::new(),
    }));
    let writer = Arc::clone(&wal);
    let flusher = Arc::clone(&wal);
    let reading = (Arc::clone(&wal), Arc::clone(&reader));
    let truncating = (Arc::clone(&wal), Arc::clone(&reader));
    let threads = [
        thread::spawn(move || {
            for payload in 0..GROUPS {
                let (bytes, none) = (vec![payload; GROUP_BYTES], PartitionSet::empty());
                writer.append(stream, FrameKind::Group, &bytes, &none, CkptEpoch(0));
            }
        }),
        thread::spawn(move || {
            for _ in 0..4 {
                flusher.close_epoch();
                while flusher.flush_step(stream).unwrap() != FlushProgress::Idle {}
            }
        }),
        thread::spawn(move || {
            for _ in 0..6 {
                reading.1.lock().unwrap().read(&reading.0);
                thread::yield_now();
            }
        }),
        thread::spawn(move || {
            for _ in 0..4 {
                let at = truncating.1.lock().unwrap().cursor.at();
                truncating.0.truncate(&[at, Pos(0)]).unwrap();
                thread::yield_now();
            }
        }),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
    wal.close_epoch();
    for stream in (0..STREAMS).map(StreamId) {
        while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
    }
    let mut reader = reader.lock().unwrap();
    reader.read(&wal);
    assert_eq!(reader.groups, (0..GROUPS).collect::<Vec<u8>>());
}

const GROUPS: u8 = 9;
/// The length of a group. Nine groups fill the first segment and begin the second.
const GROUP_BYTES: usize = 16_000;

struct Reader {
    cursor: LogCursor,
    /// The bytes read after the last whole frame. They are the beginning of the next frame.
    bytes: Vec<u8>,
    groups: Vec<u8>,
}

impl Reader {
    fn read(&mut self, wal: &Wal) {
        let durable = wal.durable_end(Rung::Disk);
        while let Some(block) = self.cursor.read(&durable).unwrap() {
            assert!(block.header.epoch <= durable.epoch);
            self.bytes.extend_from_slice(block.body());
            let groups = &mut self.groups;
            let end = for_each_frame(&self.bytes, Direction::Forward, |frame| {
                assert!(frame.payload.iter().all(|b| *b == frame.payload[0]));
                assert_eq!(frame.payload.len(), GROUP_BYTES);
                groups.push(frame.payload[0]);
                Ok::<_, Error>(())
            });
            self.bytes.drain(..end.unwrap());
        }
    }
}

/// The way in which loops write the log.
#[derive(Clone, Copy)]
enum Writes {
    /// A loop begins writes and collects completed writes, but never waits for a write.
    Begun,
    /// A loop executes each write itself, beside other writes.
    InPlace,
}

/// Runs threads on one log. The loops append, close epochs and write. The flusher does the remaining work. The housekeeper places segments. Writes complete out of order.
/// Then the power is cut, and the disk must have all epochs up to the durable epoch.
fn loops_and_flusher(loops: u8, writes: Writes) {
    let machine = SimDisk::new(shuttle::rand::thread_rng().gen_range(1..1000));
    let life: Arc<dyn Disk> = machine.life();
    life.make_dir(LOG_DIR).unwrap();
    let wal = open(&life);
    let told: Told = Arc::new(Mutex::new(Vec::new()));
    let stream = StreamId(0);
    let (flushing, placing) = (Arc::clone(&wal), Arc::clone(&wal));
    let serve = |at: u8| {
        let (wal, told) = (Arc::clone(&wal), Arc::clone(&told));
        thread::spawn(move || {
            for payload in (at..GROUPS).step_by(usize::from(loops)) {
                let (bytes, none) = (vec![payload; GROUP_BYTES], PartitionSet::empty());
                {
                    // Groups of all loops depend on each other, as under one latch.
                    let mut told = told.lock().unwrap();
                    let at = wal.append(stream, FrameKind::Group, &bytes, &none, CkptEpoch(0));
                    told.push((payload, at.epoch));
                }
                wal.close_epoch();
                match writes {
                    Writes::Begun => {
                        wal.begin_if_placed(stream).unwrap();
                        wal.flush_end(stream, Wait::No).unwrap();
                    }
                    Writes::InPlace => {
                        wal.flush_in_place(stream, 3, || ()).unwrap();
                    }
                }
            }
        })
    };
    let mut threads: Vec<_> = (0..loops).map(serve).collect();
    threads.extend([
        thread::spawn(move || {
            for step in 0..8 {
                match step % 2 {
                    0 => flushing.flush_begin(stream).map(drop).unwrap(),
                    _ => flushing.flush_end(stream, Wait::ForOne).map(drop).unwrap(),
                }
                while flushing.flush_step(StreamId(1)).unwrap() != FlushProgress::Idle {}
            }
        }),
        thread::spawn(move || {
            for _ in 0..4 {
                placing.prepare_segment(stream, &|| ()).unwrap();
                placing.place_ahead(stream).unwrap();
                thread::yield_now();
            }
        }),
    ]);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(wal.evidenced() <= wal.durable(Rung::Disk));
    machine.crash(CrashProfile::Worst, 1);
    let told = told.lock().unwrap().clone();
    check(machine.life().as_ref(), &wal, &[told]);
}

/// Two threads take the steps of one stream while the first sync fails. The second thread's sync would succeed but
/// would prove nothing.
fn sync_that_fails() {
    let disk = SimDisk::new(1);
    let life: Arc<dyn Disk> = disk.life();
    life.make_dir(LOG_DIR).unwrap();
    let wal = open(&life);
    let none = PartitionSet::empty();
    let append = |payload: &[u8]| {
        wal.append(StreamId(0), FrameKind::Group, payload, &none, CkptEpoch(0));
        wal.close_epoch();
    };
    append(b"kept, and the segment has its file");
    while wal.flush_step(StreamId(0)).unwrap() != FlushProgress::Idle {}
    let synced = wal.synced(StreamId(0));
    append(b"lost");
    disk.set_plan(FaultPlan {
        fail_sync_at: Some((1, SyncFailure::KeepsNew)),
        ..FaultPlan::default()
    });
    let threads = [0, 1].map(|_| {
        let wal = Arc::clone(&wal);
        thread::spawn(move || {
            while matches!(wal.flush_step(StreamId(0)), Ok(step) if step != FlushProgress::Idle) {}
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(wal.failure().is_some());
    assert_eq!(wal.synced(StreamId(0)), synced);
}

/// Writers append numbered operations while other threads close and flush epochs. A thread reads EOSL, the number of
/// the last durable operation, and then D, the durable epoch. Each operation up to EOSL must be in an epoch up to D.
fn numbers() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    disk.make_dir(LOG_DIR).unwrap();
    let wal = open(&disk);
    let told: Arc<Mutex<Vec<(Gsn, Epoch)>>> = Arc::new(Mutex::new(Vec::new()));
    let read: Arc<Mutex<Vec<(Gsn, Epoch)>>> = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for writer in 0..2u8 {
        let (wal, told) = (Arc::clone(&wal), Arc::clone(&told));
        threads.push(thread::spawn(move || {
            for i in 0..3u8 {
                let none = PartitionSet::empty();
                let stream = StreamId((writer + i) % STREAMS);
                let count = u64::from(i) + 1;
                let frame = (FrameKind::Group, count);
                let (at, first) =
                    wal.append_numbered(stream, frame, (&none, CkptEpoch(0)), |first| {
                        first.0.to_le_bytes().to_vec()
                    });
                let mut told = told.lock().unwrap();
                told.extend((first.0..first.0 + count).map(|gsn| (Gsn(gsn), at.epoch)));
            }
        }));
    }
    for stream in (0..STREAMS).map(StreamId) {
        let (wal, read) = (Arc::clone(&wal), Arc::clone(&read));
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                wal.close_epoch();
                while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
                let eosl = wal.eosl(Rung::Disk);
                read.lock().unwrap().push((eosl, wal.durable(Rung::Disk)));
            }
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let mut told = told.lock().unwrap().clone();
    for (eosl, durable) in read.lock().unwrap().iter() {
        let beyond = told
            .iter()
            .find(|(gsn, epoch)| gsn <= eosl && epoch > durable);
        assert_eq!(beyond, None, "EOSL {eosl} when D was {durable}");
    }
    told.sort_unstable();
    let dense = (1..).zip(&told).all(|(number, (gsn, _))| gsn.0 == number);
    assert!(dense, "each number once: {told:?}");
    // A restart must continue with higher numbers.
    wal.close_epoch();
    for stream in (0..STREAMS).map(StreamId) {
        while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
    }
    assert_eq!(wal.eosl(Rung::Disk), wal.last_gsn());
    let scans: Vec<_> = (0..STREAMS)
        .map(|stream| scan(disk.as_ref(), stream))
        .collect();
    let cut = decide_cut(&anchor(), &scans, None, false).unwrap();
    assert_eq!(cut.gsn_max, wal.last_gsn());
}

#[test]
fn every_operation_up_to_eosl_is_durable_under_random_schedules() {
    shuttle::check_random(numbers, 3000);
}

#[test]
fn every_operation_up_to_eosl_is_durable_under_preempting_schedules() {
    shuttle::check_pct(numbers, 2000, 3);
}

#[cfg(feature = "flaws")]
#[test]
fn a_number_that_is_taken_before_the_epoch_is_read_shows() {
    let flawed = || {
        arm(Some(Flaw::NumberBeforeEpoch));
        numbers();
    };
    let ran = std::panic::catch_unwind(|| shuttle::check_random(flawed, 3000));
    arm(None);
    assert!(
        ran.is_err(),
        "EOSL never covers an operation that is not durable"
    );
}

#[test]
fn a_failed_sync_is_final_for_every_thread_that_flushes_the_stream() {
    shuttle::check_random(sync_that_fails, 2000);
}

#[test]
fn a_cursor_returns_each_durable_group_once_under_random_schedules() {
    shuttle::check_random(read_while_appending, 1000);
}

#[test]
fn a_cursor_returns_each_durable_group_once_under_preempting_schedules() {
    shuttle::check_pct(read_while_appending, 700, 3);
}

#[test]
fn epochs_are_pure_complete_and_in_dependency_order_under_random_schedules() {
    shuttle::check_random(|| history(DIRECT), 3000);
}

#[test]
fn epochs_are_pure_complete_and_in_dependency_order_under_preempting_schedules() {
    shuttle::check_pct(|| history(DIRECT), 2000, 3);
}

#[test]
fn lanes_keep_epochs_pure_and_complete_under_random_schedules() {
    shuttle::check_random(|| history(IN_LANES), 2000);
    shuttle::check_random(|| history(APART), 2000);
}

#[test]
fn lanes_keep_epochs_pure_and_complete_under_preempting_schedules() {
    shuttle::check_pct(|| history(IN_LANES), 1500, 3);
    shuttle::check_pct(|| history(APART), 1500, 3);
}

#[cfg(feature = "flaws")]
#[test]
fn mistakes_with_lanes_show() {
    for flaw in [Flaw::LaneLeftFull, Flaw::LaneOfTwoEpochs] {
        let flawed = move || {
            arm(Some(flaw));
            history(APART);
        };
        let ran = std::panic::catch_unwind(|| shuttle::check_random(flawed, 3000));
        arm(None);
        assert!(ran.is_err(), "{flaw:?} is noticed");
    }
}

#[test]
fn what_a_loop_and_a_flusher_made_durable_survives_under_random_schedules() {
    shuttle::check_random(|| loops_and_flusher(1, Writes::Begun), 1500);
}

#[test]
fn what_a_loop_and_a_flusher_made_durable_survives_under_preempting_schedules() {
    shuttle::check_pct(|| loops_and_flusher(1, Writes::Begun), 1000, 3);
}

#[test]
fn what_two_loops_and_a_flusher_made_durable_survives_under_random_schedules() {
    shuttle::check_random(|| loops_and_flusher(2, Writes::Begun), 1500);
}

#[test]
fn what_two_loops_and_a_flusher_made_durable_survives_under_preempting_schedules() {
    shuttle::check_pct(|| loops_and_flusher(2, Writes::Begun), 1000, 3);
}

#[test]
fn what_threads_wrote_themselves_side_by_side_survives_under_random_schedules() {
    shuttle::check_random(|| loops_and_flusher(3, Writes::InPlace), 1500);
}

#[test]
fn what_threads_wrote_themselves_side_by_side_survives_under_preempting_schedules() {
    shuttle::check_pct(|| loops_and_flusher(3, Writes::InPlace), 1000, 3);
}
