//! Random merges and removals. Promised moments must stay restorable, and files that no promised moment needs must be
//! removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_archive::backup::{BackupHeader, BackupId, BackupKind, BackupWriter};
use perdura_archive::retention::retaining::Retaining;
use perdura_archive::{
    Codec, Merger, MergerOptions, Moment, Moments, Object, ObjectId, Retention, RunWriter, Store,
};
use perdura_base::{CkptEpoch, Epoch, Pos};
use perdura_device::{Access, Disk, MemDisk};
use perdura_page::RegionDigest;
use perdura_wal::SegmentSizes;

use crate::common::{CHUNKS, UUID, header, id};
use crate::store::create;

const SECOND_US: u64 = 1_000_000;

struct World {
    rng: fastrand::Rng,
    store: Arc<Store>,
    retention: Retention,
    now_us: Arc<AtomicU64>,
    merger: Merger,
    /// All moments that ever existed, promised or not.
    moments: Vec<Moment>,
    /// The undamaged backups.
    backups: Vec<BackupId>,
    checkpoints: u64,
    /// The end epoch of the newest backup.
    checkpointed: Epoch,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    merges: usize,
    combined: usize,
    backups_gone: usize,
    runs_gone: usize,
    promised: usize,
}

impl World {
    fn new(seed: u64, retention: Retention) -> World {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let store = create(&disk).expect("memory");
        let now_us = Arc::new(AtomicU64::new(1_000 * SECOND_US));
        let clock = Arc::clone(&now_us);
        let options = MergerOptions {
            fan_in: 3,
            policy: retention.policy(Arc::new(move || clock.load(Ordering::SeqCst))),
            ..MergerOptions::default()
        };
        let digest = Arc::new(RegionDigest::new());
        World {
            rng: fastrand::Rng::with_seed(seed),
            merger: Merger::new(Arc::clone(&store), options, digest).expect("the lease"),
            store,
            retention,
            now_us,
            moments: Vec::new(),
            backups: Vec::new(),
            checkpoints: 10,
            checkpointed: Epoch(0),
            seen: Seen::default(),
        }
    }

