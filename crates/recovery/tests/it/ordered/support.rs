//! A database made by hand, and a player that records all played frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::{CkptEpoch, Error, PartitionId, PartitionSet, Result, StreamId, TableId, Uuid};
use perdura_device::{Disk, ManualClock, MemDisk};
use perdura_formats::ordered::{At, CommandFrame, Effect, Op, Part, encode_command, encode_head};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_recovery::indexing::NoTables;
use perdura_recovery::{
    Catalog, Disks, Family, Level, Life, METHODS, NewDatabase, OrderedFrame, OrderedPlayer,
    Progress, RestartOptions, Restarted, Schedule, create, restart,
};
use perdura_wal::{FrameKind, Origin, Scheme, SegmentSizes, Wal};

use crate::made::life;

pub const STREAMS: u8 = 3;
pub const PARTITIONS: u16 = 8;

pub struct Machine {
    pub disk: Arc<dyn Disk>,
}

impl Machine {
    pub fn new() -> Machine {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let new = NewDatabase {
            uuid: Uuid([3; 16]),
            geometry: Geometry {
                partitions: PARTITIONS,
                chunk_pages: 2,
                hash_seed: 1,
            },
            streams: STREAMS,
            segments: SegmentSizes::fixed(256 << 10),
            scheme: Scheme::Differential,
        };
        let disks = Disks::on_one(Arc::clone(&disk), usize::from(STREAMS));
        create(&disks, &ManualClock::at(1), &new, None).unwrap();
        Machine { disk }
    }

    pub fn options(&self, ordered: Option<Arc<dyn OrderedPlayer>>) -> RestartOptions {
        RestartOptions {
            life: perdura_base::LifeId(0),
            disks: Disks::on_one(Arc::clone(&self.disk), usize::from(STREAMS)),
            clock: Arc::new(ManualClock::at(1)),
            schedule: Schedule::inline(Level::Four, 0),
            methods: (&METHODS[0]).into(),
            tree: perdura_recovery::tree::TreeMeans::default(),
            ordered,
            archived: None,
            mode: perdura_recovery::RestartMode::Dry,
            tail: Default::default(),
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(NoTables),
            progress: Arc::new(Progress::default()),
        }
    }

    /// Opens the next life. Its restart plays the log.
    pub fn open(&self) -> Life {
        let options = RestartOptions {
            mode: perdura_recovery::RestartMode::Real,
            ..self.options(Some(Recorder::new()))
        };
        let restarted = restart(&options).unwrap().expect("it was made");
        life(restarted, &options)
    }

    /// Opens a life and declares the two families.
    pub fn declared(&self) -> Life {
        let life = self.open();
        for family in Family::ALL {
            life.anchor.declare(&life.wal, family).unwrap();
        }
        life
    }

    /// Runs a restart that changes nothing on the disk. Returns the recorder of the played frames, and the restarted
    /// database.
    pub fn back(&self, schedule: Schedule) -> Result<(Arc<Recorder>, Restarted)> {
        let recorder = Recorder::new();
        let options = RestartOptions {
            schedule,
            ..self.options(Some(Arc::clone(&recorder) as Arc<dyn OrderedPlayer>))
        };
        Ok((recorder, restart(&options)?.expect("it was made")))
    }

    pub fn refused(&self) -> String {
        let back = self.back(Schedule::inline(Level::One, 0));
        let error = back.map(drop).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        error.to_string()
    }
}

pub fn schedules() -> Vec<Schedule> {
    let inline = (0..6).map(|seed| Schedule::inline(Level::Four, seed));
    let threads = (1..=4).map(|threads| Schedule::new(Level::Four, threads));
    let slow = Level::ALL.map(|level| Schedule::new(level, 2));
    inline.chain(threads).chain(slow).collect()
}

