//! Archives that do not agree with the pages. A proof or a drill must find every error in a run.

use std::sync::Arc;

use perdura::{Disks, Error, Rung};
use perdura_archive::{
    ArchiverStep, Codec, FragmentBytes, PageAt, Run, RunId, RunRecord, RunWriter, Scope, Store,
};
use perdura_base::{CkptEpoch, PartitionId, Uuid};
use perdura_device::{Access, Clock, Disk, ManualClock, SimDisk};
use perdura_page::RegionDigest;
use perdura_recovery::SweepDigest;
use perdura_restore::drill::{Judgement, judge};
use perdura_restore::proof::{Proof, Verdict};
use perdura_restore::{Deadlines, RestoreMeans, RestorePlan, RestoreProgress, restore};

use crate::proving::{STREAMS, World};

/// An archive with several runs between two images.
struct Window {
    store: Arc<Store>,
    disk: Arc<dyn Disk>,
    base: Arc<SweepDigest>,
    target: Arc<SweepDigest>,
    runs: Vec<Arc<Run>>,
}

/// A record that owns its fragments.
struct Owned {
    at: PageAt,
    record: RunRecord<'static>,
}

impl Window {
    fn new() -> Window {
        let mut world = World::new(5, false);
        world.finish();
        world.core().checkpoint_now().expect("an image");
        let base = world.core().newest_digest().expect("an image");
        world.back_up();
        for _ in 0..3 {
            for _ in 0..5 {
                world.write();
            }
            world.core().flush_all().expect("a flush");
            let durable = world.core().wal().durable(Rung::Disk);
            world.archiving.cut_at(durable);
            while !matches!(world.step(), ArchiverStep::Idle) {}
        }
        let stats = world.finish();
        assert_eq!((stats.result, stats.failed), ("holds", 0), "{stats:?}");
        let target = world.core().newest_digest().expect("an image");
        let disk: Arc<dyn Disk> = world.store.life();
        let store = Store::read_only(Arc::clone(&disk), &world.core().anchor().get().uuid);
        let store = store.expect("an archive");
        let open = |id: RunId| store.open_run(id).expect("a run");
        let runs: Vec<Arc<Run>> = store.manifest().runs().map(open).collect();
        assert!(runs.len() > 3, "{} runs", runs.len());
        Window {
            store,
            disk,
            base,
            target,
            runs,
        }
    }

    /// Makes a drill: a trial restore of the archive.
    fn drill(&self) -> Result<Judgement, Error> {
        let plan = RestorePlan::from_archive(&self.store, None, |_, _| {})?;
        let means = RestoreMeans {
            disks: Disks::on_one(SimDisk::new(1).life(), STREAMS),
            uuid: Uuid([9; 16]),
            threads: 1,
            clock: &(Arc::new(ManualClock::at(5)) as Arc<dyn Clock>),
            progress: &RestoreProgress::default(),
            deadlines: Deadlines::Keep,
        };
        let report = restore(&plan, &means)?;
        judge(&self.store, &plan, &report, &means.disks)
    }

    fn prove(&self) -> Verdict {
        let (base, target) = (Arc::clone(&self.base), Arc::clone(&self.target));
        let proof = Proof::begin(Arc::clone(&self.store), base, target);
        proof.and_then(Proof::run).expect("a verdict")
    }

    /// Returns whether the proof includes a record with this tag.
    fn counts(&self, tag: CkptEpoch) -> bool {
        self.base.k <= tag && tag < self.target.k
    }

    fn records(run: &Arc<Run>) -> Vec<Owned> {
        let (mut cursor, mut all) = (run.cursor(&Scope::All), Vec::new());
        while cursor.advance().expect("a run") {
            let record = cursor.record();
            let bytes: &'static [u8] = Box::leak(record.fragment_bytes().into());
            let (epochs, tag, updates) = (record.epochs, record.tag, record.updates);
            let count = record.fragment_count();
            let record = RunRecord::new(
                record.at,
                epochs,
                tag,
                updates,
                FragmentBytes { count, bytes },
            );
            let record = record.expect("a record");
            all.push(Owned {
                at: record.at,
                record,
            });
        }
        all
    }

    /// Replaces a run by a run with these records, makes a proof, and restores the original run.
    fn prove_with(&self, run: &Arc<Run>, records: Vec<Owned>) -> Verdict {
        self.with(run, records, || self.prove())
    }

    fn with<T>(&self, run: &Arc<Run>, mut records: Vec<Owned>, f: impl FnOnce() -> T) -> T {
        self.replace(run, &mut records);
        let found = f();
        self.replace(run, &mut Window::records(run));
        found
    }

    fn replace(&self, run: &Arc<Run>, records: &mut [Owned]) {
        records.sort_by_key(|owned| {
            let (_, epoch, number) = owned.record.key();
            (owned.at, epoch, number)
        });
        let dir = self.store.runs_dir();
        self.disk.remove(&run.id().path(&dir)).expect("it is there");
        let region = Arc::new(RegionDigest::new());
        let writer = RunWriter::create(
            Arc::clone(&self.disk),
            &dir,
            *run.header(),
            Codec::None,
            region,
        );
        let mut writer = writer.expect("a disk");
        for owned in records.iter() {
            let record = &owned.record;
            let (epochs, tag, updates) = (record.epochs, record.tag, record.updates);
            let (count, bytes) = (record.fragment_count(), record.fragment_bytes());
            let moved = RunRecord::new(
                owned.at,
                epochs,
                tag,
                updates,
                FragmentBytes { count, bytes },
            );
            writer.push(&moved.expect("a record")).expect("a disk");
        }
        let tail = writer.finish(run.moments(), run.ends());
        tail.and_then(|tail| tail.run()).expect("a run");
    }