    fn now(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn pass(&mut self, longest_us: u64) {
        let us = self.rng.u64(0..longest_us);
        self.now_us.fetch_add(us, Ordering::SeqCst);
    }

    fn add_run(&mut self) {
        let begin = self.store.manifest().end.0;
        let mut own = Vec::new();
        for epoch in begin..begin + self.rng.u64(1..20) {
            self.pass(400_000);
            own.push(Moment {
                epoch: Epoch(epoch),
                wall_us: self.now(),
            });
        }
        let run = id(begin, begin + u64::try_from(own.len()).expect("few"), 0, 0);
        let disk = Arc::clone(self.store.disk());
        let digest = Arc::new(RegionDigest::new());
        let dir = self.store.runs_dir();
        let writer = RunWriter::create(disk, &dir, header(run), Codec::Lz4, digest);
        let tail = writer.expect("memory");
        let end = Pos(100 * run.epochs.end.0);
        let tail = tail
            .finish(&Moments::sampled(&own), &[end])
            .expect("memory");
        let summary = tail.run().expect("memory");
        let images = self.store.manifest().images.clone();
        self.store
            .add_run(&summary, &[end], &images)
            .expect("it follows");
        self.moments.extend(own);
    }

    fn add_backup(&mut self) {
        let last = self.store.manifest().held().0;
        if last <= self.checkpointed {
            return;
        }
        // Each image begins after the end of the image before it.
        let begin = self.rng.u64(self.checkpointed.0 + 1..=last.0);
        self.checkpointed = last;
        self.checkpoints += 1;
        let own = BackupId {
            end: last,
            k: CkptEpoch(self.checkpoints),
        };
        let header = BackupHeader {
            uuid: UUID,
            id: own,
            kind: BackupKind::Sweep,
            base: None,
            consistent: false,
            begin: Epoch(begin),
            wall_us: self.now(),
            chunks: CHUNKS,
            hash_seed: 42,
            scheme: 0,
            streams: 1,
            families: 1,
            segments: SegmentSizes {
                first: 4 << 20,
                max: 64 << 20,
            },
        };
        let disk = Arc::clone(self.store.disk());
        let writer = BackupWriter::create(disk, &self.store.backups_dir(), header);
        let mut writer = writer.expect("memory");
        for _ in 0..CHUNKS.partitions {
            writer.end_partition(None, Vec::new());
        }
        let written = writer.finish().and_then(|tail| tail.run()).expect("memory");
        let object = Object {
            id: ObjectId::Sweep(own),
            bytes: written.bytes,
            crc: written.crc,
        };
        self.store.add_backup(object).expect("a new one");
        if self.rng.u8(0..4) == 0 {
            // Damage the backup on the disk. The planner must not use it from now on.
            let path = own.path(&self.store.backups_dir());
            let file = self.store.disk().open(&path, Access::Buffered);
            file.and_then(|file| file.write_at(0, &[0; 64]))
                .expect("memory");
        } else {
            self.backups.push(own);
        }
    }

    fn merge(&mut self) {
        for _ in 0..self.rng.usize(1..60) {
            self.merger.step().expect("memory");
        }
    }

    fn retain(&mut self) {
        let store = Arc::clone(&self.store);
        let Some(retaining) = Retaining::new(store, &self.retention, self.now()) else {
            return;
        };
        let removed = retaining.run().expect("memory");
        self.seen.backups_gone += removed.backups;
        self.seen.runs_gone += removed.runs;
    }

    /// Returns whether a moment can be restored. An undamaged backup must end at or before the moment. The archive must
    /// have all epochs from the backup's begin epoch to the moment. The run that contains the moment's epoch must still
    /// list the moment.
    fn is_restorable(&self, moment: Epoch) -> bool {
        let manifest = self.store.manifest();
        let whole = |id: &BackupId| self.backups.contains(id) && id.end <= moment;
        let has_base = manifest.backups().filter(whole).any(|id| {
            let path = self.store.backups_dir();
            let backup =
                perdura_archive::backup::Backup::open(self.store.disk().as_ref(), &path, id, &UUID);
            let begin = backup.expect("whole").header().begin;
            manifest.begin <= begin && moment < manifest.end
        });
        let mut runs = manifest.runs().filter(|run| run.epochs.contains(moment));
        has_base
            && runs.next().is_some_and(|run| {
                let run = self.store.open_run(run).expect("a run");
                run.has_moment(moment)
            })
    }

    fn judge(&mut self) -> Result<(), String> {
        let Some(first) = self.backups.first().copied() else {
            return Ok(());
        };
        let (manifest, now_us) = (self.store.manifest(), self.now());
        let ages = |moment: &Moment| manifest.clock.age_us(moment, now_us);
        let promised: Vec<Moment> = self.retention.promised(&self.moments, &ages).collect();
        for moment in promised.iter().filter(|m| m.epoch >= first.end) {
            self.seen.promised += 1;
            if !self.is_restorable(moment.epoch) {
                let age = self.now() - moment.wall_us;
                return Err(format!("epoch {}, {age} us old, is lost", moment.epoch));
            }
        }
        let runs: Vec<_> = self.store.manifest().runs().collect();
        let combined = runs.iter().filter(|run| {
            let run = self.store.open_run(**run).expect("a run");
            run.header().only_listed_moments
        });
        self.seen.combined += combined.count();
        Ok(())
    }
}

fn history(seed: u64, retention: &str, keep: Option<&str>) -> Result<Seen, String> {
    let retention = Retention::parse(keep, retention).expect("as it is written");
    let mut world = World::new(seed, retention);
    for _ in 0..80 {
        match world.rng.u8(0..12) {
            0..5 => world.add_run(),
            5 => world.add_backup(),
            6..9 => {
                let before = world.store.manifest().runs().count();
                world.merge();
                world.seen.merges += usize::from(world.store.manifest().runs().count() < before);
            }
            9 => world.retain(),
            _ => world.pass(20 * SECOND_US),
        }
        world.judge()?;
    }
    // In the end every moment is older than the limit. Only one undamaged backup and the runs after it must remain.
    if world.retention.keep_us().is_some() && !world.backups.is_empty() {
        world.now_us.fetch_add(1 << 50, Ordering::SeqCst);
        world.retain();
        let manifest = world.store.manifest();
        let newest = world.backups.last().expect("there is one");
        let oldest = manifest.backups().next().expect("the last one stays");
        assert_eq!(oldest, *newest, "older backups go");
        assert!(world.is_restorable(manifest.held().0), "the last state");
        let first = manifest.runs().next().expect("a run");
        let dir = world.store.backups_dir();
        let disk = world.store.disk().as_ref();
        let base = perdura_archive::backup::Backup::open(disk, &dir, oldest, &UUID);
        let begin = base.expect("whole").header().begin;
        assert!(first.epochs.end > begin || manifest.runs().count() == 0);
    }
    Ok(world.seen)
}

#[test]
fn promised_moments_stay_restorable_and_what_none_needs_goes() {
    let mut sum = Seen::default();
    for seed in 0..120 {
        let (grains, keep) = match seed % 4 {
            0 => ("all 20s, 1s 60s, 10s", Some("5min")),
            1 => ("1s 30s, 5s", None),
            2 => ("all 10s, 2s 50s", None),
            _ => ("", Some("40s")),
        };
        let seen = history(seed, grains, keep).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        sum.merges += seen.merges;
        sum.combined += seen.combined;
        sum.backups_gone += seen.backups_gone;
        sum.runs_gone += seen.runs_gone;
        sum.promised += seen.promised;
    }
    assert!(
        sum.merges > 200 && sum.combined > 200 && sum.backups_gone > 50 && sum.runs_gone > 50,
        "{sum:?}"
    );
    assert!(sum.promised > 10_000, "{sum:?}");
}