/// A player that records the frames it is called with. It also records violations: frames of one partition that are
/// played simultaneously or out of order.
pub struct Recorder {
    heap: Mutex<Option<Arc<Heap>>>,
    pub played: Mutex<Vec<Played>>,
    busy: Vec<AtomicBool>,
    newest: Vec<AtomicU64>,
    pub violations: Mutex<Vec<String>>,
    begun: AtomicU64,
    finished: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Played {
    pub parts: Vec<Part>,
    pub what: String,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    pub fn new() -> Arc<Recorder> {
        let each = || (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Recorder {
            heap: Mutex::default(),
            played: Mutex::default(),
            busy: (0..PARTITIONS).map(|_| AtomicBool::new(false)).collect(),
            newest: each(),
            violations: Mutex::default(),
            begun: AtomicU64::new(0),
            finished: AtomicU64::new(0),
        })
    }

    fn violated(&self, what: String) {
        self.violations.lock().push(what);
    }

    /// Returns all frames that were played, sorted. Fails if the recorder has recorded a violation.
    pub fn all(&self) -> Vec<Played> {
        assert_eq!(*self.violations.lock(), Vec::<String>::new());
        assert_eq!(self.begun.load(Ordering::Relaxed), 1);
        assert_eq!(self.finished.load(Ordering::Relaxed), 1);
        let mut all = self.played.lock().clone();
        all.sort();
        all
    }
}

impl OrderedPlayer for Recorder {
    fn begin(&self, heap: &Arc<Heap>, _: &Catalog, _: CkptEpoch) -> Result<()> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        *self.heap.lock() = Some(Arc::clone(heap));
        Ok(())
    }

    fn play(&self, frame: &OrderedFrame<'_>, origin: &Origin) -> Result<()> {
        let what = match frame.family {
            Family::Commands => {
                let command = frame.command().unwrap();
                if command.args == b"fails" {
                    return Err(Error::Stopped(format!("it fails at {}", origin.pos)));
                }
                assert_ne!(command.args, b"panics", "as it is told");
                String::from_utf8(command.args.to_vec()).unwrap()
            }
            Family::Effects => {
                let effects = frame.effects().map(|effect| effect.unwrap().key.to_vec());
                String::from_utf8(effects.collect::<Vec<_>>().concat()).unwrap()
            }
        };
        for (partition, pseq) in frame.parts() {
            let at = usize::from(partition.0);
            if self.busy[at].swap(true, Ordering::SeqCst) {
                self.violated(format!("partition {partition} is busy at {pseq}"));
            }
            let before = self.newest[at].swap(*pseq, Ordering::SeqCst);
            if before + 1 != *pseq {
                self.violated(format!("partition {partition}: {pseq} after {before}"));
            }
        }
        std::thread::yield_now();
        let heap = self.heap.lock().clone().expect("it has begun");
        for (partition, pseq) in frame.parts() {
            let mut part = heap.lock(*partition);
            let pseq = part.pseq().max(*pseq);
            part.set_pseq(pseq);
            self.busy[usize::from(partition.0)].store(false, Ordering::SeqCst);
        }
        self.played.lock().push(Played {
            parts: frame.parts().to_vec(),
            what,
        });
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

pub fn part(partition: u16, pseq: u64) -> Part {
    (PartitionId(partition), pseq)
}

pub fn command(wal: &Wal, stream: u8, parts: &[Part], args: &str) {
    let mut payload = Vec::new();
    let frame = CommandFrame {
        procedure: 77,
        time_ms: 1,
        args: args.as_bytes(),
        effects_hash: None,
    };
    encode_command(&mut payload, parts, &frame);
    append(wal, stream, FrameKind::Command, &payload, parts);
}

pub fn effects(wal: &Wal, stream: u8, parts: &[Part], key: &str) {
    let mut payload = Vec::new();
    encode_head(&mut payload, parts, false);
    let effect = Effect {
        table: TableId(9),
        at: At::All,
        op: Op::Delete,
        key: key.as_bytes(),
    };
    effect.encode(&mut payload, parts.len());
    append(wal, stream, FrameKind::Effects, &payload, parts);
}

pub fn append(wal: &Wal, stream: u8, kind: FrameKind, payload: &[u8], parts: &[Part]) {
    let touched: PartitionSet = parts.iter().map(|(partition, _)| *partition).collect();
    wal.append(StreamId(stream), kind, payload, &touched, CkptEpoch(0));
}
