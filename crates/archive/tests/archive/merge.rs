//! Tests of merges of random records. A restore from a retained image to a kept moment must give the same bytes and
//! update numbers with and without merging.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::{
    Codec, Images, Keep, Merge, MergeOptions, Merged, Moment, Moments, PageAt, Progress, Run,
    Scope, Updates,
};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result, Useq};
use perdura_device::Disk;
use perdura_page::RegionDigest;
use perdura_page::diff::xor_into;
use perdura_page::layout::PAGE_BYTES;
use proptest::prelude::*;

use crate::common::{DIR, Owned, disk, header, id, open, records, write};

/// The log of some pages, divided into runs. The tags of a page rise, except that a restart lowers them.
struct History {
    records: Vec<Owned>,
    /// For each run, the epoch after the run's last epoch. The first run begins with epoch 1.
    ends: Vec<u64>,
}

impl History {
    fn random(seed: u64) -> History {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut ends = vec![1];
        for _ in 0..rng.usize(2..6) {
            ends.push(ends[ends.len() - 1] + rng.u64(1..20));
        }
        let end = ends[ends.len() - 1];
        let mut records = Vec::new();
        for _ in 0..rng.usize(1..8) {
            let at = (rng.u16(0..4), rng.u32(0..9));
            if records
                .iter()
                .any(|r: &Owned| (r.at.partition.0, r.at.local) == at)
            {
                continue;
            }
            let (mut useq, mut tag) = (rng.u32(..), 5);
            for epoch in 1..end {
                match rng.u8(0..20) {
                    0..3 => tag += 1,
                    3 => tag = rng.u64(5..=tag),
                    _ => {}
                }
                for _ in 0..rng.usize(0..3) {
                    useq = useq.wrapping_add(1);
                    // With few offsets, changes overlap and cancel each other out.
                    let offset = *rng.choice(&[16, 40, 64, 127, 16_380]).expect("some");
                    let len = rng.usize(1..=4);
                    let xor: Vec<u8> = (0..len).map(|_| rng.u8(1..3)).collect();
                    records.push(Owned::one(at, epoch, tag, useq, offset, &xor));
                }
            }
        }
        records.sort_by_key(Owned::key);
        ends.remove(0);
        History { records, ends }
    }

    /// Writes the records into runs. Returns the runs.
    fn runs(&self, disk: &Arc<dyn Disk>) -> Vec<Arc<Run>> {
        let mut begin = 1;
        let run = |end: &u64| {
            let (from, end) = (std::mem::replace(&mut begin, *end), *end);
            let is_in = |r: &&Owned| (from..end).contains(&r.epochs.first.0);
            let own: Vec<Owned> = self.records.iter().filter(is_in).cloned().collect();
            let moments = Moments::sampled(&[moment(end - 1)]);
            let id = id(from, end, 0, 0);
            write(disk, header(id), Codec::Lz4, &own, &moments).expect("memory")
        };
        self.ends.iter().map(run).collect()
    }
}

fn moment(epoch: u64) -> Moment {
    Moment {
        epoch: Epoch(epoch),
        wall_us: 1000 * epoch,
    }
}

fn digest() -> Arc<RegionDigest> {
    Arc::new(RegionDigest::new())
}

fn merge(disk: &Arc<dyn Disk>, inputs: &[Arc<Run>], keep: Option<Keep>) -> Result<Arc<Run>> {
    let options = MergeOptions {
        keep,
        ..MergeOptions::default()
    };
    let merge = Merge::new(Arc::clone(disk), DIR, inputs.to_vec(), options, digest())?;
    open(disk, merge.run()?.id)
}

/// The changes that a restore from image `k` to epoch `to` makes. For each page: the XOR of the page's old and new
/// bytes, the applied updates, and the undone updates.
type Restored = BTreeMap<PageAt, (Vec<u8>, Option<Updates>, Option<Updates>)>;

/// Restores according to the definition: applies missing changes up to `to` to image `k`, and undoes the image's later
/// changes.
fn restore(records: &[Owned], k: u64, to: u64) -> Restored {
    let mut pages = Restored::new();
    for record in records {
        let zeros = || (vec![0; PAGE_BYTES], None, None);
        let (page, put, taken) = pages.entry(record.at).or_insert_with(zeros);
        let (reflected, wanted) = (record.tag.0 < k, record.epochs.last.0 <= to);
        if reflected != wanted {
            record.record().xor_into(page);
            let side = if wanted { put } else { taken };
            let updates = record.updates;
            *side = Some(side.map_or(updates, |all: Updates| all.join(updates)));
        }
    }
    pages
}

