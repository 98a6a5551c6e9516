//! Tests the worked examples of operations, and frames that are cut, have flipped bits or have random fields.

use crate::common::examples;
use perdura_base::{Gsn, Pid, TableId, TxnId};
use perdura_formats::operation::{Act, Malformed, RowChange, decode, encode};
use proptest::prelude::*;

const OPERATION_MD: &str = include_str!("../../../../docs/formats/operation.md");

fn frame(first: Gsn, acts: &[(TxnId, Act<'_>)]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, first, acts);
    out
}

#[test]
fn the_examples_of_the_page_round_trip() {
    let row = RowChange {
        table: TableId(1),
        pid: Pid(7),
        key: b"k",
        before: Some(b"a"),
        after: Some(b"bc"),
    };
    let gone = RowChange {
        before: Some(b"bc"),
        after: None,
        ..row
    };
    let back = RowChange {
        before: None,
        after: Some(b"bc"),
        ..row
    };
    let undo_next = Gsn(300);
    let (nine, ten) = (TxnId(9), TxnId(10));
    let three = [
        (nine, Act::Change(gone)),
        (
            nine,
            Act::Compensation {
                undo_next,
                row: back,
            },
        ),
        (nine, Act::Commit),
    ];
    let want: [(Gsn, &[(TxnId, Act<'_>)]); 3] = [
        (Gsn(300), &[(nine, Act::Change(row))]),
        (Gsn(301), &three),
        (Gsn(304), &[(ten, Act::Abort)]),
    ];
    let examples = examples(OPERATION_MD);
    assert_eq!(examples.len(), want.len());
    for (example, (first, acts)) in examples.iter().zip(want) {
        assert_eq!(&frame(first, acts), example, "{acts:?}");
        let read = decode(example).expect("an example");
        assert_eq!((read.first, &read.acts[..]), (first, acts));
    }
}

#[test]
fn every_cut_and_every_flipped_bit_is_read_or_refused_with_its_place() {
    for example in examples(OPERATION_MD) {
        for len in 0..example.len() {
            let refused = decode(&example[..len]).expect_err("a cut");
            assert!(refused.at <= len, "{refused}");
        }
        for at in 0..example.len() {
            for bit in 0..8 {
                let mut damaged = example.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(read) = decode(&damaged) {
                    assert_eq!(frame(read.first, &read.acts), damaged);
                }
            }
        }
    }
}

#[test]
fn what_no_transaction_does_is_refused_by_name() {
    let refused = |bytes: &[u8]| decode(bytes).expect_err("a fault").expected;
    let cases: [(&[u8], &str); 9] = [
        (&[0, 1, 3, 1], "a number of at least 1"),
        (&[1, 0], "a count of operations that follow"),
        (&[1, 2, 3, 1], "a count of operations that follow"),
        (&[1, 1, 5, 1], "the kind of an operation"),
        (&[1, 1, 1, 1, 1, 1, 0, 0], "which rows follow"),
        (&[1, 1, 1, 1, 1, 1, 4, 0], "which rows follow"),
        (
            &[4, 1, 2, 1, 4, 1, 1, 0, 0],
            "a number below the operation's",
        ),
        (&[4, 1, 2, 1, 3, 1, 1, 1, 0, 0], "which rows follow"),
        (&[1, 1, 3, 1, 0], "the frame's end"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(refused(bytes), expected, "{bytes:?}");
    }
    let last = [0xff; 9].into_iter().chain([1, 2, 3, 1, 3, 1]);
    let last: Vec<u8> = last.collect();
    assert_eq!(refused(&last), "a count of operations that follow");
}

proptest! {
    #[test]
    fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        match decode(&bytes) {
            Ok(read) => prop_assert_eq!(frame(read.first, &read.acts), bytes),
            Err(Malformed { at, .. }) => prop_assert!(at <= bytes.len()),
        }
    }

    #[test]
    fn random_operations_round_trip(
        first in 1u64..1 << 40,
        acts in prop::collection::vec(
            (any::<u64>(), 0u8..4, any::<u32>(), any::<u32>(), prop::option::of(0usize..40), prop::option::of(0usize..40)),
            1..20,
        ),
    ) {
        let bytes = [7u8; 40];
        let row = |table, pid, before: Option<usize>, after: Option<usize>| RowChange {
            table: TableId(table),
            pid: Pid(pid),
            key: &bytes[..before.unwrap_or(3)],
            before: before.map(|len| &bytes[..len]),
            after: after.map(|len| &bytes[..len]),
        };
        let acts: Vec<_> = acts
            .into_iter()
            .map(|(txn, kind, table, pid, before, after)| {
                let act = match kind {
                    0 => Act::Change(row(table, pid, before, after.or(Some(1)))),
                    1 => Act::Compensation { undo_next: Gsn(first - 1), row: row(table, pid, None, after) },
                    2 => Act::Commit,
                    _ => Act::Abort,
                };
                (TxnId(txn), act)
            })
            .collect();
        let encoded = frame(Gsn(first), &acts);
        let read = decode(&encoded);
        prop_assert!(read.is_ok());
        let read = read.expect("asserted");
        prop_assert_eq!((read.first, read.acts), (Gsn(first), acts));
    }
}
