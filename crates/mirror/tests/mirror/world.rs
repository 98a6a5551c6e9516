//! A simulated world of writers, nodes and an arbiter, over a model of a log. The model has the log's bytes and knows
//! which are synced.
//!
//! The oracle: the next life begins with all acknowledged bytes of each stream. If the writer and the two nodes of the
//! stream's mirror are lost, the takeover must report the loss instead. A replaced writer acknowledges only bytes that
//! the next life has. Some bytes are acknowledged because the mirror's members hold the bytes. At each step, each
//! running member holds all these bytes.

mod damage;
mod members;
mod rig;
mod takeover;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use perdura_base::{Epoch, Error, Pos, Result, StreamId, Uuid};
use perdura_mirror::sim::{Mood, SimNet, SimRegister, Way};
use perdura_mirror::{Key, Log, Machine, Managed, Mirror, NodeInc};
use perdura_wal::Sealed;

const UUID: Uuid = Uuid([5; 16]);
const MS: u64 = 1_000_000;
const BLOCK: usize = 64;
const TAIL: u64 = 16 * 64;
const LEASE: u64 = 300 * MS;

/// The disk of a writer's log, and the writer's knowledge about the disk.
#[derive(Default)]
struct Disk {
    /// For each stream, the position after the last written byte. `synced` has the positions after the last synced
    /// bytes. `raised` has the positions up to which the mirror permits acknowledgements.
    written: Vec<u64>,
    synced: Vec<u64>,
    raised: Vec<u64>,
    /// For each stream, the end of the bytes that the log acknowledged as soon as they were synced.
    followed: Vec<u64>,
    follows: bool,
    wants_copy: bool,
    fenced: bool,
}

impl Disk {
    /// Syncs a stream up to position `end`.
    fn sync(&mut self, stream: usize, end: u64) {
        self.synced[stream] = end;
        if self.follows {
            self.followed[stream] = self.followed[stream].max(end);
        }
    }

    /// Returns for each stream the end of the acknowledged bytes.
    fn acked(&self) -> Vec<u64> {
        let both = self.raised.iter().zip(&self.followed);
        both.map(|(raised, followed)| *raised.max(followed))
            .collect()
    }
}

pub struct ModelLog {
    disk: Mutex<Disk>,
    /// The time that the mirror reads from its clock.
    now_ns: AtomicU64,
    anchor: Arc<Mutex<Anchor>>,
    /// The number of updates, from the next one on, that the anchor stores but reports as failed.
    pub anchor_failures: AtomicU32,
    life: u32,
}

/// The contents of the durable anchor.
#[derive(Default)]
struct Anchor {
    mirrored: bool,
    life: u32,
}

impl ModelLog {
    /// Makes the log of a life. The streams begin with `lens` bytes, which are all on disk.
    fn new(lens: Vec<u64>, anchor: Arc<Mutex<Anchor>>, life: u32) -> ModelLog {
        ModelLog {
            disk: Mutex::new(Disk {
                written: lens.clone(),
                synced: lens.clone(),
                raised: lens.clone(),
                followed: lens,
                follows: true,
                wants_copy: false,
                fenced: false,
            }),
            now_ns: AtomicU64::new(0),
            anchor,
            anchor_failures: AtomicU32::new(0),
            life,
        }
    }
}

impl ModelLog {
    /// Returns whether the anchor permits the acknowledgement of bytes that only nodes hold.
    pub fn is_anchored(&self) -> bool {
        self.anchor.lock().mirrored
    }
}

impl Log for ModelLog {
    fn synced(&self, stream: StreamId) -> Pos {
        Pos(self.disk.lock().synced[usize::from(stream.0)])
    }

    fn raise(&self, stream: StreamId, end: Pos) {
        let mut disk = self.disk.lock();
        let raised = &mut disk.raised[usize::from(stream.0)];
        assert!(*raised < end.0, "acknowledgements only rise");
        *raised = end.0;
    }

