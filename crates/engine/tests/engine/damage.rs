//! Random histories of a database over several lives, with lasting damage to the newest image. Each life begins with
//! the data that the older image and the log restore. A restart must restore exactly the rows of the transactions up to
//! the durable epoch. This must hold for every level, number of threads and job order of the restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura::{CheckpointProgress, Core, CoreOptions, Error, Progress};
use perdura_base::{PageId, StreamId};
use perdura_device::{Access, CrashProfile, Disk, SimDisk};
use perdura_recovery::image::{Places, directory_path, folder};
use perdura_recovery::read_anchor;
use perdura_recovery::{Level, Schedule};
use perdura_wal::Rung;

use crate::core_steps::{env, small};

const LIVES: u32 = 6;
const KEYS: u64 = 120;
/// Sizes of rows, from small rows to rows that take separate pages.
const ROW_BYTES: [usize; 5] = [10, 100, 700, 3000, 40_000];

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

fn draw_options(rng: &mut fastrand::Rng) -> CoreOptions {
    let level = Level::ALL[rng.usize(..4)];
    let mut schedule = match rng.u32(..4) {
        0 => Schedule::new(level, rng.usize(..4)),
        _ => Schedule::inline(level, rng.u64(..1000)),
    };
    if rng.bool() {
        schedule.pile_bytes = rng.u64(..3) * 4000;
    }
    CoreOptions {
        schedule,
        ..small()
    }
}

fn open(disk: &Arc<SimDisk>, streams: usize, options: &CoreOptions) -> Result<Core, String> {
    let how = options.schedule;
    let core = Core::open(
        env(disk, streams),
        options.clone(),
        Arc::new(Progress::default()),
    );
    core.map_err(|error| format!("{how:?}: {error}"))
}

/// Returns every row.
fn rows(core: &Core) -> Rows {
    let mut rows = Rows::new();
    for key in (0..KEYS).map(key) {
        let parts = [core.partition_of(&key)].into_iter().collect();
        let read = core.transact(&parts, |tx| {
            let row = tx.get(core.database(0), &key)?;
            Ok::<_, perdura::Error>(row.map(|row| {
                let mut value = Vec::new();
                row.copy_value(&mut value);
                value
            }))
        });
        let (value, _nothing_written) = read.expect("a get");
        rows.extend(value.map(|value| (key, value)));
    }
    rows
}

/// Counts of the damage in all histories, because a test that damages nothing proves nothing.
#[derive(Default, Debug)]
struct Seen {
    damaged: u32,
    rebuilt: u32,
    older: u32,
}

struct Run<'a> {
    rng: fastrand::Rng,
    disk: Arc<SimDisk>,
    streams: usize,
    /// Commit epoch and writes of each transaction, in order.
    past: Vec<(u64, Writes)>,
    seen: &'a mut Seen,
}

