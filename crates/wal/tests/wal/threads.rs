//! Cursors that read while the threads of a log run: writers, a flusher for each stream, and a checkpointer that
//! truncates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;
use perdura_base::{CkptEpoch, Epoch, Error, Gsn, PartitionSet, Pos, StreamId};
use perdura_device::{Clock, Disk, ManualClock, MemDisk};
use perdura_wal::frame::for_each_frame;
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    Direction, FlushProgress, FrameKind, History, LogCursor, Rung, Wal, WalOptions, WalStart,
};

use crate::setup::anchor;

const STREAMS: u8 = 2;
const WRITERS: u8 = 3;
const GROUPS_EACH: u32 = 300;

type Groups = Vec<(Epoch, Vec<u8>)>;

/// The state that all threads share.
struct World {
    wal: Wal,
    disk: Arc<dyn Disk>,
    history: History,
    /// The groups appended to each stream, in order. The lock is held during the append.
    appended: Vec<Mutex<Groups>>,
    /// For each stream, the position of a cursor. The checkpointer keeps the log from there on.
    kept_from: Vec<AtomicU64>,
    writers_done: AtomicU64,
    /// True once everything appended is durable, or a thread has panicked.
    over: AtomicBool,
}

/// A guard that ends all threads' loops if the guard's thread panics.
struct EndsAll<'a>(&'a World);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.over.store(true, Ordering::SeqCst);
        }
    }
}

