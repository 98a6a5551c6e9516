//! Tests of the merge daemon: its choice of runs, the moments that it keeps, and the number of I/Os in a step.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::merger::choose;
use perdura_archive::{
    BackupId, Edit, Manifest, Merger, MergerOptions, MergerStep, Object, ObjectId, PageAt, RunId,
    Scope, Store, Verdict,
};
use perdura_base::{Epoch, Error};
use perdura_device::{Access, Disk, MemDisk, SimDisk};
use perdura_page::RegionDigest;
use perdura_page::diff::xor_into;
use perdura_page::layout::PAGE_BYTES;

use crate::common::{Owned, id, random, records};
use crate::store::{agent, archive, contents, create, of_log, open};

fn merger(store: &Arc<Store>, options: MergerOptions) -> Merger {
    Merger::new(Arc::clone(store), options, Arc::new(RegionDigest::new())).expect("the lease")
}

/// Returns options that merge four runs into one. The only kept moments are the run's end and the cuts.
fn combining() -> MergerOptions {
    MergerOptions {
        fan_in: 4,
        policy: Arc::new(|_, _| Verdict::Only(Vec::new())),
        ..MergerOptions::default()
    }
}

fn log() -> Vec<Owned> {
    random(&mut fastrand::Rng::with_seed(31), 1..41, 600)
}

fn stored(end: u64, log: &[Owned]) -> (Arc<dyn Disk>, Arc<Store>) {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let store = create(&disk).expect("memory");
    for end in (11..=end).step_by(10) {
        archive(&store, log, end).expect("memory");
    }
    (disk, store)
}

/// Merges the runs of a manifest by the daemon's rule, without files. A merged run gets the total size of its inputs.
fn settle(manifest: &mut Manifest, fan_in: usize, bytes_max: u64) {
    while let Some(inputs) = choose(manifest, fan_in, bytes_max) {
        let bytes_of = |id: &RunId| manifest.object(ObjectId::Run(*id)).expect("a run").bytes;
        let bytes: u64 = inputs.iter().map(bytes_of).sum();
        assert!(bytes <= bytes_max && inputs.len() >= 2);
        let (first, last) = (inputs[0], inputs[inputs.len() - 1]);
        let output = id(first.epochs.begin.0, last.epochs.end.0, first.level + 1, 0);
        let edit = Edit::Replace {
            inputs,
            output: Object {
                id: ObjectId::Run(output),
                bytes,
                crc: 0,
            },
            kept: None,
        };
        edit.apply(manifest).expect("neighbours");
    }
}

fn add(manifest: &mut Manifest, bytes: u64) {
    let begin = manifest.end.0;
    let edit = Edit::AddRun {
        run: Object {
            id: ObjectId::Run(id(begin, begin + 1, 0, 0)),
            bytes,
            crc: 0,
        },
        ends: manifest.positions.clone(),
        images: None,
        moments: perdura_archive::Moments::default(),
    };
    edit.apply(manifest).expect("the next run");
}

#[test]
fn tiers_have_fewer_runs_than_become_one_and_descend() {
    let (_, store) = stored(1, &[]);
    let mut manifest = Manifest::clone(&store.manifest());
    for i in 1..=5000u64 {
        add(&mut manifest, 1);
        settle(&mut manifest, 10, u64::MAX);
        let levels: Vec<u8> = manifest.runs().map(|run| run.level).collect();
        assert!(levels.is_sorted_by(|a, b| a >= b), "{levels:?}");
        let largest = levels.chunk_by(|a, b| a == b).map(<[u8]>::len).max();
        assert!(largest < Some(10), "{levels:?}");
        // The number of runs equals the sum of the decimal digits of `i`: each digit is the number of runs in one tier.
        let digits: u64 = i.to_string().bytes().map(|b| u64::from(b - b'0')).sum();
        assert_eq!(u64::try_from(levels.len()), Ok(digits));
    }
}

#[test]
fn merged_files_are_bounded() {
    let (_, store) = stored(1, &[]);
    let mut rng = fastrand::Rng::with_seed(2);
    let mut manifest = Manifest::clone(&store.manifest());
    let mut total = 0;
    for _ in 0..2000u64 {
        let bytes = rng.u64(1..150);
        total += bytes;
        add(&mut manifest, bytes);
        settle(&mut manifest, 4, 1000);
    }
    let sizes: Vec<u64> = manifest.objects.iter().map(|object| object.bytes).collect();
    assert_eq!(sizes.iter().sum::<u64>(), total);
    assert!(sizes.iter().all(|bytes| *bytes <= 1000));
    let count = u64::try_from(sizes.len()).expect("small");
    assert!(count < total / 400, "{count} files of {total} bytes");
}

/// Groups records by page and by the number of images that are not newer than the record's tag. Returns the XOR of each
/// group's records, and the number of their updates.
fn by_side(records: &[Owned], store: &Store) -> BTreeMap<(PageAt, u64), (Vec<u8>, u64)> {
    let manifest = store.manifest();
    let mut sums = BTreeMap::new();
    for owned in records {
        let place = (owned.at, manifest.images.side(owned.tag));
        let empty = || (vec![0; PAGE_BYTES], 0);
        let (page, updates) = sums.entry(place).or_insert_with(empty);
        *updates += owned.updates.count;
        for fragment in owned.record().fragments() {
            let end = fragment.offset + fragment.bytes.len();
            xor_into(&mut page[fragment.offset..end], fragment.bytes);
        }
    }
    sums
}