impl Run<'_> {
    fn expected(&self, durable: u64) -> Rows {
        let mut rows = Rows::new();
        let kept = self.past.iter().filter(|(epoch, _)| *epoch <= durable);
        for (key, value) in kept.flat_map(|(_, writes)| writes) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        rows
    }

    /// Runs one transaction of puts and deletes. Sometimes it is rolled back.
    fn transact(&mut self, core: &Core) {
        let mut writes = Writes::new();
        for _ in 0..self.rng.usize(1..4) {
            let bytes = ROW_BYTES[self.rng.usize(..ROW_BYTES.len())];
            let value = (self.rng.u32(..4) > 0).then(|| vec![self.rng.u8(..); bytes]);
            writes.push((key(self.rng.u64(..KEYS)), value));
        }
        let rolls_back = self.rng.u32(..5) == 0;
        let done = core.transact(&core.all_partitions(), |tx| {
            for (key, value) in &writes {
                match value {
                    Some(value) => tx.put(core.database(0), key, value, None)?,
                    None => drop(tx.delete(core.database(0), key)?),
                }
            }
            if rolls_back {
                return Err(Error::Usage("given up".into()));
            }
            Ok(())
        });
        if let Ok(((), ticket)) = done {
            self.past.push((ticket.epoch.0, writes));
        }
    }

    fn step(&mut self, core: &Core) {
        match self.rng.u32(..20) {
            0..9 => self.transact(core),
            9 => drop(core.close_epoch()),
            10 | 11 => {
                let stream = u8::try_from(self.rng.usize(..self.streams)).unwrap();
                core.flush_step(StreamId(stream)).unwrap();
            }
            12 => core.flush_all().unwrap(),
            13 if self.rng.u32(..6) == 0 => {
                let ticket = core.flush_database(Some(0)).unwrap();
                let none = (0..KEYS).map(|number| (key(number), None));
                self.past.push((ticket.epoch.0, none.collect()));
            }
            _ if !core.checkpoint_stats().running => core.checkpoint_begin().unwrap(),
            _ => {
                for _ in 0..self.rng.u32(1..9) {
                    if core.checkpoint_step().unwrap() == CheckpointProgress::Waiting {
                        core.flush_all().unwrap();
                    }
                }
            }
        }
    }

    fn crash(&mut self) {
        let profile = match self.rng.bool() {
            true => CrashProfile::Nothing,
            false => CrashProfile::Worst,
        };
        self.disk.crash(profile, self.rng.u64(..));
    }

    /// If there are two complete images, sometimes damages the newest one.
    fn damage(&mut self) {
        let anchor = read_anchor(self.disk.life().as_ref()).unwrap().unwrap();
        let whole = anchor.images.iter();
        let whole = whole.filter(|image| image.is_complete());
        if whole.count() < 2 || self.rng.bool() {
            return;
        }
        self.seen.damaged += 1;
        let newest = anchor.newest_image().expect("one of two");
        if self.rng.u32(..3) == 0 {
            self.flip(&directory_path(newest, anchor.image(newest).k), 30);
            return;
        }
        let at = self.rng.u64(..16384);
        for page in (0..64).map(PageId) {
            if self.rng.u32(..4) == 0 {
                let path = format!("{}/pages", folder(newest));
                let place = Places::of(&anchor).place(page);
                self.flip(&path, place.offset() + at);
            }
        }
    }

    fn flip(&self, path: &str, at: u64) {
        let file = self.disk.life().open(path, Access::Buffered).unwrap();
        let mut byte = [0];
        if file.read_at(at, &mut byte).unwrap() == 1 {
            file.write_at(at, &[byte[0] ^ 0x41]).unwrap();
            file.sync().unwrap();
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut acked = 0;
        let mut core = open(&self.disk, self.streams, &draw_options(&mut self.rng))?;
        for life in 0..LIVES {
            for _ in 0..self.rng.u32(..120) {
                self.step(&core);
            }
            if self.rng.bool() {
                core.flush_all().unwrap();
            }
            acked = acked.max(core.wal().durable(Rung::Disk).0);
            drop(core);
            self.crash();
            self.damage();
            let mut found = Vec::new();
            for _ in 0..2 {
                let copy = SimDisk::new(0);
                copy.restore(&self.disk.snapshot());
                let options = draw_options(&mut self.rng);
                let core = open(&copy, self.streams, &options)
                    .map_err(|error| format!("life {life}, a copy, {error}"))?;
                found.push((options.schedule, rows(&core)));
            }
            let options = draw_options(&mut self.rng);
            core = open(&self.disk, self.streams, &options)
                .map_err(|error| format!("life {life}, {error}"))?;
            found.push((options.schedule, rows(&core)));
            let report = core.report();
            self.seen.rebuilt += u32::from(report.pages_rebuilt > 0);
            let unused = |note: &String| note.contains("cannot be used");
            self.seen.older += u32::from(report.notes.iter().any(unused));
            let durable = report.durable_epoch;
            if durable < acked {
                return Err(format!("life {life}: {acked} was acked, {durable} is left"));
            }
            acked = durable;
            let expected = self.expected(durable);
            for (how, rows) in found {
                if rows != expected {
                    return Err(format!("life {life}, {how:?}: other rows"));
                }
            }
            self.past.retain(|(epoch, _)| *epoch <= durable);
        }
        Ok(())
    }
}

#[test]
fn damage_that_stays_is_made_good_by_the_older_image_and_the_log_in_every_life() {
    let seeds = std::env::var("SEEDS").map_or(20, |seeds| seeds.parse().unwrap());
    let mut seen = Seen::default();
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut run = Run {
            streams: rng.usize(1..5),
            rng,
            disk: SimDisk::new(seed),
            past: Vec::new(),
            seen: &mut seen,
        };
        assert_eq!(run.run(), Ok(()), "seed {seed}");
    }
    let all = [seen.damaged, seen.rebuilt, seen.older];
    assert!(all.iter().all(|times| *times > 0), "{seen:?}");
}