impl World {
    fn new() -> World {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        disk.make_dir(LOG_DIR).unwrap();
        let history = anchor(STREAMS);
        let start = WalStart {
            uuid: history.uuid,
            incarnation: history.incarnation,
            start: history.open_start(),
            epoch: Epoch(1),
            durable: Epoch(0),
            wall_us: 0,
            gsn: Gsn(0),
            lives: perdura_wal::Lineage::default(),
        };
        let options = WalOptions {
            segments: history.segments,
            block_bytes_max: 8192,
            ..WalOptions::default()
        };
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
        let disks = vec![Arc::clone(&disk); usize::from(STREAMS)];
        World {
            wal: Wal::open(&disks, clock, options, start, |_| true).unwrap(),
            disk,
            history,
            appended: (0..STREAMS).map(|_| Mutex::default()).collect(),
            kept_from: (0..STREAMS).map(|_| AtomicU64::new(0)).collect(),
            writers_done: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn cursor(&self, stream: u8, at: Pos) -> LogCursor {
        LogCursor::open(Arc::clone(&self.disk), &self.history, StreamId(stream), at).unwrap()
    }

    fn write(&self, writer: u8) {
        let _ends_all = EndsAll(self);
        let mut rng = fastrand::Rng::with_seed(u64::from(writer));
        for _ in 0..GROUPS_EACH {
            let stream = rng.u8(0..STREAMS);
            let payload = vec![rng.u8(..); rng.usize(0..6000)];
            while self.wal.admit(StreamId(stream), payload.len()).is_err() {
                assert!(!self.is_over(), "another thread has panicked");
                thread::yield_now();
            }
            let mut order = self.appended[usize::from(stream)].lock();
            let none = PartitionSet::empty();
            let to = StreamId(stream);
            let done = (self.wal).append(to, FrameKind::Group, &payload, &none, CkptEpoch(0));
            order.push((done.epoch, payload));
        }
        self.writers_done.fetch_add(1, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn flush(&self, stream: u8) {
        let _ends_all = EndsAll(self);
        while !self.is_over() {
            let last = self.writers_done.load(Ordering::SeqCst) == u64::from(WRITERS);
            self.wal.close_epoch();
            while self.wal.flush_step(StreamId(stream)).unwrap() != FlushProgress::Idle {}
            if last && self.wal.is_idle() {
                self.over.store(true, Ordering::SeqCst);
            }
            thread::yield_now();
        }
    }

    /// Truncates each stream up to its `kept_from`. Returns the number of segments freed.
    fn truncate(&self) -> usize {
        let kept = self.kept_from.iter();
        let floor: Vec<Pos> = kept.map(|at| Pos(at.load(Ordering::SeqCst))).collect();
        self.wal.truncate(&floor).unwrap()
    }

    fn checkpoint(&self) -> usize {
        let _ends_all = EndsAll(self);
        let mut freed = 0;
        while !self.is_over() {
            freed += self.truncate();
            thread::yield_now();
        }
        freed
    }

    /// Reads until everything durable has been read and the run is over. Returns the groups.
    fn read_all(&self, stream: u8) -> Groups {
        let (mut cursor, mut bytes, mut groups) =
            (self.cursor(stream, Pos(0)), Vec::new(), Vec::new());
        loop {
            let last = self.is_over();
            let durable = self.wal.durable_end(Rung::Disk);
            while let Some(block) = cursor.read(&durable).unwrap() {
                let epoch = block.header.epoch;
                assert!(
                    epoch <= durable.epoch,
                    "{epoch} is beyond {}",
                    durable.epoch
                );
                bytes.extend_from_slice(block.body());
                let end = for_each_frame(&bytes, Direction::Forward, |frame| {
                    groups.push((epoch, frame.payload.to_vec()));
                    Ok::<_, Error>(())
                });
                bytes.drain(..end.unwrap());
                let at = cursor.at().0;
                self.kept_from[usize::from(stream)].store(at, Ordering::SeqCst);
            }
            if last {
                return groups;
            }
            thread::yield_now();
        }
    }

    /// Reads a stream without holding back truncation. When the log has been truncated at the cursor's position, begins
    /// again at the oldest position that may still exist.
    fn lag_behind(&self, stream: u8) {
        let kept = || Pos(self.kept_from[usize::from(stream)].load(Ordering::SeqCst));
        let mut cursor = self.cursor(stream, Pos(0));
        while !self.is_over() {
            let durable = self.wal.durable_end(Rung::Disk);
            let at = cursor.at();
            match cursor.read(&durable) {
                Ok(Some(block)) => {
                    assert_eq!((block.header.pos, block.header.stream.0), (at, stream));
                    assert!(block.header.epoch <= durable.epoch);
                }
                Ok(None) => {}
                Err(Error::Truncated { wanted, .. }) => {
                    assert_eq!((wanted, cursor.at()), (at, at));
                    assert!(at < kept(), "{at} is kept");
                    cursor = self.cursor(stream, kept());
                }
                Err(error) => panic!("{error}"),
            }
            thread::yield_now();
        }
    }
}

#[test]
fn cursors_beside_writers_flushers_and_truncation_return_every_durable_group_once() {
    let world = &World::new();
    let freed = thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || world.write(writer));
        }
        let checkpointer = scope.spawn(|| world.checkpoint());
        for stream in 0..STREAMS {
            scope.spawn(move || world.flush(stream));
            scope.spawn(move || world.lag_behind(stream));
        }
        let readers: Vec<_> = (0..STREAMS)
            .map(|stream| scope.spawn(move || world.read_all(stream)))
            .collect();
        for (reader, appended) in readers.into_iter().zip(&world.appended) {
            let read = reader.join().unwrap();
            let appended = appended.lock();
            assert_eq!(read.len(), appended.len());
            assert!(read == *appended, "other groups, or another order");
        }
        checkpointer.join().unwrap() + world.truncate()
    });
    assert!(freed > 0, "nothing was truncated");
}

#[test]
#[should_panic(expected = "the log is cut at")]
fn the_log_is_never_cut_ahead_of_what_is_durable() {
    let world = World::new();
    let none = PartitionSet::empty();
    let payload = [7; 100];
    (world.wal).append(StreamId(0), FrameKind::Group, &payload, &none, CkptEpoch(0));
    drop(world.wal.truncate(&[Pos(4096), Pos(0)]));
}
