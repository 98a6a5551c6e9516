//! Tests of runs made from a log. The records arrive in any order. A run must contain each record once, and in the
//! order of a run.

use std::sync::Arc;

use perdura_archive::quick::WORKSPACE_BYTES;
use perdura_archive::{Codec, Moment, Moments, Quick, RunTarget, Scope};
use perdura_base::{CkptEpoch, Epoch, Error, PageId, Pos, Useq};
use perdura_device::Disk;
use perdura_page::diff::FragmentWriter;
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_page::{RegionDigest, for_each_record};

use crate::common::{CHUNKS, DIR, Owned, UUID, disk, open, records};

/// Makes a transaction in one epoch. Returns the transaction's group, encoded as in the log, and the records that a run
/// must contain for the group.
fn transaction(rng: &mut fastrand::Rng, epoch: u64, useq: &mut u32) -> (Vec<u8>, Vec<Owned>) {
    let (mut payload, mut owned) = (Vec::new(), Vec::new());
    let count = rng.usize(1..6);
    encode_group_head(&mut payload, CkptEpoch(9), count);
    for _ in 0..count {
        let page = PageId(rng.u32(0..300));
        let (offset, xor) = (rng.usize(16..16_000), [rng.u8(1..), rng.u8(1..)]);
        *useq = useq.wrapping_add(1);
        let tag = rng.u64(5..=9);
        let mut bytes = Vec::new();
        FragmentWriter::new(&mut bytes).whole(offset, &[0, 0], &xor);
        let head = RecordHead {
            page,
            useq: Useq(*useq),
            tag: CkptEpoch(tag),
            fragments: 1,
        };
        encode_record_head(&mut payload, CkptEpoch(9), &head);
        payload.extend_from_slice(&bytes);
        let at = (CHUNKS.partition_of(page).0, CHUNKS.local_index(page));
        owned.push(Owned::one(at, epoch, tag, *useq, offset, &xor));
    }
    (payload, owned)
}

fn add(quick: &mut Quick, epoch: u64, payload: &[u8]) {
    let added = for_each_record(payload, |record| {
        quick
            .add(Epoch(epoch), &record)
            .expect("an epoch of the run");
    });
    assert!(added.is_some(), "a whole group");
}

fn write(disk: &Arc<dyn Disk>, quick: Quick, end: u64) -> perdura_archive::RunSummary {
    let sorted = quick.cut(Epoch(end)).expect("the end of an epoch");
    let digest = Arc::new(RegionDigest::new());
    let target = RunTarget {
        disk: Arc::clone(disk) as _,
        dir: DIR.to_owned(),
        digest,
    };
    let run = sorted.write(target, UUID, 0, Codec::Lz4);
    let moments = Moments::sampled(&[Moment {
        epoch: Epoch(end - 1),
        wall_us: end,
    }]);
    run.expect("memory")
        .run(&moments, &[Pos(end), Pos(7)])
        .expect("memory")
}

#[test]
fn the_runs_of_a_history_have_each_of_its_records_once_in_order() {
    let mut rng = fastrand::Rng::with_seed(1);
    let region = RegionDigest::new();
    for _ in 0..20 {
        let disk = disk();
        let mut useq = rng.u32(..);
        let (mut epoch, mut all, mut found) = (1, Vec::new(), Vec::new());
        for _ in 0..4 {
            let begin = epoch;
            let mut quick = Quick::new(Epoch(begin), CHUNKS, WORKSPACE_BYTES);
            epoch += rng.u64(1..30);
            // Read the log's two streams one after the other.
            for _ in 0..2 {
                for e in begin..epoch {
                    for _ in 0..rng.usize(0..9) {
                        let (payload, owned) = transaction(&mut rng, e, &mut useq);
                        add(&mut quick, e, &payload);
                        all.extend(owned);
                    }
                }
            }
            let records_in = quick.records();
            let summary = write(&disk, quick, epoch);
            assert_eq!(summary.id.epochs.begin, Epoch(begin));
            assert_eq!(summary.records, u64::try_from(records_in).expect("few"));
            let run = open(&disk, summary.id).expect("a run");
            run.verify(&region).expect("a whole run");
            assert_eq!(
                (run.bytes(), run.ends()),
                (summary.bytes, &[Pos(epoch), Pos(7)][..])
            );
            assert!(run.has_moment(Epoch(begin)) && !run.has_moment(Epoch(epoch)));
            let mut records = records(&run, &Scope::All).expect("whole");
            assert!(records.is_sorted_by_key(Owned::key));
            found.append(&mut records);
        }
        let order = |owned: &Owned| (owned.key(), owned.bytes.clone());
        all.sort_by_key(order);
        found.sort_by_key(order);
        assert_eq!(found, all);
    }
}

#[test]
fn a_run_is_not_cut_inside_an_epoch_and_takes_no_earlier_one() {
    let mut rng = fastrand::Rng::with_seed(2);
    let (payload, _) = transaction(&mut rng, 12, &mut 0);
    let quick = || {
        let mut quick = Quick::new(Epoch(10), CHUNKS, 1000);
        add(&mut quick, 12, &payload);
        quick
    };
    for end in [10, 11, 12] {
        let cut = quick().cut(Epoch(end)).err();
        assert!(matches!(cut, Some(Error::Usage(_))), "end {end}");
    }
    assert!(quick().cut(Epoch(13)).is_ok());
    let empty = Quick::new(Epoch(10), CHUNKS, 1000);
    assert!(matches!(empty.cut(Epoch(10)).err(), Some(Error::Usage(_))));
    let mut early = quick();
    let refused = for_each_record(&payload, |record| {
        for epoch in [9, 10 + (1 << 24)] {
            let added = early.add(Epoch(epoch), &record);
            assert!(matches!(added, Err(Error::Usage(_))), "epoch {epoch}");
        }
    });
    assert!(refused.is_some());
}

#[test]
fn a_workspace_is_full_by_bytes_or_by_epochs() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut quick = Quick::new(Epoch(1), CHUNKS, 10_000);
    let mut records = 0;
    while !quick.is_full() {
        let (payload, owned) = transaction(&mut rng, 1, &mut 0);
        add(&mut quick, 1, &payload);
        records += owned.len();
    }
    assert_eq!(quick.records(), records);
    assert!(
        (10_000..11_000).contains(&quick.bytes()),
        "{}",
        quick.bytes()
    );
    let mut long = Quick::new(Epoch(1), CHUNKS, 10_000);
    let (payload, _) = transaction(&mut rng, 1 << 24, &mut 0);
    add(&mut long, 1 << 24, &payload);
    assert!(long.is_full());
}