    fn follow_disk(&self, follows: bool) {
        let mut disk = self.disk.lock();
        disk.follows = follows;
        for stream in 0..disk.synced.len() {
            let synced = disk.synced[stream];
            disk.sync(stream, synced);
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn want_copy(&self) {
        self.disk.lock().wants_copy = true;
    }

    fn durable(&self) -> Epoch {
        Epoch(0)
    }

    fn fence(&self, _why: &str) {
        self.disk.lock().fenced = true;
    }

    fn anchor(&self, mirrored: bool) -> Result<()> {
        let mut anchor = self.anchor.lock();
        if anchor.life != self.life {
            return Err(Error::Fenced("a later life".into()));
        }
        anchor.mirrored = mirrored;
        let one_less = |left: u32| left.checked_sub(1);
        let failures = &self.anchor_failures;
        match failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) {
            Ok(_) => Err(Error::Stopped("the disk is full".into())),
            Err(_none_left) => Ok(()),
        }
    }
}

/// The state of the log after a crash.
struct Fallen {
    /// For each stream, the number of bytes that are on disk.
    on_disk: Vec<usize>,
    /// For each stream, the number of bytes that were acknowledged.
    raised: Vec<u64>,
    /// For each stream, all bytes that were ever shipped.
    shipped: Vec<Vec<u8>>,
}

/// A running writer.
struct Writer {
    id: u32,
    mirror: Mirror,
    log: Arc<ModelLog>,
    /// For each stream, all shipped bytes from position 0 on.
    shipped: Vec<Vec<u8>>,
    is_stopping: bool,
}

impl Writer {
    fn pump(&self, now_ns: u64) {
        self.log.now_ns.store(now_ns, Ordering::SeqCst);
        self.mirror.pump(self.log.as_ref(), now_ns);
    }
}

pub use rig::Rig;

/// Counts of what has happened in a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub lives: u64,
    pub drained: u64,
    pub mirrored: u64,
    pub ahead: u64,
    pub losses: u64,
    pub views: u64,
    pub deposed: u64,
    pub stops: u64,
    pub frames: u64,
    pub damaged: u64,
    pub leases_over: u64,
}

impl Seen {
    pub fn add(&mut self, more: &Seen) {
        self.lives += more.lives;
        self.drained += more.drained;
        self.mirrored += more.mirrored;
        self.ahead += more.ahead;
        self.losses += more.losses;
        self.views += more.views;
        self.deposed += more.deposed;
        self.stops += more.stops;
        self.frames += more.frames;
        self.damaged += more.damaged;
        self.leases_over += more.leases_over;
    }
}

pub struct World {
    random: RefCell<fastrand::Rng>,
    net: SimNet,
    register: SimRegister,
    addresses: Vec<[String; 2]>,
    streams: usize,
    now_ns: u64,
    clients: u32,
    anchor: Arc<Mutex<Anchor>>,
    /// For each stream, the bytes that the newest life had recovered when it began.
    history: Vec<Vec<u8>>,
    writer: Option<Writer>,
    fallen: Option<Fallen>,
    /// A sleeping writer that does not know of its replacement, and the highest positions that the writer may
    /// acknowledge.
    asleep: Option<(Writer, Vec<u64>)>,
    pub seen: Seen,
    faults: bool,
    /// True if writers run on the machine of some nodes and use their shared memory.
    shares: bool,
    /// True if a second machine may reach the disk without seeing the lock. Then the writer needs a lease.
    leases: bool,
    /// The incarnations of view members that have a flipped bit in their memory. An incarnation is forgotten when no
    /// view has this member any more.
    damaged: Vec<NodeInc>,
}