    /// Swaps the records of two pages, for many pairs of pages. Returns the number of swaps that a proof finds, and the
    /// number of all swaps.
    fn swaps_found(&self) -> (usize, usize) {
        let (mut found, mut all) = (0, 0);
        for run in &self.runs {
            let mut pages: Vec<PageAt> = Window::records(run).iter().map(|one| one.at).collect();
            pages.dedup();
            for pair in pages
                .windows(2)
                .filter(|pair| pair[0].partition == pair[1].partition)
            {
                let mut records = Window::records(run);
                for owned in records
                    .iter_mut()
                    .filter(|owned| self.counts(owned.record.tag))
                {
                    let is_first = owned.at == pair[0];
                    if is_first || owned.at == pair[1] {
                        owned.at = pair[usize::from(is_first)];
                    }
                }
                let is_changed = Window::records(run)
                    .iter()
                    .any(|owned| pair.contains(&owned.at) && self.counts(owned.record.tag));
                all += usize::from(is_changed);
                found += usize::from(self.prove_with(run, records).fails.is_some());
            }
        }
        (found, all)
    }
}

#[test]
fn a_run_that_lacks_a_record_or_has_it_twice_or_on_another_page_is_found_and_named() {
    let window = Window::new();
    assert_eq!(window.prove().fails, None);
    let mut cases = 0;
    for run in &window.runs {
        let count = Window::records(run).len();
        for nth in 0..count {
            let one = &Window::records(run)[nth];
            if !window.counts(one.record.tag) {
                continue;
            }
            let mut lacks = Window::records(run);
            let partition = lacks.remove(nth).at.partition;
            let mut twice = Window::records(run);
            twice.push(Window::records(run).swap_remove(nth));
            let mut on_next = Window::records(run);
            on_next[nth].at.local += 1;
            let mut elsewhere = Window::records(run);
            elsewhere[nth].at.partition = PartitionId((partition.0 + 1) % 4);
            for records in [lacks, twice, on_next, elsewhere] {
                let fails = window.prove_with(run, records).fails;
                let fails = fails.expect("what is wrong is found");
                assert!(fails.contains("In partition"), "{fails}");
                cases += 1;
            }
            let mut lacks = Window::records(run);
            lacks.remove(nth);
            let fails = window.prove_with(run, lacks).fails.expect("it is found");
            assert!(fails.contains(&format!("partition {partition}")), "{fails}");
            let tags = format!("tags {} to {}", window.base.k, window.target.k);
            assert!(fails.contains(&tags), "{fails}");
        }
    }
    assert!(cases > 200, "{cases} cases");
    assert_eq!(window.prove().fails, None);
}

/// If a page's last update is missing, its update numbers have no gap, so the restore alone does not notice this.
#[test]
fn a_drill_finds_what_a_restore_alone_does_not() {
    let window = Window::new();
    let whole = window.drill().expect("it is restored");
    assert_eq!(whole.fails, None);
    assert!(whole.compared.contains("the digest of image"), "{whole:?}");
    let (mut found, mut by_restore) = (0, 0);
    for (nth, run) in window.runs.iter().enumerate() {
        let later: Vec<PageAt> = window.runs[nth + 1..]
            .iter()
            .flat_map(Window::records)
            .map(|owned| owned.at)
            .collect();
        let records = Window::records(run);
        for (at, owned) in records.iter().enumerate() {
            let is_last = records[at + 1..].iter().all(|other| other.at != owned.at);
            if !is_last || later.contains(&owned.at) || !window.counts(owned.record.tag) {
                continue;
            }
            let mut lacks = Window::records(run);
            lacks.remove(at);
            match window.with(run, lacks, || window.drill()) {
                Ok(judged) => found += usize::from(judged.fails.is_some()),
                Err(_) => by_restore += 1,
            }
        }
    }
    assert!(found > 5 && by_restore == 0, "{found} and {by_restore}");
    assert_eq!(window.drill().expect("it is restored").fails, None);
}

#[test]
fn two_swapped_pages_are_found() {
    let (found, all) = Window::new().swaps_found();
    assert!(all > 10 && found == all, "{found} of {all}");
}

#[test]
fn a_run_that_is_missing_or_damaged_is_found_and_named() {
    let window = Window::new();
    let dir = window.store.runs_dir();
    for run in &window.runs {
        let is_read =
            run.id().epochs.end > window.base.begin && run.id().epochs.begin <= window.target.end;
        let path = run.id().path(&dir);
        let file = window.disk.open(&path, Access::Buffered).expect("a run");
        let at = run.bytes() - 100;
        let mut was = [0];
        file.read_at(at, &mut was).expect("a disk");
        file.write_at(at, &[was[0] ^ 1]).expect("a disk");
        let damaged = window.prove().fails;
        file.write_at(at, &was).expect("a disk");
        window.disk.rename(&path, "aside").expect("a disk");
        let missing = window.prove().fails;
        window.disk.rename("aside", &path).expect("a disk");
        for fails in [damaged, missing] {
            assert_eq!(fails.is_some(), is_read, "{fails:?}");
            let name = run.id().name();
            assert!(fails.is_none_or(|fails| fails.contains(&name)), "{name}");
        }
    }
    assert_eq!(window.prove().fails, None);
}

#[cfg(feature = "flaws")]
mod seeded_bugs {
    use perdura_base::flaw::{Flaw, arm};

    use super::*;

    #[test]
    fn unbound_digests_do_not_see_two_swapped_pages() {
        arm(Some(Flaw::DigestUnbound));
        let (found, all) = Window::new().swaps_found();
        arm(None);
        assert!(all > 10 && found < all, "{found} of {all}");
    }
}