#[test]
fn records_are_combined_on_each_side_of_the_images_of_the_manifest() {
    let log = log();
    let (disk, store) = stored(41, &log);
    // An agent knows the images only from the manifest.
    let (helper, _) = open(&disk, agent(9)).expect("an agent");
    let made = merger(&helper, combining()).run().expect("memory");
    assert_eq!(made, [id(1, 41, 1, 0)]);
    assert_eq!(store.refresh().expect("memory").runs().count(), 1);
    let merged = contents(&store).expect("a run");
    let sides = by_side(&log, &store);
    assert_eq!(by_side(&merged, &store), sides);
    assert_eq!(
        merged.len(),
        sides.len(),
        "one record for each page and side"
    );
    assert!(merged.len() < log.len() / 2);
    let names = disk.list(&store.runs_dir()).expect("memory");
    assert_eq!(names, [id(1, 41, 1, 0).name()]);
    assert_eq!(
        store
            .verify(&RegionDigest::new())
            .expect("whole")
            .faults
            .len(),
        0
    );
}

/// Adds a cut: a backup of the state at the end of epoch `end`. The backup's file has no valid contents, because the
/// merger never reads it.
fn add_cut(store: &Arc<Store>, end: u64) {
    let id = BackupId::cut(Epoch(end));
    let path = id.path(&store.backups_dir());
    let file = store.disk().create(&path, Access::Buffered);
    file.and_then(|file| file.set_len(4096)).expect("memory");
    let cut = Object {
        id: ObjectId::Cut(id),
        bytes: 4096,
        crc: 0,
    };
    let within = store.manifest().run_around(id.end);
    let added = store.publish(Edit::AddCut { cut, within }).run();
    added.expect("its moment is there");
}

#[test]
fn the_moment_of_a_cut_is_kept_also_of_one_made_meanwhile() {
    let log = log();
    let (_, store) = stored(41, &log);
    add_cut(&store, 7);
    let mut merger = merger(&store, combining());
    // The merger opens its inputs while the archive has one cut.
    for _ in 0..8 {
        assert!(matches!(merger.step(), Ok(MergerStep::Worked)));
    }
    add_cut(&store, 23);
    let given_up = loop {
        match merger.step().expect("memory") {
            MergerStep::Worked => {}
            MergerStep::GivenUp(id, error) => break (id, error),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(given_up.0, id(1, 41, 1, 0));
    assert!(
        given_up.1.to_string().contains("its moment"),
        "{}",
        given_up.1
    );
    assert_eq!(contents(&store).expect("the inputs"), of_log(&log, &store));
    assert_eq!(merger.run().expect("memory"), [id(1, 41, 1, 1)]);
    let run = store.open_run(id(1, 41, 1, 1)).expect("a run");
    assert!(run.has_moment(Epoch(7)) && run.has_moment(Epoch(23)));
    assert!(!run.has_moment(Epoch(8)));
    let up_to = |records: &[Owned], end| {
        let is_in = |r: &&Owned| r.epochs.last <= Epoch(end);
        let own: Vec<Owned> = records.iter().filter(is_in).cloned().collect();
        by_side(&own, &store)
    };
    let merged = records(&run, &Scope::All).expect("a run");
    for end in [7, 23, 40] {
        assert_eq!(up_to(&merged, end), up_to(&log, end), "epoch {end}");
    }
}

#[test]
fn a_step_changes_the_disk_once() {
    let sim = SimDisk::new(1);
    let disk: Arc<dyn Disk> = sim.life();
    let store = create(&disk).expect("a disk");
    let log = log();
    for end in [11, 21, 31, 41] {
        archive(&store, &log, end).expect("a disk");
    }
    let mut merger = merger(&store, combining());
    loop {
        let before = sim.ops();
        let step = merger.step().expect("a disk");
        assert!(sim.ops() <= before + 1, "{step:?}");
        if matches!(step, MergerStep::Idle) {
            break;
        }
    }
    assert_eq!(store.manifest().runs().count(), 1);
}

#[test]
fn a_damaged_input_ends_the_merge_and_stays() {
    let (disk, store) = stored(41, &log());
    let path = id(11, 21, 0, 0).path(&store.runs_dir());
    let file = disk.open(&path, Access::Buffered).expect("a run");
    let mut byte = [0];
    file.read_at(300, &mut byte).expect("memory");
    file.write_at(300, &[!byte[0]]).expect("memory");
    let mut merger = merger(&store, combining());
    for _ in 0..2 {
        let error = merger.run().expect_err("damage");
        assert!(
            matches!(&error, Error::Corrupt(at) if at.file == path),
            "{error}"
        );
    }
    assert_eq!(store.manifest().runs().count(), 4);
    file.write_at(300, &byte).expect("memory");
    assert_eq!(merger.run().expect("mended").len(), 1);
}
