//! A source returns exactly the epochs that a restart's scan finds: whole, durable, and of all streams. The cases are
//! writes in flight, epochs closed in only some streams, epochs voided by a crash, and several lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{Epoch, Error, Pos, StreamId};
use perdura_device::{CrashProfile, Disk, ManualClock, SimDisk};
use perdura_wal::{
    Direction, EpochEnds, EpochSource, FlushProgress, FrameKind, History, Rung, SourceStep,
    StreamScan, Vouched, Wal,
};

use crate::setup::{anchor, append, flush, next_life, open, open_by, scan};

/// The frames of an epoch, by stream: kind and payload of each frame, in order.
type Frames = BTreeMap<u8, Vec<(u8, Vec<u8>)>>;

/// An epoch as the source returned it, or as a scan finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Whole {
    frames: Frames,
    ends: Vec<Pos>,
    wall_us: u64,
}

/// The contents of an archive: the ended epochs, and the frames of the current epoch.
#[derive(Default)]
struct Archive {
    epochs: BTreeMap<Epoch, Whole>,
    open: Frames,
}

/// The log, a source, and the epochs that the source has returned.
struct World {
    rng: fastrand::Rng,
    disk: Arc<SimDisk>,
    history: History,
    wal: Wal,
    source: EpochSource,
    archive: Archive,
    /// The position from which a source continues after a restart. The archive stored it, possibly long ago.
    saved: EpochEnds,
    /// The epochs that became void in each restart.
    void: Vec<std::ops::RangeInclusive<Epoch>>,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    lives: usize,
    epochs: usize,
    spanning: usize,
    void: usize,
    read_behind: usize,
}

fn begin(streams: u8) -> EpochEnds {
    EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0); usize::from(streams)],
    }
}