/// Merges the runs of a history, with moments, images and levels chosen at random. Returns a description of the fault
/// in the merged run. `None`: the merged run is correct.
fn fault(seed: u64) -> Option<String> {
    let history = History::random(seed);
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let disk = disk();
    let runs = history.runs(&disk);
    let end = history.ends[history.ends.len() - 1];
    let mut moments: Vec<u64> = (1..end - 1).filter(|_| rng.u8(0..5) == 0).collect();
    let images = Images {
        retained: (0..rng.usize(0..3))
            .map(|_| CkptEpoch(rng.u64(5..11)))
            .collect(),
        building: rng.bool().then(|| CkptEpoch(rng.u64(5..11))),
    };
    let keep = |moments: &[u64]| {
        Some(Keep {
            moments: moments.iter().copied().map(moment).collect(),
            images: images.clone(),
        })
    };
    let merged = if rng.bool() {
        merge(&disk, &runs, keep(&moments))
    } else {
        // Merge the runs at two levels. The second level keeps fewer moments.
        let split = rng.usize(1..runs.len());
        let lower = |part: &[Arc<Run>]| merge(&disk, part, keep(&moments));
        match (lower(&runs[..split]), lower(&runs[split..])) {
            (Ok(left), Ok(right)) => {
                moments.retain(|_| rng.bool());
                merge(&disk, &[left, right], keep(&moments))
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    };
    let merged = match merged {
        Ok(merged) => merged,
        Err(error) => return Some(error.to_string()),
    };
    if let Err(error) = merged.verify(&digest()) {
        return Some(error.to_string());
    }
    let found = records(&merged, &Scope::All).expect("whole");
    moments.push(end - 1);
    // Moment 0 is before the first run. A restore to it undoes all changes.
    for to in moments.iter().copied().chain([0]) {
        let retained = images.retained.iter().copied().chain(images.building);
        for k in retained.map(|k| k.0).chain([0, 100]) {
            if restore(&found, k, to) != restore(&history.records, k, to) {
                return Some(format!("image {k} at moment {to} differs"));
            }
        }
    }
    let class = |record: &Owned| {
        let interval = moments.partition_point(|m| *m < record.epochs.first.0);
        (record.at, images.side(record.tag), interval)
    };
    let mut classes: Vec<_> = history.records.iter().map(class).collect();
    classes.sort_unstable();
    classes.dedup();
    (found.len() != classes.len())
        .then(|| format!("{} records, where {} would do", found.len(), classes.len()))
}

#[test]
fn combined_runs_restore_what_their_inputs_restore() {
    for seed in 0..300 {
        assert_eq!(fault(seed), None, "seed {seed}");
    }
}

#[cfg(feature = "flaws")]
#[test]
fn seeded_bugs_of_net_changes_are_caught() {
    use perdura_base::flaw::{Flaw, arm};
    for flaw in [
        Flaw::NetAcrossImage,
        Flaw::NetAcrossBuilding,
        Flaw::TagsTakenForRising,
        Flaw::UpdateSpanLost,
    ] {
        arm(Some(flaw));
        let caught = (0..100).find_map(|seed| Some((seed, fault(seed)?)));
        arm(None);
        println!("{flaw:?}: {caught:?}");
        assert!(caught.is_some(), "{flaw:?}");
    }
}

/// Merges the first and the last run of a history, which are not neighbours. Then removes the runs within the merged
/// run's range, as a restart does.
fn strangers(seed: u64) -> Result<Option<String>> {
    let history = History::random(seed);
    let disk = disk();
    let runs = history.runs(&disk);
    let [first, .., last] = &runs[..] else {
        unreachable!("a history has two runs");
    };
    let merged = merge(&disk, &[Arc::clone(first), Arc::clone(last)], None)?;
    let found = records(&merged, &Scope::All)?;
    Ok((found != history.records)
        .then(|| format!("{} of {} records", found.len(), history.records.len())))
}

#[test]
fn runs_that_are_no_neighbours_are_not_merged() {
    let three = |seed: &u64| History::random(*seed).ends.len() > 2;
    for seed in (0..30).filter(three) {
        let refused = strangers(seed).err();
        assert!(matches!(refused, Some(Error::Usage(_))), "{refused:?}");
    }
    let disk = disk();
    let runs = History::random(1).runs(&disk);
    let backwards = [Arc::clone(&runs[1]), Arc::clone(&runs[0])];
    assert!(merge(&disk, &backwards, None).is_err());
    let twice = [Arc::clone(&runs[0]), Arc::clone(&runs[0])];
    assert!(merge(&disk, &twice, None).is_err());
    assert!(merge(&disk, &[], None).is_err());
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_strangers_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    arm(Some(Flaw::MergeOfStrangers));
    let lost = (0..30).any(|seed| strangers(seed).expect("a merge").is_some());
    arm(None);
    assert!(lost);
}

/// Cases in which a merge can easily combine too many records. Records on two sides of an image must stay apart.
#[test]
fn records_on_two_sides_of_an_image_stay_apart() {
    let images = |retained: &[u64], building: Option<u64>| Images {
        retained: retained.iter().copied().map(CkptEpoch).collect(),
        building: building.map(CkptEpoch),
    };
    // Each case: the tags in the order of the updates, the images, and the number of records after the merge.
    let cases = [
        (vec![5, 6], images(&[], None), 1),
        (vec![5, 6], images(&[6], None), 2),
        (vec![5, 6], images(&[], Some(6)), 2),
        (vec![5, 6], images(&[5, 7], Some(8)), 1),
        // After a restart the page has the earlier tag again.
        (vec![6, 5], images(&[6], None), 2),
        (vec![5, 7, 5, 7], images(&[6], None), 2),
        (vec![5, 7, 9, 5, 6, 8], images(&[6], Some(9)), 3),
    ];
    for (tags, images, want) in cases {
        let disk = disk();
        let log: Vec<Owned> = (1u32..)
            .zip(&tags)
            .map(|(i, tag)| Owned::one((0, 0), u64::from(i), *tag, i, 64, &[1]))
            .collect();
        let run = write(
            &disk,
            header(id(1, 99, 0, 0)),
            Codec::Lz4,
            &log,
            &Moments::default(),
        );
        let keep = Keep {
            moments: Vec::new(),
            images: images.clone(),
        };
        let merged = merge(&disk, &[run.expect("memory")], Some(keep)).expect("a merge");
        let found = records(&merged, &Scope::All).expect("whole");
        assert_eq!(found.len(), want, "{tags:?} {images:?}");
        let all = found.iter().map(|r| r.updates).reduce(Updates::join);
        assert!(
            all.is_some_and(|all| all.is_dense_after(Useq(0))),
            "{found:?}"
        );
        assert!(!merged.has_moment(Epoch(50)) && merged.has_moment(Epoch(98)));
    }
}

/// Two changes that cancel out leave no bytes, but the update numbers are kept.
#[test]
fn a_sum_that_is_zero_keeps_its_update_numbers() {
    let disk = disk();
    let log = [1, 2].map(|i| Owned::one((2, 1), u64::from(i), 5, i, 300, &[7, 7]));
    let run = write(
        &disk,
        header(id(1, 3, 0, 0)),
        Codec::Lz4,
        &log,
        &Moments::default(),
    );
    let merged = merge(&disk, &[run.expect("memory")], Some(Keep::default())).expect("a merge");
    let found = records(&merged, &Scope::All).expect("whole");
    assert_eq!(
        (found.len(), found[0].count, found[0].updates.count),
        (1, 0, 2)
    );
    assert!(found[0].updates.is_dense_after(Useq(0)));
    assert_eq!(merged.digests().sums().count(), 0);
    let at = PageAt {
        partition: PartitionId(2),
        local: 1,
    };
    assert!(merged.pages().contains(at));
}

#[test]
fn a_moment_that_is_gone_cannot_be_kept() {
    let disk = disk();
    let run = |begin: u64| {
        let id = id(begin, begin + 10, 0, 0);
        write(&disk, header(id), Codec::Lz4, &[], &Moments::default()).expect("memory")
    };
    let keep = |moments: &[u64]| {
        Some(Keep {
            moments: moments.iter().copied().map(moment).collect(),
            images: Images::default(),
        })
    };
    let left = merge(&disk, &[run(10), run(20)], keep(&[15])).expect("a merge");
    let right = merge(&disk, &[run(30)], keep(&[])).expect("a merge");
    let both = [left, right];
    for gone in [14, 19, 33] {
        let refused = merge(&disk, &both, keep(&[gone])).err();
        assert!(
            matches!(refused, Some(Error::Usage(_))),
            "{gone}: {refused:?}"
        );
    }
    // The records of one input were combined. So the merged run cannot have each epoch as a moment.
    assert!(matches!(
        merge(&disk, &both, None).err(),
        Some(Error::Usage(_))
    ));
    let unordered = merge(&disk, &both, keep(&[29, 15])).err();
    assert!(matches!(unordered, Some(Error::Usage(_))));
    let merged = merge(&disk, &both, keep(&[15, 29, 77])).expect("a merge");
    assert_eq!(
        (merged.id().level, merged.id().epochs),
        (2, id(10, 40, 0, 0).epochs)
    );
    let has: Vec<u64> = (0..60).filter(|e| merged.has_moment(Epoch(*e))).collect();
    assert_eq!(has, [15, 29, 39]);
}

#[test]
fn a_merge_without_a_keep_has_all_records_and_all_moments() {
    for seed in 0..30 {
        let history = History::random(seed);
        let disk = disk();
        let runs = history.runs(&disk);
        let merged = merge(&disk, &runs, None).expect("a merge");
        assert_eq!(
            records(&merged, &Scope::All).expect("whole"),
            history.records
        );
        assert!(merged.has_moment(Epoch(1)) && merged.id().level == 1);
        assert_eq!(merged.moments().list().len(), runs.len());
        // Reading the runs side by side gives the same order. This reads only some of the pages.
        for p in (0..4).map(PartitionId) {
            let scope = Scope::Pages(p, 2..7);
            let mut side_by_side = Merged::new(&runs, &scope);
            let mut found = Vec::new();
            while side_by_side.advance().expect("whole") {
                found.push(Owned::of(&side_by_side.record()));
            }
            assert!(
                !side_by_side.advance().expect("whole"),
                "the end stays the end"
            );
            assert_eq!(found, records(&merged, &scope).expect("whole"));
        }
    }
}

/// A step makes at most one read and one write. After the merge, either the complete merged run exists, or no merged
/// run.
#[test]
fn a_merge_takes_steps() {
    let disk = disk();
    let mut rng = fastrand::Rng::with_seed(3);
    let runs: Vec<Arc<Run>> = (0..3)
        .map(|i| {
            let (begin, end) = (1 + 100 * i, 101 + 100 * i);
            let log = crate::common::random(&mut rng, begin..end, 20_000);
            let id = id(begin, end, 0, 0);
            write(&disk, header(id), Codec::None, &log, &Moments::default()).expect("memory")
        })
        .collect();
    let options = MergeOptions::default();
    let mut merge = Merge::new(Arc::clone(&disk), DIR, runs, options, digest()).expect("a merge");
    let mut steps = 0;
    let summary = loop {
        steps += 1;
        if let Progress::Done(summary) = merge.step().expect("memory") {
            break summary;
        }
    };
    assert_eq!(summary.records, 60_000);
    assert!(steps > 10, "{steps} steps");
    assert!(merge.step().is_err(), "it is over");
}

/// If an input is damaged, the merge ends with an error and makes no run.
#[test]
fn a_damaged_input_is_not_merged() {
    let disk = disk();
    let mut rng = fastrand::Rng::with_seed(8);
    let log = crate::common::random(&mut rng, 1..9, 200);
    let run = write(
        &disk,
        header(id(1, 9, 0, 0)),
        Codec::Lz4,
        &log,
        &Moments::default(),
    );
    let run = run.expect("memory");
    let path = run.id().path(DIR);
    let file = disk
        .open(&path, perdura_device::Access::Buffered)
        .expect("the run");
    file.write_at(run.index()[1].offset + 50, &[0xff; 3])
        .expect("memory");
    let merged = merge(&disk, &[run], Some(Keep::default())).err();
    assert!(matches!(merged, Some(Error::Corrupt(_))), "{merged:?}");
    let names = disk.list(DIR).expect("memory");
    assert!(
        names
            .iter()
            .all(|name| !name.contains("-001-") || name.ends_with(".tmp"))
    );
}

/// Returns random changes. Each is an offset and the bytes to XOR there.
fn changes() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let change = (
        16usize..PAGE_BYTES,
        prop::collection::vec(any::<u8>(), 1..200),
    );
    prop::collection::vec(change, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_sum_of_two_records_is_both_of_them(first in changes(), second in changes()) {
        let page_of = |changes: &[(usize, Vec<u8>)]| {
            let mut page = vec![0; PAGE_BYTES];
            for (at, bytes) in changes {
                let end = (at + bytes.len()).min(PAGE_BYTES);
                xor_into(&mut page[*at..end], &bytes[..end - at]);
            }
            page
        };
        let pages = [page_of(&first), page_of(&second)];
        prop_assume!(pages.iter().all(|page| page.iter().any(|byte| *byte != 0)));
        let log: Vec<Owned> = (1u32..).zip(&pages).map(|(i, page)| {
            let mut record = Owned::one((0, 0), u64::from(i), 5, i, 16, &[1]);
            record.bytes.clear();
            let mut writer = perdura_page::diff::FragmentWriter::new(&mut record.bytes);
            writer.range(16, &vec![0; PAGE_BYTES - 16], &page[16..]);
            record.count = writer.count();
            record
        }).collect();
        let disk = disk();
        let run = write(&disk, header(id(1, 3, 0, 0)), Codec::Lz4, &log, &Moments::default());
        let merged = merge(&disk, &[run.expect("memory")], Some(Keep::default())).expect("a merge");
        let found = records(&merged, &Scope::All).expect("whole");
        prop_assert_eq!(found.len(), 1);
        let mut page = vec![0; PAGE_BYTES];
        found[0].record().xor_into(&mut page);
        let mut want = pages[0].clone();
        xor_into(&mut want, &pages[1]);
        prop_assert_eq!(page, want);
    }
}
