//! Tests the worked examples of the tree's records, and records that are cut, have flipped bits or have random fields.

use crate::common::examples;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::{
    Delta, EndCheckpoint, Malformed, PageChange, Structure, TreeRecord, Writes,
};
use proptest::prelude::*;

const TREE_RECORD_MD: &str = include_str!("../../../../docs/formats/tree-record.md");

fn encode(gsn: Gsn, record: &TreeRecord) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out, gsn);
    out
}

fn pids(pids: &[u32]) -> Vec<Pid> {
    pids.iter().copied().map(Pid).collect()
}

#[test]
fn the_examples_of_the_page_round_trip() {
    let delta = Delta {
        first_note: 10,
        tc_lsn: Gsn(290),
        fw_lsn: Gsn(280),
        first_dirty: 2,
        dirty: pids(&[5, 7, 5]),
        written: pids(&[7]),
        lsns: None,
    };
    let with_lsns = Delta {
        lsns: Some(vec![Gsn(270), Gsn(281), Gsn(295)]),
        ..delta.clone()
    };
    let without_writes = Delta {
        fw_lsn: Gsn(290),
        first_dirty: 1,
        dirty: pids(&[5]),
        written: Vec::new(),
        ..delta.clone()
    };
    let writes = Writes {
        fw_lsn: Gsn(280),
        written: pids(&[7]),
    };
    let end = EndCheckpoint {
        rssp: Gsn(302),
        dirty: vec![(Pid(5), Gsn(309)), (Pid(200), Gsn(305))],
    };
    let edit = |pid, cut: Option<&[u8]>, puts: &[(&[u8], u32)]| {
        let put = |(key, value): &(&[u8], u32)| (key.to_vec(), value.to_le_bytes().to_vec());
        let change = PageChange::Edit {
            cut: cut.map(<[u8]>::to_vec),
            drops: Vec::new(),
            puts: puts.iter().map(put).collect(),
        };
        (Pid(pid), change)
    };
    let split = Structure {
        changes: vec![
            edit(0, None, &[(b"", 10)]),
            edit(1, None, &[(b"m", 9)]),
            edit(2, Some(b"m"), &[]),
        ],
    };
    let drop = PageChange::Edit {
        cut: None,
        drops: vec![b"m".to_vec()],
        puts: Vec::new(),
    };
    let dropped = Structure {
        changes: vec![(Pid(1), drop)],
    };
    let page = PageChange::Image {
        front: vec![1, 2, 3, 4],
        back: vec![5],
    };
    let image = Structure {
        changes: vec![(Pid(9), page)],
    };
    let want = [
        (Gsn(300), TreeRecord::Delta(delta)),
        (Gsn(300), TreeRecord::Delta(with_lsns)),
        (Gsn(300), TreeRecord::Delta(without_writes)),
        (Gsn(301), TreeRecord::Writes(writes)),
        (Gsn(302), TreeRecord::RedoStart),
        (Gsn(310), TreeRecord::EndCheckpoint(end)),
        (Gsn(311), TreeRecord::Structure(split)),
        (Gsn(312), TreeRecord::Structure(dropped)),
        (Gsn(312), TreeRecord::Structure(image)),
    ];
    let examples = examples(TREE_RECORD_MD);
    assert_eq!(examples.len(), want.len());
    for (example, (gsn, record)) in examples.iter().zip(want) {
        assert_eq!(&encode(gsn, &record), example, "{record:?}");
        assert_eq!(TreeRecord::decode(example), Ok((gsn, record)));
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_read_or_refused_with_its_place() {
    for example in examples(TREE_RECORD_MD) {
        for len in 0..example.len() {
            let refused = TreeRecord::decode(&example[..len]).expect_err("a cut");
            assert!(refused.at <= len, "{refused}");
        }
        for at in 0..example.len() {
            for bit in 0..8 {
                let mut damaged = example.clone();
                damaged[at] ^= 1 << bit;
                // A record has only one encoding: if the bytes can be decoded, encoding the record gives them again.
                if let Ok((gsn, record)) = TreeRecord::decode(&damaged) {
                    assert_eq!(encode(gsn, &record), damaged);
                }
            }
        }
    }
}

#[test]
fn what_no_tree_can_have_seen_is_refused_by_name() {
    let refused = |bytes: &[u8]| TreeRecord::decode(bytes).expect_err("a fault").expected;
    let cases: [(&[u8], &str); 10] = [
        (&[9, 1], "the kind of a tree's record"),
        (&[3, 0], "a number of at least 1"),
        (&[3, 1, 0], "the record's end"),
        (
            &[1, 5, 0, 0, 5, 5, 0, 0, 0],
            "an end of the stable log below the record",
        ),
        (
            &[1, 5, 0, 0, 3, 4, 0, 0, 1, 1],
            "a first write no later than it",
        ),
        (
            &[1, 5, 0, 0, 4, 4, 1, 0, 1, 1],
            "no more notes before the first write than there are",
        ),
        (
            &[1, 5, 0, 0, 4, 3, 0, 0, 0],
            "no first write where nothing was written",
        ),
        (&[2, 5, 4, 0], "written pages"),
        (&[4, 5, 2, 2, 1, 3, 1, 3], "a page above the one before it"),
        (
            &[1, 5, 0, 0, 4, 4, 0, 255, 255, 3],
            "a count of no more than follow",
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(refused(bytes), expected, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        match TreeRecord::decode(&bytes) {
            Ok((gsn, record)) => prop_assert_eq!(encode(gsn, &record), bytes),
            Err(Malformed { at, .. }) => prop_assert!(at <= bytes.len()),
        }
    }

    #[test]
    fn random_deltas_round_trip(
        dirty in prop::collection::vec((any::<u32>(), 1u64..1000), 1..40),
        written in prop::collection::vec(any::<u32>(), 1..10),
        (first_note, tc_lsn, earlier, first_dirty) in (any::<u64>(), 0u64..1000, 0u64..1000, any::<prop::sample::Index>()),
        with_lsns in any::<bool>(),
    ) {
        let delta = Delta {
            first_note,
            tc_lsn: Gsn(tc_lsn),
            fw_lsn: Gsn(tc_lsn.saturating_sub(earlier)),
            first_dirty: first_dirty.index(dirty.len()),
            dirty: dirty.iter().map(|(pid, _)| Pid(*pid)).collect(),
            written: pids(&written),
            lsns: with_lsns.then(|| dirty.iter().map(|(_, lsn)| Gsn(*lsn)).collect()),
        };
        let record = TreeRecord::Delta(delta);
        let bytes = encode(Gsn(1000), &record);
        prop_assert_eq!(TreeRecord::decode(&bytes), Ok((Gsn(1000), record)));
    }
}