fn source(disk: &Arc<SimDisk>, history: &History, from: &EpochEnds) -> EpochSource {
    let disks: Vec<Arc<dyn Disk>> = (0..history.streams)
        .map(|_| -> Arc<dyn Disk> { disk.life() })
        .collect();
    EpochSource::open(&disks, history, from).unwrap()
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let streams = rng.u8(1..5);
        let disk = SimDisk::new(seed);
        let history = anchor(streams);
        let wal = open(&disk, &history, 1);
        let saved = begin(streams);
        World {
            source: source(&disk, &history, &saved),
            rng,
            disk,
            history,
            wal,
            archive: Archive::default(),
            saved,
            void: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn streams(&self) -> u8 {
        self.history.streams
    }

    fn append(&mut self) {
        let stream = self.rng.u8(0..self.streams());
        let long = self.rng.u8(0..4) == 0;
        let payload = vec![self.rng.u8(..); self.rng.usize(0..if long { 30_000 } else { 900 })];
        append(&self.wal, stream, &payload);
    }

    fn close_some(&mut self) {
        if self.rng.bool() {
            self.wal.close_epoch();
            return;
        }
        self.wal.close_begin();
        for _ in 0..self.rng.usize(0..3) {
            self.wal
                .close_visit(StreamId(self.rng.u8(0..self.streams())));
        }
    }

    fn flush_some(&mut self) {
        for _ in 0..self.rng.usize(1..12) {
            let stream = StreamId(self.rng.u8(0..self.streams()));
            self.wal.flush_step(stream).unwrap();
        }
    }

    /// Takes at most `steps` steps of the source. Fails if a returned epoch is void or not durable. When the source is
    /// idle, checks that it has reached the durable end.
    fn read(&mut self, steps: usize) -> Result<(), String> {
        let durable = self.wal.durable_end(Rung::Disk);
        let mut places = BTreeMap::new();
        for _ in 0..steps {
            let Archive { epochs, open } = &mut self.archive;
            let mut of_epoch = None;
            let step = self.source.step(&durable, |frame, origin| {
                of_epoch = Some(origin.epoch);
                let frames = open.entry(origin.stream.0).or_default();
                frames.push((frame.kind.code(), frame.payload.to_vec()));
                let last = places.insert(origin.stream, (origin.life, origin.pos));
                assert!(last <= Some((origin.life, origin.pos)), "out of order");
                Ok(())
            });
            if of_epoch > Some(durable.epoch) {
                return Err(format!("{of_epoch:?} is returned, and D is {durable:?}"));
            }
            if let Some(epoch) = of_epoch.filter(|e| self.void.iter().any(|void| void.contains(e)))
            {
                return Err(format!("void epoch {epoch} is returned"));
            }
            match step.map_err(|error| error.to_string())? {
                SourceStep::Frames => {}
                SourceStep::Idle => {
                    assert_eq!(self.source.at().epoch, durable.epoch);
                    assert_eq!(self.source.at().ends, durable.ends);
                    return Ok(());
                }
                SourceStep::End { end, wall_us } => {
                    if end.epoch > durable.epoch {
                        return Err(format!("epoch {} ends, and D is {durable:?}", end.epoch));
                    }
                    let whole = Whole {
                        frames: std::mem::take(open),
                        ends: end.ends.clone(),
                        wall_us,
                    };
                    assert_eq!(self.source.at(), &end);
                    let before = epochs.insert(end.epoch, whole);
                    assert!(before.is_none(), "an epoch ends once");
                    if self.rng.bool() {
                        self.saved = end;
                    }
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), String> {
        let profiles = [
            CrashProfile::Nothing,
            CrashProfile::Worst,
            CrashProfile::Ordered,
            CrashProfile::Everything,
        ];
        let profile = profiles[self.rng.usize(0..profiles.len())];
        self.disk.crash(profile, self.rng.u64(..));
        let (scans, cut) = scan(&self.disk, &self.history).map_err(|error| error.to_string())?;
        self.counts.void += usize::from(cut.epoch_max > cut.durable);
        self.void.push(Epoch(cut.durable.0 + 1)..=cut.epoch_max);
        self.check(&scans, Epoch(0))?;
        let epoch = next_life(&mut self.history, &cut);
        self.wal = open(&self.disk, &self.history, epoch);
        self.counts.read_behind += usize::from(self.saved.ends != cut.cut);
        self.resume();
        self.counts.lives += 1;
        Ok(())
    }

    /// Opens a new source at the saved position. Forgets all later epochs, as if the archive had not stored them.
    fn resume(&mut self) {
        self.source = source(&self.disk, &self.history, &self.saved);
        let kept = |epoch: &Epoch, _: &mut Whole| *epoch <= self.saved.epoch;
        self.archive.epochs.retain(kept);
        self.archive.open.clear();
    }

    /// Checks that the source has returned what a scan of the whole log finds. Compares the epochs up to the last ended
    /// epoch, and at least up to `at_least`.
    fn check(&self, scans: &[StreamScan], at_least: Epoch) -> Result<(), String> {
        let mut found = scanned(scans);
        let ended = self.archive.epochs.keys().next_back().copied();
        let ended = ended.unwrap_or_default().max(at_least);
        let beyond = found.split_off(&Epoch(ended.0 + 1));
        if let Some(epoch) = self.archive.epochs.keys().find(|e| !found.contains_key(e)) {
            return Err(format!("epoch {epoch} is void, or not in the log"));
        }
        // A source that began later has not seen the clocks before its start, so its moments may be earlier.
        let frames = |whole: &Whole| (whole.frames.clone(), whole.ends.clone());
        for (epoch, whole) in &found {
            let archived = self.archive.epochs.get(epoch);
            if archived.map(frames) != Some(frames(whole)) {
                return Err(format!("epoch {epoch} differs; {} beyond", beyond.len()));
            }
            if archived.is_some_and(|archived| archived.wall_us > whole.wall_us) {
                return Err(format!(
                    "the moment of epoch {epoch} is later than its clock"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the epochs up to the cut, each with its frames, its ends and its wall-clock time.
fn scanned(scans: &[StreamScan]) -> BTreeMap<Epoch, Whole> {
    let mut epochs: BTreeMap<Epoch, Whole> = BTreeMap::new();
    for block in scans.iter().flat_map(|scan| &scan.blocks) {
        let whole = epochs.entry(block.epoch).or_insert(Whole {
            frames: Frames::new(),
            ends: Vec::new(),
            wall_us: 0,
        });
        whole.wall_us = whole.wall_us.max(block.wall_us);
    }
    let mut latest = 0;
    for (epoch, whole) in &mut epochs {
        latest = latest.max(whole.wall_us);
        whole.wall_us = latest;
        for scan in scans {
            let next = scan.blocks.iter().find(|block| block.epoch > *epoch);
            let last = scan.blocks.last().map_or(Pos(0), |last| last.end());
            whole.ends.push(next.map_or(last, |block| block.pos));
        }
    }
    for scan in scans {
        for unit in scan.units(0) {
            let each = |frame: perdura_wal::Frame<'_>, origin: &perdura_wal::Origin| {
                let whole = epochs.get_mut(&origin.epoch).expect("of a block");
                let frames = whole.frames.entry(scan.stream.0).or_default();
                frames.push((frame.kind.code(), frame.payload.to_vec()));
                Ok(())
            };
            scan.read_unit(unit, Direction::Forward, each).unwrap();
        }
    }
    epochs
}

/// Runs a random history. The error names a returned epoch that a restart would not keep, or an epoch missing from the
/// source.
fn history(seed: u64) -> Result<Counts, String> {
    let mut world = World::new(seed);
    for _ in 0..200 {
        match world.rng.u8(0..20) {
            0..8 => world.append(),
            8..11 => world.close_some(),
            11..15 => world.flush_some(),
            15..18 => {
                let steps = world.rng.usize(0..12);
                world.read(steps)?;
            }
            18 if world.rng.bool() => world.resume(),
            18 => flush(&world.wal),
            _ if world.rng.u8(0..3) == 0 => world.restart()?,
            _ => {}
        }
    }
    flush(&world.wal);
    world.read(usize::MAX)?;
    let (scans, cut) = scan(&world.disk, &world.history).map_err(|error| error.to_string())?;
    assert_eq!(cut.durable, world.wal.durable(Rung::Disk));
    world.check(&scans, cut.durable)?;
    let Archive { epochs, open } = &world.archive;
    assert!(open.is_empty(), "the last epoch has ended");
    let clocks: Vec<u64> = epochs.values().map(|whole| whole.wall_us).collect();
    // No epoch lacks a moment.
    assert!(clocks.iter().all(|clock| *clock > 0));
    let frames = epochs.values().flat_map(|whole| whole.frames.values());
    let long = |frame: &&(u8, Vec<u8>)| frame.1.len() > 8192;
    Ok(Counts {
        epochs: epochs.len(),
        spanning: frames.flatten().filter(long).count(),
        ..world.counts
    })
}

#[test]
fn a_source_returns_the_epochs_that_a_restart_keeps_over_segments_lives_and_resumptions() {
    let mut sum = Counts::default();
    for seed in 0..150 {
        let counts = history(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        sum.lives += counts.lives;
        sum.epochs += counts.epochs;
        sum.spanning += counts.spanning;
        sum.void += counts.void;
        sum.read_behind += counts.read_behind;
    }
    let Counts {
        lives,
        epochs,
        spanning,
        void,
        read_behind,
    } = sum;
    assert!(
        lives > 150 && epochs > 1500 && spanning > 1000 && void > 50 && read_behind > 50,
        "{sum:?}"
    );
}

#[cfg(feature = "flaws")]
#[test]
fn seeded_bugs_of_what_is_archived_are_caught() {
    use perdura_base::flaw::{Flaw, arm};
    for (flaw, what) in [
        (Flaw::EpochBeyondDArchived, "is read, and D is"),
        (Flaw::VoidEpochArchived, "void epoch"),
    ] {
        let caught = (0..150).any(|seed| {
            arm(Some(flaw));
            let seen = std::panic::catch_unwind(|| history(seed));
            arm(None);
            // `why` is the oracle's error or the message of a panic.
            let why = match seen {
                Ok(done) => done.err().unwrap_or_default(),
                Err(panic) => panic.downcast_ref().cloned().unwrap_or_default(),
            };
            why.contains(what)
        });
        assert!(caught, "{flaw:?}");
    }
}

/// A stream sealed its part of epoch 1 after another stream had sealed epoch 2. The clock was set back in between.
///
/// The archive then listed the two times in the wrong order. A restore to a time gave the state before epoch 2, although
/// epoch 2 was durable then (simulator, archive mode, seed 70076854).
#[test]
fn the_stamps_of_epochs_are_in_the_order_in_which_the_clock_showed_them() {
    const HOUR_US: u64 = 3_600_000_000;
    let (disk, history) = (SimDisk::new(1), anchor(2));
    let clock = Arc::new(ManualClock::at(50 * HOUR_US));
    let wal = open_by(disk.life(), &history, Arc::clone(&clock));
    let flush = |stream| while wal.flush_step(StreamId(stream)).unwrap() != FlushProgress::Idle {};
    append(&wal, 1, b"one");
    wal.close_epoch();
    append(&wal, 0, b"two");
    wal.close_epoch();
    flush(0);
    clock.set_wall_us(10 * HOUR_US);
    flush(1);
    let durable = wal.durable_end(Rung::Disk);
    assert_eq!(durable.epoch, Epoch(2));
    let mut source = source(&disk, &history, &begin(2));
    let mut stamps = Vec::new();
    loop {
        match source.step(&durable, |_, _| Ok(())).unwrap() {
            SourceStep::End { wall_us, .. } => stamps.push(wall_us / HOUR_US),
            SourceStep::Frames => {}
            SourceStep::Idle => break,
        }
    }
    assert_eq!(stamps, [50, 50]);
}

/// The log has two streams. An epoch is durable in only one stream.
#[test]
fn an_epoch_that_one_stream_does_not_hold_is_not_read_and_void_after_the_crash() {
    let disk = SimDisk::new(1);
    let mut history = anchor(2);
    let wal = open(&disk, &history, 1);
    for stream in 0..2 {
        append(&wal, stream, b"durable");
    }
    flush(&wal);
    let kept = wal.durable_end(Rung::Disk);
    for stream in 0..2 {
        append(&wal, stream, b"void");
    }
    wal.close_epoch();
    while wal.flush_step(StreamId(0)).unwrap() != perdura_wal::FlushProgress::Idle {}
    assert_eq!(wal.durable_end(Rung::Disk), kept);
    let payloads = |history: &History, durable: &Vouched| {
        let mut source = source(&disk, history, &begin(2));
        let mut payloads = Vec::new();
        while source
            .step(durable, |frame, origin| {
                assert_eq!(frame.kind, FrameKind::Group);
                payloads.push((origin.epoch.0, frame.payload.to_vec()));
                Ok(())
            })
            .unwrap()
            != SourceStep::Idle
        {}
        payloads
    };
    let both = vec![(1, b"durable".to_vec()); 2];
    assert_eq!(payloads(&history, &kept), both);

    drop(wal);
    disk.crash(CrashProfile::Everything, 0);
    let (_, cut) = scan(&disk, &history).unwrap();
    assert_eq!((cut.durable, cut.epoch_max), (Epoch(1), Epoch(2)));
    let epoch = next_life(&mut history, &cut);
    let wal = open(&disk, &history, epoch);
    append(&wal, 1, b"next");
    flush(&wal);
    let all = [both, vec![(3, b"next".to_vec())]].concat();
    assert_eq!(payloads(&history, &wal.durable_end(Rung::Disk)), all);
}

#[test]
fn a_log_that_ends_before_what_was_archived_has_lost_acknowledged_epochs() {
    let disk = SimDisk::new(1);
    let history = anchor(1);
    let wal = open(&disk, &history, 1);
    append(&wal, 0, b"one");
    flush(&wal);
    let durable = wal.durable_end(Rung::Disk);
    let archived = EpochEnds {
        epoch: Epoch(2),
        ends: durable.ends.clone(),
    };
    let lost = archived.check_durable(&durable).unwrap_err();
    assert!(
        matches!(
            lost,
            Error::LostLog {
                archived: Epoch(2),
                durable: Epoch(1)
            }
        ),
        "{lost}"
    );
    assert_eq!(lost.family(), perdura_base::error::Family::Corruption);
    let text = lost.to_string();
    assert!(
        text.contains("up to epoch 2") && text.contains("ends with epoch 1,"),
        "{text}"
    );
    let mut ahead = source(&disk, &history, &archived);
    let same = ahead.step(&durable, |_, _| Ok(())).unwrap_err();
    assert_eq!(same.to_string(), text);

    let further = EpochEnds {
        epoch: Epoch(1),
        ends: vec![Pos(durable.ends[0].0 + 4096)],
    };
    let other = further.check_durable(&durable).unwrap_err();
    assert!(matches!(other, Error::Corrupt(_)), "{other}");
    let here = EpochEnds {
        epoch: Epoch(1),
        ..archived
    };
    assert!(here.check_durable(&durable).is_ok());
}

/// One source begins at a checkpoint, in the middle of an epoch. Others begin in the middle of a frame.
#[test]
fn a_source_begins_at_the_marks_of_a_checkpoint_and_skips_the_rest_of_a_frame() {
    let disk = SimDisk::new(1);
    let history = anchor(2);
    let wal = open(&disk, &history, 1);
    append(&wal, 0, b"before");
    append(&wal, 1, &[1; 20_000]);
    let (marks, lowest) = wal.begin_checkpoint(perdura_base::CkptEpoch(1));
    assert_eq!(lowest, Epoch(1));
    append(&wal, 0, b"behind");
    append(&wal, 1, b"behind");
    flush(&wal);
    let durable = wal.durable_end(Rung::Disk);
    let frames = |ends: Vec<Pos>| {
        let from = EpochEnds {
            epoch: Epoch(lowest.0 - 1),
            ends,
        };
        let mut source = source(&disk, &history, &from);
        let mut frames = Vec::new();
        while source
            .step(&durable, |frame, origin| {
                frames.push((origin.stream.0, frame.kind, frame.payload.len()));
                Ok(())
            })
            .unwrap()
            != SourceStep::Idle
        {}
        assert_eq!(source.at().ends, durable.ends);
        frames
    };
    let (mark, group) = (FrameKind::BeginCheckpoint, FrameKind::Group);
    let of_checkpoint = [(0, mark, 1), (0, group, 6), (1, mark, 1), (1, group, 6)];
    assert_eq!(frames(marks.clone()), of_checkpoint);
    // These are the positions of the second and the third block of the long group. In the third block the group ends
    // and no other frame begins.
    for within in [8192, 16_384] {
        assert!(Pos(within) < marks[1]);
        assert_eq!(frames(vec![marks[0], Pos(within)]), of_checkpoint);
    }
}

#[test]
fn positions_that_are_no_end_of_the_epoch_are_refused() {
    let disk = SimDisk::new(1);
    let history = anchor(1);
    let wal = open(&disk, &history, 1);
    append(&wal, 0, b"one");
    flush(&wal);
    append(&wal, 0, b"two");
    flush(&wal);
    let durable = wal.durable_end(Rung::Disk);
    let wrong = EpochEnds {
        epoch: Epoch(1),
        ends: vec![Pos(0)],
    };
    let mut source = source(&disk, &history, &wrong);
    let error = source.step(&durable, |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("a block of epoch 1"), "{error}");
    let disks: [Arc<dyn Disk>; 1] = [disk.life()];
    let few = EpochSource::open(&disks, &history, &begin(2));
    assert!(matches!(few.err(), Some(Error::Usage(_))));
}