impl World {
    pub fn new(seed: u64, faults: bool) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let groups = random.usize(1..=2);
        let streams = random.usize(1..=3);
        let net = SimNet::new();
        let mut addresses = Vec::new();
        for group in 0..groups {
            let pair = [0, 1].map(|node| format!("node-{group}-{node}"));
            for (number, address) in (0u8..).zip(&pair) {
                let machine = Machine([number + 1; 16]);
                net.add(address, machine, TAIL * 2, Key::none());
            }
            addresses.push(pair);
        }
        World {
            random: RefCell::new(random),
            net,
            register: SimRegister::new(),
            addresses,
            streams,
            now_ns: MS,
            clients: 0,
            anchor: Arc::default(),
            history: vec![Vec::new(); streams],
            writer: None,
            fallen: None,
            asleep: None,
            seen: Seen::default(),
            faults,
            shares: seed % 2 == 1,
            leases: seed.is_multiple_of(3),
            damaged: Vec::new(),
        }
    }

    fn chance(&self, percent: u32) -> bool {
        self.random.borrow_mut().u32(0..100) < percent
    }

    fn below(&self, end: usize) -> usize {
        self.random.borrow_mut().usize(0..end)
    }

    /// Loses the frame with this number and breaks its connection.
    pub fn lose_frame(&self, number: u64) {
        self.net.lose_frame(number);
    }

    /// Runs for some steps. Then starts a last life, which must have all acknowledged bytes.
    pub fn run(&mut self, steps: usize) -> Result<(), String> {
        self.start()?;
        for _ in 0..steps {
            self.step()?;
        }
        self.heal();
        self.crash();
        self.start()?;
        self.seen.views = self.register.swaps();
        self.seen.frames = self.net.frames();
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.now_ns += MS * u64::from(self.random.borrow_mut().u32(1..=9));
        let dice = self.below(1000);
        match dice {
            0..300 => self.deliver(),
            300..500 => self.ship(),
            500..650 => self.pump()?,
            650..800 => self.manage()?,
            800..900 => self.copy(),
            900..940 if self.faults => self.fault(),
            940..948 if self.faults => {
                self.crash();
                self.start()?;
            }
            948..954 if self.faults => self.sleep_and_take_over()?,
            954..958 => self.stop()?,
            958..970 => self.register.land(),
            _ => self.deliver(),
        }
        self.forget_damages();
        self.check_members()?;
        self.wake()
    }

    fn deliver(&self) {
        for _ in 0..self.below(12) {
            let moves = self.net.moves();
            if moves.is_empty() {
                break;
            }
            self.net.deliver(moves[self.below(moves.len())]);
        }
    }

    fn ship(&mut self) {
        let stream = self.below(self.streams);
        let count = self.below(4);
        let mut random = self.random.borrow_mut();
        let Some(writer) = self.writer.as_mut().filter(|writer| !writer.is_stopping) else {
            return;
        };
        for _ in 0..count {
            let shipped = &mut writer.shipped[stream];
            let synced = writer.log.disk.lock().synced[stream];
            let len = u64::try_from(shipped.len()).unwrap();
            if len - synced + 64 > TAIL {
                return;
            }
            let mut block = [0; BLOCK];
            let filled = random.usize(1..=BLOCK);
            block[..filled]
                .iter_mut()
                .for_each(|byte| *byte = random.u8(..));
            let sealed = Sealed {
                stream: StreamId(u8::try_from(stream).unwrap()),
                pos: Pos(len),
                epoch: Epoch(1),
                bytes: &block,
            };
            writer.mirror.ship(sealed, Pos(synced));
            shipped.extend_from_slice(&block);
        }
    }

    fn pump(&mut self) -> Result<(), String> {
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        writer.pump(self.now_ns);
        self.note_ahead();
        Ok(())
    }

    fn note_ahead(&mut self) {
        if let Some(writer) = &self.writer {
            let disk = writer.log.disk.lock();
            let mut streams = disk.raised.iter().zip(&disk.synced);
            self.seen.ahead += u64::from(streams.any(|(raised, synced)| raised > synced));
        }
    }

    fn manage(&mut self) -> Result<(), String> {
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        match writer.mirror.manage(writer.log.as_ref(), self.now_ns) {
            Ok(Managed::Stopped) => {
                self.seen.stops += 1;
                self.crash();
                self.start()
            }
            Ok(_) => {
                let view = self.register.view().expect("a writer has one");
                self.seen.mirrored += u64::from(view.is_mirrored());
                Ok(())
            }
            Err(Error::Fenced(why)) if self.leases && why.contains("lease") => {
                self.seen.leases_over += 1;
                self.crash();
                self.start()
            }
            Err(Error::Fenced(why)) => Err(format!("the newest writer is fenced: {why}")),
            Err(_) => Ok(()),
        }
    }

    /// Writes shipped bytes to the disk, and syncs some of these bytes.
    fn copy(&mut self) {
        let random = &mut *self.random.borrow_mut();
        let Some(writer) = &self.writer else {
            return;
        };
        let mut disk = writer.log.disk.lock();
        if !disk.wants_copy && random.u32(0..100) < 50 {
            return;
        }
        disk.wants_copy = false;
        for stream in 0..self.streams {
            let shipped = u64::try_from(writer.shipped[stream].len()).unwrap();
            let blocks = (shipped - disk.written[stream]) / 64;
            if blocks > 0 {
                disk.written[stream] += 64 * random.u64(1..=blocks);
            }
            if random.u32(0..100) < 70 {
                let written = disk.written[stream];
                disk.sync(stream, written);
            }
        }
    }

    fn fault(&mut self) {
        let group = self.below(self.addresses.len());
        let address = self.addresses[group][self.below(2)].clone();
        let client = self.writer.as_ref().map_or(0, |writer| writer.id);
        match self.below(14) {
            0 => {
                self.net.kill(&address);
                self.net.start(&address);
            }
            1 => self.net.kill(&address),
            2 => self.net.start(&address),
            3 => self.net.pause(&address, true),
            4 => self.net.break_connections(client, &address),
            5 => {
                let way = if self.chance(50) { Way::Up } else { Way::Down };
                self.net.cut(client, &address, way);
            }
            13 => self.damage(group, client),
            9..=11 => self.net.half_open(client, &address),
            6 => self.register.set_mood(match self.below(4) {
                0 => Mood::Fails,
                1 => Mood::DoesAndFails,
                2 => Mood::DoesLater,
                _ => Mood::Answers,
            }),
            _ => self.heal_some(),
        }
    }

    fn heal_some(&self) {
        self.net.heal();
        self.register.set_mood(Mood::Answers);
    }

    fn heal(&self) {
        self.heal_some();
        for address in self.addresses.iter().flatten() {
            self.net.start(address);
        }
    }

    fn stop(&mut self) -> Result<(), String> {
        if let Some(writer) = &mut self.writer {
            writer.is_stopping = true;
            writer.mirror.begin_stop();
        }
        Ok(())
    }

    /// Ends the writer's process. A prefix of the unsynced bytes reaches the disk.
    fn crash(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.net.leave(writer.id);
            self.fallen = Some(self.fall(&writer));
            if self.faults && self.chance(8) {
                let group = self.below(self.addresses.len());
                self.addresses[group]
                    .iter()
                    .for_each(|address| self.net.kill(address));
            }
        }
    }

    fn fall(&self, writer: &Writer) -> Fallen {
        let disk = writer.log.disk.lock();
        let on_disk = |stream: usize| {
            let unsynced = (disk.written[stream] - disk.synced[stream]) / 64;
            let kept = self.random.borrow_mut().u64(0..=unsynced) * 64;
            usize::try_from(disk.synced[stream] + kept).unwrap()
        };
        Fallen {
            on_disk: (0..self.streams).map(on_disk).collect(),
            raised: disk.acked(),
            shipped: writer.shipped.clone(),
        }
    }

    /// Makes the writer sleep, and lets a new writer take over. A writer that needs no lease is put to sleep only if
    /// each stream's group is in mode Mirror. Does nothing if there is no writer, a writer sleeps already, or a view is
    /// pending.
    fn sleep_and_take_over(&mut self) -> Result<(), String> {
        let view = self.register.view().expect("a writer has one");
        let all = (0u8..)
            .take(self.streams)
            .all(|stream| view.mode_of(StreamId(stream)).is_mirror());
        let pending = |writer: &Writer| writer.mirror.status(self.now_ns).is_pending;
        if !(all || self.leases)
            || self.asleep.is_some()
            || self.writer.as_ref().is_none_or(pending)
        {
            return Ok(());
        }
        let writer = self.writer.take().expect("it was there");
        let fallen = self.fall(&writer);
        let (before, losses) = (fallen.raised.clone(), self.seen.losses);
        self.fallen = Some(fallen);
        self.start()?;
        let has = |(stream, before): (usize, u64)| {
            // If the takeover accepts a loss, the lost part begins where the log ends. While the sleeping writer lives,
            // this position is unknown, so the writer's acknowledgements are not limited.
            let given_up = self.seen.losses > losses;
            let has = u64::try_from(self.history[stream].len()).unwrap();
            if given_up { u64::MAX } else { before.max(has) }
        };
        let limits = before.into_iter().enumerate().map(has).collect();
        self.asleep = Some((writer, limits));
        Ok(())
    }

    /// Wakes a writer that was replaced. The writer tries to continue where it stopped.
    fn wake(&mut self) -> Result<(), String> {
        if self.asleep.is_none() || !self.chance(10) {
            return Ok(());
        }
        let (writer, limits) = self.asleep.take().expect("it was there");
        self.seen.deposed += 1;
        for _ in 0..60 {
            self.now_ns += MS;
            self.deliver();
            writer.pump(self.now_ns);
            // The disk belongs to another writer now, but writes of the woken writer may still reach it.
            let mut disk = writer.log.disk.lock();
            for stream in 0..self.streams {
                let written = disk.written[stream];
                disk.sync(stream, written);
            }
            drop(disk);
            if self.chance(30) {
                let _may_be_fenced = writer.mirror.manage(writer.log.as_ref(), self.now_ns);
            }
            let disk = writer.log.disk.lock();
            for (stream, (raised, limit)) in disk.acked().iter().zip(&limits).enumerate() {
                if raised > limit {
                    return Err(format!(
                        "a writer that was replaced acknowledges stream {stream} up to {raised}, and the next life has {limit}"
                    ));
                }
            }
        }
        self.net.leave(writer.id);
        Ok(())
    }
}
